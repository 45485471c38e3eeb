//! Runs the checks common to all endpoints, in the contract's order:
//!
//! route → key → rate limit → scope → test key on a write → brand membership and role → plan feature →
//! `Idempotency-Key` → body syntax → the handler (resource → validation → state → caps).
//!
//! Salvo does the routing; [`Runner::run`] does everything after it, from top to bottom.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use crier_domain::access::KeyMode;
use crier_store::idempotency::KeyRecord;
use crier_store::keys::{Authenticated, Caller};
use crier_store::leftovers;
use futures::FutureExt;
use http::Method;
use salvo::writing::Text;
use salvo::{Depot, FlowCtrl, Request, Response};

use crate::app::App;
use crate::context::{Context, Query};
use crate::endpoint::{BodyFormat, Endpoint, HandlerKind, ResponseShape};
use crate::error::{ApiError, Result};
use crate::file::{self, FileResponse, SentFile};
use crate::middleware::{RequestId, RouteLabel};
use crate::outgoing::CallerHolders;
use crate::response::ApiResponse;
use crate::{admission, pagination, reply, routes};

mod body;
mod body_reader;
mod form;
mod in_flight;
pub mod json;
mod large_bodies;
mod room;
mod unknown;
mod write;

pub use body::read as read_body;
pub use body_reader::{MinRate, TimeBudget};
pub use in_flight::{InFlightKey, InFlightKeys};
pub use large_bodies::LargeBodySemaphore;
use unknown::KnownNames;
pub use unknown::UnknownNames;

/// The endpoints, and the names that each of them knows. They are the same for all instances in a process, so they are
/// built only once.
static ENDPOINTS: LazyLock<Vec<(Arc<Endpoint>, Arc<KnownNames>)>> = LazyLock::new(|| {
    let endpoints = routes::all().into_iter();
    endpoints
        .map(|endpoint| {
            let known = KnownNames::of(&endpoint);
            (Arc::new(endpoint), Arc::new(known))
        })
        .collect()
});

/// Runs one endpoint.
#[derive(Clone)]
pub struct Runner {
    app: Arc<App>,
    endpoint: Arc<Endpoint>,
    known: Arc<KnownNames>,
}

impl Runner {
    /// Returns a runner for each endpoint, in the order of the OpenAPI document.
    pub fn all(app: &Arc<App>) -> Vec<Self> {
        let runner = |(endpoint, known): &(Arc<Endpoint>, Arc<KnownNames>)| Self {
            app: app.clone(),
            endpoint: endpoint.clone(),
            known: known.clone(),
        };
        ENDPOINTS.iter().map(runner).collect()
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

#[salvo::async_trait]
impl salvo::Handler for Runner {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.endpoint.path));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        let run = AssertUnwindSafe(self.run(req, res, &request_id)).catch_unwind();
        let result = run.await.unwrap_or_else(|panic| Err(reply::panic_error(&panic)));
        match result {
            Ok(Some(response)) => reply::write_success(res, response),
            // The file was already written to `res`.
            Ok(None) => {}
            Err(error) => reply::write_error(&self.app, res, &error, &request_id),
        }
    }
}

impl Runner {
    /// Returns the response. `None` if it was already written to `res`.
    pub async fn run(&self, req: &mut Request, res: &mut Response, request_id: &str) -> Result<Option<ApiResponse>> {
        let ids = self.ids(req).ok_or_else(ApiError::no_route)?;
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        let (Authenticated { caller, membership }, record) = admission::admit(&self.app, req, res, brand_id).await?;
        self.app.touch(&caller);
        req.extensions_mut().insert(CallerHolders::of(&caller));
        let plan = admission::plan(&self.app, &caller)?.clone();
        self.check_key(&caller)?;
        if brand_id.is_some() && membership.is_none() {
            return Err(ApiError::brand_forbidden());
        }
        if self.endpoint.for_publishers && membership.as_ref().is_some_and(|(_, role)| !role.can_publish()) {
            return Err(ApiError::for_publishers());
        }
        let features = self.endpoint.features;
        let has_feature = features.is_empty() || features.iter().any(|feature| plan.has(*feature));
        if !has_feature && !self.has_leftovers(&caller, brand_id, &record).await? {
            return Err(ApiError::feature(features));
        }

        let mut cx = Context {
            app: self.app.clone(),
            caller,
            plan,
            membership,
            ids,
            template: self.endpoint.path,
            query: Query::parse(req.uri().query().unwrap_or_default()),
            body: serde_json::Map::new(),
            file: None,
            other_files: Vec::new(),
            body_size: 0,
            growth: self.endpoint.growth,
            creates: self.endpoint.method == Method::POST,
            unknown: UnknownNames::default(),
            request_id: request_id.to_owned(),
            now: self.app.store.now(),
        };
        cx.unknown.check_query(&self.known, &cx.query);
        match &self.endpoint.handler {
            HandlerKind::Reads(handler) => {
                if let Some(body) = &self.endpoint.body {
                    let raw = body::read(req, self.app.min_rate).await?;
                    let parse = || set_json_body(&mut cx, &self.known, body.format, req, &raw);
                    self.app.large_bodies.run(raw.len(), parse).await?;
                }
                unknown::write_header(&self.endpoint, &mut cx, res);
                let mut conn = self.app.store.read().await?;
                if self.endpoint.shape == ResponseShape::Pages {
                    // Checked only here, because other requests may have used up the budget while this one waited for
                    // its connection.
                    self.app.outgoing.check_caller(pagination::MAX_BYTES, &cx.caller)?;
                }
                handler.call(&cx, &mut conn).await.map(Some)
            }
            HandlerKind::Downloads(handler) => {
                unknown::write_header(&self.endpoint, &mut cx, res);
                let found = handler.call(&cx, &mut self.app.store.read().await?).await?;
                self.send_file(req, &found, res).await.map(|()| None)
            }
            _ => write::run(&self.endpoint, &self.known, cx, record, req, res).await.map(Some),
        }
    }

    /// Returns whether the endpoint serves records from an earlier plan with its features, and there are any.
    async fn has_leftovers(&self, caller: &Caller, brand_id: Option<i64>, record: &KeyRecord) -> Result<bool> {
        if !self.endpoint.serves_leftovers {
            return Ok(false);
        }
        if record.exists() {
            // A repeated deletion gets its stored response, even if it deleted the last record.
            return Ok(true);
        }
        let mut conn = self.app.store.read().await?;
        for feature in self.endpoint.features {
            if leftovers::exist(&mut conn, caller.user_id, brand_id, *feature).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn send_file(&self, req: &Request, found: &FileResponse, res: &mut Response) -> Result<()> {
        let sent = file::send(req, self.app.library.storage(), found, res).await;
        match sent.map_err(|error| ApiError::storage(error.to_string()))? {
            SentFile::Missing => return Err(ApiError::not_found("file")),
            SentFile::OutOfRange => res.render(Text::Plain("The range is outside the file.")),
            SentFile::Sent => {}
        }
        Ok(())
    }

    /// Returns the ids in the path. `None` if one is not a positive integer of at most 63 bits.
    fn ids(&self, req: &Request) -> Option<Vec<(&'static str, i64)>> {
        let id = |name: &'static str| {
            let id: i64 = req.params().get(name)?.parse().ok()?;
            (id > 0).then_some((name, id))
        };
        self.endpoint.ids().map(id).collect()
    }

    fn check_key(&self, caller: &Caller) -> Result<()> {
        if !caller.scopes.has(self.endpoint.scope) {
            return Err(ApiError::insufficient_scope(self.endpoint.scope));
        }
        if self.endpoint.is_write() && caller.mode == KeyMode::Test {
            return Err(ApiError::test_mode());
        }
        Ok(())
    }
}

/// Parses a JSON body into the context and checks it for unknown fields.
fn set_json_body(cx: &mut Context, known: &KnownNames, format: BodyFormat, req: &Request, raw: &[u8]) -> Result<()> {
    cx.body = body::parse(req.headers(), raw, format == BodyFormat::OptionalJson)?;
    cx.unknown.check_body(known, &cx.body);
    Ok(())
}
