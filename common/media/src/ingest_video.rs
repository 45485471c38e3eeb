//! Adds videos to the library. A video is never changed, and never in memory as a whole.

use std::io::Cursor;
use std::time::Duration;

use bytes::Bytes;
use crier_domain::media::ImageType;
use crier_store::Store;
use crier_telemetry::metrics::{self, CoverOutcome, IngestedType};

use super::cover::MAX_COVER_BYTES;
use super::images::{self, Limits, Rejection};
use super::spool::{Spooled, Spools};
use super::storage::StorageError;
use super::video::{self, ProbedVideo};
use super::{CheckedFile, Content, IngestError, IngestedFile, Library, Owner, UploadLease, counted};

/// The time for reading the headers of a video.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of the headers of a video, in bytes.
const MAX_HEADER_BYTES: u64 = 32 << 20;
/// The memory for headers, as a multiple of their size: their bytes, and what is parsed from them.
const HEADER_COPIES: u64 = 3;
/// The number of bytes that are read from the temporary file at a time. The allocator keeps larger buffers for each of its
/// threads after they are freed.
const READ_BYTES: u64 = 1 << 20;

impl Library {
    /// Returns the maximum size of a video, in bytes.
    pub fn max_video_bytes(&self) -> u64 {
        self.0.max_video_bytes
    }

    /// Returns the spools for videos that are not checked yet. They share no space with those of images, so that large
    /// videos do not delay images.
    pub fn video_spools(&self) -> &Spools {
        &self.0.video_spools
    }

    /// Checks the headers of a video and writes it to the storage, with a cover image if ffmpeg can create one.
    pub async fn ingest_video(
        &self,
        store: &Store,
        owner: &Owner,
        spooled: &Spooled,
    ) -> Result<IngestedFile, IngestError> {
        counted(IngestedType::Video, self.store_video(store, owner, spooled, None).await)
    }

    /// Does what [`Library::ingest_video`] does, for a resumable upload, whose space the file takes over.
    pub(super) async fn ingest_upload(
        &self,
        store: &Store,
        owner: &Owner,
        spooled: &Spooled,
        upload: UploadLease<'_>,
    ) -> Result<IngestedFile, IngestError> {
        counted(IngestedType::Video, self.store_video(store, owner, spooled, Some(upload)).await)
    }

    async fn store_video(
        &self,
        store: &Store,
        owner: &Owner,
        spooled: &Spooled,
        upload: Option<UploadLease<'_>>,
    ) -> Result<IngestedFile, IngestError> {
        self.check_disk()?;
        let (video, sha256) = self.examine_video(spooled).await?;
        let file = CheckedFile {
            kind: video.kind.into(),
            content: Content::Spooled(spooled),
            sha256,
            size: spooled.size(),
            width: video.width,
            height: video.height,
            thumbnail: self.cover(owner.workspace_id, spooled, &video).await,
            video: Some(video.properties),
        };
        self.store_checked(store, owner, file, upload).await
    }

    /// Reads the headers of a video. Returns them with the hash of the file.
    async fn examine_video(&self, spooled: &Spooled) -> Result<(ProbedVideo, [u8; 32]), IngestError> {
        let size = spooled.size();
        if size == 0 {
            return Err(Rejection::Empty.into());
        }
        let max = self.0.max_video_bytes;
        if size > max {
            let message = format!("The file is larger than the maximum of {} MiB.", max >> 20);
            return Err(Rejection::TooLarge(message).into());
        }
        let share = self.0.budget.share(size.min(MAX_HEADER_BYTES) * HEADER_COPIES).await;
        let source = spooled.clone();
        let work = move || {
            // Held until the work ends, even if the caller no longer waits for it.
            let _share = share;
            let probed = video::probe(&mut *source.reader()?, size);
            Ok(match probed {
                Ok(video) => Ok((video, source.sha256()?)),
                Err(rejection) => Err(rejection),
            })
        };
        match tokio::time::timeout(HEADERS_TIMEOUT, self.run_on_budget(work)).await {
            Ok(examined) => Ok(examined??),
            Err(_) => Err(IngestError::Machine("reading a video took too long".to_owned())),
        }
    }

    /// Returns the cover image of a video, checked like an uploaded image.
    async fn cover(&self, workspace_id: i64, spooled: &Spooled, video: &ProbedVideo) -> Option<(ImageType, Bytes)> {
        let bytes = self.0.covers.take(workspace_id, spooled, video).await?;
        let image = self.check_cover(bytes).await;
        metrics::media_cover(if image.is_some() { CoverOutcome::Taken } else { CoverOutcome::Rejected });
        image
    }

    async fn check_cover(&self, bytes: Bytes) -> Option<(ImageType, Bytes)> {
        let limits = Limits { max_bytes: MAX_COVER_BYTES, max_pixels: self.0.limits.max_pixels };
        let probed = images::probe(Cursor::new(&bytes), &limits);
        let share = self.0.budget.share(bytes.len() as u64 * 2 + probed.ok()?.memory).await;
        let examine = move || {
            let _share = share;
            images::examine(bytes, &limits)
        };
        match self.0.budget.run(examine).await? {
            Ok(image) => Some((image.thumbnail_kind, image.thumbnail)),
            Err(error) => {
                tracing::info!(%error, "the image that ffmpeg returned was rejected");
                None
            }
        }
    }

    /// Writes a video to the storage, part by part.
    pub(super) async fn write_video(&self, key: &str, spooled: &Spooled) -> Result<(), StorageError> {
        // The semaphore is never closed.
        let _permit = self.0.video_writes.acquire().await;
        self.0.storage.put_stream(key, spooled.chunks(READ_BYTES)).await
    }
}
