//! `POST /brands/{brand}/content-plans/{plan}/items/bulk`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, Tx, content_plans};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::items::{self, MAX_NEW_ITEMS, NewPlanItem};
use super::{FEATURES, PlanItem, TAG, limits, lock_plan};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::formats::objects;
use crate::request::{Format, Parsed, Request};
use crate::response::{Many, Reply};

/// The items to create. Crier creates either all or none of them.
#[derive(Clone, Debug, Request)]
#[request(name = "NewPlanItems")]
pub struct CreatePlanItemsRequest {
    #[field(at_least_one_item(), example)]
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
}

/// The items of a request, at least one.
fn at_least_one_item() -> AtLeastOneItem {
    AtLeastOneItem
}

struct AtLeastOneItem;

impl Format for AtLeastOneItem {
    type Value = Vec<NewPlanItem>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<NewPlanItem>> {
        let items = objects::<NewPlanItem>(MAX_NEW_ITEMS).read(fields, name);
        if matches!(&items, PatchField::Value(all) if all.is_empty()) && !fields.problems.has(&fields.path(name)) {
            fields.problem(name, "Must have at least one item.");
        }
        items
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let mut schema = objects::<NewPlanItem>(MAX_NEW_ITEMS).schema(generator);
        schema.insert("minItems".to_owned(), 1.into());
        schema
    }

    fn example(&self) -> Value {
        json!([NewPlanItem::example(), { "title": "Opening hours at Easter" }])
    }
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreatePlanItemsRequest>>,
) -> Result<Reply<Vec<PlanItem>>> {
    let plan = lock_plan(cx, tx).await?;
    let brand = cx.brand()?;
    let current = content_plans::size(tx, plan.id).await?;
    let (new, problems) = (parsed.partial()?, parsed.problems());
    limits::check_size(&problems, "items", current, items::size_with_new_items(current, &new.items));
    problems.into_result()?;
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
