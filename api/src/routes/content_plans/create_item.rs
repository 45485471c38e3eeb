//! `POST /brands/{brand}/content-plans/{plan}/items`

use crier_common::domain::access::Scope;
use crier_common::store::{Tx, content_plans};
use serde_json::json;

use super::items::{self, NewPlanItem};
use super::{FEATURES, PlanItem, TAG, hold};
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::{Endpoint, Shape};
use crate::error::{ApiError, Result};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/content-plans/{plan}/items", "createPlanItem", Scope::ContentWrite)
        .tag(TAG)
        .summary("Add an item to a content plan")
        .extension()
        .features(FEATURES)
        .body::<NewPlanItem>(json!({
            "title": "Hot cross buns", "content": "They are back.", "planned_at": "2027-03-01T07:00:00"
        }))
        .answers::<PlanItem>(201, Shape::One)
        .writes(create)
}

async fn create(cx: &Context, tx: &mut Tx) -> Result<Answer> {
    let plan = hold(cx, tx).await?;
    let brand = cx.brand()?;
    let there = content_plans::count_items(tx, plan.id).await?;
    let new = cx.read(|f| {
        items::check_count(f, there, 1);
        items::read(f, &brand.timezone)
    })?;
    let made = content_plans::add_items(tx, plan.id, &[new.into()]).await?;
    let id = made.first().copied().ok_or_else(|| ApiError::bug("an item was not made"))?;
    let item = content_plans::find_item(tx, brand.id, plan.id, id).await?;
    let item = item.ok_or_else(|| ApiError::bug("an item just made is gone"))?;
    // An item is read with its plan, so that is where it is.
    Answer::created(&format!("/brands/{}/content-plans/{}", brand.id, plan.id), PlanItem::from(item))
}
