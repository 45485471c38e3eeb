//! Checks one part of a target, the post itself or a part of its thread, against its platform's rules.

use crier_domain::catalogue::video::VideoFormat;
use crier_domain::media::Asset;
use crier_domain::platform::Descriptor;
use crier_platforms::text::{ContentProblem, MediaCount, TextMeasurements, check_measured};
use crier_platforms::video_checks::{PostVideoRules, VideoFacts};
use crier_platforms::{images, options};
use serde_json::{Map, Value};

use super::LookupContext;

/// The result of checking the text, the images and the videos of a part of a target.
pub(super) struct CheckedPart {
    pub length: u32,
    pub limit: Option<u32>,
    pub problems: Vec<ContentProblem>,
    pub warnings: Vec<ContentProblem>,
}

/// The media of a part.
struct PartMedia<'a> {
    /// In their order; `None` if it does not exist, which is reported elsewhere.
    images: Vec<Option<&'a Asset>>,
    videos: Vec<VideoFacts<'a>>,
}

impl<'a> PartMedia<'a> {
    fn of(media: &[i64], lookup: &'a LookupContext) -> Self {
        let (mut images, mut videos) = (Vec::new(), Vec::new());
        for asset in media.iter().map(|id| lookup.assets.get(id)) {
            match asset.and_then(VideoFacts::of) {
                Some(video) => videos.push(video),
                None => images.push(asset),
            }
        }
        Self { images, videos }
    }

    fn count(&self) -> MediaCount {
        MediaCount { images: self.images.len(), videos: self.videos.len() }
    }
}

impl CheckedPart {
    pub fn of(
        descriptor: &Descriptor,
        text: &TextMeasurements,
        media: &[i64],
        options: &Map<String, Value>,
        lookup: &LookupContext,
    ) -> Self {
        let media = PartMedia::of(media, lookup);
        let found = check_measured(descriptor, text, media.count());
        let limits = lookup.video_limits.get(&descriptor.platform).copied().unwrap_or_default();
        let format = options::video_format(descriptor.platform, options);
        let video_rules = PostVideoRules::new(descriptor, limits, format);
        let mut problems = found.problems;
        problems.extend(check_images(descriptor, format, &media.images));
        problems.extend(video_rules.check(&media.videos, media.images.len()));
        problems.extend(check_reachable(descriptor, &video_rules, media.count(), lookup));
        let alt_texts: Vec<_> = media.images.iter().map(|asset| asset.and_then(|a| a.alt_text.as_deref())).collect();
        let mut warnings = images::alt_text_warnings(descriptor, &alt_texts);
        warnings.extend(video_rules.warnings(media.count(), !text.is_empty()));
        Self { length: found.length, limit: found.limit, problems, warnings }
    }
}

fn check_images(
    descriptor: &Descriptor,
    format: Option<VideoFormat>,
    images: &[Option<&Asset>],
) -> Vec<ContentProblem> {
    let size = |asset: &Asset| (asset.width.unsigned_abs(), asset.height.unsigned_abs());
    // The shapes are those of the feed. An image of a story is upright, as the screen is.
    let max = match format.is_some_and(VideoFormat::takes_images) {
        true => 0,
        false => descriptor.capabilities.media.max_images as usize,
    };
    // Images beyond the platform's maximum are already reported.
    let sizes: Vec<_> = images.iter().take(max).map(|asset| asset.map(size)).collect();
    let types: Vec<_> = images.iter().filter_map(|asset| (*asset)?.mime_type.image()).collect();
    let file = |asset: &Asset| Some((asset.mime_type.image()?, asset.size_bytes.unsigned_abs()));
    let files: Vec<_> = images.iter().take(max).map(|asset| asset.and_then(file)).collect();
    let mut problems = images::check_shapes(descriptor, &sizes);
    problems.extend(images::check_file_sizes(descriptor, &files));
    problems.extend(images::check_same_size(descriptor, &sizes));
    problems.extend(images::check_gif_alone(descriptor, &types));
    problems
}

/// Returns the problem of a platform that cannot download the images or the videos.
fn check_reachable(
    descriptor: &Descriptor,
    video_rules: &PostVideoRules<'_>,
    media: MediaCount,
    lookup: &LookupContext,
) -> Option<ContentProblem> {
    let url = lookup.private_url.as_deref()?;
    let files = if media.images > 0 && descriptor.capabilities.media.downloaded {
        "images"
    } else if media.videos > 0 && video_rules.is_downloaded() {
        "videos"
    } else {
        return None;
    };
    Some(images::unreachable(descriptor, files, url))
}
