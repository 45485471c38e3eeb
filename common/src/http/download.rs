//! Downloads: a body that comes in pieces, however large, from wherever its address leads. One deadline from the first
//! look-up to the last byte.
//!
//! Redirects are followed, a few of them. Each target is judged as an address that a user gives is: its form and a literal
//! address before anything is sent, a name's addresses as they are looked up for the connection. From https to http is
//! followed as well: the address could have been an http one in the first place, the request holds no secret, and the server
//! that was asked over TLS chose the way itself.

use bytes::Bytes;
use http::StatusCode;
use http::header::{ACCEPT, LOCATION};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{HttpClient, HttpError, SchemePolicy, UrlRefusal};

/// How many redirects are followed.
pub const MOST_REDIRECTS: usize = 5;

/// A success whose body has not been read.
#[derive(Debug)]
pub struct Download {
    url: Url,
    response: reqwest::Response,
    deadline: Instant,
    left: u64,
}

/// Why there is no body, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Neither a success nor a redirect that leads anywhere.
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("it redirects more than {MOST_REDIRECTS} times")]
    TooManyRedirects,
    /// It redirects to an address that could not have been given either.
    #[error("it redirects to a URL that is not followed: it {0}")]
    Redirect(UrlRefusal),
    #[error("it is larger than is taken")]
    TooLarge,
}

impl HttpClient {
    /// Asks for what is at a URL, of which `accept` is wanted and at most `most` bytes are taken (after decompression). What
    /// announces more is refused before any of it is read.
    pub async fn download(&self, url: &str, accept: &'static str, most: u64) -> Result<Download, DownloadError> {
        let deadline = Instant::now() + self.timeout;
        let mut url = self.judge(url).map_err(|refusal| not_asked(refusal, url))?;
        for _ in 0..=MOST_REDIRECTS {
            let request = self.prepare(self.inner.get(url.clone()).header(ACCEPT, accept))?;
            let response = match timeout_at(deadline, self.inner.execute(request)).await {
                Ok(response) => response.map_err(HttpError::from_send)?,
                Err(_) => return Err(HttpError::Timeout { sent: true }.into()),
            };
            let status = response.status();
            if status.is_success() {
                if response.content_length().is_some_and(|announced| announced > most) {
                    return Err(DownloadError::TooLarge);
                }
                return Ok(Download { url, response, deadline, left: most });
            }
            let target = target(&url, &response).ok_or(DownloadError::Status(status))?;
            url = self.judge(target.as_str()).map_err(|refusal| not_followed(refusal, &target))?;
        }
        Err(DownloadError::TooManyRedirects)
    }

    fn judge(&self, url: &str) -> Result<Url, UrlRefusal> {
        match &self.guard {
            Some(guard) => guard.check_url(url, SchemePolicy::HttpOrHttps),
            None => Url::parse(url).map_err(|_| UrlRefusal::Invalid),
        }
    }
}

/// Where an answer redirects to.
fn target(url: &Url, response: &reqwest::Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = str::from_utf8(response.headers().get(LOCATION)?.as_bytes()).ok()?;
    url.join(location).ok()
}

fn not_asked(refusal: UrlRefusal, url: &str) -> HttpError {
    match refusal {
        UrlRefusal::NotPublic => HttpError::Blocked(url.to_owned()),
        other => HttpError::Invalid(format!("the URL {other}")),
    }
}

fn not_followed(refusal: UrlRefusal, target: &Url) -> DownloadError {
    match refusal {
        UrlRefusal::NotPublic => HttpError::Blocked(target.host_str().unwrap_or_default().to_owned()).into(),
        other => DownloadError::Redirect(other),
    }
}

impl Download {
    /// The next piece of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, DownloadError> {
        let chunk = match timeout_at(self.deadline, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(_)) => return Err(HttpError::Broken.into()),
            Err(_) => return Err(HttpError::Timeout { sent: true }.into()),
        };
        self.left = self.left.checked_sub(chunk.len() as u64).ok_or(DownloadError::TooLarge)?;
        Ok(Some(chunk))
    }

    /// What the file is called where it came from: the end of the path, after all redirects.
    pub fn name(&self) -> String {
        let last = self.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        percent_decode_str(last).decode_utf8_lossy().into_owned()
    }
}
