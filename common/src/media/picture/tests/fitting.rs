//! Fitting pictures to a platform's limits.

use super::*;

const ALL: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];
const FREE: Rules<'_> = Rules { mime_types: ALL, max_bytes: None, max_sides: None };

fn fitted(bytes: &Bytes, kind: ImageType, rules: &Rules<'_>) -> Fitted {
    let fitted = fit(bytes.clone(), kind, rules).unwrap();
    assert!(rules.mime_types.contains(&fitted.kind.as_str()), "{:?}", fitted.kind);
    assert!(rules.max_bytes.is_none_or(|most| fitted.bytes.len() as u64 <= most), "{}", fitted.bytes.len());
    assert!(rules.max_sides.is_none_or(|most| fitted.width + fitted.height <= most));
    assert_eq!(opened(&fitted.bytes).dimensions(), (fitted.width, fitted.height));
    let again = fit(bytes.clone(), kind, rules).unwrap();
    assert_eq!(again.bytes, fitted.bytes, "the same picture by the same rules gives the same bytes");
    fitted
}

#[test]
fn a_picture_that_fits_stays_as_it_is() {
    for (name, bytes) in corpus() {
        let rules = Rules { max_bytes: Some(bytes.len() as u64), max_sides: Some(200), ..FREE };
        assert_eq!(fitted(&bytes, kind_of(&name), &rules).bytes, bytes, "{name}");
    }
}

#[test]
fn bytes_are_saved_by_quality_before_size_and_no_more_than_needed() {
    let whole = encoded(&photo(500, 400), ImageFormat::Png);
    for most in [70_000_u64, 40_000, 25_000, 10_000, 4_000] {
        let fitted = fitted(&whole, ImageType::Png, &Rules { max_bytes: Some(most), ..FREE });
        let part = fitted.bytes.len() as f64 / most as f64;
        assert_eq!(fitted.kind, ImageType::Jpeg);
        assert!(fitted.width == 500 || part > 0.84, "{part} of {most}");
        assert!((f64::from(fitted.width) / f64::from(fitted.height) - 1.25).abs() < 0.05);
    }
}

#[test]
fn sides_are_shortened_together() {
    let whole = encoded(&photo(900, 300), ImageFormat::Jpeg);
    let fitted = fitted(&whole, ImageType::Jpeg, &Rules { max_sides: Some(600), ..FREE });
    assert_eq!((fitted.width, fitted.height), (450, 150));
}

#[test]
fn what_is_transparent_stays_so_where_that_is_possible_and_is_on_white_where_not() {
    let (bytes, kind) = (file("alpha.png"), ImageType::Png);
    let webp = fitted(&bytes, kind, &Rules { mime_types: &["image/jpeg", "image/webp"], ..FREE });
    assert_eq!(webp.kind, ImageType::Webp);
    assert!(opened(&webp.bytes).to_rgba8() == opened(&bytes).to_rgba8(), "it is written without loss");
    let jpeg = fitted(&bytes, kind, &Rules { mime_types: &["image/jpeg"], ..FREE });
    // The picture is transparent at its top.
    assert!(opened(&jpeg.bytes).to_rgb8().get_pixel(20, 0).0.iter().all(|c| *c > 235));
}

#[test]
fn a_transparent_picture_shrinks_to_its_limit() {
    let picture = image::RgbaImage::from_fn(300, 300, |x, y| {
        let pixel = photo(1, 1).to_rgb8().get_pixel(0, 0).0;
        image::Rgba([pixel[0] ^ (x * 7) as u8, (y * 5) as u8, (x * y) as u8, (x + y) as u8])
    });
    let bytes = encoded(&picture.into(), ImageFormat::Png);
    let most = bytes.len() as u64 / 5;
    let fitted = fitted(&bytes, ImageType::Png, &Rules { max_bytes: Some(most), ..FREE });
    assert_eq!(fitted.kind, ImageType::Png);
    assert!(fitted.bytes.len() as f64 > most as f64 * 0.8, "{} of {most}", fitted.bytes.len());
}

#[test]
fn an_animation_where_none_is_taken_is_its_first_frame() {
    for name in ["animated.gif", "animated.webp"] {
        let bytes = file(name);
        let jpeg = fitted(&bytes, kind_of(name), &Rules { mime_types: &["image/jpeg"], ..FREE });
        assert!(difference(&opened(&jpeg.bytes), &opened(&bytes)) < 8.0, "{name}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let bytes = file("rgb.png");
    let refused = fit(bytes.clone(), ImageType::Png, &Rules { mime_types: &["image/avif"], ..FREE });
    assert!(matches!(refused, Err(Refusal::Unsupported(text)) if text.contains("image/avif")));
    let refused = fit(bytes, ImageType::Png, &Rules { max_bytes: Some(100), ..FREE });
    assert!(matches!(refused, Err(Refusal::TooLarge(text)) if text.contains("100 bytes")));
}
