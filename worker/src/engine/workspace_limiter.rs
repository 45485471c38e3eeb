//! Limits concurrent transactions per workspace: runs of one workspace wait for each other before they wait for a
//! connection.
//!
//! A post to fifty accounts starts fifty runs at the same time, each with a transaction before its call. Without the
//! limit, all fifty queue for the database ahead of the next workspace's run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crier_store::{Db, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// SQLite has one writer: a second run of the workspace would only wait for it.
const MAX_CONCURRENT_SQLITE: usize = 1;
const MAX_CONCURRENT_POSTGRES: usize = 8;
/// Unused entries are removed when the map has this many entries.
const MAX_UNUSED: usize = 1_024;

/// A semaphore for each workspace whose runs use the database or wait for it.
pub(super) struct WorkspaceLimiter {
    max_concurrent: usize,
    by_lane: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl WorkspaceLimiter {
    pub fn of_store(store: &Store) -> Self {
        Self::new(match store.db() {
            Db::Sqlite { .. } => MAX_CONCURRENT_SQLITE,
            Db::Pg(_) => MAX_CONCURRENT_POSTGRES,
        })
    }

    fn new(max_concurrent: usize) -> Self {
        Self { max_concurrent, by_lane: Mutex::default() }
    }

    /// Returns a permit of this workspace lane. If none is free, calls `on_wait` and then waits for one.
    pub async fn acquire(&self, lane: &str, on_wait: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        let semaphore = self.semaphore(lane);
        if let Ok(permit) = semaphore.clone().try_acquire_owned() {
            return Some(permit);
        }
        on_wait();
        semaphore.acquire_owned().await.ok()
    }

    fn semaphore(&self, lane: &str) -> Arc<Semaphore> {
        let mut by_lane = self.by_lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = by_lane.get(lane).and_then(Weak::upgrade) {
            return semaphore;
        }
        if by_lane.len() >= MAX_UNUSED {
            by_lane.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.max_concurrent));
        by_lane.insert(lane.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_workspace_waits_only_for_its_own_runs() {
        let limiter = WorkspaceLimiter::new(2);
        let first = limiter.acquire("a", || unreachable!("a permit is free")).await;
        let _second = limiter.acquire("a", || unreachable!("a permit is free")).await;
        let mut queued = false;
        {
            let mut third = std::pin::pin!(limiter.acquire("a", || queued = true));
            assert!(third.as_mut().now_or_never().is_none());
            assert!(limiter.acquire("b", || unreachable!("another lane is free")).now_or_never().is_some());
            drop(first);
            assert!(third.now_or_never().flatten().is_some());
        }
        assert!(queued);
    }

    #[tokio::test]
    async fn unused_lanes_are_removed() {
        let limiter = WorkspaceLimiter::new(1);
        let kept = limiter.acquire("kept", || {}).await;
        for n in 0..5 * MAX_UNUSED {
            limiter.acquire(&n.to_string(), || {}).await;
        }
        assert!(limiter.by_lane.lock().unwrap().len() <= MAX_UNUSED);
        assert!(limiter.acquire("kept", || {}).now_or_never().is_none());
        drop(kept);
    }
}
