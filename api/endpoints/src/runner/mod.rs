//! Runs the checks common to all endpoints, in the contract's order:
//!
//! route → key → rate limit → scope → test key on a write → brand membership and role → plan feature →
//! `Idempotency-Key` → body syntax → the handler (resource → validation → state → caps).
//!
//! Salvo does the routing; [`Runner::run`] does everything after it, from top to bottom.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use crier_store::Conn;
use futures::FutureExt;
use salvo::writing::Text;
use salvo::{Depot, FlowCtrl, Request, Response};

use crate::app::App;
use crate::context::{Context, Query};
use crate::endpoint::{
    AnyEndpoint, BodyFormat, BoundHandler, BoundRequest, EndpointKind, EndpointSpec, ResponseShape, Step,
};
use crate::error::{ApiError, Result};
use crate::fields::Problems;
use crate::file::{self, FileResponse, SentFile};
use crate::outgoing::CallerHolders;
use crate::request::unknown::{self, KnownNames};
use crate::response::ApiResponse;
use crate::tus::{self, TusRequest};
use crate::{admission, pagination, reply, routes};

mod access;
pub mod body;
pub mod body_reader;
pub mod call;
mod form;
pub mod in_flight;
pub mod json;
pub mod large_bodies;
mod room;
pub mod workspace_slots;
mod write;

use access::Access;

/// The id of a request: in its response, in the log, and in the jobs that it causes.
#[derive(Clone)]
pub struct RequestId(pub String);

/// The path template, a metric label with a bounded number of values.
#[derive(Clone, Copy)]
pub struct RouteLabel(pub &'static str);

/// The endpoints, and the names that each of them knows. They are the same for all instances in a process, so they are
/// built only once.
static ENDPOINTS: LazyLock<Vec<(AnyEndpoint, Arc<KnownNames>)>> = LazyLock::new(|| {
    let endpoints = routes::all().into_iter();
    endpoints
        .map(|endpoint| {
            let known = KnownNames::of(&endpoint.spec);
            (endpoint, Arc::new(known))
        })
        .collect()
});

/// The lists that a workspace may read at the same time, in each process. A page may take ten milliseconds, and other
/// workspaces need half of the connections of SQLite.
const MAX_LISTS: u32 = 2;

/// Runs one endpoint.
#[derive(Clone)]
pub struct Runner {
    app: Arc<App>,
    endpoint: AnyEndpoint,
    known: Arc<KnownNames>,
}

impl Runner {
    /// Returns a runner for each endpoint, in the order of the OpenAPI document.
    pub fn all(app: &Arc<App>) -> Vec<Self> {
        let runner = |(endpoint, known): &(AnyEndpoint, Arc<KnownNames>)| Self {
            app: app.clone(),
            endpoint: endpoint.clone(),
            known: known.clone(),
        };
        ENDPOINTS.iter().map(runner).collect()
    }

    pub fn spec(&self) -> &EndpointSpec {
        &self.endpoint.spec
    }
}

#[salvo::async_trait]
impl salvo::Handler for Runner {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.spec().path));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        if self.spec().kind == EndpointKind::Tus {
            tus::write_version(res);
        }
        let run = AssertUnwindSafe(self.run(req, res, &request_id)).catch_unwind();
        let result = run.await.unwrap_or_else(|panic| Err(reply::panic_error(&panic)));
        match result {
            Ok(Some(response)) => reply::write_success(res, response),
            // The file, or the response of the tus protocol, was already written to `res`.
            Ok(None) => {}
            Err(error) => reply::write_error(&self.app, res, &error, &request_id),
        }
    }
}

impl Runner {
    /// Returns the response. `None` if it was already written to `res`.
    async fn run(&self, req: &mut Request, res: &mut Response, request_id: &str) -> Result<Option<ApiResponse>> {
        let ids = self.ids(req).ok_or_else(ApiError::no_route)?;
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        let (authenticated, record) = admission::admit(&self.app, req, res, brand_id).await?;
        let caller = &authenticated.caller;
        self.app.touch(caller);
        req.extensions_mut().insert(CallerHolders::of(caller));
        let access = Access {
            app: &self.app,
            spec: &self.endpoint.spec,
            ids,
            authenticated,
            record: &record,
            request_id: request_id.to_owned(),
        };
        let mut cx = access.check().await?;
        cx.query = Query::parse(req.uri().query().unwrap_or_default());
        cx.unknown.check_query(&self.known, cx.query.names());
        if self.spec().is_write() {
            return write::run(&self.endpoint, &self.known, cx, record, req, res).await.map(Some);
        }
        let BoundRequest { handler, ignored, .. } = self.receive(&mut cx, req).await?;
        write_ignored_fields(&mut cx, ignored, res);
        match handler {
            Some(BoundHandler::Read(step)) => self.read(&cx, &step).await.map(Some),
            Some(BoundHandler::Download(handler)) => {
                let found = handler.call(&cx, &mut self.app.store.read().await?).await?;
                send_file(&self.app, req, &found, res).await.map(|()| None)
            }
            Some(BoundHandler::Stream(handler)) => {
                let mut conn = self.app.store.read().await?;
                handler(&cx, &mut conn).await?.write(res);
                Ok(None)
            }
            Some(BoundHandler::Tus(handler)) => {
                tus::check_version(req.headers())?;
                room::check_disk_for_creation(&cx)?;
                let (path, headers) = (req.uri().path().to_owned(), req.headers().clone());
                let request = TusRequest { path: &path, headers: &headers, body: req.body_mut() };
                handler.call(&cx, request).await?.write(res);
                Ok(None)
            }
            _ => Err(ApiError::bug("a write was run as a read")),
        }
    }

    /// Calls the handler of a read.
    async fn read(&self, cx: &Context, step: &Step<Conn>) -> Result<ApiResponse> {
        if self.spec().shape != ResponseShape::Pages {
            return step(cx, &mut self.app.store.read().await?).await;
        }
        let turns = self.app.list_turns.of(cx.caller.workspace_id, MAX_LISTS);
        // The semaphore is never closed.
        let _turn = turns.acquire().await.ok();
        let mut conn = self.app.store.read().await?;
        // Checked only here, because other requests may have used up the budget while this one waited.
        self.app.outgoing.check_caller(pagination::MAX_BYTES, &cx.caller)?;
        step(cx, &mut conn).await
    }

    /// Reads the request of an endpoint that changes nothing: its body or its query.
    async fn receive(&self, cx: &mut Context, req: &mut Request) -> Result<BoundRequest> {
        if self.spec().body.is_none() {
            return Ok(self.endpoint.read(cx, Problems::from(cx.unknown.typos.clone()), &cx.query.fields()));
        }
        let raw = body::read(req, self.app.min_rate).await?;
        let read = || read_json(&self.endpoint, &self.known, cx, req, &raw);
        self.app.large_bodies.run(raw.len(), read).await
    }

    /// Returns the ids in the path. `None` if one is not a positive integer of at most 63 bits.
    fn ids(&self, req: &Request) -> Option<Vec<(&'static str, i64)>> {
        let id = |name: &'static str| {
            let id: i64 = req.params().get(name)?.parse().ok()?;
            (id > 0).then_some((name, id))
        };
        self.spec().ids().map(id).collect()
    }
}

/// Parses a JSON body, checks it for unknown fields, and binds it to the handler.
fn read_json(
    endpoint: &AnyEndpoint,
    known: &KnownNames,
    cx: &mut Context,
    req: &Request,
    raw: &[u8],
) -> Result<BoundRequest> {
    let is_optional = endpoint.spec.body.is_some_and(|body| body.format == BodyFormat::OptionalJson);
    let object = body::parse(req.headers(), raw, is_optional)?;
    cx.unknown.check_body(known, &object);
    Ok(endpoint.read(cx, Problems::from(cx.unknown.typos.clone()), &object))
}

/// Writes the header that lists the ignored names of a request. Call it after the body is read.
fn write_ignored_fields(cx: &mut Context, ignored: Option<&str>, res: &mut Response) {
    if let Some(name) = ignored {
        cx.unknown.ignore("", name);
    }
    if let Some(value) = cx.unknown.header() {
        res.headers_mut().insert(unknown::HEADER, value);
    }
}

/// Writes a file of a download to the response.
pub async fn send_file(app: &App, req: &Request, found: &FileResponse, res: &mut Response) -> Result<()> {
    let sent = file::send(req, app.library.storage(), found, res).await;
    match sent.map_err(|error| ApiError::storage(error.to_string()))? {
        SentFile::Missing => return Err(ApiError::not_found("file")),
        SentFile::OutOfRange => res.render(Text::Plain("The range is outside the file.")),
        SentFile::Sent => {}
    }
    Ok(())
}
