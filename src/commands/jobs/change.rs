//! `crier jobs retry | cancel`, by ids or by filter.
//!
//! A job and its subject change in one transaction. Many jobs are changed in batches of one transaction each, to keep
//! locks short; if one job fails its batch, the jobs of that batch are changed one by one. A command that is
//! interrupted (Ctrl-C) leaves each job either unchanged or completely changed.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use chrono::SubsecRound as _;
use crier_common::domain::job::JobState;
use crier_common::jobs;
use crier_common::store::jobs::operate::{self, JobQuery, JobRow};
use crier_common::store::{StoreError, Tx};

use super::super::{CommandError, Context, Result, refused};
use super::not_found_message;
use crate::output::line;

/// Jobs per transaction; on SQLite it blocks all other writers.
const BATCH: i64 = 50;
/// Maximum attempts to change one job after serialization failures.
const MAX_ATTEMPTS: usize = 3;

type Stored<T> = std::result::Result<T, StoreError>;

/// The change to make to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Retry,
    Cancel,
}

/// Why a job was not changed.
type SkipReason = &'static str;

const NOTHING_LEFT: SkipReason = "what it acts on has nothing left to do";
const OTHER_JOB: SkipReason = "what it acts on has another job";
const STATE: SkipReason = "it is in another state by now";
const FAILED: SkipReason = "the database refused it";

impl Change {
    const fn done(self) -> &'static str {
        match self {
            Self::Retry => "Run again",
            Self::Cancel => "Cancelled",
        }
    }

    /// Changes the job. If it returns a reason, the caller must roll the transaction back.
    async fn apply(self, tx: &mut Tx, job: &JobRow) -> Stored<Option<SkipReason>> {
        jobs::lock(tx, job.kind, job.subject_id).await?;
        Ok(match self {
            Self::Retry => match operate::retry(tx, job.id).await? {
                Some((kind, subject)) => (!jobs::on_retry(tx, kind, subject).await?).then_some(NOTHING_LEFT),
                None => match operate::show(tx, job.id).await?.map(|job| job.state) {
                    Some(JobState::Dead | JobState::Cancelled) => Some(OTHER_JOB),
                    _ => Some(STATE),
                },
            },
            Self::Cancel => match operate::cancel(tx, job.id).await? {
                Some((kind, subject)) => jobs::on_cancelled(tx, kind, subject).await.map(|()| None)?,
                None => Some(STATE),
            },
        })
    }

    /// Changes all jobs in one transaction, or none of them; then it returns the reason for the first unchanged job.
    async fn apply_all(self, cx: &Context, jobs: &[JobRow]) -> Stored<Option<SkipReason>> {
        let mut tx = cx.store.begin().await?;
        for job in jobs {
            if let Some(left) = self.apply(&mut tx, job).await? {
                tx.rollback().await?;
                return Ok(Some(left));
            }
        }
        tx.commit().await?;
        Ok(None)
    }

    /// Changes one job; retries if it conflicts with a worker.
    async fn apply_with_retries(self, cx: &Context, job: &JobRow) -> Stored<Option<SkipReason>> {
        let mut tries = 1;
        loop {
            match self.apply_all(cx, std::slice::from_ref(job)).await {
                Err(error) if error.is_serialization() && tries < MAX_ATTEMPTS => tries += 1,
                ended => return ended,
            }
        }
    }

    /// Returns the message for a job that was not changed, with an alternative.
    fn refusal(self, job: &JobRow, left: SkipReason) -> String {
        let (id, kind, state) = (job.id, job.kind, job.state);
        match (self, state) {
            _ if left != STATE => format!("job {id} is left as it is: {left}"),
            (_, JobState::Running) => {
                format!(
                    "job {id} runs, and what has begun goes on; `crier jobs pause {kind}` keeps others from beginning"
                )
            }
            (Self::Retry, JobState::Scheduled | JobState::Ready) => {
                format!("job {id} is {state}: it runs by itself, due {}", job.run_at.trunc_subsecs(0))
            }
            (Self::Retry, _) => format!("job {id} is {state}: only dead and cancelled jobs can be run again"),
            (Self::Cancel, _) => format!("job {id} is {state}: only what has not begun can be cancelled"),
        }
    }
}

pub async fn retry(cx: &Context, ids: &[i64]) -> Result {
    by_ids(cx, Change::Retry, ids).await
}

pub async fn cancel(cx: &Context, ids: &[i64]) -> Result {
    by_ids(cx, Change::Cancel, ids).await
}

/// Changes each id separately; reports the refused ones at the end.
async fn by_ids(cx: &Context, change: Change, ids: &[i64]) -> Result {
    let mut refusals = Vec::new();
    for &id in ids {
        let Some(job) = operate::show(&mut cx.store.read().await?, id).await? else {
            refusals.push(not_found_message(id));
            continue;
        };
        match change.apply_with_retries(cx, &job).await? {
            None if change == Change::Retry => line(format_args!("Job {id} ({}) is ready again.", job.kind)),
            None => line(format_args!("Cancelled job {id} ({}).", job.kind)),
            Some(left) => {
                let now = operate::show(&mut cx.store.read().await?, id).await?;
                refusals.push(change.refusal(&now.unwrap_or(job), left));
            }
        }
    }
    if refusals.is_empty() { Ok(()) } else { refused(refusals.join("\n       ")) }
}

/// Retries all dead jobs that match the filter.
pub async fn retry_dead(cx: &Context, filter: &JobQuery) -> Result {
    let tally = change_matching(cx, Change::Retry, std::slice::from_ref(filter)).await?;
    tally.report(Change::Retry)
}

/// Cancels all jobs that match the filter and have not started.
pub async fn cancel_all(cx: &Context, filter: &JobQuery) -> Result {
    // Scheduled jobs first: those that become ready meanwhile are found in the second pass.
    let states = filter.state.map_or(vec![JobState::Scheduled, JobState::Ready], |state| vec![state]);
    let of = |state| JobQuery { state: Some(state), ..filter.clone() };
    let tally = change_matching(cx, Change::Cancel, &states.into_iter().map(of).collect::<Vec<_>>()).await?;
    let running = operate::count(&mut cx.store.read().await?, &of(JobState::Running)).await?;
    if running > 0 {
        line(format_args!("Running, and not cancelled: {running}. What has begun goes on."));
    }
    tally.report(Change::Cancel)
}

async fn change_matching(
    cx: &Context,
    change: Change,
    filters: &[JobQuery],
) -> std::result::Result<Tally, CommandError> {
    let mut tally = Tally::default();
    for filter in filters {
        let mut after = 0;
        loop {
            let mut jobs = operate::next(&mut cx.store.read().await?, filter, after, BATCH).await?;
            let Some(last) = jobs.last() else { break };
            after = last.id;
            // The lock order of workers that settle jobs, as far as it is known here.
            jobs.sort_by_key(|job| (job.kind, job.subject_id));
            batch(cx, change, &jobs, &mut tally).await?;
            tally.progress(change);
        }
    }
    Ok(tally)
}

async fn batch(cx: &Context, change: Change, jobs: &[JobRow], tally: &mut Tally) -> Result {
    if matches!(change.apply_all(cx, jobs).await, Ok(None)) {
        tally.changed += jobs.len();
        return Ok(());
    }
    for job in jobs {
        match change.apply_with_retries(cx, job).await {
            Ok(None) => tally.changed += 1,
            Ok(Some(left)) => *tally.skipped.entry(left).or_default() += 1,
            Err(error) if error.is_unavailable() => return Err(error.into()),
            Err(error) => {
                tracing::error!(job = job.id, %error, "a job could not be changed");
                *tally.skipped.entry(FAILED).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Counts of changed and unchanged jobs.
#[derive(Default)]
struct Tally {
    changed: usize,
    skipped: BTreeMap<SkipReason, usize>,
}

impl Tally {
    /// Prints the progress if stderr is a terminal.
    fn progress(&self, change: Change) {
        let mut out = std::io::stderr().lock();
        if out.is_terminal() {
            let _ =
                write!(out, "\r{}: {}, left: {}", change.done(), self.changed, self.skipped.values().sum::<usize>());
            let _ = out.flush();
        }
    }

    fn report(&self, change: Change) -> Result {
        let mut out = std::io::stderr();
        if out.is_terminal() && self.changed + self.skipped.len() > 0 {
            let _ = writeln!(out);
        }
        line(format_args!("{}: {}.", change.done(), self.changed));
        for (why, jobs) in &self.skipped {
            line(format_args!("Left: {jobs}, since {why}."));
        }
        match self.skipped.get(FAILED) {
            Some(jobs) => refused(format!("{jobs} jobs could not be changed; the log above says why")),
            None => Ok(()),
        }
    }
}
