//! The notifier: it carries the ids of jobs that are ready, and nothing else.
//!
//! The jobs are in the database, so the notifier may lose an id, deliver it twice or be unreachable: the dispatcher
//! notifies again for jobs that were not claimed. That makes both transports small: [`memory`] is a channel inside the
//! process, [`redis`] a list per kind that workers read with a blocking pop. `docs/jobs.md` explains why there are no
//! acknowledgements, and why it is not apalis-redis.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::domain::job::{JobKind, JobNotifier};

pub mod memory;
pub mod redis;

/// How many ids of a kind the notifier may hold; further jobs wait in the database.
pub const CAPACITY: usize = 20_000;

/// A received id, and the place that was reserved for it if other processes could run it as well; dropping it frees the
/// place.
#[derive(Debug)]
pub struct Notification {
    pub id: i64,
    pub place: Option<OwnedSemaphorePermit>,
}

/// A notifier that can be listened to.
#[async_trait]
pub trait Transport: JobNotifier {
    /// Returns the ids of a kind as they arrive. Each id reaches one listener, and is taken from the others only when
    /// one of `places` is free. Ends when `places` is closed; a lost connection is re-established.
    fn listen(&self, kind: JobKind, places: Arc<Semaphore>) -> mpsc::Receiver<Notification>;

    /// Whether the notifier is reachable now.
    fn is_up(&self) -> bool;

    /// Returns how many more ids of each kind the notifier accepts; `None`: it is unreachable.
    async fn free_capacity(&self) -> Option<Vec<(JobKind, usize)>>;
}
