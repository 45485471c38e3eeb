//! Checks and converts images.
//!
//! The type is detected from the bytes, never from a name or a header. Nothing here waits or reads files: all functions
//! work on bytes, on the caller's thread.
//!
//! 1. [`probe`] reads the head (`head.rs`), so that width, height and memory are known before anything is allocated.
//! 2. A walk over the structure, one file per format (`jpeg.rs`, `png.rs`, `gif.rs`, `webp.rs`), finds the end of the
//!    image and rewrites the file without anything that does not belong to it (`rewrite.rs`). A file is rejected if its
//!    dropped data has signs of another format (`signs.rs`).
//! 3. The result is decoded completely (`decode.rs`), so that only complete images are stored. For a large JPEG the
//!    walk has already read all codes (`crier_jpeg`), and has extracted the image at an eighth of its size, which is
//!    sufficient for a thumbnail.
//! 4. The image is rotated if necessary, and a thumbnail is created (`crier_resize`, `encode.rs`).
//!
//! The same image always results in the same bytes, and [`examine`] accepts its own output unchanged. `docs/media.md`
//! describes the handling of hostile files.
//!
//! **To add a format:** add its walk, a line to each `match` over [`ImageType`] here and in `decode.rs`, its head to
//! `head.rs`, files to `tests/pictures/corpus`, and rows to `tests/hostile.rs`.

use std::io::{BufRead, Cursor, Seek};

use bytes::Bytes;
use crier_domain::media::ImageType;
use crier_domain::platform::GifRules;
use image::DynamicImage;
use image::metadata::Orientation;

mod decode;
mod encode;
mod fit;
mod gif;
mod head;
mod jpeg;
mod png;
mod rewrite;
mod signs;
#[cfg(test)]
mod tests;
mod webp;

use decode::Decoded;
use rewrite::WalkResult;

/// Maximum length of a thumbnail's longer side, in pixels.
const THUMBNAIL: u32 = 400;
/// JPEG quality of a thumbnail.
const THUMBNAIL_QUALITY: u8 = 82;
/// JPEG quality of a rotated image.
const ROTATED_QUALITY: u8 = 92;
/// Maximum size of a thumbnail's color profile, in bytes; larger ones are omitted.
const MAX_THUMBNAIL_PROFILE: usize = 256 << 10;
/// Maximum length of a side in pixels, which is that of JPEG and GIF.
const MAX_SIDE: u32 = 65_535;

/// The limits of an image.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_bytes: u64,
    /// Width times height.
    pub max_pixels: u64,
}

/// Why bytes are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("The file is empty.")]
    Empty,
    /// The file is not an image of a supported type, is incomplete, or also contains another format. The text is the
    /// message for the user.
    #[error("{0}")]
    Unsupported(String),
    /// The text is the message for the user, with the limit.
    #[error("{0}")]
    TooLarge(String),
}

/// The result of [`probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    pub kind: ImageType,
    pub width: u32,
    pub height: u32,
    /// The memory needed to process the image, in bytes, without the file itself.
    pub memory: u64,
}

/// A checked image, ready to store.
#[derive(Clone, Debug)]
pub struct CheckedImage {
    pub kind: ImageType,
    /// Upright, without metadata.
    pub bytes: Bytes,
    pub width: u32,
    pub height: u32,
    pub thumbnail: Bytes,
    pub thumbnail_kind: ImageType,
}

/// Checks only the head of a file.
pub fn probe(source: impl BufRead + Seek, limits: &Limits) -> Result<Probed, Rejection> {
    let head::Head { kind, width, height, memory } = head::read(source)?;
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(Rejection::TooLarge(format!(
            "The image has {width} × {height} pixels. The maximum is {} megapixels.",
            limits.max_pixels / 1_000_000
        )));
    }
    if width.max(height) > MAX_SIDE {
        return Err(Rejection::TooLarge(format!(
            "The image has {width} × {height} pixels. The maximum for each side is {MAX_SIDE}."
        )));
    }
    Ok(Probed { kind, width, height, memory })
}

/// Checks the whole image and prepares it for storage. Call it only with bytes that [`probe`] has accepted.
pub fn examine(bytes: Bytes, limits: &Limits) -> Result<CheckedImage, Rejection> {
    let Probed { kind, width, height, .. } = probe(Cursor::new(&bytes), limits)?;
    let WalkResult { clean, orientation, frames, small } = walk(&bytes, kind)?;
    decode::check_frames(&bytes, &clean, kind, &frames, limits)?;
    drop(bytes);
    // Animations are not rotated.
    let must_rotate = orientation != Orientation::NoTransforms && frames.is_empty();
    let Decoded { mut image, icc } = match small {
        Some(small) if !must_rotate => Decoded { image: small, icc: decode::jpeg_profile(&clean)? },
        _ => decode::decode(&clean, kind)?.with_sides(width, height)?,
    };
    // A profile that cannot be decompressed within the limit is removed.
    let clean = if kind == ImageType::Png && icc.is_none() { png::without_profile(&clean)? } else { clean };
    let icc = encode::profile(icc, image.color());
    let (bytes, kind, sides) = if must_rotate {
        drop(clean);
        image.apply_orientation(orientation);
        let (bytes, kind) = encode_rotated(&image, kind, icc.as_deref())?;
        (bytes, kind, (image.width(), image.height()))
    } else {
        (clean, kind, (width, height))
    };
    let (thumbnail, thumbnail_kind) = thumbnail(image, sides, icc.as_deref())?;
    Ok(CheckedImage { kind, bytes, width: sides.0, height: sides.1, thumbnail, thumbnail_kind })
}

fn walk(bytes: &Bytes, kind: ImageType) -> Result<WalkResult, Rejection> {
    match kind {
        ImageType::Jpeg => jpeg::walk(bytes),
        ImageType::Png => png::walk(bytes),
        ImageType::Gif => gif::walk(bytes),
        ImageType::Webp => webp::walk(bytes),
    }
}

/// Encodes a rotated image: JPEG and PNG in the same format, WebP as JPEG if it is opaque.
fn encode_rotated(image: &DynamicImage, kind: ImageType, icc: Option<&[u8]>) -> Result<(Bytes, ImageType), Rejection> {
    let opaque_webp = kind == ImageType::Webp && encode::is_opaque(image);
    let written = if opaque_webp && image.color().has_alpha() {
        encode::write(&image.to_rgb8().into(), ImageType::Jpeg, ROTATED_QUALITY, icc)?
    } else {
        let kind = if opaque_webp { ImageType::Jpeg } else { kind };
        encode::write(image, kind, ROTATED_QUALITY, icc)?
    };
    let kind = if opaque_webp { ImageType::Jpeg } else { kind };
    // Normalized, like every stored file.
    Ok((walk(&written.into(), kind)?.clean, kind))
}

/// Returns the width and height of a thumbnail.
pub fn thumbnail_sides(width: u32, height: u32) -> (u32, u32) {
    crier_resize::within(width, height, THUMBNAIL)
}

/// Creates a thumbnail. `sides` are those of the full image; `image` may be a smaller version of it.
fn thumbnail(image: DynamicImage, sides: (u32, u32), icc: Option<&[u8]>) -> Result<(Bytes, ImageType), Rejection> {
    let (width, height) = thumbnail_sides(sides.0, sides.1);
    let mut source = crier_resize::SourceImage::new(image);
    let small = source.resized_to(width, height).ok_or_else(broken)?;
    let icc = icc.filter(|icc| icc.len() <= MAX_THUMBNAIL_PROFILE);
    let (small, kind) = if encode::is_opaque(&small) {
        (encode::flattened(small.into_owned()), ImageType::Jpeg)
    } else {
        (small.into_owned(), ImageType::Png)
    };
    Ok((encode::write(&small, kind, THUMBNAIL_QUALITY, icc)?.into(), kind))
}

/// The limits of a platform for images.
#[derive(Clone, Copy, Debug)]
pub struct ImageRules<'a> {
    pub mime_types: &'a [&'a str],
    pub max_bytes: Option<u64>,
    /// Width plus height.
    pub max_sides: Option<u32>,
    /// Width times height.
    pub max_pixels: Option<u64>,
    pub gif: GifRules,
}

/// An image within the limits of a platform.
#[derive(Clone, Debug)]
pub struct FittedImage {
    pub kind: ImageType,
    pub bytes: Bytes,
    pub width: u32,
    pub height: u32,
}

/// Converts and shrinks a stored image as far as the rules require. An image that fits is returned unchanged. The same
/// image and rules always result in the same bytes. Of an animation that must be converted, only the first frame
/// remains.
///
/// An opaque image becomes JPEG if the rules permit it; a transparent one PNG or WebP, or else JPEG on white.
pub fn fit_to_rules(bytes: Bytes, kind: ImageType, rules: &ImageRules<'_>) -> Result<FittedImage, Rejection> {
    fit::fit_to_rules(bytes, kind, rules)
}

fn unknown() -> Rejection {
    Rejection::Unsupported("This file type is not supported. Use a JPEG, PNG, GIF or WebP image.".to_owned())
}

fn broken() -> Rejection {
    Rejection::Unsupported("The image is damaged and cannot be decoded completely.".to_owned())
}

fn truncated_error() -> Rejection {
    Rejection::Unsupported("The image is incomplete: the file ends too early.".to_owned())
}
