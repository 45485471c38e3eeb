//! Downloads and checks an image, and maps failures to errors. Failures of the server that may be temporary are
//! retried; permanent failures and problems of the file are not.

use crier_domain::media::{MediaError, MediaErrorCode as Code};
use crier_domain::plan::Plan;
use crier_http::{DownloadError, HttpError};
use crier_media::{self as media, IngestError, IngestedFile, Refusal, SpoolError, Spooled};

use super::{ImportMedia, PreparedImport};

const ACCEPT: &str = "image/*";

/// A stored image.
pub struct ImportedFile {
    pub file: IngestedFile,
    pub filename: String,
}

/// Why the import failed.
#[derive(Clone, Debug)]
pub struct ImportError {
    pub error: MediaError,
    /// Whether a retry may succeed.
    pub is_retryable: bool,
}

impl ImportMedia {
    pub(super) async fn download_and_ingest(&self, prepared: &PreparedImport) -> Result<ImportedFile, ImportError> {
        let (bytes, name) = self.fetch(&prepared.import.source_url, prepared.owner.workspace_id).await?;
        let ingested = self.library.ingest(&self.store, &prepared.owner, &bytes).await;
        let file = ingested.map_err(|error| from_ingest_error(error, &prepared.plan))?;
        let filename = media::filename(Some(&name), file.kind);
        Ok(ImportedFile { file, filename })
    }

    /// Downloads the file. Returns its bytes and its name from the server.
    async fn fetch(&self, url: &str, workspace_id: i64) -> Result<(Spooled, String), ImportError> {
        let max_bytes = self.library.limits().max_bytes;
        let download_error = |error| from_download_error(error, max_bytes);
        let mut download = self.client.download(url, ACCEPT, max_bytes).await.map_err(download_error)?;
        let mut spool = self.library.spools().open(workspace_id, 0).await.map_err(from_spool_error)?;
        while let Some(chunk) = download.chunk().await.map_err(download_error)? {
            spool.write(&chunk).await.map_err(from_spool_error)?;
        }
        let name = download.name();
        Ok((spool.finish().await.map_err(|error| from_spool_error(error.into()))?, name))
    }
}

fn import_error(code: Code, message: impl Into<String>, is_retryable: bool) -> ImportError {
    ImportError { error: MediaError::new(code, message), is_retryable }
}

fn permanent_error(code: Code, message: impl Into<String>) -> ImportError {
    import_error(code, message, false)
}

fn from_download_error(error: DownloadError, max_bytes: u64) -> ImportError {
    match error {
        DownloadError::Http(error) => from_http_error(&error),
        DownloadError::Status(status) => {
            let message = format!("The server returned {status}.");
            import_error(Code::HttpError, message, status.is_server_error())
        }
        DownloadError::TooManyRedirects | DownloadError::Redirect(_) => {
            permanent_error(Code::HttpError, format!("The URL cannot be downloaded: {error}."))
        }
        DownloadError::TooLarge => {
            permanent_error(Code::TooLarge, format!("The file is larger than the maximum of {} MiB.", max_bytes >> 20))
        }
    }
}

fn from_http_error(error: &HttpError) -> ImportError {
    match error {
        HttpError::Blocked(_) => {
            permanent_error(Code::BlockedAddress, "The URL, or one that it redirects to, is not public.")
        }
        HttpError::Invalid(why) => permanent_error(Code::HttpError, format!("The URL cannot be requested: {why}.")),
        HttpError::Timeout { .. } => {
            import_error(Code::Timeout, "The server did not send the whole file in time.", true)
        }
        HttpError::Dns => import_error(Code::HttpError, "The host name could not be resolved.", true),
        HttpError::Connect => import_error(Code::HttpError, "Could not connect to the server.", true),
        HttpError::Tls(why) => import_error(Code::HttpError, format!("The server is not trusted: {why}."), true),
        HttpError::Broken => {
            import_error(Code::HttpError, "The connection broke before the whole file was received.", true)
        }
    }
}

fn from_ingest_error(error: IngestError, plan: &Plan) -> ImportError {
    match error {
        IngestError::Rejected(Refusal::Empty) => {
            permanent_error(Code::UnsupportedMediaType, Refusal::Empty.to_string())
        }
        IngestError::Rejected(Refusal::Unsupported(why)) => permanent_error(Code::UnsupportedMediaType, why),
        IngestError::Rejected(Refusal::TooLarge(why)) => permanent_error(Code::TooLarge, why),
        IngestError::Full => {
            let message = format!(
                "The workspace's plan allows {} MiB of files, and this file would exceed that. Delete files or choose a \
                 larger plan, then import it again.",
                plan.storage_mib.unwrap_or_default()
            );
            permanent_error(Code::StorageLimitExceeded, message)
        }
        IngestError::Storage(_) | IngestError::Store(_) | IngestError::Machine(_) => internal(&error),
    }
}

fn from_spool_error(error: SpoolError) -> ImportError {
    internal(&IngestError::Machine(error.to_string()))
}

/// Returns an internal error, without details for the client.
fn internal(error: &IngestError) -> ImportError {
    tracing::warn!(%error, "failed to store a downloaded image");
    import_error(Code::InternalError, "Crier could not store the file. The file is not the cause.", true)
}
