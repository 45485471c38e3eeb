//! Listening at a bell.

use std::sync::Arc;

use crier_common::domain::job::Kind;
use crier_common::queue::{Heard, Transport};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A listener whose places are free again at once.
pub struct Ears(Receiver<Heard>);

/// More places than any test rings for at once.
pub fn ears(bell: &dyn Transport, kind: Kind) -> Ears {
    ears_with(bell, kind, &Arc::new(Semaphore::new(1_000)))
}

pub fn ears_with(bell: &dyn Transport, kind: Kind, places: &Arc<Semaphore>) -> Ears {
    Ears(bell.listen(kind, places.clone()))
}

impl Ears {
    pub async fn recv(&mut self) -> Option<i64> {
        self.0.recv().await.map(|heard| heard.id)
    }

    /// With its place, which the caller keeps.
    pub async fn recv_and_hold(&mut self) -> Option<(i64, Option<OwnedSemaphorePermit>)> {
        self.0.recv().await.map(|heard| (heard.id, heard.place))
    }

    pub fn try_recv(&mut self) -> Result<i64, TryRecvError> {
        self.0.try_recv().map(|heard| heard.id)
    }
}
