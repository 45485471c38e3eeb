//! `crier jobs list | show | kinds | pause | resume`, and in [`change`] `retry | cancel`.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobAttempt, JobKind, JobState};
use crier_jobs as jobs;
use crier_store::jobs::operate::{self, JobQuery, JobRow};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Result, fail};
use crate::cli::{JobFilter, JobsCommand};
use crate::output::{output_time, print_json, print_line, print_rows, shortened};

pub(super) mod change;

pub async fn run(cx: &Context, command: JobsCommand) -> Result {
    match command {
        JobsCommand::List { which, state, limit, format } => list(cx, &which, state, limit, format.json).await,
        JobsCommand::Show { id, json } => show(cx, id, json).await,
        JobsCommand::Kinds(format) => kinds(cx, format.json).await,
        JobsCommand::Retry { ids, dead: false, .. } => change::retry(cx, &ids).await,
        JobsCommand::Retry { which, .. } => change::retry_dead(cx, &filter(cx, &which, Some(JobState::Dead))).await,
        JobsCommand::Cancel { ids, which, state } if ids.is_empty() => {
            change::cancel_all(cx, &filter(cx, &which, state)).await
        }
        JobsCommand::Cancel { ids, .. } => change::cancel(cx, &ids).await,
        JobsCommand::Pause { kind } => {
            let mut tx = cx.store.begin().await?;
            operate::pause_kind(&mut tx, kind).await?;
            tx.commit().await?;
            print_line(format_args!(
                "Paused {kind}: no new jobs of this kind start. To resume: crier jobs resume {kind}"
            ));
            Ok(())
        }
        JobsCommand::Resume { kind } => {
            let mut tx = cx.store.begin().await?;
            if !operate::resume_kind(&mut tx, kind).await? {
                return fail(format!("{kind} is not paused; see `crier jobs kinds`"));
            }
            tx.commit().await?;
            print_line(format_args!("Resumed {kind}."));
            Ok(())
        }
    }
}

fn filter(cx: &Context, which: &JobFilter, state: Option<JobState>) -> JobQuery {
    let created_before = which.older_than.map(|age| cx.store.now() - age);
    JobQuery { kind: which.kind, state, lane: which.lane.clone(), created_before }
}

/// A row of the printed job table; `show` and `--json` have the rest.
#[derive(Serialize)]
struct JobLine {
    id: i64,
    kind: JobKind,
    state: &'static str,
    lane: Option<String>,
    attempt: String,
    age: String,
    due: String,
    last_error: Option<String>,
}

/// Maximum number of characters in the table.
const MAX_LANE_CHARS: usize = 18;
const MAX_ERROR_CHARS: usize = 80;

async fn list(cx: &Context, which: &JobFilter, state: Option<JobState>, limit: i64, json: bool) -> Result {
    let jobs = operate::list(&mut cx.store.read().await?, &filter(cx, which, state), limit).await?;
    if json {
        print_rows(&jobs, true);
        return Ok(());
    }
    let now = cx.store.now();
    let row = |job: JobRow| JobLine {
        id: job.id,
        kind: job.kind,
        // Ready, but its lane is full.
        state: if job.waiting { "waiting" } else { job.state.as_str() },
        lane: job.lane.map(|lane| shortened(&lane, MAX_LANE_CHARS)),
        attempt: format!("{}/{}", job.attempt, job.max_attempts),
        age: format_duration(now - job.created_at),
        due: if job.run_at > now { format!("in {}", format_duration(job.run_at - now)) } else { "now".to_owned() },
        last_error: job.last_error.map(|error| shortened(&error, MAX_ERROR_CHARS)),
    };
    print_rows(&jobs.into_iter().map(row).collect::<Vec<_>>(), false);
    Ok(())
}

/// Formats a duration in its largest suitable unit, in the syntax of `--older-than`: `15m`.
fn format_duration(time: TimeDelta) -> String {
    match time.num_seconds().max(0) {
        s @ ..120 => format!("{s}s"),
        s @ ..7_200 => format!("{}m", s / 60),
        s @ ..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

async fn show(cx: &Context, id: i64, json: bool) -> Result {
    let mut conn = cx.store.read().await?;
    let Some(job) = operate::show(&mut conn, id).await? else { return fail(not_found_message(id)) };
    let subject = jobs::describe(&mut conn, job.kind, job.subject_id).await?;
    let lane = match &job.lane {
        Some(name) => {
            let lane = operate::lane(&mut conn, name, cx.store.now()).await?;
            json!({ "name": name, "running": lane.running, "cap": lane.places.or(job.kind.limits().lane_cap), "waiting": lane.waiting,
                "paused_until": lane.paused_until })
        }
        None => Value::Null,
    };
    let (words, attempts) = match subject {
        Some(subject) => (subject.words, subject.attempts),
        None => ("deleted".to_owned(), Vec::new()),
    };
    let mut record = serde_json::to_value(&job).unwrap_or_default();
    record["lane"] = lane;
    record["subject"] = json!(words);
    record["attempts"] = json!(attempts);
    if json {
        print_json(&record);
        return Ok(());
    }
    print_details(&record, &attempts);
    Ok(())
}

/// Prints all fields as lines, then the attempts as a table.
fn print_details(record: &Value, attempts: &[JobAttempt]) {
    let print = |name: &str, value: &Value| {
        if !value.is_null() {
            print_line(format_args!("{name:16} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        }
    };
    for (name, value) in record.as_object().into_iter().flatten().filter(|(name, _)| *name != "attempts") {
        match value.as_object() {
            Some(parts) => parts.iter().for_each(|(part, value)| print(&format!("{name} {part}"), value)),
            None => print(name, value),
        }
    }
    if !attempts.is_empty() {
        print_line("");
        let cut = |one: &JobAttempt| JobAttempt { started_at: output_time(one.started_at, false), ..one.clone() };
        print_rows(&attempts.iter().map(cut).collect::<Vec<_>>(), false);
    }
}

fn not_found_message(id: i64) -> String {
    format!("there is no job {id}; finished jobs are kept for 7 days, dead jobs for 30 (see `crier jobs list`)")
}

/// A kind in JSON.
#[derive(Serialize)]
struct KindRow {
    id: JobKind,
    #[serde(flatten)]
    jobs: KindJobs,
}

/// A kind in the table.
#[derive(Serialize)]
struct KindLine {
    kind: JobKind,
    #[serde(flatten)]
    jobs: KindJobs,
}

#[derive(Serialize)]
struct KindJobs {
    scheduled: i64,
    ready: i64,
    waiting: i64,
    running: i64,
    dead: i64,
    paused: bool,
    oldest_ready: Option<DateTime<Utc>>,
}

async fn kinds(cx: &Context, json: bool) -> Result {
    let mut conn = cx.store.read().await?;
    let overview = operate::overview(&mut conn).await?;
    let paused = operate::paused_kinds(&mut conn).await?;
    let row = |kind: &JobKind| {
        let of = |state, waiting| overview.iter().find(|s| (s.kind, s.state, s.waiting) == (*kind, state, waiting));
        let jobs = |state, waiting| of(state, waiting).map_or(0, |s| s.jobs);
        let jobs = KindJobs {
            scheduled: jobs(JobState::Scheduled, false),
            ready: jobs(JobState::Ready, false),
            waiting: jobs(JobState::Ready, true),
            running: jobs(JobState::Running, false),
            dead: jobs(JobState::Dead, false),
            paused: paused.contains(kind),
            oldest_ready: of(JobState::Ready, false).map(|s| output_time(s.oldest, json)),
        };
        KindRow { id: *kind, jobs }
    };
    let rows = JobKind::ALL.iter().map(row);
    if json {
        print_rows(&rows.collect::<Vec<_>>(), true);
    } else {
        print_rows(&rows.map(|KindRow { id, jobs }| KindLine { kind: id, jobs }).collect::<Vec<_>>(), false);
    }
    Ok(())
}
