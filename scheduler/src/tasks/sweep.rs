//! Takes away files that nobody refers to: what an upload left behind when its process died, what was deleted, what was of
//! brands that are no more.
//!
//! A file is doomed first, in the record (nobody keeps it from then on), then its bytes go, and its row goes last: whatever
//! dies in between, the row is still there for the next tick. Any number of schedulers may do this at once; taking away
//! what is gone already is as good. A storage that is away is told once a tick, and the rows wait for it.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_common::media::{Storage, StorageError};
use crier_common::store::Result;
use crier_common::store::files::{self, Doomed};
use futures::StreamExt;

use crate::Scheduler;

pub const EVERY: Duration = Duration::from_secs(30);
/// For how long bytes are brought in at most.
const ABANDONED: TimeDelta = TimeDelta::hours(1);
/// For how long after that somebody may still be at work on them: a bucket that was slow to answer keeps what it was sent
/// after all. Longer than any request to one.
const SETTLED: TimeDelta = TimeDelta::minutes(5);
/// How many rows share a transaction.
const BATCH: i64 = 100;
/// How many files are taken away at once.
const AT_ONCE: usize = 16;
/// After how long a tick ends in which there is more; the next follows at once.
const TICK: Duration = Duration::from_secs(10);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let end = Instant::now() + TICK;
    let more = [doom(s, end).await?, take_away(s, end).await?];
    Ok(more.contains(&true).then_some(Duration::ZERO))
}

/// Gives whether there is more.
async fn doom(s: &Scheduler, end: Instant) -> Result<bool> {
    while Instant::now() < end {
        let mut tx = s.store.begin().await?;
        let before = tx.now - ABANDONED;
        let doomed = files::doom_abandoned(&mut tx, before, BATCH).await?;
        tx.commit().await?;
        if doomed == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives whether there is more that may be possible.
async fn take_away(s: &Scheduler, end: Instant) -> Result<bool> {
    let (mut after, mut failed, mut failures) = (0, None, 0);
    loop {
        let before = s.store.now() - SETTLED;
        let doomed = files::doomed(&mut s.store.read().await?, after, before, BATCH).await?;
        let Some(last) = doomed.last().map(|file| file.id) else { break };
        let (gone, error) = remove(s.library.storage(), &doomed, end).await;
        if !gone.is_empty() {
            let mut tx = s.store.begin().await?;
            files::forget(&mut tx, &gone).await?;
            tx.commit().await?;
        }
        failures += doomed.len() - gone.len();
        failed = failed.or(error);
        // A storage that takes nothing away does not do so for the next ones either.
        if Instant::now() >= end || gone.is_empty() {
            break;
        }
        after = last;
    }
    if let Some(error) = failed {
        tracing::warn!(%error, files = failures, "files that nobody refers to could not be taken away; tried again");
        return Ok(false);
    }
    Ok(Instant::now() >= end)
}

/// Takes bytes away until `end`; gives whose are gone, and what first went wrong.
async fn remove(storage: &Storage, doomed: &[Doomed], end: Instant) -> (Vec<i64>, Option<StorageError>) {
    let removed = futures::stream::iter(doomed.to_vec()).map(async |file| {
        storage.delete(&file.key).await?;
        storage.delete(&file.thumbnail_key).await?;
        Ok(file.id)
    });
    let mut removed =
        std::pin::pin!(removed.buffer_unordered(AT_ONCE).take_until(tokio::time::sleep_until(end.into())));
    let (mut gone, mut failed) = (Vec::new(), None);
    while let Some(one) = removed.next().await {
        match one {
            Ok(id) => gone.push(id),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (gone, failed)
}
