//! Turns at the database: runs of one workspace wait for each other before they wait for a connection.
//!
//! A post to fifty sites starts fifty runs at once, each with a transaction before its call. Without turns all fifty queue
//! for the database ahead of the next workspace's run; with them a few do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crier_store::{Db, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// SQLite has one writer: a second run of the workspace would only wait for it.
const AT_ONCE_SQLITE: usize = 1;
const AT_ONCE_POSTGRES: usize = 8;
/// Unused entries are removed once the map has this many.
const MAX_UNUSED: usize = 1_024;

/// One semaphore for each workspace whose runs are in the database now, or wait to be.
pub(super) struct WorkspaceLimiter {
    at_once: usize,
    by_lane: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl WorkspaceLimiter {
    pub fn of_store(store: &Store) -> Self {
        Self::new(match store.db() {
            Db::Sqlite { .. } => AT_ONCE_SQLITE,
            Db::Pg(_) => AT_ONCE_POSTGRES,
        })
    }

    fn new(at_once: usize) -> Self {
        Self { at_once, by_lane: Mutex::default() }
    }

    /// A turn of this workspace lane: at once, or after `queued` was called and others of the lane have ended theirs.
    pub async fn take(&self, lane: &str, queued: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        let semaphore = self.semaphore(lane);
        if let Ok(turn) = semaphore.clone().try_acquire_owned() {
            return Some(turn);
        }
        queued();
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
        let semaphore = Arc::new(Semaphore::new(self.at_once));
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
        let turns = WorkspaceLimiter::new(2);
        let first = turns.take("a", || unreachable!("there is a free turn")).await;
        let _second = turns.take("a", || unreachable!("there is a free turn")).await;
        let mut queued = false;
        {
            let mut third = std::pin::pin!(turns.take("a", || queued = true));
            assert!(third.as_mut().now_or_never().is_none());
            assert!(turns.take("b", || unreachable!("another lane is free")).now_or_never().is_some());
            drop(first);
            assert!(third.now_or_never().flatten().is_some());
        }
        assert!(queued);
    }

    #[tokio::test]
    async fn unused_lanes_are_removed() {
        let turns = WorkspaceLimiter::new(1);
        let kept = turns.take("kept", || {}).await;
        for n in 0..5 * MAX_UNUSED {
            turns.take(&n.to_string(), || {}).await;
        }
        assert!(turns.by_lane.lock().unwrap().len() <= MAX_UNUSED);
        assert!(turns.take("kept", || {}).now_or_never().is_none());
        drop(kept);
    }
}
