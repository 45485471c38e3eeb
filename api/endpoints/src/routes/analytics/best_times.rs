//! `GET /brands/{brand}/analytics/best-times`

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{Datelike, Timelike};
use crier_domain::access::Scope;
use crier_store::{Conn, analytics};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, RequestedAccount, TAG, Window};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The maximum number of targets that the statistics include, newest first.
const MAX_TARGETS: i64 = 5_000;
/// The minimum number of posts for a meaningful mean.
const MIN_POSTS: i64 = 3;

/// An hour of the week in which posts were published.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Slot {
    /// The day of the week, from 1 (Monday) to 7 (Sunday).
    pub weekday: u32,
    /// The hour, from 0 to 23, in the brand's time zone.
    pub hour: u32,
    /// The number of posts published in this hour.
    pub posts: i64,
    /// The mean number of engagements per post. Null if the metrics of fewer than three posts are known.
    pub engagements_per_post: Option<f64>,
}

/// The performance of a brand's posts, by hour of the week.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BestTimes {
    pub timezone: String,
    /// The hours with posts, Monday first.
    pub slots: Vec<Slot>,
}

pub fn endpoint() -> Endpoint<RequestedAccount, One<BestTimes>> {
    Endpoint::get("/brands/{brand}/analytics/best-times", "getBestTimes", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Get a brand's best times to publish")
        .features(FEATURES)
        .extension()
        .checks_then_reads(show)
}

async fn show(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<RequestedAccount>>) -> Result<Reply<BestTimes>> {
    let account = parsed.valid()?.account_id;
    let window = Window::of_plan(cx);
    let posts = analytics::engagements(conn, cx.brand()?.id, account, window.starts_at(), MAX_TARGETS).await?;
    // The number of posts, the number with known metrics, and the sum of their engagements.
    let mut slots: BTreeMap<(u32, u32), (i64, i64, i64)> = BTreeMap::new();
    for post in posts {
        let at = post.published_at.with_timezone(&window.zone);
        let slot = slots.entry((at.weekday().number_from_monday(), at.hour())).or_default();
        slot.0 += 1;
        if let Some(engagements) = post.engagements {
            slot.1 += 1;
            slot.2 = slot.2.saturating_add(engagements);
        }
    }
    let slots = slots.into_iter().map(|((weekday, hour), (posts, known, sum))| {
        let mean = (known >= MIN_POSTS).then(|| (sum as f64 / known as f64 * 100.0).round() / 100.0);
        Slot { weekday, hour, posts, engagements_per_post: mean }
    });
    Ok(Reply::from(BestTimes { timezone: window.zone.to_string(), slots: slots.collect() }))
}
