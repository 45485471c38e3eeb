//! Content plans: posts that are planned but not created yet. An item becomes one post; if that post is deleted,
//! another one can be created from the item.

use chrono::{DateTime, NaiveDate, Utc};

crier_base::text_enum! {
    /// Whether an item has a post. Not stored.
    pub enum ItemStatus { Planned = "planned", Scheduled = "scheduled" }
}

crier_base::text_enum! {
    /// What an item becomes: a post at its time, a draft, or a post pending approval.
    pub enum Destination { Calendar = "calendar", Draft = "draft", Approval = "approval" }
}

/// Maximum number of plans of a brand. The list is not paginated; this and [`MAX_BRAND_ITEMS`] limit it.
pub const MAX_PLANS: usize = 100;
/// Maximum number of items of a plan.
pub const MAX_ITEMS: usize = 1_000;
/// Maximum number of items of all plans of a brand together.
pub const MAX_BRAND_ITEMS: usize = 5_000;
/// Maximum total size of the titles and contents of a plan's items, in bytes: one response contains a whole plan.
pub const MAX_TEXT: usize = 1 << 20;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
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

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct PlanItem {
    pub id: i64,
    pub plan_id: i64,
    pub title: String,
    pub content: Option<String>,
    pub planned_at: Option<DateTime<Utc>>,
    /// The post that was created from the item, unless it was deleted.
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An item without its content, for lists.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct PlanItemHead {
    pub id: i64,
    pub plan_id: i64,
    pub title: String,
    pub planned_at: Option<DateTime<Utc>>,
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The size of a plan, which is limited.
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
    /// Returns the status of an item with this post.
    pub const fn of(post_id: Option<i64>) -> Self {
        if post_id.is_some() { Self::Scheduled } else { Self::Planned }
    }
}
