//! The one way out: every HTTP request that Crier makes goes through [`HttpClient`].
//!
//! [`HttpClient::guarded`] is for addresses that a user can choose, [`HttpClient::trusted`] for those that the operator set.
//! Both have one deadline from DNS to the last byte, follow no redirect, read no proxy variable and cap the answer's bytes.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The body was longer than the cap and was cut there.
    pub truncated: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The guard refuses the address.
    #[error("the address is not public: {0}")]
    Blocked(String),
    #[error("the name could not be resolved")]
    Dns,
    #[error("no connection could be made")]
    Connect,
    #[error("the TLS handshake failed: {0}")]
    Tls(String),
    /// The deadline passed; `sent`: the request may have reached the other side.
    #[error("no answer in time")]
    Timeout { sent: bool },
    /// The connection broke after the request may have reached the other side.
    #[error("the connection broke before an answer came")]
    Broken,
    /// The request could not be built (a bad URL or header).
    #[error("bad request: {0}")]
    Invalid(String),
}

impl HttpError {
    /// Whether the other side may have got the request, so that its effect is not known.
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, Self::Timeout { sent: true } | Self::Broken)
    }
}

/// The outbound client. Cheap to clone; connections are kept and reused per host.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
    timeout: Duration,
    max_body: usize,
}

impl HttpClient {
    /// A client for addresses that the operator set.
    pub fn trusted(timeout: Duration, max_body: usize) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            inner: reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .build()
                .expect("static options"),
            timeout,
            max_body,
        }
    }

    /// Starts a request; finish it with reqwest's builder and hand it to [`HttpClient::send`].
    pub fn request(&self, method: http::Method, url: &str) -> reqwest::RequestBuilder {
        self.inner.request(method, url)
    }

    /// Sends, and reads the answer up to the cap, all within the deadline.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, HttpError> {
        let run = async {
            let mut response = request
                .send()
                .await
                .map_err(|e| if e.is_connect() { HttpError::Connect } else { HttpError::Broken })?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(|_| HttpError::Broken)? {
                body.extend_from_slice(&chunk);
                if body.len() > self.max_body {
                    body.truncate(self.max_body);
                    return Ok(Answer { status, headers, body: body.into(), truncated: true });
                }
            }
            Ok(Answer { status, headers, body: body.into(), truncated: false })
        };
        tokio::time::timeout(self.timeout, run).await.unwrap_or(Err(HttpError::Timeout { sent: true }))
    }
}
