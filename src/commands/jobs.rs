//! `crier jobs list | show | retry | cancel | pause | resume`

use chrono::{DateTime, Utc};
use crier_common::domain::job::{Kind, State};
use crier_common::store::jobs::operate::{self, Filter, JobRow};
use crier_common::subjects;
use serde::Serialize;

use super::{Context, Result, refused};
use crate::cli::JobsCommand;
use crate::output::{line, rows};

#[derive(Serialize)]
struct Row {
    id: i64,
    kind: Kind,
    state: State,
    subject_id: i64,
    lane: Option<String>,
    attempt: String,
    run_at: DateTime<Utc>,
    last_error: Option<String>,
}

impl From<JobRow> for Row {
    fn from(job: JobRow) -> Self {
        Self {
            id: job.id,
            kind: job.kind,
            state: job.state,
            subject_id: job.subject_id,
            lane: job.lane,
            attempt: format!("{}/{}", job.attempt, job.max_attempts),
            run_at: job.run_at,
            last_error: job.last_error,
        }
    }
}

#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    row: Row,
    waiting: bool,
    priority: i32,
    crashes: i32,
    lease_until: Option<DateTime<Utc>>,
    trace: Option<String>,
    created_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
}

pub async fn run(cx: &Context, command: JobsCommand) -> Result {
    match command {
        JobsCommand::List { kind, state, lane, limit, format } => {
            let filter = Filter { kind, state, lane, created_before: None };
            let jobs = operate::list(&mut cx.store.read().await?, &filter, limit.clamp(1, 10_000)).await?;
            rows(&jobs.into_iter().map(Row::from).collect::<Vec<_>>(), format.json);
            Ok(())
        }
        JobsCommand::Show { id, format } => show(cx, id, format.json).await,
        JobsCommand::Retry { ids } => {
            for id in ids {
                let mut tx = cx.store.begin().await?;
                let Some((kind, subject)) = operate::retry(&mut tx, id).await? else {
                    return refused(format!(
                        "job {id} is not dead or cancelled, or its subject has another job by now"
                    ));
                };
                if !subjects::job_revived(&mut tx, kind, subject).await? {
                    return refused(format!("what job {id} ({kind}) acted on is gone, or has ended well since"));
                }
                tx.commit().await?;
                line(format_args!("Job {id} ({kind}) is ready again."));
            }
            Ok(())
        }
        JobsCommand::Cancel { ids } => {
            for id in ids {
                let mut tx = cx.store.begin().await?;
                let Some((kind, subject)) = operate::cancel(&mut tx, id).await? else {
                    return refused(format!("job {id} is not waiting: it has begun, has ended, or is not there"));
                };
                subjects::job_cancelled(&mut tx, kind, subject).await?;
                tx.commit().await?;
                line(format_args!("Cancelled job {id}."));
            }
            Ok(())
        }
        JobsCommand::Pause { kind } => {
            let mut tx = cx.store.begin().await?;
            operate::pause_kind(&mut tx, kind).await?;
            tx.commit().await?;
            line(format_args!("Paused {kind}: no more jobs of it are taken. `crier jobs resume {kind}` goes on."));
            Ok(())
        }
        JobsCommand::Resume { kind } => {
            let mut tx = cx.store.begin().await?;
            if !operate::resume_kind(&mut tx, kind).await? {
                return refused(format!("{kind} is not paused"));
            }
            tx.commit().await?;
            line(format_args!("Resumed {kind}."));
            Ok(())
        }
    }
}

async fn show(cx: &Context, id: i64, json: bool) -> Result {
    let Some(job) = operate::show(&mut cx.store.read().await?, id).await? else {
        return refused(format!("there is no job {id}; ended jobs are kept for 7 days, dead ones for 30"));
    };
    let detail = Detail {
        waiting: job.waiting,
        priority: job.priority,
        crashes: job.crashes,
        lease_until: job.lease_until,
        trace: job.trace.clone(),
        created_at: job.created_at,
        finished_at: job.finished_at,
        row: Row::from(job),
    };
    if json {
        rows(&[detail], true);
        return Ok(());
    }
    let value = serde_json::to_value(&detail).unwrap_or_default();
    for (name, value) in value.as_object().into_iter().flatten() {
        line(format_args!("{name:12} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    Ok(())
}
