//! `crier-bench jobs`: measures the job engine.
//!
//! The engine, worker, scheduler, store and notifier are the real ones. The jobs are no-ops, except in `publish`, which
//! publishes on the sandbox.
//!
//! **To add a measurement:** add its word to [`JobMeasurement`], a file here with a `run(&Bench)` that returns
//! [`Figures`], an arm in [`Suite::measure`], and its figures in `tests/bench/jobs.rs`.

use super::{Figures, Suite, figure, resident};
use crate::args::{BenchJobs, BenchOptions, JobMeasurement};

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
            JobMeasurement::Memory => memory::run(bench).await,
            JobMeasurement::Throughput => throughput::run(bench).await,
            JobMeasurement::Pickup => pickup::run(bench).await,
            JobMeasurement::Lateness => lateness::run(bench).await,
            JobMeasurement::Dispatch => dispatch::run(bench).await,
            JobMeasurement::Publish => publish::run(bench).await,
        };
        figures.extend(bench.each(JobMeasurement::ALL, &bench.args.only, measure).await?);
        Ok(figures)
    }
}

impl Bench {
    /// Returns the configured number of jobs, or the measurement's default.
    fn jobs(&self, default: usize) -> usize {
        self.args.jobs.map_or(default, |jobs| usize::try_from(jobs).unwrap_or(default))
    }
}
