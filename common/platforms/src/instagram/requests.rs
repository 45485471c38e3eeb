//! The requests that create Instagram's containers: of images, reels, stories and carousels.

use serde_json::{Value, json};

use crate::meta::containers::ContainerRequest;
use crate::{CallError, Image, Medium, OutgoingPost, Video};

/// Returns whether the post is a story. Its other format, a reel, is that of every single video.
pub(super) fn is_story(post: &OutgoingPost) -> bool {
    post.options.get("format").and_then(Value::as_str) == Some("story")
}

/// Fails if the post cannot have its format.
pub(super) fn check(post: &OutgoingPost) -> Result<(), CallError> {
    if !is_story(post) || post.media().len() == 1 {
        return Ok(());
    }
    Err(CallError::invalid("An Instagram story has exactly one image or video."))
}

/// Returns the request for one image or video of a carousel.
pub(super) fn item_request(medium: Medium<'_>) -> ContainerRequest {
    let mut request = match medium {
        Medium::Image(image) => image_request(image),
        Medium::Video(video) => video_request("VIDEO", video),
    };
    request.insert("is_carousel_item".to_owned(), Value::from(true));
    request
}

/// Returns the request for the post.
pub(super) fn post_request(post: &OutgoingPost, children: &[&str]) -> ContainerRequest {
    let media = post.media();
    let mut request = match media.as_slice() {
        // A story has no caption and no alt text.
        [Medium::Image(only)] if is_story(post) => {
            return ContainerRequest::from_iter([
                ("media_type".to_owned(), json!("STORIES")),
                ("image_url".to_owned(), Value::from(only.url.as_str())),
            ]);
        }
        [Medium::Video(only)] if is_story(post) => return video_request("STORIES", only),
        [Medium::Image(only)] => image_request(only),
        [Medium::Video(only)] => reel_request(only),
        _ => ContainerRequest::from_iter([
            ("media_type".to_owned(), json!("CAROUSEL")),
            ("children".to_owned(), Value::from(children.join(","))),
        ]),
    };
    request.insert("caption".to_owned(), Value::from(post.text.as_str()));
    request
}

fn image_request(image: &Image) -> ContainerRequest {
    let mut request = ContainerRequest::from_iter([("image_url".to_owned(), Value::from(image.url.as_str()))]);
    if let Some(alt) = &image.alt_text {
        request.insert("alt_text".to_owned(), Value::from(alt.as_str()));
    }
    request
}

/// Videos have no alt text.
fn video_request(media_type: &str, video: &Video) -> ContainerRequest {
    ContainerRequest::from_iter([
        ("media_type".to_owned(), Value::from(media_type)),
        ("video_url".to_owned(), Value::from(video.url.as_str())),
    ])
}

fn reel_request(video: &Video) -> ContainerRequest {
    let mut request = video_request("REELS", video);
    // Otherwise the reel is only in the tab of reels.
    request.insert("share_to_feed".to_owned(), Value::from(true));
    if let Some(cover) = &video.cover {
        request.insert("cover_url".to_owned(), Value::from(cover.url.as_str()));
    } else if let Some(at) = video.cover_at_ms {
        request.insert("thumb_offset".to_owned(), Value::from(at));
    }
    request
}
