//! The notifier: it carries the ids of jobs that are ready to the apalis workers that run them, and nothing else.
//!
//! The jobs are in the database, so the notifier may lose an id, deliver it twice or be unreachable: the dispatcher
//! notifies again for jobs that were not claimed. [`memory`] is a channel inside the process, [`redis`] one
//! apalis-redis storage per kind. `docs/jobs.md` says which features of apalis-redis are switched off, and why.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotifier};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub mod memory;
pub mod redis;

/// Runs the job with this id. It returns when its place in the worker may go to another id.
pub type Handler = Arc<dyn Fn(i64) -> BoxFuture<'static, ()> + Send + Sync>;

/// How many ids of a kind wait in the notifier, and how many more it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindCapacity {
    pub kind: JobKind,
    pub waiting: usize,
    pub free: usize,
}

/// A notifier that can be listened to.
#[async_trait]
pub trait Transport: JobNotifier {
    /// Runs an apalis worker that passes the ids of a kind to `handler` as they arrive, at most `concurrency` at once,
    /// until `stop`. Each id reaches one listener. Ids that are notified after this returns are received; a lost
    /// connection is re-established.
    fn listen(
        &self,
        kind: JobKind,
        concurrency: usize,
        handler: Handler,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()>;

    /// Whether the notifier is reachable now.
    fn is_up(&self) -> bool;

    /// Returns the capacity of the notifier for each kind; `None`: it is unreachable.
    async fn capacity(&self) -> Option<Vec<KindCapacity>>;

    /// Returns how many processes listen, this one included; `None`: the notifier is unreachable.
    async fn listening_processes(&self) -> Option<u32> {
        Some(1)
    }
}
