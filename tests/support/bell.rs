//! Helpers that listen to a notifier.

use std::sync::Arc;

use crier_common::domain::job::Kind;
use crier_common::queue::{Heard, Transport};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A listener that returns its slot immediately.
pub struct Ears(Receiver<Heard>);

/// Listens with more slots than any test needs at once.
pub fn ears(bell: &dyn Transport, kind: Kind) -> Ears {
    ears_with(bell, kind, &Arc::new(Semaphore::new(1_000)))
}

pub fn ears_with(bell: &dyn Transport, kind: Kind, places: &Arc<Semaphore>) -> Ears {
    Ears(bell.listen(kind, places.clone()))
}

impl Ears {
    pub async fn recv(&mut self) -> Option<i64> {
        self.0.recv().await.map(|notification| notification.id)
    }

    /// Like `recv`, and returns the slot to the caller.
    pub async fn recv_and_hold(&mut self) -> Option<(i64, Option<OwnedSemaphorePermit>)> {
        self.0.recv().await.map(|notification| (notification.id, notification.place))
    }

    pub fn try_recv(&mut self) -> Result<i64, TryRecvError> {
        self.0.try_recv().map(|notification| notification.id)
    }
}
