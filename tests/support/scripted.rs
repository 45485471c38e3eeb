//! A scripted job that replaces that of the kind `noop`.

#![allow(dead_code, reason = "each test uses only a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_store::{Result, StoreError, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{FinishedRun, Job, Registry, RunError, RunResult};
use tokio::task::JoinHandle;

use super::fake_platform::Gate;
use super::jobs::TestWorker;

/// The behavior of a scripted job, which its subject selects.
#[derive(Clone)]
pub enum JobBehavior {
    End(Outcome),
    /// Waits at the gate.
    Wait(Arc<Gate>),
    /// Waits at the gate in a call to an external service.
    WaitInCall(Arc<Gate>),
    /// Waits at the first gate in the first attempt, and at the second gate in later attempts.
    WaitTwice(Arc<Gate>, Arc<Gate>),
    /// Fails to store its result this many times.
    Reject(Arc<AtomicUsize>, StoreFailure),
}

#[derive(Clone, Copy)]
pub enum StoreFailure {
    Transient,
    Final,
    Panic,
}

struct Scripted(Vec<(i64, JobBehavior)>);

#[async_trait]
impl Job for Scripted {
    type Result = ScriptedResult;

    async fn run(&self, run: &Run) -> std::result::Result<ScriptedResult, RunError> {
        let act = self.0.iter().find(|(subject, _)| *subject == run.job.subject_id).map(|(_, act)| act.clone());
        match act {
            None => {}
            Some(JobBehavior::End(outcome)) => return Err(RunError::Ended(outcome)),
            Some(JobBehavior::Wait(gate)) => gate.enter().await,
            Some(JobBehavior::WaitInCall(gate)) => run.call(gate.enter()).await,
            Some(JobBehavior::WaitTwice(first, second)) => {
                let gate = if run.job.attempt == 1 { first } else { second };
                gate.enter().await;
            }
            Some(JobBehavior::Reject(times, how)) => return Ok(ScriptedResult::Rejected(times, how)),
        }
        Ok(ScriptedResult::Done)
    }

    async fn settle(&self, _tx: &mut Tx, runs: &[FinishedRun<'_, ScriptedResult>]) -> Result<Vec<Outcome>> {
        runs.iter().map(|run| run.result.outcome()).collect()
    }
}

enum ScriptedResult {
    Done,
    /// Cannot be stored this many times.
    Rejected(Arc<AtomicUsize>, StoreFailure),
}

impl RunResult for ScriptedResult {}

impl ScriptedResult {
    fn outcome(&self) -> Result<Outcome> {
        let Self::Rejected(times, how) = self else { return Ok(Outcome::Done) };
        let left = times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (left, how) {
            (Err(_), _) => Ok(Outcome::Done),
            (Ok(_), StoreFailure::Transient) => Err(StoreError::Database(sqlx::Error::PoolTimedOut)),
            (Ok(_), StoreFailure::Final) => Err(StoreError::Decode("the test rejects this result".into())),
            (Ok(_), StoreFailure::Panic) => panic!("this result panics, as the test requires"),
        }
    }
}

/// Returns an engine with only this kind. A job without an entry succeeds immediately.
pub fn scripted_engine(w: &TestWorker, acts: impl IntoIterator<Item = (i64, JobBehavior)>) -> Engine {
    let scripted = Scripted(acts.into_iter().collect());
    Engine::new(w.store.clone(), Registry::of([(JobKind::Noop, Arc::new(scripted))]))
}

/// Enqueues a job of the kind, and discards its notification.
pub async fn enqueue_noop(w: &TestWorker, subject: i64) -> i64 {
    let id = w.enqueue_job(JobKind::Noop, subject, None).await;
    w.s.notifier.take();
    id
}

/// Starts a job without waiting for it.
pub fn start(engine: &Engine, id: i64) -> JoinHandle<bool> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.run(id).await })
}

/// Runs three jobs whose results are stored in one batch. The result of the second fails to be stored `times` times.
pub async fn run_three_with_failing_middle(w: &TestWorker, times: usize, how: StoreFailure) -> [JobState; 3] {
    let left = Arc::new(AtomicUsize::new(times));
    let engine = scripted_engine(w, [(2, JobBehavior::Reject(left, how))]);
    let ids = [enqueue_noop(w, 1).await, enqueue_noop(w, 2).await, enqueue_noop(w, 3).await];
    futures::future::join_all(ids.iter().map(|id| engine.run(*id))).await;
    let mut states = [JobState::Ready; 3];
    for (state, id) in states.iter_mut().zip(ids) {
        *state = w.state(id).await;
    }
    assert!(engine.held().is_empty());
    // The engine still works.
    let next = enqueue_noop(w, 4).await;
    assert!(engine.run(next).await);
    assert_eq!(w.state(next).await, JobState::Done);
    states
}
