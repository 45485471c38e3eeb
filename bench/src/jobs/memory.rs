//! Memory of the process: idle, with many jobs pending, and while it runs them.

use crier_domain::job::{JobKind, JobState};

use super::super::database::insert_jobs;
use super::super::memory;
use super::starts::{self, Starts};
use super::{Bench, Figures};

const JOBS: usize = 100_000;

pub async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let count = bench.jobs(JOBS);
    let starts = Starts::new(0, count, environment.api().now());
    let roles = starts::roles(bench, &environment, JobKind::Noop, bench.slots(), &starts)?;
    let fill = async |store: crier_store::Store| {
        let mut tx = store.begin().await?;
        let due = tx.now;
        insert_jobs(&mut tx, JobKind::Noop, JobState::Ready, 0..i64::try_from(count).unwrap_or(i64::MAX), due).await?;
        Ok(tx.commit().await?)
    };
    memory::measure_memory(&environment, JobKind::Noop, roles, format!("{count} jobs pending"), fill, async || {
        starts.wait(count).await
    })
    .await
}
