//! Pictures: what is taken for one, and what becomes of it.
//!
//! The type comes from the bytes, never from a name or a header. Nothing here waits or reads files: bytes in, bytes out, on
//! the caller's thread.

use std::io::{BufRead, Cursor, Seek};

use bytes::Bytes;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use crate::domain::media::ImageType;

mod resize;

/// The longer side of a thumbnail.
const THUMBNAIL: u32 = 400;

/// How large a picture may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_bytes: u64,
    /// Width times height.
    pub max_pixels: u64,
}

/// Why bytes are not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The file is empty.")]
    Empty,
    /// It is no picture of a kind that is taken, is not whole, or is something else besides. A sentence.
    #[error("{0}")]
    Unsupported(String),
    /// A sentence that names the limit.
    #[error("{0}")]
    TooLarge(String),
}

/// What the head of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    pub kind: ImageType,
    pub width: u32,
    pub height: u32,
    /// How much memory it takes to work on it, without the file itself.
    pub memory: u64,
}

/// A picture that is fit to be kept.
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

/// Looks at the head alone.
pub fn probe(source: impl BufRead + Seek, limits: &Limits) -> Result<Probed, Refusal> {
    let reader = ImageReader::new(source).with_guessed_format().map_err(|_| unreadable())?;
    let kind = reader.format().and_then(kind_of).ok_or_else(unknown)?;
    let decoder = reader.into_decoder().map_err(|_| unreadable())?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(Refusal::TooLarge(format!(
            "The picture has {width} × {height} pixels; at most {} megapixels are taken.",
            limits.max_pixels / 1_000_000
        )));
    }
    Ok(Probed { kind, width, height, memory: decoder.total_bytes() * 2 })
}

/// Checks the whole of it, and makes it fit to be kept. Give it only what [`probe`] has passed.
pub fn examine(bytes: Bytes, limits: &Limits) -> Result<Picture, Refusal> {
    let probed = probe(Cursor::new(&bytes), limits)?;
    let decoded = decode(&bytes, probed.kind)?;
    let (thumbnail, thumbnail_kind) = thumbnail(&decoded)?;
    Ok(Picture {
        kind: probed.kind,
        width: decoded.width(),
        height: decoded.height(),
        bytes,
        thumbnail,
        thumbnail_kind,
    })
}

/// What a platform takes.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub mime_types: &'a [&'a str],
    pub max_bytes: Option<u64>,
    /// Width and height together.
    pub max_sides: Option<u32>,
}

/// A picture as a platform takes it.
#[derive(Clone, Debug)]
pub struct Fitted {
    pub kind: ImageType,
    pub bytes: Bytes,
    pub width: u32,
    pub height: u32,
}

/// Converts and shrinks a kept picture as far as the rules ask for it; one that fits stays as it is. The same picture by
/// the same rules gives the same bytes.
pub fn fit(bytes: Bytes, kind: ImageType, rules: &Rules<'_>) -> Result<Fitted, Refusal> {
    let _ = rules;
    let decoded = decode(&bytes, kind)?;
    Ok(Fitted { kind, width: decoded.width(), height: decoded.height(), bytes })
}

fn decode(bytes: &[u8], kind: ImageType) -> Result<DynamicImage, Refusal> {
    image::load_from_memory_with_format(bytes, format_of(kind)).map_err(|_| unreadable())
}

fn thumbnail(picture: &DynamicImage) -> Result<(Bytes, ImageType), Refusal> {
    let small = resize::within(picture, THUMBNAIL, THUMBNAIL);
    let mut out = Cursor::new(Vec::new());
    let kind = if small.color().has_alpha() { ImageType::Png } else { ImageType::Jpeg };
    let small = if kind == ImageType::Jpeg { small.to_rgb8().into() } else { small };
    small.write_to(&mut out, format_of(kind)).map_err(|_| unreadable())?;
    Ok((out.into_inner().into(), kind))
}

fn kind_of(format: ImageFormat) -> Option<ImageType> {
    ImageType::ALL.iter().copied().find(|kind| format_of(*kind) == format)
}

fn format_of(kind: ImageType) -> ImageFormat {
    match kind {
        ImageType::Jpeg => ImageFormat::Jpeg,
        ImageType::Png => ImageFormat::Png,
        ImageType::Gif => ImageFormat::Gif,
        ImageType::Webp => ImageFormat::WebP,
    }
}

fn unknown() -> Refusal {
    Refusal::Unsupported("The file is no JPEG, PNG, GIF or WebP picture; only these are taken.".to_owned())
}

fn unreadable() -> Refusal {
    Refusal::Unsupported("The picture is broken: it cannot be decoded to its end.".to_owned())
}
