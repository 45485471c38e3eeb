//! Metrics of Facebook pages: counts from a post's fields, and views and clicks from its insights, for which the page's
//! token needs the permission `read_insights`. One batch request gets both for up to 25 posts.
//!
//! Sources: "Page Insights" and "Batch requests" of the Graph API, June 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_http::HttpResponse;
use http::Method;
use serde_json::Value;

use super::Facebook;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::meta::batch::MAX_CALLS;
use crate::meta::graph::Access;
use crate::meta::insights::{Insights, Values, is_gone, is_metric_error};
use crate::{CallError, ConnectorAccount};

/// Each post takes two calls.
const MAX_POSTS: usize = MAX_CALLS / 2;
const FIELDS: &str = "id,shares,comments.limit(0).summary(true),reactions.limit(0).summary(true)";

/// The counts from a post's fields.
enum Fields {
    Known(Value),
    Gone,
    /// The call failed.
    Unknown,
}

/// Returns the path of a post. Its id may contain any characters.
fn path(post: &PublishedPost, rest: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(post.external_id.as_bytes()).collect();
    format!("{id}{rest}")
}

fn fields_path(post: &PublishedPost) -> String {
    path(post, &format!("?fields={FIELDS}"))
}

fn insights_path(post: &PublishedPost, names: &[&str]) -> String {
    path(post, &format!("/insights?metric={}", names.join(",")))
}

fn fields(access: &Access<'_>, response: &HttpResponse) -> Result<Fields, CallError> {
    match access.read_response(Effect::Repeatable, response) {
        Ok(fields) => Ok(Fields::Known(fields)),
        Err(failure) if is_gone(&failure) => Ok(Fields::Gone),
        // Errors that concern all calls are returned; other failures concern only this post.
        Err(failure) => match failure.error {
            error @ (CallError::RateLimited { .. } | CallError::Reauth(_) | CallError::AuthExpired(_)) => Err(error),
            _ => Ok(Fields::Unknown),
        },
    }
}

/// The insights of posts that are requested together.
struct InsightsBatch<'a> {
    access: &'a Access<'a>,
    posts: &'a [PublishedPost],
    names: Vec<&'a str>,
    read: Vec<Insights>,
}

impl InsightsBatch<'_> {
    /// Records the responses for some posts. Returns the posts for which a metric was rejected.
    fn record(&mut self, posts: &[usize], responses: &[HttpResponse]) -> Result<Vec<usize>, CallError> {
        let mut rejected = Vec::new();
        for (index, response) in posts.iter().zip(responses) {
            match self.access.read_values(response) {
                Ok(values) => self.read[*index] = Insights::Known(values),
                Err(failure) if is_gone(&failure) => self.read[*index] = Insights::Gone,
                Err(failure) if is_metric_error(&failure) => rejected.push(*index),
                Err(failure) => return Err(failure.error),
            }
        }
        Ok(rejected)
    }

    /// Requests each metric of a post separately, and sets aside those that are rejected.
    async fn fetch_one_by_one(&mut self, index: usize, set_aside: &mut MetricsSetAside) -> Result<(), CallError> {
        let paths: Vec<String> = self.names.iter().map(|name| insights_path(&self.posts[index], &[*name])).collect();
        let mut all = Values::new();
        for (name, response) in self.names.iter().zip(self.access.batch(&paths).await?) {
            match self.access.read_values(&response) {
                Ok(values) => all.extend(values),
                Err(failure) if is_gone(&failure) => {
                    self.read[index] = Insights::Gone;
                    return Ok(());
                }
                Err(failure) if is_metric_error(&failure) => self.access.set_aside_metric(name, set_aside),
                Err(failure) => return Err(failure.error),
            }
        }
        self.read[index] = Insights::Known(all);
        self.names.retain(|name| !set_aside.contains(name));
        Ok(())
    }

    /// Finds the metrics that one of these posts rejected, and requests the remaining ones for the others.
    async fn resolve(&mut self, mut rejected: Vec<usize>, set_aside: &mut MetricsSetAside) -> Result<(), CallError> {
        while let Some((first, others)) = rejected.split_first() {
            self.fetch_one_by_one(*first, set_aside).await?;
            if self.names.is_empty() || others.is_empty() {
                return Ok(());
            }
            let paths: Vec<String> =
                others.iter().map(|index| insights_path(&self.posts[*index], &self.names)).collect();
            let responses = self.access.batch(&paths).await?;
            rejected = self.record(others, &responses)?;
        }
        Ok(())
    }
}

#[async_trait]
impl AnalyticsConnector for Facebook {
    fn posts_per_call(&self) -> usize {
        MAX_POSTS
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let access = self.access(account)?;
        let names: Vec<&str> = self.metrics.of_posts().into_iter().filter(|name| !set_aside.contains(name)).collect();
        let mut paths: Vec<String> = posts.iter().map(fields_path).collect();
        if !names.is_empty() {
            paths.extend(posts.iter().map(|post| insights_path(post, &names)));
        }
        let responses = access.batch(&paths).await?;
        let (of_fields, of_insights) = responses.split_at(posts.len());
        let fields = of_fields.iter().map(|response| fields(&access, response)).collect::<Result<Vec<_>, _>>()?;
        let read = posts.iter().map(|_| Insights::Known(Values::new())).collect();
        let mut batch = InsightsBatch { access: &access, posts, names, read };
        let all: Vec<usize> = (0..posts.len()).collect();
        let rejected = batch.record(&all, of_insights)?;
        batch.resolve(rejected, set_aside).await?;
        let is_requested = !of_insights.is_empty();
        let of = |(fields, insights): (&Fields, &Insights)| {
            let none = Values::new();
            let (fields, values) = match (fields, insights) {
                (Fields::Known(fields), Insights::Known(values)) => (Some(fields), values),
                // The fields prove that the post exists: only its insights are missing.
                (Fields::Known(fields), Insights::Gone) => (Some(fields), &none),
                (Fields::Gone, Insights::Known(_)) if !is_requested => return None,
                (_, Insights::Known(values)) => (None, values),
                (_, Insights::Gone) => return None,
            };
            Some(self.metrics.post(|name| match name.starts_with('/') {
                true => fields.and_then(|fields| count(fields, name)),
                false => values.get(name).copied(),
            }))
        };
        Ok(fields.iter().zip(&batch.read).map(of).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let access = self.access(account)?;
        let request = access.request(Method::GET, &account.external_id).query(&[("fields", "id,followers_count")]);
        let page: Value = access.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&page, name)))
    }
}
