//! `noop`: does nothing, for `crier-bench jobs`.

use async_trait::async_trait;
use crier_domain::job::Outcome;
use crier_store::Result;

use super::{Deps, Job, RunResult};
use crate::engine::Run;

pub struct Noop;

impl Noop {
    pub fn new(_deps: &Deps) -> Self {
        Self
    }
}

#[async_trait]
impl Job for Noop {
    async fn run(&self, _run: &Run) -> Result<Box<dyn RunResult>> {
        Ok(Box::new(Outcome::Done))
    }

    fn max_results_per_transaction(&self) -> usize {
        usize::MAX
    }
}
