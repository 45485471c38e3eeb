//! `GET /brands/{brand}/analytics/best-times`

use std::collections::BTreeMap;

use chrono::{Datelike, Timelike};
use crier_domain::access::Scope;
use crier_store::{Conn, analytics};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, Window};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

/// How many of the newest posts on accounts are looked at.
const LOOKED_AT: i64 = 5_000;
/// Fewer posts say nothing.
const MIN_POSTS: i64 = 3;

/// An hour of the week in which posts were published.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Slot {
    /// 1 is Monday.
    pub weekday: u32,
    /// 0 to 23, in the brand's time zone.
    pub hour: u32,
    /// How many posts the figure rests on.
    pub posts: i64,
    /// Null under three posts whose figures are known.
    pub engagements_per_post: Option<f64>,
}

/// How the brand's posts did by the hour of the week.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BestTimes {
    pub timezone: String,
    /// The hours with posts, Monday first.
    pub slots: Vec<Slot>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/analytics/best-times", "getBestTimes", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Read when the brand's posts did best")
        .features(FEATURES)
        .extension()
        .response::<BestTimes>(200, ResponseShape::One)
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let window = Window::of_plan(cx);
    let posts = analytics::engagements(conn, cx.brand()?.id, window.starts_at(), LOOKED_AT).await?;
    // Posts, those whose figures are known, and the sum of these.
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
    ApiResponse::ok(BestTimes { timezone: window.zone.to_string(), slots: slots.collect() })
}
