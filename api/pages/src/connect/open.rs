//! The consent page: it shows what will be connected to which brand. Its button begins an attempt and redirects to the
//! platform.

use std::sync::Arc;

use askama::Template;
use crier_domain::application::{Application, Owner};
use crier_domain::authorization::Authorization;
use crier_domain::platform::ConnectTarget;
use crier_endpoints::app::App;
use crier_platforms::OAuthConnector;
use crier_platforms::oauth::{AuthServer, ConnectAttempt, ConnectRequest, protocol};
use crier_store::applications::{self, NewApplication};
use crier_store::authorizations;
use salvo::{Depot, Request, Response, handler};
use secrecy::SecretString;

use super::{
    Step, StepError, StepResult, admit, browser, connector_of, open_authorization, platform_name, respond, set_cookie,
};
use crate::is_from_another_site;

#[derive(Template)]
#[template(path = "connect_open.html")]
struct Consent {
    platform: &'static str,
    brand: String,
    /// The host of a platform with many servers, such as Mastodon.
    host: Option<String>,
    what: &'static str,
    purposes: Vec<&'static str>,
    /// Further scopes that the operator has configured.
    further_scopes: Vec<String>,
    gate: Option<&'static str>,
    /// The path of this page, which is also the form's action.
    path: String,
}

#[derive(Template)]
#[template(path = "connect_redirect.html")]
struct RedirectPage {
    platform: &'static str,
    url: String,
}

fn token(req: &Request) -> String {
    req.param::<String>("token").unwrap_or_default()
}

#[handler]
pub(super) async fn show(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    let step = consent(app, &token(req)).await;
    respond(res, step);
}

async fn consent(app: &App, token: &str) -> StepResult {
    let mut conn = app.store.read().await?;
    let found = authorizations::find_by_token(&mut conn, token).await?;
    drop(conn);
    let authorization = open_authorization(app, found)?;
    let connector = connector_of(app, &authorization)?;
    let oauth = connector.oauth().ok_or(StepError::NotConfigured)?;
    let host = authorization.instance.split_once("://").map(|(_, host)| host.to_owned());
    Ok(Step::page(Consent {
        platform: platform_name(app, &authorization),
        brand: authorization.brand_name,
        host,
        what: match authorization.target {
            ConnectTarget::Page => "page",
            // The user's own account. The second application of these platforms is for pages.
            ConnectTarget::Default if authorization.platform.has_page_application() => "account",
            ConnectTarget::Default => oauth.choice_noun(),
        },
        purposes: oauth.permissions(authorization.target).iter().map(|permission| permission.purpose).collect(),
        further_scopes: app.platforms.further_scopes(authorization.platform, authorization.target).to_vec(),
        gate: oauth.gate(authorization.target),
        path: format!("/connect/{token}"),
    }))
}

#[handler]
pub(super) async fn begin(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = admit(req, depot, res).await else { return };
    if is_from_another_site(app, req.headers()) {
        return respond(res, Err(StepError::OtherSite));
    }
    // All attempts of a browser share a cookie, so that two windows can connect two accounts.
    let cookie = match browser(app, req.headers()) {
        Some(cookie) => Ok(cookie),
        None => authorizations::new_secret().map_err(StepError::from),
    };
    let step = match &cookie {
        Ok(cookie) => redirect_to_platform(app, &token(req), cookie).await,
        Err(_) => Err(StepError::Unavailable),
    };
    if let (Ok(_), Ok(cookie)) = (&step, &cookie) {
        set_cookie(app, res, cookie);
    }
    respond(res, step);
}

async fn redirect_to_platform(app: &Arc<App>, token: &str, cookie: &SecretString) -> StepResult {
    let mut conn = app.store.read().await?;
    let found = authorizations::find_by_token(&mut conn, token).await?;
    drop(conn);
    let authorization = open_authorization(app, found)?;
    let connector = connector_of(app, &authorization)?;
    let oauth = connector.oauth().ok_or(StepError::NotConfigured)?;
    let platform = platform_name(app, &authorization);
    let redirect_uri = format!("{}/connect/callback/{}", app.public_url, authorization.platform);
    let request = ConnectRequest { target: authorization.target, instance: &authorization.instance };
    let mut server = oauth.server(request).await.map_err(|error| StepError::of(platform, error))?;
    let further_scopes = app.platforms.further_scopes(authorization.platform, authorization.target);
    server.further_scopes.extend_from_slice(further_scopes);
    let application = if app.platforms.descriptor(authorization.platform).needs_application() {
        application_of(app, &authorization).await?
    } else {
        registered(app, oauth, &authorization, &server, &redirect_uri, platform).await?
    };

    let (state, verifier) = (authorizations::new_secret()?, authorizations::new_secret()?);
    let attempt = ConnectAttempt::new(request, server, &application, redirect_uri, &verifier);
    let url = protocol::authorize_url(&attempt, &state).map_err(|error| StepError::of(platform, error))?;
    let data = serde_json::to_string(&attempt).map_err(|_| StepError::Unavailable)?;
    let mut tx = app.store.begin().await?;
    let data = SecretString::from(data);
    if !authorizations::begin_attempt(&mut tx, authorization.id, &state, cookie, &data).await? {
        return Err(StepError::Used);
    }
    tx.commit().await?;
    Ok(Step::page(RedirectPage { platform, url: url.into() }))
}

/// Returns the configured application: that of the brand, else of the workspace, else of the installation.
async fn application_of(app: &App, authorization: &Authorization) -> Result<Application, StepError> {
    let a = authorization;
    let mut conn = app.store.read().await?;
    let cipher = app.store.cipher();
    let set = applications::of_brand(&mut conn, cipher, a.platform, a.target, a.workspace_id, a.brand_id).await?;
    set.or_else(|| app.platforms.application(a.platform, a.target)).ok_or(StepError::NotConfigured)
}

/// Returns Crier's application at the server that the user entered. Registers and stores it if there is none.
async fn registered(
    app: &App,
    oauth: &dyn OAuthConnector,
    authorization: &Authorization,
    server: &AuthServer,
    redirect_uri: &str,
    platform: &'static str,
) -> Result<Application, StepError> {
    let (name, instance) = (authorization.platform, authorization.instance.as_str());
    let mut conn = app.store.read().await?;
    let stored = applications::at_instance(&mut conn, app.store.cipher(), name, instance, redirect_uri).await?;
    drop(conn);
    let request = ConnectRequest { target: authorization.target, instance };
    let found = oauth.application(request, server, redirect_uri, stored.clone()).await;
    let found = found.map_err(|error| StepError::of(platform, error))?.ok_or(StepError::NotConfigured)?;
    if stored.as_ref() != Some(&found) {
        let new = NewApplication {
            platform: name,
            target: ConnectTarget::Default,
            owner: Owner::Installation,
            instance,
            redirect_uri,
            application: &found,
        };
        let mut tx = app.store.begin().await?;
        applications::set(&mut tx, &new).await?;
        tx.commit().await?;
    }
    Ok(found)
}
