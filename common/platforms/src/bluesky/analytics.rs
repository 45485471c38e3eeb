//! Metrics of Bluesky. `app.bsky.feed.getPosts` takes 25 posts and omits deleted ones from its response. Bluesky counts
//! no views. A quote counts as a share.
//!
//! Sources: lexicons `app.bsky.feed.getPosts`, `app.bsky.feed.defs#postView`, `app.bsky.actor.defs#profileViewDetailed`.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;

use super::Bluesky;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[derive(Deserialize)]
struct Posts {
    posts: Vec<Value>,
}

#[async_trait]
impl AnalyticsConnector for Bluesky {
    fn posts_per_call(&self) -> usize {
        25
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let (server, token) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let uris: Vec<(&str, &str)> = posts.iter().map(|post| ("uris", post.external_id.as_str())).collect();
        let request = server.get("app.bsky.feed.getPosts").query(&uris).bearer_auth(token.expose_secret());
        let found: Posts = server.call(Effect::Repeatable, request).await?;
        let of = |post: &PublishedPost| {
            let view = found.posts.iter().find(|view| view["uri"] == post.external_id.as_str())?;
            Some(self.metrics.post(|name| count(view, name)))
        };
        Ok(posts.iter().map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let (server, token) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let request = server
            .get("app.bsky.actor.getProfile")
            .query(&[("actor", account.external_id.as_str())])
            .bearer_auth(token.expose_secret());
        let profile: Value = server.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&profile, name)))
    }
}
