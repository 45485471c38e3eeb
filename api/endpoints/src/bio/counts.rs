//! Counts views and clicks in memory and writes them in batches every few seconds, so that a visit needs no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crier_store::{Result, Store, bio_pages};
use tokio_util::sync::CancellationToken;

/// The interval between writes. If the process is killed, the counts of this interval are lost.
pub const WRITE_INTERVAL: Duration = Duration::from_secs(3);
/// The maximum time of the last write when the process stops.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

type ById = HashMap<i64, u64>;

#[derive(Debug, Default)]
struct Pending {
    views: ById,
    clicks: ById,
}

#[derive(Debug, Default)]
pub struct Counts {
    pending: Mutex<Pending>,
    /// Held during a write, so that everything counted before a write is stored when that returns.
    writing: tokio::sync::Mutex<()>,
}

impl Counts {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn view(&self, page_id: i64) {
        *self.pending().views.entry(page_id).or_default() += 1;
    }

    pub fn click(&self, link_id: i64) {
        *self.pending().clicks.entry(link_id).or_default() += 1;
    }

    /// Writes the counts since the last write. Counts that could not be written are included in the next write.
    pub async fn write(&self, store: &Store) -> Result<()> {
        let _writing = self.writing.lock().await;
        let taken = std::mem::take(&mut *self.pending());
        if taken.views.is_empty() && taken.clicks.is_empty() {
            return Ok(());
        }
        // If this future is dropped, for example by the shutdown timeout, the counts are put back.
        let mut taken = PutBack { counts: self, taken };
        let list = |counts: &ById| counts.iter().map(|(id, n)| (*id, *n)).collect::<Vec<_>>();
        let mut tx = store.begin().await?;
        bio_pages::add_counts(&mut tx, &list(&taken.taken.views), &list(&taken.taken.clicks)).await?;
        tx.commit().await?;
        taken.taken = Pending::default();
        Ok(())
    }

    /// Writes periodically until `stop`, then once more.
    pub async fn keep_writing(&self, store: &Store, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(WRITE_INTERVAL) => {
                    if let Err(error) = self.write(store).await {
                        tracing::warn!(%error, "failed to store views and clicks; the next write includes them");
                    }
                }
                () = stop.cancelled() => break,
            }
        }
        match tokio::time::timeout(FINAL_WRITE_TIMEOUT, self.write(store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to store views and clicks at shutdown"),
            Err(_) => tracing::warn!("timed out storing views and clicks at shutdown"),
        }
    }
}

struct PutBack<'a> {
    counts: &'a Counts,
    taken: Pending,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        let mut pending = self.counts.pending();
        for (id, n) in self.taken.views.drain() {
            *pending.views.entry(id).or_default() += n;
        }
        for (id, n) in self.taken.clicks.drain() {
            *pending.clicks.entry(id).or_default() += n;
        }
    }
}
