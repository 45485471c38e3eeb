//! Reads request bodies up to a size limit and parses them to a JSON object.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use salvo::Request;
use serde_json::{Map, Value};

use super::body_reader::{BodyError, BodyReader, MinRate};
use super::json::{self, JsonError, MAX_VALUES};
use crate::error::{ApiError, ErrorCode, Result};

/// The maximum size of a JSON body, in bytes.
pub const MAX_JSON_BYTES: usize = 1 << 20;

/// Reads the whole body. Fails as soon as the body is known to be too large, or if it arrives too slowly.
pub async fn read(req: &mut Request, rate: MinRate) -> Result<Bytes> {
    read_up_to(req, rate, MAX_JSON_BYTES).await
}

/// Like [`read`], with a maximum size in bytes.
pub async fn read_up_to(req: &mut Request, rate: MinRate, max: usize) -> Result<Bytes> {
    let too_large = || ApiError::too_large(max);
    let content_length = req.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if content_length.is_some_and(|n| n > max as u64) {
        return Err(too_large());
    }
    let mut all = BytesMut::new();
    let mut reader = BodyReader::of(req, rate);
    while let Some(data) = reader.next().await {
        let data = data.map_err(BodyError::into_api_error)?;
        if all.len() + data.len() > max {
            return Err(too_large());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Parses a body of another protocol. `None` if it is not JSON.
pub fn parse_any(raw: &[u8]) -> Result<Option<Value>> {
    match json::parse(raw) {
        Ok(value) => Ok(Some(value)),
        Err(JsonError::Syntax(_)) => Ok(None),
        Err(JsonError::TooMany) => Err(too_many_values()),
    }
}

fn too_many_values() -> ApiError {
    let message = format!("The body has {MAX_VALUES} values or more. Split it into several requests.");
    ApiError::new(ErrorCode::PayloadTooLarge, message)
}

/// Parses the body as a JSON object. If `optional`, an empty body is an empty object.
pub fn parse(headers: &HeaderMap, raw: &[u8], optional: bool) -> Result<Map<String, Value>> {
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidJson, message);
    if raw.is_empty() && optional {
        return Ok(Map::new());
    }
    if raw.is_empty() {
        return Err(invalid("The request has no body. Send a JSON object.".to_owned()));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let message = "This endpoint requires JSON. Send the header `Content-Type: application/json`.";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    if std::str::from_utf8(raw).is_err() {
        return Err(invalid("The body is not UTF-8.".to_owned()));
    }
    match json::parse(raw) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("The body must be a JSON object.".to_owned())),
        Err(JsonError::TooMany) => Err(too_many_values()),
        Err(JsonError::Syntax(error)) => {
            Err(invalid(format!("The body is not valid JSON (line {}, column {}).", error.line(), error.column())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(content_type: &str, raw: &[u8]) -> Option<ErrorCode> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        parse(&headers, raw, false).err().map(|e| e.code)
    }

    #[test]
    fn only_json_objects_are_accepted() {
        const JSON: &str = "application/json";
        assert_eq!(code(JSON, br#"{"a":1,"a":2,"nope":null}"#), None);
        assert_eq!(code("Application/JSON; charset=utf-8", b"{}"), None);
        for (content_type, raw, expected) in [
            (JSON, &b""[..], ErrorCode::InvalidJson),
            (JSON, b"[]", ErrorCode::InvalidJson),
            (JSON, b"{\"name\":\"\xff\"}", ErrorCode::InvalidJson),
            (JSON, b"{\"a\":NaN}", ErrorCode::InvalidJson),
            (JSON, b"{} y", ErrorCode::InvalidJson),
            (JSON, br#"{"a":"\ud800"}"#, ErrorCode::InvalidJson),
            ("text/plain", b"{}", ErrorCode::UnsupportedMediaType),
            ("application/jsonp", b"{}", ErrorCode::UnsupportedMediaType),
        ] {
            assert_eq!(code(content_type, raw), Some(expected), "{raw:?}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(code(JSON, deep.as_bytes()), Some(ErrorCode::InvalidJson));
    }
}
