//! The limits of each platform's videos, and of the formats in which a platform publishes them.
//!
//! Each comment names the source. "Third party" are other projects that quote a platform's documentation, which was not
//! read itself; all of these were checked on 26 November 2026. A limit that nobody documents is `None`: the platform
//! then decides when it receives the video.

use crate::platform::{Platform, Ratio, RatioRules, VideoRules};

const MP4: &str = "video/mp4";
const MOV: &str = "video/quicktime";
const WEBM: &str = "video/webm";

const H264: &str = "h264";
const HEVC: &str = "hevc";
const VP8: &str = "vp8";
const VP9: &str = "vp9";
const AV1: &str = "av1";

const MB: u64 = 1_000_000;
const GB: u64 = 1_000 * MB;
const MBIT: u64 = 1_000_000;
const SECOND: u32 = 1_000;
const MINUTE: u32 = 60 * SECOND;

/// The option `format` of a reel.
pub const REEL: &str = "reel";
/// The option `format` of a story.
pub const STORY: &str = "story";

/// A platform that accepts these files and states nothing else.
const fn files(containers: &'static [&'static str]) -> VideoRules {
    VideoRules {
        max_bytes: None,
        min_duration_ms: None,
        max_duration_ms: None,
        containers,
        video_codecs: &[],
        ratio: None,
        max_count: 1,
        mixes_with_images: false,
        min_side: None,
        max_side: None,
        max_width: None,
        max_pixels: None,
        frame_rate: None,
        max_bit_rate: None,
        downloaded: false,
        index_first: false,
        requires_cover: false,
    }
}

const fn ratio(narrowest: Ratio, widest: Ratio) -> Option<RatioRules> {
    Some(RatioRules { narrowest, widest })
}

/// Bot API 10.1, `sendVideo` (MPEG-4, 50 MB when the bot sends the bytes) and `sendMediaGroup` (2 to 10 photos and
/// videos).
pub const TELEGRAM: VideoRules =
    VideoRules { max_bytes: Some(50 * MB), max_count: 10, mixes_with_images: true, ..files(&[MP4]) };

/// Lexicon `app.bsky.embed.video` (300,000,000 bytes; August 2026) and the video service, which converts MOV and WebM.
/// Bluesky's application limits the duration.
pub const BLUESKY: VideoRules =
    VideoRules { max_bytes: Some(300 * MB), max_duration_ms: Some(10 * MINUTE), ..files(&[MP4, MOV, WEBM]) };

/// Each site sets its own limits. The number is Crier's, as for images.
pub const WORDPRESS: VideoRules = VideoRules { max_count: 20, mixes_with_images: true, ..files(&[MP4, MOV, WEBM]) };

pub const SANDBOX: VideoRules = VideoRules { max_count: 10, mixes_with_images: true, ..files(&[MP4, MOV, WEBM]) };

/// The defaults of Mastodon's `/api/v2/instance` (July 2026); each server may set others ([`crate::limits`]).
pub const MASTODON: VideoRules = VideoRules {
    max_bytes: Some(103_809_024),
    max_pixels: Some(8_294_400),
    frame_rate: Some((0, 120)),
    ..files(&[MP4, MOV, WEBM])
};

/// Videos in the feed of a page, which Facebook downloads. The text of its error 1363022 states 2 GB. The maximum
/// duration is not documented. [`with_format`] has the limits of reels and stories.
pub const FACEBOOK: VideoRules =
    VideoRules { max_bytes: Some(2 * GB), downloaded: true, index_first: true, ..files(&[MP4, MOV]) };

/// Instagram platform, reels (March to August 2026; older copies state 1 GB), with a bit rate of at most 25 Mbit/s. A carousel has up to 10 items. The limits
/// of its videos are not documented; those of a reel are the largest. [`with_format`] has the limits of stories.
pub const INSTAGRAM: VideoRules = VideoRules {
    max_bytes: Some(300 * MB),
    min_duration_ms: Some(3 * SECOND),
    max_duration_ms: Some(15 * MINUTE),
    video_codecs: &[H264, HEVC],
    ratio: ratio(Ratio(1, 100), Ratio(10, 1)),
    max_count: 10,
    mixes_with_images: true,
    max_width: Some(1_920),
    frame_rate: Some((23, 60)),
    max_bit_rate: Some(25 * MBIT),
    downloaded: true,
    index_first: true,
    ..files(&[MP4, MOV])
};

/// Threads API, posts (July 2026): 5 minutes, 1 GB, 100 Mbit/s, and a carousel of 2 to 20 items. Otherwise, the files are
/// those of Instagram.
pub const THREADS: VideoRules = VideoRules {
    max_bytes: Some(GB),
    min_duration_ms: None,
    max_duration_ms: Some(5 * MINUTE),
    max_count: 20,
    max_bit_rate: Some(100 * MBIT),
    ..INSTAGRAM
};

/// X, media best practices: H.264, at least 0.5 seconds and 32 × 32 pixels, 1:3 to 3:1, 60 frames per second. Its API
/// (OpenAPI 2.167, August 2026) also takes WebM, whose codecs it does not name. Third party: 8 GB and 20 minutes since
/// September 2026, while the guide still states 512 MB and 140 seconds; and 1080p with Premium. What an account may
/// publish depends on its plan, which X does not tell.
pub const TWITTER: VideoRules = VideoRules {
    max_bytes: Some(8 * GB),
    min_duration_ms: Some(500),
    max_duration_ms: Some(20 * MINUTE),
    video_codecs: &[H264, VP8, VP9],
    ratio: ratio(Ratio(1, 3), Ratio(3, 1)),
    min_side: Some(32),
    max_side: Some(1_920),
    frame_rate: Some((0, 60)),
    ..files(&[MP4, MOV, WEBM])
};

/// Videos API: MP4. Third party: 5 GB (LinkedIn's pages on advertising state 500 MB), 3 seconds to 30 minutes, 1:2.4 to
/// 2.4:1. Crier sends at most 512 parts, which LinkedIn makes of 4 MiB each.
pub const LINKEDIN: VideoRules = VideoRules {
    max_bytes: Some(2 << 30),
    min_duration_ms: Some(3 * SECOND),
    max_duration_ms: Some(30 * MINUTE),
    ratio: ratio(Ratio(5, 12), Ratio(240, 100)),
    ..files(&[MP4])
};

/// Third party: MP4 and MOV, 2 GB, 4 seconds to 15 minutes, 1:2 to 1.91:1. The cover may be a frame of the video.
pub const PINTEREST: VideoRules = VideoRules {
    max_bytes: Some(2 * GB),
    min_duration_ms: Some(4 * SECOND),
    max_duration_ms: Some(15 * MINUTE),
    ratio: ratio(Ratio(1, 2), Ratio(191, 100)),
    ..files(&[MP4, MOV])
};

/// Content posting API, media transfer guide. Third party: at least 3 seconds. The creator's own maximum duration is
/// known only when the post is published.
pub const TIKTOK: VideoRules = VideoRules {
    max_bytes: Some(4 * GB),
    min_duration_ms: Some(3 * SECOND),
    max_duration_ms: Some(10 * MINUTE),
    video_codecs: &[H264, HEVC, VP8, VP9],
    min_side: Some(360),
    max_side: Some(4_096),
    frame_rate: Some((23, 60)),
    ..files(&[MP4, MOV, WEBM])
};

/// Reddit requires a poster, and documents no limits for `kind=video`.
pub const REDDIT: VideoRules = VideoRules { requires_cover: true, ..files(&[MP4, MOV]) };

/// Neue Post Format: one uploaded video beside images. The documentation of the legacy API (2024) states 500 MB and 10
/// minutes.
pub const TUMBLR: VideoRules = VideoRules {
    max_bytes: Some(500 * MB),
    max_duration_ms: Some(10 * MINUTE),
    mixes_with_images: true,
    ..files(&[MP4])
};

/// YouTube Data API, `videos.insert`: 256 GiB and `video/*`. YouTube's help states 12 hours for verified channels, and 15
/// minutes for others, which the API does not tell.
pub const YOUTUBE: VideoRules =
    VideoRules { max_bytes: Some(256 << 30), max_duration_ms: Some(12 * 60 * MINUTE), ..files(&[MP4, MOV, WEBM]) };

/// Facebook, "Reels Publishing" (2026): 3 to 90 seconds, at least 540 × 960 pixels, 24 to 60 frames per second. It
/// recommends 9:16; its error 1363040 accepts 9:16 to 16:9. Crier sends the bytes.
const fn facebook_reel(rules: VideoRules) -> VideoRules {
    VideoRules {
        min_duration_ms: Some(3 * SECOND),
        max_duration_ms: Some(90 * SECOND),
        video_codecs: &[H264, HEVC, VP9, AV1],
        ratio: ratio(Ratio(9, 16), Ratio(16, 9)),
        min_side: Some(540),
        frame_rate: Some((24, 60)),
        downloaded: false,
        ..rules
    }
}

/// Returns the rules for a format other than the platform's default. `rules` are those of the default.
pub const fn with_format(rules: VideoRules, format: VideoFormat) -> VideoRules {
    match format {
        VideoFormat::FacebookReel => facebook_reel(rules),
        // "Stories" (2026): up to 60 seconds, otherwise as reels.
        VideoFormat::FacebookStory => {
            VideoRules { min_duration_ms: None, max_duration_ms: Some(MINUTE), ..facebook_reel(rules) }
        }
        // Instagram platform, stories (2026): 100 MB, 3 to 60 seconds, 0.1:1 to 10:1.
        VideoFormat::InstagramStory => VideoRules {
            max_bytes: Some(100 * MB),
            min_duration_ms: Some(3 * SECOND),
            max_duration_ms: Some(MINUTE),
            ratio: ratio(Ratio(1, 10), Ratio(10, 1)),
            max_count: 1,
            mixes_with_images: false,
            ..rules
        },
    }
}

/// A format of videos that is not the platform's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoFormat {
    FacebookReel,
    FacebookStory,
    InstagramStory,
}

impl VideoFormat {
    /// Returns the format of a post by its option `format`. `None` for the platform's default.
    pub fn of(platform: Platform, option: &str) -> Option<Self> {
        match (platform, option) {
            (Platform::Facebook, REEL) => Some(Self::FacebookReel),
            (Platform::Facebook, STORY) => Some(Self::FacebookStory),
            (Platform::Instagram, STORY) => Some(Self::InstagramStory),
            _ => None,
        }
    }

    /// Returns the word for such posts, in the plural.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::FacebookReel => "reels",
            Self::FacebookStory | Self::InstagramStory => "stories",
        }
    }

    pub const fn is_story(self) -> bool {
        matches!(self, Self::FacebookStory | Self::InstagramStory)
    }

    /// Returns whether a single image can have this format too.
    pub const fn takes_images(self) -> bool {
        matches!(self, Self::InstagramStory)
    }
}
