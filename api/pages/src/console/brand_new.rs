//! `/brands/new`: the form for a new brand.

use askama::Template;
use crier_endpoints::error::Result;
use crier_endpoints::routes::brands;
use crier_endpoints::runner::call::Written;
use http::StatusCode;

use super::route::PageRoute;
use super::shared::{Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors, see_other};

/// The names of a brand's fields in the API.
pub const FIELDS: [&str; 4] = ["name", "description", "website", "timezone"];

#[derive(Template)]
#[template(path = "console/brand_new.html")]
struct BrandNew {
    shell: Shell,
    errors: FieldErrors,
    /// Whether the user has no brand yet.
    is_first: bool,
    name: String,
    description: String,
    website: String,
    /// IANA names.
    zones: Vec<Choice>,
    /// Whether the script selects the browser's time zone, because the user has not selected one.
    guess_zone: bool,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/new", show), PageRoute::post("/brands/new", create)]
}

/// Returns the time zones to choose from: those named after places, UTC, and the selected one.
pub fn zones(chosen: &str) -> Vec<Choice> {
    let is_place = |name: &str| name.contains('/') && !["Etc/", "SystemV/", "US/"].iter().any(|p| name.starts_with(p));
    let all = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    let names = all.filter(|name| is_place(name) || *name == "UTC" || *name == chosen);
    names.map(|name| Choice::new(name, name, name == chosen)).collect()
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, FieldErrors::default())
}

fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let is_first = visit.memberships.is_empty();
    let title = if is_first { "Create your first brand" } else { "New brand" };
    let form = &visit.form;
    let page = BrandNew {
        shell: Shell { section: None, ..visit.shell(Section::Home, title) },
        errors,
        is_first,
        name: form.get("name").to_owned(),
        description: form.get("description").to_owned(),
        website: form.get("website").to_owned(),
        zones: zones(form.text("timezone").unwrap_or("UTC")),
        guess_zone: !form.has("timezone"),
    };
    visit.page_with(status, &page)
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let request = visit.parse(&visit.form.texts(&FIELDS));
    match visit.call().write(brands::create::endpoint(), request).await.and_then(Written::into_value) {
        Ok(created) => Ok(see_other(&format!("/brands/{}", created.id), "brand-created")),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?),
    }
}
