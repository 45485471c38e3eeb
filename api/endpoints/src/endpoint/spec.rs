//! What is known of an endpoint without its types.

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use http::Method;
use serde_json::{Map, Value};

use crate::error::ErrorCode;
use crate::openapi::schema::{SchemaFn, Schemas};
use crate::request::FieldSpec;

/// The kind of the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// An external query with a timeout of 20 s. It may run twice.
    Query,
    /// An external call with a timeout of 20 s that must not run twice, so the key is leased during the call.
    Lease,
    /// Stores a file. Each part of this has its own timeout.
    Upload,
    /// Like [`FirstStep::Lease`], but without a timeout from the runner: the step enforces the limit of 20 s itself,
    /// and refunds what it reserved; or it writes in batches, and another request can continue after the last one.
    Reserve,
}

impl FirstStep {
    /// Returns whether the key is leased during the first step.
    pub const fn needs_lease(self) -> bool {
        matches!(self, Self::Lease | Self::Reserve)
    }
}

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

/// A request body: its schema and an example.
#[derive(Clone, Copy)]
pub struct RequestBody {
    pub schema: SchemaFn,
    pub example: fn() -> Map<String, Value>,
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

/// Whether an endpoint changes something, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    Read,
    Download,
    /// A request of the tus protocol, which has its own rules for repeated requests.
    Tus,
    Write,
    TwoSteps(FirstStep),
}

/// A header that an endpoint reads or writes itself.
#[derive(Clone, Copy, Debug)]
pub struct HeaderSpec {
    pub name: &'static str,
    pub description: &'static str,
    pub is_required: bool,
    pub example: &'static str,
}

/// What is known of an endpoint without its types.
#[derive(Clone)]
pub struct EndpointSpec {
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
    /// Whether a key with limited brands may use the endpoint although its path contains no brand.
    pub for_limited_keys: bool,
    pub growth: Growth,
    /// Whether the endpoint is not in the specification.
    pub extension: bool,
    pub body: Option<RequestBody>,
    /// The parameters of the query.
    pub query: Option<fn(&mut Schemas) -> Vec<FieldSpec>>,
    pub kind: EndpointKind,
    pub status: u16,
    pub shape: ResponseShape,
    pub schema: Option<SchemaFn>,
    /// The media types of a download, each with its schema if it is JSON.
    pub file_types: Vec<(&'static str, Option<SchemaFn>)>,
    /// The error codes beyond those of the common checks.
    pub codes: &'static [ErrorCode],
    /// The headers of a request of the tus protocol.
    pub request_headers: &'static [HeaderSpec],
    /// The headers of its success response.
    pub response_headers: &'static [HeaderSpec],
    /// The media type of its body, which the handler reads as bytes.
    pub bytes_type: Option<&'static str>,
}

impl EndpointSpec {
    /// Returns whether the endpoint needs a live key and an `Idempotency-Key`.
    pub fn is_write(&self) -> bool {
        matches!(self.kind, EndpointKind::Write | EndpointKind::TwoSteps(_))
    }

    /// Returns whether the endpoint needs a live key, because it changes something.
    pub fn needs_live_key(&self) -> bool {
        self.is_write() || self.kind == EndpointKind::Tus
    }

    /// Returns the names of the ids in the path, in order.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Returns whether only keys that can use all brands of their user may use the endpoint.
    pub fn needs_all_brands(&self) -> bool {
        !self.is_brand_nested() && !self.for_limited_keys
    }

    pub fn is_brand_nested(&self) -> bool {
        self.ids().any(|id| id == "brand")
    }
}
