//! An endpoint is a value: its path, who may call it, its request and response types, and its handler. The runner
//! (`runner/`) makes all checks common to endpoints, in the contract's order, before it calls the handler. The OpenAPI
//! document (`openapi/`) is built from the same values.
//!
//! **To add one:** create `routes/<resource>/<verb>.rs` with the request and response types, `pub fn endpoint() ->
//! Endpoint` and the handler. Add two lines to `routes/<resource>/mod.rs` and a test to `tests/api/`, then accept the
//! new snapshot of the document. [`crate::openapi::schema`] explains how the types describe themselves. A query
//! parameter is always optional in the document, and a handler that reads the query begins with `cx.name_problems()`.
//! There are eight kinds of handlers. The first two need no live key and no `Idempotency-Key`; they may be `POST`s that
//! change nothing.
//!
//! | Handler | For |
//! |---|---|
//! | [`Endpoint::reads`] | a request that changes nothing |
//! | [`Endpoint::downloads`] | a stored file |
//! | [`Endpoint::writes`] | changes to the database only |
//! | [`Endpoint::checks_then_writes`] | the same, with a body |
//! | [`Endpoint::queries_then_writes`] | an external query that may be repeated (a name server) |
//! | [`Endpoint::uploads_then_writes`] | storing a file of the request's form |
//! | [`Endpoint::leases_then_writes`] | a call that must not run twice concurrently (a platform) |
//! | [`Endpoint::reserves_then_writes`] | the same, if it reserves something that is refunded on failure (credits) |
//!
//! A write whose response may be larger than 64 KiB sets how it is rendered for a repeated request with
//! [`Endpoint::with_rerender`].

mod handler;

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_store::{Conn, Tx};
use http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::Schemas;
use crate::response::ApiResponse;

pub use handler::{
    DownloadHandler, FirstStep, Handler, HandlerFuture, HandlerKind, ParsedBodyHandler, PrepareHandler, WriteStep,
};

/// The shape of a success response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseShape {
    /// `{data: …}`
    One,
    /// `{data: […]}`
    Many,
    /// `{data: […], links, meta}`
    Pages,
    /// No body.
    Nothing,
    /// A file.
    File,
}

/// What a request adds to the database or the storage, beyond a row or two of a limited size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    #[default]
    None,
    /// Records whose number and size have fixed limits.
    Records,
    /// Texts that count against the plan's storage.
    Texts,
    /// Files, which count against the plan's storage when they are stored, and their descriptions.
    Files,
}

/// Returns the schema of a type.
pub type SchemaFn = fn(&mut Schemas) -> Value;

/// A request body: its schema and an example.
#[derive(Clone)]
pub struct RequestBody {
    pub schema: fn(&mut Schemas) -> Value,
    pub example: Value,
    pub format: BodyFormat,
}

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    /// The body may be missing.
    OptionalJson,
    /// `multipart/form-data` with a part `file`; the other parts are texts.
    Multipart,
}

/// A query parameter.
#[derive(Clone)]
pub struct Parameter {
    pub name: &'static str,
    pub description: &'static str,
    pub schema: fn(&mut Schemas) -> Value,
    pub extension: bool,
    /// Whether several endpoints have this parameter, with the same description and schema.
    pub is_shared: bool,
}

#[derive(Clone)]
pub struct Endpoint {
    pub method: Method,
    /// Relative to the API's base, ids in braces, named as in the specification.
    pub path: &'static str,
    /// The `operationId`.
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    pub scope: Scope,
    /// The plan must have one of these. If empty, every plan has access.
    pub features: &'static [Feature],
    /// Whether the endpoint is also available without these features while there are records from an earlier plan.
    pub serves_leftovers: bool,
    /// Whether only roles that can publish may use it.
    pub for_publishers: bool,
    pub growth: Growth,
    /// Whether the endpoint is not in the specification.
    pub extension: bool,
    pub body: Option<RequestBody>,
    pub query: Vec<Parameter>,
    pub status: u16,
    pub shape: ResponseShape,
    pub schema: Option<fn(&mut Schemas) -> Value>,
    /// The media types of a download, each with its schema if it is JSON.
    pub file_types: Vec<(&'static str, Option<SchemaFn>)>,
    /// The error codes beyond those of the common checks.
    pub codes: &'static [ErrorCode],
    pub handler: HandlerKind,
    /// Returns the name of a known field that is ignored because of another field.
    pub ignores: Option<fn(&Context) -> Option<&'static str>>,
    /// Renders a response that was too large to store, for a repeated request.
    pub rerender: Option<Rerender>,
}

/// Renders a response from the ids of the records in it.
#[derive(Clone)]
pub struct Rerender {
    /// The name under which the handler finds the ids that are not in the request's path.
    pub record: &'static str,
    pub handler: Arc<dyn for<'a> Handler<'a, Conn>>,
}

impl Endpoint {
    fn new(method: Method, path: &'static str, id: &'static str, scope: Scope) -> Self {
        async fn no_handler(_: &Context, _: &mut Conn) -> Result<ApiResponse> {
            Err(ApiError::bug("the endpoint has no handler"))
        }
        Self {
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
            growth: Growth::None,
            extension: false,
            body: None,
            query: Vec::new(),
            status: 200,
            shape: ResponseShape::Nothing,
            schema: None,
            file_types: Vec::new(),
            codes: &[],
            handler: HandlerKind::Reads(Arc::new(no_handler)),
            ignores: None,
            rerender: None,
        }
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

    pub fn delete(path: &'static str, id: &'static str, scope: Scope) -> Self {
        Self::new(Method::DELETE, path, id, scope)
    }

    pub fn tag(self, tag: &'static str) -> Self {
        Self { tag, ..self }
    }

    pub fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Restricts the endpoint to plans with one of these features.
    pub fn features(self, features: &'static [Feature]) -> Self {
        Self { features, ..self }
    }

    /// Lets clients list or delete records from an earlier plan without its features.
    pub fn serves_leftovers(self) -> Self {
        Self { serves_leftovers: true, ..self }
    }

    /// Rejects contributors: the effect is public, and there is no approval for it.
    pub fn for_publishers(self) -> Self {
        Self { for_publishers: true, ..self }
    }

    /// Rejects requests while the disk is almost full or, for texts, while the plan's storage is full.
    pub fn adds(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }

    pub fn extension(self) -> Self {
        Self { extension: true, ..self }
    }

    /// Takes a JSON body of this type.
    pub fn body<T: JsonSchema>(self, example: Value) -> Self {
        self.takes::<T>(BodyFormat::Json, example)
    }

    /// Takes an optional JSON body of this type.
    pub fn optional_body<T: JsonSchema>(self, example: Value) -> Self {
        self.takes::<T>(BodyFormat::OptionalJson, example)
    }

    /// Takes a form with a file.
    pub fn upload<T: JsonSchema>(self, example: Value) -> Self {
        self.takes::<T>(BodyFormat::Multipart, example)
    }

    fn takes<T: JsonSchema>(self, format: BodyFormat, example: Value) -> Self {
        Self { body: Some(RequestBody { schema: Schemas::request::<T>, example, format }), ..self }
    }

    /// Lists the field that `ignored` returns in the header `Crier-Ignored-Fields`.
    pub fn ignores(self, ignored: fn(&Context) -> Option<&'static str>) -> Self {
        Self { ignores: Some(ignored), ..self }
    }

    pub fn query<T: JsonSchema>(mut self, name: &'static str, description: &'static str) -> Self {
        self.query.push(Parameter {
            name,
            description,
            schema: Schemas::request::<T>,
            extension: false,
            is_shared: false,
        });
        self
    }

    /// Adds a query parameter that is not in the specification.
    pub fn extension_query<T: JsonSchema>(mut self, name: &'static str, description: &'static str) -> Self {
        self.query.push(Parameter {
            name,
            description,
            schema: Schemas::request::<T>,
            extension: true,
            is_shared: false,
        });
        self
    }

    /// Adds the query parameters `page` and `per_page`.
    pub fn pages(mut self) -> Self {
        let parameter =
            |name, description, schema| Parameter { name, description, schema, extension: false, is_shared: true };
        self.query.push(parameter(
            "page",
            "The page number, starting at 1. A page past the end is empty.",
            |_| json!({ "type": "integer", "minimum": 1, "default": 1 }),
        ));
        self.query.push(parameter(
            "per_page",
            "The number of records per page. Values above 100 are treated as 100.",
            |_| json!({ "type": "integer", "minimum": 1, "default": 20 }),
        ));
        self
    }

    /// Sets the status and shape of a success response.
    pub fn response<T: JsonSchema>(self, status: u16, shape: ResponseShape) -> Self {
        Self { status, shape, schema: Some(Schemas::response::<T>), ..self }
    }

    /// Adds a type of a download.
    pub fn file_type(mut self, media_type: &'static str, schema: Option<SchemaFn>) -> Self {
        self.file_types.push((media_type, schema));
        self
    }

    /// Sets the status of a success response to 204, without a body.
    pub fn no_content(self) -> Self {
        Self { status: 204, shape: ResponseShape::Nothing, schema: None, ..self }
    }

    /// Sets the error codes beyond those of the common checks.
    pub fn error_codes(self, codes: &'static [ErrorCode]) -> Self {
        Self { codes, ..self }
    }

    /// The handler receives a connection.
    pub fn reads<H>(self, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Conn> + 'static,
    {
        Self { handler: HandlerKind::Reads(Arc::new(handler)), ..self }
    }

    /// The handler receives a connection and returns the file to send, of one of [`Endpoint::file_types`].
    pub fn downloads<H>(self, handler: H) -> Self
    where
        H: for<'a> DownloadHandler<'a> + 'static,
    {
        Self { shape: ResponseShape::File, handler: HandlerKind::Downloads(Arc::new(handler)), ..self }
    }

    /// The handler receives the transaction that also stores the response. It may be retried, so it must have no other
    /// effect.
    pub fn writes<H>(self, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Tx> + 'static,
    {
        let handler = Arc::new(handler);
        let begin = move |_: &Context| {
            let handler = handler.clone();
            WriteStep::new((), move |cx, tx, _| handler.call(cx, tx))
        };
        Self { handler: HandlerKind::Writes(Arc::new(begin)), ..self }
    }

    /// `read` parses the body before the transaction begins, because on SQLite a transaction blocks all other writers;
    /// `write` reports its problems, in the order of the checks.
    pub fn checks_then_writes<T, R, W>(self, read: R, write: W) -> Self
    where
        T: Send + Sync + 'static,
        R: Fn(&Context) -> T + Send + Sync + 'static,
        W: for<'a> ParsedBodyHandler<'a, T> + 'static,
    {
        let write = Arc::new(write);
        let begin = move |cx: &Context| {
            let write = write.clone();
            WriteStep::new(read(cx), move |cx, tx, parsed| write.call(cx, tx, parsed))
        };
        Self { handler: HandlerKind::Writes(Arc::new(begin)), ..self }
    }

    /// Sets how a response that is too large to store ([`crate::response::MAX_STORED_BYTES`]) is rendered again, for an
    /// endpoint that [`Endpoint::writes`]. `handler` reads the current records; its context contains the ids passed to
    /// [`ApiResponse::with_records`] under the name `record`. Never use this for a response with a secret, which is
    /// shown only once.
    pub fn with_rerender<H>(self, record: &'static str, handler: H) -> Self
    where
        H: for<'a> Handler<'a, Conn> + 'static,
    {
        Self { rerender: Some(Rerender { record, handler: Arc::new(handler) }), ..self }
    }

    /// `prepare` has no transaction, and returns a [`WriteStep`].
    pub fn queries_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a> + 'static,
    {
        self.two_steps(FirstStep::Query, prepare)
    }

    /// Like [`Endpoint::queries_then_writes`], with a lease on the key during `prepare`.
    pub fn leases_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a> + 'static,
    {
        self.two_steps(FirstStep::Lease, prepare)
    }

    /// Like [`Endpoint::queries_then_writes`], without an overall timeout.
    pub fn uploads_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a> + 'static,
    {
        self.two_steps(FirstStep::Upload, prepare)
    }

    /// Like [`Endpoint::leases_then_writes`], without an overall timeout.
    pub fn reserves_then_writes<H>(self, prepare: H) -> Self
    where
        H: for<'a> PrepareHandler<'a> + 'static,
    {
        self.two_steps(FirstStep::Reserve, prepare)
    }

    fn two_steps(self, first: FirstStep, prepare: impl for<'a> PrepareHandler<'a> + 'static) -> Self {
        Self { handler: HandlerKind::TwoSteps { prepare: Arc::new(prepare), first }, ..self }
    }

    /// Returns whether the endpoint needs a live key and an `Idempotency-Key`.
    pub fn is_write(&self) -> bool {
        !matches!(self.handler, HandlerKind::Reads(_) | HandlerKind::Downloads(_))
    }

    /// Returns the names of the ids in the path, in order.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    pub fn is_brand_nested(&self) -> bool {
        self.ids().any(|id| id == "brand")
    }
}
