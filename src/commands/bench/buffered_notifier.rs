//! A notifier that can buffer ids for a worker that starts later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crier_common::domain::job::{JobKind, JobNotification, JobNotifier};
use crier_common::queue::{CAPACITY, Notification, Transport};
use tokio::sync::{Semaphore, mpsc};

use super::super::{Result, refused};

/// A Redis list buffers ids by itself. The in-process queue drops ids without a listener, so this starts a listener
/// early and passes it on to the worker.
pub struct BufferedNotifier {
    inner: Arc<dyn Transport>,
    drops_unheard_ids: bool,
    buffered: Mutex<Vec<(JobKind, mpsc::Receiver<Notification>)>>,
}

impl BufferedNotifier {
    pub fn over(inner: Arc<dyn Transport>, forgets: bool) -> Self {
        Self { inner, drops_unheard_ids: forgets, buffered: Mutex::default() }
    }

    /// From now on, buffers the notifications of a kind for the next listener.
    pub fn buffer(&self, kind: JobKind) {
        if self.drops_unheard_ids {
            // The in-process notifier delivers ids even if there are no free places.
            self.kept().push((kind, self.inner.listen(kind, Arc::new(Semaphore::new(0)))));
        }
    }

    /// Waits until the notifier holds this many ids of a kind.
    pub async fn wait_for_ids(&self, kind: JobKind, ids: usize) -> Result {
        for _ in 0..30_000 {
            let room = self.inner.free_capacity().await.unwrap_or_default();
            if room.iter().any(|(k, free)| *k == kind && CAPACITY - free >= ids) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        refused("the notifier did not take what was notified")
    }

    /// Ignores poisoning: nothing panics while holding the lock.
    fn kept(&self) -> MutexGuard<'_, Vec<(JobKind, mpsc::Receiver<Notification>)>> {
        self.buffered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobNotifier for BufferedNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        self.inner.notify(notifications);
    }
}

#[async_trait]
impl Transport for BufferedNotifier {
    fn listen(&self, kind: JobKind, places: Arc<Semaphore>) -> mpsc::Receiver<Notification> {
        let mut kept = self.kept();
        match kept.iter().position(|(k, _)| *k == kind) {
            Some(at) => kept.swap_remove(at).1,
            None => self.inner.listen(kind, places),
        }
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    async fn free_capacity(&self) -> Option<Vec<(JobKind, usize)>> {
        self.inner.free_capacity().await
    }
}
