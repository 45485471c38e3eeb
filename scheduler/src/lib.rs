//! The scheduler: makes due work ready, rings again for what nobody heard, takes back what a dead worker held, clears up.
//!
//! What is due is decided in the database, under row locks: any number of schedulers may run, one may die at any tick, and
//! a missed tick is made up for by the next. Ticks are therefore only wake-ups, and plain timers do (apalis-cron counts
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

/// What the tasks need. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    pub store: Store,
    pub transport: Arc<dyn Transport>,
    pub library: Library,
}

/// One recurring task: its name (the metric's label), how often it runs, what it does. It gives how long to wait instead,
/// where it knows better.
pub struct Task {
    pub name: &'static str,
    pub every: Duration,
    pub run: fn(&Scheduler) -> BoxFuture<'_, Result<Option<Duration>>>,
}

/// Every recurring task.
pub const TASKS: &[Task] = &[
    Task { name: "dispatch", every: dispatch::EVERY, run: |s| Box::pin(dispatch::run(s)) },
    Task { name: "rescue", every: Duration::from_secs(1), run: |s| Box::pin(rescue::run(s)) },
    Task { name: "measure", every: measure::EVERY, run: |s| Box::pin(measure::run(s)) },
    Task { name: "feeds", every: feeds::EVERY, run: |s| Box::pin(feeds::run(s)) },
    Task { name: "reservations", every: reservations::EVERY, run: |s| Box::pin(reservations::run(s)) },
    Task { name: "clean_up", every: Duration::from_secs(60), run: |s| Box::pin(clean_up::run(s)) },
    Task { name: "sweep", every: sweep::EVERY, run: |s| Box::pin(sweep::run(s)) },
];

/// The scheduler of a process, until it stops.
pub async fn serve(process: &Process) -> std::result::Result<(), StartError> {
    tracing::info!("the scheduler looks for what is due");
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
            // A tick that panics must not end its task for good, unseen beside the others.
            let wait = match AssertUnwindSafe((task.run)(self)).catch_unwind().await {
                Ok(Ok(sooner)) => {
                    metrics::scheduler_tick(task.name, self.store.now());
                    sooner.unwrap_or(task.every)
                }
                Ok(Err(error)) => {
                    tracing::warn!(task = task.name, %error, "a task of the scheduler failed; it runs again");
                    task.every.max(Duration::from_secs(1))
                }
                Err(_) => {
                    tracing::error!(task = task.name, "a task of the scheduler panicked; it runs again");
                    task.every.max(Duration::from_secs(1))
                }
            };
            tokio::select! { () = tokio::time::sleep(wait) => {}, () = stop.cancelled() => {} }
        }
    }

    /// Every task that moves jobs, once: what tests drive instead of the timers.
    pub async fn tick(&self) -> Result<()> {
        dispatch::run(self).await?;
        rescue::run(self).await?;
        Ok(())
    }
}
