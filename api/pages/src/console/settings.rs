//! `/brands/{brand}/settings` (the brand) and `…/settings/plan`; and the shared parts of the settings pages.

use askama::Template;
use chrono_tz::Tz;
use crier_domain::plan::Feature;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::brands::create::NewBrand;
use crier_endpoints::routes::brands::usage;
use crier_endpoints::routes::queue;
use crier_store::{Tx, brands, recurring_posts, report_schedules};
use http::StatusCode;

use super::brand_new::{FIELDS, zones};
use super::form_write::{FormWrite, Submission};
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors, feature_label};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::numbers::counted;

#[derive(Template)]
#[template(path = "console/settings.html")]
struct BrandSettings {
    shell: Shell,
    errors: FieldErrors,
    /// Whether the user may change the values. Otherwise the page has no form.
    can_change: bool,
    name: String,
    description: String,
    website: String,
    zones: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "console/plan.html")]
struct PlanPage {
    shell: Shell,
    plan: String,
    caps: Vec<Cap>,
    /// All features, and whether the plan includes them.
    features: Vec<(&'static str, bool)>,
    note: String,
}

/// A limit of the plan and its usage.
pub struct Cap {
    pub label: &'static str,
    pub used: i64,
    pub limit: Option<u64>,
    /// Empty if there is none.
    pub unit: &'static str,
}

impl Cap {
    /// Returns the value from which the meter warns: 80 percent of the limit.
    pub fn high(&self) -> u64 {
        self.limit.unwrap_or_default() / 10 * 8
    }

    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| u64::try_from(self.used).unwrap_or_default() >= limit)
    }
}

/// Returns the tabs of the section; `current` is `brand`, `members`, `plan`, `notifications`, `sessions` or
/// `applications`.
pub fn tabs(shell: &Shell, current: &str) -> Vec<Choice> {
    let all = [
        ("brand", "settings", "Brand"),
        ("members", "settings/members", "Members"),
        ("plan", "settings/plan", "Plan and usage"),
        ("notifications", "settings/notifications", "Notifications"),
        ("sessions", "settings/sessions", "Sessions"),
        ("applications", "settings/applications", "Applications"),
    ];
    all.iter().map(|(key, path, label)| Choice::new(&shell.at(path), label, *key == current)).collect()
}

impl BrandSettings {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "brand")
    }
}

impl PlanPage {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "plan")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/settings", show),
        PageRoute::post("/brands/{brand}/settings", update).access(Access::Manager),
        PageRoute::post("/brands/{brand}/settings/timezone", set_timezone).access(Access::Manager),
        PageRoute::get("/brands/{brand}/settings/plan", show_plan),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let brand = visit.brand()?.0;
    let page = BrandSettings {
        shell: visit.shell(Section::Settings, "Settings"),
        errors: FieldErrors::default(),
        can_change: visit.can_manage(),
        name: brand.name.clone(),
        description: brand.description.clone().unwrap_or_default(),
        website: brand.website.clone().unwrap_or_default(),
        zones: zones(&brand.timezone),
    };
    visit.page(&page)
}

async fn update(visit: &Visit) -> Result<PageReply> {
    // The rules are those for a new brand.
    let typed = visit.parse::<NewBrand>(&visit.form.texts(&FIELDS));
    let brand = match typed.valid() {
        Ok(brand) => brand,
        Err(error) => return render_errors(visit, form_errors(error)?),
    };
    let submission = match FormWrite::begin(visit).await {
        Ok(submission) => submission,
        Err(error) => return render_errors(visit, form_errors(error)?),
    };
    if let Submission::First(mut write) = submission {
        let (NewBrand { name, description, website, timezone }, visited) = (brand, visit.brand()?.0);
        // Another person may have changed the time zone since the visit began.
        brands::lock(&mut write.tx, visited.id).await?;
        let stored = brands::find(&mut write.tx, visited.id).await?;
        let current = stored.map_or_else(|| visited.timezone.clone(), |stored| stored.timezone);
        let changed = brands::NewBrand {
            name,
            description: description.as_deref(),
            website: website.as_deref(),
            timezone: timezone.as_deref().unwrap_or(&current),
        };
        let is_moved = changed.timezone != current;
        brands::update(&mut write.tx, visited.id, changed).await?;
        let followed = if is_moved { follow_time_zone(&mut write.tx, visited.id).await } else { Ok(()) };
        if let Err(error) = write.end(followed).await {
            return render_errors(visit, form_errors(error)?);
        }
    }
    visit.to("settings", "brand-saved")
}

/// Sets only the time zone, for the checklist of a new brand.
async fn set_timezone(visit: &Visit) -> Result<PageReply> {
    let zone = visit.form.get("timezone");
    if zone.parse::<Tz>().is_err() {
        return Err(ApiError::field("timezone", "Choose a time zone from the list."));
    }
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let brand = visit.brand()?.0.id;
        brands::set_timezone(&mut write.tx, brand, zone).await?;
        let followed = follow_time_zone(&mut write.tx, brand).await;
        write.end(followed).await?;
    }
    visit.to("", "zone-saved")
}

/// Moves what is planned in the time zone of the brand.
async fn follow_time_zone(tx: &mut Tx, brand_id: i64) -> Result<()> {
    recurring_posts::replan(tx, brand_id, None).await?;
    report_schedules::follow_time_zone(tx, brand_id).await?;
    queue::follow_time_zone(tx, brand_id).await
}

/// Shows the form with the submitted values and their errors.
fn render_errors(visit: &Visit, errors: FieldErrors) -> Result<PageReply> {
    let form = &visit.form;
    let page = BrandSettings {
        shell: visit.shell(Section::Settings, "Settings"),
        errors,
        can_change: true,
        name: form.get("name").to_owned(),
        description: form.get("description").to_owned(),
        website: form.get("website").to_owned(),
        zones: zones(form.text("timezone").unwrap_or(&visit.brand()?.0.timezone)),
    };
    visit.page_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

async fn show_plan(visit: &Visit) -> Result<PageReply> {
    let usage = visit.call().read(usage::endpoint(), ()).await?;
    let cap = |label, usage::Cap { used, limit }, unit| Cap { label, used, limit, unit };
    let requests = match usage.requests_per_minute {
        Some(max) => format!("Each API key can send {} per minute.", counted(max, "request", "requests")),
        None => "API keys can send any number of requests.".to_owned(),
    };
    let page = PlanPage {
        shell: visit.shell(Section::Settings, "Plan and usage"),
        plan: usage.plan,
        caps: vec![
            cap("Brands", usage.brands, ""),
            cap("Accounts of this brand", usage.social_accounts, ""),
            cap("Posts", usage.posts_per_month, "this month"),
            cap("Storage", usage.storage_mib, "MiB"),
            cap("AI credits", usage.ai_credits, "this month"),
            cap("Report emails", usage.report_mails_per_day, "today (UTC)"),
        ],
        features: Feature::ALL.iter().map(|one| (feature_label(*one), usage.features.contains(one))).collect(),
        note: format!("{requests} To change the plan, the operator runs: crier plan set --user EMAIL PLAN"),
    };
    visit.page(&page)
}
