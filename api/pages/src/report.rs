//! `/reports/…`: the targets of the links in report emails. The tokens are sealed (`crier_jobs::reports::links`), so
//! the pages need no API key, and any replica serves them.
//!
//! - `files/{token}`: the report file, for two weeks.
//! - `unsubscribe/{token}`: unsubscribes a recipient from the report emails of a workspace, or subscribes them again.
//!   Mail programs send a `POST` automatically (RFC 8058). A `GET` only shows a page with a button, because programs
//!   that scan emails open every URL.

use std::sync::Arc;

use askama::Template;
use crier_base::secrets::link::LinkError;
use crier_domain::report::ReportDeliveryStatus;
use crier_endpoints::app::App;
use crier_endpoints::file::{self, FileResponse, SentFile};
use crier_endpoints::runner::body;
use crier_jobs::reports::links::{FileLink, UnsubscribeLink};
use crier_store::report_deliveries::{self, Subscription};
use crier_store::report_schedules::{self, ScheduleNames};
use crier_store::{StoreError, users};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::{html, notice};

/// The maximum size of the form, in bytes.
const MAX_FORM: usize = 16 << 10;

pub fn router() -> Router {
    Router::with_path("reports")
        .push(Router::with_path("files/{token}").get(send_file).head(send_file))
        .push(Router::with_path("unsubscribe/{token}").get(show_form).head(show_form).post(unsubscribe))
}

#[handler]
async fn send_file(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let token = req.param::<String>("token").unwrap_or_default();
    let link = match FileLink::open(app.store.cipher(), &token, app.store.now()) {
        Ok(link) => link,
        Err(LinkError::Invalid) => return invalid_link(res),
        Err(LinkError::Expired) => {
            return notice(res, StatusCode::GONE, "This URL is no longer valid. Ask the sender for the report.");
        }
    };
    let found = match find(app, &link).await {
        Ok(found) => found,
        Err(error) => return unavailable(res, &error.to_string()),
    };
    let Some(found) = found else { return missing(res) };
    match file::send(req, app.library.storage(), &found, res).await {
        Ok(SentFile::Sent) => {}
        Ok(SentFile::Missing) => missing(res),
        Ok(SentFile::OutOfRange) => notice(res, StatusCode::RANGE_NOT_SATISFIABLE, "The range is outside the file."),
        Err(error) => unavailable(res, &error.to_string()),
    }
}

async fn find(app: &App, link: &FileLink) -> Result<Option<FileResponse>, StoreError> {
    let mut conn = app.store.read().await?;
    let delivery = report_deliveries::find_any(&mut conn, link.delivery_id).await?;
    match delivery.filter(|delivery| delivery.status == ReportDeliveryStatus::Sent) {
        Some(delivery) => file::of_delivery(&mut conn, &delivery).await,
        None => Ok(None),
    }
}

#[derive(Template)]
#[template(path = "report_unsubscribe.html")]
struct UnsubscribePage {
    recipient: String,
    workspace: String,
    /// The names of the report and its brand. `None` if the schedule was deleted.
    report: Option<(String, String)>,
    is_unsubscribed: bool,
    /// Whether this request subscribed the recipient again.
    is_resubscribed: bool,
}

/// What a request to the page does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageAction {
    Show,
    Unsubscribe,
    Resubscribe,
}

#[handler]
async fn show_form(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    show(req, depot, res, PageAction::Show).await;
}

/// Unsubscribes the recipient. Mail programs send different bodies, so any body except that of the page's own form for
/// subscribing again has this effect, also one that is too large or arrives too slowly.
#[handler]
async fn unsubscribe(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let body = body::read_up_to(req, app.min_rate, MAX_FORM).await.unwrap_or_default();
    let is_resubscribed = url::form_urlencoded::parse(&body).any(|(name, _)| name == "resubscribe");
    show(req, depot, res, if is_resubscribed { PageAction::Resubscribe } else { PageAction::Unsubscribe }).await;
}

/// Performs the action and shows the page. A repeated request changes nothing.
async fn show(req: &Request, depot: &Depot, res: &mut Response, action: PageAction) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let token = req.param::<String>("token").unwrap_or_default();
    let Ok(link) = UnsubscribeLink::open(app.store.cipher(), &token) else { return invalid_link(res) };
    match serve(app, &link, action).await {
        Ok(Some(page)) => html(res, StatusCode::OK, &page),
        Ok(None) => notice(res, StatusCode::NOT_FOUND, "This report is no longer sent by email."),
        Err(error) => unavailable(res, &error.to_string()),
    }
}

/// Returns the page. `None` if the workspace was deleted.
async fn serve(app: &App, link: &UnsubscribeLink, action: PageAction) -> Result<Option<UnsubscribePage>, StoreError> {
    let mut conn = app.store.read().await?;
    let workspace_id = link.workspace_id;
    let Some(workspace) = users::workspace_name(&mut conn, workspace_id).await? else { return Ok(None) };
    let names = report_schedules::names_of(&mut conn, link.schedule_id).await?;
    let mailbox = crier_mail::mailbox(&link.recipient);
    let subscription = Subscription { workspace_id, address: &link.recipient, mailbox: &mailbox };
    if action == PageAction::Show {
        let stop = report_deliveries::mail_stop(&mut conn, &subscription).await?;
        let is_unsubscribed = stop.is_some_and(|stop| stop.is_unsubscribed);
        return Ok(Some(UnsubscribePage::new(link, workspace, names, is_unsubscribed, false)));
    }
    drop(conn);
    let mut tx = app.store.begin().await?;
    if action == PageAction::Unsubscribe {
        report_deliveries::unsubscribe(&mut tx, workspace_id, &mailbox).await?;
    } else {
        report_deliveries::resubscribe(&mut tx, &subscription).await?;
    }
    tx.commit().await?;
    let is_resubscribed = action == PageAction::Resubscribe;
    Ok(Some(UnsubscribePage::new(link, workspace, names, !is_resubscribed, is_resubscribed)))
}

impl UnsubscribePage {
    fn new(
        link: &UnsubscribeLink,
        workspace: String,
        names: Option<ScheduleNames>,
        is_unsubscribed: bool,
        is_resubscribed: bool,
    ) -> Self {
        let report = names.map(|names| (names.report, names.brand));
        Self { recipient: link.recipient.clone(), workspace, report, is_unsubscribed, is_resubscribed }
    }
}

fn invalid_link(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This link is not valid. Check that you copied the whole link.");
}

fn missing(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This report does not exist.");
}

fn unavailable(res: &mut Response, error: &str) {
    tracing::warn!(error, "failed to show a report page");
    notice(res, StatusCode::SERVICE_UNAVAILABLE, "This page is unavailable. Wait a moment, then reload it.");
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
}
