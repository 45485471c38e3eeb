//! Which videos each platform accepts.

use crier_domain::catalogue::{self, descriptor, video::VideoFormat};
use crier_domain::media::{VideoProperties, VideoType};
use crier_domain::platform::{Platform, VideoLimits};
use crier_platforms::text::{ContentProblem, MediaCount, check_measured, measure};
use crier_platforms::video_checks::{PostVideoRules, VideoFacts};
use proptest::prelude::*;

/// A video that every platform with videos accepts, unless a test changes it.
#[derive(Clone, Debug)]
struct Clip {
    mime_type: VideoType,
    size: u64,
    width: u32,
    height: u32,
    properties: VideoProperties,
}

impl Default for Clip {
    fn default() -> Self {
        let properties = VideoProperties {
            duration_ms: 10_000,
            rotation: 0,
            frame_rate: Some(30.0),
            video_codec: "h264".to_owned(),
            audio_codec: Some("aac".to_owned()),
            index_first: true,
        };
        Self { mime_type: VideoType::Mp4, size: 5_000_000, width: 1_080, height: 1_920, properties }
    }
}

impl Clip {
    fn facts(&self) -> VideoFacts<'_> {
        let Self { mime_type, size, width, height, properties } = self;
        VideoFacts { mime_type: *mime_type, size: *size, width: *width, height: *height, properties }
    }

    fn sides(&mut self, width: u32, height: u32) {
        (self.width, self.height) = (width, height);
    }

    fn lasts(&mut self, ms: i64) {
        self.properties.duration_ms = ms;
    }

    /// Changes the size and the duration, which are the bit rate.
    fn has(&mut self, size: u64, ms: i64) {
        self.size = size;
        self.lasts(ms);
    }

    fn rate(&mut self, rate: f64) {
        self.properties.frame_rate = Some(rate);
    }

    fn codec(&mut self, codec: &str) {
        codec.clone_into(&mut self.properties.video_codec);
    }
}

fn rules(platform: Platform, format: &str) -> PostVideoRules<'static> {
    PostVideoRules::new(descriptor(platform), VideoLimits::default(), VideoFormat::of(platform, format))
}

fn problems(platform: Platform, format: &str, clips: &[Clip], images: usize) -> Vec<(&'static str, String)> {
    let videos: Vec<_> = clips.iter().map(Clip::facts).collect();
    let found = rules(platform, format).check(&videos, images);
    assert!(found.iter().all(|problem| problem.field == "media"));
    found.into_iter().map(|problem| (problem.code, problem.message)).collect()
}

fn codes(platform: Platform, format: &str, clips: &[Clip], images: usize) -> Vec<&'static str> {
    problems(platform, format, clips, images).into_iter().map(|(code, _)| code).collect()
}

/// The only problem of a video.
fn message(platform: Platform, format: &str, change: Change) -> String {
    let mut clip = Clip::default();
    change(&mut clip);
    let mut found = problems(platform, format, &[clip], 0);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).1
}

type Change = fn(&mut Clip);

/// A platform, a format, a video just inside of a limit, one just outside, and the problem of the latter.
type Limit = (Platform, &'static str, Change, Change, &'static str);

const GB: u64 = 1_000_000_000;

const LIMITS: &[Limit] = &[
    (Platform::Telegram, "", |c| c.size = 50_000_000, |c| c.size = 50_000_001, "video_too_large"),
    (Platform::Telegram, "", |c| c.mime_type = VideoType::Mp4, |c| c.mime_type = VideoType::Mov, "video_type"),
    (Platform::Bluesky, "", |c| c.size = 300_000_000, |c| c.size = 300_000_001, "video_too_large"),
    (Platform::Bluesky, "", |c| c.lasts(600_000), |c| c.lasts(600_001), "video_too_long"),
    (Platform::Mastodon, "", |c| c.size = 103_809_024, |c| c.size = 103_809_025, "video_too_large"),
    (Platform::Mastodon, "", |c| c.sides(3_840, 2_160), |c| c.sides(3_842, 2_160), "video_size"),
    (Platform::Mastodon, "", |c| c.rate(120.0), |c| c.rate(121.0), "video_frame_rate"),
    (Platform::Facebook, "feed", |c| c.size = 2 * GB, |c| c.size = 2 * GB + 1, "video_too_large"),
    (Platform::Facebook, "feed", |c| c.mime_type = VideoType::Mov, |c| c.mime_type = VideoType::Webm, "video_type"),
    (Platform::Facebook, "reel", |c| c.lasts(3_000), |c| c.lasts(2_999), "video_too_short"),
    (Platform::Facebook, "reel", |c| c.lasts(90_000), |c| c.lasts(90_001), "video_too_long"),
    (Platform::Facebook, "reel", |c| c.sides(1_080, 1_920), |c| c.sides(1_000, 1_920), "video_ratio"),
    (Platform::Facebook, "reel", |c| c.sides(1_920, 1_080), |c| c.sides(2_000, 1_080), "video_ratio"),
    (Platform::Facebook, "reel", |c| c.sides(540, 960), |c| c.sides(538, 956), "video_size"),
    (Platform::Facebook, "reel", |c| c.rate(23.976), |c| c.rate(23.0), "video_frame_rate"),
    (Platform::Facebook, "reel", |c| c.rate(60.0), |c| c.rate(61.0), "video_frame_rate"),
    (Platform::Facebook, "reel", |c| c.codec("av1"), |c| c.codec("vp8"), "video_codec"),
    (Platform::Facebook, "story", |c| c.lasts(60_000), |c| c.lasts(60_001), "video_too_long"),
    (Platform::Instagram, "", |c| c.has(300_000_000, 600_000), |c| c.has(300_000_001, 600_000), "video_too_large"),
    (Platform::Instagram, "", |c| c.lasts(3_000), |c| c.lasts(2_999), "video_too_short"),
    (Platform::Instagram, "reel", |c| c.lasts(900_000), |c| c.lasts(900_001), "video_too_long"),
    (Platform::Instagram, "", |c| c.codec("hevc"), |c| c.codec("vp9"), "video_codec"),
    (Platform::Instagram, "", |c| c.mime_type = VideoType::Mov, |c| c.mime_type = VideoType::Webm, "video_type"),
    (Platform::Instagram, "", |c| c.sides(20, 2_000), |c| c.sides(19, 2_000), "video_ratio"),
    (Platform::Instagram, "", |c| c.sides(1_900, 190), |c| c.sides(1_900, 180), "video_ratio"),
    (Platform::Instagram, "", |c| c.sides(1_920, 1_080), |c| c.sides(1_922, 1_080), "video_size"),
    (Platform::Instagram, "", |c| c.rate(23.0), |c| c.rate(22.0), "video_frame_rate"),
    (Platform::Instagram, "", |c| c.rate(60.0), |c| c.rate(61.0), "video_frame_rate"),
    (Platform::Instagram, "", |c| c.has(31_250_000, 10_000), |c| c.has(32_500_000, 10_000), "video_bit_rate"),
    (Platform::Instagram, "story", |c| c.has(100_000_000, 60_000), |c| c.has(100_000_001, 60_000), "video_too_large"),
    (Platform::Instagram, "story", |c| c.has(31_250_000, 10_000), |c| c.has(32_500_000, 10_000), "video_bit_rate"),
    (Platform::Instagram, "story", |c| c.lasts(3_000), |c| c.lasts(2_999), "video_too_short"),
    (Platform::Instagram, "story", |c| c.lasts(60_000), |c| c.lasts(60_001), "video_too_long"),
    (Platform::Instagram, "story", |c| c.sides(190, 1_900), |c| c.sides(180, 1_900), "video_ratio"),
    (Platform::Threads, "", |c| c.has(GB, 300_000), |c| c.has(GB + 1, 300_000), "video_too_large"),
    (Platform::Threads, "", |c| c.has(125_000_000, 10_000), |c| c.has(130_000_000, 10_000), "video_bit_rate"),
    (Platform::Threads, "", |c| c.lasts(300_000), |c| c.lasts(300_001), "video_too_long"),
    (Platform::Threads, "", |c| c.sides(1_920, 1_080), |c| c.sides(1_922, 1_080), "video_size"),
    (Platform::Twitter, "", |c| c.size = 8 * GB, |c| c.size = 8 * GB + 1, "video_too_large"),
    (Platform::Twitter, "", |c| c.lasts(500), |c| c.lasts(499), "video_too_short"),
    (Platform::Twitter, "", |c| c.lasts(1_200_000), |c| c.lasts(1_200_001), "video_too_long"),
    (Platform::Twitter, "", |c| c.sides(32, 32), |c| c.sides(30, 30), "video_size"),
    (Platform::Twitter, "", |c| c.sides(1_920, 1_080), |c| c.sides(1_922, 1_080), "video_size"),
    (Platform::Twitter, "", |c| c.sides(640, 1_920), |c| c.sides(600, 1_920), "video_ratio"),
    (Platform::Twitter, "", |c| c.sides(1_920, 640), |c| c.sides(1_920, 600), "video_ratio"),
    (Platform::Twitter, "", |c| c.rate(60.0), |c| c.rate(61.0), "video_frame_rate"),
    (Platform::Twitter, "", |c| c.codec("h264"), |c| c.codec("hevc"), "video_codec"),
    (Platform::Linkedin, "", |c| c.size = 2 << 30, |c| c.size = (2 << 30) + 1, "video_too_large"),
    (Platform::Linkedin, "", |c| c.lasts(3_000), |c| c.lasts(2_999), "video_too_short"),
    (Platform::Linkedin, "", |c| c.lasts(1_800_000), |c| c.lasts(1_800_001), "video_too_long"),
    (Platform::Linkedin, "", |c| c.sides(1_000, 2_400), |c| c.sides(900, 2_400), "video_ratio"),
    (Platform::Linkedin, "", |c| c.sides(2_400, 1_000), |c| c.sides(2_500, 1_000), "video_ratio"),
    (Platform::Linkedin, "", |c| c.mime_type = VideoType::Mp4, |c| c.mime_type = VideoType::Mov, "video_type"),
    (Platform::Pinterest, "", |c| c.size = 2 * GB, |c| c.size = 2 * GB + 1, "video_too_large"),
    (Platform::Pinterest, "", |c| c.lasts(4_000), |c| c.lasts(3_999), "video_too_short"),
    (Platform::Pinterest, "", |c| c.lasts(900_000), |c| c.lasts(900_001), "video_too_long"),
    (Platform::Pinterest, "", |c| c.sides(960, 1_920), |c| c.sides(900, 1_920), "video_ratio"),
    (Platform::Pinterest, "", |c| c.sides(1_910, 1_000), |c| c.sides(2_000, 1_000), "video_ratio"),
    (Platform::Pinterest, "", |c| c.mime_type = VideoType::Mov, |c| c.mime_type = VideoType::Webm, "video_type"),
    (Platform::Tiktok, "", |c| c.size = 4 * GB, |c| c.size = 4 * GB + 1, "video_too_large"),
    (Platform::Tiktok, "", |c| c.lasts(3_000), |c| c.lasts(2_999), "video_too_short"),
    (Platform::Tiktok, "", |c| c.lasts(600_000), |c| c.lasts(600_001), "video_too_long"),
    (Platform::Tiktok, "", |c| c.sides(360, 640), |c| c.sides(358, 640), "video_size"),
    (Platform::Tiktok, "", |c| c.sides(4_096, 2_160), |c| c.sides(4_098, 2_160), "video_size"),
    (Platform::Tiktok, "", |c| c.rate(23.0), |c| c.rate(22.0), "video_frame_rate"),
    (Platform::Tiktok, "", |c| c.rate(60.0), |c| c.rate(61.0), "video_frame_rate"),
    (Platform::Tiktok, "", |c| c.codec("vp9"), |c| c.codec("av1"), "video_codec"),
    (Platform::Reddit, "", |c| c.mime_type = VideoType::Mov, |c| c.mime_type = VideoType::Webm, "video_type"),
    (Platform::Tumblr, "", |c| c.size = 500_000_000, |c| c.size = 500_000_001, "video_too_large"),
    (Platform::Tumblr, "", |c| c.lasts(600_000), |c| c.lasts(600_001), "video_too_long"),
    (Platform::Tumblr, "", |c| c.mime_type = VideoType::Mp4, |c| c.mime_type = VideoType::Mov, "video_type"),
    (Platform::Youtube, "", |c| c.size = 256 << 30, |c| c.size = (256 << 30) + 1, "video_too_large"),
    (Platform::Youtube, "", |c| c.lasts(43_200_000), |c| c.lasts(43_200_001), "video_too_long"),
];

#[test]
fn a_video_is_accepted_up_to_each_limit() {
    for (number, (platform, format, inside, outside, code)) in LIMITS.iter().enumerate() {
        let found = |change: &Change| {
            let mut clip = Clip::default();
            change(&mut clip);
            codes(*platform, format, &[clip], 0)
        };
        assert_eq!(found(inside), [""; 0], "{number}: {platform} {format} {code}");
        assert_eq!(found(outside), [*code], "{number}: {platform} {format}");
    }
}

#[test]
fn every_limit_of_the_catalogue_is_in_the_table() {
    for descriptor in catalogue::all() {
        let Some(rules) = &descriptor.capabilities.video else { continue };
        let has =
            |code: &str| LIMITS.iter().any(|(platform, _, _, _, c)| *platform == descriptor.platform && *c == code);
        for (code, is_limited) in [
            ("video_too_large", rules.max_bytes.is_some()),
            ("video_too_short", rules.min_duration_ms.is_some()),
            ("video_too_long", rules.max_duration_ms.is_some()),
            ("video_type", rules.containers.len() < VideoType::ALL.len()),
            ("video_bit_rate", rules.max_bit_rate.is_some()),
        ] {
            // The files of Threads are those of Instagram.
            let is_known = descriptor.platform == Platform::Threads && code == "video_type";
            assert!(!is_limited || is_known || has(code), "{}: {code}", descriptor.name);
        }
        assert!(!rules.containers.is_empty() && rules.max_count > 0, "{}", descriptor.name);
    }
    let without = [Platform::Woocommerce, Platform::Shopify, Platform::GoogleBusiness];
    for platform in without {
        assert_eq!(codes(platform, "", &[Clip::default()], 0), ["video_unsupported"], "{platform}");
    }
}

#[test]
fn videos_and_images_are_counted() {
    let clips = |number| vec![Clip::default(); number];
    for (platform, format, videos, images, expected) in [
        (Platform::Tiktok, "", 2, 0, &["too_many_videos"][..]),
        (Platform::Tiktok, "", 1, 0, &[]),
        (Platform::Tiktok, "", 1, 1, &["video_with_images"]),
        (Platform::Twitter, "", 2, 1, &["too_many_videos", "video_with_images"]),
        (Platform::Telegram, "", 5, 5, &[]),
        (Platform::Telegram, "", 5, 6, &["too_many_videos"]),
        (Platform::Telegram, "", 11, 0, &["too_many_videos"]),
        (Platform::Instagram, "", 10, 0, &[]),
        (Platform::Instagram, "story", 2, 0, &["too_many_videos"]),
        (Platform::Instagram, "story", 1, 1, &["video_with_images"]),
        (Platform::Threads, "", 10, 10, &[]),
        (Platform::Threads, "", 10, 11, &["too_many_videos"]),
        (Platform::Tumblr, "", 1, 30, &[]),
        (Platform::Tumblr, "", 2, 0, &["too_many_videos"]),
        (Platform::Youtube, "", 2, 1, &["too_many_videos", "video_with_images"]),
        (Platform::Sandbox, "", 10, 0, &[]),
        (Platform::Shopify, "", 2, 1, &["video_unsupported"]),
        // Without a video there is nothing to check.
        (Platform::Tiktok, "", 0, 35, &[]),
        (Platform::Shopify, "", 0, 1, &[]),
    ] {
        assert_eq!(codes(platform, format, &clips(videos), images), expected, "{platform} {format} {videos} {images}");
    }
    let of = |platform, videos, images| problems(platform, "", &clips(videos), images).remove(0).1;
    assert_eq!(of(Platform::Shopify, 2, 0), "Shopify accepts no videos; this post has 2 videos.");
    assert_eq!(of(Platform::Tiktok, 2, 0), "TikTok accepts at most 1 video; this post has 2.");
    assert_eq!(of(Platform::Tiktok, 1, 1), "TikTok accepts videos only without images; this post has 1 image.");
    let album = "Telegram accepts at most 10 images and videos together; this post has 11.";
    assert_eq!(of(Platform::Telegram, 5, 6), album);
}

#[test]
fn a_video_counts_as_media_but_not_as_an_image() {
    let of = |platform, text: &str, images, videos| -> Vec<&'static str> {
        let descriptor = descriptor(platform);
        let found = check_measured(descriptor, &measure(descriptor, text), MediaCount { images, videos });
        found.problems.into_iter().map(|problem| problem.code).collect()
    };
    for platform in [Platform::Instagram, Platform::Pinterest, Platform::Tiktok] {
        assert_eq!(of(platform, "x", 0, 0), ["image_required"], "{platform}");
        assert_eq!(of(platform, "x", 0, 1), [""; 0], "{platform}");
    }
    assert_eq!(of(Platform::Bluesky, "", 0, 0), ["empty"]);
    assert_eq!(of(Platform::Bluesky, "", 0, 1), [""; 0]);
    assert_eq!(of(Platform::Bluesky, "x", 4, 1), [""; 0]);
    let caption = "x".repeat(1_025);
    assert_eq!(of(Platform::Telegram, &caption, 0, 0), [""; 0]);
    assert_eq!(of(Platform::Telegram, &caption, 0, 1), ["text_too_long"]);
}

#[test]
fn messages_name_the_limit_and_what_the_video_has() {
    let rows: &[(Platform, &str, Change, &str)] = &[
        (
            Platform::Tiktok,
            "",
            |c| c.lasts(724_000),
            "TikTok accepts videos of at most 10 minutes; video 1 has 12:04 minutes.",
        ),
        (
            Platform::Instagram,
            "story",
            |c| c.lasts(60_001),
            "Instagram accepts stories of at most 1 minute; video 1 has 1:01 minutes.",
        ),
        (
            Platform::Facebook,
            "reel",
            |c| c.lasts(2_999),
            "Facebook accepts reels of at least 3 seconds; video 1 has 2.9 seconds.",
        ),
        (
            Platform::Facebook,
            "reel",
            |c| c.lasts(90_001),
            "Facebook accepts reels of at most 1:30 minutes; video 1 has 1:31 minutes.",
        ),
        (
            Platform::Mastodon,
            "",
            |c| c.size = 103_809_025,
            "Mastodon accepts videos of at most 103.8 MB; video 1 has 103.9 MB.",
        ),
        (
            Platform::Telegram,
            "",
            |c| c.size = 51_000_000,
            "Telegram accepts videos of at most 50 MB; video 1 has 51 MB.",
        ),
        (
            Platform::Instagram,
            "",
            |c| c.mime_type = VideoType::Webm,
            "Instagram accepts videos of the type MP4 or MOV; video 1 is WebM.",
        ),
        (
            Platform::Tiktok,
            "",
            |c| c.codec("av1"),
            "TikTok accepts videos with the codec H.264, H.265, VP8 or VP9; video 1 has AV1.",
        ),
        (
            Platform::Facebook,
            "reel",
            |c| c.sides(1_000, 1_920),
            "Facebook accepts reels from 9:16 to 16:9 (width to height); video 1 has 1000 × 1920.",
        ),
        (
            Platform::Instagram,
            "",
            |c| c.sides(1_922, 1_080),
            "Instagram accepts videos of a width of at most 1920 pixels; video 1 has 1922 × 1080.",
        ),
        (
            Platform::Tiktok,
            "",
            |c| c.sides(358, 640),
            "TikTok accepts videos of at least 360 × 360 pixels; video 1 has 358 × 640.",
        ),
        (
            Platform::Instagram,
            "",
            |c| c.rate(14.99),
            "Instagram accepts videos with 23 to 60 frames per second; video 1 has 14.99.",
        ),
        (
            Platform::Mastodon,
            "",
            |c| c.rate(240.0),
            "Mastodon accepts videos with at most 120 frames per second; video 1 has 240.",
        ),
        (
            Platform::Instagram,
            "",
            |c| c.has(40_000_000, 10_000),
            "Instagram accepts videos of at most 25 Mbit/s; video 1 has 32 Mbit/s.",
        ),
    ];
    for (platform, format, change, expected) in rows {
        assert_eq!(message(*platform, format, *change), *expected);
    }
    // The name of an unknown codec comes from the file.
    let long = message(Platform::Tiktok, "", |c| c.codec(&"x\n".repeat(100)));
    assert!(long.ends_with(&format!("video 1 has {}.", "x ".repeat(10).trim_end())), "{long}");
    let second = problems(Platform::Telegram, "", &[Clip::default(), Clip { size: 60_000_000, ..Clip::default() }], 0);
    assert_eq!(second[0].1, "Telegram accepts videos of at most 50 MB; video 2 has 60 MB.");
}

#[test]
fn rounding_of_the_encoder_is_no_other_shape() {
    for (width, height) in [(854, 480), (480, 854), (608, 1_080), (1_920, 1_088)] {
        let clip = Clip { width, height, ..Clip::default() };
        let found = codes(Platform::Facebook, "reel", &[clip], 0);
        assert!(!found.contains(&"video_ratio"), "{width} × {height}: {found:?}");
    }
}

#[test]
fn what_a_file_does_not_say_is_accepted() {
    for descriptor in catalogue::all().iter().filter(|descriptor| descriptor.capabilities.video.is_some()) {
        let mut clip = Clip::default();
        for rate in [None, Some(0.0), Some(f64::NAN), Some(f64::INFINITY)] {
            clip.properties.frame_rate = rate;
            assert_eq!(codes(descriptor.platform, "", &[clip.clone()], 0), [""; 0], "{} {rate:?}", descriptor.name);
        }
    }
}

#[test]
fn warnings_do_not_reject_a_video() {
    let warnings = |platform, format, clips: &[Clip], has_text| -> Vec<(&'static str, &'static str)> {
        let found = rules(platform, format).warnings(MediaCount { images: 0, videos: clips.len() }, has_text);
        found.into_iter().map(|warning| (warning.field, warning.code)).collect()
    };
    let mut last = Clip::default();
    last.properties.index_first = false;
    let (first, last) = ([Clip::default()], [last]);
    // Crier sends the index first.
    for platform in [Platform::Facebook, Platform::Instagram, Platform::Threads, Platform::Tiktok] {
        assert!(warnings(platform, "", &last, true).is_empty(), "{platform}");
        assert_eq!(codes(platform, "", &last, 0), [""; 0], "{platform}");
    }
    for platform in [Platform::Facebook, Platform::Instagram] {
        assert_eq!(warnings(platform, "story", &first, true), [("content", "caption_not_shown")], "{platform}");
        assert!(warnings(platform, "story", &first, false).is_empty());
        assert_eq!(warnings(platform, "story", &[], true), [("media", "format_not_used")]);
    }
    assert!(warnings(Platform::Facebook, "reel", &first, true).is_empty());
    assert!(warnings(Platform::Facebook, "feed", &[], true).is_empty());
    assert!(warnings(Platform::Instagram, "reel", &[], true).is_empty());
}

#[test]
fn a_story_on_instagram_may_be_an_image() {
    let of = |platform, images| {
        let rules = rules(platform, "story");
        let warnings = rules.warnings(MediaCount { images, videos: 0 }, true);
        let codes = |found: Vec<ContentProblem>| found.into_iter().map(|one| one.code).collect::<Vec<_>>();
        (codes(rules.check(&[], images)), codes(warnings))
    };
    assert_eq!(of(Platform::Instagram, 1), (vec![], vec!["caption_not_shown"]));
    assert_eq!(of(Platform::Instagram, 2), (vec!["too_many_images"], vec!["caption_not_shown"]));
    assert_eq!(of(Platform::Facebook, 2), (vec![], vec!["format_not_used"]));
    let two = rules(Platform::Instagram, "story").check(&[], 2);
    assert_eq!(two[0].message, "Instagram accepts stories of exactly 1 image or video; this post has 2 images.");
}

#[test]
fn only_downloaded_videos_need_a_public_url() {
    let downloaded = |platform, format| rules(platform, format).is_downloaded();
    for platform in [Platform::Facebook, Platform::Instagram, Platform::Threads] {
        assert!(downloaded(platform, ""), "{platform}");
    }
    assert!(downloaded(Platform::Instagram, "story"));
    assert!(!downloaded(Platform::Facebook, "reel") && !downloaded(Platform::Facebook, "story"));
    assert!(!downloaded(Platform::Tiktok, "") && !downloaded(Platform::Shopify, ""));
}

#[test]
fn an_operator_can_set_uncertain_limits() {
    let limits = VideoLimits { max_bytes: Some(400 << 20), max_duration_ms: Some(140_000) };
    let codes = |platform, format, clip: &Clip| -> Vec<&'static str> {
        let rules = PostVideoRules::new(descriptor(platform), limits, VideoFormat::of(platform, format));
        rules.check(&[clip.facts()], 0).into_iter().map(|problem| problem.code).collect()
    };
    let mut clip = Clip { size: 400 << 20, ..Clip::default() };
    clip.lasts(140_000);
    assert_eq!(codes(Platform::Twitter, "", &clip), [""; 0]);
    assert_eq!(codes(Platform::Instagram, "", &clip), [""; 0], "it may also be higher than the default");
    assert_eq!(codes(Platform::Instagram, "story", &clip), ["video_too_large", "video_too_long"]);
    assert_eq!(codes(Platform::Facebook, "reel", &clip), ["video_too_long"]);
    clip.size += 1;
    clip.lasts(140_001);
    assert_eq!(codes(Platform::Twitter, "", &clip), ["video_too_large", "video_too_long"]);
}

/// Any video within all rules of a platform.
fn accepted_clip() -> impl Strategy<Value = (Platform, Clip)> {
    let with_videos = |platform: &Platform| descriptor(*platform).capabilities.video.is_some();
    let platforms: Vec<Platform> = Platform::ALL.iter().copied().filter(with_videos).collect();
    prop::sample::select(platforms).prop_flat_map(|platform| {
        let rules = descriptor(platform).capabilities.video.unwrap();
        let kinds: Vec<VideoType> =
            VideoType::ALL.iter().copied().filter(|kind| rules.containers.contains(&kind.as_str())).collect();
        let codecs = if rules.video_codecs.is_empty() { vec!["h264", "other"] } else { rules.video_codecs.to_vec() };
        let fits = |(width, height): &(u32, u32)| {
            rules.ratio.is_none_or(|ratio| ratio.takes(*width, *height))
                && rules.min_side.is_none_or(|min| *width >= min && *height >= min)
                && rules.max_side.is_none_or(|max| *width <= max && *height <= max)
                && rules.max_width.is_none_or(|max| *width <= max)
        };
        let sides: Vec<(u32, u32)> =
            [(720, 1_280), (1_080, 1_920), (1_920, 1_080), (1_000, 1_000), (1_920, 800), (400, 400), (16, 16)]
                .into_iter()
                .filter(fits)
                .collect();
        let durations =
            i64::from(rules.min_duration_ms.unwrap_or(1))..=i64::from(rules.max_duration_ms.unwrap_or(u32::MAX));
        let (slowest, fastest) = rules.frame_rate.unwrap_or((1, 1_000));
        (
            prop::sample::select(kinds),
            prop::sample::select(codecs),
            prop::sample::select(sides),
            1..=rules.max_bytes.unwrap_or(1 << 40),
            durations,
            f64::from(slowest.max(1))..=f64::from(fastest),
            any::<bool>(),
        )
            .prop_map(move |(mime_type, codec, (width, height), size, duration, rate, index_first)| {
                let mut clip = Clip { mime_type, size, width, height, ..Clip::default() };
                clip.lasts(duration);
                if let Some(max) = rules.max_bit_rate {
                    clip.size = size.min((max / 8_000).saturating_mul(duration.unsigned_abs()));
                }
                clip.rate(rate);
                clip.codec(codec);
                clip.properties.index_first = index_first;
                (platform, clip)
            })
    })
}

proptest! {
    #[test]
    fn a_video_within_all_rules_has_no_problem((platform, clip) in accepted_clip()) {
        prop_assert_eq!(problems(platform, "", &[clip], 0), []);
    }
}
