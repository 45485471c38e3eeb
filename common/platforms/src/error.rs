//! The errors of calls to platforms.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};

use super::{Marker, Published};

/// The error of a call to a platform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The platform requested a pause. `until` is `None` if it named no time.
    #[error("rate limited until {until:?}")]
    RateLimited { until: Option<DateTime<Utc>>, failure: Failure },
    /// The access token has expired: refresh once, then retry.
    #[error("the access token has expired")]
    AuthExpired(Failure),
    /// The platform rejects the credentials themselves: the account becomes `expired`.
    #[error("the platform rejected the credentials: {}", .0.message)]
    Reauth(Failure),
    /// A permanent failure.
    #[error("{}", .0.message)]
    Permanent(Failure),
    /// A temporary failure: nothing was accepted (no connection was made, or the platform reported it).
    #[error("{}", .0.message)]
    Transient(Failure),
    /// Nothing was published because the platform does not know the post that this one replies to
    /// ([`reply_to`](super::OutgoingPost::reply_to)). It was deleted, or the platform does not show it yet.
    #[error("{}", .0.message)]
    ParentMissing(Failure),
    /// Nothing was published because earlier uploads no longer exist. Upload the images again.
    #[error("{}", .0.message)]
    UploadsMissing(Failure),
    /// Nothing was published because the account already has the same post, which the platform names. An earlier call
    /// may have created it.
    #[error("{}", .failure.message)]
    Duplicate { existing: Box<Published>, failure: Failure },
    /// The request was sent and no usable response arrived: it may have been accepted.
    #[error("{}", .0.message)]
    Unknown(Failure),
    /// The platform accepted the post and publishes it later.
    #[error("{}", .failure.message)]
    Accepted { post: Box<AcceptedPost>, failure: Failure },
}

/// A post that a platform accepted and publishes later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPost {
    /// The marker to store, which identifies the post.
    pub marker: Marker,
    /// The pause before the post is looked up.
    pub pause: TimeDelta,
}

impl CallError {
    /// Returns the failure as shown to API clients.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::RateLimited { failure, .. } | Self::Duplicate { failure, .. } | Self::Accepted { failure, .. } => {
                failure
            }
            Self::AuthExpired(f) | Self::Reauth(f) | Self::Permanent(f) | Self::Transient(f) => f,
            Self::ParentMissing(f) | Self::UploadsMissing(f) | Self::Unknown(f) => f,
        }
    }

    /// Returns a rejection of the post's content.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Permanent(Failure::of(Category::InvalidContent, message))
    }

    /// Returns a transient network failure.
    pub fn network(message: impl Into<String>) -> Self {
        Self::Transient(Failure::of(Category::Network, message))
    }
}

/// The error of connecting an account.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The field itself is invalid (`credentials.<field>`): missing, not a URL, a private address, too long.
    #[error("{field}: {message}")]
    Field { field: &'static str, message: String },
    /// The platform rejected the request. The sentence contains the reason and what to do.
    #[error("{0}")]
    Rejected(String),
    /// The platform returned no usable response.
    #[error("{0}")]
    Unavailable(String),
}
