//! `/brands/{brand}/developers/agents`: creates keys for agents, and shows how to connect MCP clients.

use askama::Template;
use crier_domain::access::{AgentPreset, KeyMode, KeyName, Scopes};
use crier_endpoints::error::{ApiError, FieldProblems, Result};
use crier_store::keys::{KeyLimits, NewKey};
use http::StatusCode;

use super::agent_access::{self, ChosenBrands};
use super::agent_clients::{self, Client};
use super::developers::tabs;
use super::key_form::{self, KeyFields};
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
    fields: KeyFields,
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
    let public_url = &visit.app.public_url;
    let page = Agents {
        shell: visit.shell(Section::Developers, "Agents"),
        errors,
        access: agent_access::presets(&Scopes::all(), access),
        fields: KeyFields::of(visit, Some(&[visit.brand()?.0.id])),
        unreachable: agent_clients::unreachable(public_url),
        clients: agent_clients::with_oauth(public_url),
    };
    visit.page_with(status, &page)
}

/// Creates a key. Only this response contains it.
async fn create(visit: &Visit) -> Result<PageReply> {
    agent_access::check_is_on(&visit.app)?;
    let (preset, name, brands) = match read(visit) {
        Ok(new) => new,
        Err(error) => return render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?),
    };
    let name = name.map_or_else(|| default_name(preset), |name| name.as_str().to_owned());
    let limits = KeyLimits { brands: brands.ids(), role: preset.role_limit() };
    let new = NewKey { name: Some(&name), mode: KeyMode::Live, scopes: &preset.scopes(), limits };
    let key = match key_form::create(visit, &new).await? {
        Ok(key) => key,
        Err(errors) => return render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors),
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

/// Returns the name of a key whose user gave none.
fn default_name(preset: AgentPreset) -> String {
    format!("Agent, {}", preset.label().to_lowercase())
}

fn read(visit: &Visit) -> Result<(AgentPreset, Option<KeyName>, ChosenBrands)> {
    let mut problems = FieldProblems::new();
    let access: Option<AgentPreset> = visit.form.get("access").parse().ok();
    if access.is_none() {
        problems.insert("access".to_owned(), vec!["Choose what the agent may do.".to_owned()]);
    }
    let fields = key_form::read(visit, &mut problems);
    let Some((access, (name, brands))) = access.zip(fields) else { return Err(ApiError::validation(problems)) };
    Ok((access, name, brands))
}
