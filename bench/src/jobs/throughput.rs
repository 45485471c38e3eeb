//! No-op jobs per second: enqueued in one transaction each, as by the API; processed from a backlog; both at the same
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crier_domain::job::{JobKind, NewJob};
use crier_queue::memory::CAPACITY;
use crier_store::jobs;
use tokio::task::JoinSet;

use super::super::BenchError;
use super::super::environment::BenchEnvironment;
use super::super::figure::Figure;
use super::super::roles;
use super::starts::{self, Starts};
use super::{Bench, Figures};

const NAME: &str = "throughput";
const CONCURRENCY_LEVELS: [usize; 3] = [1, 10, 100];
/// The number of jobs per slot in the first run.
const JOBS_PER_SLOT: usize = 200;
/// A shorter run is repeated with more jobs.
const MIN_DURATION: Duration = Duration::from_secs(2);
const TARGET_DURATION: Duration = Duration::from_secs(3);

pub async fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    for clients in CONCURRENCY_LEVELS {
        bench.show_progress(format_args!("throughput: {clients} enqueue"));
        let environment = bench.create_environment().await?;
        let began = Instant::now();
        let count = enqueue(&environment, clients, bench.jobs(usize::MAX)).await?;
        figures.push(Figure::rate(NAME, format!("enqueue, {clients} at once"), "jobs/s", count, began.elapsed()));
    }
    for slots in CONCURRENCY_LEVELS {
        bench.show_progress(format_args!("throughput: {slots} run"));
        let (count, took) = process(bench, slots).await?;
        figures.push(Figure::rate(NAME, format!("process, {slots} at once"), "jobs/s", count, took));
    }
    bench.show_progress("throughput: 100 enqueue, 100 run");
    let (count, took) = enqueue_and_process(bench, 100).await?;
    figures.push(Figure::rate(NAME, "enqueue and process, 100 at once", "jobs/s", count, took));
    Ok(figures)
}

/// Enqueues jobs from concurrent clients for a few seconds, at most `max_jobs`. Returns their number.
async fn enqueue(environment: &BenchEnvironment, clients: usize, max_jobs: usize) -> Result<usize, BenchError> {
    let max_jobs = i64::try_from(max_jobs).unwrap_or(i64::MAX);
    let (next, began) = (Arc::new(AtomicI64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (store, next) = (environment.api().clone(), next.clone());
        tasks.spawn(async move {
            let mut count = 0;
            while began.elapsed() < TARGET_DURATION {
                let subject = next.fetch_add(1, Ordering::Relaxed);
                if subject >= max_jobs {
                    break;
                }
                roles::enqueue(&store, subject).await?;
                count += 1;
            }
            Ok::<usize, BenchError>(count)
        });
    }
    let mut count = 0;
    while let Some(done) = tasks.join_next().await {
        count += done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??;
    }
    Ok(count)
}

/// Processes a backlog that exists before the worker starts. Returns the number of jobs, and the time from the start of
/// the worker until all are settled. The backlog fits into the notifier, because any excess would wait for the scheduler.
async fn process(bench: &Bench, slots: usize) -> Result<(usize, Duration), BenchError> {
    let mut count = bench.jobs(JOBS_PER_SLOT * slots).min(CAPACITY);
    loop {
        let environment = bench.create_environment().await?;
        environment.notifier().buffer(JobKind::Noop);
        write_backlog(&environment, count).await?;
        let starts = Starts::new(0, count, environment.api().now());
        let began = Instant::now();
        let roles = starts::roles(bench, &environment, JobKind::Noop, slots, &starts)?;
        starts.wait(count).await?;
        roles::wait_until_settled(environment.api(), JobKind::Noop).await?;
        let took = began.elapsed();
        roles.stop().await;
        if took >= MIN_DURATION || count == CAPACITY || bench.args.jobs.is_some() {
            return Ok((count, took));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "clamped"
        )]
        let next_count = (count as f64 * TARGET_DURATION.as_secs_f64() / took.as_secs_f64()) as usize;
        count = next_count.clamp(count, CAPACITY);
    }
}

/// Writes ready jobs. The notifier buffers their IDs until the worker starts.
async fn write_backlog(environment: &BenchEnvironment, count: usize) -> Result<(), BenchError> {
    let mut left = 0..i64::try_from(count).unwrap_or(i64::MAX);
    while !left.is_empty() {
        let mut tx = environment.api().begin().await?;
        for subject in left.by_ref().take(1_000) {
            let job = NewJob::new(JobKind::Noop, subject, tx.now);
            jobs::enqueue(&mut tx, &job).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

async fn enqueue_and_process(bench: &Bench, concurrency: usize) -> Result<(usize, Duration), BenchError> {
    let environment = bench.create_environment().await?;
    let max_jobs = bench.jobs(CAPACITY).min(CAPACITY);
    let starts = Starts::new(0, max_jobs, environment.api().now());
    let roles = starts::roles(bench, &environment, JobKind::Noop, concurrency, &starts)?;
    let began = Instant::now();
    let count = enqueue(&environment, concurrency, max_jobs).await?;
    starts.wait(count).await?;
    roles::wait_until_settled(environment.api(), JobKind::Noop).await?;
    let took = began.elapsed();
    roles.stop().await;
    Ok((count, took))
}
