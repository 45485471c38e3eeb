//! Errors of the endpoints for applications, as RFC 6749 (5.2), RFC 7591 (3.2.2) and RFC 8707 specify them.

use std::borrow::Cow;
use std::sync::Arc;

use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, ErrorCode};
use crier_store::StoreError;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use salvo::{Request, Response};
use serde_json::json;

use crate::response::secret_json;

/// An error response.
#[derive(Debug)]
pub enum OAuthError {
    /// The application sent something wrong: the value of `error`, and a sentence for its developer.
    Rejected { code: &'static str, description: Cow<'static, str> },
    /// Something failed here.
    Failed(ApiError),
}

pub type Result<T> = std::result::Result<T, OAuthError>;

impl OAuthError {
    pub fn new(code: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self::Rejected { code, description: description.into() }
    }

    pub fn invalid_request(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("invalid_request", description)
    }

    pub fn invalid_grant(description: &'static str) -> Self {
        Self::new("invalid_grant", description)
    }

    /// Returns the error for a `resource` that is not the MCP server.
    pub fn invalid_target(resource: &str) -> Self {
        Self::new("invalid_target", format!("`resource` must be {resource}."))
    }
}

impl From<StoreError> for OAuthError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<ApiError> for OAuthError {
    fn from(error: ApiError) -> Self {
        match error.code {
            // The body could not be read.
            ErrorCode::InvalidJson | ErrorCode::PayloadTooLarge | ErrorCode::UnsupportedMediaType => {
                Self::invalid_request(error.message)
            }
            _ => Self::Failed(error),
        }
    }
}

/// Writes an error, and counts it against the rate limit of the address, as a request with a wrong key.
pub async fn write(app: &Arc<App>, req: &Request, res: &mut Response, error: OAuthError) {
    let (status, code, description) = match error {
        OAuthError::Failed(error) => {
            error.log();
            if let Some(seconds) = error.retry_after {
                res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            let code = match error.code.status() {
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "temporarily_unavailable",
                _ => "server_error",
            };
            (error.code.status(), code, error.message)
        }
        OAuthError::Rejected { code, description } => {
            let decision = admission::count_address(app, req).await;
            if !decision.allowed {
                return write_rate_limited(res, decision.retry_after);
            }
            (StatusCode::BAD_REQUEST, code, description)
        }
    };
    secret_json(res, status, &json!({ "error": code, "error_description": description }));
}

/// Writes the error for an address with too many requests.
pub fn write_rate_limited(res: &mut Response, retry_after: u64) {
    let description = format!("Too many requests from your IP address. Retry after {retry_after} seconds.");
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    let body = json!({ "error": "temporarily_unavailable", "error_description": description });
    secret_json(res, StatusCode::TOO_MANY_REQUESTS, &body);
}
