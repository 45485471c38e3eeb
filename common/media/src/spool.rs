//! Buffers received bytes before they are checked: small amounts in memory, larger ones in an unnamed file, which
//! disappears if the process dies. Also hashes them, on the same thread that writes them, so that neither delays other
//! requests and the file is not read again for its hash.
//!
//! All spools of a process share one limit ([`Spools`]), and each workspace gets at most half of it: slow or numerous
//! clients can neither fill the disk nor lock out other workspaces.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, Semaphore};

use crate::blocking;

/// The number of bytes per write to the file. Smaller spools stay in memory.
const CHUNK: usize = 512 * 1024;
/// The growth step of a spool that receives more bytes than it was opened for.
const GROWTH: u64 = 1 << 20;
/// Maximum wait for space.
pub const SPACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The space shared by all spools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spools(Arc<SpaceLimit>);

#[derive(Debug)]
struct SpaceLimit {
    max: u64,
    held: Mutex<Held>,
    freed: Notify,
    /// Limits the threads that hash and write to half of the cores, because requests need the others.
    writes: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Held {
    all: u64,
    by_workspace: HashMap<i64, u64>,
}

/// Why bytes cannot be received.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the space for temporary files, or this workspace's half of it, is used up")]
    Full,
    #[error("a temporary file cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl Spools {
    pub fn new(max: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let writes = Arc::new(Semaphore::new((cores / 2).max(1)));
        Self(Arc::new(SpaceLimit { max, held: Mutex::default(), freed: Notify::new(), writes }))
    }

    /// Returns the total space, in bytes.
    pub fn max(&self) -> u64 {
        self.0.max
    }

    /// Returns the total space that is reserved, in bytes.
    pub fn held(&self) -> u64 {
        self.0.held().all
    }

    /// Opens a spool of a workspace, with space for `bytes`; waits up to [`SPACE_TIMEOUT`] for the space.
    pub async fn open(&self, workspace_id: i64, bytes: u64) -> Result<Spool, SpoolError> {
        self.open_within(workspace_id, bytes, SPACE_TIMEOUT).await
    }

    async fn open_within(&self, workspace_id: i64, bytes: u64, timeout: Duration) -> Result<Spool, SpoolError> {
        let mut share = SpaceReservation { limit: self.0.clone(), workspace_id, bytes: 0 };
        let reserved = async {
            loop {
                let freed = self.0.freed.notified();
                tokio::pin!(freed);
                // Registered before the check, so that no notification is missed.
                freed.as_mut().enable();
                if share.grow(bytes) {
                    break;
                }
                freed.await;
            }
        };
        tokio::time::timeout(timeout, reserved).await.map_err(|_| SpoolError::Full)?;
        Ok(Spool { share, unwritten: Vec::new(), file: None, size: 0, hash: Sha256::new() })
    }
}

impl SpaceLimit {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work that blocks, when one of the threads for it is free.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        // The semaphore is never closed.
        let permit = self.writes.clone().acquire_owned().await.ok();
        let work = move || {
            // Held until the work ends, even if the caller no longer waits for it.
            let _permit = permit;
            work()
        };
        blocking::run(work).await
    }
}

/// A reservation of space, which is released on drop.
#[derive(Debug)]
struct SpaceReservation {
    limit: Arc<SpaceLimit>,
    workspace_id: i64,
    bytes: u64,
}

impl SpaceReservation {
    /// Reserves more space; returns `false` if there is not enough.
    fn grow(&mut self, by: u64) -> bool {
        let mut held = self.limit.held();
        let mine = held.by_workspace.get(&self.workspace_id).copied().unwrap_or_default();
        let fits = held.all.saturating_add(by) <= self.limit.max && mine.saturating_add(by) <= self.limit.max / 2;
        if !fits {
            return false;
        }
        held.all += by;
        *held.by_workspace.entry(self.workspace_id).or_default() += by;
        drop(held);
        self.bytes += by;
        true
    }

    /// Releases all but `bytes`.
    fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        if over == 0 {
            return;
        }
        let mut held = self.limit.held();
        held.all = held.all.saturating_sub(over);
        if let Some(mine) = held.by_workspace.get_mut(&self.workspace_id) {
            *mine = mine.saturating_sub(over);
            if *mine == 0 {
                held.by_workspace.remove(&self.workspace_id);
            }
        }
        drop(held);
        self.bytes = bytes;
        self.limit.freed.notify_waiters();
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// A buffer that receives bytes.
#[derive(Debug)]
pub struct Spool {
    share: SpaceReservation,
    /// The received bytes that are not in the file yet.
    unwritten: Vec<u8>,
    file: Option<Arc<File>>,
    size: u64,
    /// The hash of the bytes in the file.
    hash: Sha256,
}

impl Spool {
    /// Returns the number of received bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. Reserves more space if necessary, but does not wait for it: a spool that waits while it holds
    /// space could cause a deadlock.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let size = self.size + bytes.len() as u64;
        let missing = size.saturating_sub(self.share.bytes);
        if missing > 0 && !self.share.grow(missing.max(GROWTH)) && !self.share.grow(missing) {
            return Err(SpoolError::Full);
        }
        self.size = size;
        self.unwritten.extend_from_slice(bytes);
        if self.unwritten.len() >= CHUNK {
            self.flush().await?;
        }
        Ok(())
    }

    pub async fn finish(mut self) -> io::Result<Spooled> {
        self.share.shrink_to(self.size);
        let (place, sha256): (_, [u8; 32]) = if self.file.is_none() && self.is_complete() {
            let bytes = Bytes::from(std::mem::take(&mut self.unwritten));
            let source = bytes.clone();
            let sha256 = self.share.limit.run(move || Ok(Sha256::digest(&source).into())).await?;
            (SpoolLocation::Memory(bytes), sha256)
        } else {
            self.flush().await?;
            let file = self.file.ok_or_else(|| io::Error::other("the file is gone"))?;
            (SpoolLocation::File(file), self.hash.finalize().into())
        };
        Ok(Spooled { size: self.size, place, sha256: Some(sha256), _share: Some(Arc::new(self.share)) })
    }

    /// Returns whether all received bytes are in the file or will be. A write that failed, or that the caller no longer
    /// waited for, has taken the file.
    fn is_complete(&self) -> bool {
        self.file.is_some() || self.unwritten.len() as u64 == self.size
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.is_complete() {
            return Err(io::Error::other("an earlier write to the file failed"));
        }
        let (file, mut unwritten) = (self.file.take(), std::mem::take(&mut self.unwritten));
        let mut hash = std::mem::take(&mut self.hash);
        let write = move || {
            let file = file.map_or_else(|| tempfile::tempfile().map(Arc::new), Ok)?;
            (&*file).write_all(&unwritten)?;
            hash.update(&unwritten);
            unwritten.clear();
            Ok::<_, io::Error>((file, unwritten, hash))
        };
        let (file, unwritten, hash) = self.share.limit.run(write).await?;
        (self.file, self.unwritten, self.hash) = (Some(file), unwritten, hash);
        Ok(())
    }
}

/// Bytes that were received completely. Cheap to clone; only one clone may read at a time.
#[derive(Clone, Debug)]
pub struct Spooled {
    size: u64,
    place: SpoolLocation,
    /// `None` for bytes that no spool received.
    sha256: Option<[u8; 32]>,
    /// The reservation, which is released with the last clone.
    _share: Option<Arc<SpaceReservation>>,
}

#[derive(Clone, Debug)]
enum SpoolLocation {
    Memory(Bytes),
    File(Arc<File>),
}

impl Spooled {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the SHA-256 of the bytes. Blocks for bytes that no spool received.
    pub fn sha256(&self) -> io::Result<[u8; 32]> {
        match self.sha256 {
            Some(sha256) => Ok(sha256),
            None => Ok(Sha256::digest(self.bytes()?).into()),
        }
    }

    /// Returns a reader from the first byte. Reading blocks.
    pub fn reader(&self) -> io::Result<Box<dyn ReadSeek + '_>> {
        Ok(match &self.place {
            SpoolLocation::Memory(bytes) => Box::new(Cursor::new(bytes)),
            SpoolLocation::File(file) => {
                let mut file = BufReader::new(&**file);
                file.seek(SeekFrom::Start(0))?;
                Box::new(file)
            }
        })
    }

    /// Reads all bytes. Blocks.
    pub fn bytes(&self) -> io::Result<Bytes> {
        match &self.place {
            SpoolLocation::Memory(bytes) => Ok(bytes.clone()),
            SpoolLocation::File(_) => {
                let mut all = Vec::with_capacity(usize::try_from(self.size).unwrap_or_default());
                self.reader()?.read_to_end(&mut all)?;
                Ok(all.into())
            }
        }
    }
}

impl Spooled {
    /// Streams the bytes in chunks of this size. Each is read on a blocking thread.
    pub fn chunks(&self, size: u64) -> BoxStream<'static, io::Result<Bytes>> {
        stream::try_unfold((self.clone(), 0_u64), move |(source, start)| async move {
            let end = source.size.min(start.saturating_add(size));
            if start >= end {
                return Ok(None);
            }
            let read = move || source.part(start..end).map(|bytes| (bytes, (source, end)));
            let read = blocking::run(read).await;
            read.map(Some)
        })
        .boxed()
    }

    /// Reads a part of the bytes, at its own position. Blocks.
    fn part(&self, range: Range<u64>) -> io::Result<Bytes> {
        let whole = |number: u64| usize::try_from(number).map_err(io::Error::other);
        match &self.place {
            SpoolLocation::Memory(bytes) => {
                let range = whole(range.start)?..whole(range.end)?;
                let part = bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(bytes.slice_ref(part))
            }
            SpoolLocation::File(file) => {
                let mut part = vec![0; whole(range.end.saturating_sub(range.start))?];
                file.read_exact_at(&mut part, range.start)?;
                Ok(part.into())
            }
        }
    }

    /// Returns an open file with the bytes, for another process. Blocks.
    pub fn to_file(&self) -> io::Result<File> {
        match &self.place {
            SpoolLocation::Memory(bytes) => {
                let mut file = tempfile::tempfile()?;
                file.write_all(bytes)?;
                file.seek(SeekFrom::Start(0))?;
                Ok(file)
            }
            SpoolLocation::File(file) => file.try_clone(),
        }
    }
}

/// Bytes that are already in memory need no reservation.
impl From<Bytes> for Spooled {
    fn from(bytes: Bytes) -> Self {
        Self { size: bytes.len() as u64, place: SpoolLocation::Memory(bytes), sha256: None, _share: None }
    }
}

/// A reader that can seek.
pub trait ReadSeek: BufRead + Seek {}

impl<T: BufRead + Seek> ReadSeek for T {}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn a_spool_is_unusable_after_a_failed_write() {
        let spools = Spools::new(1 << 30);
        for writes_again in [false, true] {
            let mut spool = spools.open(1, 0).await.unwrap();
            spool.write(&vec![1_u8; CHUNK]).await.unwrap();
            // It rejects writes, as a full disk does.
            spool.file = Some(Arc::new(File::open("/dev/null").unwrap()));
            assert!(spool.write(&vec![2_u8; CHUNK]).await.is_err());
            if writes_again {
                assert!(spool.write(&vec![3_u8; CHUNK]).await.is_err(), "the file would begin in the middle");
            }
            assert!(spool.finish().await.is_err());
        }
        assert_eq!(spools.held(), 0);
    }

    #[tokio::test]
    async fn written_bytes_are_read_back_at_any_size() {
        for size in [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let spools = Spools::new(16 << 20);
            let mut spool = spools.open(1, 10).await.unwrap();
            for piece in bytes.chunks(100_003) {
                spool.write(piece).await.unwrap();
            }
            let spooled = spool.finish().await.unwrap();
            assert_eq!(spools.held(), size as u64);
            assert_eq!(spooled.size(), size as u64);
            let sha256: [u8; 32] = Sha256::digest(&bytes).into();
            assert_eq!((spooled.sha256, spooled.sha256().unwrap()), (Some(sha256), sha256), "{size}");
            assert_eq!(Spooled::from(Bytes::from(bytes.clone())).sha256().unwrap(), sha256);
            assert_eq!(matches!(spooled.place, SpoolLocation::Memory(_)), size < CHUNK, "{size}");
            let chunks: Vec<Bytes> = spooled.chunks(300_000).try_collect().await.unwrap();
            assert!(chunks.concat() == bytes && chunks.iter().all(|chunk| chunk.len() <= 300_000), "{size}");
            for _ in 0..2 {
                assert!(spooled.bytes().unwrap() == bytes, "{size}");
                let mut read = Vec::new();
                spooled.reader().unwrap().read_to_end(&mut read).unwrap();
                assert!(read == bytes, "{size}");
            }
        }
    }

    const MIB: u64 = 1 << 20;
    const NO_WAIT: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn workspace_and_total_limits_are_enforced() {
        let spools = Spools::new(8 * MIB);
        let open = |workspace, bytes| spools.open_within(workspace, bytes, NO_WAIT);
        let one = open(1, 3 * MIB).await.unwrap();
        assert!(matches!(open(1, 2 * MIB).await, Err(SpoolError::Full)), "its half is used up");
        let two = open(2, 4 * MIB).await.unwrap();
        assert!(matches!(open(3, 2 * MIB).await, Err(SpoolError::Full)), "there is 1 MiB left of all");
        assert_eq!(spools.held(), 7 * MIB);
        drop(one);
        open(3, 2 * MIB).await.unwrap();
        drop(two);
        assert_eq!(spools.held(), 0);
        assert!(spools.0.held().by_workspace.is_empty(), "workspaces without spools are removed");
    }

    #[tokio::test]
    async fn a_waiting_spool_gets_released_space() {
        let spools = Spools::new(8 * MIB);
        let first = spools.open(1, 4 * MIB).await.unwrap();
        let waiting = spools.open(1, MIB);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(NO_WAIT, &mut waiting).await.is_err());
        let spooled = first.finish().await.unwrap();
        assert_eq!(waiting.await.unwrap().share.bytes, MIB, "space that is not needed is released at the end");
        drop(spooled);
    }

    #[tokio::test]
    async fn a_spool_grows_while_space_is_available() {
        let spools = Spools::new(4 * MIB);
        let mut spool = spools.open(1, 0).await.unwrap();
        let piece = vec![7; 300_000];
        let mut written = 0;
        let full = loop {
            match spool.write(&piece).await {
                Ok(()) => written += piece.len() as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, SpoolError::Full));
        assert!(written <= 2 * MIB && written + 300_000 > 2 * MIB, "{written}");
        drop(spool);
        assert_eq!(spools.held(), 0);
    }

    #[tokio::test]
    async fn space_is_released_with_the_last_clone() {
        let spools = Spools::new(4 * MIB);
        let mut spool = spools.open(1, MIB).await.unwrap();
        spool.write(&vec![1_u8; CHUNK]).await.unwrap();
        let spooled = spool.finish().await.unwrap();
        let clone = spooled.clone();
        drop(spooled);
        assert_eq!(spools.held(), CHUNK as u64);
        drop(clone);
        assert_eq!(spools.held(), 0);
    }
}
