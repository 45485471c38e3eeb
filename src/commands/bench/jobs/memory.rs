//! Memory of the process: idle, with many jobs pending, and while it runs them.

use crier_common::domain::job::{Kind, State};
use crier_common::store::bench::fill;

use super::super::memory;
use super::starts::{self, Starts};
use super::{Bench, Figures};

const JOBS: usize = 100_000;

pub async fn run(bench: &Bench) -> Figures {
    let place = bench.fresh().await?;
    let count = bench.jobs(JOBS);
    let starts = Starts::of(0, count, place.api().now());
    let crew = starts::crew(bench, &place, Kind::Noop, bench.slots(), &starts)?;
    let fill = async |store: crier_common::store::Store| {
        let mut tx = store.begin().await?;
        let due = tx.now;
        fill(&mut tx, Kind::Noop, State::Ready, 0..i64::try_from(count).unwrap_or(i64::MAX), due).await?;
        Ok(tx.commit().await?)
    };
    memory::of(&place, Kind::Noop, crew, format!("{count} jobs pending"), fill, async || starts.wait(count).await).await
}
