//! The result of a run of `deliver_webhook`: its effect on the delivery, and on the endpoint's health record.
//!
//! The attempts of several runs are written in a few statements.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::circuit::{Circuit, CircuitVerdict, Health, MAX_OPEN_ATTEMPTS};
use crier_domain::job::{ClaimedJob, JobKind, Lane, Outcome};
use crier_domain::webhook::DeliveryStatus;
use crier_store::deliveries::{self, AttemptRow};
use crier_store::jobs::lanes::{narrow_lane, pause_lane, widen_lane};
use crier_store::{Result, Tx, webhooks};
use crier_telemetry::metrics;

use crate::jobs::{FinishedRun, RunResult};
use crate::webhooks::schedule;
use crate::webhooks::sender::AttemptResult;

/// An endpoint without a success for this long is disabled.
const DISABLE_AFTER: TimeDelta = TimeDelta::days(5);

/// What happened to the delivery.
pub enum DeliveryRunResult {
    Attempted(Box<Attempt>),
    /// It or its endpoint was deleted.
    Deleted,
    /// The endpoint must not receive it.
    Rejected {
        why: &'static str,
        /// The delivery's maximum number of attempts when the run began.
        max_attempts: i32,
    },
}

/// One attempt, with its result.
#[derive(Clone)]
pub struct Attempt {
    pub delivery_id: i64,
    pub webhook_id: i64,
    pub created_at: DateTime<Utc>,
    pub number: i32,
    /// The delivery's maximum number of attempts when this one began.
    pub allowed: i32,
    pub started_at: DateTime<Utc>,
    pub result: AttemptResult,
    pub jitter: f64,
}

impl RunResult for DeliveryRunResult {
    fn order(&self) -> i64 {
        self.attempt().map_or(0, |attempt| attempt.webhook_id)
    }

    fn reduced(&self) -> Option<Self> {
        let mut reduced = self.attempt()?.clone();
        reduced.result.response_body = None;
        reduced.result.error = reduced.result.error.map(|_| reduced.result.outcome.as_str().to_owned());
        Some(Self::Attempted(Box::new(reduced)))
    }

    fn observe(&self, _outcome: &Outcome) {
        if let Some(attempt) = self.attempt().filter(|attempt| attempt.result.outcome.is_success()) {
            let ended_at = attempt.started_at + attempt.result.duration;
            metrics::webhook_delivered((ended_at - attempt.created_at).to_std().unwrap_or_default());
        }
    }
}

impl DeliveryRunResult {
    fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Attempted(attempt) => Some(attempt),
            Self::Deleted | Self::Rejected { .. } => None,
        }
    }
}

/// Writes results; returns one outcome each.
pub(super) async fn write_all(tx: &mut Tx, runs: &[FinishedRun<'_, DeliveryRunResult>]) -> Result<Vec<Outcome>> {
    let attempts: Vec<_> = runs.iter().filter_map(|run| run.result.attempt()).collect();
    let mut written = write_attempts(tx, &attempts).await?.into_iter();
    let mut outcomes = Vec::with_capacity(runs.len());
    for run in runs {
        match run.result {
            DeliveryRunResult::Attempted(_) => outcomes.extend(written.next()),
            DeliveryRunResult::Deleted => {
                deliveries::delete_orphan(tx, run.job.subject_id).await?;
                outcomes.push(Outcome::Cancelled("the delivery no longer exists".into()));
            }
            DeliveryRunResult::Rejected { why, max_attempts } => {
                outcomes.push(write_rejection(tx, run.job, why, *max_attempts).await?);
            }
        }
    }
    Ok(outcomes)
}

async fn write_rejection(tx: &mut Tx, job: &ClaimedJob, why: &str, max_attempts: i32) -> Result<Outcome> {
    let current = deliveries::lock(tx, job.subject_id).await?;
    if current.is_some_and(|delivery| delivery.max_attempts > max_attempts) {
        // A replay was requested meanwhile, so the reason may no longer apply: make the attempt immediately.
        return Ok(Outcome::RetryAt(tx.now, why.to_owned()));
    }
    deliveries::fail(tx, job.subject_id, why).await?;
    Ok(Outcome::Cancelled(why.to_owned()))
}

impl Attempt {
    fn verdict(&self) -> CircuitVerdict {
        CircuitVerdict::of(self.result.outcome.is_success(), self.result.duration)
    }

    /// Returns the time of the next attempt after this one failed; `None` if there is none. Disables an endpoint that
    /// returned 410 or has failed for too long, unless its owner changed it during the attempt. `allowed` is the
    /// delivery's current maximum number of attempts.
    async fn next_attempt(&self, tx: &mut Tx, allowed: i32, health: Health) -> Result<Option<DateTime<Utc>>> {
        if let Some(reason) = self.reason_to_disable(tx.now, health)
            && !webhooks::was_changed_since(tx, self.webhook_id, self.started_at).await?
        {
            webhooks::disable(tx, self.webhook_id, reason).await?;
            return Ok(None);
        }
        if allowed > self.allowed {
            // A replay was requested during this attempt: make the additional attempt immediately.
            return Ok(Some(tx.now));
        }
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let (made, allowed) = (count(self.number), count(allowed));
        Ok(schedule::next_attempt(made, allowed, self.result.retry_after, tx.now, self.jitter))
    }

    fn reason_to_disable(&self, now: DateTime<Utc>, health: Health) -> Option<&'static str> {
        if self.result.response_code == Some(410) {
            return Some("the endpoint returned 410 Gone");
        }
        let is_overdue = health.failing_since.is_some_and(|since| now - since >= DISABLE_AFTER);
        is_overdue.then_some("no delivery succeeded for 5 days")
    }

    fn row(&self, next_attempt_at: Option<DateTime<Utc>>) -> AttemptRow {
        let result = &self.result;
        AttemptRow {
            delivery_id: self.delivery_id,
            number: self.number,
            started_at: self.started_at,
            duration_ms: i64::try_from(result.duration.as_millis()).unwrap_or(i64::MAX),
            outcome: result.outcome.as_str(),
            response_code: result.response_code.map(i32::from),
            error: result.error.clone(),
            response_body: result.response_body.clone(),
            status: match (result.outcome.is_success(), next_attempt_at) {
                (true, _) => DeliveryStatus::Succeeded,
                (false, Some(_)) => DeliveryStatus::Retrying,
                (false, None) => DeliveryStatus::Failed,
            },
            next_attempt_at,
        }
    }
}

/// Writes attempts and their effects on deliveries and endpoints; returns one outcome per attempt. Locks the endpoints'
/// rows before the deliveries'; the fixed order prevents deadlocks.
async fn write_attempts(tx: &mut Tx, attempts: &[&Attempt]) -> Result<Vec<Outcome>> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let records = update_health(tx, attempts).await?;
    let failed: Vec<i64> = attempts.iter().filter(|a| !a.result.outcome.is_success()).map(|a| a.delivery_id).collect();
    let allowed = if failed.is_empty() { HashMap::new() } else { deliveries::lock_each(tx, &failed).await? };
    let mut rows = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        let health = records.get(&attempt.webhook_id).copied().unwrap_or_default();
        rows.push(attempt.row(match allowed.get(&attempt.delivery_id) {
            Some(allowed) => attempt.next_attempt(tx, *allowed, health).await?,
            None => None,
        }));
    }
    let existing = deliveries::record(tx, &rows).await?;
    let outcome = |row: AttemptRow| match row.next_attempt_at {
        _ if !existing.contains(&row.delivery_id) => Outcome::Cancelled("the delivery no longer exists".into()),
        Some(at) => Outcome::RetryAt(at, row.error.unwrap_or_else(|| row.outcome.to_owned())),
        None => Outcome::Done,
    };
    Ok(rows.into_iter().map(outcome).collect())
}

/// Adds attempts to the health records of their endpoints. Returns the records that are not clean.
async fn update_health(tx: &mut Tx, attempts: &[&Attempt]) -> Result<HashMap<i64, Health>> {
    let mut verdicts = BTreeMap::<i64, Vec<CircuitVerdict>>::new();
    for attempt in attempts {
        verdicts.entry(attempt.webhook_id).or_default().push(attempt.verdict());
    }
    let ids: Vec<i64> = verdicts.keys().copied().collect();
    let all_quick = verdicts.values().flatten().all(|verdict| *verdict == CircuitVerdict::Quick);
    let mut after = HashMap::new();
    for (id, before) in webhooks::lock_health(tx, &ids, !all_quick).await? {
        let health = verdicts[&id].iter().fold(before, |health, verdict| health.after(*verdict, tx.now));
        if health != before {
            webhooks::set_record(tx, id, health).await?;
            limit_lane(tx, id, before.circuit(), health).await?;
        }
        after.insert(id, health);
    }
    Ok(after)
}

/// Limits the endpoint's lane to what its health record allows.
async fn limit_lane(tx: &mut Tx, webhook_id: i64, before: Circuit, health: Health) -> Result<()> {
    let lane = Lane::Endpoint(webhook_id).to_string();
    match (before, health.circuit()) {
        (Circuit::Closed, Circuit::Open) => {
            tracing::info!(webhook = webhook_id, "an endpoint is failing or slow: limiting concurrent attempts");
            narrow_lane(tx, &lane, MAX_OPEN_ATTEMPTS).await?;
        }
        (Circuit::Open, Circuit::Closed) => {
            tracing::info!(webhook = webhook_id, "an endpoint recovered");
            widen_lane(tx, JobKind::DeliverWebhook, &lane).await?;
        }
        (Circuit::Open, Circuit::Open) | (Circuit::Closed, Circuit::Closed) => {}
    }
    match health.pause() {
        Some(pause) => pause_lane(tx, &lane, tx.now + pause).await,
        None => Ok(()),
    }
}
