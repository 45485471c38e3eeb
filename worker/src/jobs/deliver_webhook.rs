//! `deliver_webhook`: one attempt to bring an event to an endpoint.
//!
//! The delivery's own counters decide when the next attempt is and when there is none; the job follows them. Attempts are
//! at least once: the receiver de-duplicates by the delivery's id, which stays the same.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::job::{Claimed, Kind, Outcome};
use crier_common::domain::webhook::{Delivery, DeliveryStatus};
use crier_common::mail::Mailer;
use crier_common::notices;
use crier_common::store::deliveries::AttemptRow;
use crier_common::store::{Result, Store, Tx, deliveries, webhooks};
use crier_common::telemetry::metrics;
use crier_common::webhooks::schedule;
use crier_common::webhooks::sender::{AttemptOutcome, AttemptResult, DeliveryRequest, Sender};

use super::{Deps, Ending, Job};
use crate::engine::Run;

/// An endpoint without one success for so long is disabled.
const FAILING_FOR: TimeDelta = TimeDelta::days(5);

pub struct DeliverWebhook {
    store: Store,
    sender: Arc<Sender>,
    mailer: Option<Arc<Mailer>>,
}

impl DeliverWebhook {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), sender: deps.webhooks.clone(), mailer: deps.mailer.clone() }
    }
}

#[async_trait]
impl Job for DeliverWebhook {
    fn kind(&self) -> Kind {
        Kind::DeliverWebhook
    }

    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>> {
        let mut conn = self.store.read().await?;
        let Some(delivery) = deliveries::find_any(&mut conn, run.job.subject_id).await? else {
            return Ok(Box::new(Outcome::Cancelled("the delivery is gone".into())));
        };
        if !matches!(delivery.status, DeliveryStatus::Pending | DeliveryStatus::Retrying) {
            return Ok(Box::new(Outcome::Cancelled("the delivery has ended".into())));
        }
        let recipient = webhooks::recipient(&mut conn, self.store.cipher(), delivery.webhook_id).await?;
        drop(conn);
        let Some(recipient) = recipient.filter(|r| r.is_active) else {
            return Ok(Box::new(GivenUp("the endpoint is inactive")));
        };
        let started_at = self.store.now();
        let request = DeliveryRequest {
            url: recipient.url,
            secret: recipient.secret,
            event: delivery.event,
            delivery_id: delivery.id,
            event_id: delivery.event_id,
            body: delivery.payload.clone().into(),
        };
        let result = run.call(self.sender.send(&request, started_at)).await;
        metrics::webhook_attempt(result.outcome, result.duration);
        let mailer = self.mailer.clone();
        Ok(Box::new(Attempted { delivery, started_at, result, jitter: crier_common::random::unit(), mailer }))
    }
}

/// The endpoint takes nothing any more.
struct GivenUp(&'static str);

#[async_trait]
impl Ending for GivenUp {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        deliveries::give_up(tx, job.subject_id, self.0).await?;
        Ok(Outcome::Cancelled(self.0.to_owned()))
    }
}

/// One attempt was made.
struct Attempted {
    delivery: Delivery,
    started_at: DateTime<Utc>,
    result: AttemptResult,
    jitter: f64,
    mailer: Option<Arc<Mailer>>,
}

#[async_trait]
impl Ending for Attempted {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let (delivery, result) = (&self.delivery, &self.result);
        // The endpoint's row first, then the delivery's, as everywhere.
        let failing_since = match result.outcome.is_success() {
            true => webhooks::succeeded(tx, delivery.webhook_id).await.map(|()| None)?,
            false => webhooks::failed(tx, delivery.webhook_id).await?,
        };
        // A replay may have raised the limit while the attempt was under way.
        let Some(current) = deliveries::lock(tx, delivery.id).await? else {
            return Ok(Outcome::Cancelled("the delivery is gone".into()));
        };
        let number = delivery.attempts + 1;
        let next = self.next_attempt(tx, job, number, current.max_attempts, failing_since).await?;
        let status = match (result.outcome, next) {
            (AttemptOutcome::Success, _) => DeliveryStatus::Succeeded,
            (_, Some(_)) => DeliveryStatus::Retrying,
            (_, None) => DeliveryStatus::Failed,
        };
        let row = AttemptRow {
            delivery_id: delivery.id,
            number,
            started_at: self.started_at,
            duration_ms: i64::try_from(result.duration.as_millis()).unwrap_or(i64::MAX),
            outcome: result.outcome.as_str(),
            response_code: result.response_code.map(i32::from),
            error: result.error.clone(),
            response_body: result.response_body.clone(),
        };
        deliveries::record(tx, &row, status, next).await?;
        Ok(match next {
            Some(at) => Outcome::RetryAt(at, row.error.unwrap_or_else(|| result.outcome.to_string())),
            None => Outcome::Done,
        })
    }

    fn order(&self) -> i64 {
        self.delivery.webhook_id
    }

    fn observe(&self, _outcome: &Outcome) {
        if self.result.outcome.is_success() {
            let ended_at = self.started_at + self.result.duration;
            metrics::webhook_delivered((ended_at - self.delivery.created_at).to_std().unwrap_or_default());
        }
    }
}

impl Attempted {
    /// When the next attempt is, `None` for never; disables an endpoint that is gone or has failed for too long.
    async fn next_attempt(
        &self,
        tx: &mut Tx,
        job: &Claimed,
        number: i32,
        max: i32,
        failing_since: Option<DateTime<Utc>>,
    ) -> Result<Option<DateTime<Utc>>> {
        if self.result.outcome.is_success() {
            return Ok(None);
        }
        if self.result.response_code == Some(410) {
            self.disable(tx, job, "the endpoint answered 410 Gone").await?;
            return Ok(None);
        }
        if failing_since.is_some_and(|since| tx.now - since >= FAILING_FOR) {
            self.disable(tx, job, "no delivery succeeded for 5 days").await?;
            return Ok(None);
        }
        let made = u32::try_from(number).unwrap_or(u32::MAX);
        let allowed = u32::try_from(max).unwrap_or(0);
        if max > self.delivery.max_attempts {
            // A replay came while this attempt was under way: the attempt that it asked for is made now.
            return Ok(Some(tx.now));
        }
        Ok(schedule::next_attempt(made, allowed, self.result.retry_after, tx.now, self.jitter))
    }

    /// Disables the endpoint, and tells its owner once.
    async fn disable(&self, tx: &mut Tx, job: &Claimed, reason: &str) -> Result<()> {
        let (id, mailer) = (self.delivery.webhook_id, self.mailer.as_deref());
        if webhooks::disable(tx, id, reason).await? {
            notices::webhook_disabled(tx, mailer, id, self.result.error.as_deref(), job.trace.as_deref()).await?;
        }
        Ok(())
    }
}
