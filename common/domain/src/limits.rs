//! What Crier reads from the platform about an account, when it is connected and once per day: the limits of its server,
//! where each server sets its own (Mastodon and servers that implement its API), and the boards of Pinterest.

use std::array;
use std::borrow::Cow;
use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::platform::{Capabilities, CommentRules, Descriptor, MediaRules, TextRules, TextUnit, VideoRules};

/// How often limits and boards are read.
const INTERVAL: TimeDelta = TimeDelta::days(1);

/// The types of images that Crier sends.
pub const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
/// The types of videos that Crier sends.
pub const VIDEO_TYPES: [&str; 3] = ["video/mp4", "video/quicktime", "video/webm"];
static IMAGE_TYPE_SETS: LazyLock<[Vec<&str>; 1 << IMAGE_TYPES.len()]> = LazyLock::new(|| subsets(&IMAGE_TYPES));
static VIDEO_TYPE_SETS: LazyLock<[Vec<&str>; 1 << VIDEO_TYPES.len()]> = LazyLock::new(|| subsets(&VIDEO_TYPES));

/// Returns all sets of types. The bits of a set's index are the positions of its types.
fn subsets<const SETS: usize>(types: &[&'static str]) -> [Vec<&'static str>; SETS] {
    let has = |set: usize, position: usize| (set >> position) & 1 == 1;
    array::from_fn(|set| types.iter().enumerate().filter(|(at, _)| has(set, *at)).map(|(_, kind)| *kind).collect())
}

/// Returns the index of the set of accepted types.
fn accepted(types: &[&str], is_accepted: impl Fn(&str) -> bool) -> usize {
    types.iter().rev().fold(0, |set, kind| (set << 1) | usize::from(is_accepted(kind)))
}

/// A board of an account, for the option `board`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    pub id: String,
    pub name: String,
}

/// The limits that an account's server states, and the account's boards. If a limit is `None`, the platform's default
/// applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountLimits {
    pub read_at: DateTime<Utc>,
    /// The name of the server's software, in lower case: `mastodon`, `gotosocial`. Servers count differently.
    pub software: Option<String>,
    /// The maximum length of a post.
    pub max_characters: Option<u32>,
    /// The length that every URL counts as, if the software shortens them.
    pub url_length: Option<u32>,
    pub max_images: Option<u32>,
    /// The maximum length of an alt text, in characters.
    pub max_alt_text: Option<u32>,
    pub max_image_bytes: Option<u64>,
    /// The maximum of width times height.
    pub max_image_pixels: Option<u64>,
    /// The types of images that the server accepts; empty if it does not state them.
    pub mime_types: Vec<String>,
    pub max_video_bytes: Option<u64>,
    /// The maximum of width times height.
    pub max_video_pixels: Option<u64>,
    /// The maximum number of frames per second.
    pub max_frame_rate: Option<u32>,
    /// The types of videos that the server accepts, which may be none; `None` if it does not state them.
    pub video_types: Option<Vec<String>>,
    /// The boards to choose from, which may not be all.
    pub boards: Vec<Board>,
}

impl AccountLimits {
    /// Returns whether the limits and boards must be read again.
    pub fn is_outdated(&self, now: DateTime<Utc>) -> bool {
        now - self.read_at >= INTERVAL
    }

    /// Returns whether the server counts texts as Mastodon does: each URL with the same length, and of a mention only
    /// the name. Other servers also state a length for URLs, but count them in full.
    fn counts_like_mastodon(&self) -> bool {
        self.software.as_deref().is_none_or(|name| name == "mastodon")
    }

    fn text(&self, rules: TextRules) -> TextRules {
        let max = self.max_characters.or(rules.max);
        match self.software.as_deref() {
            _ if self.counts_like_mastodon() => {
                TextRules { max, url_weight: self.url_length.or(rules.url_weight), ..rules }
            }
            Some("pleroma" | "akkoma") => TextRules { max, url_weight: None, ..rules },
            _ => TextRules { max, unit: TextUnit::Characters, url_weight: None, ..rules },
        }
    }

    fn media(&self, rules: &MediaRules) -> MediaRules {
        let is_accepted =
            |kind: &str| rules.mime_types.contains(&kind) && self.mime_types.iter().any(|accepted| accepted == kind);
        let accepted = accepted(&IMAGE_TYPES, is_accepted);
        MediaRules {
            max_images: self.max_images.unwrap_or(rules.max_images),
            // A list without any of them does not mean that no image is accepted: Pleroma's are like this.
            mime_types: if accepted == 0 { rules.mime_types } else { &IMAGE_TYPE_SETS[accepted] },
            max_bytes: self.max_image_bytes.or(rules.max_bytes),
            max_pixels: self.max_image_pixels.or(rules.max_pixels),
            max_alt_text: self.max_alt_text.or(rules.max_alt_text),
            ..rules.clone()
        }
    }

    /// Returns the rules of videos. `None` if the server accepts none.
    fn video(&self, rules: VideoRules) -> Option<VideoRules> {
        let containers = match &self.video_types {
            None => rules.containers,
            Some(types) => {
                let accepted = accepted(&VIDEO_TYPES, |kind| types.iter().any(|accepted| accepted == kind));
                VIDEO_TYPE_SETS.get(accepted).filter(|types| !types.is_empty())?.as_slice()
            }
        };
        Some(VideoRules {
            containers,
            max_bytes: self.max_video_bytes.or(rules.max_bytes),
            max_pixels: self.max_video_pixels.or(rules.max_pixels),
            frame_rate: self.max_frame_rate.map(|max| (0, max)).or(rules.frame_rate),
            ..rules
        })
    }
}

impl Descriptor {
    /// Returns the platform with the limits of one account.
    pub fn with_limits(&'static self, limits: Option<&AccountLimits>) -> Cow<'static, Self> {
        let Some(limits) = limits.filter(|_| self.platform.has_server_limits()) else { return Cow::Borrowed(self) };
        let text = limits.text(self.capabilities.text);
        let capabilities = Capabilities {
            text,
            media: limits.media(&self.capabilities.media),
            video: self.capabilities.video.and_then(|rules| limits.video(rules)),
            // A comment is a post.
            first_comment: Some(CommentRules { max: text.max, unit: text.unit }),
            ..self.capabilities.clone()
        };
        Cow::Owned(Self { capabilities, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::descriptor;
    use crate::platform::Platform;

    fn of(software: &str) -> AccountLimits {
        let software = Some(software.to_owned()).filter(|name| !name.is_empty());
        AccountLimits { software, max_characters: Some(5_000), url_length: Some(25), ..AccountLimits::default() }
    }

    #[test]
    fn only_mastodon_shortens_links() {
        let mastodon = descriptor(Platform::Mastodon);
        for (software, unit, url_weight) in [
            ("mastodon", TextUnit::Graphemes, Some(25)),
            ("", TextUnit::Graphemes, Some(25)),
            ("akkoma", TextUnit::Graphemes, None),
            ("gotosocial", TextUnit::Characters, None),
            ("unheard-of", TextUnit::Characters, None),
        ] {
            let rules = mastodon.with_limits(Some(&of(software))).capabilities.text;
            assert_eq!((rules.max, rules.unit, rules.url_weight), (Some(5_000), unit, url_weight), "{software}");
        }
        let unstated = AccountLimits::default();
        assert_eq!(mastodon.with_limits(Some(&unstated)).capabilities, mastodon.capabilities);
        assert_eq!(mastodon.with_limits(None).capabilities, mastodon.capabilities);
        let pinterest = descriptor(Platform::Pinterest);
        assert_eq!(pinterest.with_limits(Some(&unstated)).capabilities, pinterest.capabilities);
    }

    #[test]
    fn a_server_states_the_types_that_it_accepts() {
        let mastodon = descriptor(Platform::Mastodon);
        let accepted = |types: &[&str]| {
            let mime_types = types.iter().map(|&kind| kind.to_owned()).collect();
            let limits = AccountLimits { mime_types, ..AccountLimits::default() };
            mastodon.with_limits(Some(&limits)).capabilities.media.mime_types
        };
        assert_eq!(accepted(&["image/png", "video/mp4", "image/jpeg"]), ["image/jpeg", "image/png"]);
        assert_eq!(accepted(&["video/mp4"]), mastodon.capabilities.media.mime_types);
    }

    #[test]
    fn a_server_states_the_videos_that_it_accepts() {
        let mastodon = descriptor(Platform::Mastodon);
        let rules = |limits: &AccountLimits| mastodon.with_limits(Some(limits)).capabilities.video;
        let of_types = |types: &[&str]| {
            let video_types = Some(types.iter().map(|&kind| kind.to_owned()).collect());
            rules(&AccountLimits { video_types, ..AccountLimits::default() }).map(|rules| rules.containers)
        };
        assert_eq!(of_types(&["video/webm", "video/ogg", "video/mp4"]), Some(&["video/mp4", "video/webm"][..]));
        assert_eq!(of_types(&[]), None, "Pixelfed states only images if it takes no videos");
        let stated = AccountLimits {
            max_video_bytes: Some(40 << 20),
            max_video_pixels: Some(921_600),
            max_frame_rate: Some(60),
            ..AccountLimits::default()
        };
        let found = rules(&stated).map(|rules| (rules.max_bytes, rules.max_pixels, rules.frame_rate));
        assert_eq!(found, Some((Some(40 << 20), Some(921_600), Some((0, 60)))));
    }

    #[test]
    fn limits_are_outdated_after_a_day() {
        let limits = AccountLimits::default();
        let at = |hours| limits.read_at + TimeDelta::hours(hours);
        assert!(!limits.is_outdated(at(23)) && limits.is_outdated(at(24)));
    }

    #[test]
    fn stored_limits_may_lack_fields() {
        let limits: AccountLimits = serde_json::from_str(r#"{"max_characters":11,"newer":true}"#).unwrap_or_default();
        assert_eq!(limits, AccountLimits { max_characters: Some(11), ..AccountLimits::default() });
    }
}
