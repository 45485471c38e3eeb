//! One attempt of a delivery: a signed `POST`, and its outcome.
//!
//! Any 2xx is a success, even if its body is incomplete. Redirects are not followed: the endpoint's own response is
//! recorded. The caller decides what an outcome means for the delivery and the endpoint.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, SubsecRound, Utc};
use crier_domain::event::EventName;
use crier_domain::untrusted::{self, MAX_MESSAGE};
use crier_domain::webhook::DeliveryOutcome;
use crier_domain::webhook_signature::sign;
use crier_http::{Guard, HttpClient, HttpError, HttpResponse};
use http::{Method, StatusCode, header};
use secrecy::SecretString;
use tokio::time::Instant;

/// The deadline from DNS to the last byte of the response.
pub const DEADLINE: Duration = Duration::from_secs(25);
/// The maximum number of bytes that are read from a response.
pub const MAX_BODY: usize = 64 * 1024;
/// The maximum number of bytes of a response that are stored.
pub const MAX_STORED_BODY: usize = 1024;

const USER_AGENT: &str = "Crier-Webhook/1.0";

fn outcome_of_status(status: StatusCode) -> DeliveryOutcome {
    match status.as_u16() {
        200..=299 => DeliveryOutcome::Success,
        300..=399 => DeliveryOutcome::Redirect,
        400..=499 => DeliveryOutcome::ClientError,
        _ => DeliveryOutcome::ServerError,
    }
}

fn outcome_of_error(error: &HttpError) -> DeliveryOutcome {
    match error {
        HttpError::Blocked(_) => DeliveryOutcome::Blocked,
        HttpError::Dns => DeliveryOutcome::Dns,
        HttpError::Tls(_) => DeliveryOutcome::Tls,
        HttpError::Timeout { .. } => DeliveryOutcome::Timeout,
        HttpError::Connect | HttpError::Broken | HttpError::Invalid(_) => DeliveryOutcome::Connect,
    }
}

/// The content of a delivery, and its destination.
#[derive(Clone, Debug)]
pub struct DeliveryRequest {
    pub url: String,
    pub secret: SecretString,
    pub event: EventName,
    pub delivery_id: i64,
    /// The event's id, the same for all endpoints.
    pub event_id: i64,
    /// The exact bytes that are signed and sent.
    pub body: Bytes,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    pub outcome: DeliveryOutcome,
    pub response_code: Option<u16>,
    pub duration: Duration,
    /// One sentence for the owner of the endpoint; `None` on success.
    pub error: Option<String>,
    /// The first 1 KiB of the response, if there was one, sanitized for storage: valid UTF-8 without NUL.
    pub response_body: Option<String>,
    /// The time from the `Retry-After` of a 429 or 503.
    pub retry_after: Option<DateTime<Utc>>,
}

/// Makes attempts. Cheap to clone; connections to an endpoint are pooled.
#[derive(Clone, Debug)]
pub struct Sender {
    client: HttpClient,
}

impl Sender {
    /// Creates a guarded sender with the documented deadline and size limit.
    pub fn new(guard: Guard) -> Self {
        Self::with_client(HttpClient::guarded(guard, DEADLINE, MAX_BODY))
    }

    /// Creates a sender with the deadline and the size limit of `client`.
    pub fn with_client(client: HttpClient) -> Self {
        Self { client }
    }

    /// Makes one attempt. `now` is the signed timestamp.
    pub async fn send(&self, delivery: &DeliveryRequest, now: DateTime<Utc>) -> AttemptResult {
        let timestamp = now.timestamp();
        let request = self
            .client
            .request(Method::POST, &delivery.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .header("X-Webhook-Event", delivery.event.as_str())
            .header("X-Webhook-Delivery-Id", delivery.delivery_id)
            .header("X-Webhook-Event-Id", delivery.event_id)
            .header("X-Webhook-Timestamp", timestamp)
            .header("X-Webhook-Signature", sign(&delivery.secret, timestamp, &delivery.body))
            .body(delivery.body.clone());
        let started = Instant::now();
        let response = self.client.send_for_status(request).await;
        let duration = started.elapsed();
        match response {
            Ok(response) => response_result(&response, duration, now),
            Err(error) => AttemptResult {
                outcome: outcome_of_error(&error),
                response_code: None,
                duration,
                // The text may contain parts of the endpoint's certificate.
                error: Some(untrusted::line(&error.to_string(), MAX_MESSAGE)),
                response_body: None,
                retry_after: None,
            },
        }
    }
}

fn response_result(response: &HttpResponse, duration: Duration, now: DateTime<Utc>) -> AttemptResult {
    let outcome = outcome_of_status(response.status);
    AttemptResult {
        outcome,
        response_code: Some(response.status.as_u16()),
        duration,
        error: (!outcome.is_success()).then(|| status_error(outcome, response.status)),
        response_body: Some(storable(&response.body)),
        // Relative to the response, not to the signed timestamp; in whole microseconds, like all stored times.
        retry_after: response.retry_after((now + duration).trunc_subsecs(6)),
    }
}

fn status_error(outcome: DeliveryOutcome, status: StatusCode) -> String {
    let note = if outcome == DeliveryOutcome::Redirect { "; redirects are not followed" } else { "" };
    format!("the endpoint returned {}{note}", status.as_u16())
}

/// Returns the beginning of a body as text that any database accepts, cut at a character boundary.
fn storable(body: &[u8]) -> String {
    // A character that is cut at the limit needs at most three more bytes.
    let mut text = String::from_utf8_lossy(&body[..body.len().min(MAX_STORED_BODY + 3)]).replace('\0', "\u{fffd}");
    text.truncate(text.floor_char_boundary(MAX_STORED_BODY));
    text
}

#[cfg(test)]
mod tests;
