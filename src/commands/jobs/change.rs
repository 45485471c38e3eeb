//! `crier jobs retry | cancel`, by ids or by filter.
//!
//! A job and its subject change in one transaction. Many jobs are changed in batches of one transaction each, to keep
//! locks short; if one job fails its batch, the jobs of that batch are changed one by one. A command that is
//! interrupted (Ctrl-C) leaves each job either unchanged or completely changed.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use chrono::SubsecRound as _;
use crier_common::domain::job::State;
use crier_common::store::jobs::operate::{self, Filter, JobRow};
use crier_common::store::{StoreError, Tx};
use crier_common::subjects;

use super::super::{CommandError, Context, Result, refused};
use super::not_there;
use crate::output::line;

/// Jobs per transaction; on SQLite it blocks all other writers.
const BATCH: i64 = 50;
/// Maximum attempts to change one job after serialization failures.
const TRIES: usize = 3;

type Stored<T> = std::result::Result<T, StoreError>;

/// The change to make to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Retry,
    Cancel,
}

/// Why a job was not changed.
type Left = &'static str;

const NOTHING_LEFT: Left = "what it acts on has nothing left to do";
const OTHER_JOB: Left = "what it acts on has another job";
const STATE: Left = "it is in another state by now";
const FAILED: Left = "the database refused it";

impl Change {
    const fn done(self) -> &'static str {
        match self {
            Self::Retry => "Run again",
            Self::Cancel => "Cancelled",
        }
    }

    /// Changes the job. If it returns a reason, the caller must roll the transaction back.
    async fn make(self, tx: &mut Tx, job: &JobRow) -> Stored<Option<Left>> {
        subjects::hold(tx, job.kind, job.subject_id).await?;
        Ok(match self {
            Self::Retry => match operate::retry(tx, job.id).await? {
                Some((kind, subject)) => (!subjects::job_revived(tx, kind, subject).await?).then_some(NOTHING_LEFT),
                None => match operate::show(tx, job.id).await?.map(|job| job.state) {
                    Some(State::Dead | State::Cancelled) => Some(OTHER_JOB),
                    _ => Some(STATE),
                },
            },
            Self::Cancel => match operate::cancel(tx, job.id).await? {
                Some((kind, subject)) => subjects::job_cancelled(tx, kind, subject).await.map(|()| None)?,
                None => Some(STATE),
            },
        })
    }

    /// Changes all jobs in one transaction, or none of them; then it returns the reason for the first unchanged job.
    async fn together(self, cx: &Context, jobs: &[JobRow]) -> Stored<Option<Left>> {
        let mut tx = cx.store.begin().await?;
        for job in jobs {
            if let Some(left) = self.make(&mut tx, job).await? {
                tx.rollback().await?;
                return Ok(Some(left));
            }
        }
        tx.commit().await?;
        Ok(None)
    }

    /// Changes one job; retries if it conflicts with a worker.
    async fn alone(self, cx: &Context, job: &JobRow) -> Stored<Option<Left>> {
        let mut tries = 1;
        loop {
            match self.together(cx, std::slice::from_ref(job)).await {
                Err(error) if error.is_serialization() && tries < TRIES => tries += 1,
                ended => return ended,
            }
        }
    }

    /// Returns the message for a job that was not changed, with an alternative.
    fn refusal(self, job: &JobRow, left: Left) -> String {
        let (id, kind, state) = (job.id, job.kind, job.state);
        match (self, state) {
            _ if left != STATE => format!("job {id} is left as it is: {left}"),
            (_, State::Running) => {
                format!(
                    "job {id} runs, and what has begun goes on; `crier jobs pause {kind}` keeps others from beginning"
                )
            }
            (Self::Retry, State::Scheduled | State::Ready) => {
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
            refusals.push(not_there(id));
            continue;
        };
        match change.alone(cx, &job).await? {
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
pub async fn retry_dead(cx: &Context, filter: &Filter) -> Result {
    let tally = all(cx, Change::Retry, std::slice::from_ref(filter)).await?;
    tally.tell(Change::Retry)
}

/// Cancels all jobs that match the filter and have not started.
pub async fn cancel_all(cx: &Context, filter: &Filter) -> Result {
    // Scheduled jobs first: those that become ready meanwhile are found in the second pass.
    let states = filter.state.map_or(vec![State::Scheduled, State::Ready], |state| vec![state]);
    let of = |state| Filter { state: Some(state), ..filter.clone() };
    let tally = all(cx, Change::Cancel, &states.into_iter().map(of).collect::<Vec<_>>()).await?;
    let running = operate::count(&mut cx.store.read().await?, &of(State::Running)).await?;
    if running > 0 {
        line(format_args!("Running, and not cancelled: {running}. What has begun goes on."));
    }
    tally.tell(Change::Cancel)
}

async fn all(cx: &Context, change: Change, filters: &[Filter]) -> std::result::Result<Tally, CommandError> {
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
    if matches!(change.together(cx, jobs).await, Ok(None)) {
        tally.changed += jobs.len();
        return Ok(());
    }
    for job in jobs {
        match change.alone(cx, job).await {
            Ok(None) => tally.changed += 1,
            Ok(Some(left)) => *tally.left.entry(left).or_default() += 1,
            Err(error) if error.is_unavailable() => return Err(error.into()),
            Err(error) => {
                tracing::error!(job = job.id, %error, "a job could not be changed");
                *tally.left.entry(FAILED).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Counts of changed and unchanged jobs.
#[derive(Default)]
struct Tally {
    changed: usize,
    left: BTreeMap<Left, usize>,
}

impl Tally {
    /// Prints the progress if stderr is a terminal.
    fn progress(&self, change: Change) {
        let mut out = std::io::stderr().lock();
        if out.is_terminal() {
            let _ = write!(out, "\r{}: {}, left: {}", change.done(), self.changed, self.left.values().sum::<usize>());
            let _ = out.flush();
        }
    }

    fn tell(&self, change: Change) -> Result {
        let mut out = std::io::stderr();
        if out.is_terminal() && self.changed + self.left.len() > 0 {
            let _ = writeln!(out);
        }
        line(format_args!("{}: {}.", change.done(), self.changed));
        for (why, jobs) in &self.left {
            line(format_args!("Left: {jobs}, since {why}."));
        }
        match self.left.get(FAILED) {
            Some(jobs) => refused(format!("{jobs} jobs could not be changed; the log above says why")),
            None => Ok(()),
        }
    }
}
