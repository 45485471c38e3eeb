//! `/brands/{brand}/developers`: the API keys of the user.

use askama::Template;
use crier_domain::access::{AgentPreset, KeyMode, KeyName, Role, Scope, Scopes};
use crier_endpoints::PREFIX;
use crier_endpoints::error::{ApiError, FieldProblems, Result};
use crier_store::keys::{self, KeyLimits, NewKey};
use http::StatusCode;

use super::agent_access::{self, ChosenBrands};
use super::developers::{NewSecret, tabs};
use super::form_write::{FormWrite, Submission};
use super::key_form::{self, KeyFields};
use super::lists;
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Link, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The form value for all scopes.
const ALL_SCOPES: &str = "all";
/// The form value for no role limit.
const OWN_ROLE: &str = "own";

#[derive(Template)]
#[template(path = "console/keys.html")]
struct Keys {
    shell: Shell,
    errors: FieldErrors,
    keys: Vec<ApiKey>,
    pages: Pages,
    /// The mode in the form: `live` or `test`.
    mode: String,
    all_scopes: bool,
    scopes: Vec<ScopeGroup>,
    fields: KeyFields,
    role_limits: Vec<Choice>,
    /// The base URL of the API.
    api: String,
}

struct ApiKey {
    id: i64,
    name: Option<String>,
    is_live: bool,
    prefix: String,
    last4: String,
    /// "All", the name of a preset, or the scopes separated by commas.
    scopes: String,
    last_used: Option<Time>,
    created: Time,
}

impl ApiKey {
    /// Returns the name and the end of the key, which two keys with one name do not share.
    fn subject(&self) -> String {
        match &self.name {
            Some(name) => format!("the key {name}, which ends in {}", self.last4),
            None => format!("the key that ends in {}", self.last4),
        }
    }
}

/// Returns a key as lists name it.
pub fn called(name: Option<&str>, prefix: &str, last4: &str) -> String {
    match name {
        Some(name) => format!("{name} ({prefix}…{last4})"),
        None => format!("{prefix}…{last4}"),
    }
}

/// The scopes of one kind of resource.
struct ScopeGroup {
    label: &'static str,
    scopes: Vec<Choice>,
}

impl Keys {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "keys")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/developers", render),
        PageRoute::post("/brands/{brand}/developers/keys", create),
        PageRoute::post("/brands/{brand}/developers/keys/{key}/revoke", revoke),
    ]
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let mut all = keys::list(&mut visit.app.store.read().await?, Some(visit.user_id())).await?;
    all.reverse();
    let shell = visit.shell(Section::Developers, "Developers");
    let (rows, pages) = lists::paginate(visit, &shell.at("developers"), all);
    let key = |row: keys::KeyRow| ApiKey {
        id: row.id,
        is_live: row.mode == KeyMode::Live,
        scopes: access(&row),
        name: row.name,
        prefix: row.prefix,
        last4: row.last4,
        last_used: row.last_used_at.map(|at| visit.time(at)),
        created: visit.time(row.created_at),
    };
    let chosen: Vec<&str> = visit.form.all("scopes").collect();
    let page = Keys {
        errors,
        keys: rows.into_iter().map(key).collect(),
        pages,
        mode: visit.form.text("mode").unwrap_or(KeyMode::Live.as_str()).to_owned(),
        // The default is all scopes.
        all_scopes: chosen.contains(&ALL_SCOPES) || !visit.form.has("_key"),
        scopes: groups(&chosen),
        fields: KeyFields::of(visit, None),
        role_limits: role_limits(visit.form.text("role_limit").unwrap_or(OWN_ROLE)),
        api: format!("{}{PREFIX}", visit.app.public_url),
        shell,
    };
    visit.page_with(status, &page)
}

/// Returns the role limits to choose from.
fn role_limits(chosen: &str) -> Vec<Choice> {
    let drafts = Role::Contributor.as_str();
    let all = [
        (OWN_ROLE, "Your role", "In each brand, the key can do what you can do."),
        (drafts, "Drafts only", "It can submit drafts for approval, but cannot schedule, publish or reply."),
    ];
    let choice = |(value, label, hint): (&str, &str, &str)| Choice {
        hint: hint.to_owned(),
        ..Choice::new(value, label, value == chosen)
    };
    all.map(choice).into()
}

/// Returns what a key may do, in a few words.
fn access(row: &keys::KeyRow) -> String {
    let scopes: Option<Scopes> = row.scopes.parse().ok();
    let preset = scopes.as_ref().and_then(|scopes| AgentPreset::of(scopes, row.role_limit));
    let listed = match preset {
        Some(preset) => preset.label().to_owned(),
        None if scopes == Some(Scopes::all()) => "All".to_owned(),
        None => row.scopes.replace(',', ", "),
    };
    let limits = [
        (preset.is_none() && row.role_limit.is_some()).then_some("drafts only"),
        (!row.all_brands).then_some("only some brands"),
    ];
    let limits: Vec<&str> = limits.into_iter().flatten().collect();
    if limits.is_empty() { listed } else { format!("{listed} ({})", limits.join(", ")) }
}

/// Returns the scopes by kind of resource, in order.
fn groups(chosen: &[&str]) -> Vec<ScopeGroup> {
    let mut groups: Vec<ScopeGroup> = Vec::new();
    for scope in Scope::ALL {
        let (kind, verb) = scope.as_str().split_once(':').unwrap_or((scope.as_str(), ""));
        let choice = Choice::new(
            scope.as_str(),
            if verb == "read" { "Read" } else { "Write" },
            chosen.contains(&scope.as_str()),
        );
        let label = agent_access::kind_label(kind);
        match groups.last_mut().filter(|group| group.label == label) {
            Some(group) => group.scopes.push(choice),
            None => groups.push(ScopeGroup { label, scopes: vec![choice] }),
        }
    }
    groups
}

/// Creates a key. Only this response contains it.
async fn create(visit: &Visit) -> Result<PageReply> {
    let SubmittedKey { name, mode, scopes, brands, role_limit } = match read(visit) {
        Ok(new) => new,
        Err(error) => return render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    };
    let limits = KeyLimits { brands: brands.ids(), role: role_limit };
    let new = NewKey { name: name.as_ref().map(KeyName::as_str), mode, scopes: &scopes, limits };
    let key = match key_form::create(visit, &new).await? {
        Ok(key) => key,
        Err(errors) => return render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors).await,
    };
    let shell = visit.shell(Section::Developers, "Your new key");
    let which = if scopes == Scopes::all() { "all scopes".to_owned() } else { scopes.to_string().replace(',', ", ") };
    let which = if role_limit.is_some() { format!("{which}, drafts only") } else { which };
    let which = match brands.ids() {
        None => which,
        Some(ids) => format!("{which}, for {}", agent_access::names(visit, ids)),
    };
    let page = NewSecret {
        lead: format!("A {mode} key with {which}. Send it with each request."),
        label: "API key",
        secret: key,
        example: Some(format!(
            "read -rs KEY   # paste the key and press Enter\ncurl -H \"Authorization: Bearer $KEY\" {}{PREFIX}/brands",
            visit.app.public_url
        )),
        done: Link::new("Go to API keys", &shell.at("developers")),
        shell,
    };
    visit.page(&page)
}

/// What a valid form says about a new key.
struct SubmittedKey {
    name: Option<KeyName>,
    mode: KeyMode,
    scopes: Scopes,
    brands: ChosenBrands,
    role_limit: Option<Role>,
}

fn read(visit: &Visit) -> Result<SubmittedKey> {
    let mut problems = FieldProblems::new();
    let fields = key_form::read(visit, &mut problems);
    let mut problem = |field: &str, text: &str| problems.insert(field.to_owned(), vec![text.to_owned()]);
    let mode: Option<KeyMode> = visit.form.get("mode").parse().ok();
    if mode.is_none() {
        problem("mode", "Choose live or test.");
    }
    let chosen: Vec<&str> = visit.form.all("scopes").collect();
    let list = if chosen.contains(&ALL_SCOPES) { ALL_SCOPES.to_owned() } else { chosen.join(",") };
    let scopes: Option<Scopes> = list.parse().ok().filter(|_| !chosen.is_empty());
    if scopes.is_none() {
        problem("scopes", "Choose at least one scope, or all.");
    }
    let role_limit = match visit.form.get("role_limit") {
        OWN_ROLE => Some(None),
        limit => limit.parse::<Role>().ok().filter(|role| *role == Role::Contributor).map(Some),
    };
    if role_limit.is_none() {
        problem("role_limit", "Choose your role or drafts only.");
    }
    match (fields, mode, scopes, role_limit) {
        (Some((name, brands)), Some(mode), Some(scopes), Some(role_limit)) => {
            Ok(SubmittedKey { name, mode, scopes, brands, role_limit })
        }
        _ => Err(ApiError::validation(problems)),
    }
}

async fn revoke(visit: &Visit) -> Result<PageReply> {
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let id = visit.id("key").unwrap_or_default();
        let is_deleted = keys::delete_of(&mut write.tx, visit.user_id(), id).await?;
        write.end(is_deleted.then_some(()).ok_or_else(|| ApiError::not_found("key"))).await?;
    }
    visit.to("developers", "key-revoked")
}
