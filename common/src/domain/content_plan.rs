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

/// How many items one plan may have, so that a list of plans stays one answer.
pub const MOST_ITEMS: usize = 1_000;

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

impl PlanItem {
    pub const fn status(&self) -> ItemStatus {
        if self.post_id.is_some() { ItemStatus::Scheduled } else { ItemStatus::Planned }
    }
}
