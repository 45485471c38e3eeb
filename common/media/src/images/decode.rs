//! Decodes whole images and single frames of animations. A small frame on a large canvas needs only memory for its own
//! size.

use std::io::Cursor;

use crier_domain::media::ImageType;
use image::codecs::gif::GifDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ImageDecoder, ImageResult};

use super::rewrite::Frame;
use super::{Limits, Rejection, broken, gif, png, webp};

/// Maximum number of pixels of all frames of an animation, as a multiple of the limit for one image.
const FRAMES: u64 = 5;
/// Maximum memory of a decoder in addition to the image: rows, a profile. The profile of a PNG is compressed.
const MAX_DECODER_OVERHEAD: u64 = 16 << 20;

/// A decoded image and its color profile.
pub struct Decoded {
    pub image: DynamicImage,
    pub icc: Option<Vec<u8>>,
}

impl Decoded {
    /// Returns the image if it has this width and height.
    ///
    /// # Errors
    /// An error if they differ.
    pub fn with_sides(self, width: u32, height: u32) -> Result<Self, Rejection> {
        if (self.image.width(), self.image.height()) == (width, height) { Ok(self) } else { Err(broken()) }
    }
}

/// Decodes an image.
///
/// # Errors
/// An error if the data is truncated or invalid.
pub fn decode(bytes: &[u8], kind: ImageType) -> Result<Decoded, Rejection> {
    let decoded = match kind {
        ImageType::Jpeg => JpegDecoder::new(Cursor::new(bytes)).and_then(finish),
        ImageType::Png => PngDecoder::with_limits(Cursor::new(bytes), limits()).and_then(finish),
        ImageType::Gif => GifDecoder::new(Cursor::new(bytes)).and_then(finish),
        ImageType::Webp => WebPDecoder::new(Cursor::new(bytes)).and_then(finish),
    };
    decoded.map_err(|_| broken())
}

/// Returns the color profile of a JPEG without decoding it.
///
/// # Errors
/// An error if the head is invalid.
pub fn jpeg_profile(bytes: &[u8]) -> Result<Option<Vec<u8>>, Rejection> {
    let mut decoder = JpegDecoder::new(Cursor::new(bytes)).map_err(|_| broken())?;
    Ok(profile(&mut decoder))
}

/// Returns the color profile; `None` if it is missing, unreadable or too large.
fn profile(decoder: &mut impl ImageDecoder) -> Option<Vec<u8>> {
    decoder.icc_profile().ok().flatten().filter(|icc| icc.len() as u64 <= MAX_DECODER_OVERHEAD)
}

fn limits() -> image::Limits {
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODER_OVERHEAD);
    limits
}

fn finish(mut decoder: impl ImageDecoder) -> ImageResult<Decoded> {
    let icc = profile(&mut decoder);
    Ok(Decoded { image: DynamicImage::from_decoder(decoder)?, icc })
}

/// Decodes each frame of an animation, one after the other. `source` is the file that was walked, and `clean` the result.
///
/// # Errors
/// An error if a frame is damaged, or if the frames have too many pixels.
pub fn check_frames(
    source: &[u8],
    clean: &[u8],
    kind: ImageType,
    frames: &[Frame],
    limits: &Limits,
) -> Result<(), Rejection> {
    let pixels = |frame: &Frame| u64::from(frame.width) * u64::from(frame.height);
    let total: u64 = frames.iter().map(pixels).sum();
    let max = limits.max_pixels.saturating_mul(FRAMES);
    if total > max || frames.iter().any(|frame| pixels(frame) > limits.max_pixels) {
        return Err(Rejection::TooLarge(format!(
            "The frames of the animation have {total} pixels in total. The maximum is {} megapixels.",
            max / 1_000_000
        )));
    }
    let palette = if kind == ImageType::Png { png::palette(clean)? } else { Vec::new() };
    for frame in frames {
        let still = match kind {
            ImageType::Gif => Some(gif::extract_frame(source, frame)?),
            ImageType::Webp => Some(webp::extract_frame(source, frame)?),
            ImageType::Png => png::extract_frame(source, &palette, frame)?,
            ImageType::Jpeg => None,
        };
        if let Some(still) = still {
            decode(&still, kind)?;
        }
    }
    Ok(())
}
