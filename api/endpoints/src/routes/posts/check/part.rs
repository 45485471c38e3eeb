//! Checks one part of a target, the post itself or a part of its thread, against its platform's rules.

use crier_domain::media::Asset;
use crier_domain::platform::Descriptor;
use crier_platforms::images;
use crier_platforms::text::{ContentProblem, TextMeasurements, check_measured};

use super::LookupContext;

/// The result of checking the text and the images of a part of a target.
pub(super) struct CheckedPart {
    pub length: u32,
    pub limit: Option<u32>,
    pub problems: Vec<ContentProblem>,
    pub warnings: Vec<ContentProblem>,
}

impl CheckedPart {
    pub fn of(descriptor: &Descriptor, text: &TextMeasurements, media: &[i64], lookup: &LookupContext) -> Self {
        let found = check_measured(descriptor, text, media.len());
        let size = |asset: &Asset| (asset.width.unsigned_abs(), asset.height.unsigned_abs());
        // Images beyond the platform's maximum are already reported.
        let checked_media = media.iter().take(descriptor.capabilities.media.max_images as usize);
        let sizes: Vec<_> = checked_media.map(|id| lookup.assets.get(id).map(size)).collect();
        let shapes = images::check_shapes(descriptor, &sizes);
        let types: Vec<_> = media.iter().filter_map(|id| lookup.assets.get(id)?.mime_type.image()).collect();
        let gif = images::check_gif_alone(descriptor, &types);
        let unreachable = lookup.private_url.as_deref().filter(|_| !media.is_empty());
        let unreachable = unreachable.and_then(|url| images::check_reachable(descriptor, url));
        let alt_texts: Vec<_> = media.iter().map(|id| lookup.assets.get(id)?.alt_text.as_deref()).collect();
        Self {
            length: found.length,
            limit: found.limit,
            problems: found.problems.into_iter().chain(shapes).chain(gif).chain(unreachable).collect(),
            warnings: images::alt_text_warnings(descriptor, &alt_texts),
        }
    }
}
