//! The tus protocol, version 1.0 (<https://tus.io/protocols/resumable-upload>): what its requests have in common. The
//! endpoints are in `routes/media/uploads`.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use salvo::Response;
use salvo::http::ReqBody;

use crate::error::{ApiError, ErrorCode, Result};

pub const VERSION: &str = "1.0.0";
/// The extensions of the protocol that Crier supports.
pub const EXTENSIONS: &str = "creation,expiration,termination";

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
pub const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
pub const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
pub const UPLOAD_CONCAT: HeaderName = HeaderName::from_static("upload-concat");
pub const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
pub const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
pub const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
pub const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// The ID of the asset that has the bytes of an upload.
pub const MEDIA_ID: HeaderName = HeaderName::from_static("crier-media-id");

/// A request of the protocol.
pub struct TusRequest<'a> {
    /// The path, starting at the root of the host.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a mut ReqBody,
}

impl TusRequest<'_> {
    /// Returns a header that is a number. `None` if it is omitted.
    pub fn number(&self, name: &HeaderName) -> Result<Option<i64>> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if is_number => Ok(Some(number)),
            _ => Err(invalid(format!("`{}` must be a number of bytes.", title_case(name)))),
        }
    }

    /// Returns a header that is a number and must not be omitted.
    pub fn required_number(&self, name: &HeaderName) -> Result<i64> {
        self.number(name)?.ok_or_else(|| invalid(format!("The header `{}` is missing.", title_case(name))))
    }

    /// Returns the length of the body. `None` if the client does not say it.
    pub fn content_length(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }
}

/// A success response of the protocol, which has no body.
#[derive(Debug)]
pub struct TusResponse {
    status: StatusCode,
    headers: HeaderMap,
}

impl TusResponse {
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new() }
    }

    /// Adds a header. A value that a header cannot contain is omitted.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Writes the response.
    pub fn write(self, res: &mut Response) {
        res.status_code(self.status);
        res.headers_mut().extend(self.headers);
    }
}

/// Writes the headers of every response of the protocol, including errors.
pub fn write_version(res: &mut Response) {
    let headers = res.headers_mut();
    headers.insert(TUS_RESUMABLE, HeaderValue::from_static(VERSION));
    headers.insert(TUS_VERSION, HeaderValue::from_static(VERSION));
}

/// Fails if the client uses another version of the protocol.
pub fn check_version(headers: &HeaderMap) -> Result<()> {
    if headers.get(TUS_RESUMABLE).is_some_and(|version| version == VERSION) {
        return Ok(());
    }
    let message = format!("This server supports version {VERSION} of tus. Send the header `Tus-Resumable: {VERSION}`.");
    Err(ApiError::new(ErrorCode::UploadVersionUnsupported, message))
}

/// Returns the error for a request whose headers are not valid.
pub fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidUpload, message.into())
}

/// Returns the name of a header as documents write it: `Upload-Offset` for `upload-offset`.
fn title_case(name: &HeaderName) -> String {
    let capitalize = |word: &str| match word.split_at_checked(1) {
        Some((first, rest)) => format!("{}{rest}", first.to_ascii_uppercase()),
        None => String::new(),
    };
    name.as_str().split('-').map(capitalize).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: &str) -> Result<Option<i64>> {
        let headers = HeaderMap::from_iter([(UPLOAD_OFFSET, HeaderValue::from_str(value).unwrap())]);
        TusRequest { path: "/", headers: &headers, body: &mut ReqBody::None }.number(&UPLOAD_OFFSET)
    }

    #[test]
    fn numbers_have_only_digits() {
        for (value, expected) in [("0", 0), ("007", 7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(number(value).unwrap(), Some(expected), "{value}");
        }
        for value in ["", "-1", "+1", "1.0", " 1", "1e3", "9223372036854775808", "x"] {
            let error = number(value).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidUpload, "{value}");
            assert!(error.message.contains("`Upload-Offset`"), "{error:?}");
        }
    }

    #[test]
    fn only_one_version_is_supported() {
        let headers =
            |version: &'static str| HeaderMap::from_iter([(TUS_RESUMABLE, HeaderValue::from_static(version))]);
        assert!(check_version(&headers("1.0.0")).is_ok());
        for headers in [HeaderMap::new(), headers("0.2.2"), headers("1.0"), headers("")] {
            assert_eq!(check_version(&headers).unwrap_err().code, ErrorCode::UploadVersionUnsupported);
        }
    }
}
