//! The media library: adds images and videos from any source (an upload, an import, the AI), and stores them.
//!
//! 1. The bytes are received into a [`Spool`], unchecked and within one limit for all spools ([`Spools`]).
//! 2. [`Library::ingest`] checks an image completely (`images/`), within one [`Budget`] of memory.
//!    [`Library::ingest_video`] checks the headers of a video (`video/`) and creates its cover image (`cover.rs`). Both
//!    reserve a row and storage quota (`crier_store::files`), which they commit first, and write the bytes to the
//!    [`Storage`].
//! 3. [`create_asset`], in the caller's transaction, confirms the row and creates its asset.
//!
//! `index_first.rs` returns videos to platforms with their index first, by plans of which `plan_cache.rs` keeps the last.
//!
//! If the process dies in between, a reserved row remains; the scheduler's sweep deletes it with its bytes.
//!
//! **To add files from another source:** call [`Spools::open`], [`Library::ingest`] and [`create_asset`]. If something
//! fails after the second step, call [`Library::abandon`], so that the quota is released immediately.

use std::sync::Arc;

use bytes::Bytes;
use crier_base::disk_reserve::DiskReserve;
use crier_base::random;
use crier_config::MediaConfig;
use crier_domain::media::{AssetType, FileState, ImageType, MediaType, VideoProperties};
use crier_store::files::{self, NewFile, Reserved};
use crier_store::media::{self, NewAsset};
use crier_store::{Store, StoreError, Tx, media_uploads};
use crier_telemetry::metrics::{self, IngestOutcome, IngestedType};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use unicode_normalization::UnicodeNormalization;

mod blocking;
pub mod budget;
pub mod cover;
pub mod images;
pub mod import;
mod index_first;
mod ingest_video;
pub mod plain_file;
mod plan_cache;
pub mod rendition;
pub mod spool;
pub mod storage;
pub mod uploads;
pub mod video;
mod workspace_permits;

pub use budget::Budget;
pub use images::{CheckedImage, Limits, Rejection};
pub use spool::{Spool, SpoolError, Spooled, Spools};
pub use storage::{Storage, StorageError};
pub use uploads::{UploadError, UploadProgress, UploadWriter};
pub use video::SNIFFED as SNIFFED_BYTES;
pub use workspace_permits::WorkspacePermits;

use cover::CoverMaker;
use plan_cache::PlanCache;

/// Number of random characters in the name of a file.
const NAME: usize = 40;
/// Suffix of a thumbnail's name.
const THUMBNAIL: &str = "-thumb";

/// The maximum number of videos that are written to the storage at the same time. Each has one part in memory.
const MAX_VIDEO_WRITES: usize = 4;

/// The owner of a new file, and the storage quota of the workspace.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub workspace_id: i64,
    pub brand_id: i64,
    /// In bytes; `None`: no limit.
    pub cap: Option<u64>,
}

/// The resumable upload from which a file comes, and the name under which its request has the lease.
#[derive(Clone, Copy)]
struct UploadLease<'a> {
    upload_id: i64,
    writer: &'a str,
}

/// Bytes that are in the storage and have a row, but no asset yet.
#[derive(Clone, Debug)]
pub struct IngestedFile {
    file_id: i64,
    pub kind: MediaType,
}

impl IngestedFile {
    /// Returns the id of the file's row. To create the assets of several files in one transaction, always use this
    /// order, because each locks its row.
    pub fn order(&self) -> i64 {
        self.file_id
    }
}

/// A checked file that is not stored yet.
struct CheckedFile<'a> {
    kind: MediaType,
    content: Content<'a>,
    sha256: [u8; 32],
    size: u64,
    /// In pixels.
    width: u32,
    height: u32,
    thumbnail: Option<(ImageType, Bytes)>,
    /// `None` for an image.
    video: Option<VideoProperties>,
}

/// The bytes of a file.
enum Content<'a> {
    Bytes(Bytes),
    Spooled(&'a Spooled),
}

/// Why a file was not added. Everything that was written for it has been removed.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the workspace's storage is full")]
    Full,
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A failure of this machine or process: no space for temporary files, no random bytes, a panic.
    #[error("{0}")]
    Machine(String),
}

/// The media library of an installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Library(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    storage: Storage,
    limits: Limits,
    budget: Budget,
    spools: Spools,
    max_video_bytes: u64,
    video_spools: Spools,
    video_writes: Semaphore,
    /// Limits the indexes of videos that are being read (`index_first.rs`).
    planning: Semaphore,
    plans: PlanCache,
    /// Limits the images that are being converted for downloads (`rendition.rs`).
    fetches: Arc<Semaphore>,
    covers: CoverMaker,
    disk: DiskReserve,
    /// Without a trailing slash.
    public_url: String,
}

impl Library {
    /// Returns Crier's public URL, without a trailing slash.
    pub fn public_url(&self) -> &str {
        &self.0.public_url
    }

    pub fn new(storage: Storage, config: &MediaConfig, public_url: &str) -> Self {
        let limits = Limits { max_bytes: config.max_bytes, max_pixels: config.max_pixels };
        Self(Arc::new(Inner {
            storage,
            limits,
            budget: Budget::new(config.memory_bytes),
            spools: Spools::new(config.spool_bytes),
            max_video_bytes: config.max_video_bytes,
            video_spools: Spools::new(config.video_spool_bytes),
            video_writes: Semaphore::new(MAX_VIDEO_WRITES),
            planning: Semaphore::new(index_first::MAX_PLANNING),
            plans: PlanCache::default(),
            fetches: Arc::new(Semaphore::new(rendition::MAX_FETCHES)),
            covers: CoverMaker::new(config.ffmpeg.as_deref()),
            disk: DiskReserve::default(),
            public_url: public_url.trim_end_matches('/').to_owned(),
        }))
    }

    /// Returns the limits of images.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// Returns whether the free disk space is below the reserve. Then no files are added.
    pub fn disk(&self) -> &DiskReserve {
        &self.0.disk
    }

    /// Fails if the free disk space is below the reserve. Call it before bytes are received, because a temporary file also
    /// uses the space.
    pub fn check_disk(&self) -> Result<(), IngestError> {
        match self.0.disk.is_low() {
            true => Err(StorageError::new("less disk space than CRIER_DISK_RESERVE_MIB is free").into()),
            false => Ok(()),
        }
    }

    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Returns the spools for bytes that are not checked yet, except those of videos.
    pub fn spools(&self) -> &Spools {
        &self.0.spools
    }

    /// Records how much of the space for temporary files is reserved.
    pub fn measure_spools(&self) {
        for (kind, spools) in [(IngestedType::Image, &self.0.spools), (IngestedType::Video, &self.0.video_spools)] {
            metrics::media_spool(kind, spools.held(), spools.max());
        }
    }

    /// Returns the public URL of a file; it needs no API key.
    pub fn url(&self, key: &str) -> String {
        format!("{}/media/{key}", self.0.public_url)
    }

    /// Checks an image and writes it to the storage.
    pub async fn ingest(&self, store: &Store, owner: &Owner, spooled: &Spooled) -> Result<IngestedFile, IngestError> {
        counted(IngestedType::Image, self.store_image(store, owner, spooled).await)
    }

    async fn store_image(&self, store: &Store, owner: &Owner, spooled: &Spooled) -> Result<IngestedFile, IngestError> {
        self.check_disk()?;
        let (image, sha256, _share) = self.examine(spooled).await?;
        let file = CheckedFile {
            kind: image.kind.into(),
            sha256,
            size: image.bytes.len() as u64,
            content: Content::Bytes(image.bytes),
            width: image.width,
            height: image.height,
            thumbnail: Some((image.thumbnail_kind, image.thumbnail)),
            video: None,
        };
        self.store_checked(store, owner, file, None).await
    }

    /// Reserves the row of a file, and writes the file to the storage. `upload` is the resumable upload from which it
    /// comes, if any.
    async fn store_checked(
        &self,
        store: &Store,
        owner: &Owner,
        file: CheckedFile<'_>,
        upload: Option<UploadLease<'_>>,
    ) -> Result<IngestedFile, IngestError> {
        let row = reserve(store, owner, &file, upload).await?;
        let ingested = IngestedFile { file_id: row.id, kind: file.kind };
        // A stored file may be missing, for example after the restore of a backup. This upload repairs it for all assets.
        let is_there = row.state == FileState::Stored && self.0.storage.size(&row.key).await?.is_some();
        if is_there {
            return Ok(ingested);
        }
        // A resumable upload keeps its file while it is open.
        let abandons = upload.is_none().then(|| ingested.clone());
        let mut unfinished = UnfinishedWrite { library: self, store, file: abandons };
        // Even if another upload is writing the same bytes, because that upload may fail.
        let written = self.write(store, &row, file).await;
        unfinished.file = None;
        if let Err(error) = written {
            match upload {
                Some(upload) => self.abandon_of_upload(store, upload.upload_id, &ingested).await,
                None => self.abandon(store, &ingested).await,
            }
            return Err(error);
        }
        Ok(ingested)
    }

    /// Writes the bytes of a reserved file. During the write, the sweep or another upload of the same bytes may abandon
    /// the file and delete the bytes that are written so far, or remove the name of its thumbnail. Checks for that
    /// afterward, since no later cleanup would find the rest.
    async fn write(&self, store: &Store, row: &Reserved, file: CheckedFile<'_>) -> Result<(), IngestError> {
        match file.content {
            Content::Bytes(bytes) => self.0.storage.put(&row.key, bytes).await?,
            Content::Spooled(spooled) => self.write_video(&row.key, spooled).await?,
        }
        if let Some(thumbnail) = &row.thumbnail_key {
            self.write_thumbnail(store, row.id, thumbnail, file.thumbnail).await?;
        }
        let live = files::live_thumbnail(&mut store.read().await?, row.id).await?;
        if let Some(thumbnail) = &row.thumbnail_key
            && live.as_ref().is_none_or(|kept| kept.as_ref() != Some(thumbnail))
        {
            self.0.storage.delete(thumbnail).await?;
        }
        if live.is_some() {
            return Ok(());
        }
        self.0.storage.delete(&row.key).await?;
        Err(IngestError::Machine("a file was abandoned while it was being written".to_owned()))
    }

    /// Writes a thumbnail. This upload may have none although the row has one: another upload of the same video, or
    /// another process that died, created the row, and here, ffmpeg failed or is not installed. Then a new file has none.
    async fn write_thumbnail(
        &self,
        store: &Store,
        file_id: i64,
        key: &str,
        thumbnail: Option<(ImageType, Bytes)>,
    ) -> Result<(), IngestError> {
        match thumbnail {
            Some((_, bytes)) => self.0.storage.put(key, bytes).await?,
            None if self.0.storage.size(key).await?.is_some() => {}
            None => {
                let mut tx = store.begin().await?;
                files::remove_thumbnail(&mut tx, file_id).await?;
                tx.commit().await?;
            }
        }
        Ok(())
    }

    /// Checks an image. Returns it with the hash of the bytes to store. Its share of the memory is released when the
    /// permit is dropped.
    async fn examine(&self, spooled: &Spooled) -> Result<(CheckedImage, [u8; 32], budget::MemoryPermit), IngestError> {
        if spooled.size() == 0 {
            return Err(Rejection::Empty.into());
        }
        let (limits, source) = (self.0.limits, spooled.clone());
        let probe = move || Ok::<_, std::io::Error>(images::probe(source.reader()?, &limits));
        let probed = self.run_on_budget(probe).await??;
        let share = self.0.budget.share(spooled.size() * 2 + probed.memory).await;
        let source = spooled.clone();
        let examine = move || {
            let examined = images::examine(source.bytes()?, &limits);
            Ok::<_, std::io::Error>(examined.map(|image| {
                let sha256: [u8; 32] = Sha256::digest(&image.bytes).into();
                // Held until the work ends, even if the caller no longer waits for it.
                (image, sha256, share)
            }))
        };
        Ok(self.run_on_budget(examine).await??)
    }

    async fn run_on_budget<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, IngestError> {
        match self.0.budget.run(work).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(IngestError::Machine(format!("a temporary file cannot be read: {error}"))),
            None => Err(IngestError::Machine("the processing of a file panicked".to_owned())),
        }
    }

    /// Abandons a file that was ingested and gets no asset. If this fails, the sweep does it later.
    pub async fn abandon(&self, store: &Store, ingested: &IngestedFile) {
        self.abandon_file(store, ingested.file_id).await;
    }

    /// Like [`Library::abandon`], for the file of a resumable upload, which keeps it while it is open.
    async fn abandon_of_upload(&self, store: &Store, upload_id: i64, ingested: &IngestedFile) {
        let write = async {
            let mut tx = store.begin().await?;
            media_uploads::abandon_file(&mut tx, upload_id, ingested.file_id).await?;
            tx.commit().await
        };
        if let Err(error) = write.await {
            tracing::warn!(%error, file = ingested.file_id, "failed to abandon a file; the sweep will remove it");
        }
    }
}

/// A file that is being written. If the caller stops waiting, for example because of a time limit, the file is abandoned.
/// Otherwise, it would use storage of the workspace until the sweep finds it.
struct UnfinishedWrite<'a> {
    library: &'a Library,
    store: &'a Store,
    /// `None` if the file is not abandoned.
    file: Option<IngestedFile>,
}

impl Drop for UnfinishedWrite<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (library, store) = (self.library.clone(), self.store.clone());
            runtime.spawn(async move { library.abandon(&store, &file).await });
        }
    }
}

/// Returns the type of one of our file names, by its extension; `None` for any other name.
pub fn kind_of(key: &str) -> Option<MediaType> {
    let kind = MediaType::of_name(key)?;
    let name = key.strip_suffix(kind.extension())?.strip_suffix('.')?;
    let name = name.strip_suffix(THUMBNAIL).unwrap_or(name);
    (name.len() == NAME && name.bytes().all(|b| b.is_ascii_alphanumeric())).then_some(kind)
}

/// Abandons a file like [`Library::abandon`], in the caller's transaction.
pub async fn abandon(tx: &mut Tx, ingested: &IngestedFile) -> crier_store::Result<()> {
    files::abandon(tx, ingested.file_id).await
}

async fn reserve(
    store: &Store,
    owner: &Owner,
    file: &CheckedFile<'_>,
    upload: Option<UploadLease<'_>>,
) -> Result<Reserved, IngestError> {
    let name = random_name(NAME)?;
    let side = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let thumbnail = file.thumbnail.as_ref().map(|(kind, _)| kind.extension());
    let new = NewFile {
        workspace_id: owner.workspace_id,
        brand_id: owner.brand_id,
        key: format!("{name}.{}", file.kind.extension()),
        thumbnail_key: thumbnail.map(|extension| format!("{name}{THUMBNAIL}.{extension}")),
        sha256: file.sha256,
        mime_type: file.kind.as_str(),
        size_bytes: i64::try_from(file.size).unwrap_or(i64::MAX),
        width: side(file.width),
        height: side(file.height),
        video: file.video.clone(),
    };
    let mut tx = store.begin().await?;
    let (row, otherwise) = match upload {
        Some(UploadLease { upload_id, writer }) => {
            let message = "another request continued an upload, or deleted it".to_owned();
            (media_uploads::reserve_file(&mut tx, upload_id, writer, &new).await?, IngestError::Machine(message))
        }
        None => (files::reserve(&mut tx, &new, owner.cap).await?, IngestError::Full),
    };
    let Some(row) = row else {
        tx.rollback().await?;
        return Err(otherwise);
    };
    tx.commit().await?;
    Ok(row)
}

fn random_name(length: usize) -> Result<String, IngestError> {
    random::text(length).map_err(|error| IngestError::Machine(format!("the system's random source failed: {error}")))
}

fn counted(kind: IngestedType, ingested: Result<IngestedFile, IngestError>) -> Result<IngestedFile, IngestError> {
    let outcome = match &ingested {
        Ok(_) => IngestOutcome::Stored,
        Err(IngestError::Rejected(Rejection::TooLarge(_))) => IngestOutcome::TooLarge,
        Err(IngestError::Rejected(_)) => IngestOutcome::Unsupported,
        Err(IngestError::Full) => IngestOutcome::Full,
        Err(_) => IngestOutcome::Error,
    };
    metrics::media_ingested(kind, outcome);
    ingested
}

/// Maximum length of a file name, in characters.
const MAX_FILENAME_LENGTH: usize = 255;

/// Returns a file name for display, without directories and control characters; if nothing is left, `image` with the
/// extension of the type.
pub fn filename(submitted: Option<&str>, kind: MediaType) -> String {
    let last = submitted.unwrap_or_default().rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.nfc().filter(|c| !c.is_control()).take(MAX_FILENAME_LENGTH).collect();
    match clean.trim() {
        "" | "." | ".." => format!("{}.{}", if kind.image().is_some() { "image" } else { "video" }, kind.extension()),
        name => name.to_owned(),
    }
}

/// The description of a new asset.
#[derive(Clone, Debug)]
pub struct AssetDetails<'a> {
    pub asset_type: AssetType,
    pub filename: &'a str,
    pub alt_text: Option<&'a str>,
    pub source_url: Option<&'a str>,
}

/// Creates an asset for an ingested file and returns its id; `None` if the sweep has deleted the file because too much
/// time has passed. Then ingest the file again.
pub async fn create_asset(
    tx: &mut Tx,
    brand_id: i64,
    ingested: &IngestedFile,
    details: &AssetDetails<'_>,
) -> crier_store::Result<Option<i64>> {
    if !files::mark_stored(tx, ingested.file_id).await? {
        return Ok(None);
    }
    let new = NewAsset {
        file_id: ingested.file_id,
        asset_type: details.asset_type,
        filename: details.filename,
        alt_text: details.alt_text,
        source_url: details.source_url,
    };
    media::insert(tx, brand_id, &new).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_names_are_accepted() {
        let name = "aB3".repeat(13) + "z";
        for (end, kind) in [(".jpg", MediaType::Jpeg), ("-thumb.png", MediaType::Png), (".mp4", MediaType::Mp4)] {
            assert_eq!(kind_of(&format!("{name}{end}")), Some(kind), "{end}");
        }
        let (short, long, odd) = (&name[1..], format!("{name}a"), name.replace('3', "_"));
        for key in [short, &long, &odd, &name.replace('3', "/"), &name.replace('a', "."), ""] {
            assert_eq!(kind_of(&format!("{key}.jpg")), None, "{key}");
        }
        for end in ["", ".", ".txt", ".jpg.part", "-thumb", "-thumb-thumb.jpg", ".jpg/", "-THUMB.jpg"] {
            assert_eq!(kind_of(&format!("{name}{end}")), None, "{end}");
        }
    }
}
