//! Downloads: streams a body and follows redirects, with one deadline from the first lookup to the last byte.
//!
//! Each target of a redirect is checked like a URL that a user enters: its form and a literal address before anything
//! is sent, the addresses of a name when it is looked up for the connection. A redirect from https to http is also
//! followed: the user could have entered an http URL in the first place, the request contains no secret, and the server
//! that was called over TLS chose the target itself.

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{HeaderName, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{HttpClient, HttpError, SchemePolicy, UrlError};

/// The maximum number of redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;

/// A successful response whose body has not been read.
#[derive(Debug)]
pub struct Download {
    url: Url,
    response: reqwest::Response,
    deadline: Instant,
    remaining: u64,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Neither a success nor a redirect with a target.
    #[error("the server returned {0}")]
    Status(StatusCode),
    #[error("it redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    /// It redirects to a URL that would be rejected if a user entered it.
    #[error("it redirects to a URL that is not allowed: it {0}")]
    Redirect(UrlError),
    #[error("it is larger than the maximum")]
    TooLarge,
}

impl HttpClient {
    /// Requests a URL with the header `Accept: <accept>`, for a body of at most `max_bytes` (after decompression). If
    /// the `Content-Length` is larger, it fails before any of the body is read.
    pub async fn download(&self, url: &str, accept: &'static str, max_bytes: u64) -> Result<Download, DownloadError> {
        let deadline = Instant::now() + self.timeout;
        let mut url = self.check_redirect_url(url).map_err(|error| url_error(error, url))?;
        for _ in 0..=MAX_REDIRECTS {
            let request = self.prepare(self.inner.get(url.clone()).header(ACCEPT, accept))?;
            // The span ends here, because the caller determines how fast the body is read.
            let (response, _) = self.start(request, deadline).await?;
            let status = response.status();
            if status.is_success() {
                if response.content_length().is_some_and(|announced| announced > max_bytes) {
                    return Err(DownloadError::TooLarge);
                }
                return Ok(Download { url, response, deadline, remaining: max_bytes });
            }
            let target = target(&url, &response).ok_or(DownloadError::Status(status))?;
            url = self.check_redirect_url(target.as_str()).map_err(|error| redirect_error(error, &target))?;
        }
        Err(DownloadError::TooManyRedirects)
    }

    fn check_redirect_url(&self, url: &str) -> Result<Url, UrlError> {
        match &self.guard {
            Some(guard) => guard.check_url(url, SchemePolicy::HttpOrHttps),
            None => Url::parse(url).map_err(|_| UrlError::Invalid),
        }
    }
}

/// Returns the target of a redirect.
fn target(url: &Url, response: &reqwest::Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = str::from_utf8(response.headers().get(LOCATION)?.as_bytes()).ok()?;
    url.join(location).ok()
}

fn url_error(error: UrlError, url: &str) -> HttpError {
    match error {
        UrlError::NotPublic => HttpError::Blocked(url.to_owned()),
        other => HttpError::Invalid(format!("the URL {other}")),
    }
}

fn redirect_error(error: UrlError, target: &Url) -> DownloadError {
    match error {
        UrlError::NotPublic => HttpError::Blocked(target.host_str().unwrap_or_default().to_owned()).into(),
        other => DownloadError::Redirect(other),
    }
}

impl Download {
    /// Returns the next chunk of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, DownloadError> {
        let chunk = match timeout_at(self.deadline, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(_)) => return Err(HttpError::Broken.into()),
            Err(_) => return Err(HttpError::Timeout { sent: true }.into()),
        };
        self.remaining = self.remaining.checked_sub(chunk.len() as u64).ok_or(DownloadError::TooLarge)?;
        Ok(Some(chunk))
    }

    /// Returns the size of the body that the server has announced, at most the maximum; 0 if it has announced none.
    pub fn announced_size(&self) -> u64 {
        self.response.content_length().unwrap_or_default()
    }

    /// Returns the URL after all redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns a header of the response. `None` if it is missing or not text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the file name: the last path segment of the URL, after all redirects.
    pub fn name(&self) -> String {
        let last = self.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        percent_decode_str(last).decode_utf8_lossy().into_owned()
    }
}
