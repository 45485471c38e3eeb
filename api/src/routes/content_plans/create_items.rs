//! `POST /brands/{brand}/content-plans/{plan}/items/bulk`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, Tx, content_plans};
use schemars::JsonSchema;
use serde_json::json;

use super::items::{self, NewPlanItem};
use super::{FEATURES, PlanItem, TAG, limits, lock_plan};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::request::Parsed;
use crate::response::{Many, Reply};

/// The items to create. Crier creates either all or none of them.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename = "NewPlanItems")]
pub struct CreatePlanItemsRequest {
    #[schemars(length(min = 1, max = items::MAX_NEW_ITEMS))]
    pub items: Vec<NewPlanItem>,
}

pub fn endpoint() -> Endpoint<CreatePlanItemsRequest, Many<PlanItem>> {
    Endpoint::post("/brands/{brand}/content-plans/{plan}/items/bulk", "createPlanItems", Scope::ContentWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Add several items to a content plan")
        .description(
            "Crier adds either all of the items (at most 500) or none. The response contains them in the order of the \
             request.",
        )
        .extension()
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("item", show)

// EXAMPLE CreatePlanItemsRequest: json!({ "items": [ { "title": "Hot cross buns", "content": "They are back.", "planned_at": "{day+28}T07:00:00" }, { "title": "Opening hours at Easter" } ] })
}

fn read(f: &Fields<'_>, zone: &str) -> Option<CreatePlanItemsRequest> {
    let list = f.required("items", items::read_all(f, zone))?;
    if list.is_empty() && !f.problems.has("items") {
        f.problem("items", "Must have at least one item.");
    }
    Some(CreatePlanItemsRequest { items: list })
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreatePlanItemsRequest>>,
) -> Result<Reply<Vec<PlanItem>>> {
    let plan = lock_plan(cx, tx).await?;
    let brand = cx.brand()?;
    let current = content_plans::size(tx, plan.id).await?;
    let problems = parsed.problems();
    let items = parsed.value.as_ref().map_or(&[][..], |new| &new.items);
    limits::check_size(&problems, "items", current, items::size_with_new_items(current, items));
    problems.into_result()?;
    let new = parsed.valid()?;
    limits::check_items(cx, tx, new.items.len()).await?;
    let rows: Vec<_> = new.items.iter().cloned().map(Into::into).collect();
    let ids = content_plans::add_items(tx, plan.id, &rows).await?;
    let created = content_plans::find_items(tx, brand.id, plan.id, &ids).await?;
    let records: Vec<PlanItem> = created.into_iter().map(Into::into).collect();
    Ok(Reply::at(&format!("/brands/{}/content-plans/{}", brand.id, plan.id), records).with_records(ids))
}

/// Returns the created items that still exist.
async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<PlanItem>>> {
    let ids: Vec<i64> = cx.ids.iter().filter(|(name, _)| *name == "item").map(|(_, id)| *id).collect();
    let found = content_plans::find_items(conn, cx.brand()?.id, cx.id("plan")?, &ids).await?;
    if found.is_empty() {
        return Err(ApiError::not_found("plan item"));
    }
    Ok(Reply::from(found.into_iter().map(PlanItem::from).collect::<Vec<_>>()))
}
