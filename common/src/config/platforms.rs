//! Application credentials and base URL of each platform. Every platform has the same keys, and those that want a
//! second application for pages have two more: a new one in `domain::platform::Platform` gets its keys automatically.

use std::borrow::Cow;
use std::collections::BTreeMap;

use secrecy::SecretString;

use super::keys::{Key, Preset};
use super::reader::Reader;
use super::values;
use crate::domain::platform::Platform;
use crate::platforms::PlatformConfig;

/// The last part of a platform's key.
pub(super) struct PlatformKey {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    preset: Preset,
    pub(super) example: &'static str,
    secret: bool,
}

impl PlatformKey {
    pub(super) fn preset_text(&self) -> &'static str {
        match self.preset {
            Preset::Value(text) | Preset::Words(text) => text,
            Preset::Nothing => "unset",
        }
    }
}

const OF_THE_PLATFORM: Preset = Preset::Words("the platform's own");
const CLIENT_ID: PlatformKey = PlatformKey {
    name: "CLIENT_ID",
    meaning: "The id of the application registered at the platform.",
    preset: Preset::Nothing,
    example: "1234567890",
    secret: false,
};
const CLIENT_SECRET: PlatformKey = PlatformKey {
    name: "CLIENT_SECRET",
    meaning: "Its secret.",
    preset: Preset::Nothing,
    example: "the secret that came with the id",
    secret: true,
};
const PAGE_CLIENT_ID: PlatformKey = PlatformKey {
    name: "PAGE_CLIENT_ID",
    meaning: "LinkedIn and Instagram alone: the id of the second application, for pages.",
    preset: Preset::Nothing,
    example: "1234567890",
    secret: false,
};
const PAGE_CLIENT_SECRET: PlatformKey = PlatformKey {
    name: "PAGE_CLIENT_SECRET",
    meaning: "Its secret.",
    preset: Preset::Nothing,
    example: "the secret that came with the id",
    secret: true,
};
const BASE_URL: PlatformKey = PlatformKey {
    name: "BASE_URL",
    meaning: "The host of the platform's API and tokens.",
    preset: OF_THE_PLATFORM,
    example: "https://api.example.com",
    secret: false,
};
const AUTH_URL: PlatformKey = PlatformKey {
    name: "AUTH_URL",
    meaning: "The host of the page on which a person grants access.",
    preset: OF_THE_PLATFORM,
    example: "https://www.example.com",
    secret: false,
};
const API_VERSION: PlatformKey = PlatformKey {
    name: "API_VERSION",
    meaning: "The version of the platform's API.",
    preset: OF_THE_PLATFORM,
    example: "v25.0",
    secret: false,
};
const DAILY_POSTS: PlatformKey = PlatformKey {
    name: "DAILY_POSTS",
    meaning: "How many posts go out on one account within 24 hours, before the others wait; 0: any number.",
    preset: Preset::Words(
        "Instagram 50, TikTok 15, LinkedIn and Pinterest 100, Facebook 200, Threads 250, others any number",
    ),
    example: "50",
    secret: false,
};
const PLATFORM_KEYS: &[PlatformKey] = &[CLIENT_ID, CLIENT_SECRET, BASE_URL, AUTH_URL, API_VERSION, DAILY_POSTS];

/// The keys of the platforms with a second application.
const PAGE_KEYS: &[PlatformKey] = &[PAGE_CLIENT_ID, PAGE_CLIENT_SECRET];

/// Returns the last parts of all keys, for `--help` and the README.
pub(super) fn parts() -> impl Iterator<Item = &'static PlatformKey> {
    PLATFORM_KEYS.iter().chain(PAGE_KEYS)
}

fn key(platform: Platform, part: &PlatformKey) -> Key {
    Key {
        name: Cow::Owned(format!("{}_{}", platform.as_str().to_ascii_uppercase(), part.name)),
        meaning: Cow::Borrowed(part.meaning),
        preset: part.preset,
        example: part.example,
        secret: part.secret,
    }
}

/// Returns the keys of every platform.
pub(super) fn keys() -> impl Iterator<Item = Key> {
    let of = |platform: &'static Platform| {
        let page = if platform.has_page_application() { PAGE_KEYS } else { &[] };
        PLATFORM_KEYS.iter().chain(page).map(|part| key(*platform, part))
    };
    Platform::ALL.iter().flat_map(of)
}

pub(super) fn read(reader: &mut Reader) -> BTreeMap<Platform, PlatformConfig> {
    let mut one = |platform: Platform| PlatformConfig {
        client_id: reader.optional(&key(platform, &CLIENT_ID), values::word),
        client_secret: reader.optional(&key(platform, &CLIENT_SECRET), values::word).map(SecretString::from),
        page_client_id: page(reader, platform, &PAGE_CLIENT_ID),
        page_client_secret: page(reader, platform, &PAGE_CLIENT_SECRET).map(SecretString::from),
        base_url: reader.optional(&key(platform, &BASE_URL), values::base_url),
        auth_url: reader.optional(&key(platform, &AUTH_URL), values::base_url),
        api_version: reader.optional(&key(platform, &API_VERSION), version),
        daily_posts: reader.optional(&key(platform, &DAILY_POSTS), cap),
    };
    Platform::ALL.iter().map(|platform| (*platform, one(*platform))).collect()
}

/// Reads a key that only platforms with a second application have.
fn page(reader: &mut Reader, platform: Platform, part: &PlatformKey) -> Option<String> {
    platform.has_page_application().then(|| reader.optional(&key(platform, part), values::word)).flatten()
}

fn version(text: &str) -> Result<String, String> {
    let fits = text.len() <= 40 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if fits { Ok(text.to_owned()) } else { Err("is not a version (letters, digits, dots, at most 40)".to_owned()) }
}

fn cap(text: &str) -> Result<u32, String> {
    values::number(text, 0, 1_000_000).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}
