//! Sends files from the storage: whole, in part, or only the status 304 if they have not changed. Used for images,
//! which have public URLs, and for reports. A [`FileStream`] is a file that is created while it is sent.

use std::io;

use bytes::Bytes;
use crier_domain::report::ReportDelivery;
use crier_domain::report_naming as naming;
use crier_media::storage::{ByteRange, ObjectLookup, StoredObject};
use crier_media::{Library, Storage, StorageError};
use crier_store::{self as store, Conn, files, report_deliveries};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use salvo::{Request, Response};

/// A stored file and the headers that describe it.
#[derive(Clone, Debug)]
pub struct FileResponse {
    /// Its name in the storage.
    pub key: String,
    pub media_type: &'static str,
    pub disposition: String,
    pub cache_control: &'static str,
    /// Further headers, with lowercase names.
    pub headers: &'static [(&'static str, &'static str)],
}

/// A file that is created while it is sent. Its length is unknown, so it has no parts and no `ETag`.
pub struct FileStream {
    pub media_type: &'static str,
    /// The name of the download.
    pub name: String,
    /// The content, in pieces. The next piece is created when the client has received the last one.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

impl FileStream {
    /// Writes the file to a response. A client that reads slowly is disconnected by the server, as for any response.
    pub fn write(self, res: &mut Response) {
        res.status_code(StatusCode::OK);
        let headers = res.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.media_type),
            (CACHE_CONTROL, "private, no-store"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
            (REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        set(headers, CONTENT_DISPOSITION, &attachment(&self.name));
        // An error closes the connection, so that the client does not take a part for the whole.
        res.stream(self.body.inspect_err(|error| tracing::warn!(%error, "failed to send a complete file")));
    }
}

/// The outcome of sending a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentFile {
    Sent,
    /// The file does not exist. Nothing was written.
    Missing,
    /// The range is outside the file. The status and `Content-Range` are written, but no body.
    OutOfRange,
}

/// Returns the file of a finished delivery. `None` if it was deleted.
pub async fn of_delivery(conn: &mut Conn, delivery: &ReportDelivery) -> store::Result<Option<FileResponse>> {
    let Some(file_id) = delivery.file_id else { return Ok(None) };
    let Some(key) = files::key_of(conn, file_id).await? else { return Ok(None) };
    let Some(names) = report_deliveries::names_of(conn, delivery).await? else { return Ok(None) };
    Ok(Some(FileResponse {
        key,
        media_type: delivery.format.media_type(),
        disposition: attachment(&naming::file_name(&names.report, &names.brand, delivery)),
        cache_control: "private, no-cache",
        headers: &[],
    }))
}

/// The characters to escape in a name: all except letters, digits, and those that RFC 8187 allows unescaped.
const ESCAPED_CHARS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Returns the `Content-Disposition` of a download (RFC 6266), with the name in ASCII for old clients and unchanged for
/// all others.
fn attachment(name: &str) -> String {
    let plain = |c: char| if c.is_ascii() && !c.is_ascii_control() && !matches!(c, '"' | '\\' | '%') { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ESCAPED_CHARS))
}

/// How the bytes of a file are read.
enum Source<'a> {
    Stored(&'a Storage),
    /// A video with its index first.
    IndexFirst(&'a Library),
}

impl Source<'_> {
    /// Returns the `ETag`: the name in the storage, because the bytes under a name never change.
    fn tag(&self, key: &str) -> String {
        match self {
            Self::Stored(_) => format!("\"{key}\""),
            Self::IndexFirst(_) => format!("\"{key}-index-first\""),
        }
    }

    async fn size(&self, key: &str) -> Result<Option<u64>, StorageError> {
        match self {
            Self::Stored(storage) => storage.size(key).await,
            Self::IndexFirst(library) => library.storage().size(key).await,
        }
    }

    async fn get(&self, key: &str, part: &ByteRange) -> Result<ObjectLookup, StorageError> {
        match self {
            Self::Stored(storage) => storage.get(key, part).await,
            Self::IndexFirst(library) => library.get_index_first(key, part).await,
        }
    }
}

/// Sends a file, or the requested part.
pub async fn send(
    req: &Request,
    storage: &Storage,
    file: &FileResponse,
    res: &mut Response,
) -> Result<SentFile, StorageError> {
    send_from(req, &Source::Stored(storage), file, res).await
}

/// Sends a video with its index first, or the requested part of it.
pub async fn send_index_first(
    req: &Request,
    library: &Library,
    file: &FileResponse,
    res: &mut Response,
) -> Result<SentFile, StorageError> {
    send_from(req, &Source::IndexFirst(library), file, res).await
}

async fn send_from(
    req: &Request,
    source: &Source<'_>,
    file: &FileResponse,
    res: &mut Response,
) -> Result<SentFile, StorageError> {
    let (headers, tag) = (req.headers(), source.tag(&file.key));
    let unchanged = is_known(headers, &tag);
    if req.method() == Method::HEAD || unchanged {
        match source.size(&file.key).await? {
            None => return Ok(SentFile::Missing),
            Some(_) if unchanged => {
                res.status_code(StatusCode::NOT_MODIFIED);
            }
            Some(size) => {
                res.status_code(StatusCode::OK);
                res.headers_mut().insert(CONTENT_LENGTH, size.into());
            }
        }
    } else {
        let part = requested_part(headers, &tag);
        match source.get(&file.key, &part).await? {
            ObjectLookup::Found(found) => stream(found, &part, res),
            ObjectLookup::Missing => return Ok(SentFile::Missing),
            ObjectLookup::OutOfRange { size } => {
                res.status_code(StatusCode::RANGE_NOT_SATISFIABLE);
                set(res.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
                return Ok(SentFile::OutOfRange);
            }
        }
    }
    set_file_headers(res.headers_mut(), file, &tag);
    Ok(SentFile::Sent)
}

fn stream(found: StoredObject, part: &ByteRange, res: &mut Response) {
    let StoredObject { size, range, body } = found;
    res.headers_mut().insert(CONTENT_LENGTH, (range.end - range.start).into());
    if *part == ByteRange::Whole {
        res.status_code(StatusCode::OK);
    } else {
        res.status_code(StatusCode::PARTIAL_CONTENT);
        set(res.headers_mut(), CONTENT_RANGE, &format!("bytes {}-{}/{size}", range.start, range.end - 1));
    }
    // An error closes the connection, because the length was already sent.
    res.stream(body.inspect_err(|error| tracing::warn!(%error, "failed to send a complete file")));
}

/// Sets the headers of a file, even for a partial response. They prevent it from running scripts, whatever it contains. A
/// browser plays a video whose URL is opened as a document that loads the same URL, which `media-src` allows.
fn set_file_headers(headers: &mut HeaderMap, file: &FileResponse, tag: &str) {
    for (name, value) in [
        (CONTENT_TYPE, file.media_type),
        (CACHE_CONTROL, file.cache_control),
        (ACCEPT_RANGES, "bytes"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; media-src 'self'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in file.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    set(headers, CONTENT_DISPOSITION, &file.disposition);
    set(headers, ETAG, tag);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Our values contain only characters that are valid in headers.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns whether `If-None-Match` contains our tag, by weak comparison (RFC 9110, 13.1.2).
pub fn is_known(headers: &HeaderMap, tag: impl AsRef<[u8]>) -> bool {
    let ours = opaque_tag(tag.as_ref());
    let known = headers.get_all(IF_NONE_MATCH).iter().flat_map(|known| known.as_bytes().split(|byte| *byte == b','));
    known.map(<[u8]>::trim_ascii).any(|known| known == b"*" || opaque_tag(known) == ours)
}

fn opaque_tag(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns the requested part. Several ranges, an invalid range (RFC 9110, 14.2), or an `If-Range` with another tag
/// return the whole file. (The crate `headers` resolves ranges only with the file's length, which only the storage
/// knows.)
fn requested_part(headers: &HeaderMap, tag: &str) -> ByteRange {
    if headers.get(IF_RANGE).is_some_and(|known| known != tag) {
        return ByteRange::Whole;
    }
    let mut ranges = headers.get_all(RANGE).iter();
    match (ranges.next().and_then(|range| range.to_str().ok()), ranges.next()) {
        (Some(range), None) => parse_range(range).unwrap_or(ByteRange::Whole),
        _ => ByteRange::Whole,
    }
}

fn parse_range(text: &str) -> Option<ByteRange> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
    match (first, last) {
        ("", last) => Some(ByteRange::Last(parse_number(last)?)),
        (first, "") => Some(ByteRange::From(parse_number(first)?)),
        (first, last) => {
            let (first, last) = (parse_number(first)?, parse_number(last)?);
            (first <= last).then(|| ByteRange::Between(first..last.saturating_add(1)))
        }
    }
}

/// Parses a number. One that overflows becomes `u64::MAX`, which is larger than any file.
fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_script_are_sent_in_both_forms() {
        for (name, header) in [
            ("a b.pdf", "attachment; filename=\"a b.pdf\"; filename*=UTF-8''a%20b.pdf"),
            ("Söhne.pdf", "attachment; filename=\"S_hne.pdf\"; filename*=UTF-8''S%C3%B6hne.pdf"),
            ("\"%\\\r\n;.csv", "attachment; filename=\"_____;.csv\"; filename*=UTF-8''%22%25%5C%0D%0A%3B.csv"),
        ] {
            assert_eq!(attachment(name), header);
        }
    }

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
            assert_eq!(parse_range(text), part, "{text}");
        }
    }
}
