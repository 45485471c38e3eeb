//! Batch requests: several calls in one request. Each has its own response and status, and counts as one call for
//! Meta's limits.
//!
//! Sources: "Batch Requests" of the Graph API (at most 50 calls; a response is null if the call timed out, and the call
//! must be repeated), 2026.

use bytes::Bytes;
use crier_http::HttpResponse;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::graph::Access;
use crate::CallError;
use crate::call::Effect;

/// The maximum number of calls per request.
pub(crate) const MAX_CALLS: usize = 50;
/// The maximum number of requests per call, if the time runs out.
const ROUNDS: usize = 3;

#[derive(Deserialize)]
struct Part {
    code: u16,
    #[serde(default)]
    body: String,
}

impl Part {
    /// Converts the part to the response of a separate call. Meta states rate limits in the headers of the batch
    /// response.
    fn into_response(self, headers: &HeaderMap) -> Option<HttpResponse> {
        let status = StatusCode::from_u16(self.code).ok()?;
        Some(HttpResponse { status, headers: headers.clone(), body: Bytes::from(self.body), truncated: false })
    }
}

impl Access<'_> {
    /// Reads paths below the version (`42_1?fields=id`). Returns the responses in the same order.
    pub(crate) async fn batch(&self, paths: &[String]) -> Result<Vec<HttpResponse>, CallError> {
        let mut responses: Vec<Option<HttpResponse>> = paths.iter().map(|_| None).collect();
        for _ in 0..ROUNDS {
            let open: Vec<usize> = (0..paths.len()).filter(|index| responses[*index].is_none()).collect();
            for some in open.chunks(MAX_CALLS) {
                let requested: Vec<&String> = some.iter().map(|index| &paths[*index]).collect();
                for (index, response) in some.iter().zip(self.batch_once(&requested).await?) {
                    responses[*index] = response;
                }
            }
            if responses.iter().all(Option::is_some) {
                break;
            }
        }
        let late =
            || self.client.classify_unknown_effect(Effect::Repeatable, "did not respond to all requests in time", None);
        responses.into_iter().collect::<Option<Vec<_>>>().ok_or_else(late)
    }

    async fn batch_once(&self, paths: &[&String]) -> Result<Vec<Option<HttpResponse>>, CallError> {
        let calls: Vec<Value> = paths.iter().map(|path| json!({ "method": "GET", "relative_url": path })).collect();
        let request = self.request(Method::POST, "").json(&json!({ "batch": calls, "include_headers": false }));
        let response = self.client.send(Effect::Repeatable, request).await?;
        let parts: Vec<Value> = self.read_response(Effect::Repeatable, &response).map_err(|failure| failure.error)?;
        let parts = parts.into_iter().take(paths.len());
        Ok(parts.map(|part| Part::deserialize(part).ok()?.into_response(&response.headers)).collect())
    }
}
