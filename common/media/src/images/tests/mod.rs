//! Tests with images of other encoders (`tests/pictures/corpus`), with arbitrary bytes and with hostile files.

use std::io::Cursor;
use std::path::Path;

use bytes::Bytes;
use crier_domain::media::{ImageType, MediaType};
use image::{DynamicImage, GenericImageView, ImageFormat};

use super::{CheckedImage, FittedImage, ImageRules, Limits, Rejection, examine, fit_to_rules, probe};

mod accepted;
mod eighth;
mod fitting;
mod forged;
mod hostile;
mod properties;

pub const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_pixels: 1_000_000 };

/// Returns all images of the corpus, with their names.
pub fn corpus() -> Vec<(String, Bytes)> {
    folder("corpus")
}

/// Returns JPEGs that are so large that the walk extracts an image for the thumbnail.
pub fn large() -> Vec<(String, Bytes)> {
    folder("large")
}

fn folder(name: &str) -> Vec<(String, Bytes)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pictures").join(name);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, Bytes)> = entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap().into()))
        .collect();
    found.sort();
    found
}

pub fn file(name: &str) -> Bytes {
    corpus().into_iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("there is no {name}")).1
}

pub fn kind_of(name: &str) -> ImageType {
    MediaType::of_name(name).and_then(MediaType::image).unwrap()
}

pub fn accept(name: &str) -> CheckedImage {
    examine(file(name), &LIMITS).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Decodes an image with default options, independently of our code.
pub fn opened(bytes: &[u8]) -> DynamicImage {
    image::load_from_memory(bytes).unwrap()
}

pub fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Returns the mean absolute difference of all channels.
pub fn difference(a: &DynamicImage, b: &DynamicImage) -> f64 {
    assert_eq!(a.dimensions(), b.dimensions());
    let (a, b) = (a.to_rgba8(), b.to_rgba8());
    let total: u64 = a.iter().zip(b.iter()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    total as f64 / a.len() as f64
}

/// Returns an image that compresses like a photograph.
pub fn photo(width: u32, height: u32) -> DynamicImage {
    let wave = |n: f64| (127.0 + 120.0 * n.sin()) as u8;
    let mut noise = 1_u32;
    image::RgbImage::from_fn(width, height, |x, y| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let grain = (noise >> 28) as u8;
        let (x, y) = (f64::from(x), f64::from(y));
        image::Rgb([wave(x / 9.0) / 2 + grain, wave(y / 7.0 + x / 31.0) / 2 + grain, wave((x + y) / 13.0)])
    })
    .into()
}

pub fn encoded(image: &DynamicImage, format: ImageFormat) -> Bytes {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).unwrap();
    out.into_inner().into()
}
