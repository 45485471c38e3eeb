//! `deliver_webhook`: one attempt to bring an event to an endpoint.
//!
//! The delivery's own counters decide when the next attempt is and when there is none; the job follows them. Attempts are
//! at least once: the receiver de-duplicates by the delivery's id, which stays the same. Deliveries that begin together are
//! read together, and those that end together are written together.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::circuit::{Circuit, Health, PLACES, Verdict};
use crier_common::domain::job::{Claimed, Kind, Lane, Outcome};
use crier_common::domain::webhook::DeliveryStatus;
use crier_common::store::deliveries::{AttemptRow, Outgoing};
use crier_common::store::jobs::engine::{narrow_lane, pause_lane, widen_lane};
use crier_common::store::{Result, Store, StoreError, Tx, deliveries, webhooks};
use crier_common::telemetry::metrics;
use crier_common::webhooks::schedule;
use crier_common::webhooks::sender::{AttemptResult, DeliveryRequest, Sender};

use super::{Deps, End, Ending, Job};
use crate::engine::{Batcher, Run};

/// An endpoint without one success for so long is disabled.
const FAILING_FOR: TimeDelta = TimeDelta::days(5);
/// How many batches of deliveries are read at once.
const READS: usize = 2;

pub struct DeliverWebhook {
    store: Store,
    sender: Arc<Sender>,
    reads: Batcher<i64, Result<Option<Outgoing>>>,
}

impl DeliverWebhook {
    pub fn new(deps: &Deps) -> Self {
        let store = deps.store.clone();
        let reads = Batcher::start(READS, move |ids| read(store.clone(), ids));
        Self { store: deps.store.clone(), sender: deps.webhooks.clone(), reads }
    }
}

/// The deliveries with these ids; where one of them cannot be read, the others are all the same.
async fn read(store: Store, ids: Vec<i64>) -> Vec<Result<Option<Outgoing>>> {
    let some = async |ids: &[i64]| deliveries::outgoing(&mut store.read().await?, store.cipher(), ids).await;
    if let Ok(found) = some(&ids).await {
        let mut found: HashMap<_, _> = found.into_iter().map(|delivery| (delivery.id, delivery)).collect();
        return ids.iter().map(|id| Ok(found.remove(id))).collect();
    }
    let mut each = Vec::with_capacity(ids.len());
    for id in ids {
        each.push(some(&[id]).await.map(|mut found| found.pop()));
    }
    each
}

#[async_trait]
impl Job for DeliverWebhook {
    fn kind(&self) -> Kind {
        Kind::DeliverWebhook
    }

    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>> {
        let read = self.reads.submit(run.job.subject_id).await;
        let read = read.unwrap_or_else(|| Err(StoreError::Decode("deliveries could not be read".to_owned())));
        let Some(delivery) = read? else {
            return Ok(Box::new(Outcome::Cancelled("the delivery is gone".into())));
        };
        if !matches!(delivery.status, DeliveryStatus::Pending | DeliveryStatus::Retrying) {
            return Ok(Box::new(Outcome::Cancelled("the delivery has ended".into())));
        }
        if !delivery.is_active {
            return Ok(Box::new(GivenUp { why: "the endpoint is inactive", max_attempts: delivery.max_attempts }));
        }
        let started_at = self.store.now();
        let request = DeliveryRequest {
            url: delivery.url,
            secret: delivery.secret,
            event: delivery.event,
            delivery_id: delivery.id,
            event_id: delivery.event_id,
            body: delivery.payload.into(),
        };
        let result = run.call_and_wait(self.sender.send(&request, started_at)).await;
        metrics::webhook_attempt(result.outcome, result.duration);
        Ok(Box::new(Attempted {
            delivery_id: delivery.id,
            webhook_id: delivery.webhook_id,
            created_at: delivery.created_at,
            number: delivery.attempts + 1,
            allowed: delivery.max_attempts,
            started_at,
            result,
            jitter: crier_common::random::unit(),
        }))
    }

    async fn end(&self, tx: &mut Tx, ends: &[End]) -> Result<Vec<Outcome>> {
        let attempts: Vec<_> = ends.iter().filter_map(attempt).collect();
        let mut written = write(tx, &attempts).await?.into_iter();
        let mut outcomes = Vec::with_capacity(ends.len());
        for end in ends {
            match attempt(end) {
                Some(_) => outcomes.extend(written.next()),
                None => outcomes.push(end.1.write(tx, &end.0).await?),
            }
        }
        Ok(outcomes)
    }
}

fn attempt((_, ending): &End) -> Option<&Attempted> {
    (&**ending as &dyn Any).downcast_ref()
}

/// The endpoint takes nothing any more.
struct GivenUp {
    why: &'static str,
    /// As the run found it.
    max_attempts: i32,
}

#[async_trait]
impl Ending for GivenUp {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let current = deliveries::lock(tx, job.subject_id).await?;
        if current.is_some_and(|delivery| delivery.max_attempts > self.max_attempts) {
            // A replay came meanwhile, so the endpoint was switched on: the attempt that it asked for is made now.
            return Ok(Outcome::RetryAt(tx.now, self.why.to_owned()));
        }
        deliveries::give_up(tx, job.subject_id, self.why).await?;
        Ok(Outcome::Cancelled(self.why.to_owned()))
    }
}

/// One attempt was made.
struct Attempted {
    delivery_id: i64,
    webhook_id: i64,
    created_at: DateTime<Utc>,
    number: i32,
    /// How many attempts the delivery had when this one began.
    allowed: i32,
    started_at: DateTime<Utc>,
    result: AttemptResult,
    jitter: f64,
}

#[async_trait]
impl Ending for Attempted {
    async fn write(&self, tx: &mut Tx, _job: &Claimed) -> Result<Outcome> {
        Ok(write(tx, &[self]).await?.remove(0))
    }

    fn order(&self) -> i64 {
        self.webhook_id
    }

    fn observe(&self, _outcome: &Outcome) {
        if self.result.outcome.is_success() {
            let ended_at = self.started_at + self.result.duration;
            metrics::webhook_delivered((ended_at - self.created_at).to_std().unwrap_or_default());
        }
    }
}

impl Attempted {
    fn verdict(&self) -> Verdict {
        Verdict::of(self.result.outcome.is_success(), self.result.duration)
    }

    /// When the next attempt is after this one failed, `None` for never; disables an endpoint that is gone or has failed for
    /// too long. `allowed`: how many attempts the delivery has by now.
    async fn next_attempt(&self, tx: &mut Tx, allowed: i32, health: Health) -> Result<Option<DateTime<Utc>>> {
        if self.result.response_code == Some(410) {
            webhooks::disable(tx, self.webhook_id, "the endpoint answered 410 Gone").await?;
            return Ok(None);
        }
        if health.failing_since.is_some_and(|since| tx.now - since >= FAILING_FOR) {
            webhooks::disable(tx, self.webhook_id, "no delivery succeeded for 5 days").await?;
            return Ok(None);
        }
        if allowed > self.allowed {
            // A replay came while this attempt was under way: the attempt that it asked for is made now.
            return Ok(Some(tx.now));
        }
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let (made, allowed) = (count(self.number), count(allowed));
        Ok(schedule::next_attempt(made, allowed, self.result.retry_after, tx.now, self.jitter))
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

/// Writes attempts, and what they mean for their deliveries and endpoints; one outcome each. The endpoints' rows first,
/// then the deliveries', as everywhere.
async fn write(tx: &mut Tx, attempts: &[&Attempted]) -> Result<Vec<Outcome>> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let records = judge(tx, attempts).await?;
    let failed: Vec<i64> = attempts.iter().filter(|a| !a.result.outcome.is_success()).map(|a| a.delivery_id).collect();
    let allowed = if failed.is_empty() { HashMap::new() } else { deliveries::hold_each(tx, &failed).await? };
    let mut rows = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        let health = records.get(&attempt.webhook_id).copied().unwrap_or_default();
        rows.push(attempt.row(match allowed.get(&attempt.delivery_id) {
            Some(allowed) => attempt.next_attempt(tx, *allowed, health).await?,
            None => None,
        }));
    }
    let there = deliveries::record(tx, &rows).await?;
    let outcome = |row: AttemptRow| match row.next_attempt_at {
        _ if !there.contains(&row.delivery_id) => Outcome::Cancelled("the delivery is gone".into()),
        Some(at) => Outcome::RetryAt(at, row.error.unwrap_or_else(|| row.outcome.to_owned())),
        None => Outcome::Done,
    };
    Ok(rows.into_iter().map(outcome).collect())
}

/// Adds attempts to the records of their endpoints. Gives the records that are not clean.
async fn judge(tx: &mut Tx, attempts: &[&Attempted]) -> Result<HashMap<i64, Health>> {
    let mut verdicts = BTreeMap::<i64, Vec<Verdict>>::new();
    for attempt in attempts {
        verdicts.entry(attempt.webhook_id).or_default().push(attempt.verdict());
    }
    let ids: Vec<i64> = verdicts.keys().copied().collect();
    let all_well = verdicts.values().flatten().all(|verdict| *verdict == Verdict::Quick);
    let mut after = HashMap::new();
    for (id, before) in webhooks::records(tx, &ids, !all_well).await? {
        let health = verdicts[&id].iter().fold(before, |health, verdict| health.after(*verdict, tx.now));
        if health != before {
            webhooks::set_record(tx, id, health).await?;
            hold_back(tx, id, before.circuit(), health).await?;
        }
        after.insert(id, health);
    }
    Ok(after)
}

/// Lets as many attempts through to an endpoint as its record allows.
async fn hold_back(tx: &mut Tx, webhook_id: i64, before: Circuit, health: Health) -> Result<()> {
    let lane = Lane::Endpoint(webhook_id).to_string();
    match (before, health.circuit()) {
        (Circuit::Closed, Circuit::Open) => {
            tracing::info!(webhook = webhook_id, "an endpoint fails or is slow: few attempts at it are made at once");
            narrow_lane(tx, &lane, PLACES).await?;
        }
        (Circuit::Open, Circuit::Closed) => {
            tracing::info!(webhook = webhook_id, "an endpoint is well again");
            widen_lane(tx, Kind::DeliverWebhook, &lane).await?;
        }
        (Circuit::Open, Circuit::Open) | (Circuit::Closed, Circuit::Closed) => {}
    }
    match health.pause() {
        Some(pause) => pause_lane(tx, &lane, tx.now + pause).await,
        None => Ok(()),
    }
}
