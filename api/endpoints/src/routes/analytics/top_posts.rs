//! `GET /brands/{brand}/analytics/top-posts`

use std::sync::Arc;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::analytics::PostMetric;
use crier_store::Conn;
use crier_store::report_metrics::{self, TopPostsQuery};
use schemars::JsonSchema;
use serde::Serialize;

use super::posts::MetricSums;
use super::{FEATURES, RequestedPosts, TAG, Window};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply, Timestamp};

/// The maximum number of posts in a response.
const MAX_POSTS: i64 = 10;

/// The posts to rank.
#[derive(Clone, Debug, Default, Request)]
pub struct RequestedTopPosts {
    #[field(flatten)]
    pub posts: RequestedPosts,
    /// The metric by which the posts are ranked.
    #[field(enum_value(), default = PostMetric::Engagements)]
    pub metric: PostMetric,
}

/// A post with its metrics on all accounts, or on the requested account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopPost {
    pub post_id: i64,
    /// The beginning of the post's text, at most 200 characters.
    pub text: String,
    /// The time of its first publication on these accounts.
    pub published_at: Timestamp,
    #[serde(flatten)]
    pub metrics: MetricSums,
}

/// The posts of a brand with the highest values of a metric.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopPosts {
    pub start: NaiveDate,
    pub end: NaiveDate,
    pub timezone: String,
    #[schemars(with = "TextEnum<PostMetric>")]
    pub metric: PostMetric,
    /// The highest value first, at most 10. Posts of which the metric is unknown are omitted.
    pub posts: Vec<TopPost>,
}

pub fn endpoint() -> Endpoint<RequestedTopPosts, One<TopPosts>> {
    Endpoint::get("/brands/{brand}/analytics/top-posts", "getTopPosts", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Get a brand's posts with the highest values of a metric")
        .features(FEATURES)
        .extension()
        .checks_then_reads(show)
}

async fn show(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<RequestedTopPosts>>) -> Result<Reply<TopPosts>> {
    let RequestedTopPosts { posts: RequestedPosts { days, account }, metric } = parsed.valid()?;
    let window = Window::of(cx, days)?;
    let query = TopPostsQuery {
        brand_id: cx.brand()?.id,
        account_id: account.account_id,
        range: (window.starts_at(), window.ends_at()),
        metric: *metric,
    };
    let found = report_metrics::top_posts(conn, query, MAX_POSTS).await?;
    let posts = found.into_iter().map(|post| TopPost {
        post_id: post.post_id,
        text: post.text,
        published_at: post.published_at.into(),
        metrics: post.metrics.into(),
    });
    Ok(Reply::from(TopPosts {
        start: window.start,
        end: window.end,
        timezone: window.zone.to_string(),
        metric: *metric,
        posts: posts.collect(),
    }))
}
