//! `crier-bench jobs`: measures the job engine.
//!
//! The engine, worker, scheduler, store and notifier are the real ones; only the jobs are no-ops (except in `publish`,
//! which runs the real kind on the sandbox).
//!
//! **To add a measurement:** add its word to [`Measurement`], a file here with a `run(&Bench)` that returns
//! [`Figures`], an arm in [`Suite::measure`], and its figures in `tests/bench/jobs.rs`.

use super::{Figures, Suite, figure, resident};
use crate::args::{BenchJobs, BenchOptions, Measurement};

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
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
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
    /// Returns the configured number of jobs, or the measurement's default.
    fn jobs(&self, default: usize) -> usize {
        self.args.jobs.map_or(default, |jobs| usize::try_from(jobs).unwrap_or(default))
    }
}
