//! `deliver_webhook`: one attempt to deliver an event to an endpoint.
//!
//! The delivery's own counters determine the time of the next attempt and the number of attempts; the job follows them.
//! Events are delivered at least once; receivers deduplicate by the delivery's id, which is the same for all attempts.
//! Deliveries that begin together are read together, and deliveries that end together are written together.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::Outcome;
use crier_domain::plan::{Feature, Plans};
use crier_domain::webhook::DeliveryStatus;
use crier_store::deliveries::{self, OutgoingDelivery};
use crier_store::{Batcher, Result, Store, StoreError, Tx};
use crier_telemetry::metrics;

use self::run_result::{Attempt, DeliveryRunResult, write_all};
use super::{Deps, FinishedRun, Job, RunError};
use crate::engine::Run;
use crate::webhooks::sender::{DeliveryRequest, Sender};

mod run_result;

/// The maximum number of batches of deliveries that are read concurrently.
const READ_CONCURRENCY: usize = 2;

pub struct DeliverWebhook {
    store: Store,
    plans: Arc<Plans>,
    sender: Arc<Sender>,
    reads: Batcher<i64, Result<Option<OutgoingDelivery>>>,
}

impl DeliverWebhook {
    pub fn new(deps: &Deps) -> Self {
        let store = deps.store.clone();
        let reads = Batcher::start(deps.store.workers(), READ_CONCURRENCY, move |ids| read(store.clone(), ids));
        Self { store: deps.store.clone(), plans: deps.plans.clone(), sender: deps.webhooks.clone(), reads }
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
    type Result = DeliveryRunResult;

    const SETTLES_TOGETHER: usize = usize::MAX;

    const STARTS_WITHOUT_SLOT: bool = true;

    async fn run(&self, run: &Run) -> std::result::Result<DeliveryRunResult, RunError> {
        let read = self.reads.submit(run.job.subject_id).await;
        let read = read.unwrap_or_else(|| Err(StoreError::Decode("deliveries could not be read".to_owned())));
        let Some(delivery) = read? else {
            return Ok(DeliveryRunResult::Deleted);
        };
        if !matches!(delivery.status, DeliveryStatus::Pending | DeliveryStatus::Retrying) {
            return Err(RunError::cancelled("the delivery has ended"));
        }
        if let Some(why) = self.reason_to_reject(&delivery)? {
            return Ok(DeliveryRunResult::Rejected { why, max_attempts: delivery.max_attempts });
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
        Ok(DeliveryRunResult::Attempted(Box::new(Attempt {
            delivery_id: delivery.id,
            webhook_id: delivery.webhook_id,
            created_at: delivery.created_at,
            number: delivery.attempts + 1,
            allowed: delivery.max_attempts,
            started_at,
            result,
            jitter: crier_base::random::unit(),
        })))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, DeliveryRunResult>]) -> Result<Vec<Outcome>> {
        write_all(tx, runs).await
    }
}
