//! `POST /brands/{brand}/content-plans`

use std::sync::Arc;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::content_plan::PlanSize;
use crier_store::Tx;
use crier_store::content_plans::{self, NewPlan};
use schemars::JsonSchema;
use serde_json::json;

use super::items::{self, NewPlanItem};
use super::{ContentPlan, FEATURES, TAG, check_days, limits, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The content plan to create.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename = "NewContentPlan")]
pub struct CreateContentPlanRequest {
    #[schemars(length(min = 1, max = 120))]
    pub name: String,
    #[schemars(length(max = 2000))]
    pub description: Option<String>,
    pub starts_on: Option<NaiveDate>,
    /// The last day. Must not be before `starts_on`.
    pub ends_on: Option<NaiveDate>,
    #[schemars(length(max = items::MAX_NEW_ITEMS))]
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

// EXAMPLE CreateContentPlanRequest: json!({ "name": "Spring", "description": "Six weeks before Easter", "starts_on": "{day+14}", "ends_on": "{day+56}", "items": [{ "title": "Hot cross buns", "content": "They are back.", "planned_at": "{day+28}T07:00:00" }] })
}

fn read(f: &Fields<'_>, zone: &str) -> Option<CreateContentPlanRequest> {
    let name = f.required("name", f.text("name", 1..=120));
    let description = f.text("description", 0..=2000).value();
    let (starts_on, ends_on) = (f.date("starts_on").value(), f.date("ends_on").value());
    check_days(f.problems, starts_on, ends_on);
    let items = items::read_all(f, zone).value();
    let size = items::size_with_new_items(PlanSize::default(), items.as_deref().unwrap_or_default());
    limits::check_size(f.problems, "items", PlanSize::default(), size);
    Some(CreateContentPlanRequest { name: name?, description, starts_on, ends_on, items })
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreateContentPlanRequest>>,
) -> Result<Reply<ContentPlan>> {
    let brand = cx.brand()?;
    let new = parsed.valid()?;
    let plan = NewPlan {
        name: &new.name,
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
