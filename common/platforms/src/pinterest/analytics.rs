//! Metrics of Pinterest: one call per pin, because the call for several is not open to all applications, and one call
//! for the account. The counts of a pin are lifetime totals, which Pinterest has for pins since March 2023. The
//! documented counts do not include saves.
//!
//! Sources: Pinterest's OpenAPI 5.23.0 of December 2025 (`/pins/{pin_id}` with `pin_metrics`, `/pins/analytics`,
//! `/user_account`). A missing scope is 401 with the code 3: issue 97 of Pinterest's `api-quickstart`.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::Pinterest;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

/// The result of reading a pin or an account.
enum PinAccess {
    Known(Value),
    Gone,
    /// Denied for this pin only.
    Rejected,
    /// The account lacks the scope.
    ScopeMissing,
}

impl Pinterest {
    async fn read(
        &self,
        account: &ConnectorAccount,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<PinAccess, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, path, token.expose_secret()).query(query);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            status if status.is_success() => self.client.read(Effect::Repeatable, &response).map(PinAccess::Known),
            StatusCode::NOT_FOUND => Ok(PinAccess::Gone),
            StatusCode::FORBIDDEN => Ok(PinAccess::Rejected),
            _ => match self.classify(Effect::Repeatable, &response) {
                CallError::AuthExpired(failure) if failure.platform_code.as_deref() == Some("3") => {
                    Ok(PinAccess::ScopeMissing)
                }
                error => Err(error),
            },
        }
    }

    async fn pin_metrics(
        &self,
        account: &ConnectorAccount,
        id: &str,
        set_aside: &mut MetricsSetAside,
    ) -> Result<Option<PostMetrics>, CallError> {
        let names = self.metrics.fields_of_posts();
        if names.iter().all(|name| set_aside.contains(name)) {
            return Ok(Some(PostMetrics::default()));
        }
        let path = format!("/pins/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
        Ok(match self.read(account, &path, &[("pin_metrics", "true")]).await? {
            PinAccess::Known(pin) => Some(self.metrics.post(|name| count(&pin, name))),
            PinAccess::Gone => None,
            PinAccess::Rejected => Some(PostMetrics::default()),
            PinAccess::ScopeMissing => {
                set_aside_metrics(&names, set_aside);
                Some(PostMetrics::default())
            }
        })
    }
}

fn set_aside_metrics(names: &[&str], set_aside: &mut MetricsSetAside) {
    tracing::warn!(platform = "pinterest", metrics = ?names, "the platform rejected metrics");
    for name in names {
        set_aside.add(name);
    }
}

#[async_trait]
impl AnalyticsConnector for Pinterest {
    fn posts_per_call(&self) -> usize {
        1
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let mut metrics = Vec::with_capacity(posts.len());
        for post in posts {
            metrics.push(self.pin_metrics(account, &post.external_id, set_aside).await?);
        }
        Ok(metrics)
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let names = self.metrics.fields_of_accounts();
        if names.iter().all(|name| set_aside.contains(name)) {
            return Ok(AccountMetrics::default());
        }
        if let PinAccess::Known(own) = self.read(account, "/user_account", &[]).await? {
            return Ok(self.metrics.account(|name| count(&own, name)));
        }
        set_aside_metrics(&names, set_aside);
        Ok(AccountMetrics::default())
    }
}
