//! `/`, `/sign-in`, `/sign-in/{token}` and `/sign-out`: signing in without a password.
//!
//! A link with a token works once. Opening it shows a button, and only the form of the button uses the token, because
//! mail scanners open links too. The response for an unknown email address is the same as for a known one and takes the
//! same time, because the link is created after the response.

use std::sync::Arc;

use askama::Template;
use crier_domain::brand::User;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::Result;
use crier_endpoints::reply;
use crier_endpoints::runner::body;
use crier_mail::Mailer;
use crier_store::mails::{self, NewMail};
use crier_store::sessions::{self, LinkUser};
use crier_store::{StoreError, users};
use http::StatusCode;
use http::header::USER_AGENT;
use salvo::writing::Text;
use salvo::{Depot, Request, Response, Router, handler};
use secrecy::ExposeSecret;

use super::cookie;
use super::error::page_headers;
use super::form::Form;
use super::route::see_other;
use super::shared::FieldErrors;
use crate::{is_from_another_site, notice, too_many_requests, unavailable};

/// The maximum size of a form that needs no session, in bytes.
const MAX_FORM: usize = 16 << 10;

pub fn router() -> Router {
    Router::new()
        .get(root)
        .head(root)
        .push(
            Router::with_path("sign-in")
                .get(show_form)
                .head(show_form)
                .post(send_link)
                .push(Router::with_path("{token}").get(confirm).head(confirm).post(sign_in)),
        )
        .push(Router::with_path("sign-out").post(sign_out))
}

#[derive(Template)]
#[template(path = "console/sign_in.html")]
struct SignIn {
    errors: FieldErrors,
    state: SignInState,
    has_mail: bool,
    email: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignInState {
    Ask,
    /// A link is sent if the email address belongs to a user.
    Sent,
    /// The link was used, or has expired.
    Expired,
    SignedOut,
}

#[derive(Template)]
#[template(path = "console/sign_in_confirm.html")]
struct SignInConfirm {
    user: LinkUser,
    token: String,
}

pub fn app(depot: &Depot) -> Option<Arc<App>> {
    depot.get_typed::<Arc<App>>().ok().cloned()
}

pub fn render(res: &mut Response, status: StatusCode, page: &impl Template) {
    res.status_code(status);
    res.render(Text::Html(page.render().unwrap_or_default()));
    page_headers(res);
}

/// Redirects a signed-in user to their first brand, and others to the sign-in page.
#[handler]
async fn root(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let path = match first_page(&app, req).await {
        Ok(path) => path,
        Err(error) => {
            error.log();
            return unavailable(res);
        }
    };
    see_other(res, &path);
    page_headers(res);
}

async fn first_page(app: &Arc<App>, req: &Request) -> Result<String> {
    let Some(token) = cookie::token(app, req.headers()) else { return Ok("/sign-in".to_owned()) };
    let mut conn = app.store.read().await?;
    let Some(found) = sessions::authenticate(&mut conn, &token, None, app.store.now()).await? else {
        return Ok("/sign-in".to_owned());
    };
    let memberships = crier_store::brands::list(&mut conn, found.caller.user_id).await?;
    Ok(memberships.iter().map(|one| one.brand.id).min().map_or("/brands/new".to_owned(), |id| format!("/brands/{id}")))
}

impl SignIn {
    fn new(app: &App, state: SignInState) -> Self {
        Self { errors: FieldErrors::default(), state, has_mail: app.mailer.is_some(), email: String::new() }
    }
}

#[handler]
async fn show_form(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let state = if req.query::<String>("note").is_some() { SignInState::SignedOut } else { SignInState::Ask };
    render(res, StatusCode::OK, &SignIn::new(&app, state));
}

/// Counts a request of an IP address. If the rate limit is exceeded, sends an error page and returns `false`.
pub async fn admit(app: &Arc<App>, req: &Request, res: &mut Response) -> bool {
    let decision = admission::count_sign_in_or_connect_request(app, req).await;
    reply::write_rate_limit_headers(res.headers_mut(), &decision);
    if !decision.allowed {
        too_many_requests(res, &decision);
    }
    decision.allowed
}

/// Returns the form if a page of this host sent it; otherwise sends an error page.
pub async fn form(app: &Arc<App>, req: &mut Request, res: &mut Response) -> Option<Form> {
    let is_own = !is_from_another_site(app, req.headers());
    let body = body::read_up_to(req, app.min_rate, MAX_FORM).await.ok().filter(|_| is_own);
    if body.is_none() {
        notice(res, StatusCode::BAD_REQUEST, "This form is not from a page of this server. Reload the page.");
    }
    body.map(|body| Form::parse(&body))
}

#[handler]
async fn send_link(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    if !admit(&app, req, res).await {
        return;
    }
    let Some(form) = form(&app, req, res).await else { return };
    let (mut page, email) = (SignIn::new(&app, SignInState::Sent), form.get("email").trim());
    page.email = email.to_owned();
    if app.mailer.is_none() {
        return render(res, StatusCode::NOT_FOUND, &page);
    }
    if !email.contains('@') || email.len() > 254 || email.contains(char::is_control) {
        let problem = "Enter an email address, such as ann@example.com.".to_owned();
        page.errors = FieldErrors::new([("email", vec![problem])]);
        page.state = SignInState::Ask;
        return render(res, StatusCode::UNPROCESSABLE_ENTITY, &page);
    }
    match find_user(&app, email).await {
        Ok(user) => {
            render(res, StatusCode::OK, &page);
            mail_link_later(&app, user);
        }
        Err(error) => {
            tracing::warn!(%error, "failed to read a user");
            unavailable(res);
        }
    }
}

async fn find_user(app: &App, email: &str) -> std::result::Result<Option<User>, StoreError> {
    users::find_by_email(&mut app.store.read().await?, email).await
}

/// Emails a link to the user, if there is one. The response does not wait for it, so that its time does not reveal
/// whether the user exists. If the process dies in the meantime, the user must request another link.
fn mail_link_later(app: &Arc<App>, user: Option<User>) {
    let (Some(user), Some(mailer)) = (user, app.mailer.clone()) else { return };
    let app = app.clone();
    tokio::spawn(async move {
        if let Err(error) = mail_link(&app, &mailer, &user).await {
            tracing::warn!(%error, "failed to email a sign-in link");
        }
    });
}

#[derive(Template)]
#[template(path = "sign_in_mail.txt")]
struct LinkMail<'a> {
    url: &'a str,
    minutes: i64,
}

async fn mail_link(app: &App, mailer: &Mailer, user: &User) -> std::result::Result<(), StoreError> {
    let mut tx = app.store.begin().await?;
    // The lock makes concurrent requests count one after the other.
    users::lock(&mut tx, user.id).await?;
    if !sessions::may_send_link(&mut tx, user.id).await? {
        return tx.rollback().await;
    }
    let token = sessions::create_link(&mut tx, user.id, sessions::LINK_LIFETIME).await?;
    let url = format!("{}/sign-in/{}", app.public_url, token.expose_secret());
    let text = LinkMail { url: &url, minutes: sessions::LINK_LIFETIME.num_minutes() };
    let body_text = text.render().map_err(|error| StoreError::Decode(format!("failed to write an email: {error}")))?;
    let message_id = mailer.message_id().map_err(|_| crier_base::secrets::SecretError::NoRandomness)?;
    let new = NewMail {
        recipient: &user.email,
        subject: "Your Crier sign-in link",
        body_text: &body_text,
        message_id: &message_id,
        ..NewMail::default()
    };
    mails::enqueue_mail(&mut tx, user.id, &new, None).await?;
    tx.commit().await
}

#[handler]
async fn confirm(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let token = req.param::<String>("token").unwrap_or_default();
    if let Some(user) = user_of_link(&app, &token, req, res).await {
        render(res, StatusCode::OK, &SignInConfirm { user, token });
    }
}

/// Returns the user of a valid link; otherwise writes the response. Only invalid links count against the client's IP
/// address, so that someone who guesses tokens does not lock out others at the same address.
async fn user_of_link(app: &Arc<App>, token: &str, req: &Request, res: &mut Response) -> Option<sessions::LinkUser> {
    let found = async {
        let mut conn = app.store.read().await?;
        sessions::user_of_link(&mut conn, token, app.store.now()).await
    };
    match found.await {
        Ok(Some(user)) => return Some(user),
        Ok(None) => {
            if admit(app, req, res).await {
                render(res, StatusCode::GONE, &SignIn::new(app, SignInState::Expired));
            }
        }
        Err(error) => {
            tracing::warn!(%error, "failed to read a sign-in link");
            unavailable(res);
        }
    }
    None
}

#[handler]
async fn sign_in(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    if form(&app, req, res).await.is_none() {
        return;
    }
    let token = req.param::<String>("token").unwrap_or_default();
    if user_of_link(&app, &token, req, res).await.is_none() {
        return;
    }
    let user_agent = req.headers().get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let device = sessions::Device { user_agent, address: admission::address_of(&app, req) };
    let redeemed = async {
        let mut tx = app.store.begin().await?;
        let session = sessions::redeem_link(&mut tx, &token, &device).await?;
        tx.commit().await?;
        Ok::<_, StoreError>(session)
    };
    match redeemed.await {
        Ok(Some(session)) => {
            cookie::set(&app, res, &session);
            let next = cookie::take_next(&app, req.headers(), res);
            see_other(res, next.as_deref().unwrap_or("/"));
            page_headers(res);
        }
        Ok(None) => render(res, StatusCode::GONE, &SignIn::new(&app, SignInState::Expired)),
        Err(error) => {
            tracing::warn!(%error, "sign-in failed");
            unavailable(res);
        }
    }
}

/// Ends the session. Like every form, this one needs the CSRF token.
#[handler]
async fn sign_out(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Some(app) = app(depot) else { return };
    let Some(form) = form(&app, req, res).await else { return };
    let token = cookie::token(&app, req.headers()).filter(|token| cookie::is_csrf_token(token, form.get("_csrf")));
    if let Some(token) = token {
        let ended = async {
            let mut tx = app.store.begin().await?;
            sessions::end(&mut tx, &token).await?;
            tx.commit().await
        };
        if let Err(error) = ended.await {
            tracing::warn!(%error, "failed to end a session");
            return unavailable(res);
        }
        cookie::clear(&app, res);
    }
    see_other(res, "/sign-in?note=signed-out");
    page_headers(res);
}
