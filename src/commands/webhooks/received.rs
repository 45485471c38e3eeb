//! A received request and its output: text, or a JSON object.

use std::fmt::{self, Display, Formatter};

use chrono::{DateTime, SecondsFormat, Utc};
use crier_domain::webhook_signature::{SignatureError, TOLERANCE, verify};
use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::http::request::Parts;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

pub struct Received {
    head: Parts,
    body: Bytes,
    at: DateTime<Utc>,
    signature: Verdict,
    /// Whether a request with the same delivery id was received before.
    pub again: bool,
}

/// The result of a signature check.
enum Verdict {
    Valid,
    Invalid(SignatureError),
    Missing,
    /// Without `--secret`, signatures are not checked.
    Unchecked,
}

impl Received {
    pub fn new(head: Parts, body: Bytes, secret: Option<&SecretString>, at: DateTime<Utc>) -> Self {
        let signature = match (header(&head.headers, "x-webhook-signature"), secret) {
            (None, _) => Verdict::Missing,
            (Some(_), None) => Verdict::Unchecked,
            (Some(signature), Some(secret)) => match verify(secret, &signature, &body, at.timestamp(), TOLERANCE) {
                Ok(()) => Verdict::Valid,
                Err(error) => Verdict::Invalid(error),
            },
        };
        Self { head, body, at, signature, again: false }
    }

    pub fn delivery_id(&self) -> Option<i64> {
        self.header("x-webhook-delivery-id")?.parse().ok()
    }

    fn header(&self, name: &str) -> Option<String> {
        header(&self.head.headers, name)
    }

    pub fn json(&self) -> Value {
        let headers: Map<String, Value> = self
            .head
            .headers
            .keys()
            .filter_map(|name| Some((name.to_string(), self.header(name.as_str())?.into())))
            .collect();
        json!({
            "received_at": self.at.to_rfc3339_opts(SecondsFormat::Micros, true),
            "method": self.head.method.as_str(),
            "path": self.head.uri.to_string(),
            "headers": headers,
            "body": String::from_utf8_lossy(&self.body),
            "again": self.again,
            "signature": self.signature.word(),
        })
    }
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Valid => "ok",
            Self::Invalid(SignatureError::Malformed) => "malformed",
            Self::Invalid(SignatureError::Mismatch) => "mismatch",
            Self::Invalid(SignatureError::Expired) => "expired",
            Self::Missing => "missing",
            Self::Unchecked => "unchecked",
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => write!(f, "signature ok"),
            Self::Invalid(error) => write!(f, "SIGNATURE WRONG: {error}; {}", signature_error_hint(*error)),
            Self::Missing => {
                write!(f, "SIGNATURE MISSING: there is no X-Webhook-Signature, so Crier did not send this")
            }
            Self::Unchecked => {
                write!(f, "signature not checked; pass the secret that POST /webhooks returned: --secret whsec_…")
            }
        }
    }
}

const fn signature_error_hint(error: SignatureError) -> &'static str {
    match error {
        SignatureError::Malformed => "was the header changed on the way?",
        SignatureError::Mismatch => {
            "is --secret the newest secret of this endpoint, and was the body not changed on the way?"
        }
        SignatureError::Expired => "is a clock wrong, or is the request more than 5 minutes old?",
    }
}

impl Display for Received {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown = |name| self.header(name).unwrap_or_else(|| "(none)".to_owned());
        let head = format!(
            "{at}  {event}  delivery {delivery}{again}  event {id}  {method} {path}\n{signature}\n",
            at = self.at.to_rfc3339_opts(SecondsFormat::Secs, true),
            event = shown("x-webhook-event"),
            delivery = shown("x-webhook-delivery-id"),
            again = if self.again { " (again)" } else { "" },
            id = shown("x-webhook-event-id"),
            method = self.head.method,
            path = self.head.uri,
            signature = self.signature,
        );
        write!(f, "{}{}", printable(&head), printable(&pretty(&self.body)))
    }
}

/// Formats a body for people: JSON is indented, anything else is shown as text with its size.
fn pretty(body: &[u8]) -> String {
    let value = serde_json::from_slice::<Value>(body);
    match value.map(|value| serde_json::to_string_pretty(&value)) {
        Ok(Ok(text)) => text,
        _ => format!("(not JSON, {} bytes) {}", body.len(), String::from_utf8_lossy(body)),
    }
}

/// Replaces control characters: the sender controls this text and must not send escape sequences to the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// Returns all values of a header, joined.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
