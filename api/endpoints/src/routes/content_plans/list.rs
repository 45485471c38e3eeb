//! `GET /brands/{brand}/content-plans`

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::content_plan::{ContentPlan, ItemStatus, PlanItemHead as StoredItem};
use crier_store::{Conn, content_plans};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply, ScheduledTimestamp, Timestamp};

/// An item in a list of content plans, without its content.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanItemHead {
    pub id: i64,
    #[schemars(extend("examples" = ["Rye week"]))]
    pub title: String,
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

/// A content plan in a list. Its items do not include their content.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContentPlanHead {
    pub id: i64,
    #[schemars(extend("examples" = ["November"]))]
    pub name: String,
    #[schemars(extend("examples" = ["What we bake, day by day"]))]
    pub description: Option<String>,
    pub starts_on: Option<NaiveDate>,
    pub ends_on: Option<NaiveDate>,
    /// The items, ordered by planned time. Items without a time come last.
    pub items: Vec<PlanItemHead>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub fn endpoint() -> Endpoint<(), Many<ContentPlanHead>> {
    Endpoint::get("/brands/{brand}/content-plans", "listContentPlans", Scope::ContentRead)
        .tag(TAG)
        .summary("List a brand's content plans with their items, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .description("The items do not include their `content`. Get a single plan for the content.")
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<ContentPlanHead>>> {
    let brand = cx.brand()?.id;
    let plans = content_plans::list(conn, brand).await?;
    let mut items = content_plans::items_of_brand(conn, brand).await?.into_iter().peekable();
    // Both lists are ordered by plan, newest first.
    let records = plans.into_iter().map(|plan| {
        // Skips items of a plan that was created between the two queries.
        std::iter::from_fn(|| items.next_if(|item| item.plan_id > plan.id)).for_each(drop);
        let own: Vec<_> = std::iter::from_fn(|| items.next_if(|item| item.plan_id == plan.id)).collect();
        ContentPlanHead::new(plan, own)
    });
    Ok(Reply::from(records.collect::<Vec<_>>()))
}

impl From<StoredItem> for PlanItemHead {
    fn from(item: StoredItem) -> Self {
        Self {
            id: item.id,
            title: item.title,
            planned_at: item.planned_at.map(Into::into),
            status: ItemStatus::of(item.post_id),
            post_id: item.post_id,
            created_at: item.created_at.into(),
            updated_at: item.updated_at.into(),
        }
    }
}

impl ContentPlanHead {
    fn new(plan: ContentPlan, items: impl IntoIterator<Item = StoredItem>) -> Self {
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
