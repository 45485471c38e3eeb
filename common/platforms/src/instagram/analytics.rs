//! Metrics of Instagram: a post's insights, one call per post, and fields of the account. Insights need the permission
//! `instagram_business_manage_insights` (for an account behind a page: `instagram_manage_insights`), and are up to 48
//! hours late.
//!
//! Sources: "Insights" of the Instagram platform, June 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::Method;
use serde_json::Value;

use super::Instagram;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[async_trait]
impl AnalyticsConnector for Instagram {
    fn posts_per_call(&self) -> usize {
        1
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        self.access(account)?.post_metrics(posts, &self.metrics, set_aside).await
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let access = self.access(account)?;
        let fields = [("fields", "id,followers_count,follows_count,media_count")];
        let request = access.request(Method::GET, &account.external_id).query(&fields);
        let own: Value = access.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&own, name)))
    }
}
