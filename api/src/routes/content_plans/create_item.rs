//! `POST /brands/{brand}/content-plans/{plan}/items`

use std::sync::Arc;

use crier_common::domain::access::Scope;
use crier_common::store::{Tx, content_plans};
use serde_json::json;

use super::items::{self, NewPlanItem};
use super::{FEATURES, PlanItem, TAG, hold};
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::{Endpoint, Shape};
use crate::error::{ApiError, Result};
use crate::fields::Said;

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
        .checks_then_writes(|cx| cx.said(|f| items::read(f, cx.zone())), create)
}

async fn create(cx: &Context, tx: &mut Tx, said: Arc<Said<Option<NewPlanItem>>>) -> Result<Answer> {
    let plan = hold(cx, tx).await?;
    let brand = cx.brand()?;
    let there = content_plans::count_items(tx, plan.id).await?;
    let problems = said.problems();
    items::check_count(&problems, there, 1);
    problems.done()?;
    let new = said.valid()?.clone();
    let made = content_plans::add_items(tx, plan.id, &[new.into()]).await?;
    let id = made.first().copied().ok_or_else(|| ApiError::bug("an item was not made"))?;
    let item = content_plans::find_item(tx, brand.id, plan.id, id).await?;
    let item = item.ok_or_else(|| ApiError::bug("an item just made is gone"))?;
    // An item is read with its plan, so that is where it is.
    Answer::created(&format!("/brands/{}/content-plans/{}", brand.id, plan.id), PlanItem::from(item))
}
