//! Downloads and checks a picture, and maps failures to errors. A failure of the other side that may be temporary is
//! retried; a permanent one, or a problem of the file itself, is not.

use crier_common::domain::media::{MediaError, MediaErrorCode as Code};
use crier_common::domain::plan::Plan;
use crier_common::http::{DownloadError, HttpError};
use crier_common::media::{self, IngestError, IngestedFile, Refusal, SpoolError, Spooled};

use super::{Begin, ImportMedia};

const ACCEPT: &str = "image/*";

/// A picture that was stored.
pub struct Brought {
    pub taken: IngestedFile,
    pub filename: String,
}

/// Why the import failed.
#[derive(Clone, Debug)]
pub struct FetchError {
    pub error: MediaError,
    /// Whether a retry may succeed.
    pub again: bool,
}

impl ImportMedia {
    pub(super) async fn bring_in(&self, begin: &Begin) -> Result<Brought, FetchError> {
        let (bytes, name) = self.fetch(&begin.import.source_url, begin.owner.workspace_id).await?;
        let taken = self.library.ingest(&self.store, &begin.owner, &bytes).await;
        let taken = taken.map_err(|error| not_taken(error, &begin.plan))?;
        let filename = media::filename(Some(&name), taken.kind);
        Ok(Brought { taken, filename })
    }

    /// Downloads the file; returns its bytes and the name that the server gave it.
    async fn fetch(&self, url: &str, workspace_id: i64) -> Result<(Spooled, String), FetchError> {
        let most = self.library.limits().max_bytes;
        let not_there = |error| not_there(error, most);
        let mut download = self.client.download(url, ACCEPT, most).await.map_err(not_there)?;
        let mut spool = self.library.spools().open(workspace_id, 0).await.map_err(unwritable)?;
        while let Some(chunk) = download.chunk().await.map_err(not_there)? {
            spool.write(&chunk).await.map_err(unwritable)?;
        }
        let name = download.name();
        Ok((spool.finish().await.map_err(|error| unwritable(error.into()))?, name))
    }
}

fn failure(code: Code, message: impl Into<String>, again: bool) -> FetchError {
    FetchError { error: MediaError::new(code, message), again }
}

fn for_good(code: Code, message: impl Into<String>) -> FetchError {
    failure(code, message, false)
}

fn not_there(error: DownloadError, most: u64) -> FetchError {
    match error {
        DownloadError::Http(error) => no_answer(&error),
        DownloadError::Status(status) => {
            let message = format!("The server answered {status}.");
            failure(Code::HttpError, message, status.is_server_error())
        }
        DownloadError::TooManyRedirects | DownloadError::Redirect(_) => {
            for_good(Code::HttpError, format!("The address leads nowhere: {error}."))
        }
        DownloadError::TooLarge => for_good(
            Code::TooLarge,
            format!("The file is larger than {} MiB, the most that is taken here.", most >> 20),
        ),
    }
}

fn no_answer(error: &HttpError) -> FetchError {
    match error {
        HttpError::Blocked(_) => {
            for_good(Code::BlockedAddress, "The address, or one that it redirects to, is not public.")
        }
        HttpError::Invalid(why) => for_good(Code::HttpError, format!("The address cannot be asked: {why}.")),
        HttpError::Timeout { .. } => failure(Code::Timeout, "The server did not send the whole file in time.", true),
        HttpError::Dns => failure(Code::HttpError, "The host's name could not be resolved.", true),
        HttpError::Connect => failure(Code::HttpError, "No connection to the server could be made.", true),
        HttpError::Tls(why) => failure(Code::HttpError, format!("The server is not trusted: {why}."), true),
        HttpError::Broken => failure(Code::HttpError, "The connection broke before the whole file had come.", true),
    }
}

fn not_taken(error: IngestError, plan: &Plan) -> FetchError {
    match error {
        IngestError::Refused(Refusal::Empty) => for_good(Code::UnsupportedMediaType, Refusal::Empty.to_string()),
        IngestError::Refused(Refusal::Unsupported(why)) => for_good(Code::UnsupportedMediaType, why),
        IngestError::Refused(Refusal::TooLarge(why)) => for_good(Code::TooLarge, why),
        IngestError::Full => {
            let message = format!(
                "The workspace's plan allows {} MiB of files, and this one would not fit. Delete some or choose a larger plan, then import it again.",
                plan.storage_mib.unwrap_or_default()
            );
            for_good(Code::StorageLimitExceeded, message)
        }
        IngestError::Storage(_) | IngestError::Store(_) | IngestError::Machine(_) => internal(&error),
    }
}

fn unwritable(error: SpoolError) -> FetchError {
    internal(&IngestError::Machine(error.to_string()))
}

/// Returns an internal failure, without details for the client.
fn internal(error: &IngestError) -> FetchError {
    tracing::warn!(%error, "a downloaded picture could not be stored");
    failure(Code::InternalError, "Crier could not keep the file; the fault is not the file's.", true)
}
