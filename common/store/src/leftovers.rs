//! Records of a plan's feature, which remain when the workspace changes to a plan without this feature.

use crier_domain::plan::Feature;

use super::db::run;
use super::{Conn, Result};

/// Returns whether the user or the brand has records of a feature that can be listed and deleted without that feature.
pub async fn exist(conn: &mut Conn, user_id: i64, brand_id: Option<i64>, feature: Feature) -> Result<bool> {
    let (sql, owner) = match feature {
        Feature::Webhooks => ("SELECT EXISTS (SELECT 1 FROM webhooks WHERE user_id = $1)", Some(user_id)),
        Feature::FeedReader => ("SELECT EXISTS (SELECT 1 FROM feeds WHERE brand_id = $1)", brand_id),
        Feature::ContentStrategy => ("SELECT EXISTS (SELECT 1 FROM content_plans WHERE brand_id = $1)", brand_id),
        Feature::LinkInBio => ("SELECT EXISTS (SELECT 1 FROM bio_pages WHERE brand_id = $1)", brand_id),
        Feature::Reports => ("SELECT EXISTS (SELECT 1 FROM reports WHERE brand_id = $1)", brand_id),
        Feature::BasicAnalytics | Feature::Analytics | Feature::Inbox | Feature::Approvals => return Ok(false),
    };
    let Some(owner) = owner else { return Ok(false) };
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(owner).fetch_one(c))?)
}
