//! Metrics of Reddit: up to 100 posts per call. A deleted post is omitted or has no author. Reddit rounds and shifts
//! the score. Followers are those of the account's profile.
//!
//! Sources: www.reddit.com/dev/api (`/api/info`, `/api/v1/me`).

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::Reddit;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[derive(Deserialize)]
struct Listing {
    data: Children,
}

#[derive(Deserialize)]
struct Children {
    #[serde(default)]
    children: Vec<Child>,
}

#[derive(Deserialize)]
struct Child {
    data: Value,
}

#[async_trait]
impl AnalyticsConnector for Reddit {
    fn posts_per_call(&self) -> usize {
        100
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let session = self.session(account)?;
        let names: Vec<&str> = posts.iter().map(|post| post.external_id.as_str()).collect();
        let request =
            session.request(Method::GET, "/api/info").query(&[("id", names.join(",")), ("raw_json", "1".into())]);
        let found: Listing = session.call(Effect::Repeatable, request).await?;
        let of = |post: &PublishedPost| {
            let known = found.data.children.iter().find(|one| one.data["name"] == post.external_id.as_str())?;
            let is_there = known.data["author"] != "[deleted]";
            is_there.then(|| self.metrics.post(|name| count(&known.data, name)))
        };
        Ok(posts.iter().map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let session = self.session(account)?;
        let request = session.request(Method::GET, "/api/v1/me").query(&[("raw_json", "1")]);
        let own: Value = session.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&own, name)))
    }
}
