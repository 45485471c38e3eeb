//! Writes success and error responses.

use std::any::Any;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use salvo::Response;
use salvo::http::ResBody;

use crate::app::App;
use crate::error::{ApiError, ErrorCode};
use crate::limits::Decision;
use crate::response::ApiResponse;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

pub fn write_success(res: &mut Response, response: ApiResponse) {
    res.status_code(StatusCode::from_u16(response.status).unwrap_or(StatusCode::OK));
    if let Some(location) = response.location.as_deref().and_then(|path| HeaderValue::from_str(path).ok()) {
        res.headers_mut().insert(LOCATION, location);
    }
    if response.replayed {
        res.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if response.body.is_empty() {
        res.body(ResBody::None);
    } else {
        json(res, response.body);
    }
}

/// Logs the internal cause, and writes the error response.
pub fn write_error(app: &App, res: &mut Response, error: &ApiError, request_id: &str) {
    error.log();
    res.status_code(error.code.status());
    if let Some(seconds) = error.retry_after {
        res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.replayed {
        res.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if error.code == ErrorCode::Unauthorized {
        res.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    json(res, error.envelope(request_id, &app.public_url));
}

fn json(res: &mut Response, body: Vec<u8>) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Responses belong to one caller, and some contain a secret.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    res.body(ResBody::Once(body.into()));
}

/// Writes the rate-limit headers.
pub fn write_rate_limit_headers(headers: &mut HeaderMap, decision: &Decision) {
    headers.insert(LIMIT, HeaderValue::from(decision.limit));
    headers.insert(REMAINING, HeaderValue::from(decision.remaining));
    headers.insert(RESET, HeaderValue::from(decision.reset));
}

/// Converts a panic of a handler to an internal error, without details for the client.
pub fn panic_error(panic: &Box<dyn Any + Send>) -> ApiError {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned());
    ApiError::bug(format!("a handler panicked: {text}"))
}
