//! `/invitation/{token}`: accepts an invitation to a brand: creates the user and signs them in.
//!
//! Only submitting the form uses up the invitation, because mail scanners open links too.

use std::sync::Arc;

use askama::Template;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_store::StoreError;
use crier_store::invitations::{self, Invitation};
use crier_store::sessions::Device;
use http::StatusCode;
use http::header::USER_AGENT;
use salvo::{Depot, Request, Response, Router, handler};

use super::cookie;
use super::error::page_headers;
use super::route::see_other;
use super::shared::{FieldErrors, role_with_article};
use super::sign_in::{admit, app, form, render};
use crate::unavailable;

/// The maximum length of a user's name, in characters.
const MAX_NAME: usize = 100;

pub fn router() -> Router {
    Router::with_path("invitation/{token}").get(show).head(show).post(accept)
}

#[derive(Template)]
#[template(path = "console/invitation.html")]
struct InvitationPage {
    errors: FieldErrors,
    /// `None` if the invitation is no longer valid.
    invitation: Option<Invitation>,
    /// The role with its article.
    role: &'static str,
    token: String,
    name: String,
    days: i64,
}

impl InvitationPage {
    fn new(invitation: Option<Invitation>, token: String, name: String) -> Self {
        let role = invitation.as_ref().map_or("", |one| role_with_article(one.role));
        Self { errors: FieldErrors::default(), invitation, role, token, name, days: invitations::LIFETIME.num_days() }
    }
}

fn render_gone(res: &mut Response) {
    render(res, StatusCode::GONE, &InvitationPage::new(None, String::new(), String::new()));
}

#[handler]
async fn show(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let token = req.param::<String>("token").unwrap_or_default();
    if let Some(invitation) = find(&app, &token, req, res).await {
        // The default for the name is the part of the email address before the @.
        let name = invitation.email.split('@').next().unwrap_or_default().to_owned();
        render(res, StatusCode::OK, &InvitationPage::new(Some(invitation), token, name));
    }
}

/// Returns a valid invitation; otherwise writes the response. Only invalid tokens count against the client's IP
/// address.
async fn find(app: &Arc<App>, token: &str, req: &Request, res: &mut Response) -> Option<Invitation> {
    let found = async {
        let mut conn = app.store.read().await?;
        invitations::find(&mut conn, token, app.store.now()).await
    };
    match found.await {
        Ok(Some(invitation)) => return Some(invitation),
        Ok(None) => {
            if admit(app, req, res).await {
                render_gone(res);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "failed to read an invitation");
            unavailable(res);
        }
    }
    None
}

#[handler]
async fn accept(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let Some(form) = form(&app, req, res).await else { return };
    let token = req.param::<String>("token").unwrap_or_default();
    let Some(invitation) = find(&app, &token, req, res).await else { return };
    let name = form.get("name").trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.contains(char::is_control) {
        let mut page = InvitationPage::new(Some(invitation), token, name);
        let problem = format!("Enter your name, with at most {MAX_NAME} characters.");
        page.errors = FieldErrors::new([("name", vec![problem])]);
        return render(res, StatusCode::UNPROCESSABLE_ENTITY, &page);
    }
    let user_agent = req.headers().get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let device = Device { user_agent, address: admission::address_of(&app, req) };
    let accepted = async {
        let mut tx = app.store.begin().await?;
        let accepted = invitations::accept(&mut tx, &token, &name, &device).await?;
        match accepted {
            Some(_) => tx.commit().await?,
            None => tx.rollback().await?,
        }
        Ok::<_, StoreError>(accepted)
    };
    match accepted.await {
        Ok(Some((session, brand))) => {
            cookie::set(&app, res, &session);
            see_other(res, &format!("/brands/{brand}"));
            page_headers(res);
        }
        Ok(None) => render_gone(res),
        Err(error) => {
            tracing::warn!(%error, "failed to accept an invitation");
            unavailable(res);
        }
    }
}
