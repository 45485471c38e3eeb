//! `/connect`: a person connects an account, without a login to Crier.
//!
//! 1. `GET /connect/{token}` says what will be connected to which brand (`open.rs`);
//! 2. `POST /connect/{token}` begins an attempt and leads to the platform (`open.rs`);
//! 3. `GET /connect/callback/{platform}` takes the person back (`callback.rs`);
//! 4. `GET` and `POST /connect/choose/{id}`: which page, blog or board, if there is a choice (`choose.rs`);
//! 5. `GET /connect/done/{id}` (`finish.rs`).
//!
//! Any replica may serve any step: what one leaves to the next is in the database. The token opens the first two steps;
//! the others belong to the browser that took the second: it got a cookie, and the attempt holds the cookie's hash. So
//! a callback's address is of no use in another browser. What goes wrong is a [`WrongTurn`], with a page of its own.
//!
//! A `GET` changes nothing that a person would miss: programs that look at links in messages open them too.

use std::sync::Arc;

use askama::Template;
use crier_domain::authorization::{Authorization, Closed};
use crier_platforms::Connector;
use crier_store::authorizations;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};
use secrecy::{ExposeSecret, SecretString};

use super::html;
use crate::admission;
use crate::app::App;

mod callback;
mod choose;
mod finish;
mod open;
mod wrong_turn;

use wrong_turn::WrongTurn;

/// The cookie that binds an attempt to a browser.
const COOKIE_NAME: &str = "crier_connect";

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("connect.css").get(styles).head(styles))
        .push(Router::with_path("connect/{token}").get(open::show).head(open::show).post(open::begin))
        .push(Router::with_path("connect/callback/{platform}").get(callback::arrive).head(nothing))
        .push(Router::with_path("connect/choose/{id}").get(choose::show).head(choose::show).post(choose::pick))
        .push(Router::with_path("connect/done/{id}").get(finish::show).head(finish::show))
}

/// Answers a HEAD of the callback, which a GET may use once.
#[handler]
async fn nothing(res: &mut Response) {
    super::headers(res);
}

#[handler]
async fn styles(res: &mut Response) {
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    let _ = res.write_body(include_str!("../../../templates/connect.css"));
}

/// What a step answers.
enum Step {
    Page(StatusCode, Box<dyn RenderedPage>),
    /// Another step of the same browser.
    Redirect(String),
}

/// A template; [`Template`] itself cannot be boxed.
trait RenderedPage: Send {
    fn answer(&self, res: &mut Response, status: StatusCode);
}

impl<T: Template + Send> RenderedPage for T {
    fn answer(&self, res: &mut Response, status: StatusCode) {
        html(res, status, self);
    }
}

impl Step {
    fn page(page: impl Template + Send + 'static) -> Self {
        Self::Page(StatusCode::OK, Box::new(page))
    }
}

type StepResult = Result<Step, WrongTurn>;

/// Returns the state after counting the request against the visitor's address.
async fn admit<'d>(req: &Request, depot: &'d Depot, res: &mut Response) -> Option<&'d Arc<App>> {
    let app = depot.get_typed::<Arc<App>>().ok()?;
    let decision = admission::count_visitor(app, req).await;
    if decision.allowed {
        return Some(app);
    }
    respond(res, Err(WrongTurn::TooOften));
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(decision.retry_after));
    None
}

fn respond(res: &mut Response, step: StepResult) {
    match step {
        Ok(Step::Page(status, page)) => page.answer(res, status),
        Ok(Step::Redirect(to)) => {
            super::headers(res);
            res.status_code(StatusCode::SEE_OTHER);
            if let Ok(to) = HeaderValue::from_str(&to) {
                res.headers_mut().insert(LOCATION, to);
            }
        }
        Err(wrong) => html(res, wrong.status(), &wrong.page()),
    }
    // Neither the page nor the address belongs into a cache.
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Returns the authorization if it can be continued.
fn open_authorization(app: &App, found: Option<Authorization>) -> Result<Authorization, WrongTurn> {
    let found = found.ok_or(WrongTurn::Unknown)?;
    match found.closed(app.store.now()) {
        Some(Closed::Used) => Err(WrongTurn::Used),
        Some(Closed::Expired) => Err(WrongTurn::Expired),
        None => Ok(found),
    }
}

/// Returns the platform's connector, which has [`Connector::oauth`].
fn connector_of(app: &App, authorization: &Authorization) -> Result<Arc<dyn Connector>, WrongTurn> {
    let connector = app.platforms.get(authorization.platform).filter(|connector| connector.oauth().is_some());
    connector.ok_or(WrongTurn::NotConfigured)
}

fn platform_name(app: &App, authorization: &Authorization) -> &'static str {
    app.platforms.descriptor(authorization.platform).name
}

/// Returns the browser's cookie, if it has the form of one.
fn browser(headers: &HeaderMap) -> Option<SecretString> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, value)| *name == COOKIE_NAME && authorizations::hash(value).is_some())?;
    Some(SecretString::from(value))
}

/// Returns whether this browser began the authorization's attempt.
fn is_same_browser(headers: &HeaderMap, authorization: &Authorization) -> bool {
    let sent = browser(headers).and_then(|cookie| authorizations::hash(cookie.expose_secret()));
    sent.is_some() && sent == authorization.browser_hash
}

/// Sets the cookie. `Lax`: the platform's page leads back here, and nothing but that is to send it.
fn set_cookie(res: &mut Response, cookie: &SecretString, secure: bool) {
    let secure = if secure { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE_NAME}={}; Path=/connect; Max-Age=1800; HttpOnly; SameSite=Lax{secure}",
        cookie.expose_secret()
    );
    if let Ok(value) = HeaderValue::from_str(&text) {
        res.headers_mut().append(SET_COOKIE, value);
    }
}
