//! `/mcp/oauth/authorize`: a user allows or denies an application the access that it requests with OAuth.
//!
//! The form contains the query of the request, which is checked again when the form is sent. A rejected request shows a
//! page with a link, and never redirects: anyone can register an application, so a redirect would let a link to this
//! host lead to any other. After **Allow** and **Deny**, a page with a refresh leads to the application, because the
//! content security policy permits the redirects of a form only to this host.

use askama::Template;
use crier_domain::access::AgentPreset;
use crier_endpoints::error::{ApiError, ErrorCode, FieldProblems, Result};
use crier_endpoints::limits::RateLimitSubject;
use crier_oauth::authorize::{self, AuthorizationRequest, AuthorizeError};
use crier_store::sessions;
use http::StatusCode;
use url::Url;

use super::agent_access::{self, ChosenBrands};
use super::form_write::{FormWrite, Submission};
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Link};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum number of requests of applications with a metadata document, per minute and user. Few documents are read
/// at the same time, so one user with slow ones must not keep out others.
const DOCUMENTS_PER_MINUTE: u32 = 20;

#[derive(Template)]
#[template(path = "console/oauth_consent.html")]
struct Consent {
    shell: Shell,
    errors: FieldErrors,
    /// The query of the request.
    request: String,
    name: String,
    redirect_host: String,
    /// Whether the application receives the access on the user's computer, where nothing proves which one it is.
    is_local: bool,
    /// The host of the page that describes the application, if it did not register.
    client_host: Option<String>,
    brands: Vec<Choice>,
    has_all_brands: bool,
    access: Vec<Choice>,
}

/// The end of a request.
#[derive(Template)]
#[template(path = "console/oauth_outcome.html")]
struct Outcome {
    title: String,
    text: String,
    /// The link to the application.
    link: Option<Link>,
    /// Whether the page opens the link automatically.
    is_automatic: bool,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/mcp/oauth/authorize", show), PageRoute::post("/mcp/oauth/authorize", decide)]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    agent_access::check_is_on(&visit.app)?;
    let query = visit.query.without(&[]);
    let query = query.trim_end_matches('&');
    match check(visit, query).await? {
        Ok(request) => render(visit, StatusCode::OK, query, &request, FieldErrors::default()),
        Err(error) => render_rejected(visit, error),
    }
}

fn render(
    visit: &Visit,
    status: StatusCode,
    query: &str,
    request: &AuthorizationRequest,
    errors: FieldErrors,
) -> Result<PageReply> {
    // If the user has only one brand, it is selected. There is no default for the access.
    let is_submitted = visit.form.has("_key");
    let only = visit.memberships.first().filter(|_| visit.memberships.len() == 1).map(|one| one.brand.id);
    let chosen = if is_submitted { visit.form.ids("brands") } else { only.into_iter().collect() };
    let access = agent_access::presets(&request.scopes, visit.form.get("access").parse().ok());
    if access.is_empty() {
        let text = "The application requests access that Crier does not offer to applications.";
        return render_outcome(visit, text.to_owned(), Some(&authorize::denied(request)));
    }
    let page = Consent {
        shell: visit.shell(Section::Home, "Connect an application"),
        errors,
        request: query.to_owned(),
        name: request.client_name.clone(),
        redirect_host: request.redirect_host.clone(),
        is_local: request.is_loopback_only || !request.redirect_uri.starts_with("https://"),
        client_host: request.is_metadata_document.then(|| host_of(&request.client_id)),
        brands: agent_access::brands(visit, &chosen),
        has_all_brands: agent_access::is_all(visit),
        access,
    };
    visit.page_with(status, &page)
}

/// Checks a request, unless it exceeds a limit.
async fn check(visit: &Visit, query: &str) -> Result<std::result::Result<AuthorizationRequest, AuthorizeError>> {
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    if parameters.any(|(name, value)| name == "client_id" && value.contains("://")) {
        let subject = RateLimitSubject::PageReader(visit.user_id());
        let decision = visit.app.limiter.take(subject, DOCUMENTS_PER_MINUTE).await;
        if !decision.allowed {
            return Err(ApiError::rate_limited(decision.retry_after));
        }
    }
    Ok(authorize::check(&visit.app, query).await)
}

async fn decide(visit: &Visit) -> Result<PageReply> {
    agent_access::check_is_on(&visit.app)?;
    let query = visit.form.get("request");
    let request = match check(visit, query).await? {
        Ok(request) => request,
        Err(error) => return render_rejected(visit, error),
    };
    if visit.form.get("decision") == "deny" {
        return leave(visit, "Access denied", &authorize::denied(&request));
    }
    let (preset, brands) = match read(visit, &request) {
        Ok(read) => read,
        Err(error) => {
            return render(visit, StatusCode::UNPROCESSABLE_ENTITY, query, &request, form_errors(error)?);
        }
    };
    let scopes = preset.scopes().intersection(&request.scopes);
    let url = match FormWrite::begin(visit).await? {
        // The form was sent twice: the browser shows only this response, and the code of the first one is still valid.
        Submission::Repeated(url) => String::from_utf8_lossy(&url).into_owned(),
        Submission::First(mut write) => {
            let caller = &visit.authenticated.caller;
            if !sessions::lock_user(&mut write.tx, caller.user_id, caller.key_id).await? {
                let message = "Your session has ended. Sign in, then connect the application again.";
                return write.reject(ApiError::new(ErrorCode::InsufficientScope, message)).await;
            }
            let (tx, user, limit) = (&mut write.tx, caller.user_id, preset.role_limit());
            let url = authorize::grant(&visit.app, tx, user, &request, &scopes, brands.ids(), limit).await?;
            write.finish(url.as_bytes()).await?;
            url
        }
    };
    leave(visit, "Access allowed", &url)
}

/// Reads the chosen access and brands.
fn read(visit: &Visit, request: &AuthorizationRequest) -> Result<(AgentPreset, ChosenBrands)> {
    let mut problems = FieldProblems::new();
    let mut problem = |field: &str, text: &str| problems.insert(field.to_owned(), vec![text.to_owned()]);
    if visit.form.get("decision") != "allow" {
        problem("decision", "Choose \u{201c}Allow\u{201d} or \u{201c}Deny\u{201d}.");
    }
    let access: Option<AgentPreset> = visit.form.get("access").parse().ok();
    let access = access.filter(|preset| agent_access::is_offered(*preset, &request.scopes));
    if access.is_none() {
        problem("access", "Choose what the application may do.");
    }
    let brands = ChosenBrands::read(visit);
    if brands.is_none() {
        problem("brands", agent_access::NO_BRANDS);
    }
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    access.zip(brands).ok_or_else(|| ApiError::bug("a form without problems is incomplete"))
}

/// Leads to the application.
fn leave(visit: &Visit, title: &str, url: &str) -> Result<PageReply> {
    let outcome = Outcome {
        title: title.to_owned(),
        text: "You are being returned to the application. If nothing happens, use this link:".to_owned(),
        link: Some(Link::new("Continue to the application", url)),
        is_automatic: true,
    };
    visit.page(&outcome)
}

const REJECTED: &str = "This application cannot be connected";

/// Shows why a request is rejected.
fn render_rejected(visit: &Visit, error: AuthorizeError) -> Result<PageReply> {
    match error {
        AuthorizeError::Page(text) => render_outcome(visit, text, None),
        AuthorizeError::Redirect(url) => {
            let text = "The application sent an invalid request. Return to the application to see the reason.";
            render_outcome(visit, text.to_owned(), Some(&url))
        }
    }
}

/// Shows a rejected request, with a link to the application if the request names a valid one.
fn render_outcome(visit: &Visit, text: String, back: Option<&str>) -> Result<PageReply> {
    let link = back.map(|url| Link::new(&format!("Return to {}", host_of(url)), url));
    let outcome = Outcome { title: REJECTED.to_owned(), text, link, is_automatic: false };
    visit.page_with(StatusCode::BAD_REQUEST, &outcome)
}

/// Returns the host of a URL, or its scheme if it has no host, as in URLs of installed applications.
fn host_of(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => url.host_str().unwrap_or_else(|| url.scheme()).to_owned(),
        Err(_) => url.to_owned(),
    }
}
