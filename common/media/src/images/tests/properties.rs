//! Arbitrary bytes: nothing panics, incomplete images are rejected, and every accepted image is valid.

use proptest::prelude::*;

use super::*;

/// Returns whether only padding is missing.
fn is_whole(part: &[u8], whole: &[u8]) -> bool {
    whole[part.len()..].iter().all(|byte| *byte == 0)
}

#[test]
fn a_truncated_image_is_rejected() {
    for (name, whole) in corpus().into_iter().chain(large()) {
        let step = if cfg!(debug_assertions) { 1 + whole.len() / 400 } else { 1 };
        for end in (0..whole.len()).step_by(step).chain(whole.len().saturating_sub(40)..whole.len()) {
            let part = whole.slice(..end);
            if is_whole(&part, &whole) {
                continue;
            }
            let result = examine(part, &LIMITS);
            assert!(matches!(result, Err(Rejection::Unsupported(_))), "{name} cut after {end} bytes is accepted");
        }
    }
}

/// Cuts the data of a JPEG and appends the end marker.
#[test]
fn a_jpeg_with_missing_scan_data_is_rejected() {
    let jpegs =
        corpus().into_iter().chain(large()).filter(|(name, _)| name.ends_with(".jpg") && name != "one-pixel.jpg");
    for (name, whole) in jpegs {
        // Without its last scans, a JPEG is a valid, coarser image. So only the last scan is cut.
        let data = whole.windows(2).rposition(|pair| pair == b"\xff\xda").unwrap() + 14;
        let step = 7 + whole.len() / 400;
        for end in (data..whole.len() - 3).step_by(step) {
            let ended = [&whole[..end], b"\xff\xd9"].concat();
            let result = examine(ended.into(), &LIMITS);
            assert!(result.is_err(), "{name} ended after {end} of {} bytes", whole.len());
        }
    }
}

/// Checks that the result is accepted again and matches its description.
fn is_sound(image: &CheckedImage) {
    let again = examine(image.bytes.clone(), &LIMITS).expect("it is accepted again");
    assert_eq!((again.width, again.height, again.kind), (image.width, image.height, image.kind));
    assert_eq!(again.bytes, image.bytes);
    assert_eq!(opened(&image.bytes).dimensions(), (image.width, image.height));
}

fn any_corpus_file() -> impl Strategy<Value = Bytes> {
    prop::sample::select(corpus().into_iter().chain(large()).map(|(_, bytes)| bytes).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_rejected_or_valid(
        start in prop::sample::select(vec![&b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\x40\0\0\0WEBPVP8 ", b""]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes: Bytes = [start, &rest].concat().into();
        if let Ok(image) = examine(bytes, &LIMITS) {
            is_sound(&image);
        }
    }

    #[test]
    fn an_image_with_changed_bytes_is_rejected_or_valid(
        whole in any_corpus_file(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = whole.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        if let Ok(image) = examine(bytes.into(), &LIMITS) {
            is_sound(&image);
        }
    }

    #[test]
    fn insertions_and_deletions_are_rejected_or_valid(
        whole in any_corpus_file(), other in any_corpus_file(),
        from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
        first in any::<prop::sample::Index>(), length in 0_usize..64,
    ) {
        let (a, b) = (from.index(whole.len()), to.index(whole.len()));
        let first = first.index(other.len());
        let part = &other[first..(first + length).min(other.len())];
        let bytes = [&whole[..a.min(b)], part, &whole[a.max(b)..]].concat();
        if let Ok(image) = examine(bytes.into(), &LIMITS) {
            is_sound(&image);
        }
    }

    /// A PNG has checksums; they are corrected after the change.
    #[test]
    fn a_changed_png_with_valid_checksums_is_rejected_or_valid(
        name in prop::sample::select(corpus().into_iter().map(|f| f.0).filter(|n| n.ends_with("png")).collect::<Vec<_>>()),
        at in any::<prop::sample::Index>(), byte in 1_u8..,
    ) {
        let mut bytes = file(&name).to_vec();
        let at = 16 + at.index(bytes.len() - 32);
        bytes[at] ^= byte;
        forged::sum_up(&mut bytes);
        if let Ok(image) = examine(bytes.into(), &LIMITS) {
            is_sound(&image);
        }
    }

    #[test]
    fn own_encoder_output_is_always_accepted(width in 1_u32..70, height in 1_u32..70, quality in 1_u8..=100) {
        let image = photo(width, height);
        let mut jpeg = Vec::new();
        let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, quality);
        image.write_with_encoder(encoder).unwrap();
        let files = [jpeg.into(), encoded(&image, ImageFormat::Png), encoded(&image, ImageFormat::WebP)];
        for bytes in files {
            let accepted = examine(bytes, &LIMITS).unwrap();
            prop_assert_eq!((accepted.width, accepted.height), (width, height));
            is_sound(&accepted);
        }
    }
}
