//! The time until an idle worker starts a job. Jobs are enqueued one at a time, with pauses.

use std::time::{Duration, Instant};

use crier_domain::job::{JobKind, NewJob};
use crier_store::jobs;

use super::super::figure::Figure;
use super::starts::{self, Starts};
use super::{Bench, Figures};

const NAME: &str = "pickup";
const JOBS: usize = 2_000;

pub async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let count = bench.jobs(JOBS);
    let starts = Starts::new(0, count, environment.api().now());
    let roles = starts::roles(bench, &environment, JobKind::Noop, bench.slots(), &starts)?;
    let (mut from_call, mut from_commit) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for started in 0..count {
        let subject = i64::try_from(started).unwrap_or(i64::MAX);
        tokio::time::sleep(pause()).await;
        let called = Instant::now();
        let mut tx = environment.api().begin().await?;
        let job = NewJob::new(JobKind::Noop, subject, tx.now);
        jobs::enqueue(&mut tx, &job).await?;
        tx.commit().await?;
        // `commit` notifies the worker, so the job may start before this line. Its latency then counts as zero.
        let committed = Instant::now();
        starts.wait(started + 1).await?;
        let began_at = starts.of_subject(subject).unwrap_or(committed);
        from_call.push(began_at - called);
        from_commit.push(began_at.saturating_duration_since(committed));
        roles.wait_until_idle().await;
    }
    roles.stop().await;
    let mut figures = Figure::spread(NAME, "commit to start", from_commit);
    figures.extend(Figure::spread(NAME, "call to start", from_call));
    Ok(figures)
}

/// Returns a random pause of 5 to 20 ms.
fn pause() -> Duration {
    Duration::from_micros(5_000 + crier_base::random::u64() % 15_000)
}
