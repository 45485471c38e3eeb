//! `PUT /brands/{brand}/content-plans/{plan}/items/{item}`

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::access::Scope;
use crier_domain::content_plan::{self, PlanSize};
use crier_store::{Tx, content_plans};

use super::{FEATURES, PlanItem, TAG, create_item, items, limits, lock_item, lock_plan};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::Result;
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};
use crate::routes::posts::request::MAX_CONTENT_CHARS;

/// Changes to an item. Omitted fields keep their values. Null clears a field.
#[derive(Clone, Debug, Default, Request)]
pub struct PlanItemChange {
    #[field(text(items::TITLE_LENGTH))]
    pub title: PatchField<String>,
    #[field(text(0..=MAX_CONTENT_CHARS))]
    pub content: PatchField<String>,
    /// The planned time. A time without an offset is in the brand's time zone.
    #[field(time(), example = "{day+29}T07:00:00")]
    pub planned_at: PatchField<DateTime<Utc>>,
}

pub fn endpoint() -> Endpoint<PlanItemChange, One<PlanItem>> {
    Endpoint::put("/brands/{brand}/content-plans/{plan}/items/{item}", "updatePlanItem", Scope::ContentWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Update an item of a content plan")
        .description("A post created from the item does not change.")
        .extension()
        .features(FEATURES)
        .checks_then_writes(update)
        .with_rerender("item", create_item::show)
}

/// Returns the item with the change applied.
pub fn with_change(
    item: content_plan::PlanItem,
    title: PatchField<String>,
    content: PatchField<String>,
    planned_at: PatchField<DateTime<Utc>>,
) -> content_plan::PlanItem {
    content_plan::PlanItem {
        title: title.value().unwrap_or(item.title),
        content: content.map(Some).apply_to(item.content, None),
        planned_at: planned_at.map(Some).apply_to(item.planned_at, None),
        ..item
    }
}

fn text_size(item: &content_plan::PlanItem) -> usize {
    PlanSize::of([(item.title.as_str(), item.content.as_deref())]).text
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<PlanItemChange>>) -> Result<Reply<PlanItem>> {
    let plan = lock_plan(cx, tx).await?;
    let item = lock_item(cx, tx).await?;
    let change = parsed.valid()?.clone();
    let current = content_plans::size(tx, plan.id).await?;
    let others = current.text.saturating_sub(text_size(&item));
    let item = with_change(item, change.title, change.content, change.planned_at);
    let problems = parsed.problems();
    limits::check_size(&problems, "content", current, PlanSize { text: others + text_size(&item), ..current });
    problems.into_result()?;
    content_plans::update_item(tx, &item).await?;
    Ok(Reply::from(PlanItem::from(content_plan::PlanItem { updated_at: tx.now, ..item })))
}
