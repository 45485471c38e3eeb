//! `crier-bench cost`: counts the statements, transactions and written bytes of one operation.
//!
//! API and worker are the real ones. There is no scheduler, whose ticks would be counted too. Each operation runs a few
//! times before it is counted, so that prepared statements and caches are as in a running service.
//!
//! **To add an operation:** add its word to [`CostMeasurement`], an arm in [`Operation::of`], and its counts in
//! `tests/bench/cost.rs`.

use std::net::SocketAddr;
use std::sync::Arc;

use crier_config::Config;
use crier_domain::job::JobKind;
use crier_store::cost;
use crier_worker::jobs::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::listen;
use super::database::{count_pending_jobs, count_used_keys, disable_checkpoints, log_position, run_maintenance};
use super::environment::BenchEnvironment;
use super::figure::Figure;
use super::roles::{self, BenchRoles};
use super::{BenchError, Figures, Suite, figure};
use crate::args::{BenchCost, BenchOptions, CostMeasurement};

mod operation;
mod tenants;

use operation::Operation;
use tenants::Tenants;

type Bench = super::Bench<BenchCost>;

/// The number of runs before an operation is counted.
const WARM_UP_RUNS: u32 = 3;

impl Suite for BenchCost {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let measure = async |measurement| Service::start(bench).await?.measure(bench, measurement).await;
        figures.extend(bench.each(CostMeasurement::ALL, &bench.args.only, measure).await?);
        Ok(figures)
    }
}

/// A service with tenants, and a worker for the jobs that their requests enqueue.
struct Service {
    environment: Arc<BenchEnvironment>,
    address: SocketAddr,
    tenants: Tenants,
    worker: BenchRoles,
    api: JoinSet<()>,
    stop: CancellationToken,
}

impl Service {
    async fn start(bench: &Bench) -> Result<Self, BenchError> {
        let environment = bench.create_environment().await?;
        let config = Config { sandbox: true, ..bench.config.clone() };
        let tenants = Tenants::create(environment.api()).await?;
        let (mut api, stop) = (JoinSet::new(), CancellationToken::new());
        let address = listen(&config, &environment, &mut api, stop.clone()).await?;
        let handler = |kind| Ok::<_, BenchError>((kind, roles::job(&config, &environment, kind)?));
        let registry = Registry::of([handler(JobKind::PublishTarget)?, handler(JobKind::DeliverWebhook)?]);
        let worker = BenchRoles::worker(&environment, registry, bench.slots())?;
        Ok(Self { environment, address, tenants, worker, api, stop })
    }

    async fn measure(mut self, bench: &Bench, measurement: CostMeasurement) -> Figures {
        let operation = Operation::of(measurement, &self.tenants);
        let times = if operation.is_concurrent { bench.args.concurrency } else { bench.args.repeat };
        let db = self.environment.api().db();
        // The use of a key is recorded once per minute, in a background task. Until it is committed, each further request
        // would record it too.
        self.repeat(&operation, 0..1).await?;
        while count_used_keys(db).await? == 0 {
            tokio::time::sleep(roles::POLL_INTERVAL).await;
        }
        self.repeat(&operation, 1..WARM_UP_RUNS).await?;
        run_maintenance(db).await?;
        disable_checkpoints(db).await?;
        let (log, before) = (log_position(db).await?, cost::total());
        self.repeat(&operation, WARM_UP_RUNS..WARM_UP_RUNS + times).await?;
        let (after, end) = (cost::total(), log_position(db).await?);
        let unit = if self.environment.is_embedded() { "pages" } else { "bytes of WAL" };
        let average = |what, unit, count| {
            Figure::average(measurement.as_str(), format!("{}, {what}", operation.name), unit, count, times)
        };
        let figures = vec![
            average("statements", "statements", after.statements - before.statements),
            average("transactions", "transactions", after.transactions - before.transactions),
            average("written", unit, end - log),
        ];
        self.stop.cancel();
        self.worker.stop().await;
        while self.api.join_next().await.is_some() {}
        Ok(figures)
    }

    /// Runs an operation several times, and waits until the jobs that it enqueued have ended.
    async fn repeat(&self, operation: &Operation, numbers: std::ops::Range<u32>) -> Result<(), BenchError> {
        if operation.is_concurrent {
            operation.request_concurrently(self.address, numbers).await?;
            return self.wait_until_idle().await;
        }
        for number in numbers {
            operation.request(self.address, number).await?;
            self.wait_until_idle().await?;
        }
        Ok(())
    }

    async fn wait_until_idle(&self) -> Result<(), BenchError> {
        while count_pending_jobs(self.environment.api().db()).await? > 0 {
            tokio::time::sleep(roles::POLL_INTERVAL).await;
        }
        // The worker holds a run until the statements after its commit are done.
        self.worker.wait_until_idle().await;
        Ok(())
    }
}
