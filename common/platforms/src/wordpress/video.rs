//! Uploads videos to the site's media library, and then the images that are shown before they play.
//!
//! Both have names derived from the slug, by which a retry finds them.
//!
//! Sources: REST API handbook, "Media" (the raw body with `Content-Disposition`); Gutenberg, the block `core/video`.

use crier_domain::failure::{Category, Failure};
use crier_domain::media::MediaType;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::super::call::Effect;
use super::super::wp::{Rest, WpBody, html};
use super::super::{CallError, OutgoingPost, Video, VideoStep, VideoUpload, marker_field};
use super::{Media, Wordpress, extension};

/// A file of the site's media library.
#[derive(Deserialize)]
struct UploadedFile {
    id: i64,
    source_url: String,
}

/// A video of the site's media library, as it is stored.
#[derive(Deserialize)]
pub(super) struct UploadedVideo {
    id: i64,
    source_url: String,
    /// The image that is shown before the video plays.
    poster: Option<UploadedFile>,
}

impl UploadedVideo {
    pub(super) fn of(video: &Video) -> Result<Self, CallError> {
        serde_json::from_value(video.reference()?.clone()).map_err(|_| {
            let message = "The stored data of an uploaded video cannot be read. Crier uploads it again.";
            CallError::UploadsMissing(Failure::of(Category::Media, message))
        })
    }

    /// Returns the ids of the video and of its image.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        std::iter::once(self.id).chain(self.poster_id())
    }

    pub(super) fn poster_id(&self) -> Option<i64> {
        self.poster.as_ref().map(|poster| poster.id)
    }

    /// Returns the block that shows the video.
    pub(super) fn block(&self) -> String {
        let (id, src) = (self.id, html::escape(&self.source_url));
        let poster = self.poster.as_ref().map(|poster| format!(" poster=\"{}\"", html::escape(&poster.source_url)));
        let poster = poster.unwrap_or_default();
        format!(
            "\n<!-- wp:video {{\"id\":{id}}} -->\n<figure class=\"wp-block-video\"><video controls{poster} \
             src=\"{src}\"></video></figure>\n<!-- /wp:video -->"
        )
    }
}

impl Wordpress {
    /// Uploads the video, or its image if the video was uploaded by an earlier step.
    pub(super) async fn take_video_step(
        &self,
        rest: &Rest<'_>,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let name = format!("{}-{}", marker_field(&post.marker, "slug")?, video.id);
        let mut uploaded = video.upload.clone();
        if uploaded.is_empty() {
            let filename = format!("{name}.{}", MediaType::from(video.mime_type).extension());
            let media = match self.find_upload(rest, post, &name).await? {
                Some(media) => media,
                None => {
                    let (body, mime_type) = (video.part(0..video.size).await?, video.mime_type.as_str());
                    create(rest, WpBody::Stream { body, length: video.size, mime_type, filename: &filename }).await?
                }
            };
            uploaded = stored(rest, media)?;
            if video.cover.is_some() {
                return Ok(VideoStep::Next(uploaded));
            }
        }
        if let Some(cover) = &video.cover {
            // With the id, so that a retry does not find the cover that a user has replaced.
            let name = format!("{name}-poster-{}", cover.id);
            let filename = format!("{name}.{}", extension(&cover.mime_type));
            let media = match self.find_upload(rest, post, &name).await? {
                Some(media) => media,
                None => {
                    let (bytes, mime_type) = (cover.bytes.clone(), cover.mime_type.as_str());
                    create(rest, WpBody::File { bytes, mime_type, filename: &filename }).await?
                }
            };
            uploaded.insert("poster".to_owned(), Value::Object(stored(rest, media)?));
        }
        Ok(VideoStep::Ready(Value::Object(uploaded)))
    }

    /// Looks up the file that an earlier attempt uploaded.
    async fn find_upload(&self, rest: &Rest<'_>, post: &OutgoingPost, name: &str) -> Result<Option<Media>, CallError> {
        if post.has_earlier_attempt { self.look_up_media(rest, name).await } else { Ok(None) }
    }
}

/// Uploads a file. No post references it yet, so a duplicate does no harm.
async fn create(rest: &Rest<'_>, file: WpBody<'_>) -> Result<Media, CallError> {
    Ok(rest.call(Effect::Repeatable, Method::POST, "wp/v2/media", &[], file).await?)
}

/// Returns what is stored of a file.
fn stored(rest: &Rest<'_>, media: Media) -> Result<VideoUpload, CallError> {
    if media.source_url.is_empty() {
        let what = "returned no URL of an uploaded file";
        return Err(rest.caller.classify_unknown_effect(Effect::Repeatable, what, None));
    }
    let fields = [("id", Value::from(media.id)), ("source_url", Value::from(media.source_url))];
    Ok(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
