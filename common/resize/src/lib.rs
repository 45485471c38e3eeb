//! Downscales images. It is a crate of its own because `fast_image_resize` consists of generic functions, which the
//! calling crate compiles: most of the time that the media library would need.

use std::borrow::Cow;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::pixels::{U8, U8x2, U8x3, U8x4};
use fast_image_resize::{
    FilterType, IntoImageView, IntoImageViewMut, MulDiv, PixelTrait, PixelType, ResizeAlg, ResizeOptions, Resizer,
};
use image::{ColorType, DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};

/// An image with 8 bits per channel that is downscaled once or several times.
pub struct SourceImage {
    image: DynamicImage,
    kind: PixelType,
    alpha: bool,
    /// Whether the colors are multiplied with alpha.
    multiplied: bool,
}

impl SourceImage {
    /// Creates a source, and converts the image if it has more than 8 bits per channel.
    pub fn new(image: DynamicImage) -> Self {
        let (image, kind, alpha) = match image.color() {
            ColorType::L8 => (image, PixelType::U8, false),
            ColorType::La8 => (image, PixelType::U8x2, true),
            ColorType::Rgb8 => (image, PixelType::U8x3, false),
            ColorType::Rgba8 => (image, PixelType::U8x4, true),
            ColorType::L16 => (image.into_luma8().into(), PixelType::U8, false),
            ColorType::La16 => (image.into_luma_alpha8().into(), PixelType::U8x2, true),
            color if color.has_alpha() => (image.into_rgba8().into(), PixelType::U8x4, true),
            _ => (image.into_rgb8().into(), PixelType::U8x3, false),
        };
        Self { image, kind, alpha, multiplied: false }
    }

    pub fn width(&self) -> u32 {
        self.image.width()
    }

    pub fn height(&self) -> u32 {
        self.image.height()
    }

    /// Returns the image in this size; `None` if that fails. Request the original size before any smaller one, because
    /// downscaling premultiplies an image with alpha in place.
    pub fn resized_to(&mut self, width: u32, height: u32) -> Option<Cow<'_, DynamicImage>> {
        if (width, height) == (self.width(), self.height()) {
            return (!self.multiplied).then_some(Cow::Borrowed(&self.image));
        }
        if self.alpha && !self.multiplied {
            // The colors of transparent pixels must not affect visible ones.
            multiply(&mut self.image);
            self.multiplied = true;
        }
        let source = ImageRef::new(self.width(), self.height(), self.image.as_bytes(), self.kind).ok()?;
        let mut out = Image::new(width, height, self.kind);
        match self.kind {
            PixelType::U8 => resize::<U8>(&source, &mut out, false),
            PixelType::U8x2 => resize::<U8x2>(&source, &mut out, true),
            PixelType::U8x3 => resize::<U8x3>(&source, &mut out, false),
            _ => resize::<U8x4>(&source, &mut out, true),
        }?;
        let bytes = out.into_vec();
        Some(Cow::Owned(match self.kind {
            PixelType::U8 => GrayImage::from_raw(width, height, bytes)?.into(),
            PixelType::U8x2 => GrayAlphaImage::from_raw(width, height, bytes)?.into(),
            PixelType::U8x3 => RgbImage::from_raw(width, height, bytes)?.into(),
            _ => RgbaImage::from_raw(width, height, bytes)?.into(),
        }))
    }
}

/// Resizes pixels of one type. `Resizer::resize` accepts thirteen types, and compiles all of them for each of its callers.
fn resize<P: PixelTrait>(source: &ImageRef<'_>, out: &mut Image<'_>, alpha: bool) -> Option<()> {
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom)).use_alpha(false);
    let mut out = out.image_view_mut::<P>()?;
    Resizer::new().resize_typed(&source.image_view::<P>()?, &mut out, &options).ok()?;
    if alpha {
        MulDiv::new().divide_alpha_inplace_typed(&mut out).ok()?;
    }
    Some(())
}

fn multiply(image: &mut DynamicImage) {
    let (width, height) = (image.width(), image.height());
    match image {
        DynamicImage::ImageLumaA8(pixels) => multiply_pixels::<U8x2>(width, height, pixels, PixelType::U8x2),
        DynamicImage::ImageRgba8(pixels) => multiply_pixels::<U8x4>(width, height, pixels, PixelType::U8x4),
        _ => {}
    }
}

fn multiply_pixels<P: PixelTrait>(width: u32, height: u32, pixels: &mut [u8], kind: PixelType) {
    let Ok(mut image) = Image::from_slice_u8(width, height, pixels, kind) else { return };
    if let Some(mut view) = image.image_view_mut::<P>() {
        // Both types have alpha, so this cannot fail.
        let _ = MulDiv::new().multiply_alpha_inplace_typed(&mut view);
    }
}

/// Returns the width and height, scaled so that neither exceeds `max`. The ratio is kept; nothing is enlarged, and no
/// side becomes 0.
pub fn within(width: u32, height: u32, max: u32) -> (u32, u32) {
    let longest = width.max(height);
    if longest <= max {
        return (width, height);
    }
    let scaled = |side: u32| {
        let side = (u64::from(side) * u64::from(max) + u64::from(longest) / 2) / u64::from(longest);
        u32::try_from(side).unwrap_or(max).max(1)
    };
    (scaled(width), scaled(height))
}
