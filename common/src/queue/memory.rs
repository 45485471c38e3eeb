//! The notifier inside one process.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};

use super::{CAPACITY, Notification, Transport};
use crate::domain::job::{JobKind, JobNotification, JobNotifier};

/// A channel per kind; the last listener receives. Ids without a listener are dropped; the dispatcher notifies again.
#[derive(Default)]
pub struct MemoryNotifier(RwLock<Vec<(JobKind, mpsc::Sender<Notification>)>>);

impl JobNotifier for MemoryNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        let Ok(listeners) = self.0.read() else { return };
        for notification in notifications {
            if let Some((_, sender)) = listeners.iter().find(|(kind, _)| *kind == notification.kind) {
                // Full: the dispatcher notifies again.
                let _ = sender.try_send(Notification { id: notification.id, place: None });
            }
        }
    }
}

#[async_trait]
impl Transport for MemoryNotifier {
    /// Ignores `_places`: there is no other process that could run the jobs.
    fn listen(&self, kind: JobKind, _places: Arc<Semaphore>) -> mpsc::Receiver<Notification> {
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
    async fn free_capacity(&self) -> Option<Vec<(JobKind, usize)>> {
        let listeners = self.0.read().ok()?;
        let of = |kind| listeners.iter().find(|(k, _)| *k == kind).map_or(0, |(_, sender)| sender.capacity());
        Some(JobKind::ALL.iter().map(|kind| (*kind, of(*kind))).collect())
    }
}
