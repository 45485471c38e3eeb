//! Figures of posts and accounts, read from the platforms.
//!
//! **To add a platform:** add its metrics to `metrics.rs`, implement [`AnalyticsConnector`] in
//! `<name>/analytics.rs`, return it from `Connector::analytics`, set `analytics` in its descriptor, and make the
//! table in `docs/analytics.md` anew (`CRIER_TEST_UPDATE=1 cargo test --test it analytics_guide`).

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::analytics::{AccountFigures, Figures};
use serde_json::Value;

use super::{CallError, ConnectorAccount, Marker, Published};

/// A post whose figures are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPost {
    /// As the platform names it.
    pub external_id: String,
    pub published_at: DateTime<Utc>,
}

/// Metrics that the platform refused for an account: not asked for until their time is over.
#[derive(Clone, Debug, Default)]
pub struct SetAside {
    names: BTreeSet<String>,
    added: BTreeSet<String>,
}

impl SetAside {
    pub fn new(names: BTreeSet<String>) -> Self {
        Self { names, added: BTreeSet::new() }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.added.contains(name)
    }

    pub fn add(&mut self, name: &str) {
        self.added.insert(name.to_owned());
    }

    /// Returns the names that were added.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.added.iter().map(String::as_str)
    }
}

/// A platform that gives figures.
#[async_trait]
pub trait AnalyticsConnector: Send + Sync {
    /// Returns how many posts one call of [`AnalyticsConnector::post_figures`] may name; 0: there are no figures of posts.
    fn posts_per_call(&self) -> usize {
        0
    }

    /// Returns whether a post may get its id only after it was published: then [`AnalyticsConnector::find_id`] is asked.
    fn names_posts_later(&self) -> bool {
        false
    }

    /// Returns the id and the address of a published post that had none so far; `None`: it has none yet. `marker`: that
    /// of its publish.
    async fn find_id(&self, _account: &ConnectorAccount, _marker: &Marker) -> Result<Option<Published>, CallError> {
        Ok(None)
    }

    /// Returns the figures of posts, in the order of `posts`; `None`: the platform does not have this one any more.
    async fn post_figures(
        &self,
        _account: &ConnectorAccount,
        posts: &[PublishedPost],
        _skipped: &mut SetAside,
    ) -> Result<Vec<Option<Figures>>, CallError> {
        Ok(posts.iter().map(|_| Some(Figures::default())).collect())
    }

    /// Returns the account's figures.
    async fn account_figures(
        &self,
        account: &ConnectorAccount,
        skipped: &mut SetAside,
    ) -> Result<AccountFigures, CallError>;
}

/// Returns a count at a path (`/likeCount`) of a platform's answer; `None` if there is none, or it is no plain number.
pub(super) fn count(response: &Value, path: &str) -> Option<i64> {
    response.pointer(path).and_then(Value::as_i64)
}
