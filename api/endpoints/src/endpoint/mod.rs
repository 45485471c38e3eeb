//! An endpoint is a value: its path, who may call it, the types of its request and response, and its handler. The runner
//! (`runner/`) makes all checks common to endpoints, in the contract's order, before it calls the handler. The OpenAPI
//! document (`openapi/`) is built from the same values, and callers in this process (the console) call them with a
//! request and get the value of the response ([`crate::runner::call`]).
//!
//! `CONTRIBUTING.md` has the recipe for a new one. [`crate::request`] explains requests: that of a GET is read from the
//! query, all others from the body. An endpoint whose request has no fields has the request `()`. The response is
//! [`One`](crate::response::One) record, [`Many`](crate::response::Many), [`Paged`](crate::response::Paged),
//! [`Nothing`](crate::response::Nothing), or a [`File`](crate::response::File). There are eleven kinds of handlers. The
//! first four need no live key and no `Idempotency-Key`; they may be `POST`s that change nothing.
//!
//! | Handler | For |
//! |---|---|
//! | [`Endpoint::reads`] | a request without fields that changes nothing |
//! | [`Endpoint::checks_then_reads`] | the same, with a query or a body |
//! | [`Endpoint::downloads`] | a stored file |
//! | [`Endpoint::streams`] | a file that is created while it is sent |
//! | [`Endpoint::writes`] | changes to the database only |
//! | [`Endpoint::checks_then_writes`] | the same, with a body |
//! | [`Endpoint::queries_then_writes`] | an external query that may be repeated (a name server) |
//! | [`Endpoint::uploads_then_writes`] | storing a file of the request's form |
//! | [`Endpoint::leases_then_writes`] | a call that must not run twice concurrently (a platform) |
//! | [`Endpoint::reserves_then_writes`] | the same, if it reserves credits, which it may refund, or writes in batches |
//! | [`Endpoint::speaks_tus`] | resumable uploads, whose protocol needs a live key, but no `Idempotency-Key` |
//!
//! A write whose response may be larger than 64 KiB sets how it is rendered for a repeated request with
//! [`Endpoint::with_rerender`].

mod handler;
pub mod spec;

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_store::{Conn, Tx};
use handler::{HandlerKind, Responder, WithoutRequest};
use http::Method;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::ErrorCode;
use crate::fields::{Problems, ReadContext};
use crate::openapi::schema::{SchemaFn, Schemas};
use crate::request::{FieldSpec, Parsed, Request};
use crate::response::Output;

pub use handler::{
    BoundHandler, BoundPrepare, BoundStream, DownloadHandler, Handler, PrepareHandler, RequestHandler, Step,
    StreamHandler, TusHandler, ValueSlot, WriteStep,
};
pub use spec::{BodyFormat, EndpointKind, EndpointSpec, FirstStep, Growth, HeaderSpec, RequestBody, ResponseShape};

/// A handler that reads records.
type ReadHandler<T> = Arc<dyn for<'a> Handler<'a, Conn, T>>;

/// An endpoint with the request `Q` and the response `R`.
pub struct Endpoint<Q, R: Output> {
    pub spec: EndpointSpec,
    handler: Option<HandlerKind<Q, R::Value>>,
    ignored: Option<fn(&Context, &Q) -> Option<&'static str>>,
    /// The name of the record, and the handler that renders it.
    rerender: Option<(&'static str, ReadHandler<R::Value>)>,
}

impl<Q: Request, R: Output> Endpoint<Q, R> {
    fn new(method: Method, path: &'static str, id: &'static str, scope: Scope) -> Self {
        let is_query = method == Method::GET;
        let body = RequestBody { schema: Schemas::request::<Q>, example: Q::example, format: BodyFormat::Json };
        let query: fn(&mut Schemas) -> Vec<FieldSpec> = |schemas| schemas.query::<Q>();
        let spec = EndpointSpec {
            method,
            path,
            id,
            scope,
            tag: "",
            summary: "",
            description: "",
            features: &[],
            serves_leftovers: false,
            for_publishers: false,
            for_limited_keys: false,
            growth: Growth::None,
            extension: false,
            body: (Q::HAS_FIELDS && !is_query).then_some(body),
            query: (Q::HAS_FIELDS && is_query).then_some(query),
            kind: EndpointKind::Read,
            status: if R::SHAPE == ResponseShape::Nothing { 204 } else { 200 },
            shape: R::SHAPE,
            schema: R::SCHEMA,
            file_types: Vec::new(),
            codes: &[],
            request_headers: &[],
            response_headers: &[],
            bytes_type: None,
        };
        Self { spec, handler: None, ignored: None, rerender: None }
    }

    pub fn get(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::GET, path, id, scope)
    }

    pub fn post(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::POST, path, id, scope)
    }

    pub fn put(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::PUT, path, id, scope)
    }

    pub fn head(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::HEAD, path, id, scope)
    }

    pub fn patch(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::PATCH, path, id, scope)
    }

    pub fn delete(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::DELETE, path, id, scope)
    }

    fn with(mut self, change: impl FnOnce(&mut EndpointSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub fn tag(self, tag: &'static str) -> Self {
        self.with(|spec| spec.tag = tag)
    }

    pub fn summary(self, summary: &'static str) -> Self {
        self.with(|spec| spec.summary = summary)
    }

    pub fn description(self, description: &'static str) -> Self {
        self.with(|spec| spec.description = description)
    }

    /// Restricts the endpoint to plans with one of these features.
    pub fn features(self, features: &'static [Feature]) -> Self {
        self.with(|spec| spec.features = features)
    }

    /// Lets clients list or delete records from an earlier plan without its features.
    pub fn serves_leftovers(self) -> Self {
        self.with(|spec| spec.serves_leftovers = true)
    }

    /// Rejects contributors: the effect is public, and there is no approval for it.
    pub fn for_publishers(self) -> Self {
        self.with(|spec| spec.for_publishers = true)
    }

    /// Lets keys with limited brands use an endpoint whose path contains no brand. Its handler must respect the limit.
    pub fn for_limited_keys(self) -> Self {
        self.with(|spec| spec.for_limited_keys = true)
    }

    /// Rejects requests while the disk is almost full or, for texts, while the plan's storage is full.
    pub fn adds(self, growth: Growth) -> Self {
        self.with(|spec| spec.growth = growth)
    }

    pub fn extension(self) -> Self {
        self.with(|spec| spec.extension = true)
    }

    /// Lets a client omit the body.
    pub fn body_is_optional(self) -> Self {
        self.body_format(BodyFormat::OptionalJson)
    }

    /// The body is a form with a file.
    pub fn body_is_form(self) -> Self {
        self.body_format(BodyFormat::Multipart)
    }

    fn body_format(self, format: BodyFormat) -> Self {
        self.with(|spec| spec.body = spec.body.map(|body| RequestBody { format, ..body }))
    }

    /// Lists the field that `ignored` returns in the header `Crier-Ignored-Fields`.
    pub fn ignores(self, ignored: fn(&Context, &Q) -> Option<&'static str>) -> Self {
        Self { ignored: Some(ignored), ..self }
    }

    /// Sets the status of a success response, if it is neither 200 nor 204.
    pub fn status(self, status: u16) -> Self {
        Self { spec: EndpointSpec { status, ..self.spec }, ..self }
    }

    /// Adds a type of a download.
    pub fn file_type(self, media_type: &'static str, schema: Option<SchemaFn>) -> Self {
        self.with(|spec| spec.file_types.push((media_type, schema)))
    }

    /// Sets the error codes beyond those of the common checks.
    pub fn error_codes(self, codes: &'static [ErrorCode]) -> Self {
        self.with(|spec| spec.codes = codes)
    }

    /// Sets the headers of a request of the tus protocol.
    pub fn request_headers(self, headers: &'static [HeaderSpec]) -> Self {
        self.with(|spec| spec.request_headers = headers)
    }

    /// Sets the headers of the success response of such a request.
    pub fn response_headers(self, headers: &'static [HeaderSpec]) -> Self {
        self.with(|spec| spec.response_headers = headers)
    }

    /// The body of a request of the tus protocol has bytes of this media type.
    pub fn body_is_bytes(self, media_type: &'static str) -> Self {
        self.with(|spec| spec.bytes_type = Some(media_type))
    }

    /// The handler receives the headers and the body of a request of the tus protocol ([`crate::tus`]).
    pub fn speaks_tus<H>(self, handler: H) -> Self
    where
        H: for<'a> TusHandler<'a> + 'static,
    {
        self.handler(EndpointKind::Tus, HandlerKind::Tus(Arc::new(handler)))
    }

    /// The handler receives a connection.
    pub fn reads<H>(self, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Conn, R::Value> + 'static,
    {
        self.handler(EndpointKind::Read, HandlerKind::Reads(Arc::new(WithoutRequest(handler))))
    }

    /// The handler receives a connection and the request, whose problems it reports in the order of the checks.
    pub fn checks_then_reads<H>(self, handler: H) -> Self
    where
        H: for<'a> RequestHandler<'a, Conn, Q, R::Value> + 'static,
    {
        self.handler(EndpointKind::Read, HandlerKind::Reads(Arc::new(handler)))
    }

    /// The handler receives a connection and returns the file to send, of one of [`Endpoint::file_type`].
    pub fn downloads<H>(self, handler: H) -> Self
    where
        H: for<'a> DownloadHandler<'a> + 'static,
    {
        self.handler(EndpointKind::Download, HandlerKind::Downloads(Arc::new(handler)))
    }

    /// The handler receives a connection and the request, and returns a file of one of [`Endpoint::file_type`] that is
    /// created while it is sent.
    pub fn streams<H>(self, handler: H) -> Self
    where
        H: for<'a> StreamHandler<'a, Q> + 'static,
    {
        self.handler(EndpointKind::Download, HandlerKind::Streams(Arc::new(handler)))
    }

    /// The handler receives the transaction that also stores the response. It may be retried, so it must have no other
    /// effect.
    pub fn writes<H>(self, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Tx, R::Value> + 'static,
    {
        self.handler(EndpointKind::Write, HandlerKind::Writes(Arc::new(WithoutRequest(handler))))
    }

    /// The same, with the request. It is read before the transaction begins, because on SQLite a transaction blocks all
    /// other writers; the handler reports its problems, in the order of the checks.
    pub fn checks_then_writes<H>(self, handler: H) -> Self
    where
        H: for<'a> RequestHandler<'a, Tx, Q, R::Value> + 'static,
    {
        self.handler(EndpointKind::Write, HandlerKind::Writes(Arc::new(handler)))
    }

    /// `prepare` has no transaction, and returns a [`WriteStep`].
    pub fn queries_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a, Q, R::Value> + 'static,
    {
        self.two_steps(FirstStep::Query, prepare)
    }

    /// Like [`Endpoint::queries_then_writes`], with a lease on the key during `prepare`.
    pub fn leases_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a, Q, R::Value> + 'static,
    {
        self.two_steps(FirstStep::Lease, prepare)
    }

    /// Like [`Endpoint::queries_then_writes`], without an overall timeout.
    pub fn uploads_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a, Q, R::Value> + 'static,
    {
        self.two_steps(FirstStep::Upload, prepare)
    }

    /// Like [`Endpoint::leases_then_writes`], without an overall timeout.
    pub fn reserves_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a, Q, R::Value> + 'static,
    {
        self.two_steps(FirstStep::Reserve, prepare)
    }

    fn two_steps(self, first: FirstStep, prepare: impl for<'a> PrepareHandler<'a, Q, R::Value> + 'static) -> Self {
        self.handler(EndpointKind::TwoSteps(first), HandlerKind::TwoSteps(first, Arc::new(prepare)))
    }

    fn handler(self, kind: EndpointKind, handler: HandlerKind<Q, R::Value>) -> Self {
        Self { handler: Some(handler), ..self.with(|spec| spec.kind = kind) }
    }

    /// Sets how a response that is too large to store ([`crate::response::MAX_STORED_BYTES`]) is rendered again, for an
    /// endpoint that writes. `handler` reads the current records; its context contains the ids passed to
    /// [`Reply::with_records`](crate::response::Reply::with_records) under the name `record`, which must differ from the
    /// names of the ids in the path. Never use this for a response with a secret, which is shown only once.
    pub fn with_rerender<H>(self, record: &'static str, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Conn, R::Value> + 'static,
    {
        Self { rerender: Some((record, Arc::new(handler))), ..self }
    }

    /// Binds a request to the handler. `slot` receives the value that the handler returns.
    pub fn bind(&self, cx: &Context, request: Parsed<Q>, slot: Option<ValueSlot<R::Value>>) -> BoundRequest {
        let responder = Responder::<R> { spec: cx.spec.clone(), slot };
        let ignored = self.ignored.and_then(|ignored| ignored(cx, request.partial().ok()?));
        let rerender =
            self.rerender.as_ref().map(|(record, handler)| Rerender { record, step: responder.step(handler.clone()) });
        let handler = self.handler.as_ref().map(|handler| responder.bind(handler, request));
        BoundRequest { handler, rerender, ignored }
    }

    /// Returns the endpoint without its types.
    pub fn erase(self) -> AnyEndpoint {
        let spec = self.spec.clone();
        let read = move |cx: &Context, problems: Problems, object: &Map<String, Value>| {
            let context = ReadContext::new(cx.zone(), cx.now);
            let are_texts = cx.spec.query.is_some() || cx.spec.body.is_some_and(|b| b.format == BodyFormat::Multipart);
            let context = if are_texts { context.texts() } else { context };
            self.bind(cx, Parsed::read(problems, object, context), None)
        };
        AnyEndpoint { spec: Arc::new(spec), read: Arc::new(read) }
    }
}

/// A request that is bound to its handler.
pub struct BoundRequest {
    /// `None` if the endpoint has none, which is a bug.
    pub handler: Option<BoundHandler>,
    pub rerender: Option<Rerender>,
    /// A known field that is ignored because of another one.
    pub ignored: Option<&'static str>,
}

/// Renders a response that was too large to store, from the ids of the records in it.
pub struct Rerender {
    /// The name under which the handler finds the ids that are not in the request's path.
    pub record: &'static str,
    pub step: Step<Conn>,
}

type ReadRequest = dyn Fn(&Context, Problems, &Map<String, Value>) -> BoundRequest + Send + Sync;

/// An endpoint without its types.
#[derive(Clone)]
pub struct AnyEndpoint {
    pub spec: Arc<EndpointSpec>,
    read: Arc<ReadRequest>,
}

impl AnyEndpoint {
    /// Reads the fields of a request and binds it to the handler. `problems` has those that were already found.
    pub fn read(&self, cx: &Context, problems: Problems, object: &Map<String, Value>) -> BoundRequest {
        (self.read)(cx, problems, object)
    }
}
