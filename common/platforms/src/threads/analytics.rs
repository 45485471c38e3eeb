//! Metrics of Threads: insights of posts, one call per post, and of the account. They need the permission
//! `threads_manage_insights`.
//!
//! Sources: "Insights" of the Threads API, January 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};

use super::Threads;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use crate::meta::insights::{Insights, Values};
use crate::{CallError, ConnectorAccount};

#[async_trait]
impl AnalyticsConnector for Threads {
    fn posts_per_call(&self) -> usize {
        1
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        self.access(account.secrets.require("access_token")?).post_metrics(posts, &self.metrics, set_aside).await
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let access = self.access(account.secrets.require("access_token")?);
        let path = format!("{}/threads_insights", account.external_id);
        let values = match access.insights(&path, &self.metrics.of_accounts(), set_aside).await? {
            Insights::Known(values) => values,
            Insights::Gone => Values::new(),
        };
        Ok(self.metrics.account(|name| values.get(name).copied()))
    }
}
