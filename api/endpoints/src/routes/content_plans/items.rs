//! Items in requests.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use crier_domain::content_plan::PlanSize;
use crier_store::content_plans;

use crate::request::Request;
use crate::routes::posts::request::MAX_CONTENT_CHARS;

pub const TITLE_LENGTH: RangeInclusive<usize> = 1..=200;
/// The maximum number of items created by one request.
pub const MAX_NEW_ITEMS: usize = 500;

/// The item to create.
#[derive(Clone, Debug, Request)]
pub struct NewPlanItem {
    #[field(text(TITLE_LENGTH), example = "Hot cross buns")]
    pub title: String,
    /// The content of a post created from the item.
    #[field(text(0..=MAX_CONTENT_CHARS), example = "They are back.")]
    pub content: Option<String>,
    /// The planned time. A time without an offset is in the brand's time zone.
    #[field(time(), example = "{day+28}T07:00:00")]
    pub planned_at: Option<DateTime<Utc>>,
}

impl From<NewPlanItem> for content_plans::NewItem {
    fn from(new: NewPlanItem) -> Self {
        Self { title: new.title, content: new.content, planned_at: new.planned_at }
    }
}

/// Returns the plan's size after the new items are added.
pub fn size_with_new_items(size: PlanSize, new: &[NewPlanItem]) -> PlanSize {
    let new = PlanSize::of(new.iter().map(|item| (item.title.as_str(), item.content.as_deref())));
    PlanSize { items: size.items + new.items, text: size.text + new.text }
}
