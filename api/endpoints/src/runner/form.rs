//! Reads multipart forms with a file. The file is streamed into a spool, so no upload is held in memory. A file that
//! does not fit into the workspace's plan or the limit of all spools is not received.
//!
//! A video may be forty times as large as an image, so the first bytes of the file decide on its spool and its limit,
//! and a file that the request does not allow is rejected when these have arrived ([`FileKind`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use crier_domain::media::AssetType;
use crier_media::video::sniff;
use crier_media::{Library, SNIFFED_BYTES, Spool, SpoolError, Spools};
use crier_telemetry::metrics::{self, ByteSource};
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use multer::{Constraints, Field, Multipart, SizeLimit};
use salvo::Request;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::body_reader::{BodyError, BodyReader, MinRate};
use crate::context::UploadedFile;
use crate::error::{ApiError, ErrorCode, Result};
use crate::routes::media::{not_a_video, storage_full, video_without_type};

/// The name of the part that contains the file.
const FILE_PART: &str = "file";
/// The name of the part that says whether the file is a video.
const TYPE_PART: &str = "asset_type";
/// The maximum size of a form without its file, in bytes: the heads of its parts and its texts. An upload may also
/// exceed the remaining storage by this much, because a stored image is often smaller than the file.
const MAX_NON_FILE_BYTES: u64 = 64 << 10;
const MAX_PARTS: usize = 32;
/// The longest boundary (RFC 2046). The parser searches for it again with each chunk.
const MAX_BOUNDARY: usize = 70;
/// The maximum size of a part's head. The parser scans it again with each chunk.
const MAX_HEAD: usize = 16 << 10;
/// The chunk size while a head is read. The parser may buffer two chunks before it parses them.
const HEAD_CHUNK: usize = 4 << 10;

/// A completely received form.
pub struct Form {
    pub texts: Map<String, Value>,
    pub file: Option<UploadedFile>,
    /// The names of the other file parts, whose content is dropped.
    pub other_files: Vec<String>,
    /// Identifies the form's content, independent of the boundary.
    pub digest: Vec<u8>,
}

/// Limits for the file of a form.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Of an image.
    pub max_bytes: u64,
    pub max_video_bytes: u64,
    /// The remaining storage of the plan. `None` if there is no limit.
    pub remaining_bytes: Option<u64>,
    /// The plan's storage, for the error message.
    pub storage_mib: Option<u64>,
}

impl FileLimits {
    /// Returns the limit of the larger kind.
    fn max(&self) -> u64 {
        self.max_bytes.max(self.max_video_bytes)
    }

    /// Fails if a file of `size` bytes or more is too large for the remaining storage.
    fn check_storage(&self, size: u64) -> Result<()> {
        match self.remaining_bytes {
            Some(room) if size > room.saturating_add(MAX_NON_FILE_BYTES) => Err(storage_full(self.storage_mib)),
            _ => Ok(()),
        }
    }
}

/// What a file is, by its first bytes and the type in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    /// An image, or anything else that is checked as one.
    Image,
    Video,
    /// A video before the part that says so. It is received up to the size of an image, because a larger one would be
    /// rejected only after all of it has arrived, if that part never comes.
    UntypedVideo,
}

impl FileKind {
    /// Returns the kind of a file. Fails if the request does not allow it.
    fn of(first_bytes: &[u8], asset_type: Option<&str>) -> Result<Self> {
        let wants_video = asset_type.map(|word| word.trim() == AssetType::Video.as_str());
        match (sniff(first_bytes).is_some(), wants_video) {
            (true, Some(true)) => Ok(Self::Video),
            (true, None) => Ok(Self::UntypedVideo),
            (true, Some(false)) => Err(video_without_type()),
            (false, Some(true)) if !first_bytes.is_empty() => Err(not_a_video()),
            (false, _) => Ok(Self::Image),
        }
    }

    const fn is_video(self) -> bool {
        !matches!(self, Self::Image)
    }

    /// Fails if a file of `size` bytes or more is too large.
    fn check(self, size: u64, limits: &FileLimits) -> Result<()> {
        match self {
            Self::Image if size > limits.max_bytes => Err(too_large(limits.max_bytes)),
            Self::Video if size > limits.max_video_bytes => Err(too_large(limits.max_video_bytes)),
            Self::UntypedVideo if size > limits.max_bytes => Err(video_without_type()),
            _ => limits.check_storage(size),
        }
    }
}

/// Where the file of a form is received.
struct FileSpools {
    /// Opened before the form is read, unless the form is too large for an image.
    image: Option<Spool>,
    videos: Spools,
    workspace_id: i64,
    /// The size of the form. `None` if it is unknown.
    form_bytes: Option<u64>,
}

impl FileSpools {
    async fn open(library: &Library, workspace_id: i64, limits: &FileLimits, form_bytes: Option<u64>) -> Result<Self> {
        let bytes = form_bytes.unwrap_or_default();
        let image = if min_file_bytes(bytes) > limits.max_bytes {
            None
        } else {
            let space = bytes.min(limits.max_bytes);
            Some(library.spools().open(workspace_id, space).await.map_err(spool_error)?)
        };
        Ok(Self { image, videos: library.video_spools().clone(), workspace_id, form_bytes })
    }

    /// Returns the spool for a file of this kind.
    async fn choose(self, kind: FileKind, limits: &FileLimits) -> Result<Spool> {
        let bytes = self.form_bytes.unwrap_or_default();
        kind.check(min_file_bytes(bytes), limits)?;
        if !kind.is_video() {
            return self.image.ok_or_else(|| too_large(limits.max_bytes));
        }
        // Released first: nothing may wait for space while it holds some.
        drop(self.image);
        self.videos.open(self.workspace_id, bytes.min(limits.max_video_bytes)).await.map_err(spool_error)
    }
}

/// Returns the minimum size of the file in a form of this size. The size of the other parts is not known.
fn min_file_bytes(form_bytes: u64) -> u64 {
    form_bytes.saturating_sub(MAX_NON_FILE_BYTES)
}

/// Reads the form. Fails as soon as the form is known to be too large; with a `Content-Length`, before a byte is read.
pub async fn read(
    req: &mut Request,
    limits: FileLimits,
    library: &Library,
    workspace_id: i64,
    rate: MinRate,
) -> Result<Form> {
    let content_length = req.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    let announced = min_file_bytes(content_length.unwrap_or_default());
    if announced > limits.max() {
        return Err(too_large(limits.max()));
    }
    limits.check_storage(announced)?;
    let content_type = req.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let boundary = multer::parse_boundary(&content_type).map_err(|error| match error {
        multer::Error::NoBoundary => unreadable_form("its Content-Type has no boundary"),
        _ => ApiError::new(
            ErrorCode::UnsupportedMediaType,
            "This endpoint requires a form with a file. Send it as `multipart/form-data`.",
        ),
    })?;
    if boundary.len() > MAX_BOUNDARY {
        return Err(unreadable_form(&format!("its boundary is longer than {MAX_BOUNDARY} characters")));
    }
    let spools = FileSpools::open(library, workspace_id, &limits, content_length).await?;
    let body = stream::unfold(BodyReader::of(req, rate), |mut reader| async {
        let data = reader.next().await?;
        Some((data, reader))
    });
    receive(body, boundary, limits, spools).await
}

async fn receive<E>(
    body: impl Stream<Item = std::result::Result<Bytes, E>> + Send,
    boundary: String,
    limits: FileLimits,
    spools: FileSpools,
) -> Result<Form>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let constraints = Constraints::new().size_limit(SizeLimit::new().whole_stream(limits.max() + MAX_NON_FILE_BYTES));
    let head_bytes = HeadByteCounter::default();
    let mut parts = Multipart::with_constraints(split_chunks(body, head_bytes.clone()), boundary, constraints);
    let mut form = FormReader {
        limits,
        spools: Some(spools),
        parts: 0,
        texts: Map::new(),
        text_bytes: 0,
        file: None,
        other_files: Vec::new(),
        hash: Sha256::new(),
    };
    while let Some(part) = head_bytes.head(parts.next_field()).await.map_err(|error| form_error(error, limits.max()))? {
        form.read_part(part).await?;
    }
    let (texts, file, other_files) = (form.texts, form.file, form.other_files);
    Ok(Form { texts, file, other_files, digest: form.hash.finalize().to_vec() })
}

/// Counts the bytes received while the parser waits for a part's head. At other times the count has no meaning.
#[derive(Clone, Default)]
struct HeadByteCounter(Arc<AtomicUsize>);

/// The counter starts from this value while a part's content is read: content goes straight to the spool and has no
/// limit here.
const OUTSIDE_HEAD: usize = usize::MAX / 2;

impl HeadByteCounter {
    async fn head<T>(&self, next: impl Future<Output = T>) -> T {
        self.0.store(0, Ordering::Relaxed);
        let found = next.await;
        self.0.store(OUTSIDE_HEAD, Ordering::Relaxed);
        found
    }

    /// Returns how many bytes of the current head were received, or `None` outside of a head.
    fn so_far(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|received| *received < OUTSIDE_HEAD)
    }
}

type ChunkResult = std::result::Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Splits the body into small chunks. Otherwise, the parser would buffer everything available before it parses any of
/// it.
fn split_chunks<E>(
    body: impl Stream<Item = std::result::Result<Bytes, E>> + Send,
    head_bytes: HeadByteCounter,
) -> impl Stream<Item = ChunkResult> + Send
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    stream::unfold((Box::pin(body), head_bytes, Bytes::new()), |(mut body, head_bytes, mut rest)| async {
        tokio::task::yield_now().await;
        if head_bytes.so_far().is_some_and(|received| received > MAX_HEAD) {
            return Some((Err(BodyError::LongHead.into()), (body, head_bytes, rest)));
        }
        if rest.is_empty() {
            rest = match body.next().await? {
                Ok(bytes) => bytes,
                Err(error) => return Some((Err(error.into()), (body, head_bytes, rest))),
            };
        }
        let max = if head_bytes.so_far().is_some() { HEAD_CHUNK } else { usize::MAX };
        let chunk = rest.split_to(rest.len().min(max));
        head_bytes.0.fetch_add(chunk.len(), Ordering::Relaxed);
        Some((Ok(chunk), (body, head_bytes, rest)))
    })
}

struct FormReader {
    limits: FileLimits,
    /// `None` once the file part has begun.
    spools: Option<FileSpools>,
    parts: usize,
    texts: Map<String, Value>,
    text_bytes: u64,
    file: Option<UploadedFile>,
    other_files: Vec<String>,
    hash: Sha256,
}

impl FormReader {
    async fn read_part(&mut self, mut part: Field<'_>) -> Result<()> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(unreadable_form(&format!("it has more than {MAX_PARTS} parts")));
        }
        let name = part.name().unwrap_or_default().to_owned();
        let file_name = part.file_name().map(str::to_owned);
        let content_type = part.headers().get(CONTENT_TYPE).map(|v| v.as_bytes().to_vec());
        for value in [Some(name.as_bytes()), file_name.as_deref().map(str::as_bytes), content_type.as_deref()] {
            self.hash.update(value.map_or(u64::MAX, |s| s.len() as u64).to_be_bytes());
            self.hash.update(value.unwrap_or_default());
        }
        if name == FILE_PART {
            return self.read_file_part(&mut part, file_name).await;
        }
        let text = self.read_text_part(&mut part).await?;
        // Other files are counted and dropped, like unknown fields.
        if file_name.is_some() {
            self.other_files.push(name);
        } else {
            let text = String::from_utf8(text).map_err(|_| unreadable_form("its text fields are not UTF-8"))?;
            self.texts.insert(name, Value::String(text));
        }
        Ok(())
    }

    async fn read_file_part(&mut self, part: &mut Field<'_>, name: Option<String>) -> Result<()> {
        let Some(spools) = self.spools.take() else {
            return Err(ApiError::field(FILE_PART, "Send only one file per request."));
        };
        let mut chunk = self.read_first_bytes(part).await?;
        let kind = FileKind::of(&chunk, self.texts.get(TYPE_PART).and_then(Value::as_str))?;
        let mut spool = spools.choose(kind, &self.limits).await?;
        loop {
            kind.check(spool.size() + chunk.len() as u64, &self.limits)?;
            metrics::media_received(ByteSource::Form, chunk.len());
            spool.write(&chunk).await.map_err(spool_error)?;
            match self.read_chunk(part).await? {
                Some(next) => chunk = next,
                None => break,
            }
        }
        let bytes = spool.finish().await.map_err(|error| spool_error(error.into()))?;
        // A spool hashes what it receives, so this does not block.
        self.hash.update(bytes.sha256().map_err(|error| spool_error(error.into()))?);
        self.file = Some(UploadedFile { name, bytes, is_video: kind.is_video() });
        Ok(())
    }

    /// Reads enough of a file to detect a video. The result is shorter than [`SNIFFED_BYTES`] only if the file is.
    async fn read_first_bytes(&self, part: &mut Field<'_>) -> Result<Bytes> {
        let mut first = BytesMut::new();
        while first.len() < SNIFFED_BYTES
            && let Some(chunk) = self.read_chunk(part).await?
        {
            first.extend_from_slice(&chunk);
        }
        Ok(first.freeze())
    }

    async fn read_chunk(&self, part: &mut Field<'_>) -> Result<Option<Bytes>> {
        part.chunk().await.map_err(|error| form_error(error, self.limits.max()))
    }

    async fn read_text_part(&mut self, part: &mut Field<'_>) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        while let Some(chunk) = self.read_chunk(part).await? {
            self.text_bytes += chunk.len() as u64;
            if self.text_bytes > MAX_NON_FILE_BYTES {
                return Err(unreadable_form(&format!("its text fields have more than {MAX_NON_FILE_BYTES} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
        self.hash.update(Sha256::digest(&text));
        Ok(text)
    }
}

fn form_error(error: multer::Error, max: u64) -> ApiError {
    match error {
        multer::Error::StreamSizeExceeded { .. } => too_large(max),
        multer::Error::StreamReadFailed(why) if why.is::<BodyError>() => match why.downcast::<BodyError>() {
            Ok(error) => error.into_api_error(),
            Err(_) => unreadable_form("it is incomplete"),
        },
        _ => unreadable_form("it is incomplete or not valid multipart/form-data"),
    }
}

fn unreadable_form(why: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidJson, format!("The form could not be read: {why}."))
}

fn too_large(max: u64) -> ApiError {
    let message = format!("The file is larger than the maximum of {} MiB.", max >> 20);
    ApiError::new(ErrorCode::PayloadTooLarge, message)
}

fn spool_error(error: SpoolError) -> ApiError {
    match error {
        SpoolError::Full => ApiError::new(
            ErrorCode::ServiceUnavailable,
            "Too many files are being uploaded, in total or in this workspace. Retry in a few seconds.",
        )
        .retry_after(5),
        SpoolError::Io(_) => ApiError::storage(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
