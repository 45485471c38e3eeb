//! `/brands/{brand}/developers/agents`: creates keys for agents, and shows how to connect MCP clients.

use askama::Template;
use crier_domain::access::{AgentPreset, KeyMode, Scopes};
use crier_endpoints::error::{ApiError, FieldProblems, Result};
use crier_store::keys::{self, KeyLimits};
use http::StatusCode;
use secrecy::ExposeSecret;

use super::agent_access::{self, ChosenBrands};
use super::agent_clients::{self, Client};
use super::developers::tabs;
use super::form_write::{FormWrite, Submission};
use super::keys::too_many_keys;
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/agents.html")]
struct Agents {
    shell: Shell,
    errors: FieldErrors,
    access: Vec<Choice>,
    brands: Vec<Choice>,
    has_all_brands: bool,
    /// Why clients in the cloud cannot reach this server.
    unreachable: Option<&'static str>,
    clients: Vec<Client>,
}

/// A new key, with the configuration of the clients that send it.
#[derive(Template)]
#[template(path = "console/agent_key.html")]
struct AgentKey {
    shell: Shell,
    lead: String,
    secret: String,
    unreachable: Option<&'static str>,
    clients: Vec<Client>,
}

impl Agents {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "agents")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/developers/agents", show),
        PageRoute::post("/brands/{brand}/developers/agents", create),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    agent_access::check_is_on(&visit.app)?;
    render(visit, StatusCode::OK, FieldErrors::default())
}

fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    // The defaults are the safe access and the brand of the page.
    let is_submitted = visit.form.has("_key");
    let access = if is_submitted { visit.form.get("access").parse().ok() } else { Some(AgentPreset::Drafts) };
    let chosen = if is_submitted { visit.form.ids("brands") } else { vec![visit.brand()?.0.id] };
    let public_url = &visit.app.public_url;
    let page = Agents {
        shell: visit.shell(Section::Developers, "Agents"),
        errors,
        access: agent_access::presets(&Scopes::all(), access),
        brands: agent_access::brands(visit, &chosen),
        has_all_brands: agent_access::is_all(visit),
        unreachable: agent_clients::unreachable(public_url),
        clients: agent_clients::with_oauth(public_url),
    };
    visit.page_with(status, &page)
}

/// Creates a key. Only this response contains it.
async fn create(visit: &Visit) -> Result<PageReply> {
    agent_access::check_is_on(&visit.app)?;
    let (preset, brands) = match read(visit) {
        Ok(new) => new,
        Err(error) => return render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?),
    };
    let key = match FormWrite::begin(visit).await? {
        Submission::Repeated(key) => String::from_utf8_lossy(&key).into_owned(),
        Submission::First(mut write) => {
            let (user, scopes) = (visit.user_id(), preset.scopes());
            let limits = KeyLimits { brands: brands.ids(), role: preset.role_limit() };
            let created = keys::create_within_cap(&mut write.tx, user, KeyMode::Live, &scopes, limits).await?;
            let Some(key) = created else {
                let error = write.reject::<()>(too_many_keys()).await.err().unwrap_or_else(too_many_keys);
                return render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?);
            };
            write.finish(key.expose_secret().as_bytes()).await?;
            key.expose_secret().to_owned()
        }
    };
    let public_url = &visit.app.public_url;
    let page = AgentKey {
        shell: visit.shell(Section::Developers, "Your new key"),
        lead: format!("{}, for {}.", preset.label(), names(visit, &brands)),
        unreachable: agent_clients::unreachable(public_url),
        clients: agent_clients::with_key(public_url, &key),
        secret: key,
    };
    visit.page(&page)
}

/// Returns the names of the chosen brands.
fn names(visit: &Visit, brands: &ChosenBrands) -> String {
    match brands.ids() {
        None => "all brands".to_owned(),
        Some(ids) => agent_access::names(visit, ids),
    }
}

fn read(visit: &Visit) -> Result<(AgentPreset, ChosenBrands)> {
    let mut problems = FieldProblems::new();
    let mut problem = |field: &str, text: &str| problems.insert(field.to_owned(), vec![text.to_owned()]);
    let access: Option<AgentPreset> = visit.form.get("access").parse().ok();
    if access.is_none() {
        problem("access", "Choose what the agent may do.");
    }
    let brands = ChosenBrands::read(visit);
    if brands.is_none() {
        problem("brands", agent_access::NO_BRANDS);
    }
    access.zip(brands).ok_or_else(|| ApiError::validation(problems))
}
