//! Checks the options for the image that is shown before a video plays.

use crier_domain::media::Asset;
use crier_domain::platform::Descriptor;
use crier_platforms::options::{self, COVER_AT_MS, COVER_MEDIA_ID};
use serde_json::Value;

use super::{LookupContext, image_problem};
use crate::desired::{DesiredPost, DesiredTarget};

/// A problem of an option.
pub(super) struct CoverProblem {
    pub option: &'static str,
    pub code: &'static str,
    pub message: String,
}

/// Checks the covers of a target. A published target has no problems, because its images may have been deleted.
pub(super) fn check(
    descriptor: &Descriptor,
    desired: &DesiredPost,
    target: &DesiredTarget,
    lookup: &LookupContext,
) -> Vec<CoverProblem> {
    if target.has_published(0) {
        return Vec::new();
    }
    let own = &target.target_override;
    let option = |name: &str| own.options.get(name).filter(|_| options::has(descriptor.platform, name));
    let videos: Vec<&Asset> = desired
        .media_of(own)
        .iter()
        .filter_map(|id| lookup.assets.get(id))
        .filter(|asset| asset.mime_type.video().is_some())
        .collect();
    let image = option(COVER_MEDIA_ID).and_then(Value::as_i64);
    let invalid = image.and_then(|id| image_problem(id, &format!("the option `{COVER_MEDIA_ID}`"), lookup));
    let invalid = invalid.map(|message| CoverProblem { option: COVER_MEDIA_ID, code: "option_invalid", message });
    let missing = image.is_none().then(|| missing_cover(descriptor, &videos)).flatten();
    let late = option(COVER_AT_MS).and_then(Value::as_u64).and_then(|at| late_cover(at, &videos));
    [invalid, missing, late].into_iter().flatten().collect()
}

/// Returns the problem of a platform that requires a cover, and of a video without one of its own.
fn missing_cover(descriptor: &Descriptor, videos: &[&Asset]) -> Option<CoverProblem> {
    let is_required = descriptor.capabilities.video.is_some_and(|rules| rules.requires_cover);
    let has_none = videos.iter().any(|video| video.thumbnail_key.is_none());
    (is_required && has_none).then(|| {
        let message = format!(
            "{} requires a cover for a video. This video has none, so set the option `{COVER_MEDIA_ID}` to an image.",
            descriptor.name
        );
        CoverProblem { option: COVER_MEDIA_ID, code: "option_required", message }
    })
}

/// Returns the problem of a time that is not in the video.
fn late_cover(at: u64, videos: &[&Asset]) -> Option<CoverProblem> {
    let durations = videos.iter().filter_map(|video| u64::try_from(video.video.as_ref()?.duration_ms).ok());
    let duration = durations.min().filter(|&duration| at >= duration)?;
    let message = format!("The option `{COVER_AT_MS}` must be less than {duration}, the duration of the video.");
    Some(CoverProblem { option: COVER_AT_MS, code: "option_invalid", message })
}
