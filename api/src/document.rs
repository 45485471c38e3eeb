//! Serves the OpenAPI document. It needs no API key; requests for it count against the rate limit.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use chrono::NaiveDate;
use crier_endpoints::openapi::{self, example};
use crier_endpoints::page_body::PageBody;
use crier_endpoints::{App, admission, routes};
use crier_pages::styles;
use salvo::{Depot, FlowCtrl, Request, Response, Router};

/// Returns the route of `/api/public/v1/openapi.json`, relative to the prefix.
pub fn document(app: Arc<App>) -> Router {
    let document = Document { app, current: Arc::default() };
    Router::with_path("openapi.json").get(document.clone()).head(document)
}

/// The document, with placeholders for the days in examples, and the path of the API. Its URL is that of an [`App`], and
/// only if it is configured: otherwise, each process would have another one.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::document(&routes::all()).to_string());

#[derive(Clone)]
struct Document {
    app: Arc<App>,
    current: Arc<Mutex<Option<DocumentOfDay>>>,
}

/// The document as served on one day.
struct DocumentOfDay {
    day: NaiveDate,
    body: Arc<PageBody>,
}

impl Document {
    fn of(&self, today: NaiveDate) -> Arc<PageBody> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(current) if current.day == today => current.body.clone(),
            _ => {
                let mut text = example::fill_days(&DOCUMENT, today);
                if self.app.has_public_url {
                    text = openapi::at_base_url(&text, &self.app.public_url);
                }
                let body = Arc::new(PageBody::new(text));
                *current = Some(DocumentOfDay { day: today, body: body.clone() });
                body
            }
        }
    }
}

#[salvo::async_trait]
impl salvo::Handler for Document {
    async fn handle(&self, req: &mut Request, _depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        admission::count_unauthenticated(&self.app, req, res).await;
        let document = self.of(self.app.store.now().date_naive());
        styles::send(req, res, &document, "application/json", "no-cache");
    }
}
