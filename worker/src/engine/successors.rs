//! Successors: waiting jobs that are claimed when a place in their lane becomes free, either after a settle or by a
//! claim that has just found the lane full.

use std::sync::{Mutex, PoisonError, Weak};

use crier_domain::job::{ClaimedJob, JobKind};
use crier_store::batch::BatchPermit;
use crier_store::{ReservedRun, Successors};
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit};

use super::run::{Active, JobSlot};
use super::{Engine, Inner};

/// Starts jobs that wait for a lane with free places.
pub(super) struct LaneSuccessors {
    worker: String,
    engine: Weak<Inner>,
    /// The permit of a batch of settles, released after its commit.
    turn: Mutex<Option<BatchPermit>>,
}

impl LaneSuccessors {
    pub fn new(worker: String, engine: Weak<Inner>, turn: Option<BatchPermit>) -> Self {
        Self { worker, engine, turn: Mutex::new(turn) }
    }
}

impl Successors for LaneSuccessors {
    fn worker(&self) -> &str {
        &self.worker
    }

    /// Lets the next settles begin.
    fn committed(&self) {
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn reserve(&self, kind: JobKind) -> Option<Box<dyn ReservedRun>> {
        let engine = self.engine.upgrade().filter(|engine| !engine.draining.is_cancelled())?;
        engine.registry.get(kind).filter(|handler| handler.starts_without_slot())?;
        let others = engine.gate.clone().try_read_owned().ok()?;
        let waiting = engine.waiting.get(&kind)?.clone().try_acquire_owned().ok()?;
        Some(Box::new(ReservedSuccessor { engine: Engine(engine), others, waiting }))
    }
}

/// The permits of a run without a slot.
struct ReservedSuccessor {
    engine: Engine,
    others: OwnedRwLockReadGuard<u64>,
    waiting: OwnedSemaphorePermit,
}

impl ReservedRun for ReservedSuccessor {
    fn start(self: Box<Self>, job: ClaimedJob) {
        let Self { engine, others, waiting } = *self;
        let (active, slot) = (Active::enter(&engine.0), JobSlot::without(&engine.0, &job, waiting));
        tokio::spawn(async move {
            let (_active, _others) = (active, others);
            engine.run_in_slot(job, slot).await;
        });
    }
}
