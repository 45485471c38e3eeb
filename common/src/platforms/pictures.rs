//! Checks the shape of a post's pictures, which converting or shrinking cannot fix.

use super::text::TextProblem;
use crate::domain::platform::Descriptor;

/// Checks pictures by their width and height in pixels, in the order of the post; `None` if a size is unknown.
pub fn check_shapes(descriptor: &Descriptor, sizes: &[Option<(u32, u32)>]) -> Vec<TextProblem> {
    let (name, rules) = (descriptor.name, &descriptor.capabilities.media);
    let mut problems = Vec::new();
    for (number, &size) in (1..).zip(sizes) {
        let Some((width, height)) = size else { continue };
        let mut problem = |code, accepted: String| {
            let message = format!("{name} takes {accepted}; image {number} has {width} × {height}.");
            problems.push(TextProblem { field: "media", code, message });
        };
        if let Some(min) = rules.min_side.filter(|&min| width < min || height < min) {
            problem("image_too_small", format!("images of at least {min} × {min} pixels"));
        }
        if let Some(ratio) = rules.ratio.filter(|ratio| !ratio.takes(width, height)) {
            let (narrowest, widest) = (ratio.narrowest, ratio.widest);
            problem("image_ratio", format!("images from {narrowest} to {widest} (width to height)"));
        }
    }
    problems
}
