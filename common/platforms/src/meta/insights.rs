//! Insights: the values of metrics that are requested by name. If Meta does not know one name, or does not allow it,
//! the whole call fails. Each is then requested separately, and those that fail are set aside for the account.
//!
//! Sources: "Insights" of the Graph API, the Instagram platform and Threads, January to June 2026. An empty response
//! means that there is no value yet, not 0.

use std::collections::BTreeMap;

use crier_domain::analytics::PostMetrics;
use crier_http::HttpResponse;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::graph::{Access, GraphFailure};
use crate::CallError;
use crate::analytics::{MetricsSetAside, PublishedPost};
use crate::call::Effect;
use crate::metrics::Metrics;

/// The values of metrics by their names.
pub(crate) type Values = BTreeMap<String, i64>;

#[derive(Deserialize)]
struct InsightsResponse {
    #[serde(default)]
    data: Vec<Insight>,
}

#[derive(Deserialize)]
struct Insight {
    name: String,
    #[serde(default)]
    values: Vec<InsightValue>,
    total_value: Option<InsightValue>,
}

#[derive(Deserialize)]
struct InsightValue {
    value: Option<Value>,
}

impl Insight {
    /// Returns the newest value, added up if it is split (by the kind of reaction).
    fn value(&self) -> Option<i64> {
        let newest = self.total_value.as_ref().or_else(|| self.values.last())?;
        match newest.value.as_ref()? {
            Value::Object(parts) => parts.values().filter_map(Value::as_i64).reduce(i64::saturating_add),
            value => value.as_i64(),
        }
    }
}

/// The insights of an object.
pub(crate) enum Insights {
    Known(Values),
    /// The object no longer exists.
    Gone,
}

impl Access<'_> {
    /// Requests metrics of an object: a post or an account.
    pub(crate) async fn insights(
        &self,
        path: &str,
        names: &[&str],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Insights, CallError> {
        let names: Vec<&str> = names.iter().copied().filter(|name| !set_aside.contains(name)).collect();
        if names.is_empty() {
            return Ok(Insights::Known(Values::new()));
        }
        match self.fetch_values(path, &names).await {
            Ok(values) => return Ok(Insights::Known(values)),
            Err(failure) if is_gone(&failure) => return Ok(Insights::Gone),
            Err(failure) if !is_metric_error(&failure) => return Err(failure.error),
            Err(_) => {}
        }
        let mut all = Values::new();
        for name in names {
            match self.fetch_values(path, &[name]).await {
                Ok(values) => all.extend(values),
                Err(failure) if is_metric_error(&failure) => self.set_aside_metric(name, set_aside),
                // Deleted since the first call.
                Err(failure) if is_gone(&failure) => return Ok(Insights::Gone),
                Err(failure) => return Err(failure.error),
            }
        }
        Ok(Insights::Known(all))
    }

    /// Returns the metrics of posts whose metrics are all insights, with one call per post.
    pub(crate) async fn post_metrics(
        &self,
        posts: &[PublishedPost],
        metrics: &Metrics,
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let mut found = Vec::with_capacity(posts.len());
        for post in posts {
            let path = format!("{}/insights", post.external_id);
            found.push(match self.insights(&path, &metrics.of_posts(), set_aside).await? {
                Insights::Known(values) => Some(metrics.post(|name| values.get(name).copied())),
                Insights::Gone => None,
            });
        }
        Ok(found)
    }

    async fn fetch_values(&self, path: &str, names: &[&str]) -> Result<Values, GraphFailure> {
        let request = self.request(Method::GET, path).query(&[("metric", names.join(","))]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        self.read_values(&response)
    }

    /// Parses a response with insights.
    pub(crate) fn read_values(&self, response: &HttpResponse) -> Result<Values, GraphFailure> {
        let response: InsightsResponse = self.read_response(Effect::Repeatable, response)?;
        Ok(response.data.into_iter().filter_map(|one| Some((one.name.clone(), one.value()?))).collect())
    }

    /// Sets aside a metric that Meta rejects.
    pub(crate) fn set_aside_metric(&self, name: &str, set_aside: &mut MetricsSetAside) {
        tracing::warn!(platform = self.client.name(), metric = name, "the platform rejected a metric");
        set_aside.add(name);
    }
}

/// Returns whether the object does not exist, or not for this account.
pub(crate) fn is_gone(failure: &GraphFailure) -> bool {
    (failure.code, failure.subcode) == (100, Some(33))
}

/// Returns whether a metric is unknown, or its permission is missing.
pub(crate) fn is_metric_error(failure: &GraphFailure) -> bool {
    matches!(failure.code, 3 | 10 | 100 | 200..=299) && !is_gone(failure)
}
