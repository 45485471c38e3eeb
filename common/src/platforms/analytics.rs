//! Figures of posts and accounts, read from the platforms.
//!
//! **To add a platform:** implement [`AnalyticsConnector`] in `platforms/<name>/analytics.rs`, return it from
//! `Connector::analytics`, set `analytics` in its descriptor, and describe what each figure is in `docs/analytics.md`.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{CallError, ConnectorAccount};
use crate::domain::analytics::{AccountFigures, Figures};

/// A post whose figures are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPost {
    /// As the platform names it.
    pub external_id: String,
    pub published_at: DateTime<Utc>,
}

/// A platform that tells figures.
#[async_trait]
pub trait AnalyticsConnector: Send + Sync {
    /// Returns how many posts one call of [`AnalyticsConnector::post_figures`] may name; 0: there are no figures of posts.
    fn posts_per_call(&self) -> usize {
        0
    }

    /// Returns the figures of posts, in the order of `posts`; `None`: the platform does not have this one any more.
    async fn post_figures(
        &self,
        _account: &ConnectorAccount,
        posts: &[PublishedPost],
    ) -> Result<Vec<Option<Figures>>, CallError> {
        Ok(posts.iter().map(|_| Some(Figures::default())).collect())
    }

    /// Returns the account's figures.
    async fn account_figures(&self, account: &ConnectorAccount) -> Result<AccountFigures, CallError>;
}

/// Returns a count at a path (`/likeCount`) of a platform's answer; `None` if there is none, or it is no plain number.
pub(super) fn count(answer: &Value, path: &str) -> Option<i64> {
    answer.pointer(path).and_then(Value::as_i64)
}
