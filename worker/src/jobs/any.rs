//! Kinds and results without their types, as the engine handles them.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::job::Outcome;
use crier_store::{Result, StoreError, Tx};

use super::{FinishedRun, Job, RunError, RunResult};
use crate::engine::Run;

/// A [`Job`] with any type of result. Every job implements it.
#[async_trait]
pub trait AnyJob: Send + Sync {
    async fn run(&self, run: &Run) -> std::result::Result<Arc<dyn AnyResult>, RunError>;

    /// Calls [`Job::settle`]. Fails if a result is of another kind.
    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, dyn AnyResult>]) -> Result<Vec<Outcome>>;

    fn settles_together(&self) -> usize;

    fn starts_without_slot(&self) -> bool;

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()>;

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()>;

    fn backoff(&self, attempt: i32) -> TimeDelta;
}

#[async_trait]
impl<J: Job> AnyJob for J {
    async fn run(&self, run: &Run) -> std::result::Result<Arc<dyn AnyResult>, RunError> {
        Ok(Arc::new(Job::run(self, run).await?))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, dyn AnyResult>]) -> Result<Vec<Outcome>> {
        let typed: Option<Vec<_>> = runs.iter().map(|run| run.with_type::<J::Result>()).collect();
        let typed = typed.ok_or_else(|| StoreError::Decode("the result of a run is of another kind".to_owned()))?;
        Job::settle(self, tx, &typed).await
    }

    fn settles_together(&self) -> usize {
        J::SETTLES_TOGETHER
    }

    fn starts_without_slot(&self) -> bool {
        J::STARTS_WITHOUT_SLOT
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        Job::undo_aborted(self, tx, run).await
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        Job::undo_failed(self, tx, run).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        Job::backoff(self, attempt)
    }
}

/// A [`RunResult`] of any type. Every result implements it.
pub trait AnyResult: Any + Send + Sync {
    fn order(&self) -> i64;

    fn reduced(&self) -> Option<Arc<dyn AnyResult>>;

    fn observe(&self, outcome: &Outcome);
}

impl<R: RunResult> AnyResult for R {
    fn order(&self) -> i64 {
        RunResult::order(self)
    }

    fn reduced(&self) -> Option<Arc<dyn AnyResult>> {
        Some(Arc::new(RunResult::reduced(self)?))
    }

    fn observe(&self, outcome: &Outcome) {
        RunResult::observe(self, outcome);
    }
}

impl<'a> FinishedRun<'a, dyn AnyResult> {
    /// Returns the run with its result as this type; `None` if it is of another type.
    fn with_type<R: RunResult>(&self) -> Option<FinishedRun<'a, R>> {
        let result: &'a dyn Any = self.result;
        Some(FinishedRun { job: self.job, result: result.downcast_ref()? })
    }
}
