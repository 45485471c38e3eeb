//! `GET /brands/{brand}/content-plans`

use crier_domain::access::Scope;
use crier_store::{Conn, content_plans};

use super::{ContentPlanHead, FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/content-plans", "listContentPlans", Scope::ContentRead)
        .tag(TAG)
        .summary("List a brand's content plans with their items, newest first")
        .features(FEATURES)
        .description("The items are listed without their `content`; read a plan for that.")
        .response::<ContentPlanHead>(200, ResponseShape::Many)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let brand = cx.brand()?.id;
    let plans = content_plans::list(conn, brand).await?;
    let mut items = content_plans::items_of_brand(conn, brand).await?.into_iter().peekable();
    // Both lists are ordered by plan, newest first. Items of a plan created between the two queries are skipped.
    let shown = plans.into_iter().map(|plan| {
        while items.next_if(|item| item.plan_id > plan.id).is_some() {}
        let own: Vec<_> = std::iter::from_fn(|| items.next_if(|item| item.plan_id == plan.id)).collect();
        ContentPlanHead::new(plan, own)
    });
    ApiResponse::ok(shown.collect::<Vec<_>>())
}
