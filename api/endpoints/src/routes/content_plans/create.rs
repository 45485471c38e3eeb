//! `POST /brands/{brand}/content-plans`

use std::sync::Arc;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::content_plan::PlanSize;
use crier_store::Tx;
use crier_store::content_plans::{self, NewPlan};

use super::items::{self, NewPlanItem};
use super::{ContentPlan, FEATURES, TAG, check_days, limits, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The content plan to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewContentPlan", check = check)]
pub struct CreateContentPlanRequest {
    // `None` only if there is a problem with it. The other fields are checked even then.
    #[field(text(1..=120), required, example = "Spring")]
    pub name: Option<String>,
    #[field(text(0..=2000), example = "Six weeks before Easter")]
    pub description: Option<String>,
    #[field(date(), example = "{day+14}")]
    pub starts_on: Option<NaiveDate>,
    /// The last day. Must not be before `starts_on`.
    #[field(date(), example = "{day+56}")]
    pub ends_on: Option<NaiveDate>,
    #[field(objects(items::MAX_NEW_ITEMS), example)]
    pub items: Option<Vec<NewPlanItem>>,
}

const LIMITS: &str = "A brand can have at most 100 plans, with at most 5,000 items in total. A plan can have at most \
     1,000 items. The titles and contents of its items can have at most 1 MiB in total.";

pub fn endpoint() -> Endpoint<CreateContentPlanRequest, One<ContentPlan>> {
    Endpoint::post("/brands/{brand}/content-plans", "createContentPlan", Scope::ContentWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a content plan")
        .description(LIMITS)
        .extension()
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("plan", show::show)
}

fn check(request: &CreateContentPlanRequest, fields: &Fields<'_>) {
    check_days(fields.problems, request.starts_on, request.ends_on);
    let size = items::size_with_new_items(PlanSize::default(), request.items.as_deref().unwrap_or_default());
    limits::check_size(fields.problems, "items", PlanSize::default(), size);
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreateContentPlanRequest>>,
) -> Result<Reply<ContentPlan>> {
    let brand = cx.brand()?;
    let new = parsed.valid()?;
    let plan = NewPlan {
        name: new.name.as_deref().unwrap_or_default(),
        description: new.description.as_deref(),
        starts_on: new.starts_on,
        ends_on: new.ends_on,
    };
    limits::check_plans(cx, tx).await?;
    limits::check_items(cx, tx, new.items.as_ref().map_or(0, Vec::len)).await?;
    let created = content_plans::create(tx, brand.id, &plan).await?;
    let items: Vec<_> = new.items.iter().flatten().cloned().map(Into::into).collect();
    content_plans::add_items(tx, created.id, &items).await?;
    let items = content_plans::items(tx, created.id).await?;
    let (id, path) = (created.id, format!("/brands/{}/content-plans/{}", brand.id, created.id));
    Ok(Reply::at(&path, ContentPlan::new(created, items)).with_records([id]))
}
