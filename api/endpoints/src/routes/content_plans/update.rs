//! `PUT /brands/{brand}/content-plans/{plan}`

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use crier_domain::access::Scope;
use crier_domain::content_plan::{MAX_ITEMS, PlanItem, PlanSize};
use crier_store::Tx;
use crier_store::content_plans::{self, NewItem};

use super::{ContentPlan, FEATURES, TAG, check_days, items, limits, lock_plan, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::fields::{Fields, PatchField, Problems, steps};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};
use crate::routes::posts::request::MAX_CONTENT_CHARS;

/// Changes to a content plan. Omitted fields keep their values. Null clears a field.
#[derive(Clone, Debug, Default, Request)]
pub struct ContentPlanChange {
    #[field(text(1..=120), example = "Early spring")]
    pub name: PatchField<String>,
    #[field(text(0..=2000))]
    pub description: PatchField<String>,
    #[field(date())]
    pub starts_on: PatchField<NaiveDate>,
    /// The last day. Must not be before `starts_on`.
    #[field(date(), example = "{day+63}")]
    pub ends_on: PatchField<NaiveDate>,
    /// The complete list of items. An item with an `id` is updated, an item without one is created, and items that are
    /// not in the list are deleted.
    #[field(objects(MAX_ITEMS))]
    pub items: PatchField<Vec<PlanItemEntry>>,
}

/// An item in the complete list of a plan's items.
#[derive(Clone, Debug, Default, Request)]
#[request(check = check_entry)]
pub struct PlanItemEntry {
    /// The ID of an item of the plan. If omitted, a new item is created.
    #[field(id())]
    pub id: Option<i64>,
    /// The title. Required for a new item.
    #[field(text(items::TITLE_LENGTH))]
    pub title: PatchField<String>,
    #[field(text(0..=MAX_CONTENT_CHARS))]
    pub content: PatchField<String>,
    /// The planned time. A time without an offset is in the brand's time zone.
    #[field(time())]
    pub planned_at: PatchField<DateTime<Utc>>,
}

pub fn endpoint() -> Endpoint<ContentPlanChange, One<ContentPlan>> {
    Endpoint::put("/brands/{brand}/content-plans/{plan}", "updateContentPlan", Scope::ContentWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Update a content plan")
        .description("Posts created from deleted items are kept.")
        .extension()
        .features(FEATURES)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(update)
        .with_rerender("plan", show::show)
}

fn check_entry(entry: &PlanItemEntry, fields: &Fields<'_>) {
    if entry.id.is_none() && !fields.problems.has(&fields.path("id")) {
        fields.required("title", entry.title.clone());
    }
}

fn size_of(items: &[PlanItem]) -> PlanSize {
    PlanSize::of(items.iter().map(|item| (item.title.as_str(), item.content.as_deref())))
}

/// Returns the plan's size after the change. Omitted fields of an entry keep the values of the item with its id.
fn size_after(entries: &[PlanItemEntry], by_id: &HashMap<i64, &PlanItem>) -> PlanSize {
    PlanSize::of(entries.iter().map(|entry| {
        let old = entry.id.and_then(|id| by_id.get(&id));
        let title = match &entry.title {
            PatchField::Value(title) => title.as_str(),
            PatchField::Omitted | PatchField::Null => old.map_or("", |item| item.title.as_str()),
        };
        let content = match &entry.content {
            PatchField::Value(content) => Some(content.as_str()),
            PatchField::Omitted => old.and_then(|item| item.content.as_deref()),
            PatchField::Null => None,
        };
        (title, content)
    }))
}

fn check_entries(problems: &Problems, entries: &[PlanItemEntry], items: &[PlanItem]) {
    let by_id: HashMap<i64, &PlanItem> = items.iter().map(|item| (item.id, item)).collect();
    limits::check_size(problems, "items", size_of(items), size_after(entries, &by_id));
    if problems.has("items") {
        return;
    }
    let mut seen = HashSet::with_capacity(entries.len());
    for (i, id) in entries.iter().enumerate().filter_map(|(i, entry)| Some((i, entry.id?))) {
        steps::count_step();
        if !by_id.contains_key(&id) {
            problems.add(format!("items.{i}.id"), format!("Item {id} does not exist in this plan."));
        } else if !seen.insert(id) {
            problems.add(format!("items.{i}.id"), format!("{id} is a duplicate. List each ID only once."));
        }
    }
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ContentPlanChange>>) -> Result<Reply<ContentPlan>> {
    let mut plan = lock_plan(cx, tx).await?;
    let current = content_plans::items(tx, plan.id).await?;
    let (change, problems) = (parsed.partial()?.clone(), parsed.problems());
    let days = (change.starts_on.clone().map(Some), change.ends_on.clone().map(Some));
    check_days(&problems, days.0.apply_to(plan.starts_on, None), days.1.apply_to(plan.ends_on, None));
    let mut more = 0;
    if let PatchField::Value(entries) = &change.items {
        check_entries(&problems, entries, &current);
        more = entries.len().saturating_sub(current.len());
    }
    problems.into_result()?;
    limits::check_items(cx, tx, more).await?;
    plan.name = change.name.value().unwrap_or(plan.name);
    plan.description = change.description.map(Some).apply_to(plan.description, None);
    plan.starts_on = change.starts_on.map(Some).apply_to(plan.starts_on, None);
    plan.ends_on = change.ends_on.map(Some).apply_to(plan.ends_on, None);
    plan.updated_at = tx.now;
    content_plans::update(tx, &plan).await?;
    match change.items {
        PatchField::Omitted => {}
        PatchField::Null => replace(cx, tx, plan.id, current, Vec::new()).await?,
        PatchField::Value(entries) => replace(cx, tx, plan.id, current, entries).await?,
    }
    let items = content_plans::items(tx, plan.id).await?;
    Ok(Reply::from(ContentPlan::new(plan, items)))
}

/// Replaces the plan's items with the entries.
async fn replace(
    cx: &Context,
    tx: &mut Tx,
    plan_id: i64,
    current: Vec<PlanItem>,
    entries: Vec<PlanItemEntry>,
) -> Result<()> {
    let brand = cx.brand()?.id;
    let mut new = Vec::new();
    let mut updates = Vec::new();
    let mut current: BTreeMap<i64, PlanItem> = current.into_iter().map(|item| (item.id, item)).collect();
    for entry in entries {
        match entry.id.and_then(|id| current.remove(&id)) {
            Some(item) => updates.push((item, entry)),
            None => new.push(NewItem {
                title: entry.title.value().unwrap_or_default(),
                content: entry.content.value(),
                planned_at: entry.planned_at.value(),
            }),
        }
    }
    for removed_id in current.into_keys() {
        content_plans::delete_item(tx, brand, plan_id, removed_id).await?;
    }
    for (item, entry) in updates {
        let changed = super::update_item::with_change(item.clone(), entry.title, entry.content, entry.planned_at);
        if (&changed.title, &changed.content, changed.planned_at) != (&item.title, &item.content, item.planned_at) {
            content_plans::update_item(tx, &changed).await?;
        }
    }
    content_plans::add_items(tx, plan_id, &new).await?;
    Ok(())
}
