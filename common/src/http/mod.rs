//! The one way out: every HTTP request that Crier makes goes through [`HttpClient`].
//!
//! [`HttpClient::guarded`] is for addresses that a user can choose, [`HttpClient::trusted`] for those that the operator set.
//! Both have one deadline from DNS to the last byte, follow no redirect ([`download`] does, by the guard), read no proxy
//! variable and cap the answer's bytes (after decompression). They speak HTTP/2 where a server offers it. When there is no answer,
//! [`HttpError::may_have_arrived`] says whether the request may have had its effect; in doubt it says yes.

mod address;
pub mod download;
mod error;
pub mod guard;
pub mod resolver;
#[cfg(test)]
pub(crate) mod test_server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, timeout_at};

pub use download::{Download, DownloadError};
pub use error::{HttpError, NoAuthorities};
pub use guard::{Guard, SchemePolicy, UrlRefusal};
use resolver::GuardedResolver;

/// What requests call themselves unless they set a `User-Agent` of their own.
pub const USER_AGENT: &str = concat!("Crier/", env!("CARGO_PKG_VERSION"));

/// How long DNS, TCP and TLS may take together (half of the deadline, where that is shorter).
const CONNECT: Duration = Duration::from_secs(10);

/// How long an unused connection is kept. Many servers close theirs after 5 s, and a request that meets the closing is
/// one whose effect is not known; a busy connection is never unused for that long.
const KEEP_UNUSED: Duration = Duration::from_secs(4);

/// How many unused connections to one host are kept: as many as one endpoint's deliveries use at once.
const UNUSED_PER_HOST: usize = 128;

/// How long an HTTP/2 connection that waits for an answer may be silent before it is asked whether it is alive (a fifth of
/// the deadline, where that is shorter).
const SILENT: Duration = Duration::from_secs(5);

/// How much of an answer over HTTP/2 may be on its way before it is read: what is read of it at all, within these bounds.
/// More would only be kept for nothing.
const WINDOW: std::ops::RangeInclusive<usize> = 65_535..=1 << 20;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The body is not whole: it was longer than the cap and was cut there, or ended early ([`HttpClient::send_for_status`]).
    pub truncated: bool,
}

/// The outbound client. Cheap to clone; connections are kept and reused per host.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
    guard: Option<Guard>,
    timeout: Duration,
    max_body: usize,
}

impl HttpClient {
    /// A client for addresses that the operator set.
    pub fn trusted(timeout: Duration, max_body: usize) -> Self {
        Self { inner: build(None, timeout, max_body), guard: None, timeout, max_body }
    }

    /// A client for addresses that a user can choose.
    pub fn guarded(guard: Guard, timeout: Duration, max_body: usize) -> Self {
        Self { inner: build(Some(&guard), timeout, max_body), guard: Some(guard), timeout, max_body }
    }

    /// A guarded client that believes one more authority.
    #[cfg(test)]
    fn believing(authority: reqwest::Certificate, guard: Guard, timeout: Duration, max_body: usize) -> Self {
        let inner = builder(Some(&guard), timeout, max_body).tls_certs_merge([authority]).build();
        Self { inner: inner.expect("the tests' own authority"), guard: Some(guard), timeout, max_body }
    }

    /// The same connections under another deadline and another cap. (Where the deadline is shorter than making a
    /// connection may take here, a time-out on the way counts as sent.)
    pub fn with_limits(&self, timeout: Duration, max_body: usize) -> Self {
        Self { timeout, max_body, ..self.clone() }
    }

    /// Starts a request; finish it with reqwest's builder and hand it to [`HttpClient::send`].
    pub fn request(&self, method: http::Method, url: &str) -> reqwest::RequestBuilder {
        self.inner.request(method, url)
    }

    /// Sends, and reads the answer up to the cap, all within the deadline.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, HttpError> {
        let (answer, failure) = self.exchange(request).await?;
        failure.map_or(Ok(answer), Err)
    }

    /// The same where the status is the answer: once the headers are here, a body that breaks off or does not end in time
    /// is taken as far as it came.
    pub async fn send_for_status(&self, request: reqwest::RequestBuilder) -> Result<Answer, HttpError> {
        Ok(self.exchange(request).await?.0)
    }

    /// An answer, and what went wrong with its body.
    async fn exchange(&self, request: reqwest::RequestBuilder) -> Result<(Answer, Option<HttpError>), HttpError> {
        let request = self.prepare(request)?;
        let deadline = Instant::now() + self.timeout;
        let mut response = match timeout_at(deadline, self.inner.execute(request)).await {
            Ok(response) => response.map_err(HttpError::from_send)?,
            // A connection that takes too long fails before this deadline, so the request was on its way.
            Err(_) => return Err(HttpError::Timeout { sent: true }),
        };
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = Vec::new();
        let end = timeout_at(deadline, read(&mut response, &mut body, self.max_body)).await;
        let (truncated, failure) = match end {
            Ok(Ok(truncated)) => (truncated, None),
            Ok(Err(_)) => (true, Some(HttpError::Broken)),
            Err(_) => (true, Some(HttpError::Timeout { sent: true })),
        };
        Ok((Answer { status, headers, body: body.into(), truncated }, failure))
    }

    /// Builds and judges the request. It is run by this client, whichever one started it: no request escapes the guard.
    fn prepare(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Request, HttpError> {
        let request = request.build().map_err(HttpError::invalid)?;
        if let Some(guard) = &self.guard {
            guard.check_literal(request.url()).map_err(HttpError::Blocked)?;
        }
        Ok(request)
    }
}

/// Reads until the end or the cap; says whether it was cut there.
async fn read(response: &mut reqwest::Response, body: &mut Vec<u8>, max: usize) -> reqwest::Result<bool> {
    while let Some(chunk) = response.chunk().await? {
        let room = max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this system knows any authority that vouches for servers. Asked once at the start, so that a client made later
/// may rely on it.
pub fn check_authorities() -> Result<(), NoAuthorities> {
    builder(None, Duration::ZERO, 0).build().map(drop).map_err(NoAuthorities::from_build)
}

/// Chooses the cryptography of TLS for the whole process; clients of libraries use it as well.
pub fn install_tls() {
    // Fails where it is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The connections of the library that speaks to buckets, whose address the operator sets. There is no deadline for the
/// whole: a file may be as large, and its reader as slow, as they like. `silent`: how long the other side may say nothing.
pub fn for_buckets(silent: Duration, https_only: bool) -> reqwest::Result<reqwest::Client> {
    // Bytes as they are kept: their length and their sums are looked at.
    builder(None, CONNECT, *WINDOW.end()).read_timeout(silent).no_gzip().https_only(https_only).build()
}

fn build(guard: Option<&Guard>, timeout: Duration, max_body: usize) -> reqwest::Client {
    let built = builder(guard, timeout, max_body).build();
    built.expect("`check_authorities` passed at the start; all other options are static")
}

fn builder(guard: Option<&Guard>, timeout: Duration, max_body: usize) -> reqwest::ClientBuilder {
    install_tls();
    let window = max_body.clamp(*WINDOW.start(), *WINDOW.end()) as u32;
    #[expect(clippy::disallowed_methods, reason = "the one place that makes clients")]
    let builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        // Well before the deadline of the whole, so that it is known in which phase the time ran out.
        .connect_timeout(CONNECT.min(timeout / 2))
        .pool_idle_timeout(KEEP_UNUSED)
        .pool_max_idle_per_host(UNUSED_PER_HOST)
        .http2_initial_stream_window_size(window)
        // Several answers at once; one that is not read holds up none of the others.
        .http2_initial_connection_window_size(window * 4)
        // A connection whose other end stands still is given up, or every later request to that host would wait on it in
        // vain. Not before the deadline of a request is over: an endpoint may be busy and answer after all.
        .http2_keep_alive_interval(SILENT.min(timeout / 5))
        .http2_keep_alive_timeout(timeout);
    match guard {
        Some(guard) => builder.dns_resolver(Arc::new(GuardedResolver(guard.clone()))),
        None => builder,
    }
}

#[cfg(test)]
mod tests;
