//! Calls to the Business Profile APIs and their errors: `{error: {code, status, message, details}}`
//! (google.rpc.Status).

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::CallError;
use super::super::call::{Effect, retry_at, sanitize_message};
use super::GoogleBusiness;

/// The pause if a response names none. The quotas are per minute.
const PAUSE: TimeDelta = TimeDelta::minutes(1);

#[derive(Deserialize, Default)]
struct ErrorBody {
    #[serde(default)]
    error: Status,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Vec<Detail>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    reason: Option<String>,
    metadata: Option<Value>,
    /// The errors in the fields of a local post.
    #[serde(default)]
    error_details: Vec<FieldError>,
}

#[derive(Deserialize)]
struct FieldError {
    #[serde(default)]
    field: String,
    #[serde(default)]
    message: String,
}

impl Status {
    fn has_reason(&self, wanted: &str) -> bool {
        self.details.iter().any(|detail| detail.reason.as_deref() == Some(wanted))
    }

    /// Returns whether the application's Google project has a quota of 0.
    fn has_no_quota(&self) -> bool {
        let limit = |detail: &Detail| detail.metadata.as_ref()?.get("quota_limit_value")?.as_str().map(str::to_owned);
        self.details.iter().filter_map(limit).any(|limit| limit == "0")
    }

    fn field_error(&self) -> Option<&FieldError> {
        self.details.iter().find_map(|detail| detail.error_details.first())
    }
}

impl GoogleBusiness {
    pub(super) fn request(&self, method: Method, host: &str, path: &str, token: &str) -> RequestBuilder {
        self.client.request(method, &format!("{host}{path}")).bearer_auth(token)
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, CallError> {
        let response = self.client.send(effect, request).await?;
        if response.status.is_success() {
            return self.client.read(effect, &response);
        }
        Err(self.classify(effect, &response))
    }

    pub(super) fn classify(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let error = serde_json::from_slice::<ErrorBody>(&response.body).unwrap_or_default().error;
        let field = error.field_error();
        let text = field.map(|field| &field.message).filter(|text| !text.is_empty()).unwrap_or(&error.message);
        let detail = sanitize_message(text, &[]);
        let code = if error.status.is_empty() { response.status.as_str() } else { error.status.as_str() };
        let failure = |category, what: &str| {
            let message = match &detail {
                Some(detail) => format!("Google {what}: {detail}"),
                None => format!("Google {what}."),
            };
            Failure::of(category, message).from_platform(code)
        };
        match response.status {
            StatusCode::UNAUTHORIZED => {
                CallError::AuthExpired(failure(Category::AuthExpired, "rejected the access token"))
            }
            StatusCode::TOO_MANY_REQUESTS if error.has_no_quota() => self.client.misconfigured(
                "This application has no access to Google Business Profile; the operator must apply for it.",
                code,
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                let now = self.client.now();
                let until = retry_at(&response.headers, now).unwrap_or(now + PAUSE);
                self.client.rate_limited(Some(until), Some(code))
            }
            StatusCode::FORBIDDEN if error.has_reason("SERVICE_DISABLED") => self.client.misconfigured(
                "An API of Google Business Profile is not enabled in the application's project; the operator must \
                 enable it.",
                code,
            ),
            StatusCode::FORBIDDEN => CallError::Permanent(failure(Category::Account, "does not allow this")),
            StatusCode::NOT_FOUND => CallError::Permanent(failure(Category::Account, "no longer knows this location")),
            StatusCode::BAD_REQUEST if field.is_some_and(|field| field.field.contains("media")) => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept the image"))
            }
            StatusCode::BAD_REQUEST => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post"))
            }
            _ => self.client.classify_status(effect, response, Some(code), detail),
        }
    }
}
