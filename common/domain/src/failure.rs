//! The failure of an operation on a platform, as clients see it (`error` of a target, `last_error` of an account).

use serde::{Deserialize, Serialize};

use super::untrusted::{self, MAX_CODE, MAX_MESSAGE};

crier_base::text_enum! {
    /// The category of a failure. Only the category decides whether the operation is retried (contract, section 3,
    /// Post).
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
    /// Returns whether Crier retries automatically.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Network | Self::PlatformError | Self::Media | Self::Internal)
    }
}

/// The code of calls that fail until the operator changes something, regardless of what they send.
const MISCONFIGURED: &str = "misconfigured";
/// The code of calls that exceed a limit of the platform that may last a day.
const DAILY_LIMIT: &str = "daily_limit";

/// A failure, for clients. It never contains a secret, a header or an unmodified body from the platform; text from the
/// platform is reduced to one line of limited length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Our stable code: `account_expired`, `platform_rejected`, `text_too_long`…
    pub code: String,
    /// What is wrong and, if possible, what to do.
    pub message: String,
    pub category: Category,
    /// The platform's own code, verbatim (`403`, `InvalidSwap`, `rest_cannot_create`), at most 100 characters.
    pub platform_code: Option<String>,
}

impl Failure {
    /// Creates a failure whose code is the name of its category.
    pub fn of(category: Category, message: impl Into<String>) -> Self {
        let message = untrusted::line(&message.into(), MAX_MESSAGE);
        Self { code: category.as_str().to_owned(), message, category, platform_code: None }
    }

    /// Creates a failure with its own code.
    pub fn with_code(category: Category, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), ..Self::of(category, message) }
    }

    /// Creates a failure that lasts until the operator changes something; `message` says what.
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::with_code(Category::RateLimited, MISCONFIGURED, message)
    }

    /// Returns whether the operator must change something first.
    pub fn waits_for_operator(&self) -> bool {
        self.code == MISCONFIGURED
    }

    /// Creates a failure because of a limit of the platform that may last a day.
    pub fn daily_limit(message: impl Into<String>) -> Self {
        Self::with_code(Category::RateLimited, DAILY_LIMIT, message)
    }

    /// Returns whether a limit of the platform that may last a day is reached.
    pub fn is_daily_limit(&self) -> bool {
        self.code == DAILY_LIMIT
    }

    /// Adds the platform's own code.
    pub fn from_platform(mut self, code: impl ToString) -> Self {
        self.platform_code = untrusted::some_line(&code.to_string(), MAX_CODE);
        self
    }

    /// Returns the failure with all texts sanitized and shortened for storage.
    pub fn checked(self) -> Self {
        Self {
            code: untrusted::line(&self.code, MAX_CODE),
            message: untrusted::line(&self.message, MAX_MESSAGE),
            category: self.category,
            platform_code: self.platform_code.and_then(|code| untrusted::some_line(&code, MAX_CODE)),
        }
    }

    /// Returns the failure without any text from outside. It is stored if the database rejects the original. The codes that
    /// decide how long a post waits are kept.
    pub fn without_details(&self) -> Self {
        let reduced = Self::of(self.category, "The platform's error message could not be stored.");
        match self.waits_for_operator() || self.is_daily_limit() {
            true => Self { code: self.code.clone(), ..reduced },
            false => reduced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduced_failure_waits_as_long_as_the_original() {
        let daily_limit = Failure::daily_limit("It says: no.").from_platform("8011").without_details();
        assert!(daily_limit.is_daily_limit() && daily_limit.category == Category::RateLimited);
        assert_eq!(daily_limit.platform_code, None);
        assert!(Failure::misconfigured("It says: no.").without_details().waits_for_operator());
        let other = Failure::with_code(Category::PlatformRejected, "from outside", "It says: no.").without_details();
        assert_eq!((other.code.as_str(), other.message.contains("It says")), ("platform_rejected", false));
    }
}
