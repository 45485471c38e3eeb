//! Success responses: `{data}`, with or without pages, or no body. A handler returns a [`Reply`] with a value; its
//! [`Output`] says how the value is sent.

use std::marker::PhantomData;

use chrono::{DateTime, SecondsFormat, Timelike, Utc};
use crier_store::idempotency::{self, StoredBody};
use crier_store::{Page, PageRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::PREFIX;
use crate::context::Context;
use crate::endpoint::spec::ResponseShape;
use crate::error::{ApiError, Result};
use crate::openapi::schema::{SchemaFn, Schemas};
use crate::pagination;

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

/// What a handler returns: the value of the response, and what the response says beside it.
#[derive(Debug)]
pub struct Reply<T> {
    pub value: T,
    location: Option<String>,
    records: Vec<i64>,
}

impl<T> From<T> for Reply<T> {
    fn from(value: T) -> Self {
        Self { value, location: None, records: Vec::new() }
    }
}

impl<T> Reply<T> {
    /// `path`: that of the created record, or the path to poll for the result. Relative to the API's base.
    pub fn at(path: &str, value: T) -> Self {
        Self { location: Some(format!("{PREFIX}{path}")), ..value.into() }
    }

    /// Sets the ids of the records in the response that are not in the request's path.
    pub fn with_records(self, records: impl Into<Vec<i64>>) -> Self {
        Self { records: records.into(), ..self }
    }

    /// Returns the response that is sent and stored.
    pub fn to_response<R: Output<Value = T>>(&self, cx: &Context, status: u16) -> Result<ApiResponse> {
        let body = R::serialize(cx, &self.value)?;
        let (location, records) = (self.location.clone(), self.records.clone());
        Ok(ApiResponse { status, location, body, records, ..ApiResponse::no_content() })
    }
}

/// The kind of response of an endpoint.
pub trait Output: Send + Sync + 'static {
    /// What the handler returns.
    type Value: Send + Sync + 'static;
    const SHAPE: ResponseShape;
    /// The schema of a record.
    const SCHEMA: Option<SchemaFn>;

    /// Returns the body.
    fn serialize(cx: &Context, value: &Self::Value) -> Result<Vec<u8>>;
}

#[derive(Serialize)]
struct Data<'a, T> {
    data: &'a T,
}

fn serialize_data(data: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(&Data { data }).map_err(|e| ApiError::bug(format!("failed to serialize a response: {e}")))
}

/// One record.
pub struct One<T>(PhantomData<T>);

impl<T: Serialize + JsonSchema + Send + Sync + 'static> Output for One<T> {
    type Value = T;
    const SHAPE: ResponseShape = ResponseShape::One;
    const SCHEMA: Option<SchemaFn> = Some(Schemas::response::<T>);

    fn serialize(_: &Context, value: &T) -> Result<Vec<u8>> {
        serialize_data(value)
    }
}

/// All records of a list.
pub struct Many<T>(PhantomData<T>);

impl<T: Serialize + JsonSchema + Send + Sync + 'static> Output for Many<T> {
    type Value = Vec<T>;
    const SHAPE: ResponseShape = ResponseShape::Many;
    const SCHEMA: Option<SchemaFn> = Some(Schemas::response::<T>);

    fn serialize(_: &Context, value: &Vec<T>) -> Result<Vec<u8>> {
        serialize_data(value)
    }
}

/// A page of a list. A response ends early if its records are larger than [`pagination::MAX_BYTES`].
pub struct Paged<T>(PhantomData<T>);

/// The records of a page.
#[derive(Debug)]
pub struct Listed<T> {
    pub page: PageRequest,
    pub rows: Vec<T>,
    /// The number of records in the list.
    pub total: i64,
}

impl<T> Listed<T> {
    /// Converts the rows of the database to records.
    pub fn from_rows<S>(page: PageRequest, found: Page<S>, convert: impl FnMut(S) -> T) -> Self {
        Self { page, rows: found.rows.into_iter().map(convert).collect(), total: found.total }
    }
}

impl<T: Serialize + JsonSchema + Send + Sync + 'static> Output for Paged<T> {
    type Value = Listed<T>;
    const SHAPE: ResponseShape = ResponseShape::Pages;
    const SCHEMA: Option<SchemaFn> = Some(Schemas::response::<T>);

    fn serialize(cx: &Context, value: &Listed<T>) -> Result<Vec<u8>> {
        pagination::serialize(cx, value)
    }
}

/// No body.
pub struct Nothing;

impl Output for Nothing {
    type Value = ();
    const SHAPE: ResponseShape = ResponseShape::Nothing;
    const SCHEMA: Option<SchemaFn> = None;

    fn serialize(_: &Context, (): &()) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// A file, for [`Endpoint::downloads`](crate::endpoint::Endpoint::downloads).
pub struct File;

impl Output for File {
    type Value = ();
    const SHAPE: ResponseShape = ResponseShape::File;
    const SCHEMA: Option<SchemaFn> = None;

    fn serialize(_: &Context, (): &()) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

impl ApiResponse {
    /// Returns a 204.
    pub fn no_content() -> Self {
        let (location, body, records) = (None, Vec::new(), Vec::new());
        Self { status: 204, location, body, records, replayed: false, is_reference: false }
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
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(transparent)]
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(transparent)]
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
