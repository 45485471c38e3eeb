//! A worker that a test can kill at any time.

#![allow(dead_code, reason = "each test uses only a part")]

use std::time::Duration;

use crier_store::Store;
use crier_worker::engine::Engine;
use tokio::runtime::Runtime;

/// A simulated process. When it is killed, its tasks stop where they are, and its connections break.
pub struct KillableWorker {
    pub engine: Engine,
    pub store: Store,
    runtime: Option<Runtime>,
}

impl KillableWorker {
    pub fn new(engine: Engine, store: Store, runtime: Runtime) -> Self {
        Self { engine, store, runtime: Some(runtime) }
    }

    /// Starts a job without waiting for it.
    pub fn start(&self, id: i64) {
        let engine = self.engine.clone();
        self.spawn(async move { engine.run(id).await });
    }

    /// Spawns other work on the runtime of the worker.
    pub fn spawn<F: Future<Output: Send> + Send + 'static>(&self, work: F) {
        self.runtime.as_ref().expect("the process is alive").spawn(work);
    }

    /// Stops the worker like `kill -9`.
    pub async fn kill(mut self) {
        let runtime = self.runtime.take().expect("the process is alive");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10))).await.expect("no panic");
    }
}

impl Drop for KillableWorker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
