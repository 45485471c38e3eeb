//! The route of a page, and the checks that all pages share: session → rate limit → brand membership → role → CSRF →
//! form → page.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::context::Query;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::limits::RateLimitSubject;
use crier_endpoints::outgoing::CallerHolders;
use crier_endpoints::reply;
use crier_endpoints::runner::body;
use crier_endpoints::runner::{RequestId, RouteLabel};
use crier_store::{brands, conversations, notices, operators, sessions};
use futures::FutureExt;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, REFERER, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use salvo::writing::Text;
use salvo::{Depot, FlowCtrl, Request, Response, Router};
use secrecy::SecretString;

use super::cookie;
use super::error::{ErrorPage, message, page_headers};
use super::form::{Form, has_more_fields};
use super::kept_form;
use super::shared::FieldErrors;
use super::shell::MAX_UNREAD;
use super::visit::{PageReply, Visit, shown_brand};
use crate::{is_from_another_site, is_from_own_page, notice};

/// The maximum number of fields of a form. The composer with 100 accounts has a few thousand.
const MAX_FIELDS: usize = 10_000;

/// The maximum number of pages per minute and session.
pub const PAGES_PER_MINUTE: u32 = 600;

/// The users who may access a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All members of the brand in the path; all users if it has none.
    Member,
    /// The members of the brand except contributors.
    Publisher,
    /// The owners and admins of the brand.
    Manager,
    /// The operators of the installation.
    Operator,
}

pub type PageFuture<'a> = Pin<Box<dyn Future<Output = Result<PageReply>> + Send + 'a>>;

/// The handler of a page: `async fn(&Visit) -> Result<PageReply>`.
pub trait Page<'a>: Send + Sync {
    fn call(&self, visit: &'a Visit) -> PageFuture<'a>;
}

impl<'a, F, Fut> Page<'a> for F
where
    F: Fn(&'a Visit) -> Fut + Send + Sync,
    Fut: Future<Output = Result<PageReply>> + Send + 'a,
{
    fn call(&self, visit: &'a Visit) -> PageFuture<'a> {
        Box::pin(self(visit))
    }
}

/// A page with a form: `async fn(&Visit, StatusCode, FieldErrors) -> Result<PageReply>`. Its route shows it without
/// errors.
pub struct FormPage<F>(F);

impl<'a, F, Fut> Page<'a> for FormPage<F>
where
    F: Fn(&'a Visit, StatusCode, FieldErrors) -> Fut + Send + Sync,
    Fut: Future<Output = Result<PageReply>> + Send + 'a,
{
    fn call(&self, visit: &'a Visit) -> PageFuture<'a> {
        Box::pin((self.0)(visit, StatusCode::OK, FieldErrors::default()))
    }
}

#[derive(Clone)]
pub struct PageRoute {
    method: Method,
    /// IDs are in braces. `{*}` is a word; a path has at most one.
    path: &'static str,
    access: Access,
    page: Arc<dyn for<'a> Page<'a>>,
}

impl PageRoute {
    pub fn get(path: &'static str, page: impl for<'a> Page<'a> + 'static) -> Self {
        Self { method: Method::GET, path, access: Access::Member, page: Arc::new(page) }
    }

    pub fn form<F: 'static>(path: &'static str, page: F) -> Self
    where
        FormPage<F>: for<'a> Page<'a>,
    {
        Self::get(path, FormPage(page))
    }

    pub fn post(path: &'static str, page: impl for<'a> Page<'a> + 'static) -> Self {
        Self { method: Method::POST, ..Self::get(path, page) }
    }

    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub fn shape(&self) -> (Method, &'static str) {
        (self.method.clone(), self.path)
    }

    /// Returns the path in salvo's syntax.
    pub fn pattern(&self) -> String {
        let segments = self.path.trim_start_matches('/').split('/').map(|segment| match segment {
            "{*}" => "{word}".to_owned(),
            segment => crier_endpoints::pattern(segment),
        });
        segments.collect::<Vec<_>>().join("/")
    }

    fn ids(&self) -> impl Iterator<Item = &'static str> {
        let segments = self.path.split('/').filter(|segment| *segment != "{*}");
        segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}

#[derive(Clone)]
pub struct PageRunner {
    app: Arc<App>,
    route: PageRoute,
}

impl PageRunner {
    pub fn new(app: Arc<App>, route: PageRoute) -> Self {
        Self { app, route }
    }

    pub fn router(self, path: &str) -> Router {
        let router = Router::with_path(path);
        if self.route.method == Method::GET { router.get(self.clone()).head(self) } else { router.post(self) }
    }
}

#[salvo::async_trait]
impl salvo::Handler for PageRunner {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.route.path));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        let Some(token) = cookie::token(&self.app, req.headers()) else {
            return self.to_sign_in(req, res).await;
        };
        let mut visit = match self.visit(req, &token, request_id).await {
            Ok(Some(visit)) => visit,
            Ok(None) => {
                // Limit guesses of the token, because each one is a database query.
                if !admission::count_address(&self.app, req).await.allowed {
                    return notice(
                        res,
                        StatusCode::TOO_MANY_REQUESTS,
                        "Too many requests. Wait a moment, then reload the page.",
                    );
                }
                cookie::clear(&self.app, res);
                return self.to_sign_in(req, res).await;
            }
            Err(error) => {
                error.log();
                return notice(res, error.code.status(), "Crier is unavailable. Wait a moment, then reload the page.");
            }
        };
        cookie::set(&self.app, res, &token);
        let run = AssertUnwindSafe(self.run(req, &token, &mut visit)).catch_unwind().await;
        match run.unwrap_or_else(|panic| Err(reply::panic_error(&panic))) {
            Ok(PageReply::Html(status, text)) => {
                res.status_code(status);
                res.render(Text::Html(text));
            }
            Ok(PageReply::Text(status, text)) => {
                res.status_code(status);
                res.render(Text::Plain(text));
            }
            Ok(PageReply::SeeOther(path)) => see_other(res, &path),
            // The response with the file has its own headers.
            Ok(PageReply::File(file)) => return pass_on(*file, res),
            Err(error) => {
                error.log();
                if let Some(seconds) = error.retry_after {
                    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
                }
                if visit.is_fetch {
                    res.status_code(error.code.status());
                    res.render(Text::Plain(message(&error)));
                } else {
                    ErrorPage::render(&visit, &error, res);
                }
            }
        }
        page_headers(res);
    }
}

impl PageRunner {
    /// Redirects to the sign-in page. After sign-in, the user returns to this page, or to the page of the submitted
    /// form. If the form can be kept, sends the page that keeps it instead.
    async fn to_sign_in(&self, req: &mut Request, res: &mut Response) {
        if self.route.method == Method::POST
            && let Some(page) = kept_form::signed_out(&self.app, req).await
        {
            res.status_code(StatusCode::UNAUTHORIZED);
            res.render(Text::Html(page));
            return page_headers(res);
        }
        // Images and requests of the script are not pages to return to.
        let is_page = req.headers().get("sec-fetch-dest").is_none_or(|kind| kind == "document");
        let next = match self.route.method {
            _ if !is_page => None,
            Method::GET => req.uri().path_and_query().map(|path| path.as_str().to_owned()),
            _ => referrer_path(req.headers()),
        };
        if let Some(next) = next {
            cookie::set_next(&self.app, res, &next);
        }
        see_other(res, "/sign-in");
        page_headers(res);
    }

    /// Authenticates the request. `None` if the session has ended.
    async fn visit(&self, req: &Request, token: &SecretString, request_id: String) -> Result<Option<Visit>> {
        let ids = self.ids(req);
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        let mut conn = self.app.store.read().await?;
        let now = self.app.store.now();
        let Some(authenticated) = sessions::authenticate(&mut conn, token, brand_id, now).await? else {
            return Ok(None);
        };
        let memberships = brands::list(&mut conn, authenticated.caller.user_id).await?;
        let is_operator = operators::is_operator(&mut conn, authenticated.caller.user_id).await?;
        let current = authenticated.membership.as_ref();
        let (unread, problems) = match shown_brand(current.map(|(brand, _)| brand.id), &memberships) {
            Some(brand) => {
                let can_approve = memberships.iter().any(|one| one.brand.id == brand && one.role.can_manage());
                let user = authenticated.caller.user_id;
                let problems = notices::count_problems(&mut conn, brand, user, can_approve, MAX_UNREAD + 1).await?;
                (conversations::count_unread(&mut conn, brand, MAX_UNREAD + 1).await?, problems)
            }
            None => (0, 0),
        };
        drop(conn);
        self.app.touch(&authenticated.caller);
        Ok(Some(Visit {
            app: self.app.clone(),
            authenticated: Arc::new(authenticated),
            memberships,
            is_operator,
            unread,
            problems,
            ids,
            word: req.param::<String>("word"),
            query: Query::parse(req.uri().query().unwrap_or_default()),
            form: Form::default(),
            multipart: Mutex::default(),
            is_unavailable: AtomicBool::default(),
            keeps_key: AtomicBool::default(),
            headers: req.headers().clone(),
            csrf: cookie::csrf_token(token),
            request_id,
            now,
            referrer_path: referrer_path(req.headers()),
            is_head: *req.method() == Method::HEAD,
            is_fetch: req.headers().get("x-requested-with").is_some_and(|with| with == "fetch"),
        }))
    }

    async fn run(&self, req: &mut Request, token: &SecretString, visit: &mut Visit) -> Result<PageReply> {
        req.extensions_mut().insert(CallerHolders::of(&visit.authenticated.caller));
        let key = RateLimitSubject::Key(visit.authenticated.caller.key_id);
        let decision = self.app.limiter.take(key, PAGES_PER_MINUTE).await;
        if !decision.allowed {
            return Err(ApiError::rate_limited(decision.retry_after));
        }
        let names_brand = self.route.ids().any(|name| name == "brand");
        if visit.ids.len() != self.route.ids().count() || names_brand && visit.authenticated.membership.is_none() {
            return Err(ApiError::not_found("page"));
        }
        check_access(self.route.access, visit)?;
        if self.route.method == Method::POST && !self.read_form(req, token, visit).await? {
            return kept_form_or_error(req, visit);
        }
        self.route.page.call(visit).await
    }

    /// Reads the form, unless it is multipart, and returns whether a page of this session sent it.
    async fn read_form(&self, req: &mut Request, token: &SecretString, visit: &mut Visit) -> Result<bool> {
        let content_type = req.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_multipart = content_type.starts_with("multipart/form-data");
        // The body of a multipart form is forwarded as a stream, and a token in the URL would be logged. So the headers
        // must prove that a page of this host sent the form.
        let is_own = if is_multipart {
            visit.form = Form::parse(req.uri().query().unwrap_or_default().as_bytes());
            is_from_own_page(&self.app, req.headers()) == Some(true)
        } else {
            let body = body::read(req, self.app.min_rate).await?;
            if has_more_fields(&body, MAX_FIELDS) {
                let message = "This form has too many fields. Choose fewer options, and submit the form again.";
                return Err(ApiError::new(ErrorCode::PayloadTooLarge, message));
            }
            visit.form = Form::parse(&body);
            let has_token = cookie::is_csrf_token(token, visit.form.get("_csrf"));
            has_token && !is_from_another_site(&self.app, req.headers())
        };
        if is_own && is_multipart {
            // With the length, the endpoint can reject a file that exceeds the plan before it is received.
            let described = [CONTENT_TYPE, CONTENT_LENGTH];
            let described =
                described.into_iter().filter_map(|name| Some((name.clone(), req.headers().get(name)?.clone())));
            let headers = described.collect();
            *visit.multipart.get_mut().unwrap_or_else(PoisonError::into_inner) = Some((headers, req.take_body()));
        }
        Ok(is_own)
    }

    /// Returns the IDs in the path without those that do not fit 63 bits.
    fn ids(&self, req: &Request) -> Vec<(&'static str, i64)> {
        let id = |name: &'static str| Some((name, req.params().get(name)?.parse().ok()?));
        self.route.ids().filter_map(id).collect()
    }
}

/// Asks whether to submit a form of another session, or rejects it.
fn kept_form_or_error(req: &Request, visit: &Visit) -> Result<PageReply> {
    if let Some(page) = kept_form::signed_in(visit, req) {
        return Ok(PageReply::Html(StatusCode::FORBIDDEN, page));
    }
    let message = "This form does not belong to your session. Go back, reload the page, and submit the form again.";
    Err(ApiError::new(ErrorCode::InsufficientScope, message))
}

fn check_access(access: Access, visit: &Visit) -> Result<()> {
    let forbidden = |message: &'static str| Err(ApiError::new(ErrorCode::InsufficientScope, message));
    match access {
        Access::Member => Ok(()),
        Access::Publisher if visit.can_publish() => Ok(()),
        Access::Publisher => Err(ApiError::for_publishers()),
        Access::Manager if visit.can_manage() => Ok(()),
        Access::Manager => forbidden("Only owners and admins of the brand can do this. Ask one of them."),
        Access::Operator if visit.is_operator => Ok(()),
        Access::Operator => forbidden("Only operators of this installation can do this."),
    }
}

pub fn see_other(res: &mut Response, path: &str) {
    res.status_code(StatusCode::SEE_OTHER);
    if let Ok(path) = HeaderValue::from_str(path) {
        res.headers_mut().insert(LOCATION, path);
    }
}

fn pass_on(mut file: Response, res: &mut Response) {
    if let Some(status) = file.status_code {
        res.status_code(status);
    }
    for (name, value) in file.headers() {
        res.headers_mut().insert(name, value.clone());
    }
    // The `Range` header of the request is not forwarded to the endpoint.
    res.headers_mut().remove(ACCEPT_RANGES);
    res.replace_body(file.take_body());
}

/// Returns the path of the referring page if it is on this host.
fn referrer_path(headers: &HeaderMap) -> Option<String> {
    let url = url::Url::parse(headers.get(REFERER)?.to_str().ok()?).ok()?;
    let host = headers.get(HOST)?.to_str().ok()?;
    let own = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str()?),
        None => url.host_str()?.to_owned(),
    };
    // A path that starts with two slashes would be the URL of another host.
    (own == host && !url.path().starts_with("//")).then(|| url.path().to_owned())
}
