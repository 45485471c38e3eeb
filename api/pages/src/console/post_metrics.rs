//! The metrics of a post on the page of the post.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::analytics::PostMetrics;
use crier_domain::post::Target;
use crier_endpoints::admission::plan;
use crier_endpoints::error::Result;
use crier_endpoints::routes::analytics;
use crier_endpoints::routes::analytics::post::TargetPoint;
use crier_endpoints::routes::analytics::posts::MetricSums;

use super::composer_input::Stored;
use super::shared::{AccountChip, Time};
use super::visit::Visit;
use crate::numbers::number;

/// The maximum number of accounts with their metrics.
const MAX_ACCOUNTS: usize = 100;

/// The metrics of a post on one account, or on all accounts.
#[derive(Debug, Default)]
pub struct MetricsRow {
    /// `None`: all accounts.
    pub account: Option<AccountChip>,
    /// The time of the newest reading.
    pub read_at: Option<Time>,
    /// The labels and values of the known metrics.
    pub values: Vec<(&'static str, String)>,
    /// Why there are no metrics.
    pub note: Option<String>,
}

/// Returns metrics with their labels, in the order in which pages show them.
pub const fn labeled(metrics: &MetricSums) -> [(&'static str, Option<i64>); 7] {
    [
        ("Impressions", metrics.impressions),
        ("Reach", metrics.reach),
        ("Likes", metrics.likes),
        ("Comments", metrics.comments),
        ("Shares", metrics.shares),
        ("Clicks", metrics.clicks),
        ("Engagements", metrics.engagements),
    ]
}

/// Returns the metrics on each account on which the post is published, and their sums if several accounts have metrics.
/// Empty if the plan includes no metrics.
pub async fn rows(visit: &Visit, stored: &Stored, chips: &HashMap<i64, AccountChip>) -> Result<Vec<MetricsRow>> {
    let plan = plan(&visit.app, &visit.authenticated.caller)?;
    let is_published = |target: &&Target| target.status.was_published();
    let published: Vec<&Target> = stored.targets.iter().filter(is_published).take(MAX_ACCOUNTS).collect();
    if published.is_empty() || !analytics::FEATURES.iter().any(|feature| plan.has(*feature)) {
        return Ok(Vec::new());
    }
    let found = visit.call().read(analytics::post::endpoint(), ()).await?;
    let (mut rows, mut known, mut sum) = (Vec::new(), 0, PostMetrics::default());
    for target in published {
        let series = found.targets.iter().find(|series| series.target_id == target.id);
        let points = series.map(|series| series.points.as_slice()).unwrap_or_default();
        let metrics = newest(points);
        let values = values(metrics);
        if !values.is_empty() {
            known += 1;
            sum = sum.plus(&metrics);
        }
        rows.push(MetricsRow {
            account: Some(chips.get(&target.account_id).cloned().unwrap_or_default()),
            read_at: points.last().map(|point| visit.time(point.at.0)),
            note: values.is_empty().then(|| note(visit, target, !points.is_empty(), plan.analytics_days)),
            values,
        });
    }
    if known > 1 {
        rows.insert(0, MetricsRow { values: values(sum), ..MetricsRow::default() });
    }
    Ok(rows)
}

/// Returns the newest known value of each metric: a platform may stop returning one.
fn newest(points: &[TargetPoint]) -> PostMetrics {
    let last = |of: fn(&TargetPoint) -> Option<i64>| points.iter().rev().find_map(of);
    PostMetrics {
        impressions: last(|point| point.impressions),
        reach: last(|point| point.reach),
        likes: last(|point| point.likes),
        comments: last(|point| point.comments),
        shares: last(|point| point.shares),
        clicks: last(|point| point.clicks),
    }
}

fn values(metrics: PostMetrics) -> Vec<(&'static str, String)> {
    let known = |(label, value): (&'static str, Option<i64>)| Some((label, number(value?)));
    labeled(&metrics.into()).into_iter().filter_map(known).collect()
}

/// Returns why a published target has no metrics. `plan_days` is the number of days for which the plan shows metrics.
fn note(visit: &Visit, target: &Target, is_read: bool, plan_days: Option<u64>) -> String {
    let registry = &visit.app.platforms;
    let descriptor = registry.descriptor(target.platform);
    let connector = registry.get(target.platform);
    // A platform may report metrics of accounts only.
    let posts_per_call = connector.and_then(|connector| connector.analytics().map(|metrics| metrics.posts_per_call()));
    if !descriptor.capabilities.analytics || posts_per_call == Some(0) {
        return format!("{} reports no metrics of posts.", descriptor.name);
    }
    if is_read {
        return format!("{} reports no metrics of this post.", descriptor.name);
    }
    if !registry.collects_metrics(target.platform) {
        return format!("This installation does not collect metrics from {}.", descriptor.name);
    }
    let age = |at: DateTime<Utc>| u64::try_from((visit.now - at).num_days()).ok();
    match target.published_at.and_then(age).zip(plan_days) {
        Some((age, days)) if age >= days => "This post is older than the metrics that your plan shows.".to_owned(),
        _ => "No metrics yet.".to_owned(),
    }
}
