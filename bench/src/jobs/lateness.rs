//! The lateness of many jobs that are due at the same time, and their memory.

use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState};

use super::super::database::{insert_jobs, run_maintenance};
use super::super::figure::Figure;
use super::super::roles;
use super::starts::{self, Starts};
use super::{Bench, Figures, resident};

const NAME: &str = "lateness";
const JOBS: usize = 10_000;
/// The time between the writing of the jobs and their due time.
const LEAD_TIME: TimeDelta = TimeDelta::seconds(2);

pub async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let count = bench.jobs(JOBS);
    let subjects = 0..i64::try_from(count).unwrap_or(i64::MAX);
    let starts = Starts::new(0, count, environment.api().now());
    let roles = starts::roles(bench, &environment, JobKind::Noop, bench.slots(), &starts)?;
    // Writing all jobs takes less time than this, for any number of jobs.
    let due = environment.api().now() + LEAD_TIME + TimeDelta::milliseconds(subjects.end / 20);
    let mut tx = environment.api().begin().await?;
    insert_jobs(&mut tx, JobKind::Noop, JobState::Scheduled, subjects, due).await?;
    tx.commit().await?;
    run_maintenance(environment.api().db()).await?;
    let before = resident::now();
    resident::reset_peak();
    starts.wait(count).await?;
    roles::wait_until_settled(environment.api(), JobKind::Noop).await?;
    let (after, peak) = (resident::now(), resident::peak());
    roles.stop().await;
    let mut figures = Figure::spread(NAME, &format!("{count} jobs for one moment"), starts.delays_after(due));
    figures.extend(Figure::size(NAME, "memory before", before));
    figures.extend(Figure::size(NAME, "memory, peak", peak));
    figures.extend(Figure::size(NAME, "memory after", after));
    Ok(figures)
}
