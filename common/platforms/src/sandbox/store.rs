//! The data of the sandbox: handles, their posts, and the comments on them.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::sandbox::{NewSandboxPost, SandboxComment};

/// The reason why the data is unavailable, for the log.
pub type SandboxError = Box<dyn std::error::Error + Send + Sync>;

/// Stores the data of the sandbox.
#[async_trait]
pub trait SandboxStore: Send + Sync {
    /// Returns the workspace that has a handle.
    async fn owner(&self, handle: &str) -> Result<Option<i64>, SandboxError>;

    /// Returns whether the handle's token is expired, or the workspace does not have the handle.
    async fn is_expired(&self, workspace_id: i64, handle: &str) -> Result<bool, SandboxError>;

    /// Expires the handle's token until the account is reconnected.
    async fn expire(&self, handle: &str) -> Result<(), SandboxError>;

    /// Publishes a post and returns its id; for a key that was used before, the first post's id. Returns `None` if the
    /// token is rejected, or if the handle does not have the post that this one replies to.
    async fn publish(&self, post: NewSandboxPost) -> Result<Option<i64>, SandboxError>;

    /// Returns the id of the post that was published under a key.
    async fn find_post(&self, key: &str) -> Result<Option<i64>, SandboxError>;

    /// Deletes a post and the comments of visitors on it. Returns `false` if the token is rejected, or if the handle has
    /// no such post.
    async fn delete_post(&self, workspace_id: i64, handle: &str, id: i64) -> Result<bool, SandboxError>;

    /// Counts the posts of a handle, without the parts that follow a post and the first comments.
    async fn count_posts(&self, handle: &str) -> Result<i64, SandboxError>;

    /// Returns the first comments of a handle after this time and id, in their order, including the replies.
    async fn comments_after(
        &self,
        handle: &str,
        after: (DateTime<Utc>, i64),
        limit: usize,
    ) -> Result<Vec<SandboxComment>, SandboxError>;

    /// Replies to a comment under a key and returns the reply's id; for a key that was used before, the first reply's
    /// id. Returns `None` if the token is rejected, or if the handle has no such comment.
    async fn reply(
        &self,
        workspace_id: i64,
        handle: &str,
        comment_id: i64,
        key: &str,
        body: &str,
    ) -> Result<Option<i64>, SandboxError>;

    /// Returns the id of the reply that was written under a key.
    async fn find_reply(&self, key: &str) -> Result<Option<i64>, SandboxError>;
}
