//! URLs that users type into a credentials form: of a site, a store, a personal data server.
//!
//! This module checks the syntax. The guard decides whether the URL may be called: once when it is saved
//! ([`UrlCheck`]), and again for each connection (the guarded client).

use async_trait::async_trait;
use crier_http::guard::{Guard, SchemePolicy};
use url::Url;

use super::ConnectError;

/// Checks a URL before credentials are sent to it.
#[async_trait]
pub trait UrlCheck: Send + Sync {
    /// Returns `Ok` if credentials may be sent to the URL: https to a public address, or anything that the operator
    /// allowed. The error message completes "The URL …".
    async fn check(&self, url: &str) -> Result<(), String>;
}

/// Uses the guard. A host name that cannot be resolved passes, because it is checked again for each connection.
#[async_trait]
impl UrlCheck for Guard {
    async fn check(&self, url: &str) -> Result<(), String> {
        self.check_resolved(url, SchemePolicy::HttpsOnly).await.map(drop).map_err(|rejection| rejection.to_string())
    }
}

/// Requires https and checks nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpsOnly;

#[async_trait]
impl UrlCheck for HttpsOnly {
    async fn check(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("must begin with https://".to_owned()) }
    }
}

/// Checks and normalizes the URL in `field`: no user info, query, fragment or trailing slash.
pub(super) async fn check_submitted_url(
    check: &dyn UrlCheck,
    field: &'static str,
    text: &str,
) -> Result<String, ConnectError> {
    let wrong = |message: &str| ConnectError::Field { field, message: format!("The URL {message}.") };
    if text.len() > 2048 {
        return Err(wrong("must have at most 2048 characters"));
    }
    let mut url = Url::parse(text.trim()).map_err(|_| wrong("must be complete, such as https://example.com"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("must begin with https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("must not contain a username or password"));
    }
    url.set_query(None);
    url.set_fragment(None);
    let url = url.as_str().trim_end_matches('/').to_owned();
    check.check(&url).await.map_err(|message| wrong(&message))?;
    Ok(url)
}
