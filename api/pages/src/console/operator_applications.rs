//! `/operator/applications`: the applications registered at platforms, with the actions of `crier app`.

use askama::Template;
use crier_domain::application::{Application, ListedApplication, MAX_CREDENTIAL, Owner, is_credential};
use crier_domain::catalogue;
use crier_domain::platform::{ConnectTarget, Platform};
use crier_endpoints::error::{ApiError, ErrorCode, FieldProblems, Result};
use crier_store::applications::{self, NewApplication};
use crier_store::{Conn, Tx, brands, users};
use http::StatusCode;

use super::form_write::{FormWrite, Submission};
use super::lists;
use super::operator::{shell, tabs};
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors, Pages};
use super::shell::Shell;
use super::visit::{PageReply, Visit, form_errors, see_other};

const PATH: &str = "/operator/applications";

#[derive(Template)]
#[template(path = "console/operator_applications.html")]
struct OperatorApplications {
    shell: Shell,
    /// Errors of `platform`, `client_id`, `client_secret`, `target`, `workspace`, `brand`.
    errors: FieldErrors,
    applications: Vec<ApplicationRow>,
    pages: Pages,
    platforms: Vec<Choice>,
    targets: Vec<Choice>,
    /// As submitted. The secret is not shown again.
    client_id: String,
    workspace: String,
    brand: String,
}

struct ApplicationRow {
    id: i64,
    platform: &'static str,
    is_for_pages: bool,
    owner: String,
    client_id: String,
    /// The callback URL to register at the platform.
    callback: String,
}

impl OperatorApplications {
    fn tabs(&self) -> Vec<Choice> {
        tabs("applications")
    }
}

pub fn routes() -> Vec<PageRoute> {
    let all = [
        PageRoute::form(PATH, show),
        PageRoute::post(PATH, set),
        PageRoute::post("/operator/applications/{application}/delete", delete),
    ];
    all.into_iter().map(|route| route.access(Access::Operator)).collect()
}

async fn show(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let mut conn = visit.app.store.read().await?;
    let mut all = applications::list(&mut conn).await?;
    // Crier registered the others automatically.
    all.retain(|application| application.instance.is_empty());
    let (listed, pages) = lists::paginate(visit, PATH, all);
    let mut rows = Vec::new();
    for application in listed {
        let owner = name_of_owner(&mut conn, &application).await?;
        rows.push(row(visit, application, owner));
    }
    drop(conn);
    let (form, platform) = (&visit.form, visit.form.get("platform"));
    let needed = catalogue::all().iter().filter(|descriptor| descriptor.needs_application());
    let choice = |key: &str, name| Choice::new(key, name, key == platform);
    let is_page = form.get("target") == ConnectTarget::Page.as_str();
    let view = OperatorApplications {
        shell: shell(visit),
        errors,
        applications: rows,
        pages,
        platforms: needed.map(|descriptor| choice(descriptor.platform.as_str(), descriptor.name)).collect(),
        targets: vec![
            Choice::new(ConnectTarget::Default.as_str(), "All accounts of the platform", !is_page),
            Choice::new(ConnectTarget::Page.as_str(), "Only pages (LinkedIn, Instagram)", is_page),
        ],
        client_id: form.get("client_id").to_owned(),
        workspace: form.get("workspace").to_owned(),
        brand: form.get("brand").to_owned(),
    };
    visit.page_with(status, &view)
}

/// Returns the name of the owner. Workspaces have no names.
async fn name_of_owner(conn: &mut Conn, application: &ListedApplication) -> Result<String> {
    Ok(match (application.workspace_id, application.brand_id) {
        (_, Some(id)) => match brands::find(conn, id).await? {
            Some(brand) => format!("{} (brand {id})", brand.name),
            None => format!("Brand {id}"),
        },
        (Some(id), None) => format!("Workspace {id}"),
        (None, None) => "Installation".to_owned(),
    })
}

fn row(visit: &Visit, application: ListedApplication, owner: String) -> ApplicationRow {
    let ListedApplication { id, platform, target, client_id, .. } = application;
    ApplicationRow {
        id,
        platform: catalogue::descriptor(platform).name,
        is_for_pages: target == ConnectTarget::Page,
        owner,
        client_id,
        callback: format!("{}/connect/callback/{platform}", visit.app.public_url),
    }
}

async fn set(visit: &Visit) -> Result<PageReply> {
    match write(visit).await {
        Ok(()) => Ok(see_other(PATH, "application-saved")),
        Err(error) => show(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

async fn write(visit: &Visit) -> Result<()> {
    let Submission::First(mut write) = FormWrite::begin(visit).await? else { return Ok(()) };
    let written = set_in(visit, &mut write.tx).await;
    write.end(written).await
}

async fn set_in(visit: &Visit, tx: &mut Tx) -> Result<()> {
    let form = &visit.form;
    let mut problems = FieldProblems::new();
    for name in ["client_id", "client_secret"] {
        if !is_credential(form.get(name).trim()) {
            problems.insert(name.to_owned(), vec![format!("Enter 1 to {MAX_CREDENTIAL} characters.")]);
        }
    }
    let platform = form.get("platform").parse::<Platform>().ok();
    let platform = platform.filter(|platform| catalogue::descriptor(*platform).needs_application());
    if platform.is_none() {
        problems.insert("platform".to_owned(), vec!["Choose a platform.".to_owned()]);
    }
    let target = form.get("target").parse().unwrap_or(ConnectTarget::Default);
    if let Some(platform) = platform.filter(|platform| platform.application_target(target) != target) {
        let name = catalogue::descriptor(platform).name;
        let problem = format!("{name} has one application for all accounts. Choose all accounts of the platform.");
        problems.insert("target".to_owned(), vec![problem]);
    }
    let owner = find_owner(visit, tx, &mut problems).await?;
    let Some(platform) = platform.filter(|_| problems.is_empty()) else {
        return Err(ApiError::validation(problems));
    };
    let application = Application::new(form.get("client_id").trim(), form.get("client_secret").trim());
    let new = NewApplication { platform, target, owner, instance: "", redirect_uri: "", application: &application };
    crier_runtime::applications::set(tx, &new).await?;
    Ok(())
}

/// Returns the owner in the form. Adds a problem if it does not exist.
async fn find_owner(visit: &Visit, tx: &mut Tx, problems: &mut FieldProblems) -> Result<Owner> {
    // No record has the id 0.
    let id = |name: &str| visit.form.text(name).map(|text| text.parse::<i64>().unwrap_or_default());
    let (owner, field, problem) = match (id("workspace"), id("brand")) {
        (None, None) => return Ok(Owner::Installation),
        (Some(_), Some(brand)) => (Owner::Brand(brand), "brand", Some("Enter a workspace or a brand, but not both.")),
        (Some(workspace), None) => {
            let is_missing = users::workspace_plan(tx, workspace).await?.is_none();
            (Owner::Workspace(workspace), "workspace", is_missing.then_some("This workspace does not exist."))
        }
        (None, Some(brand)) => {
            let is_missing = brands::workspace_of(tx, brand).await?.is_none();
            (Owner::Brand(brand), "brand", is_missing.then_some("This brand does not exist."))
        }
    };
    if let Some(problem) = problem {
        problems.insert(field.to_owned(), vec![problem.to_owned()]);
    }
    Ok(owner)
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let deleted = delete_in(visit, &mut write.tx).await;
        write.end(deleted).await?;
    }
    Ok(see_other(PATH, "application-deleted"))
}

async fn delete_in(visit: &Visit, tx: &mut Tx) -> Result<()> {
    let id = visit.id("application").unwrap_or_default();
    if let Some(server) = applications::registered_at(tx, id).await? {
        let message = format!(
            "Crier registered this application at {server} automatically, and replaces it if the server deletes it. It \
             cannot be deleted here."
        );
        return Err(ApiError::new(ErrorCode::InsufficientScope, message));
    }
    applications::delete(tx, id).await?.then_some(()).ok_or_else(|| ApiError::not_found("application"))
}
