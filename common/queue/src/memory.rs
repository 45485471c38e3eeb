//! The notifier inside one process.
//!
//! It has its own apalis backend, because apalis' `MemoryStorage` is an unbounded channel whose length is unknown.

use std::convert::Infallible;
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll};

use apalis::layers::WorkerBuilderExt;
use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::error::WorkerError;
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotification, JobNotifier};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::layer::util::Identity;

use super::{Handler, KindCapacity, Transport};

/// The maximum number of ids of a kind that wait for the worker. Further jobs wait in the database.
pub const CAPACITY: usize = 20_000;

/// A channel per kind. The latest listener receives the ids. Ids without a listener are dropped, and the scheduler
/// notifies again.
#[derive(Clone, Default)]
pub struct MemoryNotifier(Arc<RwLock<Vec<Listener>>>);

struct Listener {
    kind: JobKind,
    sender: mpsc::Sender<i64>,
    /// Stops its worker when another listener takes its place: apalis waits forever for a backend that has ended.
    _replaced: DropGuard,
}

impl JobNotifier for MemoryNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        let Ok(listeners) = self.0.read() else { return };
        for notification in notifications {
            if let Some(listener) = listeners.iter().find(|listener| listener.kind == notification.kind) {
                // If the channel is full, the scheduler notifies again.
                let _ = listener.sender.try_send(notification.id);
            }
        }
    }
}

impl MemoryNotifier {
    /// Replaces the listener of a kind. The token is cancelled when the new listener is replaced.
    fn register(&self, kind: JobKind) -> (mpsc::Receiver<i64>, CancellationToken) {
        let ((sender, receiver), replaced) = (mpsc::channel(CAPACITY), CancellationToken::new());
        if let Ok(mut listeners) = self.0.write() {
            listeners.retain(|listener| listener.kind != kind);
            listeners.push(Listener { kind, sender, _replaced: replaced.clone().drop_guard() });
        }
        (receiver, replaced)
    }
}

#[async_trait]
impl Transport for MemoryNotifier {
    fn listen(
        &self,
        kind: JobKind,
        concurrency: usize,
        handler: Handler,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let (notifier, mut registered) = (self.clone(), self.register(kind));
        Box::pin(async move {
            loop {
                let (receiver, replaced) = registered;
                let worker = replaced.run_until_cancelled_owned(work(receiver, kind, concurrency, handler.clone()));
                let Some(Some(ended)) = stop.clone().run_until_cancelled_owned(worker).await else { return };
                tracing::error!(%kind, ?ended, "a worker ended; starting another");
                registered = notifier.register(kind);
            }
        })
    }

    fn is_up(&self) -> bool {
        true
    }

    /// A kind without a listener has no capacity.
    async fn capacity(&self) -> Option<Vec<KindCapacity>> {
        let listeners = self.0.read().ok()?;
        let of = |kind: &JobKind| match listeners.iter().find(|listener| listener.kind == *kind) {
            Some(Listener { sender, .. }) => {
                KindCapacity { kind: *kind, waiting: CAPACITY - sender.capacity(), free: sender.capacity() }
            }
            None => KindCapacity { kind: *kind, waiting: 0, free: 0 },
        };
        Some(JobKind::ALL.iter().map(of).collect())
    }
}

fn work(
    receiver: mpsc::Receiver<i64>,
    kind: JobKind,
    concurrency: usize,
    handler: Handler,
) -> BoxFuture<'static, Result<(), WorkerError>> {
    let worker = WorkerBuilder::new(WorkerContext::new(kind.as_str()))
        .backend(ChannelBackend(receiver))
        .concurrency(concurrency)
        .build(move |id: i64| handler(id));
    Box::pin(worker.run())
}

/// An apalis backend over a channel. It acknowledges and stores nothing: the claim in the database decides whether
/// there is work for an id.
struct ChannelBackend(mpsc::Receiver<i64>);

impl Backend for ChannelBackend {
    type Task = Task<i64>;
    type Error = Infallible;

    fn poll_ready(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.0.poll_recv(cx).map(|received| {
            received.map(|id| Ok(TaskBuilder::new(id).task_id(TaskId::from_string(RandomId::default())).build()))
        })
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for ChannelBackend {
    type Args = i64;
    type Id = RandomId;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _worker: &mut WorkerContext) -> Identity {
        Identity::new()
    }
}
