//! `/media/{key}`: serves the pictures of the library to anyone who knows the URL.
//!
//! Any replica serves them from the storage, without a database query. The content at a URL never changes, so clients
//! may cache it forever; it is sent with the type that its name implies, whatever its bytes are, and cannot run
//! scripts.

use std::sync::Arc;

use crier_common::domain::media::ImageType;
use crier_common::media::storage::{ByteRange, ObjectLookup, StoredObject};
use crier_common::media::{Storage, StorageError, kind_of};
use futures::TryStreamExt;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, IF_RANGE, RANGE, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::{is_known, plain};
use crate::app::App;

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub fn router() -> Router {
    Router::with_path("media/{key}").get(serve).head(serve)
}

#[handler]
async fn serve(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let key = req.param::<String>("key").unwrap_or_default();
    let (Some(kind), Ok(app)) = (kind_of(&key), depot.get_typed::<Arc<App>>()) else { return missing(res) };
    // The key can serve as the tag: its bytes never change.
    let tag = format!("\"{key}\"");
    if let Err(error) = answer(req, app.library.storage(), &key, &tag, res).await {
        tracing::warn!(%error, "a picture could not be shown");
        plain(res, StatusCode::SERVICE_UNAVAILABLE, "The files cannot be reached right now; try again in a moment.");
        res.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        return;
    }
    if matches!(res.status_code, Some(StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED)) {
        describe(res.headers_mut(), kind, &tag);
    }
}

async fn answer(
    req: &Request,
    storage: &Storage,
    key: &str,
    tag: &str,
    res: &mut Response,
) -> Result<(), StorageError> {
    let (headers, head) = (req.headers(), req.method() == Method::HEAD);
    let unchanged = is_known(headers, tag);
    if head || unchanged {
        match storage.size(key).await? {
            None => missing(res),
            Some(_) if unchanged => {
                res.status_code(StatusCode::NOT_MODIFIED);
            }
            Some(size) => {
                res.status_code(StatusCode::OK);
                res.headers_mut().insert(CONTENT_LENGTH, size.into());
            }
        }
        return Ok(());
    }
    let part = requested_part(headers, tag);
    match storage.get(key, &part).await? {
        ObjectLookup::Found(found) => send(found, &part, res),
        ObjectLookup::Missing => missing(res),
        ObjectLookup::OutOfRange { size } => {
            plain(res, StatusCode::RANGE_NOT_SATISFIABLE, "The picture has no such part.");
            set(res.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
        }
    }
    Ok(())
}

fn send(found: StoredObject, part: &ByteRange, res: &mut Response) {
    let StoredObject { size, range, body } = found;
    res.headers_mut().insert(CONTENT_LENGTH, (range.end - range.start).into());
    if *part == ByteRange::Whole {
        res.status_code(StatusCode::OK);
    } else {
        res.status_code(StatusCode::PARTIAL_CONTENT);
        set(res.headers_mut(), CONTENT_RANGE, &format!("bytes {}-{}/{size}", range.start, range.end - 1));
    }
    // An error closes the connection, because the length was already sent.
    res.stream(body.inspect_err(|error| tracing::warn!(%error, "a picture could not be sent completely")));
}

fn missing(res: &mut Response) {
    plain(res, StatusCode::NOT_FOUND, "There is no such picture.");
}

/// Sets the headers of a picture, also for a partial response.
fn describe(headers: &mut HeaderMap, kind: ImageType, tag: &str) {
    for (name, value) in [
        (CONTENT_TYPE, kind.as_str()),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (ACCEPT_RANGES, "bytes"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (RESOURCE_POLICY, "cross-origin"),
        (CONTENT_DISPOSITION, "inline"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    set(headers, ETAG, tag);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Our values contain only characters that are valid in headers.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns the requested part. Several ranges, an invalid range (RFC 9110, 14.2), or an `If-Range` with another tag
/// return the whole. (The crate `headers` resolves ranges only with the file's length, which the storage knows.)
fn requested_part(headers: &HeaderMap, tag: &str) -> ByteRange {
    if headers.get(IF_RANGE).is_some_and(|known| known != tag) {
        return ByteRange::Whole;
    }
    let mut ranges = headers.get_all(RANGE).iter();
    match (ranges.next().and_then(|range| range.to_str().ok()), ranges.next()) {
        (Some(range), None) => one_range(range).unwrap_or(ByteRange::Whole),
        _ => ByteRange::Whole,
    }
}

fn one_range(text: &str) -> Option<ByteRange> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
    match (first, last) {
        ("", last) => Some(ByteRange::Last(number(last)?)),
        (first, "") => Some(ByteRange::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| ByteRange::Between(first..last.saturating_add(1)))
        }
    }
}

/// Parses a number; one that overflows becomes `u64::MAX`, larger than any file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_byte_ranges_are_accepted() {
        for (text, part) in [
            ("bytes=0-0", Some(ByteRange::Between(0..1))),
            ("Bytes = 2-5", Some(ByteRange::Between(2..6))),
            ("bytes=5-", Some(ByteRange::From(5))),
            ("bytes=-5", Some(ByteRange::Last(5))),
            ("bytes=-0", Some(ByteRange::Last(0))),
            ("bytes=99999999999999999999-", Some(ByteRange::From(u64::MAX))),
            ("bytes=1-99999999999999999999", Some(ByteRange::Between(1..u64::MAX))),
            ("bytes=5-2", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(one_range(text), part, "{text}");
        }
    }
}
