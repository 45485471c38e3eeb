//! An apalis backend over the doorbell: it hands the worker the ids of one kind as they are rung.
//!
//! It acknowledges nothing and keeps nothing: the claim in the database decides whether an id means work.

use std::convert::Infallible;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::context::WorkerContext;
use tokio::sync::mpsc;
use tower::layer::util::Identity;

/// One id that was rung.
#[derive(Debug, Clone, Copy)]
pub struct Rung(pub i64);

/// The ids of one kind.
#[derive(Debug)]
pub struct BellBackend {
    ids: mpsc::Receiver<i64>,
}

impl BellBackend {
    pub fn new(ids: mpsc::Receiver<i64>) -> Self {
        Self { ids }
    }
}

impl Backend for BellBackend {
    type Task = Task<Rung>;
    type Error = Infallible;

    fn poll_ready(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.ids.poll_recv(cx).map(|id| {
            id.map(|id| Ok(TaskBuilder::new(Rung(id)).task_id(TaskId::from_string(RandomId::default())).build()))
        })
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for BellBackend {
    type Args = Rung;
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
