//! `GET /brands/{brand}/posts/{post}/analytics`

use crier_domain::access::Scope;
use crier_domain::platform::Platform;
use crier_store::{Conn, analytics, targets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, Window};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply, Timestamp};
use crate::routes::posts::show;

/// The metrics of a target at one time, counted from its publication.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TargetPoint {
    pub at: Timestamp,
    pub impressions: Option<i64>,
    pub reach: Option<i64>,
    pub likes: Option<i64>,
    pub comments: Option<i64>,
    pub shares: Option<i64>,
    pub clicks: Option<i64>,
}

/// The metrics of a post on one account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TargetSeries {
    pub target_id: i64,
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// Oldest first.
    pub points: Vec<TargetPoint>,
}

/// The metrics of a post.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostAnalytics {
    pub post_id: i64,
    pub targets: Vec<TargetSeries>,
}

pub fn endpoint() -> Endpoint<(), One<PostAnalytics>> {
    Endpoint::get("/brands/{brand}/posts/{post}/analytics", "getAnalyticsOfPost", Scope::AnalyticsRead)
        .tag(TAG)
        .summary("Get the metrics of a post over time")
        .features(FEATURES)
        .extension()
        .reads(read)
}

async fn read(cx: &Context, conn: &mut Conn) -> Result<Reply<PostAnalytics>> {
    let post = show::find(cx, conn).await?;
    let found = analytics::of_post(conn, post.id, Window::of_plan(cx).starts_at()).await?;
    let targets = targets::list(conn, post.id).await?.into_iter().map(|target| {
        let own = found.iter().filter(|snapshot| snapshot.target_id == target.id);
        let points = own.map(|snapshot| {
            let m = snapshot.metrics;
            TargetPoint {
                at: snapshot.at.into(),
                impressions: m.impressions,
                reach: m.reach,
                likes: m.likes,
                comments: m.comments,
                shares: m.shares,
                clicks: m.clicks,
            }
        });
        TargetSeries {
            target_id: target.id,
            account_id: target.account_id,
            platform: target.platform,
            points: points.collect(),
        }
    });
    Ok(Reply::from(PostAnalytics { post_id: post.id, targets: targets.collect() }))
}
