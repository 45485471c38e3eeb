//! Metrics of posts and accounts, from the platforms.
//!
//! **To add a platform:** add its metrics to `metrics.rs`, implement [`AnalyticsConnector`] in `<name>/analytics.rs`,
//! return it from `Connector::analytics`, set `analytics` in its descriptor, and update the table in
//! `docs/analytics.md` (`CRIER_TEST_UPDATE=1 cargo test --test it analytics_guide`).

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::failure::Failure;
use serde_json::Value;

use super::{CallError, ConnectorAccount, Marker, Published};

/// A post whose metrics are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPost {
    /// The platform's id.
    pub external_id: String,
    pub published_at: DateTime<Utc>,
}

/// Metrics that the platform rejected for an account. They are not requested until their pause is over.
#[derive(Clone, Debug, Default)]
pub struct MetricsSetAside {
    names: BTreeSet<String>,
    added: BTreeSet<String>,
}

impl MetricsSetAside {
    pub fn new(names: BTreeSet<String>) -> Self {
        Self { names, added: BTreeSet::new() }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.added.contains(name)
    }

    pub fn add(&mut self, name: &str) {
        self.added.insert(name.to_owned());
    }

    /// Returns the names added in this run.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.added.iter().map(String::as_str)
    }
}

/// A platform that reports metrics.
#[async_trait]
pub trait AnalyticsConnector: Send + Sync {
    /// Returns the maximum number of posts per call of [`AnalyticsConnector::post_metrics`]. 0 if the platform reports
    /// no metrics of posts.
    fn posts_per_call(&self) -> usize {
        0
    }

    /// Returns whether the platform may assign a post's id after publishing. If so, [`AnalyticsConnector::find_id`] is
    /// called.
    fn assigns_ids_later(&self) -> bool {
        false
    }

    /// Returns the id and the URL of a published post that has no id yet. `None` if the platform has not assigned one.
    /// `marker` is the marker of its publish.
    async fn find_id(&self, _account: &ConnectorAccount, _marker: &Marker) -> Result<Option<Published>, CallError> {
        Ok(None)
    }

    /// Returns the metrics of posts, in the order of `posts`. `None` for a post that no longer exists.
    async fn post_metrics(
        &self,
        _account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        Ok(posts.iter().map(|_| Some(PostMetrics::default())).collect())
    }

    /// Returns why the platform rejected posts after it had published them, such as a video that it cannot process, in
    /// the order of `posts`. Empty if the platform does not report that.
    async fn later_rejections(
        &self,
        _account: &ConnectorAccount,
        _posts: &[PublishedPost],
    ) -> Result<Vec<Option<Failure>>, CallError> {
        Ok(Vec::new())
    }

    /// Returns the account's metrics.
    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError>;
}

/// Returns the count at a path (`/likeCount`) of a response. `None` if it is missing or not an integer.
pub(super) fn count(response: &Value, path: &str) -> Option<i64> {
    response.pointer(path).and_then(Value::as_i64)
}
