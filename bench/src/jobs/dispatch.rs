//! The time to make a due job ready, in a table with few and with many scheduled jobs, and the time of the scheduler's
//! other tasks on the same tables.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState, NewJob};
use crier_scheduler::tasks;
use crier_store::jobs;

use super::super::BenchError;
use super::super::database::{insert_jobs, run_maintenance};
use super::super::environment::BenchEnvironment;
use super::super::figure::{Figure, median};
use super::super::roles;
use super::{Bench, Figures};

const NAME: &str = "dispatch";
const SMALL_TABLE_ROWS: i64 = 1_000;
/// Rows per transaction.
const CHUNK: usize = 10_000;
/// The numbers of jobs that become due together.
const DUE_BATCH_SIZES: [u32; 3] = [1, 10, 100];
/// The total number of due jobs for each batch size, and the minimum number of batches.
const TOTAL_DUE_JOBS: u32 = 200;
const MIN_BATCHES: u32 = 10;
/// The number of runs of each of the other tasks.
const RUNS_PER_TASK: usize = 5;

pub async fn run(bench: &Bench) -> Figures {
    let rows = i64::from(bench.args.rows);
    let (small_table, large_table) = (measure_table(bench, SMALL_TABLE_ROWS).await?, measure_table(bench, rows).await?);
    let mut figures = Vec::new();
    for (small, large) in small_table.iter().zip(&large_table) {
        figures.push(Figure::time(NAME, format!("{}, {SMALL_TABLE_ROWS} rows", small.0), small.1));
        figures.push(Figure::time(NAME, format!("{}, {rows} rows", large.0), large.1));
        figures.push(Figure::ratio(NAME, format!("{}, ratio", small.0), large.1, small.1));
    }
    Ok(figures)
}

/// Names of the measurements with their median times.
type Costs = Vec<(String, Duration)>;

async fn measure_table(bench: &Bench, rows: i64) -> Result<Costs, BenchError> {
    bench.show_progress(format_args!("dispatch: writing {rows} rows"));
    let environment = bench.create_environment().await?;
    insert_rows(&environment, rows).await?;
    bench.show_progress(format_args!("dispatch: {rows} rows"));
    // Without a listener, the notifier would have no capacity, and no job would become ready.
    environment.notifier().buffer(JobKind::Noop);
    let mut costs = Costs::new();
    let mut subject = rows;
    for count in DUE_BATCH_SIZES {
        let mut times = Vec::new();
        for _ in 0..(TOTAL_DUE_JOBS / count).max(MIN_BATCHES) {
            enqueue_due(&environment, subject, i64::from(count)).await?;
            subject += i64::from(count);
            let began = Instant::now();
            tasks::dispatch::run(&roles::scheduler(&environment)).await?;
            times.push(began.elapsed() / count);
        }
        costs.push((format!("each of {count} due"), median(times)));
    }
    costs.push(("task measure".to_owned(), measure_task(&environment, async |s| tasks::measure::run(s).await).await?));
    costs.push(("task rescue".to_owned(), measure_task(&environment, async |s| tasks::rescue::run(s).await).await?));
    costs
        .push(("task renotify".to_owned(), measure_task(&environment, async |s| tasks::renotify::run(s).await).await?));
    Ok(costs)
}

async fn measure_task<T>(
    environment: &BenchEnvironment,
    task: impl AsyncFn(&crier_scheduler::Scheduler) -> crier_store::Result<T>,
) -> Result<Duration, BenchError> {
    let (scheduler, mut times) = (roles::scheduler(environment), Vec::new());
    for _ in 0..RUNS_PER_TASK {
        let began = Instant::now();
        task(&scheduler).await?;
        times.push(began.elapsed());
    }
    Ok(median(times))
}

/// Inserts jobs that are due far in the future, each chunk a second later than the previous one.
async fn insert_rows(environment: &BenchEnvironment, rows: i64) -> Result<(), BenchError> {
    let store = environment.api();
    let mut run_at = store.now() + TimeDelta::days(30);
    for first in (0..rows).step_by(CHUNK) {
        let chunk = first..rows.min(first + i64::try_from(CHUNK).unwrap_or(i64::MAX));
        let mut tx = store.begin().await?;
        insert_jobs(&mut tx, JobKind::Noop, JobState::Scheduled, chunk, run_at).await?;
        tx.commit().await?;
        run_at += TimeDelta::seconds(1);
    }
    Ok(run_maintenance(store.db()).await?)
}

async fn enqueue_due(environment: &BenchEnvironment, first: i64, count: i64) -> Result<(), BenchError> {
    let mut tx = environment.api_one_hour_behind().begin().await?;
    let due = tx.now + TimeDelta::seconds(1);
    for subject in first..first + count {
        jobs::enqueue(&mut tx, &NewJob::new(JobKind::Noop, subject, due)).await?;
    }
    Ok(tx.commit().await?)
}
