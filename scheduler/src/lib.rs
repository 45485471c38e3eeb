//! The scheduler: makes due jobs ready, notifies again for unclaimed ones, rescues the jobs of dead workers, deletes
//! old rows.
//!
//! Each task selects the due rows in the database, under row locks. So any number of schedulers may run, a scheduler
//! may die at any tick, and the next tick makes up for a missed one. Ticks are only wake-ups; each task has an
//! apalis-cron worker for them ([`ticks`]).
//!
//! **To add a recurring task:** `tasks/<name>.rs` with a `run(&Scheduler)`, and one row in [`TASKS`]. A task must tick
//! at least once per minute, because a test and an alert rely on that. If its work is due less often, a time in the
//! database determines when.

use std::sync::Arc;
use std::time::Duration;

use crier_domain::plan::Plans;
use crier_domain::platform::Platform;
use crier_media::Library;
use crier_queue::Transport;
use crier_runtime::{Process, StartError};
use crier_store::{Result, Store};
use crier_telemetry::logs::Repeat;
use crier_telemetry::metrics;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod notifier_capacity;
pub mod tasks;
mod ticks;

use tasks::clean_up::PurgeCursors;
use tasks::renotify::LastEmpty;
use tasks::rescue::LastOutage;
use tasks::{
    analytics, clean_up, dispatch, feeds, inbox, measure, misdated, notices, recurring, renotify, reports, rescue,
    reservations, sweep, tokens, uploads,
};
use ticks::{Ticks, run_at_ticks};

/// The dependencies of the tasks. Cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    pub store: Store,
    pub transport: Arc<dyn Transport>,
    pub library: Library,
    pub plans: Arc<Plans>,
    /// The platforms whose metrics are collected.
    pub metrics_platforms: Vec<Platform>,
    /// The platform whose metrics are collected as soon as a post is published: the sandbox, whose calls cost nothing.
    pub early_metrics_platform: Option<Platform>,
    pub purge_cursors: Arc<PurgeCursors>,
    pub last_empty: Arc<LastEmpty>,
    pub last_outage: Arc<LastOutage>,
    /// Limits the log lines of an outage of the database, which makes all tasks fail.
    pub outage_repeat: Arc<Mutex<Repeat>>,
    /// Locked while this process creates the assets of uploads.
    pub finishing_uploads: Arc<Mutex<()>>,
    /// Cancelled when the process stops, which waits for the runs in progress.
    pub stop: CancellationToken,
}

/// A recurring task.
pub struct Task {
    /// The label in metrics and logs.
    name: &'static str,
    /// The cron expression: second, minute, hour, day, month, weekday, in UTC.
    cron: &'static str,
    /// The interval of a task that runs more often than a cron expression can specify, unless a tick comes first.
    between_ticks: Option<Duration>,
    /// Runs the task. May return how long to wait until the task runs again; ticks until then are dropped.
    run: fn(&Scheduler) -> BoxFuture<'_, Result<Option<Duration>>>,
}

impl Task {
    const fn new(
        name: &'static str,
        cron: &'static str,
        run: fn(&Scheduler) -> BoxFuture<'_, Result<Option<Duration>>>,
    ) -> Self {
        Self { name, cron, between_ticks: None, run }
    }

    fn ticks(&self) -> Ticks {
        Ticks::new(self.cron.parse().expect("a test parses every row"))
    }
}

/// All recurring tasks. Their times avoid the full minute, when most posts are due, and each other.
pub const TASKS: &[Task] = &[
    Task {
        between_ticks: Some(dispatch::TICK_INTERVAL),
        ..Task::new("dispatch", "* * * * * *", |s| Box::pin(dispatch::run(s)))
    },
    Task::new("rescue", "* * * * * *", |s| Box::pin(rescue::run(s))),
    Task::new("renotify", "* * * * * *", |s| Box::pin(renotify::run(s))),
    Task::new("measure", "3/10 * * * * *", |s| Box::pin(measure::run(s))),
    Task::new("misdated", "7/10 * * * * *", |s| Box::pin(misdated::run(s))),
    Task::new("feeds", "6/10 * * * * *", |s| Box::pin(feeds::run(s))),
    Task::new("tokens", "9/10 * * * * *", |s| Box::pin(tokens::run(s))),
    Task::new("analytics", "8/10 * * * * *", |s| Box::pin(analytics::run(s))),
    Task::new("reports", "1/5 * * * * *", |s| Box::pin(reports::run(s))),
    Task::new("recurring", "5/10 * * * * *", |s| Box::pin(recurring::run(s))),
    Task::new("notices", "23 * * * * *", |s| Box::pin(notices::run(s))),
    Task::new("inbox", "2/10 * * * * *", |s| Box::pin(inbox::run(s))),
    Task::new("reservations", "4/5 * * * * *", |s| Box::pin(reservations::run(s))),
    Task::new("clean_up", "41 * * * * *", |s| Box::pin(clean_up::run(s))),
    Task::new("sweep", "17/30 * * * * *", |s| Box::pin(sweep::run(s))),
    Task::new("uploads", "28/30 * * * * *", |s| Box::pin(uploads::run(s))),
];

/// Runs the scheduler of a process until it stops.
pub async fn serve(process: &Process) -> std::result::Result<(), StartError> {
    // `crier` runs all roles; there, the line of the API and the banner report that it is ready.
    if process.config.role.is_separate() {
        tracing::info!(tasks = TASKS.len(), ops_addr = %process.config.http.ops_addr, "scheduler started");
    } else {
        tracing::debug!(tasks = TASKS.len(), "scheduler started");
    }
    let scheduler = Scheduler {
        plans: Arc::new(process.config.plans.clone()),
        metrics_platforms: process.config.platforms_config().with_metrics(),
        early_metrics_platform: Some(Platform::Sandbox),
        ..Scheduler::new(process.store.clone(), process.transport.clone(), process.library.clone())
    };
    scheduler.run(process.stop.clone()).await;
    Ok(())
}

impl Scheduler {
    /// Creates a scheduler with the built-in plans, which collects no metrics.
    pub fn new(store: Store, transport: Arc<dyn Transport>, library: Library) -> Self {
        Self {
            store,
            transport,
            library,
            plans: Arc::default(),
            metrics_platforms: Vec::new(),
            early_metrics_platform: None,
            purge_cursors: Arc::default(),
            last_empty: Arc::default(),
            last_outage: Arc::default(),
            outage_repeat: Arc::default(),
            finishing_uploads: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Runs every task until `stop`. A task that fails is logged and runs again at its next tick.
    pub async fn run(mut self, stop: CancellationToken) {
        self.stop = stop.clone();
        let mut tasks = JoinSet::new();
        for task in TASKS {
            tracing::debug!(task = task.name, cron = task.cron, "scheduling a task");
            let (scheduler, ticks, stopped) = (self.clone(), task.ticks(), stop.clone());
            let run = move || scheduler.clone().run_until_tick(task, ticks.clone(), stopped.clone()).boxed();
            tasks.spawn(run_at_ticks(task.name, task.ticks(), Arc::new(run), stop.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Runs a task, repeatedly if it must run again before its next tick.
    async fn run_until_tick(self, task: &'static Task, ticks: Ticks, stop: CancellationToken) {
        loop {
            let wait = match (task.run)(&self).await {
                Ok(wait) => {
                    metrics::scheduler_tick(task.name, self.store.now());
                    wait.or_else(|| {
                        task.between_ticks.filter(|wait| ticks.until_next().is_some_and(|tick| *wait < tick))
                    })
                }
                Err(error) => {
                    if !error.is_unavailable() || self.outage_repeat.lock().await.is_due() {
                        tracing::warn!(task = task.name, %error, "a scheduler task failed; it will run again");
                    }
                    None
                }
            };
            let Some(wait) = wait else { return };
            tokio::select! { () = tokio::time::sleep(wait) => {}, () = stop.cancelled() => return }
        }
    }

    /// Runs every task that ticks each second once. Tests call this instead of using timers.
    pub async fn tick(&self) -> Result<()> {
        dispatch::run(self).await?;
        rescue::run(self).await?;
        renotify::run(self).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_a_next_tick_within_its_minute() {
        for task in TASKS {
            let wait = task.ticks().until_next();
            assert!(wait.is_some_and(|wait| wait <= Duration::from_secs(60)), "{}: {wait:?}", task.name);
        }
    }
}
