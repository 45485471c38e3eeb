//! An apalis backend over the notifier: it passes the ids of notified jobs of one kind to the worker.
//!
//! It acknowledges and stores nothing: the claim in the database decides whether there is work for an id. On drop it
//! notifies again for ids that it received but did not pass on, so that another worker gets them at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::worker::context::WorkerContext;
use crier_common::domain::job::{JobKind, JobNotification};
use crier_common::queue::{Notification, Transport};
use tokio::sync::{Semaphore, mpsc};
use tower::layer::util::Identity;

/// Receives the ids of one kind.
pub struct NotifierBackend {
    transport: Arc<dyn Transport>,
    kind: JobKind,
    ids: mpsc::Receiver<Notification>,
}

impl NotifierBackend {
    /// Receives ids of a kind, at most `at_once` at a time.
    pub fn new(transport: Arc<dyn Transport>, kind: JobKind, at_once: usize) -> Self {
        let ids = transport.listen(kind, Arc::new(Semaphore::new(at_once)));
        Self { transport, kind, ids }
    }
}

impl Drop for NotifierBackend {
    fn drop(&mut self) {
        self.ids.close();
        let mut left = Vec::new();
        while let Ok(notification) = self.ids.try_recv() {
            left.push(JobNotification { kind: self.kind, id: notification.id });
        }
        self.transport.notify(&left);
    }
}

impl Backend for NotifierBackend {
    type Task = Task<Notification>;
    type Error = Infallible;

    fn poll_ready(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.ids.poll_recv(cx).map(|received| {
            received.map(|notification| {
                Ok(TaskBuilder::new(notification).task_id(TaskId::from_string(RandomId::default())).build())
            })
        })
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for NotifierBackend {
    type Args = Notification;
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
