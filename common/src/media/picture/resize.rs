//! Making pictures smaller.

use image::DynamicImage;

/// The picture in its proportions, so that it fits the box; never larger than it was.
pub fn within(picture: &DynamicImage, width: u32, height: u32) -> DynamicImage {
    if picture.width() <= width && picture.height() <= height {
        return picture.clone();
    }
    picture.thumbnail(width, height)
}
