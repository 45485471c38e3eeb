//! The metadata documents of applications (OAuth Client ID Metadata Documents). The ID of such an application is the
//! URL of its document, which anyone can choose, so the guarded client reads it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_http::{Guard, HttpClient, SchemePolicy, UrlError};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::sync::Semaphore;

/// The maximum length of the URL of a document, in bytes.
const MAX_URL: usize = 512;
/// The maximum size of a document, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// The maximum number of entries of a list: many short ones take much more memory than the document.
const MAX_ENTRIES: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a document is used without reading it again.
const MAX_AGE: TimeDelta = TimeDelta::minutes(15);
/// The maximum number of documents in memory.
const MAX_DOCUMENTS: usize = 200;
/// The maximum number of concurrent reads.
const MAX_READS: usize = 8;

/// The metadata that an application publishes.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientDocument {
    client_id: String,
    #[serde(default)]
    pub client_name: Option<String>,
    pub redirect_uris: Vec<String>,
    #[serde(default)]
    pub token_endpoint_auth_method: Option<String>,
    /// The methods that an application offers besides the preferred one.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Why a document cannot be used. The message completes "The application's metadata document …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientDocumentError {
    #[error("has an invalid URL: it {0}")]
    Url(#[from] UrlError),
    #[error("has an invalid URL: it must be normalized, with a path, and without a fragment or a default port")]
    UrlForm,
    #[error("could not be read")]
    Unreachable,
    #[error("was not sent: the server responded with status {0}")]
    Status(StatusCode),
    #[error("is larger than 64 KiB")]
    TooLarge,
    #[error("has a list of more than 100 entries")]
    TooManyEntries,
    #[error("is not valid: it must be JSON with `client_id` and `redirect_uris`, and have a JSON content type")]
    Invalid,
    #[error("belongs to another application: its `client_id` is not its URL")]
    OtherId,
    #[error("cannot be read now, because too many others are being read. Wait a moment, then reload the page")]
    Busy,
}

/// Reads documents, and keeps them in memory for a while.
#[derive(Debug)]
pub struct ClientDocuments {
    client: HttpClient,
    guard: Guard,
    reads: Semaphore,
    cache: Mutex<HashMap<String, CachedDocument>>,
}

#[derive(Debug)]
struct CachedDocument {
    document: Arc<ClientDocument>,
    read_at: DateTime<Utc>,
}

impl CachedDocument {
    fn is_current(&self, now: DateTime<Utc>) -> bool {
        self.read_at <= now && now - self.read_at < MAX_AGE
    }
}

impl ClientDocuments {
    pub fn new(guard: Guard) -> Self {
        Self {
            client: HttpClient::guarded(guard.clone(), TIMEOUT, MAX_BYTES),
            guard,
            reads: Semaphore::new(MAX_READS),
            cache: Mutex::default(),
        }
    }

    /// Returns the document at a URL, from memory if it was read recently.
    pub async fn find(&self, url: &str, now: DateTime<Utc>) -> Result<Arc<ClientDocument>, ClientDocumentError> {
        if let Some(document) = self.cached(url, now) {
            return Ok(document);
        }
        self.check_url(url)?;
        let _permit = self.reads.try_acquire().map_err(|_| ClientDocumentError::Busy)?;
        let document = Arc::new(self.read(url).await?);
        self.store(url, document.clone(), now);
        Ok(document)
    }

    /// Checks the form of a URL. The addresses of its name are checked when the connection is opened.
    fn check_url(&self, text: &str) -> Result<(), ClientDocumentError> {
        if text.len() > MAX_URL {
            return Err(ClientDocumentError::UrlForm);
        }
        let url = self.guard.check_url(text, SchemePolicy::HttpsOnly)?;
        let is_plain = url.as_str() == text && url.path() != "/" && url.fragment().is_none();
        if is_plain { Ok(()) } else { Err(ClientDocumentError::UrlForm) }
    }

    async fn read(&self, url: &str) -> Result<ClientDocument, ClientDocumentError> {
        let request = self.client.request(Method::GET, url).header(ACCEPT, "application/json");
        let sent = self.client.send(request).await;
        let response = sent.map_err(|error| {
            tracing::debug!(%error, "failed to read the metadata document of an application");
            ClientDocumentError::Unreachable
        })?;
        if response.status != StatusCode::OK {
            return Err(ClientDocumentError::Status(response.status));
        }
        if response.truncated {
            return Err(ClientDocumentError::TooLarge);
        }
        // A file that a user uploads to a site usually has another content type.
        let kind = response.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "application/json" && !(kind.starts_with("application/") && kind.ends_with("+json")) {
            return Err(ClientDocumentError::Invalid);
        }
        let document: ClientDocument =
            serde_json::from_slice(&response.body).map_err(|_| ClientDocumentError::Invalid)?;
        let methods = document.token_endpoint_auth_methods_supported.as_ref().map_or(0, Vec::len);
        if document.redirect_uris.len().max(methods) > MAX_ENTRIES {
            return Err(ClientDocumentError::TooManyEntries);
        }
        if document.client_id == url { Ok(document) } else { Err(ClientDocumentError::OtherId) }
    }

    fn cached(&self, url: &str, now: DateTime<Utc>) -> Option<Arc<ClientDocument>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(url).filter(|cached| cached.is_current(now)).map(|cached| cached.document.clone())
    }

    fn store(&self, url: &str, document: Arc<ClientDocument>, now: DateTime<Utc>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_DOCUMENTS {
            cache.retain(|_, cached| cached.is_current(now));
        }
        if cache.len() >= MAX_DOCUMENTS {
            // Only a flood of requests fills the cache. All documents can be read again.
            cache.clear();
        }
        cache.insert(url.to_owned(), CachedDocument { document, read_at: now });
    }
}
