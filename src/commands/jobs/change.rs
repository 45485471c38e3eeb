//! `crier jobs retry | cancel`, by ids or by filter. A command that is interrupted (Ctrl-C) leaves each job either
//! unchanged or completely changed ([`crier_jobs::change`]).

use std::io::{IsTerminal as _, Write as _};

use crier_domain::job::JobState;
use crier_jobs::change::{JobChange, Tally};
use crier_store::jobs::operate::{self, JobQuery};

use super::super::{CommandError, Context, Result, refused};
use super::not_found_message;
use crate::output::line;

const fn done(change: JobChange) -> &'static str {
    match change {
        JobChange::Retry => "Run again",
        JobChange::Cancel => "Cancelled",
    }
}

pub async fn retry(cx: &Context, ids: &[i64]) -> Result {
    by_ids(cx, JobChange::Retry, ids).await
}

pub async fn cancel(cx: &Context, ids: &[i64]) -> Result {
    by_ids(cx, JobChange::Cancel, ids).await
}

/// Changes each id separately; reports the refused ones at the end.
async fn by_ids(cx: &Context, change: JobChange, ids: &[i64]) -> Result {
    let mut refusals = Vec::new();
    for &id in ids {
        let Some(job) = operate::show(&mut cx.store.read().await?, id).await? else {
            refusals.push(not_found_message(id));
            continue;
        };
        match change.apply_with_retries(&cx.store, &job).await? {
            None if change == JobChange::Retry => line(format_args!("Job {id} ({}) is ready again.", job.kind)),
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
    let tally = change_matching(cx, JobChange::Retry, std::slice::from_ref(filter)).await?;
    report(JobChange::Retry, &tally)
}

/// Cancels all jobs that match the filter and have not started.
pub async fn cancel_all(cx: &Context, filter: &JobQuery) -> Result {
    // Scheduled jobs first: those that become ready meanwhile are found in the second pass.
    let states = filter.state.map_or(vec![JobState::Scheduled, JobState::Ready], |state| vec![state]);
    let of = |state| JobQuery { state: Some(state), ..filter.clone() };
    let tally = change_matching(cx, JobChange::Cancel, &states.into_iter().map(of).collect::<Vec<_>>()).await?;
    let running = operate::count(&mut cx.store.read().await?, &of(JobState::Running)).await?;
    if running > 0 {
        line(format_args!("Running, and not cancelled: {running}. What has begun goes on."));
    }
    report(JobChange::Cancel, &tally)
}

async fn change_matching(
    cx: &Context,
    change: JobChange,
    filters: &[JobQuery],
) -> std::result::Result<Tally, CommandError> {
    let mut tally = Tally::default();
    for filter in filters {
        let mut after = 0;
        while let Some(last) = change.apply_next(&cx.store, filter, after, &mut tally).await? {
            after = last;
            progress(change, &tally);
        }
    }
    Ok(tally)
}

/// Prints the progress if stderr is a terminal.
fn progress(change: JobChange, tally: &Tally) {
    let mut out = std::io::stderr().lock();
    if out.is_terminal() {
        let _ = write!(out, "\r{}: {}, left: {}", done(change), tally.changed, tally.skipped.values().sum::<usize>());
        let _ = out.flush();
    }
}

fn report(change: JobChange, tally: &Tally) -> Result {
    let mut out = std::io::stderr();
    if out.is_terminal() && tally.changed + tally.skipped.len() > 0 {
        let _ = writeln!(out);
    }
    line(format_args!("{}: {}.", done(change), tally.changed));
    for (why, jobs) in &tally.skipped {
        line(format_args!("Left: {jobs}, since {why}."));
    }
    match tally.failed() {
        0 => Ok(()),
        jobs => refused(format!("{jobs} jobs could not be changed; the log above says why")),
    }
}
