//! `/reports/…`: what the mails of reports lead to. The tokens are sealed (`crier_jobs::reports::links`), so no key is
//! needed, and any replica serves them.
//!
//! - `files/{token}`: the file, for two weeks.
//! - `unsubscribe/{token}`: ends the mails of a schedule to a recipient. Mail programs send a `POST` on their own
//!   (RFC 8058); a person opens the page, which has a button, since programs that check mails open every address.

use std::sync::Arc;

use askama::Template;
use crier_base::secrets::link::LinkError;
use crier_domain::report::ReportDeliveryStatus;
use crier_jobs::reports::links::{FileLink, UnsubscribeLink};
use crier_store::{StoreError, report_deliveries, report_schedules};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::{html, notice};
use crate::app::App;
use crate::file::{self, FileResponse, SentFile};

pub fn router() -> Router {
    Router::with_path("reports")
        .push(Router::with_path("files/{token}").get(send_file).head(send_file))
        .push(Router::with_path("unsubscribe/{token}").get(ask).head(ask).post(unsubscribe))
}

#[handler]
async fn send_file(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let token = req.param::<String>("token").unwrap_or_default();
    let link = match FileLink::open(app.store.cipher(), &token, app.store.now()) {
        Ok(link) => link,
        Err(LinkError::Invalid) => return missing(res),
        Err(LinkError::Expired) => {
            return notice(res, StatusCode::GONE, "This address is no longer valid. Ask the sender for the report.");
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
        Ok(SentFile::OutOfRange) => notice(res, StatusCode::RANGE_NOT_SATISFIABLE, "The file has no such part."),
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
    report: String,
    brand: String,
    is_done: bool,
}

#[handler]
async fn ask(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    show(req, depot, res, false).await;
}

#[handler]
async fn unsubscribe(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    show(req, depot, res, true).await;
}

/// Shows the page, after ending the mails if this is wanted. A repeated request changes nothing.
async fn show(req: &Request, depot: &Depot, res: &mut Response, is_wanted: bool) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let token = req.param::<String>("token").unwrap_or_default();
    let Ok(link) = UnsubscribeLink::open(app.store.cipher(), &token) else { return missing(res) };
    match names(app, &link, is_wanted).await {
        Ok(Some((report, brand))) => {
            let page = UnsubscribePage { recipient: link.recipient, report, brand, is_done: is_wanted };
            html(res, StatusCode::OK, &page);
        }
        Ok(None) => notice(res, StatusCode::NOT_FOUND, "This report is not mailed any more."),
        Err(error) => unavailable(res, &error.to_string()),
    }
}

async fn names(app: &App, link: &UnsubscribeLink, is_wanted: bool) -> Result<Option<(String, String)>, StoreError> {
    if is_wanted {
        let mut tx = app.store.begin().await?;
        report_deliveries::unsubscribe(&mut tx, link.schedule_id, &link.recipient).await?;
        tx.commit().await?;
    }
    report_schedules::names_of(&mut app.store.read().await?, link.schedule_id).await
}

fn missing(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "There is no such report.");
}

fn unavailable(res: &mut Response, error: &str) {
    tracing::warn!(error, "a page of a report could not be shown");
    notice(res, StatusCode::SERVICE_UNAVAILABLE, "This cannot be shown right now; try again in a moment.");
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
}
