//! Items in request bodies.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use crier_domain::content_plan::PlanSize;
use crier_store::content_plans;
use schemars::JsonSchema;

use crate::fields::{Fields, PatchField};
use crate::routes::posts::edit::MAX_CONTENT_CHARS;

pub const TITLE_LENGTH: RangeInclusive<usize> = 1..=200;
/// The maximum number of items created by one request.
pub const MAX_NEW_ITEMS: usize = 500;

/// The item to create.
#[derive(Clone, Debug, JsonSchema)]
pub struct NewPlanItem {
    #[schemars(length(min = 1, max = 200))]
    pub title: String,
    /// The content of a post created from the item.
    #[schemars(length(max = MAX_CONTENT_CHARS))]
    pub content: Option<String>,
    /// The planned time. A time without an offset is in the brand's time zone.
    pub planned_at: Option<DateTime<Utc>>,
}

impl From<NewPlanItem> for content_plans::NewItem {
    fn from(new: NewPlanItem) -> Self {
        Self { title: new.title, content: new.content, planned_at: new.planned_at }
    }
}

/// Parses one item. `zone` is the brand's time zone.
pub fn read(f: &Fields<'_>, zone: &str) -> Option<NewPlanItem> {
    let title = f.required("title", f.text("title", TITLE_LENGTH));
    let content = f.text("content", 0..=MAX_CONTENT_CHARS).value();
    let planned_at = f.time("planned_at", zone).value();
    Some(NewPlanItem { title: title?, content, planned_at })
}

/// Parses `items`. Rejects more than [`MAX_NEW_ITEMS`].
pub fn read_all(f: &Fields<'_>, zone: &str) -> PatchField<Vec<NewPlanItem>> {
    f.objects("items", MAX_NEW_ITEMS, |item| read(item, zone))
}

/// Returns the plan's size after the new items are added.
pub fn size_with_new_items(size: PlanSize, new: &[NewPlanItem]) -> PlanSize {
    let new = PlanSize::of(new.iter().map(|item| (item.title.as_str(), item.content.as_deref())));
    PlanSize { items: size.items + new.items, text: size.text + new.text }
}
