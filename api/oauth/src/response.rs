//! Responses of the endpoints: JSON that must not be cached.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use salvo::Response;
use salvo::http::ResBody;
use serde_json::Value;

/// Writes a JSON body. `cache`: the value of `Cache-Control`.
pub fn json(res: &mut Response, status: StatusCode, body: &Value, cache: &'static str) {
    res.status_code(status);
    let headers = res.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    res.body(ResBody::Once(body.to_string().into_bytes().into()));
}

/// Writes a JSON body that may contain a secret.
pub fn secret_json(res: &mut Response, status: StatusCode, body: &Value) {
    json(res, status, body, "no-store");
    res.headers_mut().insert(PRAGMA, HeaderValue::from_static("no-cache"));
}
