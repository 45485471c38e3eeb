//! Generated images.

#![allow(dead_code, reason = "each test uses only a part")]

use std::io::Cursor;

use image::codecs::gif::GifEncoder;
use image::{DynamicImage, Frame, ImageFormat, RgbImage};

/// Returns an image whose pixels differ slightly. Equal sizes and seeds produce equal images.
pub fn pixels(width: u32, height: u32, seed: u8) -> DynamicImage {
    let byte = |n: u32| (n % 251) as u8;
    RgbImage::from_fn(width, height, |x, y| image::Rgb([byte(x * 7), byte(y * 5), byte(x + y).wrapping_add(seed)]))
        .into()
}

pub fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).expect("the image is encoded");
    out.into_inner()
}

pub fn png(width: u32, height: u32) -> Vec<u8> {
    encoded(&pixels(width, height, 0), ImageFormat::Png)
}

pub fn jpeg(width: u32, height: u32) -> Vec<u8> {
    encoded(&pixels(width, height, 0), ImageFormat::Jpeg)
}

pub fn gif(width: u32, height: u32) -> Vec<u8> {
    encoded(&pixels(width, height, 0), ImageFormat::Gif)
}

/// Returns a GIF with two frames.
pub fn animated_gif(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let frames = [0, 1].map(|seed| Frame::new(pixels(width, height, seed).into_rgba8()));
    GifEncoder::new(&mut out).encode_frames(frames).expect("the image is encoded");
    out
}

pub fn webp(width: u32, height: u32) -> Vec<u8> {
    encoded(&pixels(width, height, 0), ImageFormat::WebP)
}

/// Returns a square PNG that cannot be compressed.
pub fn noise(side: u32) -> Vec<u8> {
    let mut state = 1_u32;
    let pixels = RgbImage::from_fn(side, side, |_, _| {
        image::Rgb([(); 3].map(|()| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }))
    });
    encoded(&pixels.into(), ImageFormat::Png)
}
