//! The pages that keep the fields of a form whose session has ended, so that a long text is not lost.
//!
//! Without a session, the page leads to the sign-in page in another tab, and its button submits the form again. The form
//! then has the token of the earlier session, so a second page asks the signed-in user whether to submit it. The fields
//! are only in these pages: neither the browser nor the server stores them.

use askama::Template;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::runner::body;
use crier_store::keys::Caller;
use http::header::CONTENT_TYPE;
use salvo::Request;

use super::form::{Form, has_more_fields};
use super::visit::Visit;
use crate::is_from_own_page;

/// The maximum number of fields, because each field of a few bytes is a longer element of the page.
const MAX_FIELDS: usize = 2_000;

#[derive(Template)]
#[template(path = "console/kept_form.html")]
struct KeptForm<'a> {
    /// `None` if nobody is signed in.
    user: Option<&'a Caller>,
    action: &'a str,
    /// The token of the session.
    csrf: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

/// Returns the page for a form that was sent without a session. `None` if the form is not kept.
pub async fn signed_out(app: &App, req: &mut Request) -> Option<String> {
    if !is_kept(app, req) || !admission::count_address(app, req).await.allowed {
        return None;
    }
    let body = body::read(req, app.min_rate).await.ok()?;
    if has_more_fields(&body, MAX_FIELDS) {
        return None;
    }
    render(None, action(req), "", &Form::parse(&body))
}

/// Returns the page for a form with the token of another session. `None` if the form is not kept.
pub fn signed_in(visit: &Visit, req: &Request) -> Option<String> {
    if !is_kept(&visit.app, req) {
        return None;
    }
    render(Some(&visit.authenticated.caller), action(req), &visit.csrf, &visit.form)
}

/// Returns whether a page of this host sent the form, and not another site, whose fields nobody here has entered. Files,
/// requests of the script and the consent to an application are not kept: who gives the consent must see what it is for.
fn is_kept(app: &App, req: &Request) -> bool {
    let headers = req.headers();
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    req.uri().path().starts_with("/brands/")
        && content_type.starts_with("application/x-www-form-urlencoded")
        && !headers.contains_key("x-requested-with")
        && is_from_own_page(app, headers) == Some(true)
}

fn action(req: &Request) -> &str {
    req.uri().path_and_query().map_or("", |path| path.as_str())
}

fn render(user: Option<&Caller>, action: &str, csrf: &str, form: &Form) -> Option<String> {
    let fields: Vec<_> = form.under("").filter(|(name, _)| *name != "_csrf").take(MAX_FIELDS + 1).collect();
    let has_secret = fields.iter().any(|(name, _)| name.starts_with("credentials."));
    if has_secret || fields.len() > MAX_FIELDS {
        return None;
    }
    KeptForm { user, action, csrf, fields }.render().ok()
}
