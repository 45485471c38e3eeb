//! Content plans: what is to be posted, before it is a post. An item is made into a post once; deleting that post frees it.

use chrono::{DateTime, NaiveDate, Utc};

crate::text_enum! {
    /// Whether an item has a post. It is told from the post, and stored nowhere.
    pub enum ItemStatus { Planned = "planned", Scheduled = "scheduled" }
}

crate::text_enum! {
    /// What becomes of an item: a post at its time, a draft, or a post that waits for approval.
    pub enum Destination { Calendar = "calendar", Draft = "draft", Approval = "approval" }
}

/// How many plans a brand may have. Plans are listed without pages, so this and [`MAX_BRAND_ITEMS`] bound the list.
pub const MAX_PLANS: usize = 100;
/// How many items one plan may have.
pub const MAX_ITEMS: usize = 1_000;
/// How many items all plans of a brand may have together.
pub const MAX_BRAND_ITEMS: usize = 5_000;
/// How many bytes the titles and contents of a plan's items may have together: a plan is answered whole.
pub const MAX_TEXT: usize = 1 << 20;

#[derive(Clone, Debug, sqlx::FromRow)]
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

#[derive(Clone, Debug, sqlx::FromRow)]
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

/// An item as it is listed: without its content.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PlanItemHead {
    pub id: i64,
    pub plan_id: i64,
    pub title: String,
    pub planned_at: Option<DateTime<Utc>>,
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What a plan has of what is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSize {
    pub items: usize,
    /// The bytes of their titles and contents.
    pub text: usize,
}

impl PlanSize {
    /// The size of items with these titles and contents.
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
    /// By the post made from the item.
    pub const fn of(post_id: Option<i64>) -> Self {
        if post_id.is_some() { Self::Scheduled } else { Self::Planned }
    }
}
