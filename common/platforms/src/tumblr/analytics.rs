//! Metrics of Tumblr: a blog's followers. A post has only one number of notes, for likes, reblogs and replies together,
//! which matches none of Crier's metrics.
//!
//! Sources: github.com/tumblr/docs (`api.md`: `/blog/{b}/followers`).

use async_trait::async_trait;
use crier_domain::analytics::AccountMetrics;
use http::Method;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::Tumblr;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[async_trait]
impl AnalyticsConnector for Tumblr {
    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = Self::blog_path(account, "followers");
        let request = self.request(Method::GET, &path, token.expose_secret()).query(&[("limit", "1")]);
        let followers: Value = self.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&followers, name)))
    }
}
