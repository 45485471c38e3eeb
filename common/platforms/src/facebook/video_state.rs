//! The state of a video, as Facebook returns it.

use crier_domain::failure::{Category, Failure};
use serde::Deserialize;
use serde_json::Value;

use crate::call::sanitize_message;
use crate::meta::inbox::is_object_id;

/// The fields that [`VideoNode`] reads.
pub(super) const FIELDS: &str = "status,published,post_id,permalink_url";
/// The code of an error that is due to the account.
const ACCOUNT_RESTRICTED: i64 = 1_363_042;

/// A video of a page.
#[derive(Default, Deserialize)]
pub(super) struct VideoNode {
    #[serde(default)]
    status: Status,
    published: Option<bool>,
    #[serde(default)]
    pub(super) post_id: Value,
    pub(super) permalink_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    video_status: String,
    uploading_phase: Phase,
    processing_phase: Phase,
    publishing_phase: Phase,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Phase {
    status: String,
    /// The spelling is Facebook's.
    #[serde(alias = "bytes_transferred")]
    bytes_transfered: Value,
    publish_status: String,
    error: Option<PhaseError>,
    errors: Vec<PhaseError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PhaseError {
    code: i64,
    message: String,
}

/// What remains to be sent of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Complete,
    /// The bytes from this position.
    From(u64),
    /// Facebook no longer accepts bytes for this video.
    Expired,
}

/// Whether a video is on the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VideoState {
    Published,
    /// Facebook does not accept it.
    Failed(Failure),
    /// Facebook has deleted its unpublished bytes.
    Expired,
    Processing,
    /// Facebook does nothing with it, as before the call that publishes it.
    Idle,
}

impl VideoNode {
    pub(super) fn transfer(&self, size: u64) -> Transfer {
        let phase = &self.status.uploading_phase;
        let sent = match &phase.bytes_transfered {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        };
        let sent = sent.unwrap_or_default();
        match self.status.video_status.as_str() {
            "expired" | "upload_failed" => Transfer::Expired,
            _ if phase.status == "error" => Transfer::Expired,
            _ if phase.status == "complete" || sent >= size => Transfer::Complete,
            _ => Transfer::From(sent),
        }
    }

    /// Returns the state. `is_accepted`: Facebook has accepted the call that publishes the video.
    pub(super) fn state(&self, is_accepted: bool) -> VideoState {
        let Status { video_status, uploading_phase, processing_phase, publishing_phase } = &self.status;
        let is_planned = matches!(publishing_phase.publish_status.as_str(), "draft" | "scheduled");
        let is_shown = is_accepted && video_status == "ready" && self.published == Some(true);
        if publishing_phase.status == "complete" && !is_planned || is_shown {
            return VideoState::Published;
        }
        let phases = [uploading_phase, processing_phase, publishing_phase];
        if video_status == "expired" {
            VideoState::Expired
        } else if let Some(failed) = phases.into_iter().find(|phase| phase.status == "error") {
            VideoState::Failed(failed.failure())
        } else if matches!(video_status.as_str(), "error" | "upload_failed") {
            VideoState::Failed(processing_phase.failure())
        } else if video_status == "processing"
            || processing_phase.status == "in_progress"
            || publishing_phase.status == "in_progress"
        {
            VideoState::Processing
        } else {
            VideoState::Idle
        }
    }
}

impl Phase {
    fn failure(&self) -> Failure {
        let error = self.error.as_ref().or(self.errors.first());
        let code = error.map_or(0, |error| error.code);
        let category = if code == ACCOUNT_RESTRICTED { Category::Account } else { Category::InvalidContent };
        let failure = match error.and_then(|error| sanitize_message(&error.message, &[])) {
            Some(detail) => Failure::of(category, format!("Facebook does not accept the video: {detail}")),
            None => {
                let message = "Facebook cannot process the video. Check that it is an MP4 file with H.264 video and AAC \
                               audio.";
                Failure::of(category, message)
            }
        };
        if code == 0 { failure } else { failure.from_platform(code) }
    }
}

/// Returns an id, which Facebook returns as text or as a number. It may become part of a URL.
pub(super) fn id_text(value: &Value) -> Option<String> {
    let id = match value {
        Value::String(id) => id.clone(),
        Value::Number(id) => id.to_string(),
        _ => return None,
    };
    is_object_id(&id).then_some(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(status: Value) -> VideoNode {
        serde_json::from_value(json!({ "status": status, "published": true })).unwrap_or_default()
    }

    #[test]
    fn the_rest_of_a_file_begins_after_the_bytes_that_facebook_has() {
        let transfer = |status: Value| node(status).transfer(100);
        let sent = |bytes: Value| transfer(json!({ "uploading_phase": { "bytes_transfered": bytes } }));
        assert_eq!(sent(json!(40)), Transfer::From(40));
        assert_eq!(sent(json!("40")), Transfer::From(40));
        assert_eq!(sent(json!(100)), Transfer::Complete);
        assert_eq!(transfer(json!({})), Transfer::From(0));
        assert_eq!(transfer(json!({ "uploading_phase": { "status": "complete" } })), Transfer::Complete);
        assert_eq!(transfer(json!({ "video_status": "expired" })), Transfer::Expired);
    }

    #[test]
    fn a_video_is_published_only_if_its_last_phase_is_complete_or_its_call_was_accepted() {
        let ready = json!({ "video_status": "ready", "processing_phase": { "status": "complete" } });
        assert_eq!(node(ready.clone()).state(true), VideoState::Published);
        assert_eq!(node(ready).state(false), VideoState::Idle);
        let complete = |publish_status: &str| {
            let phase = json!({ "status": "complete", "publish_status": publish_status });
            node(json!({ "video_status": "ready", "publishing_phase": phase })).state(false)
        };
        assert_eq!((complete("published"), complete("draft")), (VideoState::Published, VideoState::Idle));
    }
}
