//! Metrics of YouTube: the statistics of up to 50 videos per call, and those of the channel. Counts are texts. YouTube
//! rounds the number of subscribers.
//!
//! Source: developers.google.com/youtube ("Videos: list", "Channels: list": `statistics`), November 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::rest::List;
use super::{Youtube, is_id};
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

const PER_CALL: usize = 50;

/// Returns the count at a path of a response.
fn count(response: &Value, path: &str) -> Option<i64> {
    match response.pointer(path)? {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

impl Youtube {
    async fn statistics(
        &self,
        account: &ConnectorAccount,
        list: &str,
        selection: (&str, &str),
    ) -> Result<List, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, &format!("/youtube/v3/{list}"), token.expose_secret());
        self.call(Effect::Repeatable, request.query(&[("part", "statistics"), selection])).await
    }
}

#[async_trait]
impl AnalyticsConnector for Youtube {
    fn posts_per_call(&self) -> usize {
        PER_CALL
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        // One invalid id would fail the call for all posts.
        let ids: Vec<&str> = posts.iter().map(|post| post.external_id.as_str()).filter(|id| is_id(id)).collect();
        if ids.is_empty() {
            return Ok(vec![Some(PostMetrics::default()); posts.len()]);
        }
        let found = self.statistics(account, "videos", ("id", ids.join(",").as_str())).await?;
        let of = |post: &PublishedPost| {
            if !is_id(&post.external_id) {
                return Some(PostMetrics::default());
            }
            // The owner sees all videos, also private ones, so a missing one was deleted.
            let video = found.items.iter().find(|video| video["id"] == post.external_id)?;
            Some(self.metrics.post(|name| count(video, name)))
        };
        Ok(posts.iter().map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let found = self.statistics(account, "channels", ("mine", "true")).await?;
        let channel = found.items.first();
        Ok(channel.map_or_else(AccountMetrics::default, |channel| self.metrics.account(|name| count(channel, name))))
    }
}
