//! `crier jobs retry | cancel`, by IDs or by filter. If the command is interrupted (Ctrl-C), each job is either unchanged
//! or completely changed ([`crier_jobs::change`]).

use std::io::{IsTerminal as _, Write as _};

use crier_domain::job::JobState;
use crier_jobs::change::{ChangeCounts, JobChange};
use crier_store::jobs::operate::{self, JobQuery};

use super::super::{CommandError, Context, Result, fail};
use super::not_found_message;
use crate::output::print_line;

/// Returns the word before the number of changed jobs.
const fn past_tense(change: JobChange) -> &'static str {
    match change {
        JobChange::Retry => "Retried",
        JobChange::Cancel => "Canceled",
    }
}

pub async fn retry(cx: &Context, ids: &[i64]) -> Result {
    change_by_ids(cx, JobChange::Retry, ids).await
}

pub async fn cancel(cx: &Context, ids: &[i64]) -> Result {
    change_by_ids(cx, JobChange::Cancel, ids).await
}

/// Changes each job separately, and reports those that cannot be changed at the end.
async fn change_by_ids(cx: &Context, change: JobChange, ids: &[i64]) -> Result {
    let mut rejections = Vec::new();
    for &id in ids {
        let Some(job) = operate::show(&mut cx.store.read().await?, id).await? else {
            rejections.push(not_found_message(id));
            continue;
        };
        match change.apply_with_retries(&cx.store, &job).await? {
            None if change == JobChange::Retry => {
                print_line(format_args!("Job {id} ({}) is ready to run again.", job.kind))
            }
            None => print_line(format_args!("Canceled job {id} ({}).", job.kind)),
            Some(reason) => {
                let current = operate::show(&mut cx.store.read().await?, id).await?;
                rejections.push(change.rejection(&current.unwrap_or(job), reason));
            }
        }
    }
    if rejections.is_empty() { Ok(()) } else { fail(rejections.join("; ")) }
}

/// Retries all dead jobs that match the filter.
pub async fn retry_dead(cx: &Context, filter: &JobQuery) -> Result {
    let counts = change_matching(cx, JobChange::Retry, std::slice::from_ref(filter)).await?;
    report(JobChange::Retry, &counts)
}

/// Cancels all jobs that match the filter and have not started.
pub async fn cancel_all(cx: &Context, filter: &JobQuery) -> Result {
    // Scheduled jobs first, because the second pass finds those that become ready meanwhile.
    let states = filter.state.map_or(vec![JobState::Scheduled, JobState::Ready], |state| vec![state]);
    let with_state = |state| JobQuery { state: Some(state), ..filter.clone() };
    let counts =
        change_matching(cx, JobChange::Cancel, &states.into_iter().map(with_state).collect::<Vec<_>>()).await?;
    let running = operate::count(&mut cx.store.read().await?, &with_state(JobState::Running)).await?;
    if running > 0 {
        print_line(format_args!("Not canceled, because they are running: {running}."));
    }
    report(JobChange::Cancel, &counts)
}

async fn change_matching(
    cx: &Context,
    change: JobChange,
    filters: &[JobQuery],
) -> std::result::Result<ChangeCounts, CommandError> {
    let mut counts = ChangeCounts::default();
    for filter in filters {
        let mut after = 0;
        while let Some(last) = change.apply_next(&cx.store, filter, after, &mut counts).await? {
            after = last;
            progress(change, &counts);
        }
    }
    Ok(counts)
}

/// Prints the progress if stderr is a terminal.
fn progress(change: JobChange, counts: &ChangeCounts) {
    let mut out = std::io::stderr().lock();
    if out.is_terminal() {
        let skipped: usize = counts.skipped.values().sum();
        let _ = write!(out, "\r{}: {}, skipped: {skipped}", past_tense(change), counts.changed);
        let _ = out.flush();
    }
}

fn report(change: JobChange, counts: &ChangeCounts) -> Result {
    let mut out = std::io::stderr();
    if out.is_terminal() && (counts.changed > 0 || !counts.skipped.is_empty()) {
        let _ = writeln!(out);
    }
    print_line(format_args!("{}: {}.", past_tense(change), counts.changed));
    for (reason, jobs) in &counts.skipped {
        print_line(format_args!("Skipped: {jobs}, because {reason}."));
    }
    match counts.failed() {
        0 => Ok(()),
        jobs => fail(format!("{jobs} jobs could not be changed; see the log above")),
    }
}
