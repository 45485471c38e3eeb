//! Images from outside the library, which are converted and not stored.

use crier_domain::catalogue::descriptor;
use crier_domain::media::ImageType;
use crier_domain::platform::Platform;
use crier_media::Library;
use crier_media::rendition::RenditionError;
use image::{DynamicImage, ImageFormat};

use crate::support::images;
use crate::support::store::{TestStore, on_one};

on_one!(an_image_is_converted_within_the_limits_of_a_platform, unusable_images_are_rejected);

fn library(s: &TestStore) -> Library {
    s.library("http://crier.example")
}

async fn an_image_is_converted_within_the_limits_of_a_platform(s: TestStore) {
    let library = library(&s);
    let rules = &descriptor(Platform::Bluesky).capabilities.media;
    let small = library.convert(images::png(40, 30).into(), rules).await.unwrap();
    assert_eq!((small.kind, small.width, small.height), (ImageType::Png, 40, 30));
    let large = images::noise(800);
    assert!(large.len() > 1_000_000);
    let converted = library.convert(large.into(), rules).await.unwrap();
    assert!(converted.kind == ImageType::Jpeg && converted.bytes.len() <= 1_000_000, "{}", converted.bytes.len());
    assert_ne!(library.convert(images::gif(40, 30).into(), rules).await.unwrap().kind, ImageType::Gif);
    let (kind, thumbnail) = library.thumbnail_of(images::jpeg(1_200, 600).into()).await.unwrap();
    let thumbnail = image::load_from_memory(&thumbnail).unwrap();
    assert_eq!((kind, thumbnail.width(), thumbnail.height()), (ImageType::Jpeg, 400, 200));
}

async fn unusable_images_are_rejected(s: TestStore) {
    let library = library(&s);
    let rules = &descriptor(Platform::Bluesky).capabilities.media;
    // A few kilobytes that become 36 megapixels.
    let bomb = images::encoded(&DynamicImage::new_luma8(6_000, 6_000), ImageFormat::Png);
    let mut truncated = images::png(40, 30);
    truncated.truncate(truncated.len() / 2);
    for bytes in [bomb, truncated, b"<svg>".to_vec(), Vec::new()] {
        let error = library.convert(bytes.clone().into(), rules).await.unwrap_err();
        assert!(matches!(error, RenditionError::Rejected(_)), "{error}");
        let error = library.thumbnail_of(bytes.into()).await.unwrap_err();
        assert!(matches!(error, RenditionError::Rejected(_)), "{error}");
    }
}
