//! Emails about problems that need a member's attention.

use chrono::TimeDelta;

crier_base::text_enum! {
    /// A problem. An email lists them in this order: what causes other problems, and what is rare, is first.
    pub enum NoticeKind {
        /// A platform rejects the credentials of an account.
        AccountExpired = "account_expired",
        /// The access to an account ends soon, and only a person can renew it.
        AccountExpiring = "account_expiring",
        /// Crier disabled a webhook endpoint.
        WebhookDisabled = "webhook_disabled",
        /// A feed cannot be read.
        FeedFailing = "feed_failing",
        /// Articles of a feed that publishes were not posted.
        FeedNotPosted = "feed_not_posted",
        /// A post waits for approval.
        PostPending = "post_pending",
        /// A post could not be published on an account.
        PostFailed = "post_failed",
        /// A platform rejected a post after it had published it.
        PostRejected = "post_rejected",
    }
}

impl NoticeKind {
    /// Returns whether only owners and admins of the brand can act on it. Editors can act on the other problems of a
    /// brand.
    pub const fn is_for_managers(self) -> bool {
        matches!(self, Self::PostPending)
    }
}

crier_base::text_enum! {
    /// How often a user gets an email about problems.
    pub enum NoticeFrequency { Immediately = "immediately", Hourly = "hourly", Daily = "daily", Never = "never" }
}

/// The minimum time between two emails to a user.
pub const MIN_NOTICE_INTERVAL: TimeDelta = TimeDelta::hours(1);
/// The time for which an hourly email collects problems.
pub const HOURLY_DELAY: TimeDelta = TimeDelta::hours(1);
/// The time for which a daily email collects problems.
pub const DAILY_DELAY: TimeDelta = TimeDelta::days(1);
