//! Fitting images to a platform's limits.

use crier_domain::platform::GifRules;

use super::super::gif;
use super::*;

const ALL: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];
const FREE: ImageRules<'_> =
    ImageRules { mime_types: ALL, max_bytes: None, max_sides: None, max_pixels: None, gif: GifRules::NONE };

fn fitted(bytes: &Bytes, kind: ImageType, rules: &ImageRules<'_>) -> FittedImage {
    let fitted = fit_to_rules(bytes.clone(), kind, rules).unwrap();
    assert!(rules.mime_types.contains(&fitted.kind.as_str()), "{:?}", fitted.kind);
    assert!(rules.max_bytes.is_none_or(|max| fitted.bytes.len() as u64 <= max), "{}", fitted.bytes.len());
    assert!(rules.max_sides.is_none_or(|max| fitted.width + fitted.height <= max));
    assert_eq!(opened(&fitted.bytes).dimensions(), (fitted.width, fitted.height));
    let again = fit_to_rules(bytes.clone(), kind, rules).unwrap();
    assert_eq!(again.bytes, fitted.bytes, "the same image by the same rules gives the same bytes");
    fitted
}

#[test]
fn a_fitting_image_is_unchanged() {
    for (name, bytes) in corpus() {
        let rules = ImageRules { max_bytes: Some(bytes.len() as u64), max_sides: Some(200), ..FREE };
        assert_eq!(fitted(&bytes, kind_of(&name), &rules).bytes, bytes, "{name}");
    }
}

#[test]
fn quality_is_reduced_before_dimensions() {
    let whole = encoded(&photo(500, 400), ImageFormat::Png);
    for max in [70_000_u64, 40_000, 25_000, 10_000, 4_000] {
        let fitted = fitted(&whole, ImageType::Png, &ImageRules { max_bytes: Some(max), ..FREE });
        let part = fitted.bytes.len() as f64 / max as f64;
        assert_eq!(fitted.kind, ImageType::Jpeg);
        assert!(fitted.width == 500 || part > 0.84, "{part} of {max}");
        assert!((f64::from(fitted.width) / f64::from(fitted.height) - 1.25).abs() < 0.05);
    }
}

#[test]
fn the_aspect_ratio_is_preserved() {
    let whole = encoded(&photo(900, 300), ImageFormat::Jpeg);
    let fitted = fitted(&whole, ImageType::Jpeg, &ImageRules { max_sides: Some(600), ..FREE });
    assert_eq!((fitted.width, fitted.height), (450, 150));
}

#[test]
fn images_have_at_most_the_allowed_pixels() {
    for (width, height, max) in [(900, 300, 100_000), (300, 901, 99_999), (50, 1, 7), (1, 50, 7), (20, 20, 1)] {
        let whole = encoded(&photo(width, height), ImageFormat::Png);
        let fitted = fitted(&whole, ImageType::Png, &ImageRules { max_pixels: Some(max), ..FREE });
        let pixels = u64::from(fitted.width) * u64::from(fitted.height);
        assert!(pixels <= max && pixels * 10 >= max * 9, "{} × {}", fitted.width, fitted.height);
    }
    let whole = encoded(&photo(30, 20), ImageFormat::Png);
    assert_eq!(fitted(&whole, ImageType::Png, &ImageRules { max_pixels: Some(600), ..FREE }).bytes, whole);
}

#[test]
fn a_gif_over_its_own_limits_becomes_a_still_image() {
    let bytes = file("animated.gif");
    let frames = u32::try_from(gif::walk(&bytes).unwrap().frames.len()).unwrap();
    let sides = opened(&bytes).dimensions();
    let pixels = u64::from(sides.0) * u64::from(sides.1);
    let total = pixels * u64::from(frames);
    let size = bytes.len() as u64;
    let exact = GifRules {
        max_bytes: Some(size),
        max_pixels: Some(pixels),
        max_frames: Some(frames),
        max_total_pixels: Some(total),
        only_animated: true,
    };
    for (gif, is_kept) in [
        (exact, true),
        (GifRules { max_bytes: Some(size - 1), ..GifRules::NONE }, false),
        (GifRules { max_frames: Some(frames - 1), ..GifRules::NONE }, false),
        (GifRules { max_pixels: Some(pixels - 1), ..GifRules::NONE }, false),
        (GifRules { max_total_pixels: Some(total - 1), ..GifRules::NONE }, false),
    ] {
        let fitted = fitted(&bytes, ImageType::Gif, &ImageRules { gif, ..FREE });
        assert_eq!((fitted.kind == ImageType::Gif, fitted.bytes == bytes), (is_kept, is_kept));
        assert_eq!((fitted.width, fitted.height), sides);
    }
}

#[test]
fn a_gif_may_have_more_bytes_than_other_images() {
    let bytes = file("animated.gif");
    let gif = GifRules { max_bytes: Some(bytes.len() as u64), ..GifRules::NONE };
    let rules = ImageRules { max_bytes: Some(10), gif, ..FREE };
    assert_eq!(fit_to_rules(bytes.clone(), ImageType::Gif, &rules).unwrap().bytes, bytes);
}

#[test]
fn a_still_gif_is_converted_for_a_platform_that_takes_only_animated_ones() {
    let bytes = encoded(&photo(40, 30).to_rgba8().into(), ImageFormat::Gif);
    for (only_animated, is_kept) in [(false, true), (true, false)] {
        let gif = GifRules { only_animated, ..GifRules::NONE };
        assert_eq!(fitted(&bytes, ImageType::Gif, &ImageRules { gif, ..FREE }).kind == ImageType::Gif, is_kept);
    }
}

#[test]
fn transparency_is_kept_or_flattened_onto_white() {
    let (bytes, kind) = (file("alpha.png"), ImageType::Png);
    let webp = fitted(&bytes, kind, &ImageRules { mime_types: &["image/jpeg", "image/webp"], ..FREE });
    assert_eq!(webp.kind, ImageType::Webp);
    assert!(opened(&webp.bytes).to_rgba8() == opened(&bytes).to_rgba8(), "it is written without loss");
    let jpeg = fitted(&bytes, kind, &ImageRules { mime_types: &["image/jpeg"], ..FREE });
    // The image is transparent at its top.
    assert!(opened(&jpeg.bytes).to_rgb8().get_pixel(20, 0).0.iter().all(|c| *c > 235));
}

#[test]
fn a_transparent_image_is_shrunk_to_its_limit() {
    let image = image::RgbaImage::from_fn(300, 300, |x, y| {
        let pixel = photo(1, 1).to_rgb8().get_pixel(0, 0).0;
        image::Rgba([pixel[0] ^ (x * 7) as u8, (y * 5) as u8, (x * y) as u8, (x + y) as u8])
    });
    let bytes = encoded(&image.into(), ImageFormat::Png);
    let max = bytes.len() as u64 / 5;
    let fitted = fitted(&bytes, ImageType::Png, &ImageRules { max_bytes: Some(max), ..FREE });
    assert_eq!(fitted.kind, ImageType::Png);
    assert!(fitted.bytes.len() as f64 > max as f64 * 0.8, "{} of {max}", fitted.bytes.len());
}

#[test]
fn unsupported_animations_become_their_first_frame() {
    for name in ["animated.gif", "animated.webp"] {
        let bytes = file(name);
        let jpeg = fitted(&bytes, kind_of(name), &ImageRules { mime_types: &["image/jpeg"], ..FREE });
        assert!(difference(&opened(&jpeg.bytes), &opened(&bytes)) < 8.0, "{name}");
    }
}

#[test]
fn impossible_conversions_return_an_error() {
    let bytes = file("rgb.png");
    let result = fit_to_rules(bytes.clone(), ImageType::Png, &ImageRules { mime_types: &["image/avif"], ..FREE });
    assert!(matches!(result, Err(Rejection::Unsupported(text)) if text.contains("image/avif")));
    let result = fit_to_rules(bytes, ImageType::Png, &ImageRules { max_bytes: Some(100), ..FREE });
    assert!(matches!(result, Err(Rejection::TooLarge(text)) if text.contains("100 bytes")));
}
