//! Posts with videos, whose bytes are part of the request.
//!
//! Source: "Telegram Bot API": `sendVideo`, `sendMediaGroup`, `InputMediaPhoto`, `InputMediaVideo`, "Sending files".

use crier_http::multipart::{Form, Part};
use serde_json::{Value, json};

use super::file;
use crate::{CallError, Image, Medium, Video};

/// A thumbnail has fewer bytes than this, and its width and height are at most this, in pixels.
const THUMBNAIL_BYTES: usize = 200_000;
const MAX_THUMBNAIL_SIDE: u32 = 320;

/// Returns the form of `sendVideo`.
pub(super) async fn video_form(form: Form, text: &str, video: &Video) -> Result<Form, CallError> {
    let mut form = form
        .text("caption", text.to_owned())
        .text("width", video.width.to_string())
        .text("height", video.height.to_string())
        .text("duration", seconds(video).to_string())
        .text("supports_streaming", "true");
    for (name, file, part) in covers(video, 0)? {
        form = form.text(name, format!("attach://{file}")).part(file, part);
    }
    Ok(form.part("video", video.form_part().await?))
}

/// Returns the form of `sendMediaGroup`. Telegram shows the caption of the first image or video as the album's.
pub(super) async fn album_form(form: Form, text: &str, media: &[Medium<'_>]) -> Result<Form, CallError> {
    let (mut form, mut album) = (form, Vec::with_capacity(media.len()));
    for (index, medium) in media.iter().enumerate() {
        let caption = if index == 0 { text } else { "" };
        let name = format!("file{index}");
        let mut item = json!({ "media": format!("attach://{name}"), "caption": caption });
        let part = match medium {
            Medium::Image(image) => {
                item["type"] = Value::from("photo");
                file(image, index)?
            }
            Medium::Video(video) => {
                describe(&mut item, video);
                for (field, file, part) in covers(video, index)? {
                    item[field] = Value::from(format!("attach://{file}"));
                    form = form.part(file, part);
                }
                video.form_part().await?
            }
        };
        form = form.part(name, part);
        album.push(item);
    }
    Ok(form.text("media", Value::from(album).to_string()))
}

fn describe(item: &mut Value, video: &Video) {
    item["type"] = Value::from("video");
    item["width"] = Value::from(video.width);
    item["height"] = Value::from(video.height);
    item["duration"] = Value::from(seconds(video));
    item["supports_streaming"] = Value::from(true);
}

/// Returns the duration in seconds, rounded up.
fn seconds(video: &Video) -> i64 {
    video.properties.duration_ms.max(0).saturating_add(999) / 1_000
}

/// Returns the files for the cover of a video: the field, the name of the file, and the file. Without a thumbnail,
/// Telegram makes one from the video.
fn covers(video: &Video, index: usize) -> Result<Vec<(&'static str, String, Part)>, CallError> {
    let Some(cover) = &video.cover else { return Ok(Vec::new()) };
    let mut covers = vec![("cover", format!("cover{index}"), file(cover, index)?)];
    if is_thumbnail(cover) {
        covers.push(("thumbnail", format!("thumbnail{index}"), file(cover, index)?));
    }
    Ok(covers)
}

fn is_thumbnail(image: &Image) -> bool {
    let is_small = image.bytes.len() < THUMBNAIL_BYTES && image.width.max(image.height) <= MAX_THUMBNAIL_SIDE;
    image.mime_type == "image/jpeg" && is_small
}
