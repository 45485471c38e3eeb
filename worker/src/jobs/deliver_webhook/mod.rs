//! `deliver_webhook`: one attempt to bring an event to an endpoint.
//!
//! The delivery's own counters decide when the next attempt is and when there is none; the job follows them. Attempts are
//! at least once: the receiver de-duplicates by the delivery's id, which stays the same. Deliveries that begin together are
//! read together, and those that end together are written together.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use crier_common::domain::job::{Claimed, Kind, Outcome};
use crier_common::domain::webhook::DeliveryStatus;
use crier_common::mail::Mailer;
use crier_common::store::deliveries::Outgoing;
use crier_common::store::{Result, Store, StoreError, Tx, deliveries};
use crier_common::telemetry::metrics;
use crier_common::webhooks::sender::{DeliveryRequest, Sender};

use super::{Deps, End, Ending, Job};
use crate::engine::{Batcher, Run};

mod attempted;

use attempted::{Attempted, write};

/// How many batches of deliveries are read at once.
const READS: usize = 2;

pub struct DeliverWebhook {
    store: Store,
    sender: Arc<Sender>,
    mailer: Option<Arc<Mailer>>,
    reads: Batcher<i64, Result<Option<Outgoing>>>,
}

impl DeliverWebhook {
    pub fn new(deps: &Deps) -> Self {
        let store = deps.store.clone();
        let reads = Batcher::start(READS, move |ids| read(store.clone(), ids));
        Self { store: deps.store.clone(), sender: deps.webhooks.clone(), mailer: deps.mailer.clone(), reads }
    }
}

/// The deliveries with these ids; where one of them cannot be read, the others are all the same.
async fn read(store: Store, ids: Vec<i64>) -> Vec<Result<Option<Outgoing>>> {
    let some = async |ids: &[i64]| deliveries::outgoing(&mut store.read().await?, ids).await;
    match some(&ids).await {
        Ok(found) => {
            let found: HashMap<_, _> = found.into_iter().map(|delivery| (delivery.id, delivery)).collect();
            // Not taken out: a frozen run of a delivery and the one that was rescued may begin together.
            return ids.iter().map(|id| Ok(found.get(id).cloned())).collect();
        }
        // It is no fault of any of them, and would only be waited for again.
        Err(error) if error.is_passing() => {
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
            secret: delivery.secret(self.store.cipher())?,
            url: delivery.url,
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
            mailer: self.mailer.clone(),
            trace: run.job.trace.clone(),
        }))
    }

    fn ends_at_once(&self) -> usize {
        usize::MAX
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
