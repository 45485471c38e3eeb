//! Success responses: `{data}`, with or without pages, or no body.

use chrono::{DateTime, SecondsFormat, Timelike, Utc};
use crier_store::idempotency::{self, StoredBody};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::error::{ApiError, Result};

/// The prefix of every path of the API.
pub const PREFIX: &str = "/api/public/v1";

/// The maximum size of a body that is stored under an `Idempotency-Key`, in bytes. For a larger body, the ids of its
/// records are stored, if the endpoint can render it again.
pub const MAX_STORED_BYTES: usize = 64 << 10;

/// A success response. It is stored under an `Idempotency-Key`, either whole or as the ids to render it from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiResponse {
    pub status: u16,
    /// The path of the created record.
    pub location: Option<String>,
    /// JSON; empty if there is no body.
    pub body: Vec<u8>,
    /// The ids of the records in the body that are not in the request's path.
    pub records: Vec<i64>,
    /// Whether an earlier request stored it.
    pub replayed: bool,
    /// Whether the body was too large to store, and must be rendered again.
    pub is_reference: bool,
}

#[derive(Serialize)]
struct Data<T> {
    data: T,
}

impl ApiResponse {
    fn json(status: u16, location: Option<String>, value: &impl Serialize) -> Result<Self> {
        let body =
            serde_json::to_vec(value).map_err(|e| ApiError::bug(format!("failed to serialize a response: {e}")))?;
        Ok(Self { status, location, body, ..Self::no_content() })
    }

    /// Returns a 200 with `{data}`.
    pub fn ok(data: impl Serialize) -> Result<Self> {
        Self::json(200, None, &Data { data })
    }

    /// Returns a 200 with this JSON.
    pub fn ok_json(body: Vec<u8>) -> Self {
        Self { status: 200, body, ..Self::no_content() }
    }

    /// Returns a 201 with `{data}`. `path` is relative to the API's base.
    pub fn created(path: &str, data: impl Serialize) -> Result<Self> {
        Self::json(201, Some(format!("{PREFIX}{path}")), &Data { data })
    }

    /// Returns a 202 with `{data}`. `path` is the path to poll for the result, relative to the API's base.
    pub fn accepted(path: &str, data: impl Serialize) -> Result<Self> {
        Self::json(202, Some(format!("{PREFIX}{path}")), &Data { data })
    }

    /// Returns a 204.
    pub fn no_content() -> Self {
        let (location, body, records) = (None, Vec::new(), Vec::new());
        Self { status: 204, location, body, records, replayed: false, is_reference: false }
    }

    /// Sets the ids of the records in the body that are not in the request's path.
    pub fn with_records(self, records: impl Into<Vec<i64>>) -> Self {
        Self { records: records.into(), ..self }
    }

    /// Returns the stored form of the response. `can_rerender`: whether the endpoint can render it again from its
    /// records.
    pub fn to_stored(&self, can_rerender: bool) -> idempotency::StoredResponse {
        let body = if can_rerender && self.body.len() > MAX_STORED_BYTES {
            StoredBody::Records(self.records.clone())
        } else {
            StoredBody::Whole(self.body.clone())
        };
        idempotency::StoredResponse { status: self.status, location: self.location.clone(), body }
    }
}

impl From<idempotency::StoredResponse> for ApiResponse {
    fn from(stored: idempotency::StoredResponse) -> Self {
        let response = Self { status: stored.status, location: stored.location, replayed: true, ..Self::no_content() };
        match stored.body {
            StoredBody::Whole(body) => Self { body, ..response },
            StoredBody::Records(records) => Self { records, is_reference: true, ..response },
        }
    }
}

// A time in the past: UTC, always with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at)
    }
}

// A scheduled time: UTC, with microseconds only if they are not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct ScheduledTimestamp(pub DateTime<Utc>);

impl Serialize for ScheduledTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let format = if self.0.nanosecond() == 0 { SecondsFormat::Secs } else { SecondsFormat::Micros };
        serializer.serialize_str(&self.0.to_rfc3339_opts(format, true))
    }
}

impl From<DateTime<Utc>> for ScheduledTimestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_utc_with_z_suffix() {
        let at: DateTime<Utc> = "2026-03-01T10:00:00.120+02:00".parse().unwrap();
        let text = |value: &dyn Fn() -> serde_json::Value| value().as_str().unwrap().to_owned();
        assert_eq!(text(&|| serde_json::json!(Timestamp(at))), "2026-03-01T08:00:00.120000Z");
        assert_eq!(text(&|| serde_json::json!(ScheduledTimestamp(at))), "2026-03-01T08:00:00.120000Z");
        let whole = at.with_nanosecond(0).unwrap();
        assert_eq!(text(&|| serde_json::json!(Timestamp(whole))), "2026-03-01T08:00:00.000000Z");
        assert_eq!(text(&|| serde_json::json!(ScheduledTimestamp(whole))), "2026-03-01T08:00:00Z");
    }
}
