//! Encodes images with their color profiles.

use crier_domain::media::ImageType;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{ColorType, DynamicImage, GenericImageView, ImageEncoder, Rgb, RgbImage};

use super::{Rejection, broken};

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
pub fn write(image: &DynamicImage, kind: ImageType, quality: u8, icc: Option<&[u8]>) -> Result<Vec<u8>, Rejection> {
    let mut out = Vec::new();
    match kind {
        ImageType::Jpeg => with(JpegEncoder::new_with_quality(&mut out, quality), image, icc),
        ImageType::Webp => with(WebPEncoder::new_lossless(&mut out), image, icc),
        ImageType::Png => with(PngEncoder::new(&mut out), image, icc),
        ImageType::Gif => return Err(broken()),
    }
    .map_err(|_| broken())?;
    Ok(out)
}

fn with(mut encoder: impl ImageEncoder, image: &DynamicImage, icc: Option<&[u8]>) -> image::ImageResult<()> {
    if let Some(icc) = icc {
        encoder.set_icc_profile(icc.to_vec()).map_err(image::ImageError::Unsupported)?;
    }
    image.write_with_encoder(encoder)
}

/// Returns whether every pixel is opaque.
pub fn is_opaque(image: &DynamicImage) -> bool {
    match image {
        DynamicImage::ImageLumaA8(pixels) => pixels.pixels().all(|pixel| pixel.0[1] == u8::MAX),
        DynamicImage::ImageRgba8(pixels) => pixels.pixels().all(|pixel| pixel.0[3] == u8::MAX),
        DynamicImage::ImageLumaA16(pixels) => pixels.pixels().all(|pixel| pixel.0[1] == u16::MAX),
        DynamicImage::ImageRgba16(pixels) => pixels.pixels().all(|pixel| pixel.0[3] == u16::MAX),
        other => !other.color().has_alpha(),
    }
}

/// Returns the image without alpha: unchanged if it is opaque, otherwise on white.
pub fn flattened(image: DynamicImage) -> DynamicImage {
    match image.color() {
        ColorType::L8 | ColorType::Rgb8 => image,
        ColorType::L16 => image.into_luma8().into(),
        color if is_opaque(&image) => {
            if color.has_color() {
                image.into_rgb8().into()
            } else {
                image.into_luma8().into()
            }
        }
        color if color.has_alpha() => on_white(&image).into(),
        _ => image.into_rgb8().into(),
    }
}

fn on_white(image: &DynamicImage) -> RgbImage {
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [r, g, b, alpha] = image.get_pixel(x, y).0.map(u32::from);
        let on = |c: u32| ((c * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        Rgb([on(r), on(g), on(b)])
    })
}
