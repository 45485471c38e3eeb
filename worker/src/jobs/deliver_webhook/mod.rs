//! `deliver_webhook`: one attempt to deliver an event to an endpoint.
//!
//! The delivery's own counters determine the time of the next attempt and the number of attempts; the job follows them.
//! Events are delivered at least once; receivers deduplicate by the delivery's id, which is the same for all attempts.
//! Deliveries that begin together are read together, and deliveries that end together are written together.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::plan::{Feature, Plans};
use crier_domain::webhook::DeliveryStatus;
use crier_mail::Mailer;
use crier_store::deliveries::{self, OutgoingDelivery};
use crier_store::{Batcher, Db, Result, Store, StoreError, Tx};
use crier_telemetry::metrics;

use super::{BatchedResult, Deps, FinishedRun, Job, RunResult};
use crate::engine::Run;
use crate::webhooks::sender::{DeliveryRequest, Sender};

mod run_result;

pub use run_result::DeliveryRunResult;
use run_result::write;

/// The maximum number of batches of deliveries that are read concurrently.
const READ_CONCURRENCY: usize = 2;

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
        let reads = Batcher::start(deps.store.workers(), READ_CONCURRENCY, move |ids| read(store.clone(), ids));
        Self {
            store: deps.store.clone(),
            plans: deps.plans.clone(),
            sender: deps.webhooks.clone(),
            mailer: deps.mailer.clone(),
            reads,
        }
    }

    /// Returns why the endpoint must not receive the delivery; the conditions may have changed since the event.
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
    let load = async |ids: &[i64]| deliveries::load_outgoing(&mut store.read().await?, ids).await;
    match load(&ids).await {
        Ok(found) => {
            let found: HashMap<_, _> = found.into_iter().map(|delivery| (delivery.id, delivery)).collect();
            // Cloned, not removed: a frozen run of a delivery and the rescued one may begin together.
            return ids.iter().map(|id| Ok(found.get(id).cloned())).collect();
        }
        // A temporary error is not caused by one delivery; reading each one separately would fail again.
        Err(error) if error.is_transient() => {
            return ids.iter().map(|_| Err(StoreError::Decode(error.to_string()))).collect();
        }
        Err(_) => {}
    }
    let mut each = Vec::with_capacity(ids.len());
    for id in ids {
        each.push(load(&[id]).await.map(|mut found| found.pop()));
    }
    each
}

#[async_trait]
impl Job for DeliverWebhook {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let read = self.reads.submit(run.job.subject_id).await;
        let read = read.unwrap_or_else(|| Err(StoreError::Decode("deliveries could not be read".to_owned())));
        let Some(delivery) = read? else {
            return Ok(Box::new(DeletedDelivery));
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
        Ok(Box::new(DeliveryRunResult {
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

    /// Settles events that were delivered quickly to endpoints with a clean health record.
    async fn settle_in_one_statement(&self, store: &Store, runs: &[FinishedRun]) -> Result<bool> {
        let quick = |run| attempt(run).and_then(|attempt| attempt.quick_attempt(&run.0));
        let ended: Option<Vec<_>> = runs.iter().map(quick).collect();
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

    async fn write_results(&self, tx: &mut Tx, runs: &[FinishedRun]) -> Result<Vec<Outcome>> {
        let attempts: Vec<_> = runs.iter().filter_map(attempt).collect();
        let mut written = write(tx, &attempts).await?.into_iter();
        let mut outcomes = Vec::with_capacity(runs.len());
        for run in runs {
            match attempt(run) {
                Some(_) => outcomes.extend(written.next()),
                None => outcomes.push(run.1.write(tx, &run.0).await?),
            }
        }
        Ok(outcomes)
    }
}

fn attempt((_, result): &FinishedRun) -> Option<&DeliveryRunResult> {
    match result.batched() {
        Some(BatchedResult::Delivery(result)) => Some(result),
        _ => None,
    }
}

/// The result of a run whose delivery or endpoint was deleted.
struct DeletedDelivery;

#[async_trait]
impl RunResult for DeletedDelivery {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        deliveries::delete_orphan(tx, job.subject_id).await?;
        Ok(Outcome::Cancelled("the delivery no longer exists".into()))
    }
}

/// The result of a run whose delivery the endpoint must not receive.
struct RejectedDelivery {
    why: &'static str,
    /// The delivery's maximum number of attempts when the run began.
    max_attempts: i32,
}

#[async_trait]
impl RunResult for RejectedDelivery {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let current = deliveries::lock(tx, job.subject_id).await?;
        if current.is_some_and(|delivery| delivery.max_attempts > self.max_attempts) {
            // A replay was requested meanwhile, so the reason may no longer apply: make the attempt immediately.
            return Ok(Outcome::RetryAt(tx.now, self.why.to_owned()));
        }
        deliveries::fail(tx, job.subject_id, self.why).await?;
        Ok(Outcome::Cancelled(self.why.to_owned()))
    }
}
