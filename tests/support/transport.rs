//! A transport between the scheduler and the workers, whose capacity a test sets.

#![allow(dead_code, reason = "each test uses only a part")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotification, JobNotifier};
use crier_queue::{Handler, KindCapacity, Transport};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// A transport with a fixed capacity. It drops notifications; tests read them from the notifier of the store.
pub struct FixedCapacityTransport(Mutex<Option<Vec<KindCapacity>>>);

impl FixedCapacityTransport {
    pub fn with_room(room: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(capacity(1, |_| room)))))
    }

    /// Sets the capacity of each kind; `None` makes the transport unreachable.
    pub fn set(&self, kinds: Option<Vec<KindCapacity>>) {
        *self.0.lock().expect("no panic") = kinds;
    }
}

/// Returns a capacity: for each kind, the number of ids that wait, and the number of further ids that are accepted.
pub fn capacity(waiting: usize, free: impl Fn(JobKind) -> usize) -> Vec<KindCapacity> {
    JobKind::ALL.iter().map(|kind| KindCapacity { kind: *kind, waiting, free: free(*kind) }).collect()
}

impl JobNotifier for FixedCapacityTransport {
    fn notify(&self, _notifications: &[JobNotification]) {}
}

#[async_trait]
impl Transport for FixedCapacityTransport {
    fn listen(
        &self,
        _kind: JobKind,
        _concurrency: usize,
        _handler: Handler,
        _stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn is_up(&self) -> bool {
        true
    }

    async fn capacity(&self) -> Option<Vec<KindCapacity>> {
        self.0.lock().expect("no panic").clone()
    }
}
