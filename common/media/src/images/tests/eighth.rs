//! Large JPEGs, whose thumbnails are created from the means of their blocks.

use image::imageops::{self, FilterType};

use super::accepted::jpeg_with;
use super::*;
use crate::images::jpeg;

fn subsampled() -> Bytes {
    large().into_iter().find(|(name, _)| name == "420.jpg").unwrap().1
}

fn small(bytes: &Bytes) -> Option<DynamicImage> {
    jpeg::walk(bytes).unwrap().small
}

#[test]
fn an_eighth_scale_pixel_is_the_average_of_its_block() {
    for (name, bytes) in large() {
        let small = small(&bytes).unwrap_or_else(|| panic!("{name} is not drawn"));
        let decoded = opened(&bytes);
        assert_eq!(small.color(), decoded.color(), "{name}");
        // The last column and row of blocks are partly outside of the image.
        let (width, height) = (decoded.width() / 8, decoded.height() / 8);
        let means = imageops::thumbnail(&decoded.crop_imm(0, 0, width * 8, height * 8), width, height);
        let difference = difference(&small.crop_imm(0, 0, width, height), &means.into());
        // With subsampled chroma, colors are interpolated.
        let max = if name.contains("42") { 5.0 } else { 0.5 };
        assert!(difference < max, "{name}: {difference}");
    }
}

#[test]
fn small_or_unusual_jpegs_are_fully_decoded() {
    for (name, bytes) in corpus().into_iter().filter(|(name, _)| name.ends_with("jpg")) {
        assert!(small(&bytes).is_none(), "{name}");
    }
    let large = subsampled();
    let adobe = |transform: u8| jpeg_with(0xee, &[&b"Adobe\0\x64\0\0\0\0"[..], &[transform]].concat(), &large);
    assert!(small(&adobe(1)).is_some());
    assert!(small(&adobe(0)).is_none(), "red, green and blue");
    let image = examine(adobe(0), &LIMITS).unwrap();
    let decoded = opened(&adobe(0)).resize_exact(400, 3, FilterType::CatmullRom);
    assert!(difference(&opened(&image.thumbnail), &decoded) < 8.0);
}

#[test]
fn a_scaled_thumbnail_resembles_the_full_one() {
    for (name, bytes) in large() {
        let image = examine(bytes.clone(), &LIMITS).unwrap();
        let (original, thumbnail) = (opened(&bytes), opened(&image.thumbnail));
        assert!(opened(&image.bytes) == original, "{name}: a pixel differs");
        let small = original.resize_exact(400, 3, FilterType::CatmullRom);
        assert!(difference(&thumbnail, &small) < 8.0, "{name}: {}", difference(&thumbnail, &small));
        let has_profile = has(&image.thumbnail, b"ICC_PROFILE");
        assert_eq!(has_profile, name.ends_with("icc.jpg"), "{name}");
    }
}

#[test]
fn scaled_decoding_needs_less_memory() {
    for (name, bytes) in large() {
        let (probed, turned) = (probe(Cursor::new(&bytes), &LIMITS).unwrap(), accepted::turned(&bytes));
        let pixels = u64::from(probed.width) * u64::from(probed.height);
        let decoded = probe(Cursor::new(&turned), &LIMITS).unwrap();
        assert!(probed.memory + pixels < decoded.memory, "{name}");
    }
}

#[test]
fn a_large_jpeg_is_rotated_upright() {
    let (upright, turned) = (subsampled(), accepted::turned(&subsampled()));
    let image = examine(turned, &LIMITS).unwrap();
    assert_eq!((image.width, image.height), (27, 3201));
    assert_eq!(opened(&image.thumbnail).dimensions(), (3, 400));
    assert!(difference(&opened(&image.bytes), &opened(&upright).rotate90()) < 6.0);
}

#[test]
fn a_jpeg_without_tables_is_rejected() {
    for (name, bytes) in large() {
        for marker in [0xdb, 0xc4] {
            let mut bytes = bytes.to_vec();
            while let Some(at) = bytes.windows(2).position(|pair| pair == [0xff, marker]) {
                let length = usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
                bytes.drain(at..at + 2 + length);
            }
            assert!(matches!(examine(bytes.into(), &LIMITS), Err(Rejection::Unsupported(_))), "{name}");
        }
    }
}
