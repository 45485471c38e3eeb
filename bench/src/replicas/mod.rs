//! `crier-bench replicas`: measures how many more jobs several worker processes run than one.
//!
//! A worker is a separate process of this program ([`processes`], [`worker`]), with the engine and the handlers of a
//! `crier-worker`. The scheduler and the endpoints are in this process. After a backlog is written, all workers start
//! together, and the time until the last job has ended is measured. The lane limits a backlog for one endpoint or
//! account; a backlog for many shows the gain of each worker. Only the split form has several workers.
//!
//! **To add a measurement:** add its word to [`ReplicasMeasurement`], a file here with a function that drains one
//! backlog, an arm in [`Suite::measure`], and its figures in `tests/bench/replicas.rs`.

use super::environment::EnvironmentConfig;
use super::figure::{self, Figure, Throughput};
use super::webhooks::format_count;
use super::{BenchError, Figures, Suite, fail};
use crate::args::{BenchOptions, BenchReplicas, ReplicasMeasurement};

mod deliveries;
mod processes;
mod publishes;
pub mod worker;

type Bench = super::Bench<BenchReplicas>;

/// The number of lanes of the backlog, and the number of workers.
#[derive(Clone, Copy)]
struct Point {
    lanes: u32,
    workers: u32,
}

impl Suite for BenchReplicas {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        if matches!(bench.environment_config, EnvironmentConfig::Embedded(_)) {
            return fail(
                "SQLite has one process; set CRIER_DATABASE_URL (Postgres) and CRIER_REDIS_URL to measure several \
                 workers",
            );
        }
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        figures[0] = Figure::word("machine", "form", "split (Postgres, Redis), the workers in processes of their own");
        let measure = async |measurement| match measurement {
            ReplicasMeasurement::Deliveries => {
                let unit = Unit { measurement: "deliveries", lane: "endpoint", rate: "deliveries/s" };
                bench.each_point(unit, async |point| deliveries::drain(bench, point).await).await
            }
            ReplicasMeasurement::Publishes => {
                let unit = Unit { measurement: "publishes", lane: "account", rate: "posts/s" };
                bench.each_point(unit, async |point| publishes::drain(bench, point).await).await
            }
        };
        figures.extend(bench.each(ReplicasMeasurement::ALL, &bench.args.only, measure).await?);
        Ok(figures)
    }
}

/// The words in the figures of a measurement.
#[derive(Clone, Copy)]
struct Unit {
    measurement: &'static str,
    lane: &'static str,
    rate: &'static str,
}

impl Bench {
    /// Measures each number of workers for each number of lanes, and compares the last number of workers with the first.
    async fn each_point(&self, unit: Unit, drain: impl AsyncFn(Point) -> Result<Throughput, BenchError>) -> Figures {
        let mut figures = Vec::new();
        for lanes in &self.args.lanes {
            let mut rates = Vec::new();
            for workers in &self.args.workers {
                let name = format!("{}, {}", format_count(*lanes, unit.lane), format_count(*workers, "worker"));
                self.show_progress(format_args!("{}: {name}", unit.measurement));
                let rate = drain(Point { lanes: *lanes, workers: *workers }).await?;
                figures.push(Figure::rate(unit.measurement, name, unit.rate, rate.count, rate.took));
                rates.push((*workers, rate));
            }
            figures.extend(ratio(unit, *lanes, &rates));
        }
        Ok(figures)
    }
}

fn ratio(unit: Unit, lanes: u32, rates: &[(u32, Throughput)]) -> Option<Figure> {
    let [(first, to), .., (last, of)] = rates else { return None };
    let (last, first) = (format_count(*last, "worker"), format_count(*first, "worker"));
    let name = format!("{}, {last} / {first}", format_count(lanes, unit.lane));
    Some(Figure::ratio_of_rates(unit.measurement, name, *of, *to))
}
