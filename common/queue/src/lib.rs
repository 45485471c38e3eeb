//! The notifier: sends the ids of ready jobs to the apalis workers that run them.
//!
//! The jobs are in the database, so the notifier may lose an id, deliver it twice or be unreachable: the scheduler
//! notifies again for jobs that were not claimed. [`memory`] is a channel inside the process, [`redis`] one
//! apalis-redis storage per kind. `docs/jobs.md` explains which features of apalis-redis are switched off, and why.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotifier};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub mod memory;
pub mod redis;

/// Runs the job with this id. Returns when its slot in the worker is free for another id.
pub type Handler = Arc<dyn Fn(i64) -> BoxFuture<'static, ()> + Send + Sync>;

/// The number of ids of a kind that wait in the notifier, and how many more it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindCapacity {
    pub kind: JobKind,
    pub waiting: usize,
    pub free: usize,
}

/// A notifier with listeners.
#[async_trait]
pub trait Transport: JobNotifier {
    /// Runs an apalis worker that passes the ids of a kind to `handler` as they arrive, at most `concurrency` at the
    /// same time, until `stop`. Each id reaches one listener. Ids that are notified after this returns are received. A
    /// lost connection is re-established.
    fn listen(
        &self,
        kind: JobKind,
        concurrency: usize,
        handler: Handler,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()>;

    /// Returns whether the notifier is reachable and accepts ids.
    fn is_up(&self) -> bool;

    /// Returns the capacity of the notifier for each kind; `None` if it is unreachable.
    async fn capacity(&self) -> Option<Vec<KindCapacity>>;

    /// Returns the number of listening processes, including this one; `None` if the notifier is unreachable.
    async fn listening_processes(&self) -> Option<u32> {
        Some(1)
    }
}
