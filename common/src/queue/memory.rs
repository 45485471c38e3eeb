//! The notifier inside one process.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};

use super::{CAPACITY, Heard, Transport};
use crate::domain::job::{Bell, Kind, Ring};

/// A channel per kind; the last listener receives. Ids without a listener are dropped; the dispatcher notifies again.
#[derive(Default)]
pub struct MemoryBell(RwLock<Vec<(Kind, mpsc::Sender<Heard>)>>);

impl Bell for MemoryBell {
    fn ring(&self, rings: &[Ring]) {
        let Ok(listeners) = self.0.read() else { return };
        for ring in rings {
            if let Some((_, sender)) = listeners.iter().find(|(kind, _)| *kind == ring.kind) {
                // Full: the dispatcher notifies again.
                let _ = sender.try_send(Heard { id: ring.id, place: None });
            }
        }
    }
}

#[async_trait]
impl Transport for MemoryBell {
    /// Ignores `_places`: there is no other process that could run the jobs.
    fn listen(&self, kind: Kind, _places: Arc<Semaphore>) -> mpsc::Receiver<Heard> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        if let Ok(mut listeners) = self.0.write() {
            listeners.retain(|(k, _)| *k != kind);
            listeners.push((kind, sender));
        }
        receiver
    }

    fn is_up(&self) -> bool {
        true
    }

    /// A kind without a listener has no room.
    async fn room(&self) -> Option<Vec<(Kind, usize)>> {
        let listeners = self.0.read().ok()?;
        let of = |kind| listeners.iter().find(|(k, _)| *k == kind).map_or(0, |(_, sender)| sender.capacity());
        Some(Kind::ALL.iter().map(|kind| (*kind, of(*kind))).collect())
    }
}
