//! Metrics of Mastodon: one call per post, because servers before 4.3 accept only one. Mastodon counts no views.
//!
//! Sources: docs.joinmastodon.org, `GET /api/v1/statuses/:id`, `GET /api/v1/accounts/verify_credentials`.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::{Method, StatusCode};
use serde_json::Value;

use super::Mastodon;
use super::rest::segment;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[async_trait]
impl AnalyticsConnector for Mastodon {
    fn posts_per_call(&self) -> usize {
        1
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let instance = self.instance(account)?;
        let mut metrics = Vec::with_capacity(posts.len());
        for post in posts {
            let request = instance.request(Method::GET, &format!("/api/v1/statuses/{}", segment(&post.external_id)));
            let response = self.client.send(Effect::Repeatable, request).await?;
            if response.status == StatusCode::NOT_FOUND {
                metrics.push(None);
                continue;
            }
            if !response.status.is_success() {
                return Err(self.client.classify_status(Effect::Repeatable, &response, None, None));
            }
            let status: Value = self.client.read(Effect::Repeatable, &response)?;
            metrics.push(Some(self.metrics.post(|name| count(&status, name))));
        }
        Ok(metrics)
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let instance = self.instance(account)?;
        let request = instance.request(Method::GET, "/api/v1/accounts/verify_credentials");
        let own: Value = instance.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&own, name)))
    }
}
