//! The keys of each platform: its application, URLs and limits. All platforms have the same keys; those that require a
//! second application for pages have further ones, and so does Bluesky. A new platform in
//! `crier_domain::platform::Platform` gets its keys automatically.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crier_domain::analytics::Metric;
use crier_domain::platform::Platform;
use secrecy::SecretString;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;
use crate::PlatformConfig;

/// A key that each platform has: `CLIENT_ID` in `CRIER_MASTODON_CLIENT_ID`.
pub(super) struct PlatformKey {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    default: DefaultValue,
    pub(super) example: &'static str,
    secret: bool,
}

impl PlatformKey {
    pub(super) fn default_text(&self) -> &'static str {
        match self.default {
            DefaultValue::Value(text) | DefaultValue::Text(text) => text,
            DefaultValue::Unset => "unset",
        }
    }
}

const OF_THE_PLATFORM: DefaultValue = DefaultValue::Text("the platform's own");
const CLIENT_ID: PlatformKey = PlatformKey {
    name: "CLIENT_ID",
    description: "The client ID of the application registered with the platform.",
    default: DefaultValue::Unset,
    example: "1234567890",
    secret: false,
};
const CLIENT_SECRET: PlatformKey = PlatformKey {
    name: "CLIENT_SECRET",
    description: "The client secret of the application.",
    default: DefaultValue::Unset,
    example: "the secret that was issued with the ID",
    secret: true,
};
const PAGE_CLIENT_ID: PlatformKey = PlatformKey {
    name: "PAGE_CLIENT_ID",
    description: "LinkedIn and Instagram only: the client ID of the second application, for pages.",
    default: DefaultValue::Unset,
    example: "1234567890",
    secret: false,
};
const PAGE_CLIENT_SECRET: PlatformKey = PlatformKey {
    name: "PAGE_CLIENT_SECRET",
    description: "LinkedIn and Instagram only: the client secret of the second application.",
    default: DefaultValue::Unset,
    example: "the secret that was issued with the ID",
    secret: true,
};
const PAGE_SCOPES: PlatformKey = PlatformKey {
    name: "PAGE_SCOPES",
    description: "LinkedIn and Instagram only: `_SCOPES` for pages, whose permissions have different names.",
    default: DefaultValue::Text("those of `_SCOPES`"),
    example: "r_organization_social_feed",
    secret: false,
};
const BASE_URL: PlatformKey = PlatformKey {
    name: "BASE_URL",
    description: "The base URL of the platform's API and token endpoint.",
    default: OF_THE_PLATFORM,
    example: "https://api.example.com",
    secret: false,
};
const PLC_URL: PlatformKey = PlatformKey {
    name: "PLC_URL",
    description: "Bluesky only: the URL of the PLC directory, which states the server of each account. Crier compares it \
                  with the server that a user enters.",
    default: OF_THE_PLATFORM,
    example: "https://plc.example.com",
    secret: false,
};
const VIDEO_URL: PlatformKey = PlatformKey {
    name: "VIDEO_URL",
    description: "Bluesky only: the URL of the service that processes videos.",
    default: OF_THE_PLATFORM,
    example: "https://video.example.com",
    secret: false,
};
const AUTH_URL: PlatformKey = PlatformKey {
    name: "AUTH_URL",
    description: "The base URL of the page on which a person grants access.",
    default: OF_THE_PLATFORM,
    example: "https://www.example.com",
    secret: false,
};
const API_VERSION: PlatformKey = PlatformKey {
    name: "API_VERSION",
    description: "The version of the platform's API.",
    default: OF_THE_PLATFORM,
    example: "v25.0",
    secret: false,
};
const DAILY_POSTS: PlatformKey = PlatformKey {
    name: "DAILY_POSTS",
    description: "The maximum number of posts per account within 24 hours. For YouTube: of videos per application and \
                  day. Further posts wait. 0 means unlimited.",
    default: DefaultValue::Text(
        "Instagram 50, TikTok 15, LinkedIn, Pinterest and YouTube 100, Facebook 200, Threads 250, others unlimited",
    ),
    example: "50",
    secret: false,
};
const SCOPES: PlatformKey = PlatformKey {
    name: "SCOPES",
    description: "Permissions to request in addition to those for publishing. docs/platforms.md lists the names.",
    default: DefaultValue::Text("none"),
    example: "read_insights",
    secret: false,
};
const METRICS: PlatformKey = PlatformKey {
    name: "METRICS",
    description: "The platform's names of metrics that it has renamed: `metric=name`, with + between names and commas \
              between metrics. docs/analytics.md lists the names.",
    default: OF_THE_PLATFORM,
    example: "impressions=views,shares=reposts+quotes",
    secret: false,
};
const INBOX: PlatformKey = PlatformKey {
    name: "INBOX",
    description: "Whether Crier reads messages and replies to them, if the platform supports it. X charges for each message \
              that is read.",
    default: DefaultValue::Value("true"),
    example: "false",
    secret: false,
};
const ANALYTICS: PlatformKey = PlatformKey {
    name: "ANALYTICS",
    description: "Whether Crier collects metrics of posts and accounts, if the platform supports it. X charges for each \
              post and account.",
    default: DefaultValue::Text("true (false for X)"),
    example: "true",
    secret: false,
};
const VIDEO_MAX_MIB: PlatformKey = PlatformKey {
    name: "VIDEO_MAX_MIB",
    description: "Facebook, Instagram, LinkedIn and X only: the maximum size of a video, in MiB. It does not apply to \
              stories on Instagram.",
    default: DefaultValue::Text("Facebook 2 GB, Instagram 300 MB, LinkedIn 5 GB, X 8 GB"),
    example: "1024",
    secret: false,
};
const VIDEO_MAX_SECONDS: PlatformKey = PlatformKey {
    name: "VIDEO_MAX_SECONDS",
    description: "Facebook, Instagram, LinkedIn and X only: the maximum duration of a video, in seconds. It does not \
              apply to stories, nor to reels on Facebook.",
    default: DefaultValue::Text("Facebook unlimited, Instagram 900, LinkedIn 1800, X 1200"),
    example: "7500",
    secret: false,
};
const PLATFORM_KEYS: &[PlatformKey] =
    &[CLIENT_ID, CLIENT_SECRET, BASE_URL, AUTH_URL, API_VERSION, DAILY_POSTS, SCOPES, METRICS, INBOX, ANALYTICS];

/// The keys of the platforms with a second application.
const PAGE_KEYS: &[PlatformKey] = &[PAGE_CLIENT_ID, PAGE_CLIENT_SECRET, PAGE_SCOPES];

/// The keys that only Bluesky has.
const BLUESKY_KEYS: &[PlatformKey] = &[PLC_URL, VIDEO_URL];

/// The keys of the platforms whose documentation is contradictory about videos.
const VIDEO_KEYS: &[PlatformKey] = &[VIDEO_MAX_MIB, VIDEO_MAX_SECONDS];

/// Returns each key once, without a platform, for `--help` and `docs/configuration.md`.
pub(super) fn parts() -> impl Iterator<Item = &'static PlatformKey> {
    PLATFORM_KEYS.iter().chain(PAGE_KEYS).chain(BLUESKY_KEYS).chain(VIDEO_KEYS)
}

fn key(platform: Platform, part: &PlatformKey) -> Key {
    Key {
        name: Cow::Owned(format!("{}_{}", platform.as_str().to_ascii_uppercase(), part.name)),
        description: Cow::Borrowed(part.description),
        default: part.default,
        example: part.example,
        secret: part.secret,
    }
}

/// Returns the keys of every platform.
pub(super) fn keys() -> impl Iterator<Item = Key> {
    let of = |platform: &'static Platform| {
        let page = if platform.has_page_application() { PAGE_KEYS } else { &[] };
        let own = if *platform == Platform::Bluesky { BLUESKY_KEYS } else { &[] };
        let video = if platform.has_uncertain_video_limits() { VIDEO_KEYS } else { &[] };
        PLATFORM_KEYS.iter().chain(page).chain(own).chain(video).map(|part| key(*platform, part))
    };
    Platform::ALL.iter().flat_map(of)
}

pub(super) fn read(reader: &mut Reader) -> BTreeMap<Platform, PlatformConfig> {
    let mut read_platform = |platform: Platform| PlatformConfig {
        client_id: reader.optional(&key(platform, &CLIENT_ID), values::word),
        client_secret: reader.optional(&key(platform, &CLIENT_SECRET), values::word).map(SecretString::from),
        page_client_id: read_page_key(reader, platform, &PAGE_CLIENT_ID, values::word),
        page_client_secret: read_page_key(reader, platform, &PAGE_CLIENT_SECRET, values::word).map(SecretString::from),
        base_url: reader.optional(&key(platform, &BASE_URL), values::base_url),
        plc_url: match platform {
            Platform::Bluesky => reader.optional(&key(platform, &PLC_URL), values::base_url),
            _ => None,
        },
        video_url: match platform {
            Platform::Bluesky => reader.optional(&key(platform, &VIDEO_URL), values::base_url),
            _ => None,
        },
        auth_url: reader.optional(&key(platform, &AUTH_URL), values::base_url),
        api_version: reader.optional(&key(platform, &API_VERSION), version),
        daily_posts: reader.optional(&key(platform, &DAILY_POSTS), cap),
        scopes: reader.optional(&key(platform, &SCOPES), scopes).unwrap_or_default(),
        page_scopes: read_page_key(reader, platform, &PAGE_SCOPES, scopes),
        metrics: reader.optional(&key(platform, &METRICS), metrics).unwrap_or_default(),
        no_inbox: !reader.parse(&key(platform, &INBOX), values::boolean),
        analytics: reader.optional(&key(platform, &ANALYTICS), values::boolean),
        video_max_bytes: read_video_key(reader, platform, &VIDEO_MAX_MIB, mebibytes),
        video_max_ms: read_video_key(reader, platform, &VIDEO_MAX_SECONDS, seconds),
    };
    Platform::ALL.iter().map(|platform| (*platform, read_platform(*platform))).collect()
}

/// Reads a key that only platforms with a second application have.
fn read_page_key<T>(
    reader: &mut Reader,
    platform: Platform,
    part: &PlatformKey,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    platform.has_page_application().then(|| reader.optional(&key(platform, part), parse)).flatten()
}

/// Reads a key that only platforms with contradictory documentation of videos have.
fn read_video_key<T>(
    reader: &mut Reader,
    platform: Platform,
    part: &PlatformKey,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    platform.has_uncertain_video_limits().then(|| reader.optional(&key(platform, part), parse)).flatten()
}

/// Parses a number of MiB into bytes.
fn mebibytes(text: &str) -> Result<u64, String> {
    values::number(text, 1, 1 << 20).map(|number| (number as u64) << 20)
}

/// Parses a number of seconds, at most a day, into milliseconds.
fn seconds(text: &str) -> Result<u32, String> {
    values::number(text, 1, 86_400).map(|number| u32::try_from(number * 1_000).unwrap_or(u32::MAX))
}

fn version(text: &str) -> Result<String, String> {
    let fits = text.len() <= 40 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if fits { Ok(text.to_owned()) } else { Err("is not a version (letters, digits, dots, at most 40)".to_owned()) }
}

fn cap(text: &str) -> Result<u32, String> {
    values::number(text, 0, 1_000_000).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Parses a list of permissions, separated by commas or spaces.
fn scopes(text: &str) -> Result<Vec<String>, String> {
    let scopes: Vec<String> = text.split([',', ' ']).filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
    let is_scope =
        |scope: &String| scope.len() <= 200 && scope.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:".contains(c));
    match scopes.iter().find(|scope| !is_scope(scope)) {
        Some(wrong) => Err(format!("has `{wrong}`, which is not a permission name")),
        None => Ok(scopes),
    }
}

/// Parses `impressions=views,shares=reposts+quotes`. A metric without a name is not read.
fn metrics(text: &str) -> Result<Vec<(Metric, Vec<String>)>, String> {
    let is_name = |name: &str| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        name.len() <= 100 && name.chars().all(is_known)
    };
    let mut read: Vec<(Metric, Vec<String>)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (metric, names) = part.split_once('=').ok_or(format!("has `{part}`, which is not metric=name"))?;
        let metric: Metric =
            metric.trim().parse().map_err(|_| format!("has `{metric}`, which is not one of: {}", known_metrics()))?;
        let names: Vec<&str> = names.split('+').map(str::trim).filter(|name| !name.is_empty()).collect();
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            return Err(format!("has `{name}`, which is not a metric name (letters, digits and _-./, at most 100)"));
        }
        if read.iter().any(|(other, _)| *other == metric) {
            return Err(format!("has `{metric}` twice"));
        }
        read.push((metric, names.into_iter().map(str::to_owned).collect()));
    }
    Ok(read)
}

fn known_metrics() -> String {
    Metric::ALL.iter().map(|metric| metric.as_str()).collect::<Vec<_>>().join(", ")
}
