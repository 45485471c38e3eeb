//! Posts and comments of the sandbox, the platform inside Crier.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

crier_base::text_enum! {
    pub enum SandboxMediaType { Image = "image", Video = "video" }
}

/// An image or a video of a sandbox post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxMedia {
    #[serde(rename = "type")]
    pub media_type: SandboxMediaType,
    /// A path on Crier's host.
    pub url: String,
    /// Empty if there is no alt text.
    pub alt: String,
    /// The path of the image that is shown before a video plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poster: Option<String>,
}

impl SandboxMedia {
    /// Returns an image.
    pub fn image(url: impl Into<String>, alt: impl Into<String>) -> Self {
        Self { media_type: SandboxMediaType::Image, url: url.into(), alt: alt.into(), poster: None }
    }

    /// Returns a video.
    pub fn video(url: impl Into<String>, alt: impl Into<String>, poster: Option<String>) -> Self {
        Self { media_type: SandboxMediaType::Video, url: url.into(), alt: alt.into(), poster }
    }

    pub fn is_video(&self) -> bool {
        self.media_type == SandboxMediaType::Video
    }
}

/// A post to publish.
#[derive(Clone, Debug)]
pub struct NewSandboxPost {
    pub workspace_id: i64,
    pub handle: String,
    /// A post with a key that was used before is not published again.
    pub key: String,
    pub content: String,
    pub media: Vec<SandboxMedia>,
    pub reply_to: Option<SandboxReply>,
}

/// The place of a post under another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxReply {
    /// The part before, or the post that is commented on.
    pub parent_id: i64,
    /// Whether it is a first comment. Otherwise it is a part of a thread.
    pub is_comment: bool,
}

/// A visitor's comment, or the account's reply to one.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct SandboxComment {
    pub id: i64,
    pub post_id: i64,
    pub name: String,
    pub body: String,
    pub created_at: DateTime<Utc>,
    /// Whether the account wrote it.
    pub is_own: bool,
    /// The comment to which it replies.
    pub parent_id: Option<i64>,
}
