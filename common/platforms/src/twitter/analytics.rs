//! Metrics of X: up to 100 posts per call, and those of the account. X charges for each post and account that it
//! returns, once per day (UTC), so the operator must enable them (`CRIER_TWITTER_ANALYTICS`).
//!
//! Clicks are not public: X returns them to the author, for posts of the last 30 days. If an application may not read
//! them, the other metrics are read without them.
//!
//! Sources: docs.x.com of August 2026 ("Metrics", "Response codes and errors", "Pricing") and `openapi.json` 2.167
//! (`/2/tweets`, `/2/users/me`). They name two counts differently: `retweet_count` and `tweet_count` in the documents,
//! `repost_count` and `post_count` in the specification.

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;

use super::{Twitter, is_post_id};
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

const PER_CALL: usize = 100;
/// The object with the public counts, available for posts of any age.
const PUBLIC: &str = "public_metrics";
/// The age up to which X returns the other metrics. One day less than its 30, to allow for the duration of the call and
/// for X's clock.
const PRIVATE_FOR: TimeDelta = TimeDelta::days(29);
/// The names in the specification for those in the documents.
const OTHER_NAMES: [(&str, &str); 2] = [
    ("/public_metrics/retweet_count", "/public_metrics/repost_count"),
    ("/public_metrics/tweet_count", "/public_metrics/post_count"),
];

#[derive(Deserialize)]
struct PostsResponse {
    /// Missing if none of the posts can be shown.
    #[serde(default)]
    data: Vec<Value>,
    #[serde(default)]
    errors: Vec<Value>,
}

impl PostsResponse {
    /// Returns a post. X returns its newest edit, which has a different id.
    fn post(&self, id: &str) -> Option<&Value> {
        let is_edit =
            |post: &Value| post["edit_history_tweet_ids"].as_array().is_some_and(|ids| ids.iter().any(|i| i == id));
        self.data.iter().find(|post| post["id"] == id || is_edit(post))
    }

    /// Returns whether X reports that the post does not exist. A post that is only hidden still exists.
    fn is_gone(&self, id: &str) -> bool {
        self.errors.iter().any(|error| {
            is_of_type(error, "resource-not-found") && (error["resource_id"] == id || error["value"] == id)
        })
    }

    /// Returns whether X rejects a requested field.
    fn rejects_a_field(&self) -> bool {
        self.errors
            .iter()
            .any(|error| is_of_type(error, "not-authorized-for-field") || is_of_type(error, "field-unauthorized"))
    }
}

pub(super) fn is_of_type(error: &Value, name: &str) -> bool {
    error["type"].as_str().and_then(|kind| kind.rsplit('/').next()) == Some(name)
}

/// Returns a count of a post or an account, by either of its names.
fn value(of: &Value, name: &str) -> Option<i64> {
    let other = OTHER_NAMES.iter().find(|(one, _)| *one == name).map(|(_, other)| *other);
    count(of, name).or_else(|| count(of, other?))
}

/// Returns the object that contains a metric: `public_metrics` of `/public_metrics/like_count`.
fn object(name: &str) -> &str {
    name.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// Returns whether the error rejects the request, and not the account.
fn is_rejected(error: &CallError, statuses: &[StatusCode]) -> bool {
    let CallError::Permanent(failure) = error else { return false };
    statuses.iter().any(|status| failure.platform_code.as_deref() == Some(status.as_str()))
}

fn set_aside_metrics<'a>(names: impl IntoIterator<Item = &'a str>, set_aside: &mut MetricsSetAside) {
    for name in names {
        tracing::warn!(platform = "twitter", metric = name, "the platform rejected a metric");
        set_aside.add(name);
    }
}

impl Twitter {
    async fn fetch_posts(
        &self,
        account: &ConnectorAccount,
        posts: &[&PublishedPost],
        objects: &BTreeSet<&str>,
    ) -> Result<PostsResponse, CallError> {
        let ids: Vec<&str> = posts.iter().map(|post| post.external_id.as_str()).collect();
        let fields: Vec<&str> = objects.iter().copied().collect();
        let token = account.secrets.require("access_token")?;
        let request = self
            .request(Method::GET, "/tweets", token.expose_secret())
            .query(&[("ids", ids.join(",")), ("tweet.fields", fields.join(","))]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status.is_success() {
            true => self.client.read(Effect::Repeatable, &response),
            false => Err(self.classify(Effect::Repeatable, &response)),
        }
    }

    /// Requests posts with these metrics. If X rejects the private ones, sets them aside and requests only the public
    /// ones.
    async fn fetch_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[&PublishedPost],
        names: &[&str],
        set_aside: &mut MetricsSetAside,
    ) -> Result<PostsResponse, CallError> {
        let objects: BTreeSet<&str> = names.iter().map(|name| object(name)).collect();
        let is_all_public = objects.iter().all(|object| *object == PUBLIC);
        match self.fetch_posts(account, posts, &objects).await {
            Ok(response) if is_all_public || !response.rejects_a_field() => return Ok(response),
            Ok(_) => {}
            Err(error) if !is_all_public && is_rejected(&error, &[StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST]) => {}
            Err(error) => return Err(error),
        }
        set_aside_metrics(names.iter().copied().filter(|name| object(name) != PUBLIC), set_aside);
        self.fetch_posts(account, posts, &BTreeSet::from([PUBLIC])).await
    }

    /// Gets the posts of one age group. `is_young` means that X still returns their private metrics.
    async fn fetch_age_group(
        &self,
        account: &ConnectorAccount,
        posts: &[&PublishedPost],
        is_young: bool,
        set_aside: &mut MetricsSetAside,
    ) -> Result<PostsResponse, CallError> {
        let nothing = PostsResponse { data: Vec::new(), errors: Vec::new() };
        let is_returned = |name: &&str| (is_young || object(name) == PUBLIC) && !set_aside.contains(name);
        let names: Vec<&str> = self.metrics.fields_of_posts().into_iter().filter(is_returned).collect();
        if posts.is_empty() || names.is_empty() {
            return Ok(nothing);
        }
        match self.fetch_metrics(account, posts, &names, set_aside).await {
            Err(error) if is_rejected(&error, &[StatusCode::FORBIDDEN]) => {
                set_aside_metrics(names, set_aside);
                Ok(nothing)
            }
            response => response,
        }
    }
}

#[async_trait]
impl AnalyticsConnector for Twitter {
    fn posts_per_call(&self) -> usize {
        PER_CALL
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let since = self.client.now() - PRIVATE_FOR;
        // One invalid id would fail the call for all posts.
        let is_id = |post: &&PublishedPost| is_post_id(&post.external_id);
        let (young, old): (Vec<&PublishedPost>, Vec<&PublishedPost>) =
            posts.iter().filter(is_id).partition(|post| post.published_at > since);
        let responses = [
            self.fetch_age_group(account, &young, true, set_aside).await?,
            self.fetch_age_group(account, &old, false, set_aside).await?,
        ];
        let of = |post: &PublishedPost| {
            let id = post.external_id.as_str();
            match responses.iter().find_map(|response| response.post(id)) {
                Some(found) => Some(self.metrics.post(|name| value(found, name))),
                None if responses.iter().any(|response| response.is_gone(id)) => None,
                None => Some(PostMetrics::default()),
            }
        };
        Ok(posts.iter().map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let names: Vec<&str> =
            self.metrics.fields_of_accounts().into_iter().filter(|name| !set_aside.contains(name)).collect();
        if names.is_empty() {
            return Ok(AccountMetrics::default());
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, "/users/me", token.expose_secret()).query(&[("user.fields", PUBLIC)]);
        match self.call::<Value>(Effect::Repeatable, request).await {
            Ok(own) => Ok(self.metrics.account(|name| value(&own, name))),
            Err(error) if is_rejected(&error, &[StatusCode::FORBIDDEN]) => {
                set_aside_metrics(names, set_aside);
                Ok(AccountMetrics::default())
            }
            Err(error) => Err(error),
        }
    }
}
