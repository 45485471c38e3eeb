//! Content plans: posts that are planned but not created yet. An item becomes a post once; deleting that post frees the
//! item.

use chrono::{DateTime, NaiveDate, Utc};

crier_base::text_enum! {
    /// Whether an item has a post. It is derived from the post, and not stored.
    pub enum ItemStatus { Planned = "planned", Scheduled = "scheduled" }
}

crier_base::text_enum! {
    /// What is made of an item: a post at its time, a draft, or a post that waits for approval.
    pub enum Destination { Calendar = "calendar", Draft = "draft", Approval = "approval" }
}

/// Maximum number of plans of a brand. The list is not paginated; this and [`MAX_BRAND_ITEMS`] bound it.
pub const MAX_PLANS: usize = 100;
/// Maximum number of items of a plan.
pub const MAX_ITEMS: usize = 1_000;
/// Maximum number of items of all plans of a brand together.
pub const MAX_BRAND_ITEMS: usize = 5_000;
/// Maximum total size of the titles and contents of a plan's items, in bytes: a plan is returned whole.
pub const MAX_TEXT: usize = 1 << 20;

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct ContentPlan {
    pub id: i64,
    pub name: String,
    pub description: Option<String>,
    pub starts_on: Option<NaiveDate>,
    /// Not before `starts_on`.
    pub ends_on: Option<NaiveDate>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct PlanItem {
    pub id: i64,
    pub plan_id: i64,
    pub title: String,
    pub content: Option<String>,
    pub planned_at: Option<DateTime<Utc>>,
    /// The post made from it, unless that was deleted.
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An item in a list: without its content.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct PlanItemHead {
    pub id: i64,
    pub plan_id: i64,
    pub title: String,
    pub planned_at: Option<DateTime<Utc>>,
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The sizes of a plan that are limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSize {
    pub items: usize,
    /// Total size of titles and contents in bytes.
    pub text: usize,
}

impl PlanSize {
    /// Returns the size of items with these titles and contents.
    pub fn of<'a>(items: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        items.into_iter().fold(Self::default(), |size, (title, content)| Self {
            items: size.items + 1,
            text: size.text + title.len() + content.map_or(0, str::len),
        })
    }
}

impl PlanItem {
    pub const fn status(&self) -> ItemStatus {
        ItemStatus::of(self.post_id)
    }
}

impl ItemStatus {
    /// Returns the status, derived from the item's post.
    pub const fn of(post_id: Option<i64>) -> Self {
        if post_id.is_some() { Self::Scheduled } else { Self::Planned }
    }
}
