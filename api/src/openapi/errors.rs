//! The errors of an endpoint: those of the runner's checks, and its own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schema::Schemas;
use super::{ErrorEnvelope, IGNORED_FIELDS, common_headers, reference};
use crate::endpoint::{Endpoint, FirstStep, Growth, HandlerKind};
use crate::error::ErrorCode;

/// Returns all error codes of the endpoint by status: those of the common checks, and its own.
pub(super) fn error_codes(endpoint: &Endpoint) -> BTreeMap<u16, Vec<ErrorCode>> {
    let mut codes = vec![
        ErrorCode::Unauthorized,
        ErrorCode::RateLimited,
        ErrorCode::InsufficientScope,
        ErrorCode::NotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::InternalError,
        ErrorCode::ServiceUnavailable,
    ];
    if endpoint.is_write() {
        codes.extend([
            ErrorCode::TestModeWriteForbidden,
            ErrorCode::IdempotencyKeyRequired,
            ErrorCode::IdempotencyKeyInvalid,
            ErrorCode::IdempotencyKeyReused,
            ErrorCode::IdempotencyInProgress,
        ]);
    }
    if matches!(endpoint.handler, HandlerKind::TwoSteps { first: FirstStep::Query | FirstStep::Lease, .. }) {
        codes.push(ErrorCode::PlatformUnavailable);
    }
    if endpoint.is_brand_nested() {
        codes.push(ErrorCode::BrandForbidden);
    }
    if !endpoint.features.is_empty() {
        codes.push(ErrorCode::FeatureNotAvailable);
    }
    if endpoint.body.is_some() {
        codes.extend([
            ErrorCode::InvalidJson,
            ErrorCode::PayloadTooLarge,
            ErrorCode::UnsupportedMediaType,
            ErrorCode::ValidationFailed,
        ]);
    }
    if !endpoint.query.is_empty() {
        codes.push(ErrorCode::ValidationFailed);
    }
    if endpoint.growth == Growth::Texts {
        codes.push(ErrorCode::StorageLimitExceeded);
    }
    codes.extend(endpoint.codes);
    let mut out: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in codes {
        let of_status = out.entry(code.status().as_u16()).or_default();
        if !of_status.contains(&code) {
            of_status.push(code);
        }
    }
    out
}

pub(super) fn error_response(status: u16, codes: &[ErrorCode], s: &mut Schemas) -> Value {
    let mut headers = common_headers();
    let in_progress = codes.contains(&ErrorCode::IdempotencyInProgress);
    if in_progress || matches!(status, 429 | 503) {
        headers.insert("Retry-After".to_owned(), reference("RetryAfter"));
    }
    match status {
        401 => headers.insert("WWW-Authenticate".to_owned(), reference("Authenticate")),
        405 => headers.insert("Allow".to_owned(), reference("Allow")),
        422 => headers.insert(IGNORED_FIELDS.to_owned(), reference("IgnoredFields")),
        _ => None,
    };
    let names: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    let example = |code: &ErrorCode| (code.to_string(), json!({ "$ref": format!("#/components/examples/{code}") }));
    let examples: Map<String, Value> = codes.iter().map(example).collect();
    json!({
        "description": names.join(", "),
        "headers": headers,
        "content": { "application/json": { "schema": s.response::<ErrorEnvelope>(), "examples": examples } },
    })
}

/// Returns an example of each code, for the components.
pub(super) fn examples() -> Map<String, Value> {
    ErrorCode::ALL.iter().map(|code| (code.to_string(), example(*code))).collect()
}

/// Returns an error with this code. Its message is the first sentence of the catalogue.
fn example(code: ErrorCode) -> Value {
    let message = code.entry().split_inclusive(". ").next().unwrap_or_default().trim();
    let mut error = json!({
        "type": code.kind(), "code": code, "message": message, "request_id": "req_d2Z8Vt0pJb3mXw5qKc7LfA1e",
        "doc_url": code.doc_url("https://crier.example"),
    });
    if code == ErrorCode::ValidationFailed {
        error["fields"] = json!({ "name": ["This field is required."] });
    }
    json!({ "value": { "error": error } })
}
