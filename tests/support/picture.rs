//! Pictures generated for tests.

#![allow(dead_code, reason = "a part of the tests uses a part of it")]

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, RgbImage};

/// Returns a picture whose pixels differ slightly; equal sizes and seeds produce equal pictures.
pub fn pixels(width: u32, height: u32, seed: u8) -> DynamicImage {
    let byte = |n: u32| (n % 251) as u8;
    RgbImage::from_fn(width, height, |x, y| image::Rgb([byte(x * 7), byte(y * 5), byte(x + y).wrapping_add(seed)]))
        .into()
}

pub fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, format).expect("a picture is written");
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

pub fn webp(width: u32, height: u32) -> Vec<u8> {
    encoded(&pixels(width, height, 0), ImageFormat::WebP)
}

/// Returns a square picture that cannot be compressed.
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
