//! The reasons why a post cannot be written.

use crier_base::problems::ProblemSet;
use crier_domain::post::PostTransitionError;
use crier_store::StoreError;

/// Why a post cannot be written. Nothing is written then, if the transaction is rolled back.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("{0}")]
    Invalid(ProblemSet),
    /// The state of the post does not allow the change.
    #[error("{0}")]
    NotEditable(String),
    #[error("Contributors cannot publish. Submit a draft for approval, or ask an editor, admin or owner of the brand.")]
    ForPublishers,
    #[error("The workspace's plan allows only {cap} posts per month.")]
    LimitReached { cap: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A state that should not be possible.
    #[error("{0}")]
    Bug(String),
}

pub type Result<T, E = PostError> = std::result::Result<T, E>;

impl PostError {
    /// Returns whether the change was rejected because of its content, and not because something failed.
    pub const fn is_rejection(&self) -> bool {
        !matches!(self, Self::Store(_) | Self::Bug(_))
    }
}

impl From<ProblemSet> for PostError {
    fn from(found: ProblemSet) -> Self {
        Self::Invalid(found)
    }
}

impl From<PostTransitionError> for PostError {
    fn from(error: PostTransitionError) -> Self {
        Self::NotEditable(error.to_string())
    }
}
