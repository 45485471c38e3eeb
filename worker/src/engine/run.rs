//! What one run shares with the engine: whether it is in the middle of a call, its slot, its place beside the others.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crier_common::domain::job::{Claimed, Kind};
use crier_common::telemetry::metrics;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit};

use super::Inner;

/// The state that a run shares with the engine.
#[derive(Clone)]
pub struct Run {
    pub job: Claimed,
    /// Set while a call with an effect outside is under way: a run that is broken off then is like a crash in its middle.
    in_call: Arc<AtomicBool>,
    counted: Arc<AtomicBool>,
    /// It stored that a call with an effect outside begins.
    marked: Arc<AtomicBool>,
    /// That call may have reached the other side, and its end is not known.
    in_doubt: Arc<AtomicBool>,
    slot: Option<Arc<Slot>>,
}

impl Run {
    /// A run outside the engine, for tests.
    pub fn new(job: Claimed) -> Self {
        Self {
            job,
            in_call: Arc::default(),
            counted: Arc::default(),
            marked: Arc::default(),
            in_doubt: Arc::default(),
            slot: None,
        }
    }

    pub(super) fn in_slot(job: Claimed, slot: Slot) -> Self {
        Self { slot: Some(Arc::new(slot)), ..Self::new(job) }
    }

    /// Runs a call with an effect outside.
    pub async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.in_call.store(true, Ordering::SeqCst);
        let out = call.await;
        self.in_call.store(false, Ordering::SeqCst);
        out
    }

    /// The same for a call that only waits for others: it needs nothing of ours meanwhile, so its place goes to another job,
    /// as long as not too many wait so.
    pub async fn call_and_wait<T>(&self, call: impl Future<Output = T>) -> T {
        if let Some(slot) = &self.slot {
            slot.give_back();
        }
        self.call(call).await
    }

    /// The same without an effect outside: a run that is broken off meanwhile is handed back.
    pub async fn wait<T>(&self, waiting: impl Future<Output = T>) -> T {
        if let Some(slot) = &self.slot {
            slot.give_back();
        }
        waiting.await
    }

    /// Waits until few other runs of its workspace are in a transaction; the turn ends when it is dropped. A run that has to
    /// wait gives its place back.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let (slot, lane) = (self.slot.as_ref()?, self.job.workspace_lane.as_deref()?);
        slot.inner.turns.take(lane, || slot.give_back()).await
    }

    /// The subject has counted this run among its tries.
    pub fn count(&self) {
        self.counted.store(true, Ordering::SeqCst);
    }

    pub fn is_counted(&self) -> bool {
        self.counted.load(Ordering::SeqCst)
    }

    /// The transaction that stores the beginning of a call is about to be committed.
    pub fn mark(&self) {
        self.marked.store(true, Ordering::SeqCst);
    }

    /// Whether the call that was marked may have reached the other side.
    pub fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }

    /// A call was marked as begun that was never made, or that the other side turned away.
    pub fn has_idle_mark(&self) -> bool {
        self.marked.load(Ordering::SeqCst) && !self.in_doubt.load(Ordering::SeqCst)
    }

    pub(super) fn is_in_call(&self) -> bool {
        self.in_call.load(Ordering::SeqCst)
    }
}

/// Whether a run has neighbours; held as long as it runs.
#[derive(Debug)]
pub(super) enum Place {
    Among {
        _others: OwnedRwLockReadGuard<()>,
    },
    /// For a job that crashed its process before: nobody else is to die with it.
    Alone {
        _nobody: OwnedRwLockWriteGuard<()>,
    },
}

/// One of something that is counted until it is dropped: work that the drain waits for.
pub(super) struct Active(pub Arc<Inner>);

impl Active {
    pub fn enter(inner: &Arc<Inner>) -> Self {
        inner.active.fetch_add(1, Ordering::SeqCst);
        Self(inner.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A job held: in the heartbeat's set, and counted as a busy slot until it ends or gives its place back.
pub(super) struct Slot {
    inner: Arc<Inner>,
    /// With the fence, as a frozen run of a job may end while the one that was rescued goes on.
    key: (i64, i64),
    kind: Kind,
    busy: AtomicBool,
    /// Instead of its place, until it has been settled: a database that is slow to settle must slow down the claims.
    waiting: OnceLock<OwnedSemaphorePermit>,
    /// Told when the place is given back.
    left: Arc<Notify>,
}

impl Slot {
    pub fn take(inner: &Arc<Inner>, job: &Claimed, left: Arc<Notify>) -> Self {
        let key = (job.id, job.fence);
        insert(&inner.held, key);
        count(inner, inner.busy.fetch_add(1, Ordering::SeqCst) + 1);
        Self { inner: inner.clone(), key, kind: job.kind, busy: AtomicBool::new(true), waiting: OnceLock::new(), left }
    }

    /// The place goes to another, unless too many wait without one.
    fn give_back(&self) {
        if let Some(Ok(permit)) = self.inner.waiting.get(&self.kind).map(|waiting| waiting.clone().try_acquire_owned())
            && self.waiting.set(permit).is_ok()
        {
            self.leave();
            self.left.notify_one();
        }
    }

    fn leave(&self) {
        if self.busy.swap(false, Ordering::SeqCst) {
            count(&self.inner, self.inner.busy.fetch_sub(1, Ordering::SeqCst) - 1);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        remove(&self.inner.held, &self.key);
        self.leave();
    }
}

fn count(inner: &Inner, busy: usize) {
    metrics::worker_slots(busy, inner.slots.saturating_sub(busy));
}

/// An id that waits until it can run alone; once, however often it is rung for meanwhile.
pub(super) struct Queued(Arc<Inner>, i64);

impl Queued {
    pub fn enter(inner: &Arc<Inner>, id: i64) -> Option<Self> {
        insert(&inner.queued, id).then(|| Self(inner.clone(), id))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        remove(&self.0.queued, &self.1);
    }
}

/// No code panics while it holds one of these sets, so a poisoned lock is as good as any.
fn insert<T: Eq + std::hash::Hash>(set: &Mutex<HashSet<T>>, value: T) -> bool {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(value)
}

fn remove<T: Eq + std::hash::Hash>(set: &Mutex<HashSet<T>>, value: &T) {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(value);
}
