//! Videos: the cover and the video are uploaded separately, and a post references both.
//!
//! Reddit creates the post after it has processed the video, and its response has no id. It does not say how long this
//! may take, so a post that is missing from the list of the user's posts may still appear. Such a post is never
//! submitted again.
//!
//! Source: github.com/praw-dev/praw 8 (`Subreddit.submit_video`).

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{CallError, OutgoingPost, ReconcileResult, Video, VideoStep};
use super::rest::{Session, SubmitError};
use super::upload::{File, image_file};
use super::{CreatedPost, RedditOptions};
use crate::video::UploadProgress;

/// The time for which a post with a video is searched for.
const PROCESSING: TimeDelta = TimeDelta::hours(1);
/// The bounds of the pause before the post is looked up again. Between them, the pause equals the time waited so far.
pub(super) const MIN_PAUSE: TimeDelta = TimeDelta::seconds(10);
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(5);
/// Reddit deletes uploads that no post references, and may have deleted one of this age. A post that was rejected with
/// a newer upload was rejected for its contents.
const MIN_AGE_OF_DELETED: TimeDelta = TimeDelta::hours(1);

/// The progress of an upload: Reddit has the cover.
#[derive(Serialize, Deserialize)]
struct Upload {
    poster_url: String,
    /// As a Unix time.
    uploaded_at: i64,
}

impl UploadProgress for Upload {}

/// An uploaded video, as stored until the post is submitted.
#[derive(Serialize, Deserialize)]
struct UploadedVideo {
    url: String,
    poster_url: String,
    /// When the cover was uploaded, as a Unix time.
    uploaded_at: i64,
}

impl UploadedVideo {
    fn of(video: &Video) -> Result<Self, CallError> {
        let unreadable = |_| {
            let message = "The upload of the video cannot be read. Crier uploads it again.";
            CallError::UploadsMissing(Failure::of(Category::Media, message))
        };
        serde_json::from_value(video.reference()?.clone()).map_err(unreadable)
    }
}

impl Session<'_> {
    /// Takes the next step of an upload: first the cover, then the video. A step that is repeated uses a new location.
    pub(super) async fn send_video_step(&self, post: &OutgoingPost, video: &Video) -> Result<VideoStep, CallError> {
        let Some(Upload { poster_url, uploaded_at }) = Upload::of(video) else {
            return self.send_cover(post, video).await;
        };
        let file = File {
            name: &video.filename,
            mime_type: video.mime_type.as_str(),
            part: video.form_part().await?,
            length: video.size,
            noun: "the video",
        };
        let url = self.store(file).await?.url;
        Ok(VideoStep::Ready(json!(UploadedVideo { url, poster_url, uploaded_at })))
    }

    async fn send_cover(&self, post: &OutgoingPost, video: &Video) -> Result<VideoStep, CallError> {
        RedditOptions::of(post)?;
        let Some(cover) = &video.cover else {
            return Err(CallError::invalid(
                "A video on Reddit requires a cover. Choose an image as the cover of the video.",
            ));
        };
        let poster_url = self.store(image_file(cover, "the cover")?).await?.url;
        let uploaded_at = self.client.now().timestamp();
        Ok(VideoStep::Next(Upload { poster_url, uploaded_at }.progress()))
    }

    pub(super) async fn submit_video(
        &self,
        options: &RedditOptions<'_>,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<CreatedPost, SubmitError> {
        let uploaded = UploadedVideo::of(video)?;
        let mut fields = options.fields();
        fields.extend([
            ("kind", "video"),
            ("url", uploaded.url.as_str()),
            ("video_poster_url", uploaded.poster_url.as_str()),
            ("text", post.text.as_str()),
        ]);
        self.submit(self.request(Method::POST, "/api/submit").form(&fields)).await
    }

    /// Returns whether Reddit may have deleted the upload of a video.
    pub(super) fn is_old(&self, video: &Video) -> bool {
        let age = |uploaded_at: i64| self.client.now().timestamp().saturating_sub(uploaded_at);
        UploadedVideo::of(video).is_ok_and(|uploaded| age(uploaded.uploaded_at) >= MIN_AGE_OF_DELETED.num_seconds())
    }

    /// Returns the result of a lookup that did not find a post with a video.
    pub(super) fn missing_video(&self, post: &OutgoingPost) -> ReconcileResult {
        match post.called_at.map(|called_at| self.client.now() - called_at) {
            Some(waited) if waited < PROCESSING => ReconcileResult::Pending(waited.clamp(MIN_PAUSE, MAX_PAUSE)),
            _ => ReconcileResult::Unsupported,
        }
    }
}
