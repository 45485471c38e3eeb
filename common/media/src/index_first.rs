//! Returns the bytes of a video with its index before its frames, for platforms that reject other files. The stored file
//! does not change: [`faststart`] plans where its bytes go, and this module reads what the plan needs from the storage.
//!
//! A plan reads blocks of [`BLOCK`] bytes, at most [`MAX_BLOCKS`]. A file that needs more of them, or whose index cannot
//! move, is returned as it is stored: then the platform decides. What is returned depends only on the file, so that
//! another process can continue a transfer.
//!
//! A response holds one piece of the index. It finds its plan again for each of them, so that a client that reads slowly
//! neither uses the memory of a whole index nor keeps others from theirs.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::Library;
use super::plan_cache::Plan;
use super::storage::{ByteRange, ObjectLookup, Storage, StorageError, StoredObject};
use super::video::faststart::{self, Faststart, Part};

/// The size of a block, in bytes. The index of most videos fits into two.
const BLOCK: u64 = 1 << 20;
/// The maximum number of blocks of one plan: that of the type, those of the index, and those of the boxes between them.
const MAX_BLOCKS: usize = 12;
/// The memory of a plan, in bytes: the blocks, the index, and its copy while it grows.
const PLAN_MEMORY: u64 = 3 * MAX_BLOCKS as u64 * BLOCK;
/// The maximum number of concurrent plans.
pub(super) const MAX_PLANNING: usize = 8;
/// How long a response waits until it can plan.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of the pieces in which an index is sent, in bytes. Larger than those of a file, because each may need another
/// plan if many videos are sent at the same time.
const PIECE: usize = 256 << 10;

type Body = BoxStream<'static, Result<Bytes, StorageError>>;

impl Library {
    /// Returns the public URL of a video with its index first.
    pub fn index_first_url(&self, key: &str) -> String {
        format!("{}/media/index-first/{key}", self.public_url())
    }

    /// Like [`Storage::get`], for a video with its index first. It has the size of the stored file.
    pub async fn get_index_first(&self, key: &str, part: &ByteRange) -> Result<ObjectLookup, StorageError> {
        let Some(size) = self.storage().size(key).await? else { return Ok(ObjectLookup::Missing) };
        let Some(range) = part.within(size) else { return Ok(ObjectLookup::OutOfRange { size }) };
        match self.kept_plan(key, size).await? {
            Some(plan) => {
                let body = self.body(key, &plan, range.clone());
                Ok(ObjectLookup::Found(StoredObject { size, range, body }))
            }
            None => self.storage().get(key, part).await,
        }
    }

    /// Streams a range of a rearranged file.
    fn body(&self, key: &str, plan: &Faststart, range: Range<u64>) -> Body {
        let (size, mut head, mut stored) = (plan.size, 0..0, Vec::new());
        for part in plan.parts(range.clone()) {
            match part {
                // The file begins with the head.
                Part::Head(bytes) => head = range.start..range.start.saturating_add(bytes.len() as u64),
                Part::Stored(range) => stored.push(range),
            }
        }
        let pieces = head.clone().step_by(PIECE).map(move |start| start..head.end.min(start + PIECE as u64));
        let (library, name) = (self.clone(), key.to_owned());
        let pieces = stream::iter(pieces).then(move |piece| {
            let (library, key) = (library.clone(), name.clone());
            async move { library.head_piece(&key, size, piece).await }
        });
        let (storage, key) = (self.storage().clone(), key.to_owned());
        let rest = stream::iter(stored).then(move |range| {
            let (storage, key) = (storage.clone(), key.clone());
            async move { read(&storage, &key, range).await }
        });
        pieces.chain(rest.try_flatten()).boxed()
    }

    /// Returns a part of the head of a rearranged file.
    async fn head_piece(&self, key: &str, size: u64, range: Range<u64>) -> Result<Bytes, StorageError> {
        let Some(plan) = self.kept_plan(key, size).await? else { return Err(changed()) };
        match plan.parts(range).next() {
            Some(Part::Head(bytes)) => Ok(Bytes::copy_from_slice(bytes)),
            _ => Err(changed()),
        }
    }

    /// Returns the plan of a file, which depends only on the file.
    async fn kept_plan(&self, key: &str, size: u64) -> Result<Plan, StorageError> {
        if let Some(plan) = self.0.plans.find(key) {
            return Ok(plan);
        }
        let permit = tokio::time::timeout(PLANNING_TIMEOUT, self.0.planning.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(StorageError::new("the indexes of too many videos are being read"));
        };
        // Another response may have planned the same file in the meantime.
        if let Some(plan) = self.0.plans.find(key) {
            return Ok(plan);
        }
        let plan = self.plan(key, size).await?.map(Arc::new);
        self.0.plans.keep(key, plan.clone());
        Ok(plan)
    }

    /// Plans how to return a file with its index first. `None` if it is returned as it is stored.
    async fn plan(&self, key: &str, size: u64) -> Result<Option<Faststart>, StorageError> {
        let mut share = self.budget().share(PLAN_MEMORY).await;
        let mut blocks = Blocks { size, ..Blocks::default() };
        loop {
            let work = move || {
                let planned = faststart::plan(&mut blocks, size);
                // The share is held until the work ends, even if the caller no longer waits for it.
                (planned, blocks, share)
            };
            let Some((planned, returned, held)) = self.budget().run(work).await else {
                return Err(StorageError::new("the index of a video cannot be read"));
            };
            (blocks, share) = (returned, held);
            match (blocks.missing.take(), planned) {
                (Some(_), _) if blocks.found.len() >= MAX_BLOCKS => return Ok(None),
                (Some(number), _) => {
                    let start = number.saturating_mul(BLOCK);
                    let range = start..start.saturating_add(BLOCK).min(size);
                    let mut body = read(self.storage(), key, range).await?;
                    let mut bytes = Vec::new();
                    while let Some(chunk) = body.try_next().await? {
                        bytes.extend_from_slice(&chunk);
                    }
                    blocks.found.insert(number, bytes);
                }
                (None, Ok(plan)) => return Ok(plan),
                (None, Err(error)) => {
                    tracing::info!(%error, "the index of a video cannot move");
                    return Ok(None);
                }
            }
        }
    }
}

/// Streams a range of a stored file.
async fn read(storage: &Storage, key: &str, range: Range<u64>) -> Result<Body, StorageError> {
    match storage.get(key, &ByteRange::Between(range.clone())).await? {
        ObjectLookup::Found(object) if object.range == range => Ok(object.body),
        _ => Err(changed()),
    }
}

fn changed() -> StorageError {
    StorageError::new("a video was deleted, or is shorter than before")
}

/// The blocks of a file that were read. Reading from another one fails, and names it.
#[derive(Default)]
struct Blocks {
    /// The size of the file, in bytes.
    size: u64,
    /// By their numbers, starting at 0.
    found: BTreeMap<u64, Vec<u8>>,
    at: u64,
    missing: Option<u64>,
}

impl BufRead for Blocks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.size {
            return Ok(&[]);
        }
        let number = self.at / BLOCK;
        let Some(block) = self.found.get(&number) else {
            self.missing = Some(number);
            return Err(io::ErrorKind::NotFound.into());
        };
        let start = usize::try_from(self.at % BLOCK).unwrap_or(usize::MAX);
        match block.get(start..) {
            Some(rest) if !rest.is_empty() => Ok(rest),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn consume(&mut self, count: usize) {
        self.at = self.at.saturating_add(count as u64);
    }
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = self.fill_buf()?;
        let count = rest.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl Seek for Blocks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
