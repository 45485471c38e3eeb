//! Pictures: which are accepted, and how they are processed.
//!
//! The type is detected from the bytes, never from a name or a header. Nothing here waits or reads files: bytes in,
//! bytes out, on the caller's thread.
//!
//! 1. [`probe`] reads the head (`head.rs`): sides and memory are known before anything is allocated.
//! 2. A walk over the structure, one file per format (`jpeg.rs`, `png.rs`, `gif.rs`, `webp.rs`), finds the end of the
//!    picture and rewrites the file without anything that does not belong to it (`rewrite.rs`). Signs of another format
//!    in the dropped data are refused (`signs.rs`).
//! 3. The result is decoded completely (`decode.rs`), so that only whole pictures are stored. For a large JPEG the walk
//!    has already read all codes (`crier_jpeg`), and the picture at an eighth of its size, which is enough for a
//!    thumbnail.
//! 4. It is rotated upright if needed; a thumbnail is made (`resize.rs`, `encode.rs`).
//!
//! The same picture always yields the same bytes, and [`examine`] accepts its own output unchanged. `docs/media.md`
//! describes how hostile files are handled.
//!
//! **To add a format:** its walk, a line in each `match` over [`ImageType`] here and in `decode.rs`, its head in
//! `head.rs`, its files in `tests/pictures/corpus`, and its rows in `tests/hostile.rs`.

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
mod resize;
mod rewrite;
mod signs;
#[cfg(test)]
mod tests;
mod webp;

use decode::Decoded;
use rewrite::WalkResult;

/// Maximum length of a thumbnail's longer side.
const THUMBNAIL: u32 = 400;
/// JPEG quality of a thumbnail, and of a rotated picture.
const THUMBNAIL_QUALITY: u8 = 82;
const TURNED_QUALITY: u8 = 92;
/// Larger profiles are left out of thumbnails.
const THUMBNAIL_PROFILE: usize = 256 << 10;
/// Maximum length of a side: the largest that JPEG and GIF can represent.
const MAX_SIDE: u32 = 65_535;

/// The limits for a picture.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_bytes: u64,
    /// Width times height.
    pub max_pixels: u64,
}

/// Why bytes are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The file is empty.")]
    Empty,
    /// Not a picture of a supported kind, not complete, or also another format. A sentence.
    #[error("{0}")]
    Unsupported(String),
    /// A sentence that names the limit.
    #[error("{0}")]
    TooLarge(String),
}

/// The result of [`probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    pub kind: ImageType,
    pub width: u32,
    pub height: u32,
    /// Memory to process it in bytes, without the file itself.
    pub memory: u64,
}

/// A checked picture, ready to be stored.
#[derive(Clone, Debug)]
pub struct Picture {
    pub kind: ImageType,
    /// Upright, without metadata.
    pub bytes: Bytes,
    pub width: u32,
    pub height: u32,
    pub thumbnail: Bytes,
    pub thumbnail_kind: ImageType,
}

/// Checks only the head.
pub fn probe(source: impl BufRead + Seek, limits: &Limits) -> Result<Probed, Refusal> {
    let head::Head { kind, width, height, memory } = head::read(source)?;
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(Refusal::TooLarge(format!(
            "The image has {width} × {height} pixels. The maximum is {} megapixels.",
            limits.max_pixels / 1_000_000
        )));
    }
    if width.max(height) > MAX_SIDE {
        return Err(Refusal::TooLarge(format!(
            "The image has {width} × {height} pixels. The maximum for each side is {MAX_SIDE}."
        )));
    }
    Ok(Probed { kind, width, height, memory })
}

/// Checks the whole picture and prepares it for storage. Call it only with bytes that [`probe`] has accepted.
pub fn examine(bytes: Bytes, limits: &Limits) -> Result<Picture, Refusal> {
    let Probed { kind, width, height, .. } = probe(Cursor::new(&bytes), limits)?;
    let WalkResult { clean, orientation, frames, small } = walk(&bytes, kind)?;
    decode::check_frames(&bytes, kind, &frames, limits)?;
    drop(bytes);
    // Animations are not rotated.
    let turns = orientation != Orientation::NoTransforms && frames.is_empty();
    let Decoded { mut picture, icc } = match small {
        Some(small) if !turns => Decoded { picture: small, icc: decode::jpeg_profile(&clean)? },
        _ => decode::decode(&clean, kind)?.with_sides(width, height)?,
    };
    // A profile that cannot be decompressed within the limit is removed.
    let clean = if kind == ImageType::Png && icc.is_none() { png::without_profile(&clean)? } else { clean };
    let icc = encode::profile(icc, picture.color());
    let (bytes, kind, sides) = if turns {
        drop(clean);
        picture.apply_orientation(orientation);
        let (bytes, kind) = encode_rotated(&picture, kind, icc.as_deref())?;
        (bytes, kind, (picture.width(), picture.height()))
    } else {
        (clean, kind, (width, height))
    };
    let (thumbnail, thumbnail_kind) = thumbnail(picture, sides, icc.as_deref())?;
    Ok(Picture { kind, bytes, width: sides.0, height: sides.1, thumbnail, thumbnail_kind })
}

fn walk(bytes: &Bytes, kind: ImageType) -> Result<WalkResult, Refusal> {
    match kind {
        ImageType::Jpeg => jpeg::walk(bytes),
        ImageType::Png => png::walk(bytes),
        ImageType::Gif => gif::walk(bytes),
        ImageType::Webp => webp::walk(bytes),
    }
}

/// Encodes a rotated picture: JPEG as JPEG, PNG as PNG, WebP as JPEG if it is opaque.
fn encode_rotated(picture: &DynamicImage, kind: ImageType, icc: Option<&[u8]>) -> Result<(Bytes, ImageType), Refusal> {
    let opaque_webp = kind == ImageType::Webp && encode::is_opaque(picture);
    let written = if opaque_webp && picture.color().has_alpha() {
        encode::write(&picture.to_rgb8().into(), ImageType::Jpeg, TURNED_QUALITY, icc)?
    } else {
        let kind = if opaque_webp { ImageType::Jpeg } else { kind };
        encode::write(picture, kind, TURNED_QUALITY, icc)?
    };
    let kind = if opaque_webp { ImageType::Jpeg } else { kind };
    // Normalised like every stored file.
    Ok((walk(&written.into(), kind)?.clean, kind))
}

/// Makes a thumbnail. `sides`: those of the full picture; `picture` may be a smaller version of it.
fn thumbnail(picture: DynamicImage, sides: (u32, u32), icc: Option<&[u8]>) -> Result<(Bytes, ImageType), Refusal> {
    let (width, height) = resize::within(sides.0, sides.1, THUMBNAIL);
    let mut source = resize::SourceImage::new(picture);
    let small = source.resized_to(width, height).ok_or_else(broken)?;
    let icc = icc.filter(|icc| icc.len() <= THUMBNAIL_PROFILE);
    let (small, kind) = if encode::is_opaque(&small) {
        (encode::flattened(small.into_owned()), ImageType::Jpeg)
    } else {
        (small.into_owned(), ImageType::Png)
    };
    Ok((encode::write(&small, kind, THUMBNAIL_QUALITY, icc)?.into(), kind))
}

/// The limits of a platform.
#[derive(Clone, Copy, Debug)]
pub struct PictureRules<'a> {
    pub mime_types: &'a [&'a str],
    pub max_bytes: Option<u64>,
    /// Width plus height.
    pub max_sides: Option<u32>,
    /// Width times height.
    pub max_pixels: Option<u64>,
    pub gif: GifRules,
}

/// A picture that satisfies a platform's limits.
#[derive(Clone, Debug)]
pub struct FittedPicture {
    pub kind: ImageType,
    pub bytes: Bytes,
    pub width: u32,
    pub height: u32,
}

/// Converts and shrinks a stored picture as far as the rules require; one that fits is returned unchanged. The same
/// picture and rules always yield the same bytes. An animation that must be converted is reduced to its first frame.
///
/// An opaque picture becomes JPEG if allowed; a transparent one PNG or WebP, or else JPEG on white.
pub fn fit_to_rules(bytes: Bytes, kind: ImageType, rules: &PictureRules<'_>) -> Result<FittedPicture, Refusal> {
    fit::fit_to_rules(bytes, kind, rules)
}

fn unknown() -> Refusal {
    Refusal::Unsupported("This file type is not supported. Use a JPEG, PNG, GIF or WebP image.".to_owned())
}

fn broken() -> Refusal {
    Refusal::Unsupported("The image is damaged and cannot be decoded completely.".to_owned())
}

fn truncated_error() -> Refusal {
    Refusal::Unsupported("The image is incomplete: the file ends too early.".to_owned())
}
