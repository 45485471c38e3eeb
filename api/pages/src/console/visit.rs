//! The request of a signed-in user for a page.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use chrono::{DateTime, Datelike as _, Utc};
use chrono_tz::Tz;
use crier_domain::access::Role;
use crier_domain::brand::Brand;
use crier_endpoints::app::App;
use crier_endpoints::context::Query;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_store::brands::Membership;
use crier_store::keys::Authenticated;
use http::{HeaderMap, StatusCode};
use salvo::Response;
use salvo::http::ReqBody;

use super::error::general_message;
use super::flash;
use super::form::Form;
use super::shared::{FieldErrors, Time, role_label};
use super::shell::{BrandLink, Section, Shell};

pub struct Visit {
    pub app: Arc<App>,
    pub authenticated: Arc<Authenticated>,
    /// The brands of which the user is a member.
    pub memberships: Vec<Membership>,
    /// Whether the user is an operator of this installation.
    pub is_operator: bool,
    /// The number of unread conversations of the brand that the navigation shows.
    pub unread: i64,
    /// The number of records of that brand that need attention.
    pub problems: i64,
    pub ids: Vec<(&'static str, i64)>,
    /// The segment of the path at `{*}`.
    pub word: Option<String>,
    pub query: Query,
    pub form: Form,
    /// The body of a multipart form, with its `Content-Type` and `Content-Length`, until it is forwarded.
    pub multipart: Mutex<Option<(HeaderMap, ReqBody)>>,
    /// Whether a write failed because the service is unavailable.
    pub is_unavailable: AtomicBool,
    /// Whether a form that is shown again has the key with which it was sent.
    pub keeps_key: AtomicBool,
    /// The headers of the request.
    pub headers: HeaderMap,
    pub csrf: String,
    pub request_id: String,
    pub now: DateTime<Utc>,
    /// The path of the referring page.
    pub referrer_path: Option<String>,
    /// Whether the response has no body, so the user does not see the page.
    pub is_head: bool,
    /// Whether the script sent the request and shows the response within the page.
    pub is_fetch: bool,
}

/// The response of a page.
pub enum PageReply {
    Html(StatusCode, String),
    /// A response for the script.
    Text(StatusCode, String),
    SeeOther(String),
    /// A file, with its own headers.
    File(Box<Response>),
}

impl Visit {
    pub fn id(&self, name: &str) -> Option<i64> {
        self.ids.iter().find(|(n, _)| *n == name).map(|(_, id)| *id)
    }

    pub fn user_id(&self) -> i64 {
        self.authenticated.caller.user_id
    }

    /// Returns the brand in the path, and the role of the user in it.
    pub fn brand(&self) -> Result<(&Brand, Role)> {
        let found = self.authenticated.membership.as_ref().map(|(brand, role)| (brand, *role));
        found.ok_or_else(|| ApiError::bug("the page's path names no brand"))
    }

    pub fn can_manage(&self) -> bool {
        self.has_role(Role::can_manage)
    }

    pub fn can_publish(&self) -> bool {
        self.has_role(Role::can_publish)
    }

    fn has_role(&self, is_enough: fn(Role) -> bool) -> bool {
        self.authenticated.membership.as_ref().is_some_and(|(_, role)| is_enough(*role))
    }

    pub fn zone(&self) -> Tz {
        let name = self.authenticated.membership.as_ref().map_or("UTC", |(brand, _)| &brand.timezone);
        name.parse().unwrap_or(Tz::UTC)
    }

    /// Formats a time in the brand's time zone.
    pub fn time(&self, at: DateTime<Utc>) -> Time {
        let local = at.with_timezone(&self.zone());
        let is_this_year = local.year() == self.now.with_timezone(&self.zone()).year();
        let format = if is_this_year { "%-d %b, %H:%M" } else { "%-d %b %Y, %H:%M" };
        Time::new(&at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true), &local.format(format).to_string())
    }

    /// Returns the path of a URL of this server. The content security policy permits only images of the page's host,
    /// which may differ from the host of the public URL.
    pub fn own_path(&self, url: &str) -> String {
        url.strip_prefix(self.app.library.public_url()).unwrap_or(url).to_owned()
    }

    /// Returns the data of the layout around a page.
    pub fn shell(&self, section: Section, title: impl Into<String>) -> Shell {
        let current = self.authenticated.membership.as_ref();
        let caller = &self.authenticated.caller;
        let shown = shown_brand(current.map(|(brand, _)| brand.id), &self.memberships);
        let is_shown = |one: &Membership| Some(one.brand.id) == shown;
        let link =
            |one: &Membership| BrandLink { id: one.brand.id, name: one.brand.name.clone(), current: is_shown(one) };
        Shell {
            title: title.into(),
            user_name: caller.user_name.clone(),
            user_email: caller.user_email.clone(),
            brands: self.memberships.iter().map(link).collect(),
            section: Some(section),
            csrf: self.csrf.clone(),
            key: self.form_key(),
            flash: self.query.get("note").and_then(flash::find),
            role: current.map(|(_, role)| role_label(*role)),
            is_operator: self.is_operator,
            can_publish: self.memberships.iter().any(|one| is_shown(one) && one.role.can_publish()),
            unread: self.unread,
            problems: self.problems,
            zone: self.zone().name().to_owned(),
        }
    }

    /// Returns the prefix of the `Idempotency-Key`s of the page's forms. A form that is shown again needs a new key, because
    /// its content may change. If the service was unavailable, the write may have been carried out, because the database may
    /// have lost only its answer to the commit, and a form that is still being processed may succeed: with the same key,
    /// the form does not do it a second time.
    fn form_key(&self) -> String {
        match self.form.get("_key").split_once('-') {
            Some((sent, _)) if self.keeps_key.load(Ordering::Relaxed) => sent.to_owned(),
            _ => new_key(),
        }
    }

    /// Renders a page.
    pub fn page(&self, page: &impl Template) -> Result<PageReply> {
        self.page_with(StatusCode::OK, page)
    }

    /// Renders a page. A form that is shown again because the service is unavailable has the status of that error.
    pub fn page_with(&self, status: StatusCode, page: &impl Template) -> Result<PageReply> {
        let is_unavailable = self.is_unavailable.load(Ordering::Relaxed);
        let status = if is_unavailable { StatusCode::SERVICE_UNAVAILABLE } else { status };
        let text = page.render().map_err(|error| ApiError::bug(format!("a page could not be rendered: {error}")))?;
        Ok(PageReply::Html(status, text))
    }

    /// Remembers whether a write failed because the service is unavailable, and whether it may have been carried out.
    pub fn note(&self, error: &ApiError) {
        let is_unavailable = error.code == ErrorCode::ServiceUnavailable;
        let is_in_progress = error.code == ErrorCode::IdempotencyInProgress;
        self.is_unavailable.fetch_or(is_unavailable, Ordering::Relaxed);
        self.keeps_key.fetch_or(is_unavailable || is_in_progress, Ordering::Relaxed);
    }

    /// Keeps the key of a form whose action wrote nothing: an earlier submission with it may have been carried out.
    pub fn keep_key(&self) {
        self.keeps_key.store(true, Ordering::Relaxed);
    }

    /// Gives the form of the page a new key, because it is another form than the one that was sent.
    pub fn renew_key(&self) {
        self.keeps_key.store(false, Ordering::Relaxed);
    }

    /// Redirects to a path within the brand, which shows the message with the key `note` ([`flash`]).
    pub fn to(&self, path: &str, note: &'static str) -> Result<PageReply> {
        let brand = self.brand()?.0.id;
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(see_other(&format!("/brands/{brand}{path}"), note))
    }

    /// Takes the body of the multipart form and its headers. They can be forwarded once.
    pub fn take_multipart(&self) -> (HeaderMap, ReqBody) {
        self.multipart.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

/// Returns the brand that the navigation shows: that of the page, else the first one.
pub fn shown_brand(current: Option<i64>, memberships: &[Membership]) -> Option<i64> {
    current.or_else(|| memberships.iter().map(|one| one.brand.id).min())
}

/// Redirects to a path of this host, which shows the message with the key `note` ([`flash`]). The path may have a query
/// and a fragment.
pub fn see_other(path: &str, note: &'static str) -> PageReply {
    if note.is_empty() {
        return PageReply::SeeOther(path.to_owned());
    }
    let (path, fragment) = path.split_at(path.find('#').unwrap_or(path.len()));
    let separator = if path.contains('?') { '&' } else { '?' };
    PageReply::SeeOther(format!("{path}{separator}note={note}{fragment}"))
}

/// Returns a random prefix for the `Idempotency-Key`s of a page's forms.
fn new_key() -> String {
    crier_base::random::text(24).unwrap_or_default()
}

/// Converts an error of the API to errors that a form shows. Other errors are returned.
pub fn form_errors(error: ApiError) -> Result<FieldErrors> {
    match error.code {
        ErrorCode::ValidationFailed => {
            Ok(FieldErrors::new(error.fields.iter().map(|(path, messages)| (path.as_str(), messages.clone()))))
        }
        // Users do not know about the keys of forms.
        ErrorCode::IdempotencyKeyReused => Ok(FieldErrors::general(
            "This form was already submitted with other content. Check the result, then submit the form again if you \
             still need it.",
        )),
        ErrorCode::IdempotencyInProgress => Ok(FieldErrors::general(
            "This form was just submitted and is still being processed. Reload the page to see the result.",
        )),
        code if code.status().is_client_error() && code != ErrorCode::NotFound => {
            Ok(FieldErrors::general(&general_message(&error)))
        }
        _ if matches!(error.code, ErrorCode::PlatformUnavailable | ErrorCode::AiProviderUnavailable) => {
            Ok(FieldErrors::general(&error.message))
        }
        // What was typed must not be lost.
        ErrorCode::ServiceUnavailable => {
            error.log();
            Ok(FieldErrors::general(&error.message))
        }
        _ => Err(error),
    }
}
