//! Metrics of YouTube: the statistics of up to 50 videos per call, and those of the channel. Counts are texts. YouTube
//! rounds the number of subscribers. The state of a video says whether YouTube rejected it after the upload.
//!
//! Source: developers.google.com/youtube ("Videos: list": `statistics`, `status.uploadStatus`, `status.failureReason`,
//! `status.rejectionReason`; "Channels: list": `statistics`), November 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::failure::{Category, Failure};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::rest::List;
use super::{Youtube, is_id};
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

const PER_CALL: usize = 50;
/// The maximum length of a reason.
const MAX_REASON: usize = 64;

/// Returns the count at a path of a response.
fn count(response: &Value, path: &str) -> Option<i64> {
    match response.pointer(path)? {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

/// Returns why YouTube rejected a video. `None` if it did not.
fn rejection(video: &Value) -> Option<Failure> {
    let text = |name: &str| video.pointer(name).and_then(Value::as_str).unwrap_or_default();
    let (what, reason) = match text("/status/uploadStatus") {
        "failed" => ("could not process this video after its upload", text("/status/failureReason")),
        "rejected" => ("rejected this video after its upload", text("/status/rejectionReason")),
        _ => return None,
    };
    let is_word = !reason.is_empty() && reason.len() <= MAX_REASON && reason.bytes().all(|b| b.is_ascii_alphanumeric());
    let reason = if is_word { reason } else { "unknown" };
    let message = format!("YouTube {what}, so it is not shown. Reason: {reason}. YouTube Studio has the details.");
    Some(Failure::with_code(Category::PlatformRejected, "rejected_later", message).from_platform(reason))
}

impl Youtube {
    async fn listed(
        &self,
        account: &ConnectorAccount,
        list: &str,
        part: &str,
        selection: (&str, &str),
    ) -> Result<List, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, &format!("/youtube/v3/{list}"), token.expose_secret());
        self.call(Effect::Repeatable, request.query(&[("part", part), selection])).await
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
        let found = self.listed(account, "videos", "statistics", ("id", ids.join(",").as_str())).await?;
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

    async fn later_rejections(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
    ) -> Result<Vec<Option<Failure>>, CallError> {
        let ids: Vec<&str> = posts.iter().map(|post| post.external_id.as_str()).filter(|id| is_id(id)).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.listed(account, "videos", "status", ("id", ids.join(",").as_str())).await?;
        let of = |post: &PublishedPost| found.items.iter().find(|video| video["id"] == post.external_id);
        Ok(posts.iter().map(|post| of(post).and_then(rejection)).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let found = self.listed(account, "channels", "statistics", ("mine", "true")).await?;
        let channel = found.items.first();
        Ok(channel.map_or_else(AccountMetrics::default, |channel| self.metrics.account(|name| count(channel, name))))
    }
}
