//! `/operator`: the jobs of all workspaces, with the actions of `crier jobs`; and the shared parts of the operator
//! pages.

use askama::Template;
use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState};
use crier_endpoints::error::{ApiError, Result};
use crier_jobs::change::{ChangeCounts, JobChange};
use crier_jobs::describe;
use crier_store::jobs::operate::{self, JobQuery, StateCount};
use crier_store::{Conn, PageRequest, Tx};

use super::form_write::{FormWrite, Submission};
use super::paging;
use super::route::{Access, PageRoute};
use super::shared::{Badge, Choice, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, see_other};
use crate::numbers::counted;

/// The maximum number of batches of dead jobs that one request retries: 1,000 jobs.
const MAX_BATCHES: usize = 20;
/// The maximum number of attempts at a change that conflicts with a worker.
const MAX_ATTEMPTS: usize = 3;
/// A job that has been ready for longer than this is late.
const LATE: TimeDelta = TimeDelta::minutes(1);
/// The maximum length of an error, in characters.
const MAX_REASON: usize = 1_000;

#[derive(Template)]
#[template(path = "console/operator.html")]
struct OperatorJobs {
    shell: Shell,
    kinds: Vec<KindRow>,
    states: Vec<Choice>,
    kind_choices: Vec<Choice>,
    /// Whether a filter other than the default, all dead jobs, is set.
    is_filtered: bool,
    heading: &'static str,
    jobs: Vec<JobRow>,
    /// The number of dead jobs of the selected kind.
    dead: i64,
    /// The path of the form that retries them.
    retry_dead: String,
    pages: Pages,
}

struct KindRow {
    kind: JobKind,
    scheduled: i64,
    ready: i64,
    /// Jobs that are ready, but whose lane is full.
    waiting: i64,
    running: i64,
    dead: i64,
    is_paused: bool,
    /// The age of the oldest ready job.
    oldest: Option<String>,
    is_late: bool,
}

struct JobRow {
    id: i64,
    kind: JobKind,
    state: Badge,
    /// A description of the subject.
    subject: String,
    attempts: String,
    created: Time,
    /// The time at which the job is due, or finished.
    at: Option<Time>,
    error: Option<String>,
    can_retry: bool,
    can_cancel: bool,
}

impl OperatorJobs {
    fn tabs(&self) -> Vec<Choice> {
        tabs("jobs")
    }

    fn retry_question(&self) -> String {
        format!("Retry {}?", counted(self.dead, "dead job", "dead jobs"))
    }
}

/// Returns the tabs of the section; `current` is the key of one of them.
pub fn tabs(current: &str) -> Vec<Choice> {
    let all = [
        ("jobs", "/operator", "Jobs"),
        ("users", "/operator/users", "Users"),
        ("plans", "/operator/plans", "Plans and usage"),
        ("applications", "/operator/applications", "Platform applications"),
        ("system", "/operator/system", "System"),
    ];
    all.iter().map(|(key, path, label)| Choice::new(path, label, *key == current)).collect()
}

/// Returns the shell of the section's pages.
pub fn shell(visit: &Visit) -> Shell {
    visit.shell(Section::Operator, "Operator")
}

pub fn routes() -> Vec<PageRoute> {
    let all = [
        PageRoute::get("/operator", list),
        PageRoute::post("/operator/kinds/{*}/pause", pause),
        PageRoute::post("/operator/kinds/{*}/resume", resume),
        PageRoute::post("/operator/jobs/retry-dead", retry_dead),
        PageRoute::post("/operator/jobs/{job}/retry", retry),
        PageRoute::post("/operator/jobs/{job}/cancel", cancel),
    ];
    all.into_iter().map(|route| route.access(Access::Operator)).collect()
}

/// Reads the filters in the query. Unknown values are ignored.
fn filter(visit: &Visit) -> JobQuery {
    let state = match visit.query.get("state") {
        Some("") => None,
        word => Some(word.and_then(|word| word.parse().ok()).unwrap_or(JobState::Dead)),
    };
    JobQuery { kind: chosen_kind(visit), state, ..JobQuery::default() }
}

fn chosen_kind(visit: &Visit) -> Option<JobKind> {
    visit.query.get("kind").and_then(|word| word.parse().ok())
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let filter = filter(visit);
    let page = paging::number(visit);
    let mut conn = visit.app.store.read().await?;
    let overview = operate::overview(&mut conn).await?;
    let paused = operate::paused_kinds(&mut conn).await?;
    let request = PageRequest { page, per_page: paging::PER_PAGE };
    let found = operate::page(&mut conn, &filter, request).await?;
    let shown = found.rows.len();
    let mut jobs = Vec::new();
    for job in found.rows {
        jobs.push(row(visit, &mut conn, job).await?);
    }
    drop(conn);
    let (state, kind) = (filter.state.map_or("", JobState::as_str), filter.kind.map_or("", JobKind::as_str));
    let of_kind = |count: &&StateCount| filter.kind.is_none_or(|kind| kind == count.kind);
    let dead = overview.iter().filter(|count| count.state == JobState::Dead).filter(of_kind).map(|count| count.jobs);
    let is_dead = filter.state == Some(JobState::Dead);
    let view = OperatorJobs {
        shell: shell(visit),
        kinds: JobKind::ALL.iter().map(|kind| kind_row(visit, *kind, &overview, &paused)).collect(),
        states: states(state),
        kind_choices: kinds(kind),
        is_filtered: !is_dead || filter.kind.is_some(),
        heading: if is_dead { "Dead jobs" } else { "Jobs" },
        jobs,
        dead: dead.sum(),
        retry_dead: match kind {
            "" => "/operator/jobs/retry-dead".to_owned(),
            kind => format!("/operator/jobs/retry-dead?kind={kind}"),
        },
        pages: links(state, kind, page, shown, found.total),
    };
    visit.page(&view)
}

/// Returns the page links. They contain the state even if it is empty, because an empty state means all.
fn links(state: &str, kind: &str, page: i64, shown: usize, total: i64) -> Pages {
    paging::links(page, paging::PER_PAGE, shown, total, |page| {
        format!("/operator?state={state}&kind={kind}&page={page}")
    })
}

const fn label(state: JobState) -> &'static str {
    match state {
        JobState::Scheduled => "Scheduled",
        JobState::Ready => "Ready",
        JobState::Running => "Running",
        JobState::Done => "Done",
        JobState::Dead => "Dead",
        JobState::Cancelled => "Canceled",
    }
}

fn states(chosen: &str) -> Vec<Choice> {
    let all = JobState::ALL.iter().map(|one| Choice::new(one.as_str(), label(*one), one.as_str() == chosen));
    [Choice::new("", "All", chosen.is_empty())].into_iter().chain(all).collect()
}

fn kinds(chosen: &str) -> Vec<Choice> {
    let all = JobKind::ALL.iter().map(|one| Choice::new(one.as_str(), one.as_str(), one.as_str() == chosen));
    [Choice::new("", "All", chosen.is_empty())].into_iter().chain(all).collect()
}

fn kind_row(visit: &Visit, kind: JobKind, overview: &[StateCount], paused: &[JobKind]) -> KindRow {
    let of = |state, waiting| overview.iter().find(|s| (s.kind, s.state, s.waiting) == (kind, state, waiting));
    let jobs = |state, waiting| of(state, waiting).map_or(0, |s| s.jobs);
    let age = of(JobState::Ready, false).map(|s| visit.now - s.oldest);
    KindRow {
        kind,
        scheduled: jobs(JobState::Scheduled, false),
        ready: jobs(JobState::Ready, false),
        waiting: jobs(JobState::Ready, true),
        running: jobs(JobState::Running, false),
        dead: jobs(JobState::Dead, false),
        is_paused: paused.contains(&kind),
        oldest: age.map(format_age),
        is_late: age.is_some_and(|age| age > LATE),
    }
}

/// Formats a duration with its largest suitable unit.
pub fn format_age(time: TimeDelta) -> String {
    match time.num_seconds().max(0) {
        s @ ..120 => format!("{s} s"),
        s @ ..7_200 => format!("{} min", s / 60),
        s @ ..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

async fn row(visit: &Visit, conn: &mut Conn, job: operate::JobRow) -> Result<JobRow> {
    let subject = describe(conn, job.kind, job.subject_id).await?;
    let tone = match job.state {
        JobState::Scheduled | JobState::Cancelled => Tone::Plain,
        JobState::Ready | JobState::Running => Tone::Info,
        JobState::Done => Tone::Good,
        JobState::Dead => Tone::Bad,
    };
    let at = match job.state {
        JobState::Dead | JobState::Cancelled => job.finished_at,
        JobState::Scheduled | JobState::Ready => Some(job.run_at),
        JobState::Running | JobState::Done => None,
    };
    Ok(JobRow {
        id: job.id,
        kind: job.kind,
        state: Badge::new(tone, if job.waiting { "Waiting" } else { label(job.state) }),
        subject: subject.map_or_else(|| "deleted".to_owned(), |subject| subject.words),
        attempts: format!("{} of {}", job.attempt, job.max_attempts),
        created: visit.time(job.created_at),
        at: at.map(|at| visit.time(at)),
        error: job.last_error.map(|error| error.chars().take(MAX_REASON).collect()),
        can_retry: matches!(job.state, JobState::Dead | JobState::Cancelled),
        can_cancel: matches!(job.state, JobState::Scheduled | JobState::Ready),
    })
}

fn kind_in_path(visit: &Visit) -> Result<JobKind> {
    let kind = visit.word.as_deref().and_then(|word| word.parse().ok());
    kind.ok_or_else(|| ApiError::not_found("job kind"))
}

async fn pause(visit: &Visit) -> Result<PageReply> {
    let kind = kind_in_path(visit)?;
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        operate::pause_kind(&mut write.tx, kind).await?;
        write.finish("").await?;
    }
    Ok(see_other("/operator", "kind-paused"))
}

async fn resume(visit: &Visit) -> Result<PageReply> {
    let kind = kind_in_path(visit)?;
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        operate::resume_kind(&mut write.tx, kind).await?;
        write.finish("").await?;
    }
    Ok(see_other("/operator", "kind-resumed"))
}

async fn retry(visit: &Visit) -> Result<PageReply> {
    change(visit, JobChange::Retry).await?;
    Ok(see_other("/operator", "job-retried"))
}

async fn cancel(visit: &Visit) -> Result<PageReply> {
    change(visit, JobChange::Cancel).await?;
    Ok(see_other("/operator", "job-canceled"))
}

/// Changes the job in the path.
async fn change(visit: &Visit, change: JobChange) -> Result<()> {
    let mut tries = 1;
    loop {
        match try_change(visit, change).await {
            Err(error) if error.is_serialization() && tries < MAX_ATTEMPTS => tries += 1,
            ended => return ended,
        }
    }
}

async fn try_change(visit: &Visit, change: JobChange) -> Result<()> {
    let Submission::First(mut write) = FormWrite::begin(visit).await? else { return Ok(()) };
    let changed = change_in(visit, &mut write.tx, change).await;
    write.end(changed).await
}

async fn change_in(visit: &Visit, tx: &mut Tx, change: JobChange) -> Result<()> {
    let found = operate::show(tx, visit.id("job").unwrap_or_default()).await?;
    let job = found.ok_or_else(|| ApiError::not_found("job"))?;
    match change.apply(tx, &job).await? {
        None => Ok(()),
        Some(reason) => {
            Err(ApiError::field("job", format!("Nothing was changed: {}.", change.rejection(&job, reason))))
        }
    }
}

/// Retries all dead jobs, or those of a kind. Other jobs do not change, so the form may be sent twice.
async fn retry_dead(visit: &Visit) -> Result<PageReply> {
    let kind = chosen_kind(visit);
    let filter = JobQuery { kind, state: Some(JobState::Dead), ..JobQuery::default() };
    let (mut counts, mut after, mut is_all) = (ChangeCounts::default(), 0, false);
    for _ in 0..MAX_BATCHES {
        match JobChange::Retry.apply_next(&visit.app.store, &filter, after, &mut counts).await? {
            Some(last) => after = last,
            None => {
                is_all = true;
                break;
            }
        }
    }
    let path = kind.map_or_else(|| "/operator".to_owned(), |kind| format!("/operator?state=dead&kind={kind}"));
    Ok(see_other(&path, if is_all { "jobs-retried" } else { "jobs-retried-part" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_largest_suitable_unit() {
        let of = |seconds| format_age(TimeDelta::seconds(seconds));
        assert_eq!([of(-5), of(119), of(120), of(7_200)], ["0 s", "119 s", "2 min", "2 h"]);
        assert_eq!(of(172_800), "2 days");
    }
}
