//! `/connect`: a person connects an account without signing in to Crier.
//!
//! 1. `GET /connect/{token}` shows what will be connected to which brand (`open.rs`).
//! 2. `POST /connect/{token}` begins an attempt and redirects to the platform (`open.rs`).
//! 3. `GET /connect/callback/{platform}` receives the platform's response (`callback.rs`).
//! 4. `GET` and `POST /connect/choose/{id}` let the person choose a page, blog or board if there are several
//!    (`choose.rs`).
//! 5. `GET /connect/done/{id}` shows the result (`finish.rs`).
//!
//! Any replica may serve any step, because the state is in the database. The first two steps require the token. The
//! second one sets a cookie and stores its hash with the attempt; all later steps require this cookie, so the URL of a
//! callback does not work in another browser. An error is a [`StepError`], with a page of its own.
//!
//! Programs that scan messages open the links in them, so a `GET` of the first step changes nothing.

use std::sync::Arc;

use askama::Template;
use crier_domain::authorization::{Authorization, Closed};
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_platforms::Connector;
use crier_store::authorizations;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};
use secrecy::{ExposeSecret, SecretString};

use super::{html, is_https};

mod callback;
mod choose;
mod finish;
mod open;
mod step_error;

use step_error::StepError;

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("connect.css").get(styles).head(styles))
        .push(Router::with_path("connect/{token}").get(open::show).head(open::show).post(open::begin))
        .push(Router::with_path("connect/callback/{platform}").get(callback::receive).head(respond_to_head))
        .push(Router::with_path("connect/choose/{id}").get(choose::show).head(choose::show).post(choose::pick))
        .push(Router::with_path("connect/done/{id}").get(finish::show).head(finish::show))
}

/// Responds to HEAD requests of the callback. They must not use up the state.
#[handler]
async fn respond_to_head(res: &mut Response) {
    super::headers(res);
}

#[handler]
async fn styles(res: &mut Response) {
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    let _ = res.write_body(include_str!("../../templates/connect.css"));
}

/// The response of a step.
enum Step {
    Page(StatusCode, Box<dyn StepPage>),
    /// The path of another step.
    Redirect(String),
}

/// A template that can be boxed; [`Template`] cannot.
trait StepPage: Send {
    fn send(&self, res: &mut Response, status: StatusCode);
}

impl<T: Template + Send> StepPage for T {
    fn send(&self, res: &mut Response, status: StatusCode) {
        html(res, status, self);
    }
}

impl Step {
    fn page(page: impl Template + Send + 'static) -> Self {
        Self::Page(StatusCode::OK, Box::new(page))
    }
}

type StepResult = Result<Step, StepError>;

/// Counts the request against the client's IP address, and returns the app. If the rate limit is exceeded, sends an
/// error page and returns `None`.
async fn admit<'d>(req: &Request, depot: &'d Depot, res: &mut Response) -> Option<&'d Arc<App>> {
    let app = depot.get_typed::<Arc<App>>().ok()?;
    let decision = admission::count_sign_in_or_connect_request(app, req).await;
    if decision.allowed {
        return Some(app);
    }
    respond(res, Err(StepError::RateLimited));
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(decision.retry_after));
    None
}

fn respond(res: &mut Response, step: StepResult) {
    match step {
        Ok(Step::Page(status, page)) => page.send(res, status),
        Ok(Step::Redirect(to)) => {
            super::headers(res);
            res.status_code(StatusCode::SEE_OTHER);
            if let Ok(to) = HeaderValue::from_str(&to) {
                res.headers_mut().insert(LOCATION, to);
            }
        }
        Err(error) => html(res, error.status(), &error.page()),
    }
    // Neither the page nor the URL may be cached.
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Returns the authorization if it can be continued.
fn open_authorization(app: &App, found: Option<Authorization>) -> Result<Authorization, StepError> {
    let found = found.ok_or(StepError::Unknown)?;
    match found.closed(app.store.now()) {
        Some(Closed::Used) => Err(StepError::Used),
        Some(Closed::Expired) => Err(StepError::Expired),
        None => Ok(found),
    }
}

/// Returns the platform's connector, which has [`Connector::oauth`].
fn connector_of(app: &App, authorization: &Authorization) -> Result<Arc<dyn Connector>, StepError> {
    let connector = app.platforms.get(authorization.platform).filter(|connector| connector.oauth().is_some());
    connector.ok_or(StepError::NotConfigured)
}

fn platform_name(app: &App, authorization: &Authorization) -> &'static str {
    app.platforms.descriptor(authorization.platform).name
}

/// Returns the name of the cookie that binds an attempt to a browser. With the prefix, no other host can set it. Otherwise
/// an attacker could set the cookie of an own attempt in another person's browser, and this person would connect an account
/// to the attacker's brand.
fn cookie_name(app: &App) -> &'static str {
    if is_https(app) { "__Host-crier_connect" } else { "crier_connect" }
}

/// Returns the cookie of the browser if it is well-formed.
fn browser(app: &App, headers: &HeaderMap) -> Option<SecretString> {
    let name = cookie_name(app);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(key, value)| *key == name && authorizations::hash(value).is_some())?;
    Some(SecretString::from(value))
}

/// Returns whether this browser began the authorization's attempt.
fn is_same_browser(app: &App, headers: &HeaderMap, authorization: &Authorization) -> bool {
    let sent = browser(app, headers).and_then(|cookie| authorizations::hash(cookie.expose_secret()));
    sent.is_some() && sent == authorization.browser_hash
}

/// Sets the cookie. It must be `Lax`, because the platform's site redirects to the callback.
fn set_cookie(app: &App, res: &mut Response, cookie: &SecretString) {
    let (name, secure) = (cookie_name(app), if is_https(app) { "; Secure" } else { "" });
    let text = format!("{name}={}; Path=/; Max-Age=1800; HttpOnly; SameSite=Lax{secure}", cookie.expose_secret());
    if let Ok(value) = HeaderValue::from_str(&text) {
        res.headers_mut().append(SET_COOKIE, value);
    }
}
