//! The scheduler: makes due jobs ready, notifies again for unclaimed ones, rescues the jobs of dead workers, deletes
//! old rows.
//!
//! The database decides what is due, under row locks: any number of schedulers may run, one may die at any tick, and
//! the next tick makes up for a missed one. So ticks are only wake-ups, and plain timers suffice (apalis-cron counts
//! from its start, drops what it missed and fires in each replica).
//!
//! **To add a recurring task:** `tasks/<name>.rs` with a `run(&Scheduler)`, and one row in [`TASKS`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crier_common::media::Library;
use crier_common::process::{Process, StartError};
use crier_common::queue::Transport;
use crier_common::store::{Result, Store};
use crier_common::telemetry::metrics;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

mod room;
pub mod tasks;

use tasks::{clean_up, dispatch, feeds, measure, rescue, reservations, sweep};

/// The dependencies of the tasks. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    pub store: Store,
    pub transport: Arc<dyn Transport>,
    pub library: Library,
}

/// A recurring task: its name (the metric's label), its interval, and its function, which may return how long to wait
/// instead.
pub struct Task {
    pub name: &'static str,
    pub interval: Duration,
    pub run: fn(&Scheduler) -> BoxFuture<'_, Result<Option<Duration>>>,
}

/// All recurring tasks.
pub const TASKS: &[Task] = &[
    Task { name: "dispatch", interval: dispatch::TICK_INTERVAL, run: |s| Box::pin(dispatch::run(s)) },
    Task { name: "rescue", interval: Duration::from_secs(1), run: |s| Box::pin(rescue::run(s)) },
    Task { name: "measure", interval: measure::TICK_INTERVAL, run: |s| Box::pin(measure::run(s)) },
    Task { name: "feeds", interval: feeds::TICK_INTERVAL, run: |s| Box::pin(feeds::run(s)) },
    Task { name: "reservations", interval: reservations::TICK_INTERVAL, run: |s| Box::pin(reservations::run(s)) },
    Task { name: "clean_up", interval: Duration::from_secs(60), run: |s| Box::pin(clean_up::run(s)) },
    Task { name: "sweep", interval: sweep::TICK_INTERVAL, run: |s| Box::pin(sweep::run(s)) },
];

/// Runs the scheduler of a process until it stops.
pub async fn serve(process: &Process) -> std::result::Result<(), StartError> {
    tracing::info!("scheduler started");
    let scheduler = Scheduler {
        store: process.store.clone(),
        transport: process.transport.clone(),
        library: process.library.clone(),
    };
    scheduler.run(process.stop.clone()).await;
    Ok(())
}

impl Scheduler {
    /// Runs every task until `stop`. A task that fails is logged and runs again at its next tick.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = tokio::task::JoinSet::new();
        for task in TASKS {
            let (scheduler, stop) = (self.clone(), stop.clone());
            tasks.spawn(async move { scheduler.repeat(task, &stop).await });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn repeat(&self, task: &'static Task, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            // A panic must not end the task unnoticed, while the others keep running.
            let wait = match AssertUnwindSafe((task.run)(self)).catch_unwind().await {
                Ok(Ok(next_wait)) => {
                    metrics::scheduler_tick(task.name, self.store.now());
                    next_wait.unwrap_or(task.interval)
                }
                Ok(Err(error)) => {
                    tracing::warn!(task = task.name, %error, "a scheduler task failed; it runs again");
                    task.interval.max(Duration::from_secs(1))
                }
                Err(_) => {
                    tracing::error!(task = task.name, "a scheduler task panicked; it runs again");
                    task.interval.max(Duration::from_secs(1))
                }
            };
            tokio::select! { () = tokio::time::sleep(wait) => {}, () = stop.cancelled() => {} }
        }
    }

    /// Runs every task that moves jobs once; tests call this instead of the timers.
    pub async fn tick(&self) -> Result<()> {
        dispatch::run(self).await?;
        rescue::run(self).await?;
        Ok(())
    }
}
