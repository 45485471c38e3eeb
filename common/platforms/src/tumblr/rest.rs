//! Calls to the API: `{meta: {status, msg}, response, errors: [{title, code, detail}]}`.

use crier_http::{HttpResponse, RequestBuilder};
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::CallError;
use super::super::call::{Effect, sanitize_message};
use super::{Tumblr, classify};

/// A failed call.
pub(super) struct FailedCall {
    pub(super) response: HttpResponse,
    pub(super) code: Option<i64>,
    pub(super) detail: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<T> {
    response: T,
}

#[derive(Deserialize, Default)]
struct ErrorBody {
    #[serde(default)]
    errors: Vec<ErrorItem>,
}

#[derive(Deserialize)]
struct ErrorItem {
    code: Option<i64>,
    detail: Option<String>,
    title: Option<String>,
}

impl Tumblr {
    pub(super) fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}{path}", self.api)).bearer_auth(token)
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, CallError> {
        self.call_with_bytes(effect, request, 0).await
    }

    /// Sends a request whose body has this number of bytes of a video.
    pub(super) async fn call_with_bytes<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
        bytes: u64,
    ) -> Result<T, CallError> {
        let response = self.client.send_bytes(effect, request, bytes).await?;
        if response.status.is_success() {
            return Ok(self.client.read::<Envelope<T>>(effect, &response)?.response);
        }
        Err(self.error_of(effect, response))
    }

    /// Returns the error of a failed call.
    pub(super) fn error_of(&self, effect: Effect, response: HttpResponse) -> CallError {
        let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let first = body.errors.into_iter().next();
        let code = first.as_ref().and_then(|error| error.code);
        let text = first.and_then(|error| error.detail.or(error.title));
        let detail = text.and_then(|text| sanitize_message(&text, &[]));
        classify(&self.client, effect, &FailedCall { response, code, detail })
    }
}
