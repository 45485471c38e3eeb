//! Why a piece of work on a platform did not succeed, as clients see it (`error` of a target, `last_error` of an account).

use serde::{Deserialize, Serialize};

crate::text_enum! {
    /// What kind of failure it is. The category alone decides whether it is tried again (contract, section 3, Post).
    pub enum Category {
        RateLimited = "rate_limited",
        Network = "network",
        PlatformError = "platform_error",
        Media = "media",
        Internal = "internal",
        AuthExpired = "auth_expired",
        InvalidContent = "invalid_content",
        DuplicateContent = "duplicate_content",
        Account = "account",
        PlatformRejected = "platform_rejected",
        OutcomeUnknown = "outcome_unknown",
        Missed = "missed",
    }
}

impl Category {
    /// Whether the service tries again by itself.
    pub const fn retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Network | Self::PlatformError | Self::Media | Self::Internal)
    }
}

/// A failure in the words that a client is told. Never holds a secret, a header or a body of the platform as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable word of ours: `account_expired`, `platform_rejected`, `text_too_long`…
    pub code: String,
    /// One sentence for a person, saying what to do where there is something to do.
    pub message: String,
    pub category: Category,
    /// The platform's own code, as it came (`403`, `InvalidSwap`, `rest_cannot_create`), at most 100 characters.
    pub platform_code: Option<String>,
}

impl Failure {
    /// A failure whose code is its category's word.
    pub fn of(category: Category, message: impl Into<String>) -> Self {
        Self { code: category.as_str().to_owned(), message: message.into(), category, platform_code: None }
    }

    /// The same with a code of its own.
    pub fn coded(category: Category, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), ..Self::of(category, message) }
    }

    /// The same with the platform's own code.
    pub fn from_platform(mut self, code: impl ToString) -> Self {
        self.platform_code = Some(code.to_string().chars().filter(|c| !c.is_control()).take(100).collect());
        self
    }
}
