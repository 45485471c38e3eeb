//! `GET /brands/{brand}/analytics/posts`

use std::sync::Arc;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::analytics::PostMetrics;
use crier_store::{Conn, analytics};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, RequestedPosts, TAG, Window};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The metrics of posts. A metric is null if no platform reports it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MetricSums {
    pub impressions: Option<i64>,
    pub reach: Option<i64>,
    pub likes: Option<i64>,
    pub comments: Option<i64>,
    pub shares: Option<i64>,
    pub clicks: Option<i64>,
    // Likes, comments, shares and clicks together.
    pub engagements: Option<i64>,
}

/// The posts published on a day.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DayOfPosts {
    pub date: NaiveDate,
    pub posts: i64,
    #[serde(flatten)]
    pub metrics: MetricSums,
}

/// The totals for all days.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostTotals {
    /// The number of posts. A post that was published on two days, on different accounts, counts once.
    pub posts: i64,
    #[serde(flatten)]
    pub metrics: MetricSums,
}

/// The metrics of a brand's posts, by day.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostSeries {
    pub start: NaiveDate,
    pub end: NaiveDate,
    pub granularity: &'static str,
    pub timezone: String,
    /// The number of days for which the plan shows metrics.
    pub retention_days: u64,
    /// One entry per day, oldest first.
    pub series: Vec<DayOfPosts>,
    pub totals: PostTotals,
}

pub fn endpoint() -> Endpoint<RequestedPosts, One<PostSeries>> {
    Endpoint::get("/brands/{brand}/analytics/posts", "getPostAnalytics", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Get the metrics of a brand's posts by publication day")
        .features(FEATURES)
        .checks_then_reads(show)
}

async fn show(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<RequestedPosts>>) -> Result<Reply<PostSeries>> {
    let RequestedPosts { days, account } = parsed.valid()?;
    let window = Window::of(cx, days)?;
    let days = window.days();
    let bounds: Vec<_> = days.iter().map(|day| window.bounds(*day)).collect();
    let found = analytics::posts_by_day(conn, cx.brand()?.id, account.account_id, &bounds).await?;
    let mut by_day = vec![(0, PostMetrics::default()); days.len()];
    for day in found.days {
        if let Some(place) = usize::try_from(day.day).ok().and_then(|place| by_day.get_mut(place)) {
            *place = (day.posts, day.metrics);
        }
    }
    let series = days.iter().zip(by_day).map(|(date, (posts, metrics))| DayOfPosts {
        date: *date,
        posts,
        metrics: metrics.into(),
    });
    Ok(Reply::from(PostSeries {
        start: window.start,
        end: window.end,
        granularity: "day",
        timezone: window.zone.to_string(),
        retention_days: window.retention_days,
        series: series.collect(),
        totals: PostTotals { posts: found.total.posts, metrics: found.total.metrics.into() },
    }))
}

impl From<PostMetrics> for MetricSums {
    fn from(metrics: PostMetrics) -> Self {
        let engagements = metrics.engagements();
        let PostMetrics { impressions, reach, likes, comments, shares, clicks } = metrics;
        Self { impressions, reach, likes, comments, shares, clicks, engagements }
    }
}
