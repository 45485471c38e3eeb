//! Content plans: items from which posts are created later.
//!
//! `items.rs` contains the items of requests, `limits.rs` checks their number and size, `schedule.rs` creates a post
//! from an item by the rules of `routes/posts`. The post is independent of the item: it does not change with the item,
//! and it stays when the item or the plan is deleted.

use chrono::NaiveDate;
use crier_domain::content_plan::{self, ItemStatus};
use crier_domain::plan::Feature;
use crier_store::{Tx, content_plans};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::fields::Problems;
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod create;
pub mod create_item;
pub mod create_items;
pub mod delete;
pub mod delete_item;
mod items;
mod limits;
pub mod list;
pub mod schedule;
pub mod show;
pub mod update;
pub mod update_item;

pub const TAG: &str = "Content plans";
const FEATURES: &[Feature] = &[Feature::ContentStrategy];

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        create_item::endpoint().erase(),
        create_items::endpoint().erase(),
        update_item::endpoint().erase(),
        delete_item::endpoint().erase(),
        schedule::endpoint().erase(),
    ]
}

/// An item of a content plan.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanItem {
    pub id: i64,
    #[schemars(extend("examples" = ["Rye week"]))]
    pub title: String,
    /// The content of the post created from the item.
    #[schemars(extend("examples" = ["All week: rye bread from our own sourdough."]))]
    pub content: Option<String>,
    pub planned_at: Option<ScheduledTimestamp>,
    /// The status of the item. It is `scheduled` while a post created from it exists.
    #[schemars(with = "TextEnum<ItemStatus>")]
    pub status: ItemStatus,
    /// The ID of the post created from the item. Null if there is no post or the post was deleted.
    #[schemars(extend("examples" = [null]))]
    pub post_id: Option<i64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A content plan with its items, ordered by planned time. Items without a time come last.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContentPlan {
    pub id: i64,
    #[schemars(extend("examples" = ["November"]))]
    pub name: String,
    #[schemars(extend("examples" = ["What we bake, day by day"]))]
    pub description: Option<String>,
    pub starts_on: Option<NaiveDate>,
    pub ends_on: Option<NaiveDate>,
    pub items: Vec<PlanItem>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<content_plan::PlanItem> for PlanItem {
    fn from(i: content_plan::PlanItem) -> Self {
        Self {
            id: i.id,
            status: i.status(),
            title: i.title,
            content: i.content,
            planned_at: i.planned_at.map(Into::into),
            post_id: i.post_id,
            created_at: i.created_at.into(),
            updated_at: i.updated_at.into(),
        }
    }
}

impl ContentPlan {
    fn new(plan: content_plan::ContentPlan, items: impl IntoIterator<Item = content_plan::PlanItem>) -> Self {
        Self {
            id: plan.id,
            name: plan.name,
            description: plan.description,
            starts_on: plan.starts_on,
            ends_on: plan.ends_on,
            items: items.into_iter().map(Into::into).collect(),
            created_at: plan.created_at.into(),
            updated_at: plan.updated_at.into(),
        }
    }
}

/// Rejects a plan that ends before it starts.
fn check_days(problems: &Problems, starts_on: Option<NaiveDate>, ends_on: Option<NaiveDate>) {
    if let (Some(starts), Some(ends)) = (starts_on, ends_on)
        && ends < starts
    {
        problems.add("ends_on", format!("Must be the start date, {starts}, or later."));
    }
}

/// Locks and returns the plan in the path; 404 if it does not exist.
async fn lock_plan(cx: &Context, tx: &mut Tx) -> Result<content_plan::ContentPlan> {
    let found = content_plans::find_for_update(tx, cx.brand()?.id, cx.id("plan")?).await?;
    found.ok_or_else(|| ApiError::not_found("content plan"))
}

/// Locks and returns the item in the path; 404 if it does not exist.
async fn lock_item(cx: &Context, tx: &mut Tx) -> Result<content_plan::PlanItem> {
    let found = content_plans::find_item_for_update(tx, cx.brand()?.id, cx.id("plan")?, cx.id("item")?).await?;
    found.ok_or_else(|| ApiError::not_found("plan item"))
}
