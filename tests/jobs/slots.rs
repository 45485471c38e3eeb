//! A run frees its slot for another job while its result is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobState, NewJob, Outcome};
use crier_store::{Result, StoreError, Tx, jobs};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{FinishedRun, Job, Registry, RunError};

use crate::support::store::{TestStore, on_both};

on_both!(a_run_frees_its_slot_while_its_result_is_stored);

/// Finishes immediately. Its result cannot be stored until the flag is set.
struct SlowToStore(Arc<AtomicBool>);

#[async_trait]
impl Job for SlowToStore {
    type Result = ();

    async fn run(&self, _run: &Run) -> std::result::Result<(), RunError> {
        Ok(())
    }

    /// Fails instead of waiting, because its transaction would block all other writers on SQLite. The engine retries.
    async fn settle(&self, _tx: &mut Tx, runs: &[FinishedRun<'_, ()>]) -> Result<Vec<Outcome>> {
        match self.0.load(Ordering::SeqCst) {
            true => Ok(vec![Outcome::Done; runs.len()]),
            false => Err(StoreError::Database(sqlx::Error::PoolTimedOut)),
        }
    }
}

struct Slots {
    s: TestStore,
    engine: Engine,
    is_storable: Arc<AtomicBool>,
}

impl Slots {
    fn new(s: TestStore, kind: JobKind) -> Self {
        let is_storable = Arc::new(AtomicBool::new(false));
        let registry = Registry::of([(kind, Arc::new(SlowToStore(is_storable.clone())))]);
        let engine = Engine::new(s.store.clone(), registry);
        Self { s, engine, is_storable }
    }

    /// Runs a job until its slot is free, and returns the job's state then.
    async fn run(&self, job: NewJob) -> JobState {
        let id = self.s.write(async |tx| jobs::enqueue(tx, &job).await).await.unwrap();
        self.engine.run_until_slot_free(id).await;
        self.s.show(id).await.state
    }

    /// Makes results storable, and waits until they are stored.
    async fn store_results(&self) {
        self.is_storable.store(true, Ordering::SeqCst);
        self.engine.idle().await;
    }
}

/// One workspace may run 16 imports at the same time.
async fn a_run_frees_its_slot_while_its_result_is_stored(s: TestStore) {
    let workspace = s.workspace().await;
    let slots = Slots::new(s, JobKind::ImportMedia);
    for subject in 1..=16 {
        let job = NewJob::new(JobKind::ImportMedia, subject, slots.s.now()).workspace(workspace);
        assert_eq!(slots.run(job).await, JobState::Running);
    }
    slots.store_results().await;
}
