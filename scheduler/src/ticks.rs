//! Wakes a task: an apalis worker over apalis-cron, restarted whenever it ends.
//!
//! A tick is only a wake-up, so a lost tick does no harm: the tasks select what is due in the database. apalis-cron has
//! a resolution of one second, and this module handles three of its properties:
//!
//! - **It ends on a late tick.** If it is polled after a tick's time (the process was blocked, the clock was set), the
//!   worker ends with an error. The worker is restarted, and each start begins with a run, which makes up for the lost
//!   ticks. A run in progress continues, because it may have committed and have jobs to notify.
//! - **It starts a run at each tick**, even while the previous run is in progress. Such a tick is dropped. With apalis'
//!   concurrency limit, ticks would wait instead and be late.
//! - **It does not end after the last tick.** apalis waits forever for a worker whose schedule is exhausted, so
//!   [`Ticks`] is never exhausted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_cron::timezone::Utc;
use apalis_cron::{CronScheduler, Schedule, Tick};
use crier_base::backoff::{self, ExponentialBuilder, Pauses};
use crier_base::clock::Clock;
use crier_base::cron::CronSchedule;
use futures::FutureExt;
use futures::future::{BoxFuture, join};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pauses before a worker is restarted. They begin again with the first one if the worker lasted longer than
/// [`STABLE_AFTER`].
const RESTARTS: ExponentialBuilder = backoff::exponential(Duration::from_millis(50), Duration::from_secs(1));
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The ticks of a cron expression in UTC. They use the system's clock, because apalis-cron compares them with it.
#[derive(Clone, Debug)]
pub struct Ticks(CronSchedule);

impl Ticks {
    pub fn new(schedule: CronSchedule) -> Self {
        Self(schedule)
    }

    /// Returns the time until the next tick; `None` if there is no further tick.
    pub fn until_next(&self) -> Option<Duration> {
        let now = Clock::system().now();
        (self.0.next_after(&now)? - now).to_std().ok()
    }
}

impl Schedule<Utc> for Ticks {
    fn next_tick(&mut self, _utc: &Utc) -> Option<Tick<Utc>> {
        let next = self.0.next_after(&Clock::system().now());
        // A tick in the past ends the worker; `None` would leave it waiting forever.
        Some(Tick::new(next.and_then(|at| u64::try_from(at.timestamp()).ok()).unwrap_or(0)))
    }
}

/// A run of a task.
pub type Run = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Calls `run` immediately and at each tick, never concurrently, until `stop`. Then waits for the run in progress.
pub async fn run_at_ticks<S>(name: &'static str, ticks: S, run: Run, stop: CancellationToken)
where
    S: Schedule<Utc> + Clone + Send + Unpin + 'static,
{
    let (mut pauses, running) = (Pauses::new(RESTARTS), Arc::new(Mutex::new(())));
    while !stop.is_cancelled() {
        let began = Instant::now();
        let worker = work(name, ticks.clone(), run.clone(), running.clone(), stop.clone());
        if AssertUnwindSafe(worker).catch_unwind().await.is_err() {
            tracing::error!(task = name, "a scheduler task's worker panicked; restarting it");
        }
        if began.elapsed() > STABLE_AFTER {
            pauses.reset();
        }
        tokio::select! { () = tokio::time::sleep(pauses.next_pause()) => {}, () = stop.cancelled() => {} }
    }
    let _ended = running.lock().await;
}

/// Runs the task immediately and at the ticks of a worker, until the worker ends or until `stop`.
async fn work<S>(name: &'static str, ticks: S, run: Run, running: Arc<Mutex<()>>, stop: CancellationToken)
where
    S: Schedule<Utc> + Send + Unpin + 'static,
{
    let context = WorkerContext::new(name);
    let first = run_exclusively(name, run.clone(), running.clone());
    let worker = WorkerBuilder::new(context.clone())
        .backend(CronScheduler::new(ticks))
        .build(move |_: Tick<Utc>| run_exclusively(name, run.clone(), running.clone()));
    let mut worker = join(first, worker.run()).map(|(_, ended)| ended).boxed();
    tokio::select! {
        // The worker is polled first, because a worker that has not started cannot be stopped.
        biased;
        ended = &mut worker => tracing::warn!(task = name, ?ended, "a scheduler task's worker ended; restarting it"),
        () = stop.cancelled() => {
            let _ = context.stop();
            let _ = worker.await;
        }
    }
}

/// Runs the task, unless a run is in progress. A panic ends the run, not its worker. If the worker ends, the run
/// continues.
fn run_exclusively(name: &'static str, run: Run, running: Arc<Mutex<()>>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let Ok(guard) = running.try_lock_owned() else { return };
        let task = async move {
            let _guard = guard;
            run().await;
        };
        if tokio::spawn(task).await.is_err() {
            tracing::error!(task = name, "a scheduler task panicked; it will run again");
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{sleep, timeout};

    use super::*;

    /// A schedule whose ticks are always late, so that each worker ends when it starts.
    #[derive(Clone)]
    struct Late;

    impl Schedule<Utc> for Late {
        fn next_tick(&mut self, _utc: &Utc) -> Option<Tick<Utc>> {
            Some(Tick::new(1))
        }
    }

    fn every_second() -> Ticks {
        Ticks::new("* * * * * *".parse().unwrap())
    }

    /// Returns a counter and a run that increments it and then runs `then`.
    fn counted<F>(then: impl Fn(usize) -> F + Send + Sync + 'static) -> (Arc<AtomicUsize>, Run)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runs = Arc::<AtomicUsize>::default();
        let counter = runs.clone();
        (runs, Arc::new(move || then(counter.fetch_add(1, Ordering::SeqCst)).boxed()))
    }

    /// Runs a task for a time. Returns the number of its runs.
    async fn runs_within<S>(time: Duration, ticks: S, (runs, run): (Arc<AtomicUsize>, Run)) -> usize
    where
        S: Schedule<Utc> + Clone + Send + Unpin + 'static,
    {
        let _ = timeout(time, run_at_ticks("test", ticks, run, CancellationToken::new())).await;
        runs.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_ends_is_restarted_and_runs_the_task_immediately() {
        let runs = runs_within(Duration::from_millis(360), Late, counted(async |_| ())).await;
        assert_eq!(runs, 4, "at the start, and after 50, 150 and 350 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_is_restarted() {
        #[derive(Clone)]
        struct Broken;
        impl Schedule<Utc> for Broken {
            fn next_tick(&mut self, _utc: &Utc) -> Option<Tick<Utc>> {
                panic!("a schedule")
            }
        }
        assert_eq!(runs_within(Duration::from_millis(360), Broken, counted(async |_| ())).await, 4);
    }

    // apalis-cron's timers use the real clock, so the tests below do as well. They wait for runs, however long these
    // take on a busy machine.

    /// Runs a task until it has run `count` times. Returns how long that took.
    async fn time_until(count: usize, ticks: Ticks, (runs, run): (Arc<AtomicUsize>, Run)) -> Duration {
        let (began, stop) = (Instant::now(), CancellationToken::new());
        let enough = async {
            while runs.load(Ordering::SeqCst) < count {
                sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
        };
        let both = join(run_at_ticks("test", ticks, run, stop.clone()), enough);
        assert!(timeout(MAX_WAIT, both).await.is_ok(), "{} of {count} runs", runs.load(Ordering::SeqCst));
        began.elapsed()
    }

    const MAX_WAIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_task_runs_at_each_tick() {
        let took = time_until(4, every_second(), counted(async |_| ())).await;
        assert!(took > Duration::from_secs(2), "the start and three ticks within {took:?}");
    }

    #[tokio::test]
    async fn a_task_that_panics_runs_at_its_next_tick() {
        let took = time_until(3, every_second(), counted(async |_| panic!("a task"))).await;
        assert!(took > Duration::from_secs(1), "the start and two ticks within {took:?}");
    }

    #[tokio::test]
    async fn ticks_during_a_run_are_dropped() {
        let (running, max_running) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let max = max_running.clone();
        let slow = counted(move |run| {
            let (running, max) = (running.clone(), max.clone());
            async move {
                max.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(if run == 1 { 2_500 } else { 0 })).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let took = time_until(3, every_second(), slow).await;
        assert_eq!(max_running.load(Ordering::SeqCst), 1, "never two at the same time");
        assert!(took > Duration::from_millis(2_500), "the third run waits for the second: {took:?}");
    }

    #[tokio::test]
    async fn a_blocked_process_makes_up_for_its_late_tick() {
        let blocking = counted(async |run| {
            if run == 1 {
                std::thread::sleep(Duration::from_millis(1_100));
            }
        });
        // The start, a tick, a restart after the late tick, and a tick that follows.
        time_until(4, every_second(), blocking).await;
    }

    #[tokio::test]
    async fn a_stop_ends_a_waiting_task_immediately_and_lets_a_run_end() {
        for (length, hour) in [(Duration::ZERO, "0 0 1 1 *"), (Duration::from_millis(1_500), "* * * * * *")] {
            let (stop, ended) = (CancellationToken::new(), Arc::<AtomicUsize>::default());
            let counter = ended.clone();
            let (runs, run) = counted(move |run| {
                let counter = counter.clone();
                async move {
                    sleep(if run == 0 { Duration::ZERO } else { length }).await;
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            });
            let task = tokio::spawn(run_at_ticks("test", Ticks::new(hour.parse().unwrap()), run, stop.clone()));
            sleep(Duration::from_millis(1_200)).await;
            stop.cancel();
            // The next tick of the first schedule is months away.
            timeout(MAX_WAIT, task).await.unwrap().unwrap();
            assert_eq!(ended.load(Ordering::SeqCst), runs.load(Ordering::SeqCst));
        }
    }
}
