//! Checks a post's videos against the rules of its platform, before the post is accepted. Crier never converts a video,
//! so a video that exceeds a limit is a problem. What the headers of a file do not say is not a problem.
//!
//! The codes are `video_unsupported`, `too_many_videos`, `video_with_images`, `video_type`, `video_codec`,
//! `video_too_large`, `video_too_short`, `video_too_long`, `video_ratio`, `video_size`, `video_frame_rate` and `video_bit_rate`; of
//! warnings, `caption_not_shown` and `format_not_used`.
//!
//! The rules are data (`crier_domain::catalogue::video`).
//!
//! **To add a check:** add a function that returns what the platform accepts and what the video has, and a line to
//! [`check_video`].

use crier_domain::catalogue::video::{VideoFormat, with_format};
use crier_domain::media::{Asset, VideoProperties, VideoType};
use crier_domain::platform::{Descriptor, VideoLimits, VideoRules};
use crier_domain::untrusted;

use super::text::{ContentProblem, MediaCount};

/// The part of the difference between a video's shape and the allowed one that is rounding: encoders use even numbers of
/// pixels, so 854 × 480 is 16:9.
const RATIO_TOLERANCE: f64 = 0.01;
/// The part of a bit rate that is tolerated, as a divisor: the file also contains the sound and its index.
const BIT_RATE_TOLERANCE: u64 = 50;
/// The maximum length of a codec's name in a message.
const MAX_CODEC: usize = 20;
const MINUTE: u64 = 60_000;

/// The properties of a video that the rules limit.
#[derive(Clone, Copy, Debug)]
pub struct VideoFacts<'a> {
    pub mime_type: VideoType,
    /// In bytes.
    pub size: u64,
    /// Of the frames as they are shown, in pixels.
    pub width: u32,
    pub height: u32,
    pub properties: &'a VideoProperties,
}

impl<'a> VideoFacts<'a> {
    /// Returns the properties of an asset. `None` if it is an image.
    pub fn of(asset: &'a Asset) -> Option<Self> {
        Some(Self {
            mime_type: asset.mime_type.video()?,
            size: asset.size_bytes.unsigned_abs(),
            width: asset.width.unsigned_abs(),
            height: asset.height.unsigned_abs(),
            properties: asset.video.as_ref()?,
        })
    }

    fn duration_ms(&self) -> u64 {
        u64::try_from(self.properties.duration_ms).unwrap_or_default()
    }
}

/// The rules of a platform for the videos of one post.
#[derive(Clone, Copy, Debug)]
pub struct PostVideoRules<'a> {
    descriptor: &'a Descriptor,
    /// `None` if the platform accepts no videos.
    rules: Option<VideoRules>,
    format: Option<VideoFormat>,
}

impl<'a> PostVideoRules<'a> {
    /// `descriptor` has the limits of the account. `format`: `None` for the platform's default.
    pub fn new(descriptor: &'a Descriptor, limits: VideoLimits, format: Option<VideoFormat>) -> Self {
        let rules = descriptor.capabilities.video.map(|rules| rules.with_operator_limits(limits));
        let rules = rules.map(|rules| format.map_or(rules, |format| with_format(rules, format)));
        Self { descriptor, rules, format }
    }

    /// Returns whether the platform downloads the videos from this installation.
    pub fn is_downloaded(&self) -> bool {
        self.rules.is_some_and(|rules| rules.downloaded)
    }

    /// Returns the problems of the videos of a post, in the order of the post.
    pub fn check(&self, videos: &[VideoFacts<'_>], images: usize) -> Vec<ContentProblem> {
        let name = self.descriptor.name;
        if videos.is_empty() {
            let is_excess = images > 1 && self.format.is_some_and(VideoFormat::takes_images);
            let message =
                format!("{name} accepts {} of exactly 1 image or video; this post has {images} images.", self.noun());
            return is_excess.then(|| problem("too_many_images", message)).into_iter().collect();
        }
        let Some(rules) = &self.rules else {
            let message = format!("{name} accepts no videos; this post has {}.", count(videos.len(), "video"));
            return vec![problem("video_unsupported", message)];
        };
        let mut problems: Vec<_> = self.check_count(rules, MediaCount { images, videos: videos.len() }).collect();
        // Videos beyond the maximum are already reported.
        for (number, video) in (1..).zip(videos).take(rules.max_count as usize) {
            problems.extend(check_video(rules, video).into_iter().map(|found| {
                let message =
                    format!("{name} accepts {} {}; video {number} {}.", self.noun(), found.accepted, found.has);
                problem(found.code, message)
            }));
        }
        problems
    }

    fn check_count(&self, rules: &VideoRules, media: MediaCount) -> impl Iterator<Item = ContentProblem> {
        let (name, noun, max) = (self.descriptor.name, self.noun(), rules.max_count);
        let is_over = media.videos > max as usize;
        let too_many = is_over.then(|| {
            let message =
                format!("{name} accepts at most {}; this post has {}.", count(max as usize, "video"), media.videos);
            problem("too_many_videos", message)
        });
        let with_images = (media.images > 0 && !rules.mixes_with_images).then(|| {
            let message =
                format!("{name} accepts {noun} only without images; this post has {}.", count(media.images, "image"));
            problem("video_with_images", message)
        });
        // Where a post may have several videos, they and the images are the items of one album.
        let max_items = self.descriptor.capabilities.media.max_images as usize;
        let is_album = rules.mixes_with_images && max > 1 && !is_over && media.images <= max_items;
        let too_many_items = (is_album && media.total() > max_items).then(|| {
            let message = format!(
                "{name} accepts at most {max_items} images and videos together; this post has {}.",
                media.total()
            );
            problem("too_many_videos", message)
        });
        [too_many, with_images, too_many_items].into_iter().flatten()
    }

    /// Returns facts that a user should know before the post is published.
    pub fn warnings(&self, media: MediaCount, has_text: bool) -> Vec<ContentProblem> {
        let name = self.descriptor.name;
        let Some(format) = self.format else { return Vec::new() };
        if media.videos == 0 && !(format.takes_images() && media.images > 0) {
            let message = format!("{name} has the option `format` only for posts with a video. This post has none.");
            return vec![problem("format_not_used", message)];
        }
        let is_hidden = format.is_story() && has_text;
        let message = format!("{name} does not show the text of a story.");
        let warning = ContentProblem { field: "content", code: "caption_not_shown", message };
        is_hidden.then_some(warning).into_iter().collect()
    }

    /// Returns the word for the videos, in the plural.
    fn noun(&self) -> &'static str {
        self.format.map_or("videos", VideoFormat::noun)
    }
}

/// A limit that a video exceeds.
struct Excess {
    code: &'static str,
    /// Completes "Threads accepts videos …".
    accepted: String,
    /// Completes "Video 1 …".
    has: String,
}

fn excess(code: &'static str, accepted: String, has: String) -> Excess {
    Excess { code, accepted, has }
}

fn check_video(rules: &VideoRules, video: &VideoFacts<'_>) -> Vec<Excess> {
    let found = [
        check_type(rules, video),
        check_codec(rules, video),
        check_bytes(rules, video),
        check_duration(rules, video),
        check_ratio(rules, video),
        check_size(rules, video),
        check_frame_rate(rules, video),
        check_bit_rate(rules, video),
    ];
    found.into_iter().flatten().collect()
}

fn check_type(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    if rules.containers.contains(&video.mime_type.as_str()) {
        return None;
    }
    let accepted = VideoType::ALL.iter().filter(|kind| rules.containers.contains(&kind.as_str()));
    let accepted = list(accepted.map(|kind| type_label(*kind)));
    Some(excess("video_type", format!("of the type {accepted}"), format!("is {}", type_label(video.mime_type))))
}

fn check_codec(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let codec = video.properties.video_codec.as_str();
    if rules.video_codecs.is_empty() || rules.video_codecs.contains(&codec) {
        return None;
    }
    let accepted = list(rules.video_codecs.iter().map(|codec| codec_label(codec)));
    let has = untrusted::line(codec_label(codec), MAX_CODEC);
    Some(excess("video_codec", format!("with the codec {accepted}"), format!("has {has}")))
}

fn check_bytes(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let max = rules.max_bytes.filter(|&max| video.size > max)?;
    let (accepted, has) = (tenths(max / TENTH_OF_MB), tenths(video.size.div_ceil(TENTH_OF_MB)));
    Some(excess("video_too_large", format!("of at most {accepted} MB"), format!("has {has} MB")))
}

fn check_duration(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let length = video.duration_ms();
    if let Some(min) = rules.min_duration_ms.map(u64::from).filter(|&min| length < min) {
        let accepted = format!("of at least {}", duration(min));
        return Some(excess("video_too_short", accepted, format!("has {}", duration(length / 100 * 100))));
    }
    let max = rules.max_duration_ms.map(u64::from).filter(|&max| length > max)?;
    let unit = if length < MINUTE { 100 } else { 1_000 };
    let has = duration(length.div_ceil(unit) * unit);
    Some(excess("video_too_long", format!("of at most {}", duration(max)), format!("has {has}")))
}

fn check_ratio(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let (width, height) = (f64::from(video.width), f64::from(video.height));
    let allowed = rules.ratio.filter(|_| width > 0.0 && height > 0.0)?;
    let [narrowest, widest] = [allowed.narrowest, allowed.widest].map(|ratio| f64::from(ratio.0) / f64::from(ratio.1));
    let is_narrow = width / height < narrowest * (1.0 - RATIO_TOLERANCE);
    let is_wide = width / height > widest * (1.0 + RATIO_TOLERANCE);
    let accepted = format!("from {} to {} (width to height)", allowed.narrowest, allowed.widest);
    (is_narrow || is_wide).then(|| excess("video_ratio", accepted, format!("has {}", sides(video))))
}

fn check_size(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let (width, height) = (video.width, video.height);
    if width == 0 || height == 0 {
        return None;
    }
    let min_side = rules.min_side.filter(|&min| width.min(height) < min);
    let max_side = rules.max_side.filter(|&max| width.max(height) > max);
    let max_width = rules.max_width.filter(|&max| width > max);
    let max_pixels = rules.max_pixels.filter(|&max| u64::from(width) * u64::from(height) > max);
    let accepted = if let Some(min) = min_side {
        format!("of at least {min} × {min} pixels")
    } else if let Some(max) = max_side {
        format!("of at most {max} × {max} pixels")
    } else if let Some(max) = max_width {
        format!("of a width of at most {max} pixels")
    } else {
        format!("of at most {} pixels (width times height)", max_pixels?)
    };
    Some(excess("video_size", accepted, format!("has {}", sides(video))))
}

/// The frame rate is a mean, so it is rounded: 23.976 counts as 24.
fn check_frame_rate(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let rate = video.properties.frame_rate.filter(|rate| rate.is_finite() && *rate > 0.0)?;
    let (min, max) = rules.frame_rate?;
    if (f64::from(min)..=f64::from(max)).contains(&rate.round()) {
        return None;
    }
    let range = if min == 0 { format!("at most {max}") } else { format!("{min} to {max}") };
    let has = format!("{rate:.2}");
    let has = has.trim_end_matches('0').trim_end_matches('.');
    Some(excess("video_frame_rate", format!("with {range} frames per second"), format!("has {has}")))
}

/// The bit rate is the mean of the whole file.
fn check_bit_rate(rules: &VideoRules, video: &VideoFacts<'_>) -> Option<Excess> {
    let max = rules.max_bit_rate?;
    let rate = video.size.saturating_mul(8_000).checked_div(video.duration_ms())?;
    if rate <= max.saturating_add(max / BIT_RATE_TOLERANCE) {
        return None;
    }
    let (accepted, has) = (tenths(max / TENTH_OF_MBIT), tenths(rate.div_ceil(TENTH_OF_MBIT)));
    Some(excess("video_bit_rate", format!("of at most {accepted} Mbit/s"), format!("has {has} Mbit/s")))
}

fn problem(code: &'static str, message: String) -> ContentProblem {
    ContentProblem { field: "media", code, message }
}

fn type_label(kind: VideoType) -> &'static str {
    match kind {
        VideoType::Mp4 => "MP4",
        VideoType::Mov => "MOV",
        VideoType::Webm => "WebM",
    }
}

/// Returns the name of a codec. One that Crier does not know keeps its code.
fn codec_label(codec: &str) -> &str {
    match codec {
        "h264" => "H.264",
        "hevc" => "H.265",
        "vp8" => "VP8",
        "vp9" => "VP9",
        "av1" => "AV1",
        other => other,
    }
}

/// Returns "A, B or C".
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns "1 video" or "2 videos".
fn count<N: std::fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Platforms state sizes in megabytes of 10⁶ bytes.
const TENTH_OF_MB: u64 = 100_000;
/// In bits per second.
const TENTH_OF_MBIT: u64 = 100_000;

/// Returns "300" or "103.8".
fn tenths(number: u64) -> String {
    match (number / 10, number % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenth) => format!("{whole}.{tenth}"),
    }
}

/// Returns "2.9 seconds", "10 minutes" or "1:05 minutes".
fn duration(ms: u64) -> String {
    if ms < MINUTE {
        let (seconds, tenths) = (ms / 1_000, ms % 1_000 / 100);
        return match (seconds, tenths) {
            (seconds, 0) => count(seconds, "second"),
            (seconds, tenths) => format!("{seconds}.{tenths} seconds"),
        };
    }
    match (ms / MINUTE, ms % MINUTE / 1_000) {
        (minutes, 0) => count(minutes, "minute"),
        (minutes, seconds) => format!("{minutes}:{seconds:02} minutes"),
    }
}

fn sides(video: &VideoFacts<'_>) -> String {
    format!("{} × {}", video.width, video.height)
}
