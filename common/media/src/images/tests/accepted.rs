//! Valid images: they are accepted and rotated, lose their metadata, and keep their pixels.

use image::imageops;

use super::*;

#[test]
fn images_of_other_encoders_are_accepted() {
    for (name, bytes) in corpus() {
        let original = opened(&bytes);
        let image = accept(&name);
        let kind = if name == "turned-6.webp" { ImageType::Jpeg } else { kind_of(&name) };
        assert_eq!(image.kind, kind, "{name}");
        let turned = name.starts_with("turned");
        let (width, height) = if turned { (original.height(), original.width()) } else { original.dimensions() };
        assert_eq!((image.width, image.height), (width, height), "{name}");
        let kept = opened(&image.bytes);
        if turned {
            assert!(difference(&kept, &original.rotate90()) < 6.0, "{name}");
        } else {
            assert!(kept == original, "{name}: a pixel differs");
        }
        assert!(image::guess_format(&image.thumbnail).is_ok(), "{name}");
        let thumbnail = opened(&image.thumbnail);
        assert_eq!(
            thumbnail.dimensions(),
            (width, height),
            "{name}: no thumbnail is larger or smaller than a small image"
        );
        assert!(difference(&thumbnail, &kept) < 8.0, "{name}: {}", difference(&thumbnail, &kept));
    }
}

#[test]
fn output_is_accepted_again_and_has_no_location() {
    for (name, _) in corpus() {
        let first = accept(&name);
        for secret in [&b"secret-place"[..], b"Exif", b"eXIf", b"EXIF", b"http://ns.adobe.com", b"XMP"] {
            assert!(!has(&first.bytes, secret), "{name} has {}", String::from_utf8_lossy(secret));
            assert!(!has(&first.thumbnail, secret), "{name}'s thumbnail has {}", String::from_utf8_lossy(secret));
        }
        let again = examine(first.bytes.clone(), &LIMITS).unwrap();
        assert_eq!(again.bytes, first.bytes, "{name}");
        assert_eq!((again.width, again.height, again.kind), (first.width, first.height, first.kind), "{name}");
    }
}

#[test]
fn the_color_profile_is_preserved_in_the_thumbnail() {
    for name in ["rgb.png", "baseline-444-optimised-icc.jpg", "turned-6.webp"] {
        let image = accept(name);
        for bytes in [&image.bytes, &image.thumbnail] {
            let kind = image::guess_format(bytes).unwrap();
            let mut decoder = image::ImageReader::with_format(Cursor::new(bytes), kind).into_decoder().unwrap();
            let icc = image::ImageDecoder::icc_profile(&mut decoder).unwrap().unwrap_or_default();
            assert_eq!(icc.get(36..40), Some(&b"acsp"[..]), "{name}");
        }
    }
}

/// Returns EXIF that contains only the orientation.
fn exif(orientation: u8) -> Vec<u8> {
    let mut exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend_from_slice(&[orientation, 0, 0, 0, 0, 0, 0]);
    exif
}

pub fn jpeg_with(code: u8, body: &[u8], jpeg: &[u8]) -> Bytes {
    let mut out = jpeg[..2].to_vec();
    out.extend_from_slice(&[0xff, code]);
    out.extend_from_slice(&u16::try_from(body.len() + 2).unwrap().to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&jpeg[2..]);
    out.into()
}

/// Adds EXIF that requires a rotation to the right.
pub fn turned(jpeg: &[u8]) -> Bytes {
    jpeg_with(0xe1, &[&b"Exif\0\0"[..], &exif(6)].concat(), jpeg)
}

#[test]
fn all_eight_orientations_are_rotated_upright() {
    let upright = photo(40, 24);
    // The image that a camera stores for each number of an orientation.
    let stored = [
        upright.clone(),
        imageops::flip_horizontal(&upright).into(),
        imageops::rotate180(&upright).into(),
        imageops::flip_vertical(&upright).into(),
        DynamicImage::from(imageops::flip_horizontal(&upright)).rotate270(),
        upright.rotate270(),
        DynamicImage::from(imageops::flip_horizontal(&upright)).rotate90(),
        upright.rotate90(),
    ];
    for (number, stored) in (1..).zip(stored) {
        let jpeg = encoded(&stored, ImageFormat::Jpeg);
        let body = [&b"Exif\0\0"[..], &exif(number)].concat();
        let image = examine(jpeg_with(0xe1, &body, &jpeg), &LIMITS).unwrap();
        assert_eq!((image.width, image.height), (40, 24), "orientation {number}");
        let difference = difference(&opened(&image.bytes).to_rgb8().into(), &upright);
        assert!(difference < 9.0, "orientation {number}: {difference}");
    }
}

#[test]
fn broken_exif_is_treated_as_upright() {
    let jpeg = encoded(&photo(40, 24), ImageFormat::Jpeg);
    for body in
        [&b"Exif\0\0"[..], b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"]
    {
        let image = examine(jpeg_with(0xe1, body, &jpeg), &LIMITS).unwrap();
        assert_eq!((image.width, image.height, &image.bytes), (40, 24, &jpeg));
    }
}

#[test]
fn an_image_without_metadata_is_unchanged() {
    for (format, kind) in [(ImageFormat::Png, "png"), (ImageFormat::Gif, "gif"), (ImageFormat::WebP, "webp")] {
        let bytes = encoded(&photo(9, 7).to_rgba8().into(), format);
        assert_eq!(examine(bytes.clone(), &LIMITS).unwrap().bytes, bytes, "{kind}");
    }
}

#[test]
fn data_appended_by_phones_is_removed() {
    let jpeg = encoded(&photo(40, 24), ImageFormat::Jpeg);
    let video = b"\0\0\0\x18ftypmp42\0\0\0\0isommp42secret-place".to_vec();
    let second = jpeg.to_vec();
    let samsung = b"secret-place\x01\x02SEFHxxxx\x10\0\0\0SEFT".to_vec();
    let zeros = vec![0; 99];
    let padded = [&zeros[..], &jpeg].concat();
    for (name, end) in
        [("video", video), ("second", second), ("samsung", samsung), ("zeros", zeros), ("padded", padded)]
    {
        let whole: Bytes = [&jpeg[..], &end].concat().into();
        assert_eq!(examine(whole, &LIMITS).unwrap().bytes, jpeg, "{name}");
    }
}

#[test]
fn oddities_of_real_files_are_accepted() {
    let jpeg = file("baseline-420.jpg");
    let clean = accept("baseline-420.jpg").bytes;
    // Fill bytes before a marker, no JFIF, and zeros between segments.
    let filled = [&jpeg[..2], b"\xff\xff\xff", &jpeg[2..]].concat();
    assert_eq!(examine(filled.into(), &LIMITS).unwrap().bytes, clean);
    let junk = [&jpeg[..20], b"\0\0\0", &jpeg[20..]].concat();
    assert_eq!(examine(junk.into(), &LIMITS).unwrap().bytes, clean);
    let plain: Bytes = [&jpeg[..2], &jpeg[20..]].concat().into();
    assert_eq!(examine(plain.clone(), &LIMITS).unwrap().bytes, plain);
    let padded = [&file("rgb.png")[..], b"\r\n\0"].concat();
    assert_eq!(examine(padded.into(), &LIMITS).unwrap().bytes, accept("rgb.png").bytes);
}

#[test]
fn thumbnails_are_small_and_keep_the_aspect_ratio() {
    let jpeg = encoded(&photo(1000, 500), ImageFormat::Jpeg);
    let image = examine(jpeg, &LIMITS).unwrap();
    let thumbnail = opened(&image.thumbnail);
    assert_eq!((thumbnail.dimensions(), image.thumbnail_kind), ((400, 200), ImageType::Jpeg));
    let line = examine(encoded(&photo(3000, 1), ImageFormat::Png), &LIMITS).unwrap();
    assert_eq!(opened(&line.thumbnail).dimensions(), (400, 1));
}

#[test]
fn transparent_thumbnails_have_no_dark_fringe() {
    // One half is white, the other one transparent black. All visible pixels of the thumbnail must be white.
    let image = image::RgbaImage::from_fn(801, 10, |x, _| {
        if x < 400 { image::Rgba([255, 255, 255, 255]) } else { image::Rgba([0, 0, 0, 0]) }
    });
    let image = examine(encoded(&image.into(), ImageFormat::Png), &LIMITS).unwrap();
    assert_eq!(image.thumbnail_kind, ImageType::Png);
    for pixel in opened(&image.thumbnail).to_rgba8().pixels().filter(|pixel| pixel.0[3] > 16) {
        assert!(pixel.0[..3].iter().all(|c| *c > 240), "{pixel:?}");
    }
}

#[test]
fn the_header_determines_dimensions_and_memory() {
    for (name, bytes) in corpus() {
        let probed = probe(Cursor::new(&bytes), &LIMITS).unwrap();
        assert_eq!(
            (probed.kind, (probed.width, probed.height)),
            (kind_of(&name), opened(&bytes).dimensions()),
            "{name}"
        );
        assert!(probed.memory > u64::from(probed.width) * u64::from(probed.height) + bytes.len() as u64, "{name}");
    }
}

#[test]
fn gifs_have_the_same_size_limit() {
    let limits = Limits { max_bytes: 25 << 20, max_pixels: 100_000_000 };
    let mut gif = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new_with_speed(&mut gif, 30);
    let plain = image::RgbaImage::from_pixel(4_100, 4_000, image::Rgba([10, 20, 30, 255]));
    encoder.encode_frame(image::Frame::new(plain)).unwrap();
    drop(encoder);
    let image = examine(gif.into(), &limits).unwrap();
    assert_eq!((image.width, image.height), (4_100, 4_000));
}
