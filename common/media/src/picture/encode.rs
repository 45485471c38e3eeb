//! Encodes images with their color profiles.

use crier_domain::media::ImageType;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{ColorType, DynamicImage, GenericImageView, ImageEncoder, Rgb, RgbImage};

use super::{Refusal, broken};

/// Returns the profile if it matches the color type: the profile of a CMYK image does not apply after the conversion to
/// RGB.
pub fn profile(icc: Option<Vec<u8>>, color: ColorType) -> Option<Vec<u8>> {
    let space: &[u8] = if color.has_color() { b"RGB " } else { b"GRAY" };
    icc.filter(|icc| icc.get(16..20) == Some(space))
}

/// Encodes an image. `quality` is only for JPEG, from 1 to 100; JPEG has no alpha and 8 bits per channel.
///
/// # Errors
/// An error if the format cannot represent the image.
pub fn write(picture: &DynamicImage, kind: ImageType, quality: u8, icc: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    match kind {
        ImageType::Jpeg => with(JpegEncoder::new_with_quality(&mut out, quality), picture, icc),
        ImageType::Webp => with(WebPEncoder::new_lossless(&mut out), picture, icc),
        ImageType::Png => with(PngEncoder::new(&mut out), picture, icc),
        ImageType::Gif => return Err(broken()),
    }
    .map_err(|_| broken())?;
    Ok(out)
}

fn with(mut encoder: impl ImageEncoder, picture: &DynamicImage, icc: Option<&[u8]>) -> image::ImageResult<()> {
    if let Some(icc) = icc {
        encoder.set_icc_profile(icc.to_vec()).map_err(image::ImageError::Unsupported)?;
    }
    picture.write_with_encoder(encoder)
}

/// Returns whether every pixel is opaque.
pub fn is_opaque(picture: &DynamicImage) -> bool {
    match picture {
        DynamicImage::ImageLumaA8(pixels) => pixels.pixels().all(|pixel| pixel.0[1] == u8::MAX),
        DynamicImage::ImageRgba8(pixels) => pixels.pixels().all(|pixel| pixel.0[3] == u8::MAX),
        DynamicImage::ImageLumaA16(pixels) => pixels.pixels().all(|pixel| pixel.0[1] == u16::MAX),
        DynamicImage::ImageRgba16(pixels) => pixels.pixels().all(|pixel| pixel.0[3] == u16::MAX),
        other => !other.color().has_alpha(),
    }
}

/// Returns the image without alpha: unchanged if it is opaque, otherwise on white.
pub fn flattened(picture: DynamicImage) -> DynamicImage {
    match picture.color() {
        ColorType::L8 | ColorType::Rgb8 => picture,
        ColorType::L16 => picture.into_luma8().into(),
        color if is_opaque(&picture) => {
            if color.has_color() {
                picture.into_rgb8().into()
            } else {
                picture.into_luma8().into()
            }
        }
        color if color.has_alpha() => on_white(&picture).into(),
        _ => picture.into_rgb8().into(),
    }
}

fn on_white(picture: &DynamicImage) -> RgbImage {
    RgbImage::from_fn(picture.width(), picture.height(), |x, y| {
        let [r, g, b, alpha] = picture.get_pixel(x, y).0.map(u32::from);
        let on = |c: u32| ((c * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        Rgb([on(r), on(g), on(b)])
    })
}
