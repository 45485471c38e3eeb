//! A notifier that can buffer ids for a worker that starts later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crier_common::domain::job::{Bell, Kind, Ring};
use crier_common::queue::{CAPACITY, Heard, Transport};
use tokio::sync::{Semaphore, mpsc};

use super::super::{Result, refused};

/// A Redis list buffers ids by itself. The in-process queue drops ids without a listener, so this starts a listener
/// early and passes it on to the worker.
pub struct KeptBell {
    inner: Arc<dyn Transport>,
    forgets: bool,
    kept: Mutex<Vec<(Kind, mpsc::Receiver<Heard>)>>,
}

impl KeptBell {
    pub fn over(inner: Arc<dyn Transport>, forgets: bool) -> Self {
        Self { inner, forgets, kept: Mutex::default() }
    }

    /// From now on, buffers the notifications of a kind for the next listener.
    pub fn keep(&self, kind: Kind) {
        if self.forgets {
            // The in-process notifier delivers ids even if there are no free places.
            self.kept().push((kind, self.inner.listen(kind, Arc::new(Semaphore::new(0)))));
        }
    }

    /// Waits until the notifier holds this many ids of a kind.
    pub async fn has(&self, kind: Kind, ids: usize) -> Result {
        for _ in 0..30_000 {
            let room = self.inner.room().await.unwrap_or_default();
            if room.iter().any(|(k, free)| *k == kind && CAPACITY - free >= ids) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        refused("the bell did not take what was rung")
    }

    /// Ignores poisoning: nothing panics while holding the lock.
    fn kept(&self) -> MutexGuard<'_, Vec<(Kind, mpsc::Receiver<Heard>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell for KeptBell {
    fn ring(&self, rings: &[Ring]) {
        self.inner.ring(rings);
    }
}

#[async_trait]
impl Transport for KeptBell {
    fn listen(&self, kind: Kind, places: Arc<Semaphore>) -> mpsc::Receiver<Heard> {
        let mut kept = self.kept();
        match kept.iter().position(|(k, _)| *k == kind) {
            Some(at) => kept.swap_remove(at).1,
            None => self.inner.listen(kind, places),
        }
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    async fn room(&self) -> Option<Vec<(Kind, usize)>> {
        self.inner.room().await
    }
}
