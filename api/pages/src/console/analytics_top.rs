//! The top posts: the section of the analytics page with the posts that have the highest values of a metric.

use chrono::NaiveDate;
use crier_domain::analytics::PostMetric;
use crier_endpoints::error::Result;
use crier_endpoints::routes::analytics::RequestedDays;
use crier_endpoints::routes::analytics::posts::MetricSums;
use crier_endpoints::routes::analytics::top_posts::{self, RequestedTopPosts, TopPost};

use super::analytics_filter::Filter;
use super::charts;
use super::post_rows::beginning;
use super::shared::{Choice, Time};
use super::visit::Visit;

/// The maximum length of a post's text, in characters.
const MAX_TEXT: usize = 120;

pub struct TopPosts {
    /// The tabs with the metrics.
    pub metrics: Vec<Choice>,
    /// The name of the selected metric.
    pub metric: &'static str,
    /// The highest value first.
    pub posts: Vec<Row>,
}

pub struct Row {
    pub id: i64,
    /// The beginning of the text. Empty if the post contains only images.
    pub text: String,
    pub published: Time,
    pub value: String,
}

/// Reads the top posts of these days, both included. `path` is the path of the page.
pub async fn read(visit: &Visit, path: &str, filter: &Filter, days: (NaiveDate, NaiveDate)) -> Result<TopPosts> {
    let requested = RequestedDays { start: Some(days.0), end: Some(days.1) };
    let request = RequestedTopPosts { posts: filter.posts(requested), metric: filter.metric };
    let found = visit.call().read(top_posts::endpoint(), request).await?;
    let row = |post: TopPost| Row {
        id: post.post_id,
        text: beginning(&post.text, MAX_TEXT),
        published: visit.time(post.published_at.0),
        value: charts::metric(value(filter.metric, &post.metrics)),
    };
    let tab = |metric: &PostMetric| {
        let href = Filter { metric: *metric, ..*filter }.href(path, days);
        Choice::new(&format!("{href}#top-posts"), label(*metric), *metric == filter.metric)
    };
    Ok(TopPosts {
        metrics: PostMetric::ALL.iter().map(tab).collect(),
        metric: label(filter.metric),
        posts: found.posts.into_iter().map(row).collect(),
    })
}

const fn label(metric: PostMetric) -> &'static str {
    match metric {
        PostMetric::Engagements => "Engagements",
        PostMetric::Impressions => "Impressions",
        PostMetric::Reach => "Reach",
        PostMetric::Likes => "Likes",
        PostMetric::Comments => "Comments",
        PostMetric::Shares => "Shares",
        PostMetric::Clicks => "Clicks",
    }
}

const fn value(metric: PostMetric, metrics: &MetricSums) -> Option<i64> {
    match metric {
        PostMetric::Engagements => metrics.engagements,
        PostMetric::Impressions => metrics.impressions,
        PostMetric::Reach => metrics.reach,
        PostMetric::Likes => metrics.likes,
        PostMetric::Comments => metrics.comments,
        PostMetric::Shares => metrics.shares,
        PostMetric::Clicks => metrics.clicks,
    }
}
