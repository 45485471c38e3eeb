//! The HTTP client: every request that Crier makes goes through [`HttpClient`].
//!
//! [`HttpClient::guarded`] is for URLs that a user can choose, [`HttpClient::trusted`] for URLs that the operator set.
//! Both have one deadline from the lookup to the last byte, follow no redirects (only [`download`] does, and the guard
//! checks them), ignore proxy variables, and limit the size of a response's body (after decompression). They use HTTP/2
//! if a server offers it. If there is no response, [`HttpError::may_have_arrived`] returns whether the request may have
//! taken effect; in doubt it returns `true`.

mod address;
pub mod download;
mod error;
pub mod guard;
pub mod resolver;
mod retry;
#[cfg(any(test, feature = "test-util"))]
pub mod test_server;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, timeout_at};

pub use download::{Download, DownloadError};
pub use error::{HttpError, NoRootCertificates};
pub use guard::{Guard, SchemePolicy, UrlError};
pub use reqwest::{Body, RequestBuilder, multipart};
use resolver::GuardedResolver;
pub use retry::parse_date;
pub use tls::install as install_tls;

use crier_telemetry::traces;

/// The default `User-Agent` of requests.
pub const USER_AGENT: &str = concat!("Crier/", env!("CARGO_PKG_VERSION"));

/// The time limit of lookup, TCP and TLS together (half of the deadline, if that is shorter).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept. Many servers close theirs after 5 s, and the effect of a request that races
/// with the close is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum number of idle connections per host: as many as the concurrent deliveries to one endpoint use.
const MAX_IDLE_PER_HOST: usize = 128;

/// How long an HTTP/2 connection that waits for a response may be silent before it is pinged (a fifth of the deadline,
/// if that is shorter).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The minimum and maximum of the HTTP/2 window. Between them it is the maximum size of a body, because a larger window
/// would only buffer data that is never read.
const WINDOW: std::ops::RangeInclusive<usize> = 65_535..=1 << 20;

/// A response.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body is incomplete, because it exceeded the limit or ended early ([`HttpClient::send_for_status`]).
    pub truncated: bool,
}

/// The outbound client. Cheap to clone; connections are pooled per host.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
    guard: Option<Guard>,
    timeout: Duration,
    max_body: usize,
}

impl HttpClient {
    /// Creates a client for URLs that the operator set.
    pub fn trusted(timeout: Duration, max_body: usize) -> Self {
        Self { inner: build(None, timeout, max_body), guard: None, timeout, max_body }
    }

    /// Creates a client for URLs that a user can choose.
    pub fn guarded(guard: Guard, timeout: Duration, max_body: usize) -> Self {
        Self { inner: build(Some(&guard), timeout, max_body), guard: Some(guard), timeout, max_body }
    }

    /// Creates a guarded client that trusts one more certificate authority.
    #[cfg(test)]
    fn with_root_certificate(
        authority: rustls::pki_types::CertificateDer<'static>,
        guard: Guard,
        timeout: Duration,
        max_body: usize,
    ) -> Self {
        let tls = tls::trusting(authority).expect("the tests' own authority");
        let inner = builder(Some(&guard), timeout, max_body).tls_backend_preconfigured(tls).build();
        Self { inner: inner.expect("static options"), guard: Some(guard), timeout, max_body }
    }

    /// Returns a client with the same connection pool, but another deadline and maximum body size. (If the deadline is
    /// shorter than the connect timeout of the pool, a timeout during the connect counts as `sent`.)
    pub fn with_limits(&self, timeout: Duration, max_body: usize) -> Self {
        Self { timeout, max_body, ..self.clone() }
    }

    /// Returns a client with the same connection pool and a longer deadline, for a request with a large body.
    pub fn with_more_time(&self, more: Duration) -> Self {
        Self { timeout: self.timeout + more, ..self.clone() }
    }

    /// Starts to build a request. Complete it with reqwest's builder, and pass it to [`HttpClient::send`].
    pub fn request(&self, method: http::Method, url: &str) -> reqwest::RequestBuilder {
        self.inner.request(method, url)
    }

    /// Sends the request and reads the response up to the maximum size, all within the deadline.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<HttpResponse, HttpError> {
        let (response, failure) = self.exchange(request).await?;
        failure.map_or(Ok(response), Err)
    }

    /// Like [`HttpClient::send`], for callers that only need the status: if the headers have arrived and the body fails
    /// or does not end in time, the response contains the part of the body that was read.
    pub async fn send_for_status(&self, request: reqwest::RequestBuilder) -> Result<HttpResponse, HttpError> {
        Ok(self.exchange(request).await?.0)
    }

    /// Returns the response, and the error of reading its body.
    async fn exchange(&self, request: reqwest::RequestBuilder) -> Result<(HttpResponse, Option<HttpError>), HttpError> {
        let request = self.prepare(request)?;
        let deadline = Instant::now() + self.timeout;
        let (mut response, span) = self.start(request, deadline).await?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = Vec::new();
        let end = timeout_at(deadline, read(&mut response, &mut body, self.max_body)).await;
        let (truncated, failure) = match end {
            Ok(Ok(truncated)) => (truncated, None),
            Ok(Err(_)) => (true, Some(HttpError::Broken)),
            Err(_) => (true, Some(HttpError::Timeout { sent: true })),
        };
        if let Some(failure) = &failure {
            span.fail(failure.class());
        }
        Ok((HttpResponse { status, headers, body: body.into(), truncated }, failure))
    }

    /// Sends the request; returns the response without its body, and the span of the call.
    async fn start(
        &self,
        request: reqwest::Request,
        deadline: Instant,
    ) -> Result<(reqwest::Response, traces::Span), HttpError> {
        let span = traces::Span::call(request.method(), request.url());
        let sent = match timeout_at(deadline, self.inner.execute(request)).await {
            Ok(response) => response.map_err(HttpError::from_send),
            // A slow connect has failed before this deadline, so the request may have been sent.
            Err(_) => Err(HttpError::Timeout { sent: true }),
        };
        match &sent {
            Ok(response) => span.responded(response.status()),
            Err(error) => span.fail(error.class()),
        }
        Ok((sent?, span))
    }

    /// Builds the request and checks it. The guard of this client applies, even if another client created the builder.
    fn prepare(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Request, HttpError> {
        let request = request.build().map_err(HttpError::invalid)?;
        if let Some(guard) = &self.guard {
            guard.check_literal(request.url()).map_err(HttpError::Blocked).inspect_err(|error| {
                traces::Span::call(request.method(), request.url()).fail(error.class());
            })?;
        }
        Ok(request)
    }
}

/// Reads at most `max` bytes of the body; returns whether it was longer.
async fn read(response: &mut reqwest::Response, body: &mut Vec<u8>, max: usize) -> reqwest::Result<bool> {
    while let Some(chunk) = response.chunk().await? {
        let remaining = max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        if chunk.len() > remaining {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that this system has certificate authorities. Call it at the start: clients that are created later rely on
/// it.
pub fn check_root_certificates() -> Result<(), NoRootCertificates> {
    tls::config().map(drop)
}

/// Returns the client for the object storage library, whose URL the operator sets. There is no total deadline, because
/// a file may be large and its reader slow.
pub fn object_storage_client(read_timeout: Duration, https_only: bool) -> reqwest::Result<reqwest::Client> {
    // Over HTTP/2, all files would share one connection, and a few that are read slowly would block the others.
    let mut tls = tls::config().expect("`check_root_certificates` passed at the start");
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Without decompression, because the length and checksums of the stored bytes are verified.
    builder(None, CONNECT_TIMEOUT, *WINDOW.end())
        .tls_backend_preconfigured(tls)
        .read_timeout(read_timeout)
        .no_gzip()
        .https_only(https_only)
        .build()
}

fn build(guard: Option<&Guard>, timeout: Duration, max_body: usize) -> reqwest::Client {
    with_tls(builder(guard, timeout, max_body)).build().expect("all options are static")
}

fn with_tls(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder.tls_backend_preconfigured(tls::config().expect("`check_root_certificates` passed at the start"))
}

fn builder(guard: Option<&Guard>, timeout: Duration, max_body: usize) -> reqwest::ClientBuilder {
    let window = max_body.clamp(*WINDOW.start(), *WINDOW.end()) as u32;
    let builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        // Well before the total deadline, so that a timeout during the connect can be distinguished.
        .connect_timeout(CONNECT_TIMEOUT.min(timeout / 2))
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
        .http2_initial_stream_window_size(window)
        // For several responses at the same time, so that an unread one does not block the others.
        .http2_initial_connection_window_size(window * 4)
        // Closes a connection whose peer is stuck: otherwise every later request to that host would time out on it. Not
        // before the deadline of a request, because a busy endpoint may still respond.
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL.min(timeout / 5))
        .http2_keep_alive_timeout(timeout);
    match guard {
        Some(guard) => builder.dns_resolver(Arc::new(GuardedResolver(guard.clone()))),
        None => builder,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests of the client and of its connections")]
mod tests;
