//! Deletes unreferenced files: what an upload left behind when its process died, deleted files, and files of deleted
//! brands.
//!
//! A file is first marked for deletion in the database (it cannot be reused from then on), then its bytes are deleted,
//! and its row last: after a crash in between, the row is still there for the next tick. Any number of schedulers may
//! do this at once; deleting a deleted file succeeds. An unavailable storage is logged once per tick, and the rows wait
//! for it.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_media::{Storage, StorageError};
use crier_store::Result;
use crier_store::files::{self, DeletableFile};
use futures::StreamExt;

use crate::Scheduler;

/// The maximum duration of an upload.
const ABANDONED: TimeDelta = TimeDelta::hours(1);
/// How long after that a write may still be in progress: a slow bucket may store what it was sent after all. Longer
/// than any request to a bucket.
const WRITE_GRACE_PERIOD: TimeDelta = TimeDelta::minutes(5);
/// How many rows share a transaction.
const BATCH: i64 = 100;
/// How many files are deleted concurrently.
const AT_ONCE: usize = 16;
/// The time limit of a tick; if there is more, the next tick follows at once.
const TICK: Duration = Duration::from_secs(10);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let end = Instant::now() + TICK;
    let more = [mark_for_deletion(s, end).await?, delete_marked_files(s, end).await?];
    Ok(more.contains(&true).then_some(Duration::ZERO))
}

/// Returns whether there is more.
async fn mark_for_deletion(s: &Scheduler, end: Instant) -> Result<bool> {
    while Instant::now() < end {
        let mut tx = s.store.begin().await?;
        let before = tx.now - ABANDONED;
        let doomed = files::mark_abandoned_for_deletion(&mut tx, before, BATCH).await?;
        tx.commit().await?;
        if doomed == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether there is more that can be deleted.
async fn delete_marked_files(s: &Scheduler, end: Instant) -> Result<bool> {
    let (mut after, mut failed, mut failures) = (0, None, 0);
    loop {
        let before = s.store.now() - WRITE_GRACE_PERIOD;
        let doomed = files::marked_for_deletion(&mut s.store.read().await?, after, before, BATCH).await?;
        let Some(last) = doomed.last().map(|file| file.id) else { break };
        let (deleted, error) = remove(s.library.storage(), &doomed, end).await;
        if !deleted.is_empty() {
            let mut tx = s.store.begin().await?;
            files::forget(&mut tx, &deleted).await?;
            tx.commit().await?;
        }
        failures += doomed.len() - deleted.len();
        failed = failed.or(error);
        // A storage that deletes nothing will fail for the next batch as well.
        if Instant::now() >= end || deleted.is_empty() {
            break;
        }
        after = last;
    }
    if let Some(error) = failed {
        tracing::warn!(%error, files = failures, "unreferenced files could not be deleted; they are tried again");
        return Ok(false);
    }
    Ok(Instant::now() >= end)
}

/// Deletes bytes until `end`; returns the deleted ids, and the first error.
async fn remove(storage: &Storage, doomed: &[DeletableFile], end: Instant) -> (Vec<i64>, Option<StorageError>) {
    let removed = futures::stream::iter(doomed.to_vec()).map(async |file| {
        storage.delete(&file.key).await?;
        storage.delete(&file.thumbnail_key).await?;
        Ok(file.id)
    });
    let mut removed =
        std::pin::pin!(removed.buffer_unordered(AT_ONCE).take_until(tokio::time::sleep_until(end.into())));
    let (mut deleted, mut failed) = (Vec::new(), None);
    while let Some(one) = removed.next().await {
        match one {
            Ok(id) => deleted.push(id),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (deleted, failed)
}
