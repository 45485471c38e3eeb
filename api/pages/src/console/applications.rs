//! `/brands/{brand}/settings/applications`: the applications to which the user gave access with OAuth.

use askama::Template;
use crier_endpoints::error::{ApiError, Result};
use crier_store::oauth::grants::{self, GrantRow};

use super::agent_access;
use super::agent_clients;
use super::form_write::{FormWrite, Submission};
use super::lists;
use super::route::PageRoute;
use super::settings::tabs;
use super::shared::{Choice, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

#[derive(Template)]
#[template(path = "console/applications.html")]
struct Applications {
    shell: Shell,
    applications: Vec<Application>,
    pages: Pages,
    /// The URL with which applications connect.
    url: String,
}

struct Application {
    id: i64,
    /// The name that the application gives itself.
    name: String,
    /// The host to which the access went.
    host: String,
    access: &'static str,
    scopes: String,
    brands: String,
    created: Time,
    last_used: Option<Time>,
}

impl Applications {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "applications")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/settings/applications", list),
        PageRoute::post("/brands/{brand}/settings/applications/{grant}/disconnect", disconnect),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let all = grants::list(&mut visit.app.store.read().await?, visit.user_id()).await?;
    let shell = visit.shell(Section::Settings, "Applications");
    let (rows, pages) = lists::paginate(visit, &shell.at("settings/applications"), all);
    let application = |grant: GrantRow| Application {
        id: grant.id,
        access: agent_access::label(&grant.scopes, grant.role_limit),
        scopes: agent_access::in_words(&grant.scopes),
        brands: match &grant.brands {
            Some(brands) => agent_access::list(brands.iter().map(|(_, name)| name.as_str()).collect()),
            None => "All brands".to_owned(),
        },
        name: grant.client_name,
        host: grant.redirect_host,
        created: visit.time(grant.created_at),
        last_used: grant.last_used_at.map(|at| visit.time(at)),
    };
    let applications = rows.into_iter().map(application).collect();
    visit.page(&Applications { shell, applications, pages, url: agent_clients::oauth_url(&visit.app.public_url) })
}

async fn disconnect(visit: &Visit) -> Result<PageReply> {
    let id = visit.id("grant").unwrap_or_default();
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let is_revoked = grants::revoke(&mut write.tx, visit.user_id(), id).await?;
        write.end(is_revoked.then_some(()).ok_or_else(|| ApiError::not_found("application"))).await?;
    }
    visit.to("settings/applications", "application-disconnected")
}
