//! `GET /brands/{brand}/content-plans/{plan}`

use crier_domain::access::Scope;
use crier_store::{Conn, content_plans};

use super::{ContentPlan, FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<ContentPlan>> {
    Endpoint::get("/brands/{brand}/content-plans/{plan}", "getContentPlan", Scope::ContentRead)
        .tag(TAG)
        .summary("Get a content plan with its items")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<ContentPlan>> {
    let plan = content_plans::find(conn, cx.brand()?.id, cx.id("plan")?).await?;
    let plan = plan.ok_or_else(|| ApiError::not_found("content plan"))?;
    let items = content_plans::items(conn, plan.id).await?;
    Ok(Reply::from(ContentPlan::new(plan, items)))
}
