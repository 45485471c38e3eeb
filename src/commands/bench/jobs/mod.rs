//! `crier bench jobs`: what the job engine does.
//!
//! The engine, worker, scheduler, store and bell are the real ones; only the jobs are no-ops (but for `publish`, which is the
//! real kind on the sandbox).
//!
//! **To add a measurement:** its word in [`Measurement`], a file here with a `run(&Bench)` that gives [`Figures`], one arm
//! in [`Suite::measure`], and its figures in `tests/bench.rs`.

use super::{Figures, Suite, figure, resident};
use crate::cli::{BenchJobs, BenchOptions, Measurement};

mod dispatch;
mod lateness;
mod memory;
mod pickup;
mod publish;
mod starts;
mod throughput;

type Bench = super::Bench<BenchJobs>;

impl Suite for BenchJobs {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::of_the_machine(&*bench.fresh().await?).await?;
        let measure = async |measurement| match measurement {
            Measurement::Memory => memory::run(bench).await,
            Measurement::Throughput => throughput::run(bench).await,
            Measurement::Pickup => pickup::run(bench).await,
            Measurement::Lateness => lateness::run(bench).await,
            Measurement::Dispatch => dispatch::run(bench).await,
            Measurement::Publish => publish::run(bench).await,
        };
        figures.extend(bench.each(Measurement::ALL, &bench.args.only, measure).await?);
        Ok(figures)
    }
}

impl Bench {
    /// The configured number of jobs, or what the measurement needs by itself.
    fn jobs(&self, default: usize) -> usize {
        self.args.jobs.map_or(default, |jobs| usize::try_from(jobs).unwrap_or(default))
    }
}
