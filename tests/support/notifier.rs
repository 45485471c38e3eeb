//! Helpers that listen to a notifier.

use std::sync::Arc;

use crier_common::domain::job::JobKind;
use crier_common::queue::{Notification, Transport};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A listener that returns its slot immediately.
pub struct TestListener(Receiver<Notification>);

/// Listens with more slots than any test needs at once.
pub fn test_listener(notifier: &dyn Transport, kind: JobKind) -> TestListener {
    test_listener_with_slots(notifier, kind, &Arc::new(Semaphore::new(1_000)))
}

pub fn test_listener_with_slots(notifier: &dyn Transport, kind: JobKind, places: &Arc<Semaphore>) -> TestListener {
    TestListener(notifier.listen(kind, places.clone()))
}

impl TestListener {
    pub async fn recv(&mut self) -> Option<i64> {
        self.0.recv().await.map(|notification| notification.id)
    }

    /// Like `recv`, and returns the slot to the caller.
    pub async fn recv_with_slot(&mut self) -> Option<(i64, Option<OwnedSemaphorePermit>)> {
        self.0.recv().await.map(|notification| (notification.id, notification.place))
    }

    pub fn try_recv(&mut self) -> Result<i64, TryRecvError> {
        self.0.try_recv().map(|notification| notification.id)
    }
}
