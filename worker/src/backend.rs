//! An apalis backend over the doorbell: it hands the worker the ids of one kind as they are rung.
//!
//! It acknowledges nothing and keeps nothing: the claim in the database decides whether an id means work. What it has heard
//! and not handed over when it ends, it rings for again: another worker is there at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::context::WorkerContext;
use crier_common::domain::job::{Kind as JobKind, Ring};
use crier_common::queue::{Heard, Transport};
use tokio::sync::{Semaphore, mpsc};
use tower::layer::util::Identity;

/// The ids of one kind.
pub struct BellBackend {
    transport: Arc<dyn Transport>,
    kind: JobKind,
    ids: mpsc::Receiver<Heard>,
}

impl BellBackend {
    /// Hears ids of a kind, `at_once` of them at a time.
    pub fn new(transport: Arc<dyn Transport>, kind: JobKind, at_once: usize) -> Self {
        let ids = transport.listen(kind, Arc::new(Semaphore::new(at_once)));
        Self { transport, kind, ids }
    }
}

impl Drop for BellBackend {
    fn drop(&mut self) {
        self.ids.close();
        let mut left = Vec::new();
        while let Ok(heard) = self.ids.try_recv() {
            left.push(Ring { kind: self.kind, id: heard.id });
        }
        self.transport.ring(&left);
    }
}

impl Backend for BellBackend {
    type Task = Task<Heard>;
    type Error = Infallible;

    fn poll_ready(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.ids.poll_recv(cx).map(|heard| {
            heard.map(|heard| Ok(TaskBuilder::new(heard).task_id(TaskId::from_string(RandomId::default())).build()))
        })
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for BellBackend {
    type Args = Heard;
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
