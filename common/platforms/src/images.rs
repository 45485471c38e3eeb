//! Checks the properties of a post's images that conversion cannot fix: their shape, a GIF among other images, and
//! whether the platform can download them.

use crier_domain::media::ImageType;
use crier_domain::platform::{Descriptor, Platform};

use super::text::ContentProblem;

/// Checks images by their width and height in pixels, in the order of the post. `None` if a size is unknown.
pub fn check_shapes(descriptor: &Descriptor, sizes: &[Option<(u32, u32)>]) -> Vec<ContentProblem> {
    let (name, rules) = (descriptor.name, &descriptor.capabilities.media);
    let mut problems = Vec::new();
    for (number, &size) in (1..).zip(sizes) {
        let Some((width, height)) = size else { continue };
        let mut problem = |code, accepted: String| {
            let message = format!("{name} accepts {accepted}; image {number} has {width} × {height}.");
            problems.push(ContentProblem { field: "media", code, message });
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

/// Checks the files of images by their types and sizes in bytes, in the order of the post. `None` if a file is unknown.
pub fn check_file_sizes(descriptor: &Descriptor, files: &[Option<(ImageType, u64)>]) -> Vec<ContentProblem> {
    let (name, rules) = (descriptor.name, &descriptor.capabilities.media);
    let Some(min) = rules.min_bytes else { return Vec::new() };
    // A file of another type is converted, which changes its size.
    let is_small = |(kind, bytes): &(ImageType, u64)| *bytes < min && rules.mime_types.contains(&kind.as_str());
    let small = (1..).zip(files).filter_map(|(number, file)| Some((number, file.filter(is_small)?.1)));
    let problem = |(number, bytes)| {
        let message = format!("{name} accepts images of at least {min} bytes; image {number} has {bytes} bytes.");
        ContentProblem { field: "media", code: "image_too_small", message }
    };
    small.map(problem).collect()
}

/// Returns the problem of a GIF among several images on X, by the images' types (media best practices: at most four
/// photos, or one GIF).
pub fn check_gif_alone(descriptor: &Descriptor, types: &[ImageType]) -> Option<ContentProblem> {
    let is_problem = descriptor.platform == Platform::Twitter && types.len() > 1 && types.contains(&ImageType::Gif);
    let message =
        format!("{} accepts a GIF only as the only image; this post has {} images.", descriptor.name, types.len());
    is_problem.then_some(ContentProblem { field: "media", code: "gif_not_alone", message })
}

/// Returns the problem of images of different sizes on Pinterest, whose carousels have images of one width and height.
pub fn check_same_size(descriptor: &Descriptor, sizes: &[Option<(u32, u32)>]) -> Option<ContentProblem> {
    let mut known = (1..).zip(sizes).filter_map(|(number, size)| Some((number, (*size)?)));
    let (first, (width, height)) = known.next().filter(|_| descriptor.platform == Platform::Pinterest)?;
    let (other, (other_width, other_height)) = known.find(|(_, size)| *size != (width, height))?;
    let message = format!(
        "{} accepts several images only if all have the same width and height; image {first} has {width} × {height}, \
         and image {other} has {other_width} × {other_height}.",
        descriptor.name
    );
    Some(ContentProblem { field: "media", code: "image_sizes_differ", message })
}

/// Returns warnings about the alt texts that will be cut. `alt_texts` is in the order of the post, with `None` for an
/// image without one.
pub fn alt_text_warnings(descriptor: &Descriptor, alt_texts: &[Option<&str>]) -> Vec<ContentProblem> {
    let Some(max) = descriptor.capabilities.media.max_alt_text else { return Vec::new() };
    let name = descriptor.name;
    let lengths = alt_texts.iter().map(|alt| alt.map_or(0, |alt| alt.chars().count()));
    let long = (1..).zip(lengths).filter(|(_, length)| *length > max as usize);
    let warning = |(number, length)| {
        let message = format!(
            "{name} accepts alt texts of at most {max} characters. The alt text of image {number} has {length} and \
             will be truncated at the end of a word."
        );
        ContentProblem { field: "media", code: "alt_text_cut", message }
    };
    long.map(warning).collect()
}

/// Returns the problem of a platform that downloads images or videos (`files`) from this installation although its URL
/// is private.
pub fn unreachable(descriptor: &Descriptor, files: &str, private_url: &str) -> ContentProblem {
    let message = format!(
        "{} downloads {files} from Crier but cannot reach {private_url}. Set CRIER_PUBLIC_URL to the public https URL \
         of Crier.",
        descriptor.name
    );
    ContentProblem { field: "media", code: "pictures_unreachable", message }
}
