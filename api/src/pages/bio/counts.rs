//! Views and clicks: counted in memory, written together every few seconds, so that a visit is no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crier_common::store::{Result, Store, bio_pages};
use tokio_util::sync::CancellationToken;

/// How often they are written; so much is lost where a process dies.
pub const WRITTEN_EVERY: Duration = Duration::from_secs(3);
/// How long the last write may take when the process stops.
const LAST: Duration = Duration::from_secs(5);

type ById = HashMap<i64, u64>;

#[derive(Debug, Default)]
struct Pending {
    views: ById,
    clicks: ById,
}

#[derive(Debug, Default)]
pub struct Counts(Mutex<Pending>);

impl Counts {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn view(&self, page_id: i64) {
        *self.pending().views.entry(page_id).or_default() += 1;
    }

    pub fn click(&self, link_id: i64) {
        *self.pending().clicks.entry(link_id).or_default() += 1;
    }

    /// Writes what was counted since the last time. What cannot be written is written next time.
    pub async fn write(&self, store: &Store) -> Result<()> {
        let taken = std::mem::take(&mut *self.pending());
        if taken.views.is_empty() && taken.clicks.is_empty() {
            return Ok(());
        }
        // Dropped in the middle, as by the end of the process's patience, it puts everything back.
        let mut taken = PutBack { counts: self, taken };
        let list = |counts: &ById| counts.iter().map(|(id, n)| (*id, *n)).collect::<Vec<_>>();
        let mut tx = store.begin().await?;
        bio_pages::count(&mut tx, &list(&taken.taken.views), &list(&taken.taken.clicks)).await?;
        tx.commit().await?;
        taken.taken = Pending::default();
        Ok(())
    }

    /// Writes again and again until `stop`, and a last time then.
    pub async fn keep_writing(&self, store: &Store, stop: CancellationToken) {
        let tell = |written: Result<()>| {
            if let Err(error) = written {
                tracing::warn!(%error, "views and clicks were not written; they will be with the next");
            }
        };
        loop {
            tokio::select! {
                () = tokio::time::sleep(WRITTEN_EVERY) => tell(self.write(store).await),
                () = stop.cancelled() => break,
            }
        }
        match tokio::time::timeout(LAST, self.write(store)).await {
            Ok(written) => tell(written),
            Err(_) => tracing::warn!("views and clicks of the last seconds were not written before the stop"),
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
