//! Metrics of TikTok: up to 20 posts per call, for which the account needs the scope `video.list`, and those of the
//! account, with the scope `user.info.stats`. Neither scope is requested unless the operator enables it.
//!
//! A post that TikTok omits from its response has no metrics. This does not prove that it was deleted, because the
//! documentation covers only videos. Private posts have no metrics either, because TikTok does not return their ids. A
//! public post may get its id only after moderation, some time after publishing; until then, the id is looked up with
//! `publish_id`.
//!
//! Sources: TikTok's documents "Query Videos", "Get User Info" with its scopes, "Error Handling" (2024 to 2026).

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PUBLISH_ID, Tiktok, is_video, published};
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount, Marker, Published};

const PER_CALL: usize = 20;

#[derive(Deserialize)]
struct Videos {
    #[serde(default)]
    videos: Vec<Value>,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    user: Value,
}

/// The reason why TikTok rejected a call.
enum Rejection {
    /// The account lacks a scope.
    Scope,
    /// One of the metrics, or another parameter, is invalid.
    Parameters,
}

fn rejection(error: &CallError) -> Option<Rejection> {
    let CallError::Permanent(failure) = error else { return None };
    match failure.platform_code.as_deref()? {
        "scope_not_authorized" | "scope_permission_missed" => Some(Rejection::Scope),
        "invalid_params" | "invalid_param" => Some(Rejection::Parameters),
        _ => None,
    }
}

fn set_aside_metrics(names: &[&str], set_aside: &mut MetricsSetAside) {
    tracing::warn!(platform = "tiktok", metrics = ?names, "the platform rejected metrics");
    for name in names {
        set_aside.add(name);
    }
}

impl Tiktok {
    /// Requests metrics. If TikTok does not know one, the call fails; each is then requested separately, and those that
    /// fail are set aside. Returns the response of each successful call.
    async fn fetch_metrics<T, F: Future<Output = Result<T, CallError>>>(
        &self,
        names: &[&str],
        set_aside: &mut MetricsSetAside,
        call: impl Fn(String) -> F,
    ) -> Result<Vec<T>, CallError> {
        let names: Vec<&str> = names.iter().copied().filter(|name| !set_aside.contains(name)).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let error = match call(names.join(",")).await {
            Ok(response) => return Ok(vec![response]),
            Err(error) => error,
        };
        match rejection(&error) {
            Some(Rejection::Scope) => {
                set_aside_metrics(&names, set_aside);
                return Ok(Vec::new());
            }
            Some(Rejection::Parameters) => {}
            None => return Err(error),
        }
        let mut responses = Vec::new();
        for name in names {
            match call(name.to_owned()).await {
                Ok(response) => responses.push(response),
                Err(error) if rejection(&error).is_some() => set_aside_metrics(&[name], set_aside),
                Err(error) => return Err(error),
            }
        }
        Ok(responses)
    }

    async fn videos(&self, account: &ConnectorAccount, ids: &[&str], names: String) -> Result<Videos, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = format!("/v2/video/query/?fields=id,{names}");
        self.post(Effect::Repeatable, &path, &token, &json!({ "filters": { "video_ids": ids } })).await
    }

    async fn user_info(&self, account: &ConnectorAccount, names: String) -> Result<UserInfo, CallError> {
        let token = account.secrets.require("access_token")?;
        self.get("/v2/user/info/", token.expose_secret(), &[("fields", &names)]).await
    }
}

/// Returns a count from the first response that has it.
fn value<'a>(mut responses: impl Iterator<Item = &'a Value>, name: &str) -> Option<i64> {
    responses.find_map(|response| count(response, &format!("/{name}")))
}

#[async_trait]
impl AnalyticsConnector for Tiktok {
    fn posts_per_call(&self) -> usize {
        PER_CALL
    }

    fn assigns_ids_later(&self) -> bool {
        true
    }

    async fn find_id(&self, account: &ConnectorAccount, marker: &Marker) -> Result<Option<Published>, CallError> {
        let Some(publish_id) = marker.get(PUBLISH_ID).and_then(Value::as_str) else { return Ok(None) };
        let found = self.publish_status(account, publish_id).await?;
        Ok(Some(published(account, &found.public_ids, is_video(marker))).filter(|post| !post.external_id.is_empty()))
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        // One invalid id would fail the call for all posts.
        let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let ids: Vec<&str> = posts.iter().map(|post| post.external_id.as_str()).filter(is_id).collect();
        if ids.is_empty() {
            return Ok(vec![Some(PostMetrics::default()); posts.len()]);
        }
        let names = self.metrics.of_posts();
        let responses = self.fetch_metrics(&names, set_aside, |names| self.videos(account, &ids, names)).await?;
        let of = |post: &PublishedPost| {
            let found =
                || responses.iter().flat_map(|response| &response.videos).filter(|one| one["id"] == post.external_id);
            Some(self.metrics.post(|name| value(found(), name)))
        };
        Ok(posts.iter().map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let names = self.metrics.of_accounts();
        let responses = self.fetch_metrics(&names, set_aside, |names| self.user_info(account, names)).await?;
        Ok(self.metrics.account(|name| value(responses.iter().map(|response| &response.user), name)))
    }
}
