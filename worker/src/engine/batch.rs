//! Coalescing: what comes while a transaction is under way goes into the next one together; a lone item goes at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crier_common::domain::job::{Claimed, Outcome};
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::jobs::Ending;

/// How many items share a transaction at most.
const LARGEST: usize = 100;
/// How long a claim waits when the database refused one: the id is rung for again anyway.
const CLAIM_PAUSE: Duration = Duration::from_millis(500);

/// Hands items to one task that works on all that are there at once.
pub struct Batcher<I, O> {
    sender: mpsc::UnboundedSender<(I, oneshot::Sender<O>)>,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `work` gives one answer for each item, in their order.
    pub fn start<F, Fut>(work: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<O>> + Send,
    {
        let (sender, mut receiver) = mpsc::unbounded_channel::<(I, oneshot::Sender<O>)>();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while receiver.recv_many(&mut batch, LARGEST).await > 0 {
                let (items, answers): (Vec<I>, Vec<_>) = batch.drain(..).unzip();
                for (answer, to) in work(items).await.into_iter().zip(answers) {
                    let _ = to.send(answer);
                }
            }
        });
        Self { sender }
    }

    /// Waits for the item's answer; `None` where the batch got none.
    pub async fn submit(&self, item: I) -> Option<O> {
        let (to, answer) = oneshot::channel();
        self.sender.send((item, to)).ok()?;
        answer.await.ok()
    }
}

/// Claims ids together.
pub async fn claim_batch(store: Store, worker: String, ids: Vec<i64>) -> Vec<Option<Claimed>> {
    let claimed = async {
        let mut tx = store.begin().await?;
        let claimed = rows::claim(&mut tx, &ids, &worker).await?;
        tx.commit().await?;
        Ok::<_, StoreError>(claimed)
    };
    let mut by_id: HashMap<i64, Claimed> = match claimed.await {
        Ok(claimed) => claimed.into_iter().map(|job| (job.id, job)).collect(),
        Err(error) => {
            tracing::warn!(%error, "jobs could not be claimed; the scheduler rings for them again");
            tokio::time::sleep(CLAIM_PAUSE).await;
            HashMap::new()
        }
    };
    // The same id may stand in a batch twice: only the first one gets the job.
    ids.iter().map(|id| by_id.remove(id)).collect()
}

/// How a settle ended; `Ok(None)`: the lease was lost, nothing was written.
pub type Settled = Result<Option<Outcome>, Arc<StoreError>>;

/// Settles together; where one of them spoils the transaction (a lost lease, an error), each goes alone.
pub async fn settle_batch(store: Store, mut ends: Vec<(Claimed, Arc<dyn Ending>)>) -> Vec<Settled> {
    if let [(job, ending)] = ends.as_slice() {
        return vec![settle_one(&store, job, &**ending).await];
    }
    // One order for all workers: two batches that touch the same rows then queue instead of standing in each other's way.
    let order: Vec<i64> = ends.iter().map(|(job, _)| job.id).collect();
    ends.sort_by_key(|(job, _)| (job.kind, job.subject_id));
    let mut answers: HashMap<i64, Settled> = HashMap::new();
    if let Ok(outcomes) = settle_all(&store, &ends).await {
        answers.extend(ends.iter().map(|(job, _)| job.id).zip(outcomes.into_iter().map(|o| Ok(Some(o)))));
    } else {
        for (job, ending) in &ends {
            answers.insert(job.id, settle_one(&store, job, &**ending).await);
        }
    }
    order.iter().map(|id| answers.remove(id).unwrap_or(Ok(None))).collect()
}

/// All in one transaction, or `Err` and nothing.
async fn settle_all(store: &Store, ends: &[(Claimed, Arc<dyn Ending>)]) -> Result<Vec<Outcome>, Option<StoreError>> {
    let mut tx = store.begin().await?;
    let mut outcomes = Vec::with_capacity(ends.len());
    for (job, ending) in ends {
        let outcome = ending.write(&mut tx, job).await?;
        if !rows::settle(&mut tx, job, &outcome).await? {
            tx.rollback().await?;
            return Err(None);
        }
        outcomes.push(outcome);
    }
    tx.commit().await?;
    Ok(outcomes)
}

async fn settle_one(store: &Store, job: &Claimed, ending: &dyn Ending) -> Settled {
    let settled = async {
        let mut tx = store.begin().await?;
        let outcome = ending.write(&mut tx, job).await?;
        if !rows::settle(&mut tx, job, &outcome).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        Ok(Some(outcome))
    };
    settled.await.map_err(|e: StoreError| Arc::new(e))
}
