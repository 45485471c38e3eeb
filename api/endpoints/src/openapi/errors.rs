//! The errors of an endpoint: those of the runner's checks, and its own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ErrorEnvelope;
use super::components::{Components, IGNORED_FIELDS, common_headers, header, pascal_case, reference};
use crate::endpoint::spec::{EndpointKind, EndpointSpec, FirstStep, Growth};
use crate::error::ErrorCode;

/// Returns all error codes of the endpoint by status: those of the common checks, and its own.
pub(super) fn error_codes(endpoint: &EndpointSpec) -> BTreeMap<u16, Vec<ErrorCode>> {
    let mut codes = vec![
        ErrorCode::Unauthorized,
        ErrorCode::RateLimited,
        ErrorCode::InsufficientScope,
        ErrorCode::NotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::InternalError,
        ErrorCode::ServiceUnavailable,
    ];
    if endpoint.needs_live_key() {
        codes.push(ErrorCode::TestModeWriteForbidden);
    }
    if endpoint.is_write() {
        codes.extend([
            ErrorCode::IdempotencyKeyRequired,
            ErrorCode::IdempotencyKeyInvalid,
            ErrorCode::IdempotencyKeyReused,
            ErrorCode::IdempotencyInProgress,
        ]);
    }
    if matches!(endpoint.kind, EndpointKind::TwoSteps(FirstStep::Query | FirstStep::Lease)) {
        codes.push(ErrorCode::PlatformUnavailable);
    }
    if endpoint.is_brand_nested() || endpoint.needs_all_brands() {
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
    if endpoint.query.is_some() {
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

/// Returns a reference to the response with these codes, all of one status. Its description lists them.
pub(super) fn error_response(status: u16, codes: &[ErrorCode], components: &mut Components) -> Value {
    let mut headers = common_headers();
    let in_progress = codes.contains(&ErrorCode::IdempotencyInProgress);
    if in_progress || matches!(status, 423 | 429 | 503) {
        headers.insert("Retry-After".to_owned(), header("RetryAfter"));
    }
    match status {
        401 => headers.insert("WWW-Authenticate".to_owned(), header("Authenticate")),
        405 => headers.insert("Allow".to_owned(), header("Allow")),
        422 => headers.insert(IGNORED_FIELDS.to_owned(), header("IgnoredFields")),
        _ => None,
    };
    let example = |code: &ErrorCode| (code.to_string(), reference("examples", code.as_str()));
    let examples: Map<String, Value> = codes.iter().map(example).collect();
    let schema = components.schemas.response::<ErrorEnvelope>();
    let response = json!({
        "description": list(codes),
        "headers": headers,
        "content": { "application/json": { "schema": schema, "examples": examples } },
    });
    components.response(&name(codes), response)
}

/// Returns the codes as the description of a response.
pub(super) fn list(codes: &[ErrorCode]) -> String {
    codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the name of the response with these codes. Codes that always occur together have one name.
fn name(codes: &[ErrorCode]) -> String {
    let name = |code: &ErrorCode| match code {
        ErrorCode::IdempotencyKeyRequired | ErrorCode::IdempotencyKeyInvalid => "InvalidIdempotencyKey".to_owned(),
        ErrorCode::IdempotencyKeyReused | ErrorCode::IdempotencyInProgress => "IdempotencyConflict".to_owned(),
        code => pascal_case(code.as_str()),
    };
    let mut names: Vec<String> = codes.iter().map(name).collect();
    names.dedup();
    names.join("Or")
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
