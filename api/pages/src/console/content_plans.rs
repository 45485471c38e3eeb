//! `/brands/{brand}/plans`, `…/plans/new` and `…/plans/{plan}/edit`: the brand's content plans.

use askama::Template;
use chrono::NaiveDate;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::content_plans;
use crier_endpoints::routes::content_plans::list::ContentPlanHead;
use crier_endpoints::runner::call::Written;
use http::StatusCode;

use super::days;
use super::lists;
use super::post_rows::beginning;
use super::route::PageRoute;
use super::shared::{FieldErrors, Pages};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

const MAX_DESCRIPTION_SHOWN: usize = 200;
const FIELDS: [&str; 4] = ["name", "description", "starts_on", "ends_on"];

#[derive(Template)]
#[template(path = "console/content_plans.html")]
struct ContentPlans {
    shell: Shell,
    plans: Vec<PlanRow>,
    pages: Pages,
}

struct PlanRow {
    id: i64,
    name: String,
    /// The beginning of the description.
    description: String,
    /// "1 Nov to 30 Nov 2026"; may be empty.
    days: String,
    items: usize,
    scheduled: usize,
}

#[derive(Template)]
#[template(path = "console/content_plan_form.html")]
struct ContentPlanForm {
    shell: Shell,
    errors: FieldErrors,
    /// `None` for a new plan.
    id: Option<i64>,
    name: String,
    description: String,
    /// `YYYY-MM-DD`
    starts_on: String,
    ends_on: String,
}

impl ContentPlanForm {
    fn action(&self) -> String {
        self.id.map_or_else(|| self.shell.at("plans/new"), |id| self.shell.page("plans", id, "edit"))
    }
}

/// The values of the form.
#[derive(Default)]
struct Values {
    name: String,
    description: String,
    starts_on: String,
    ends_on: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/plans", list),
        PageRoute::get("/brands/{brand}/plans/new", show_new),
        PageRoute::post("/brands/{brand}/plans/new", create),
        PageRoute::get("/brands/{brand}/plans/{plan}/edit", show_edit),
        PageRoute::post("/brands/{brand}/plans/{plan}/edit", update),
        PageRoute::post("/brands/{brand}/plans/{plan}/delete", delete),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let all = visit.call().read(content_plans::list::endpoint(), ()).await?;
    let shell = visit.shell(Section::Plans, "Plans");
    let (rows, pages) = lists::paginate(visit, &shell.at("plans"), all);
    let row = |plan: ContentPlanHead| PlanRow {
        id: plan.id,
        description: beginning(plan.description.as_deref().unwrap_or_default(), MAX_DESCRIPTION_SHOWN),
        days: days::range(plan.starts_on, plan.ends_on),
        items: plan.items.len(),
        scheduled: plan.items.iter().filter(|item| item.post_id.is_some()).count(),
        name: plan.name,
    };
    visit.page(&ContentPlans { shell, plans: rows.into_iter().map(row).collect(), pages })
}

async fn show_new(visit: &Visit) -> Result<PageReply> {
    // Shows an error before the user fills in the form if the workspace's plan does not include content plans.
    visit.call().read(content_plans::list::endpoint(), ()).await?;
    render(visit, StatusCode::OK, Values::default(), FieldErrors::default())
}

async fn show_edit(visit: &Visit) -> Result<PageReply> {
    let plan = visit.call().read(content_plans::show::endpoint(), ()).await?;
    let day = |day: Option<NaiveDate>| day.map(|day| day.to_string()).unwrap_or_default();
    let values = Values {
        name: plan.name,
        description: plan.description.unwrap_or_default(),
        starts_on: day(plan.starts_on),
        ends_on: day(plan.ends_on),
    };
    render(visit, StatusCode::OK, values, FieldErrors::default())
}

fn render(visit: &Visit, status: StatusCode, values: Values, errors: FieldErrors) -> Result<PageReply> {
    let id = visit.id("plan");
    let shell = visit.shell(Section::Plans, if id.is_some() { "Edit plan" } else { "New plan" });
    let Values { name, description, starts_on, ends_on } = values;
    visit.page_with(status, &ContentPlanForm { shell, errors, id, name, description, starts_on, ends_on })
}

/// Shows the form with the submitted values and their errors.
fn render_errors(visit: &Visit, error: ApiError) -> Result<PageReply> {
    let typed = |name: &str| visit.form.get(name).to_owned();
    let values = Values {
        name: typed("name"),
        description: typed("description"),
        starts_on: typed("starts_on"),
        ends_on: typed("ends_on"),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, values, form_errors(error)?)
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let request = visit.parse(&visit.form.texts(&FIELDS));
    let created = visit.call().write(content_plans::create::endpoint(), request).await;
    match created.and_then(Written::into_value) {
        Ok(created) => visit.to(&format!("plans/{}", created.id), "plan-made"),
        Err(error) => render_errors(visit, error),
    }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&FIELDS);
    // Null would keep the name; an empty name is rejected.
    body.insert("name".to_owned(), visit.form.text("name").unwrap_or_default().into());
    match visit.call().write(content_plans::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("plans/{}", visit.id("plan").unwrap_or_default()), "plan-saved"),
        Err(error) => render_errors(visit, error),
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(content_plans::delete::endpoint(), ()).await?;
    visit.to("plans", "plan-deleted")
}
