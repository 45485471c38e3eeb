//! `deliver_webhook`: one attempt to deliver an event to an endpoint.
//!
//! The delivery's own counters decide when the next attempt is, and when there are no more; the job follows them.
//! Events are delivered at least once: the receiver de-duplicates by the delivery's id, which stays the same.
//! Deliveries that begin together are read together, and those that end together are written together.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{Claimed, Outcome};
use crier_domain::plan::{Feature, Plans};
use crier_domain::webhook::DeliveryStatus;
use crier_mail::Mailer;
use crier_store::deliveries::{self, OutgoingDelivery};
use crier_store::{Batcher, Db, Result, Store, StoreError, Tx};
use crier_telemetry::metrics;

use super::{BatchedResult, Deps, FinishedRun, Job, RunResult};
use crate::engine::Run;
use crate::webhooks::sender::{DeliveryRequest, Sender};

mod attempted;

pub use attempted::DeliveryEnd;
use attempted::write;

/// How many batches of deliveries are read concurrently.
const READS: usize = 2;

pub struct DeliverWebhook {
    store: Store,
    plans: Arc<Plans>,
    sender: Arc<Sender>,
    mailer: Option<Arc<Mailer>>,
    reads: Batcher<i64, Result<Option<OutgoingDelivery>>>,
}

impl DeliverWebhook {
    pub fn new(deps: &Deps) -> Self {
        let store = deps.store.clone();
        let reads = Batcher::start(deps.store.workers(), READS, move |ids| read(store.clone(), ids));
        Self {
            store: deps.store.clone(),
            plans: deps.plans.clone(),
            sender: deps.webhooks.clone(),
            mailer: deps.mailer.clone(),
            reads,
        }
    }

    /// Returns why the endpoint must not receive the delivery. What was true when the event happened may have changed.
    fn reason_to_reject(&self, delivery: &OutgoingDelivery) -> Result<Option<&'static str>> {
        let plan = self.plans.get(&delivery.plan);
        let plan = plan.ok_or_else(|| StoreError::Decode(format!("the plans file has no plan `{}`", delivery.plan)))?;
        Ok(if !delivery.is_active {
            Some("the endpoint is inactive")
        } else if !plan.has(Feature::Webhooks) {
            Some("the workspace's plan does not include webhooks")
        } else if !delivery.is_member {
            Some("the endpoint's owner is no longer a member of the brand")
        } else {
            None
        })
    }
}

/// Reads the deliveries with these ids; an error of one does not affect the others.
async fn read(store: Store, ids: Vec<i64>) -> Vec<Result<Option<OutgoingDelivery>>> {
    let some = async |ids: &[i64]| deliveries::load_outgoing(&mut store.read().await?, ids).await;
    match some(&ids).await {
        Ok(found) => {
            let found: HashMap<_, _> = found.into_iter().map(|delivery| (delivery.id, delivery)).collect();
            // Cloned, not removed: a frozen run of a delivery and the rescued one may begin together.
            return ids.iter().map(|id| Ok(found.get(id).cloned())).collect();
        }
        // A temporary error is not the fault of one delivery; reading each one alone would only fail again.
        Err(error) if error.is_transient() => {
            return ids.iter().map(|_| Err(StoreError::Decode(error.to_string()))).collect();
        }
        Err(_) => {}
    }
    let mut each = Vec::with_capacity(ids.len());
    for id in ids {
        each.push(some(&[id]).await.map(|mut found| found.pop()));
    }
    each
}

#[async_trait]
impl Job for DeliverWebhook {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let read = self.reads.submit(run.job.subject_id).await;
        let read = read.unwrap_or_else(|| Err(StoreError::Decode("deliveries could not be read".to_owned())));
        let Some(delivery) = read? else {
            return Ok(Box::new(GoneDelivery));
        };
        if !matches!(delivery.status, DeliveryStatus::Pending | DeliveryStatus::Retrying) {
            return Ok(Box::new(Outcome::Cancelled("the delivery has ended".into())));
        }
        if let Some(why) = self.reason_to_reject(&delivery)? {
            return Ok(Box::new(RejectedDelivery { why, max_attempts: delivery.max_attempts }));
        }
        let started_at = self.store.now();
        let request = DeliveryRequest {
            secret: delivery.secret(self.store.cipher())?,
            url: delivery.url,
            event: delivery.event,
            delivery_id: delivery.id,
            event_id: delivery.event_id,
            body: delivery.payload.into(),
        };
        let result = run.call_and_wait(self.sender.send(&request, started_at)).await;
        metrics::webhook_attempt(result.outcome, result.duration);
        Ok(Box::new(DeliveryEnd {
            delivery_id: delivery.id,
            webhook_id: delivery.webhook_id,
            created_at: delivery.created_at,
            number: delivery.attempts + 1,
            allowed: delivery.max_attempts,
            started_at,
            result,
            jitter: crier_base::random::unit(),
            mailer: self.mailer.clone(),
            trace: run.job.trace.clone(),
        }))
    }

    fn max_results_per_transaction(&self) -> usize {
        usize::MAX
    }

    fn may_start_without_slot(&self) -> bool {
        true
    }

    /// Events that arrived quickly, at endpoints whose health record is clean.
    async fn settle_at_once(&self, store: &Store, ends: &[FinishedRun]) -> Result<bool> {
        let quick = |end| attempt(end).and_then(|arrived| arrived.ended_quickly(&end.0));
        let ended: Option<Vec<_>> = ends.iter().map(quick).collect();
        match (store.db(), ended) {
            (Db::Pg(_), Some(ended)) => {
                let mut tx = store.begin_single().await?;
                let settled = deliveries::settle(&mut tx, &ended).await?;
                tx.commit().await?;
                Ok(settled)
            }
            _ => Ok(false),
        }
    }

    async fn write_results(&self, tx: &mut Tx, ends: &[FinishedRun]) -> Result<Vec<Outcome>> {
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

fn attempt((_, ending): &FinishedRun) -> Option<&DeliveryEnd> {
    match ending.batched() {
        Some(BatchedResult::Delivery(end)) => Some(end),
        _ => None,
    }
}

/// The delivery was deleted, or its endpoint.
struct GoneDelivery;

#[async_trait]
impl RunResult for GoneDelivery {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        deliveries::delete_orphan(tx, job.subject_id).await?;
        Ok(Outcome::Cancelled("the delivery no longer exists".into()))
    }
}

/// The endpoint must not receive the delivery.
struct RejectedDelivery {
    why: &'static str,
    /// The value when the run began.
    max_attempts: i32,
}

#[async_trait]
impl RunResult for RejectedDelivery {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let current = deliveries::lock(tx, job.subject_id).await?;
        if current.is_some_and(|delivery| delivery.max_attempts > self.max_attempts) {
            // A replay was requested meanwhile, so the reason may be gone: make the attempt that it asked for now.
            return Ok(Outcome::RetryAt(tx.now, self.why.to_owned()));
        }
        deliveries::fail(tx, job.subject_id, self.why).await?;
        Ok(Outcome::Cancelled(self.why.to_owned()))
    }
}
