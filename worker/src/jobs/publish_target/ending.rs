//! The result of a run of `publish_target`, and what is written for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountError;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{Claimed, Lane, Outcome};
use crier_domain::post::{AttemptOutcome, Post, Target, TargetStatus};
use crier_jobs::publishing::{self, EndedTarget};
use crier_store::jobs::{self, lanes};
use crier_store::{Result, Tx, accounts, posts, targets};
use crier_telemetry::metrics;

use super::super::{BatchedResult, FinishedRun, RunResult, backoff_from_table};
use super::Prepared;
use super::outcome::PublishOutcome;

/// The backoff between attempts (contract, section 3, Post), each ± 20 %.
const PAUSES: [Duration; 7] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
    Duration::from_hours(2),
];

/// How long a post waits, without using up attempts, for an operator to fix what makes every call fail.
const MAX_OPERATOR_WAIT: TimeDelta = TimeDelta::days(7);

/// The result that is written when the job is settled.
#[derive(Clone)]
pub struct PublishEnd {
    target: Target,
    outcome: PublishOutcome,
    /// The version of the credentials that the call used.
    credentials_version: Option<i64>,
    started_at: DateTime<Utc>,
    /// The maximum duration of a call; a lookup is reliable only after that.
    timeout: TimeDelta,
    jitter: f64,
}

impl PublishEnd {
    pub(super) fn of(p: &Prepared, outcome: PublishOutcome, timeout: TimeDelta) -> Self {
        let credentials_version = Some(p.session.account.credentials_version);
        Self { credentials_version, timeout, ..Self::without_call(p.target.clone(), outcome, p.started_at) }
    }

    /// For a run that had no account to call.
    pub fn without_call(target: Target, outcome: PublishOutcome, started_at: DateTime<Utc>) -> Self {
        let (timeout, jitter) = (TimeDelta::zero(), crier_base::random::unit());
        Self { target, outcome, credentials_version: None, started_at, timeout, jitter }
    }

    /// Returns the time of the next attempt; `None` if no attempt is left.
    fn next(&self, job: &Claimed, at: Option<DateTime<Utc>>, open: bool, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if job.attempt >= job.max_attempts {
            return None;
        }
        let pause = pause(job.attempt, self.jitter);
        let next = at.map_or(now + pause, |at| at.max(now));
        // Reconcile an open call only after its deadline: before that "not there" would mean nothing.
        let over = self.target.call_started_at.filter(|_| open).map(|at| at + self.timeout);
        Some(over.map_or(next, |over| over.max(next)))
    }
}

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

/// Writes the results of runs: those of [`PublishEnd`] in a few statements for all of them.
pub(super) async fn write_results(tx: &mut Tx, ends: &[FinishedRun]) -> Result<Vec<Outcome>> {
    let mut outcomes = vec![None; ends.len()];
    let mut publish_ends = Vec::with_capacity(ends.len());
    // The others are sorted before these, and lock their posts first.
    for (index, (job, result)) in ends.iter().enumerate() {
        match result.batched() {
            Some(BatchedResult::Publish(end)) => publish_ends.push((index, job, end)),
            _ => outcomes[index] = Some(result.write(tx, job).await?),
        }
    }
    let runs: Vec<_> = publish_ends.iter().map(|(_, job, end)| (*job, *end)).collect();
    for ((index, ..), outcome) in publish_ends.iter().zip(write(tx, &runs).await?) {
        outcomes[*index] = Some(outcome);
    }
    Ok(outcomes.into_iter().flatten().collect())
}

async fn write(tx: &mut Tx, ends: &[(&Claimed, &PublishEnd)]) -> Result<Vec<Outcome>> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    // Always lock the posts before their targets; the fixed order prevents deadlocks.
    let post_ids: BTreeSet<i64> = ends.iter().map(|(_, end)| end.target.post_id).collect();
    let posts = posts::lock_each(tx, &Vec::from_iter(post_ids)).await?;
    let posts: HashMap<i64, (Post, bool)> = posts.into_iter().map(|post| (post.0.id, post)).collect();
    let (mut outcomes, mut ended) = (Vec::with_capacity(ends.len()), Vec::with_capacity(ends.len()));
    for (job, end) in ends {
        let Some((post, is_deleted)) = posts.get(&end.target.post_id) else {
            outcomes.push(Outcome::Cancelled("the post is gone".into()));
            continue;
        };
        let (outcome, stored) = end.decide(tx, post, *is_deleted, job).await?;
        outcomes.push(outcome);
        ended.push(stored);
    }
    publishing::end_targets(tx, &ended).await?;
    Ok(outcomes)
}

#[async_trait]
impl RunResult for PublishEnd {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        Ok(write(tx, &[(job, self)]).await?.remove(0))
    }

    fn batched(&self) -> Option<BatchedResult<'_>> {
        Some(BatchedResult::Publish(self))
    }

    fn order(&self) -> i64 {
        self.target.post_id
    }

    fn reduced(&self) -> Option<Arc<dyn RunResult>> {
        Some(Arc::new(Self { outcome: self.outcome.without_platform_data(), ..self.clone() }))
    }

    fn observe(&self, outcome: &Outcome) {
        let platform = self.target.platform.as_str();
        let (attempt_outcome, error) = match outcome {
            Outcome::RetryAt(..) => (AttemptOutcome::Retried, None),
            _ => self.outcome.exhausted().outcome_and_error(),
        };
        metrics::published(platform, attempt_outcome);
        if attempt_outcome != AttemptOutcome::Retried {
            let Target { id, post_id, account_id, .. } = self.target;
            let code = error.map(|error| error.code);
            let outcome = attempt_outcome;
            tracing::info!(post_id, target_id = id, account_id, platform, %outcome, code, "a post has ended");
        }
        if matches!(&self.outcome, PublishOutcome::Retry { failure, .. } if failure.category == Category::RateLimited) {
            metrics::platform_rate_limited(platform);
        }
    }
}

impl PublishEnd {
    /// Decides what is stored for the target, whose post is locked, and the outcome of the job.
    async fn decide<'a>(
        &'a self,
        tx: &mut Tx,
        post: &'a Post,
        post_is_deleted: bool,
        job: &'a Claimed,
    ) -> Result<(Outcome, EndedTarget<'a>)> {
        let now = tx.now;
        let mut outcome = self.expire_or_pause_account(tx, job.trace.as_deref()).await?;
        if post_is_deleted {
            outcome = outcome.for_deleted_post();
        }
        // The post was last changed when its publishing began.
        let operator_wait = outcome.operator_wait().filter(|_| now - post.updated_at < MAX_OPERATOR_WAIT);
        let next = match &outcome {
            _ if operator_wait.is_some() => operator_wait,
            PublishOutcome::Retry { at, open, .. } => self.next(job, *at, *open, now),
            _ => None,
        };
        if next.is_none() {
            outcome = outcome.exhausted();
        }
        if operator_wait.is_some() {
            // The run does not count as an attempt.
            targets::refund_attempt(tx, self.target.id).await?;
            jobs::refund_attempt(tx, job).await?;
        }
        let (attempt_outcome, error) = outcome.outcome_and_error();
        let attempt = targets::NewAttempt {
            number: self.target.attempts,
            started_at: self.started_at,
            outcome: attempt_outcome,
            status_code: error.as_ref().and_then(|e| e.platform_code.as_ref()?.parse().ok()),
            error: error.clone(),
        };
        let ended = EndedTarget {
            post,
            post_is_deleted,
            target: &self.target,
            end: self.ended(&outcome, error.clone(), next, now),
            attempt: operator_wait.is_none().then_some(attempt),
            trace: job.trace.as_deref(),
        };
        let outcome = match next {
            Some(at) => Outcome::RetryAt(at, error.map(|e| e.message).unwrap_or_default()),
            None => Outcome::Done,
        };
        Ok((outcome, ended))
    }

    fn ended(
        &self,
        outcome: &PublishOutcome,
        error: Option<Failure>,
        next: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> targets::TargetEnd {
        let target = &self.target;
        match outcome {
            PublishOutcome::Published(published) => targets::TargetEnd {
                status: TargetStatus::Published,
                external_id: Some(published.external_id.clone()).filter(|id| !id.is_empty()),
                url: published.url.clone(),
                error: None,
                next_attempt_at: None,
                published_at: Some(now),
                call_open: false,
            },
            PublishOutcome::Retry { open, .. } => targets::TargetEnd {
                status: TargetStatus::Publishing,
                external_id: target.external_id.clone(),
                url: target.url.clone(),
                error,
                next_attempt_at: next,
                published_at: None,
                call_open: *open,
            },
            PublishOutcome::Failed(_) | PublishOutcome::Expired { .. } | PublishOutcome::Unknown { .. } => {
                targets::TargetEnd {
                    status: TargetStatus::Failed,
                    external_id: None,
                    url: None,
                    error,
                    next_attempt_at: None,
                    published_at: None,
                    call_open: matches!(
                        outcome,
                        PublishOutcome::Expired { open: true, .. } | PublishOutcome::Unknown { open: true, .. }
                    ),
                }
            }
        }
    }

    /// Marks the account as expired if its access was rejected; pauses its lane in all replicas if it is rate limited.
    /// Returns the outcome in view of the account's current state.
    async fn expire_or_pause_account(&self, tx: &mut Tx, trace: Option<&str>) -> Result<PublishOutcome> {
        let account_id = self.target.account_id;
        match (&self.outcome, self.credentials_version) {
            (PublishOutcome::Expired { failure, .. }, Some(version)) => {
                let error = AccountError { code: "account_expired".into(), message: failure.message.clone() };
                if !crier_jobs::accounts::expire(tx, account_id, version, &error, trace).await?
                    && accounts::has_newer(tx, account_id, version).await?
                {
                    return Ok(self.outcome.with_new_credentials(tx.now));
                }
            }
            (PublishOutcome::Retry { failure, at: Some(until), .. }, _)
                if failure.category == Category::RateLimited =>
            {
                lanes::pause_lane(tx, &Lane::Account(account_id).to_string(), *until).await?;
            }
            _ => {}
        }
        Ok(self.outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_have_jitter_of_a_fifth_and_end_at_two_hours() {
        for (attempt, promised) in (1..).zip(PAUSES) {
            let seconds = i64::try_from(promised.as_secs()).unwrap();
            assert_eq!(pause(attempt, 0.0), TimeDelta::milliseconds(seconds * 800));
            assert_eq!(pause(attempt, 0.5), TimeDelta::seconds(seconds));
            assert!(pause(attempt, 0.999_999) < TimeDelta::milliseconds(seconds * 1_200));
        }
        assert_eq!(pause(99, 0.5), TimeDelta::hours(2));
    }
}
