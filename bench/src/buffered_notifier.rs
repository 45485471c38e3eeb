//! A notifier that can buffer ids for a worker that starts later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotification, JobNotifier};
use crier_queue::memory::CAPACITY;
use crier_queue::{Handler, KindCapacity, Transport};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub struct BufferedNotifier {
    inner: Arc<dyn Transport>,
    buffered: Mutex<HashMap<JobKind, Vec<JobNotification>>>,
}

impl BufferedNotifier {
    pub fn over(inner: Arc<dyn Transport>) -> Self {
        Self { inner, buffered: Mutex::default() }
    }

    /// Starts to buffer the notifications of a kind, for the next listener.
    pub fn buffer(&self, kind: JobKind) {
        self.buffered().insert(kind, Vec::new());
    }

    /// Ignores poisoning: nothing panics while holding the lock.
    fn buffered(&self) -> MutexGuard<'_, HashMap<JobKind, Vec<JobNotification>>> {
        self.buffered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobNotifier for BufferedNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        let mut buffered = self.buffered();
        for notification in notifications {
            match buffered.get_mut(&notification.kind) {
                Some(buffer) => buffer.push(*notification),
                None => self.inner.notify(&[*notification]),
            }
        }
    }
}

#[async_trait]
impl Transport for BufferedNotifier {
    fn listen(
        &self,
        kind: JobKind,
        concurrency: usize,
        handler: Handler,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let listener = self.inner.listen(kind, concurrency, handler, stop);
        let buffer = self.buffered().remove(&kind).unwrap_or_default();
        self.inner.notify(&buffer);
        listener
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    async fn capacity(&self) -> Option<Vec<KindCapacity>> {
        let mut kinds = self.inner.capacity().await?;
        let buffered = self.buffered();
        for of in &mut kinds {
            if let Some(buffer) = buffered.get(&of.kind) {
                (of.waiting, of.free) = (buffer.len(), CAPACITY.saturating_sub(buffer.len()));
            }
        }
        Some(kinds)
    }

    async fn listening_processes(&self) -> Option<u32> {
        self.inner.listening_processes().await
    }
}
