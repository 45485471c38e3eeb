//! `POST /brands/{brand}/content-plans/{plan}/items`

use std::slice;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, Tx, content_plans};

use super::items::{self, NewPlanItem};
use super::{FEATURES, PlanItem, TAG, limits, lock_plan};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::Parsed;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<NewPlanItem, One<PlanItem>> {
    Endpoint::post("/brands/{brand}/content-plans/{plan}/items", "createPlanItem", Scope::ContentWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Add an item to a content plan")
        .extension()
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("item", show)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<NewPlanItem>>) -> Result<Reply<PlanItem>> {
    let plan = lock_plan(cx, tx).await?;
    let brand = cx.brand()?;
    let current = content_plans::size(tx, plan.id).await?;
    let (new, problems) = (parsed.partial()?, parsed.problems());
    limits::check_size(&problems, "items", current, items::size_with_new_items(current, slice::from_ref(new)));
    problems.into_result()?;
    limits::check_items(cx, tx, 1).await?;
    let ids = content_plans::add_items(tx, plan.id, &[new.clone().into()]).await?;
    let id = ids.first().copied().ok_or_else(|| ApiError::bug("an item was not created"))?;
    let item = content_plans::find_item(tx, brand.id, plan.id, id).await?;
    let item = item.ok_or_else(|| ApiError::bug("an item was not found after it was created"))?;
    // Items have no GET endpoint of their own, so `Location` is the plan.
    let path = format!("/brands/{}/content-plans/{}", brand.id, plan.id);
    Ok(Reply::at(&path, PlanItem::from(item)).with_records([id]))
}

/// Returns one item, in the form of the create and update responses.
pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<PlanItem>> {
    let item = content_plans::find_item(conn, cx.brand()?.id, cx.id("plan")?, cx.id("item")?).await?;
    Ok(Reply::from(PlanItem::from(item.ok_or_else(|| ApiError::not_found("plan item"))?)))
}
