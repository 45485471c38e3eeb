//! `noop`: does nothing, for `crier-bench jobs`.

use async_trait::async_trait;
use crier_domain::job::Outcome;
use crier_store::{Result, Tx};

use super::{Deps, FinishedRun, Job, RunError};
use crate::engine::Run;

pub struct Noop;

impl Noop {
    pub fn new(_deps: &Deps) -> Self {
        Self
    }
}

#[async_trait]
impl Job for Noop {
    type Result = ();

    const SETTLES_TOGETHER: usize = usize::MAX;

    async fn run(&self, _run: &Run) -> std::result::Result<(), RunError> {
        Ok(())
    }

    async fn settle(&self, _tx: &mut Tx, runs: &[FinishedRun<'_, ()>]) -> Result<Vec<Outcome>> {
        Ok(vec![Outcome::Done; runs.len()])
    }
}
