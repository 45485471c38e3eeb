//! Downloads and checks an image or a video, and maps failures to errors. Failures of the server that may be temporary
//! are retried; permanent failures and problems of the file are not.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crier_domain::media::{AssetType, MediaError, MediaErrorCode as Code};
use crier_domain::plan::Plan;
use crier_http::{Download, DownloadError, HttpClient, HttpError};
use crier_media::video::sniff;
use crier_media::{
    self as media, IngestError, IngestedFile, Rejection, SNIFFED_BYTES, Spool, SpoolError, Spooled, Spools,
};
use crier_telemetry::metrics::{self, ByteSource};

use super::{ImportMedia, PreparedImport};

/// The minimum rate of a download, in bytes per second: that of an upload. An import keeps its slot, so servers that send a
/// byte now and then would otherwise hold the slots of all imports.
const MIN_RATE: u64 = 64 << 10;

/// How an import of one type is downloaded.
struct Transfer<'a> {
    client: &'a HttpClient,
    spools: &'a Spools,
    accept: &'static str,
    max_bytes: u64,
    /// The maximum wait for more data, and how far behind [`MIN_RATE`] a server may fall. The download of a video may take
    /// long, but only if it makes progress.
    max_wait: Duration,
    is_video: bool,
}

/// A download that has begun.
struct RunningDownload {
    download: Download,
    received: u64,
    /// The time spent waiting for the server.
    waited: Duration,
}

/// A stored file.
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
    /// Whether the import waits for the space that other files use, which uses no attempt.
    pub waits_for_space: bool,
}

impl ImportMedia {
    pub(super) async fn download_and_ingest(&self, prepared: &PreparedImport) -> Result<ImportedFile, ImportError> {
        let (import, owner) = (&prepared.import, &prepared.owner);
        let is_video = import.asset_type == AssetType::Video;
        self.library.check_disk().map_err(|error| from_ingest_error(error, &prepared.plan))?;
        let (bytes, name) = self.transfer(is_video).fetch(&import.source_url, owner.workspace_id).await?;
        let ingested = match is_video {
            true => self.library.ingest_video(&self.store, owner, &bytes).await,
            false => self.library.ingest(&self.store, owner, &bytes).await,
        };
        let file = ingested.map_err(|error| from_ingest_error(error, &prepared.plan))?;
        let filename = media::filename(Some(&name), file.kind);
        Ok(ImportedFile { file, filename })
    }

    fn transfer(&self, is_video: bool) -> Transfer<'_> {
        let (library, max_wait) = (&self.library, self.max_wait);
        if is_video {
            let (spools, max_bytes) = (library.video_spools(), library.max_video_bytes());
            return Transfer { client: &self.video_client, spools, accept: "video/*", max_bytes, max_wait, is_video };
        }
        let (spools, max_bytes) = (library.spools(), library.limits().max_bytes);
        Transfer { client: &self.client, spools, accept: "image/*", max_bytes, max_wait, is_video }
    }
}

impl Transfer<'_> {
    /// Downloads the file. Returns its bytes and its name from the server.
    async fn fetch(&self, url: &str, workspace_id: i64) -> Result<(Spooled, String), ImportError> {
        let download = self.client.download(url, self.accept, self.max_bytes).await;
        let download = download.map_err(|error| self.download_error(error))?;
        let mut running = RunningDownload { download, received: 0, waited: Duration::ZERO };
        // Otherwise, several large files that arrive together could all fail, because none of them fits any more.
        let spool = self.spools.open(workspace_id, running.download.announced_size()).await;
        let mut spool = spool.map_err(from_spool_error)?;
        let first = self.read_first_bytes(&mut running).await?;
        self.check_type(&first)?;
        store(&mut spool, &first).await?;
        while let Some(chunk) = self.read_chunk(&mut running).await? {
            // Each retry downloads a part of the file again, so the wait for space is no longer free.
            store(&mut spool, &chunk).await.map_err(|error| ImportError { waits_for_space: false, ..error })?;
        }
        let name = running.download.name();
        Ok((spool.finish().await.map_err(|error| from_spool_error(error.into()))?, name))
    }

    /// Reads enough of a file to detect a video.
    async fn read_first_bytes(&self, running: &mut RunningDownload) -> Result<Bytes, ImportError> {
        let mut first = BytesMut::new();
        while first.len() < SNIFFED_BYTES
            && let Some(chunk) = self.read_chunk(running).await?
        {
            first.extend_from_slice(&chunk);
        }
        Ok(first.freeze())
    }

    async fn read_chunk(&self, running: &mut RunningDownload) -> Result<Option<Bytes>, ImportError> {
        let allowed = self.max_wait + Duration::from_secs(running.received / MIN_RATE);
        let left = allowed.saturating_sub(running.waited).min(self.max_wait);
        let started = Instant::now();
        let Ok(chunk) = tokio::time::timeout(left, running.download.chunk()).await else {
            return Err(from_http_error(&HttpError::Timeout { sent: true }));
        };
        running.waited += started.elapsed();
        let chunk = chunk.map_err(|error| self.download_error(error))?;
        running.received += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }

    /// Fails if the file is a video and the import is not, or the other way round. An empty file is rejected later.
    fn check_type(&self, first_bytes: &[u8]) -> Result<(), ImportError> {
        let message = match (sniff(first_bytes).is_some(), self.is_video) {
            (true, false) => "The file is a video. To import a video, send `asset_type` with the value `video`.",
            (false, true) if !first_bytes.is_empty() => {
                "The file is not a video of a supported type. Use an MP4, MOV or WebM video. To import an image, omit \
                 `asset_type` or send the value `image`."
            }
            _ => return Ok(()),
        };
        Err(permanent_error(Code::UnsupportedMediaType, message))
    }

    fn download_error(&self, error: DownloadError) -> ImportError {
        from_download_error(error, self.max_bytes)
    }
}

/// Stores received bytes.
async fn store(spool: &mut Spool, bytes: &[u8]) -> Result<(), ImportError> {
    metrics::media_received(ByteSource::Import, bytes.len());
    spool.write(bytes).await.map_err(from_spool_error)
}

fn import_error(code: Code, message: impl Into<String>, is_retryable: bool) -> ImportError {
    ImportError { error: MediaError::new(code, message), is_retryable, waits_for_space: false }
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
            import_error(Code::HttpError, "The connection was lost before the whole file was received.", true)
        }
    }
}

fn from_ingest_error(error: IngestError, plan: &Plan) -> ImportError {
    match error {
        IngestError::Rejected(Rejection::Empty) => {
            permanent_error(Code::UnsupportedMediaType, Rejection::Empty.to_string())
        }
        IngestError::Rejected(Rejection::Unsupported(why)) => permanent_error(Code::UnsupportedMediaType, why),
        IngestError::Rejected(Rejection::TooLarge(why)) => permanent_error(Code::TooLarge, why),
        IngestError::Full => {
            let message = format!(
                "The workspace's plan allows {} MiB of files, and this file would exceed that. Delete files, \
                 or ask the operator for a larger plan. Then import it again.",
                plan.storage_mib.unwrap_or_default()
            );
            permanent_error(Code::StorageLimitExceeded, message)
        }
        IngestError::Storage(_) | IngestError::Store(_) | IngestError::Machine(_) => internal(&error),
    }
}

fn from_spool_error(error: SpoolError) -> ImportError {
    match error {
        SpoolError::Full => {
            let message = "Crier is receiving too many large files. It imports this file when there is space for it. If the \
                           import fails nevertheless, start it again later.";
            ImportError { waits_for_space: true, ..import_error(Code::InternalError, message, true) }
        }
        SpoolError::Io(_) => internal(&IngestError::Machine(error.to_string())),
    }
}

/// Returns an internal error, without details for the client.
fn internal(error: &IngestError) -> ImportError {
    tracing::warn!(%error, "failed to store a downloaded file");
    import_error(Code::InternalError, "Crier could not store the file. The file is not the cause.", true)
}
