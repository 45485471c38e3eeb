//! Threads and first comments in requests.

use crier_domain::post::{FirstComment, MAX_COMMENT_DELAY, ThreadPart};

use super::{MAX_CONTENT_CHARS, MAX_MEDIA};
use crate::fields::Fields;
use crate::request::Request;

/// A part of a thread. Text, an image or a video is required.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "ThreadPart", check = check_part)]
pub struct ThreadPartRequest {
    #[field(text(0..=MAX_CONTENT_CHARS), example = "We open at 7 o'clock.")]
    pub content: Option<String>,
    /// The IDs of the images and videos of this part.
    #[field(ids(MAX_MEDIA))]
    pub media: Option<Vec<i64>>,
}

/// The comment that Crier publishes under a post.
#[derive(Clone, Debug, Request)]
#[request(name = "FirstComment")]
pub struct FirstCommentRequest {
    #[field(text(1..=MAX_CONTENT_CHARS), example = "Order at https://example.com")]
    pub content: String,
    /// The delay after the post, in seconds.
    #[field(number(0..=MAX_COMMENT_DELAY), default = 0)]
    pub delay_seconds: i64,
}

fn check_part(part: &ThreadPartRequest, fields: &Fields<'_>) {
    let has_text = part.content.as_ref().is_some_and(|content| !content.is_empty());
    let has_image = part.media.as_ref().is_some_and(|media| !media.is_empty());
    let is_reported = |field: &str| fields.problems.has(&fields.path(field));
    if !has_text && !has_image && !is_reported("content") && !is_reported("media") {
        fields.problem("content", "Add text, an image or a video.");
    }
}

/// Returns the parts of a thread.
pub fn to_thread(parts: Vec<ThreadPartRequest>) -> Vec<ThreadPart> {
    let part = |part: ThreadPartRequest| ThreadPart {
        content: part.content.unwrap_or_default(),
        media: part.media.unwrap_or_default(),
    };
    parts.into_iter().map(part).collect()
}

impl From<FirstCommentRequest> for FirstComment {
    fn from(comment: FirstCommentRequest) -> Self {
        Self { content: comment.content, delay_seconds: comment.delay_seconds }
    }
}
