//! Videos, which are parts of the publishing request and which Tumblr transcodes after it.
//!
//! Tumblr accepts no video while it transcodes another one of the blog (8010). It does not say whether it lists a post
//! before its video is transcoded. So a missing post is searched for until a video of any length must be transcoded,
//! and once more before each repeated call: the 8010 in between may have been due to the post itself.
//!
//! Sources: `api.md`, "User Uploaded Media" and the subcodes 8009, 8010 and 8011; `npf-spec.md`, "Content Block Type:
//! Video" (the poster is an array).

use chrono::TimeDelta;
use crier_http::multipart::Form;
use serde_json::{Value, json};

use super::super::call::image_part;
use super::super::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult, Video};
use super::Tumblr;

/// The pause while Tumblr transcodes a video.
pub(super) const TRANSCODING_PAUSE: TimeDelta = TimeDelta::minutes(5);
/// The time after which a video of the maximum length, 10 minutes, must be transcoded.
const MAX_TRANSCODING: TimeDelta = TimeDelta::minutes(60);

fn identifier(index: usize) -> String {
    format!("video-{index}")
}

fn poster_identifier(index: usize) -> String {
    format!("poster-{index}")
}

/// Adds a video and the image that is shown before it plays.
pub(super) async fn add_parts(form: Form, video: &Video, index: usize) -> Result<Form, CallError> {
    let form = form.part(identifier(index), video.form_part().await?);
    match &video.cover {
        Some(cover) => Ok(form.part(poster_identifier(index), image_part(cover)?)),
        None => Ok(form),
    }
}

/// Returns the block of a video.
pub(super) fn block(video: &Video, index: usize) -> Value {
    let mut block = json!({
        "type": "video",
        "media": {
            "type": video.mime_type.as_str(),
            "identifier": identifier(index),
            "width": video.width,
            "height": video.height,
        },
    });
    if let Some(cover) = &video.cover {
        block["poster"] = json!([{
            "type": cover.mime_type,
            "identifier": poster_identifier(index),
            "width": cover.width,
            "height": cover.height,
        }]);
    }
    block
}

impl Tumblr {
    /// Returns the post of an earlier call with a video, if Tumblr lists it.
    pub(super) async fn find_earlier(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<Option<Published>, CallError> {
        if post.videos.is_empty() || !post.has_earlier_attempt {
            return Ok(None);
        }
        match self.look_up(account, post).await? {
            ReconcileResult::Found(published) => Ok(Some(published)),
            _ => Ok(None),
        }
    }

    /// Returns the result of a search. A post that is missing may appear while its video is transcoded.
    pub(super) fn while_transcoding(&self, post: &OutgoingPost, found: ReconcileResult) -> ReconcileResult {
        let ends_at = post.called_at.map(|called_at| called_at + MAX_TRANSCODING);
        let may_appear = !post.videos.is_empty() && ends_at.is_some_and(|ends_at| self.client.now() < ends_at);
        match found {
            ReconcileResult::Absent if may_appear => ReconcileResult::Pending(TRANSCODING_PAUSE),
            found => found,
        }
    }
}
