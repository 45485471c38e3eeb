//! Group commit for SQLite: transactions commit one after another, and wait for the disk together.
//!
//! SQLite appends each commit to its write-ahead log. With `synchronous = FULL`, it syncs the log before the next
//! commit may begin, which limits it to a few thousand commits per second, however small they are. With `NORMAL`, it
//! does not sync: a caller that needs a durable commit requests a sync of the log afterward, and all requests that
//! arrive during a sync share the next one. A sync covers everything that was appended before it began, so a power cut
//! only loses commits that were not acknowledged. SQLite's own checkpoint, in a commit after which the log has at least
//! 1,000 pages, syncs the log before it copies it into the database file.
//!
//! A failed sync ends the process. The kernel may have dropped the data that it could not write, and may report the
//! next sync of the same file as successful, so no later commit could be trusted. The next start recovers what is in
//! the log.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, oneshot};

/// Requests syncs of one log. The thread that performs them ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct WalSync(mpsc::UnboundedSender<Waiting>);

type Waiting = oneshot::Sender<Result<(), (io::ErrorKind, String)>>;

impl WalSync {
    /// Starts the thread for the database file at `path`.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("wal-sync".into())
            .spawn(move || serve(Log::open(log.into()), receiver, end_process))?;
        Ok(Self(sender))
    }

    /// Waits until all earlier commits are on the disk.
    pub async fn sync(&self) -> io::Result<()> {
        let ended = || io::Error::other("the thread that syncs the write-ahead log has ended");
        let (sender, done) = oneshot::channel();
        self.0.send(sender).map_err(|_| ended())?;
        done.await.map_err(|_| ended())?.map_err(|(kind, text)| io::Error::new(kind, text))
    }
}

/// Syncs until the last sender is dropped. After a sync that failed, calls `end` and acknowledges nothing more.
fn serve(mut log: Log, mut receiver: mpsc::UnboundedReceiver<Waiting>, end: impl FnOnce(&io::Error)) {
    let mut waiting = Vec::new();
    while receiver.blocking_recv_many(&mut waiting, usize::MAX) > 0 {
        // If the file cannot be opened, nothing is lost, and a later sync covers it.
        let opened = log.reopen().map_err(|error| (error.kind(), error.to_string()));
        if opened.is_ok()
            && let Err(error) = log.sync()
        {
            end(&error);
            return;
        }
        for sender in waiting.drain(..) {
            // A caller that stopped waiting needs no result.
            let _ = sender.send(opened.clone());
        }
    }
}

fn end_process(error: &io::Error) {
    tracing::error!(%error, "failed to sync the write-ahead log; stopping, because later syncs prove nothing");
    std::process::exit(1);
}

/// The log's file. It stays open, so that a process without a free file descriptor can still sync. SQLite holds no lock
/// on it that closing the file would release.
struct Log {
    path: PathBuf,
    file: Option<File>,
}

impl Log {
    fn open(path: PathBuf) -> Self {
        let file = File::open(&path).ok();
        Self { path, file }
    }

    /// Opens the current log, if it is another file than before.
    fn reopen(&mut self) -> io::Result<()> {
        // SQLite deletes the log when all of it is in the database file and synced. A later log is another file.
        let is_deleted = |file: &File| file.metadata().is_ok_and(|file| file.nlink() == 0);
        if self.file.as_ref().is_none_or(is_deleted) {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_concurrent_syncs_complete() {
        let dir = tempfile::tempdir().expect("a directory");
        let wal = WalSync::start(&dir.path().join("crier.db")).expect("a thread");
        assert!(wal.sync().await.is_ok(), "there is no log yet");
        std::fs::write(dir.path().join("crier.db-wal"), b"frames").expect("a file");
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let wal = wal.clone();
            all.spawn(async move { wal.sync().await.is_ok() });
        }
        assert!(all.join_all().await.into_iter().all(|synced| synced));
    }

    #[test]
    fn the_wal_file_is_reopened_only_when_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("crier.db-wal");
        std::fs::write(&path, b"frames").expect("a file");
        let inode = |log: &Log| log.file.as_ref().map(|file| file.metadata().expect("an open file").ino());
        let mut log = Log::open(path.clone());
        let mut sync = || log.reopen().and_then(|()| log.sync()).map(|()| inode(&log));
        let first = sync().expect("synced");
        assert!(first.is_some() && sync().expect("synced") == first);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(sync().expect("nothing is left to sync"), None);
        std::fs::write(&path, b"frames").expect("a file");
        assert!(sync().expect("synced").is_some());
    }

    #[tokio::test]
    async fn an_unreachable_wal_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, b"").expect("a file");
        let wal = WalSync::start(&file.join("crier.db")).expect("a thread");
        for _ in 0..2 {
            let error = wal.sync().await.expect_err("not a directory");
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "the thread continues");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nothing_is_acknowledged_after_a_failed_sync() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("crier.db-wal");
        // A device that cannot be synced.
        std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
        let (sender, receiver) = mpsc::unbounded_channel();
        let (wal, ended) = (WalSync(sender), oneshot::channel());
        let end = |_: &io::Error| ended.0.send(()).expect("the test waits");
        std::thread::spawn(move || serve(Log::open(path), receiver, end));
        assert!(wal.sync().await.is_err(), "the commits that waited for this sync");
        ended.1.await.expect("the process would end");
        assert!(wal.sync().await.is_err(), "and those after it");
    }
}
