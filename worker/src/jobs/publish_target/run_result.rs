//! The result of a run of `publish_target`, and the writes for it.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::Failure;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::post::{AttemptOutcome, Post, PostStatus, PublishedPart, Target, TargetStatus};
use crier_jobs::publishing::{self, EndedTarget};
use crier_platforms::Published;
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Tx, jobs, targets};
use crier_telemetry::metrics;

use super::super::call_outcome::{CallOutcome, expire_or_pause_account, next_attempt};
use super::super::publisher::Ending;
use super::super::{FinishedRun, RunResult};
use super::{ACTION, Prepared};

/// What happened to the target.
pub enum PublishRunResult {
    /// It has ended, or waits for its next attempt.
    Ended(Box<TargetResult>),
    /// It must not be published now; the reason is for the operator.
    Skipped(&'static str),
    /// It continues later without using up an attempt: the account's daily cap is reached, or the platform is
    /// processing the post. The target was already updated.
    Postponed { until: DateTime<Utc>, why: String },
}

impl From<TargetResult> for PublishRunResult {
    fn from(ended: TargetResult) -> Self {
        Self::Ended(Box::new(ended))
    }
}

/// The result of a run that called the platform, or that cannot call it.
#[derive(Clone)]
pub struct TargetResult {
    target: Target,
    outcome: CallOutcome,
    /// The other parts that the call published, if the platform publishes whole threads.
    following: Vec<Published>,
    /// The version of the credentials that the call used.
    credentials_version: Option<i64>,
    started_at: DateTime<Utc>,
    /// The maximum duration of a call. A query about a call is reliable only after that.
    timeout: TimeDelta,
    jitter: f64,
}

impl RunResult for PublishRunResult {
    fn order(&self) -> i64 {
        self.ended().map_or(0, |ended| ended.target.post_id)
    }

    fn reduced(&self) -> Option<Self> {
        let ended = self.ended()?;
        let following = ended.following.iter().map(Published::minimal).collect();
        let outcome = ended.outcome.without_platform_data();
        Some(TargetResult { outcome, following, ..ended.clone() }.into())
    }

    fn observe(&self, outcome: &Outcome) {
        if let Some(ended) = self.ended() {
            ended.observe(outcome);
        }
    }
}

impl PublishRunResult {
    pub(super) fn of(p: Prepared, ending: Ending, timeout: TimeDelta) -> Self {
        let (outcome, following) = match ending {
            Ending::Postponed { until, why } => return Self::Postponed { until, why },
            Ending::Outcome(outcome) => (outcome, Vec::new()),
            Ending::Published(mut posts) => {
                let following = posts.split_off(1);
                (CallOutcome::Published(posts.remove(0)), following)
            }
        };
        let credentials_version = Some(p.call.session.account.credentials_version);
        let target = Target { call_started_at: p.call.subject.call_started_at, ..p.target };
        let result = TargetResult::without_call(target, outcome, p.started_at);
        TargetResult { following, credentials_version, timeout, ..result }.into()
    }

    fn ended(&self) -> Option<&TargetResult> {
        match self {
            Self::Ended(ended) => Some(ended),
            Self::Skipped(_) | Self::Postponed { .. } => None,
        }
    }
}

impl TargetResult {
    /// Returns when a call with an unknown outcome must have ended.
    fn open_until(&self, open: bool) -> Option<DateTime<Utc>> {
        self.target.call_started_at.filter(|_| open).map(|began| began + self.timeout)
    }

    /// Returns the result of a run that had no account to call.
    pub fn without_call(target: Target, outcome: CallOutcome, started_at: DateTime<Utc>) -> Self {
        let (timeout, jitter) = (TimeDelta::zero(), crier_base::random::unit());
        Self { target, outcome, following: Vec::new(), credentials_version: None, started_at, timeout, jitter }
    }
}

/// Writes results; returns one outcome each. Those of ended targets share a few statements.
pub(super) async fn write_all(tx: &mut Tx, runs: &[FinishedRun<'_, PublishRunResult>]) -> Result<Vec<Outcome>> {
    let mut outcomes = vec![None; runs.len()];
    let mut batch = Vec::with_capacity(runs.len());
    // Other results are sorted before those of ended targets, and lock their posts first.
    for (index, run) in runs.iter().enumerate() {
        match run.result {
            PublishRunResult::Ended(ended) => batch.push((index, run.job, &**ended)),
            PublishRunResult::Skipped(why) => outcomes[index] = Some(end_skipped(tx, run.job, why).await?),
            PublishRunResult::Postponed { until, why } => {
                jobs::refund_attempt(tx, run.job).await?;
                outcomes[index] = Some(Outcome::RetryAt(*until, why.clone()));
            }
        }
    }
    let results: Vec<_> = batch.iter().map(|(_, job, result)| (*job, *result)).collect();
    for ((index, ..), outcome) in batch.iter().zip(write_ended(tx, &results).await?) {
        outcomes[*index] = Some(outcome);
    }
    Ok(outcomes.into_iter().flatten().collect())
}

/// Returns the outcome of a run that found nothing to do. If a user schedules the post meanwhile, no job is enqueued
/// because this one has not ended, so this checks again under the post's lock.
async fn end_skipped(tx: &mut Tx, job: &ClaimedJob, why: &str) -> Result<Outcome> {
    let cancelled = Outcome::Cancelled(why.to_owned());
    let Some(LockedPost { post, is_deleted: false }) = posts::lock_of_target(tx, job.subject_id).await? else {
        return Ok(cancelled);
    };
    let Some(target) = targets::find(tx, job.subject_id).await? else { return Ok(cancelled) };
    let at = match post.status {
        PostStatus::Scheduled => post.scheduled_at,
        PostStatus::Publishing => None,
        _ => return Ok(cancelled),
    };
    if target.status.is_terminal() {
        return Ok(cancelled);
    }
    // No reason is stored: a user changed the post's time.
    Ok(Outcome::RetryAt(at.unwrap_or(tx.now).max(tx.now), String::new()))
}

async fn write_ended(tx: &mut Tx, results: &[(&ClaimedJob, &TargetResult)]) -> Result<Vec<Outcome>> {
    if results.is_empty() {
        return Ok(Vec::new());
    }
    // Always lock the posts before their targets; the fixed order prevents deadlocks.
    let post_ids: BTreeSet<i64> = results.iter().map(|(_, result)| result.target.post_id).collect();
    let posts = posts::lock_each(tx, &Vec::from_iter(post_ids)).await?;
    let posts: HashMap<i64, LockedPost> = posts.into_iter().map(|locked| (locked.post.id, locked)).collect();
    let (mut outcomes, mut ended) = (Vec::with_capacity(results.len()), Vec::with_capacity(results.len()));
    for (job, result) in results {
        let Some(locked) = posts.get(&result.target.post_id) else {
            outcomes.push(Outcome::Cancelled("the post no longer exists".into()));
            continue;
        };
        let (outcome, target) = result.decide(tx, locked, job).await?;
        outcomes.push(outcome);
        ended.push(target);
    }
    publishing::end_targets(tx, &ended).await?;
    Ok(outcomes)
}

impl TargetResult {
    fn observe(&self, outcome: &Outcome) {
        let platform = self.target.platform.as_str();
        let (attempt_outcome, error) = match outcome {
            Outcome::RetryAt(..) => (AttemptOutcome::Retried, None),
            _ => {
                let outcome = self.outcome.clone().exhausted(ACTION);
                (outcome.of_attempt(), outcome.error())
            }
        };
        metrics::published(platform, attempt_outcome);
        if attempt_outcome != AttemptOutcome::Retried {
            let Target { id, post_id, account_id, .. } = self.target;
            let code = error.map(|error| error.code);
            let outcome = attempt_outcome;
            tracing::info!(post_id, target_id = id, account_id, platform, %outcome, code, "publishing finished");
        }
        if self.outcome.is_rate_limited() {
            metrics::platform_rate_limited(platform);
        }
    }

    /// Returns the outcome of the job, and the values to store for the target.
    async fn decide<'a>(
        &'a self,
        tx: &mut Tx,
        locked: &'a LockedPost,
        job: &'a ClaimedJob,
    ) -> Result<(Outcome, EndedTarget<'a>)> {
        let now = tx.now;
        let account = (self.target.account_id, self.credentials_version);
        let mut outcome = expire_or_pause_account(tx, (ACTION, &self.outcome), account, job.trace.as_deref()).await?;
        if locked.is_deleted {
            outcome = outcome.for_deleted_post();
        }
        // The post was last updated when its publishing began.
        let free_wait =
            outcome.free_wait().filter(|(_, max)| now - locked.post.updated_at < *max).map(|(until, _)| until);
        let next = match &outcome {
            _ if free_wait.is_some() => free_wait,
            CallOutcome::Retry { open, .. } => next_attempt(job, &outcome, self.open_until(*open), self.jitter, now),
            _ => None,
        };
        if next.is_none() {
            outcome = outcome.exhausted(ACTION);
        }
        if free_wait.is_some() {
            // The run does not count as an attempt.
            targets::refund_attempt(tx, self.target.id).await?;
            jobs::refund_attempt(tx, job).await?;
        }
        let (attempt_outcome, error) = (outcome.of_attempt(), outcome.error());
        let attempt = targets::NewAttempt {
            number: self.target.attempts,
            started_at: self.started_at,
            outcome: attempt_outcome,
            status_code: error.as_ref().and_then(|e| e.platform_code.as_ref()?.parse().ok()),
            error: error.clone(),
        };
        let end = self.target_end(&locked.post, &outcome, error.clone(), next, now);
        let continues = end.published_parts.is_some() && !end.status.is_terminal();
        if continues {
            // Each part has its own attempts.
            jobs::reset_attempts(tx, job).await?;
        }
        let ended = EndedTarget {
            locked,
            target: &self.target,
            end,
            attempt: free_wait.is_none().then_some(attempt),
            trace: job.trace.as_deref(),
        };
        let outcome = match next {
            Some(at) => Outcome::RetryAt(at, error.map(|e| e.message).unwrap_or_default()),
            None if continues => Outcome::RetryAt(now, String::new()),
            None => Outcome::Done,
        };
        Ok((outcome, ended))
    }

    fn target_end(
        &self,
        post: &Post,
        outcome: &CallOutcome,
        error: Option<Failure>,
        next: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> targets::TargetOutcome {
        let target = &self.target;
        let is_thread = !target.thread(post).is_empty();
        let may_exist = outcome.is_open() || matches!(outcome, CallOutcome::Unknown { .. });
        match outcome {
            CallOutcome::Published(published) => self.published(post, published, now),
            CallOutcome::Retry { .. } => targets::TargetOutcome {
                status: TargetStatus::Publishing,
                external_id: target.external_id.clone(),
                url: target.url.clone(),
                error,
                next_attempt_at: next,
                published_at: None,
                call_open: outcome.is_open(),
                published_parts: None,
            },
            CallOutcome::Failed(_) | CallOutcome::Expired { .. } | CallOutcome::Unknown { .. } => {
                targets::TargetOutcome {
                    status: TargetStatus::Failed,
                    external_id: target.published_parts.first().map(|part| part.external_id.clone()),
                    url: target.published_parts.first().and_then(|part| part.url.clone()),
                    error,
                    next_attempt_at: None,
                    published_at: None,
                    call_open: outcome.is_open(),
                    // The marker of a thread that failed must not be used again: a platform that publishes threads at
                    // once has a key for each part in it, and the next attempt may have more parts or fewer. If the
                    // parts may exist, it prevents the next attempt from publishing them twice; a change deletes it.
                    published_parts: (is_thread && !may_exist).then(|| target.published_parts.clone()),
                }
            }
        }
    }

    /// Returns the end of a target after its post, or the next part of its thread, was published.
    fn published(&self, post: &Post, published: &Published, now: DateTime<Utc>) -> targets::TargetOutcome {
        let mut parts = self.target.published_parts.clone();
        let was_complete = parts.len() > self.target.thread(post).len();
        let new = std::iter::once(published).chain(&self.following).filter(|_| !was_complete);
        parts.extend(new.map(|part| PublishedPart {
            external_id: part.external_id.clone(),
            url: part.url.clone(),
            published_at: now,
            other_ids: part.other_ids.clone(),
            is_unpublished: false,
        }));
        let is_complete = parts.len() > self.target.thread(post).len();
        let (first, is_single) = (parts[0].clone(), parts.len() == 1 && parts[0].other_ids.is_empty());
        targets::TargetOutcome {
            status: if is_complete { TargetStatus::Published } else { TargetStatus::Publishing },
            external_id: Some(first.external_id).filter(|id| !id.is_empty()),
            url: first.url,
            error: None,
            next_attempt_at: None,
            published_at: is_complete.then_some(now),
            call_open: false,
            published_parts: (!is_single || !is_complete).then_some(parts),
        }
    }
}
