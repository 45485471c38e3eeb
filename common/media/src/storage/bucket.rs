//! An S3-compatible bucket.

use std::sync::Arc;
use std::time::Duration;

use crier_config::S3Config;
use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use secrecy::ExposeSecret;

use super::StorageError;

/// Maximum wait for a response, and for more data of it. It is longer than a reader may pause.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_RETRIES: usize = 2;
/// Maximum total duration of the retries.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the HTTP client with our settings: proxy variables are ignored, redirects are not followed.
#[derive(Debug)]
struct Connector {
    https_only: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = crier_http::object_storage_client(READ_TIMEOUT, self.https_only);
        client.map(HttpClient::new).map_err(|error| object_store::Error::Generic { store: "S3", source: error.into() })
    }
}

pub fn open(s3: &S3Config) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let retry = RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&s3.bucket)
        .with_region(&s3.region)
        .with_access_key_id(&s3.access_key_id)
        .with_secret_access_key(s3.secret_access_key.expose_secret())
        .with_retry(retry)
        .with_allow_http(s3.endpoint.is_some())
        .with_http_connector(Connector { https_only: s3.endpoint.is_none() });
    if let Some(token) = &s3.session_token {
        builder = builder.with_token(token.expose_secret());
    }
    // Custom endpoints get path-style URLs, and Amazon virtual-hosted ones.
    builder = match &s3.endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder.with_virtual_hosted_style_request(true),
    };
    let bucket = builder.build().map_err(StorageError::of)?;
    Ok(match s3.prefix.as_str() {
        "" => Arc::new(bucket),
        prefix => Arc::new(PrefixStore::new(bucket, prefix)),
    })
}
