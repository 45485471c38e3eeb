//! The state that a run shares with the engine: whether a call is in progress, its slot, and its permit to run.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crier_domain::job::{ClaimedJob, JobKind};
use crier_telemetry::metrics;
use tokio::sync::{Notify, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock};
use tokio::time::timeout;

use super::Inner;

/// The maximum time for which an exclusive run waits for others that are not exclusive, and for which others then wait for
/// it. An upload may take hours, and would stop all other jobs of the process. Most crashes happen soon after the start.
const MAX_EXCLUSIVE: Duration = Duration::from_secs(60);

/// The state that a run shares with the engine.
#[derive(Clone)]
pub struct Run {
    pub job: ClaimedJob,
    /// Whether a call with an external effect is in progress. Aborting the run then is like a crash.
    in_call: Arc<AtomicBool>,
    counted: Arc<AtomicBool>,
    /// Whether the marker of a call with an external effect was stored.
    marked: Arc<AtomicBool>,
    /// Whether that call may have reached the external service, with an unknown outcome.
    in_doubt: Arc<AtomicBool>,
    /// Whether the run is aborted. Locked during a transaction that this run shares with other runs.
    aborted: Arc<tokio::sync::Mutex<bool>>,
    slot: Option<Arc<JobSlot>>,
}

impl Run {
    /// Creates a run outside the engine, for tests.
    pub fn new(job: ClaimedJob) -> Self {
        Self {
            job,
            in_call: Arc::default(),
            counted: Arc::default(),
            marked: Arc::default(),
            in_doubt: Arc::default(),
            aborted: Arc::default(),
            slot: None,
        }
    }

    pub(super) fn in_slot(job: ClaimedJob, slot: JobSlot) -> Self {
        Self { slot: Some(Arc::new(slot)), ..Self::new(job) }
    }

    /// Runs a call with an external effect.
    pub async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.in_call.store(true, Ordering::SeqCst);
        let out = call.await;
        self.in_call.store(false, Ordering::SeqCst);
        out
    }

    /// Runs a call with an external effect that only waits for an external service. Releases the slot for another job,
    /// unless too many runs already wait without one.
    pub async fn call_and_wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.release_slot();
        self.call(call).await
    }

    /// Waits for an external service, without an external effect, after releasing the slot. If the run is aborted
    /// meanwhile, its job is released.
    pub async fn wait_without_slot<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.release_slot();
        waiting.await
    }

    /// Releases the slot for another job, unless too many runs already wait without one.
    pub(super) fn release_slot(&self) {
        if let Some(slot) = &self.slot {
            slot.release_if_allowed();
        }
    }

    /// Enters a transaction that this run shares with other runs, until the guard is dropped. Returns `None` if the run
    /// is aborted.
    pub async fn enter_shared_transaction(&self) -> Option<OwnedMutexGuard<bool>> {
        Some(self.aborted.clone().lock_owned().await).filter(|aborted| !**aborted)
    }

    /// Marks the run as aborted after its current shared transaction, so that it enters no other one.
    pub(super) async fn leave_shared_transactions(&self) {
        *self.aborted.lock().await = true;
    }

    /// Records that the subject has counted this attempt.
    pub fn set_counted(&self) {
        self.counted.store(true, Ordering::SeqCst);
    }

    pub fn is_counted(&self) -> bool {
        self.counted.load(Ordering::SeqCst)
    }

    /// Records that the transaction with the call's marker is about to be committed.
    pub fn set_marked(&self) {
        self.marked.store(true, Ordering::SeqCst);
    }

    /// Sets whether the marked call may have reached the external service.
    pub fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }

    /// Returns whether there is a marker of a call that was never made, or that was rejected.
    pub fn has_unused_marker(&self) -> bool {
        self.marked.load(Ordering::SeqCst) && !self.in_doubt.load(Ordering::SeqCst)
    }

    pub(super) fn is_in_call(&self) -> bool {
        self.in_call.load(Ordering::SeqCst)
    }
}

/// Whether other runs may run at the same time. A run holds its permit until it ends.
#[derive(Debug)]
pub(super) enum RunPermit {
    Shared(OwnedRwLockReadGuard<u64>),
    /// For a job that was running at earlier crashes: no other job should crash with it.
    Exclusive(OwnedRwLockWriteGuard<u64>),
}

impl RunPermit {
    /// Waits until no other run is left. If some are left after [`MAX_EXCLUSIVE`], the run shares the process with them.
    /// The waits for other exclusive runs do not count: after crashes of many jobs, the one that caused them runs alone.
    /// `turn` makes one of them wait for the gate at a time, so that other runs begin in between.
    pub async fn exclusive(
        gate: &Arc<RwLock<u64>>,
        turn: &tokio::sync::Mutex<()>,
        mut others: OwnedRwLockReadGuard<u64>,
    ) -> Self {
        loop {
            let exclusive_runs = *others;
            drop(others);
            let alone = async {
                let _turn = turn.lock().await;
                gate.clone().write_owned().await
            };
            if let Ok(mut guard) = timeout(MAX_EXCLUSIVE, alone).await {
                *guard += 1;
                return Self::Exclusive(guard);
            }
            others = gate.clone().read_owned().await;
            if *others == exclusive_runs {
                return Self::Shared(others);
            }
        }
    }

    /// Runs with this permit. An exclusive run shares the process after [`MAX_EXCLUSIVE`].
    pub async fn hold_during(self, run: impl Future<Output = ()>) {
        let mut run = std::pin::pin!(run);
        let _others = match self {
            Self::Shared(others) => others,
            Self::Exclusive(guard) => match timeout(MAX_EXCLUSIVE, &mut run).await {
                Ok(()) => return,
                Err(_) => guard.downgrade(),
            },
        };
        run.await;
    }
}

/// Counts work that the drain waits for, until it is dropped.
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

/// A claimed job. Its lease is renewed until it ends, and it counts as a busy slot until it ends or releases its slot.
pub(super) struct JobSlot {
    inner: Arc<Inner>,
    /// The job's id and fence. The fence is needed because a frozen run of a job may end while the rescued one runs.
    key: (i64, i64),
    kind: JobKind,
    busy: AtomicBool,
    /// The permit that replaces the slot until the job is settled, so that slow settles slow down the claims.
    waiting: OnceLock<OwnedSemaphorePermit>,
    /// Notified when the slot is released.
    released: Arc<Notify>,
}

impl JobSlot {
    pub fn take(inner: &Arc<Inner>, job: &ClaimedJob, released: Arc<Notify>) -> Self {
        metrics::slot_taken();
        Self::hold(inner, job, AtomicBool::new(true), OnceLock::new(), released)
    }

    /// Holds a job without a slot; `waiting` is the permit for that.
    pub fn without(inner: &Arc<Inner>, job: &ClaimedJob, waiting: OwnedSemaphorePermit) -> Self {
        Self::hold(inner, job, AtomicBool::new(false), OnceLock::from(waiting), Arc::default())
    }

    fn hold(
        inner: &Arc<Inner>,
        job: &ClaimedJob,
        busy: AtomicBool,
        waiting: OnceLock<OwnedSemaphorePermit>,
        released: Arc<Notify>,
    ) -> Self {
        let key = (job.id, job.fence);
        insert(&inner.held, key);
        Self { inner: inner.clone(), key, kind: job.kind, busy, waiting, released }
    }

    /// Releases the slot for another job, unless too many runs already wait without one.
    fn release_if_allowed(&self) {
        if let Some(Ok(permit)) = self.inner.waiting.get(&self.kind).map(|waiting| waiting.clone().try_acquire_owned())
            && self.waiting.set(permit).is_ok()
        {
            self.mark_free();
            self.released.notify_one();
        }
    }

    fn mark_free(&self) {
        if self.busy.swap(false, Ordering::SeqCst) {
            metrics::slot_released();
        }
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        remove(&self.inner.held, &self.key);
        self.mark_free();
    }
}

/// The id of a job that waits to run exclusively. Further notifications for it are ignored meanwhile.
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

/// No code panics while it holds one of these locks, so a poisoned lock is safe to use.
pub(super) fn insert<T: Eq + std::hash::Hash>(set: &Mutex<HashSet<T>>, value: T) -> bool {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(value)
}

pub(super) fn contains<T: Eq + std::hash::Hash>(set: &Mutex<HashSet<T>>, value: &T) -> bool {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(value)
}

fn remove<T: Eq + std::hash::Hash>(set: &Mutex<HashSet<T>>, value: &T) {
    set.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(value);
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    fn run() -> Run {
        Run::new(ClaimedJob {
            id: 1,
            kind: JobKind::Noop,
            subject_id: 1,
            lane: None,
            workspace_lane: None,
            attempt: 1,
            max_attempts: 5,
            crashes: 0,
            fence: 1,
            worker: "w".to_owned(),
            run_at: DateTime::UNIX_EPOCH,
            trace: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn an_exclusive_run_and_others_wait_for_each_other_for_a_minute() {
        let (gate, turn) = (Arc::<RwLock<u64>>::default(), tokio::sync::Mutex::default());
        let (claimed, others) = (gate.clone().read_owned().await, gate.clone().read_owned().await);
        let began = Instant::now();
        let permit = RunPermit::exclusive(&gate, &turn, claimed).await;
        assert!(matches!(permit, RunPermit::Shared(_)), "another run takes longer");
        assert_eq!(began.elapsed(), MAX_EXCLUSIVE);
        drop((permit, others));

        let permit = RunPermit::exclusive(&gate, &turn, gate.clone().read_owned().await).await;
        assert!(matches!(permit, RunPermit::Exclusive(_)), "no other run is left");
        let began = Instant::now();
        let run = tokio::spawn(permit.hold_during(std::future::pending()));
        drop(gate.read().await);
        assert_eq!(began.elapsed(), MAX_EXCLUSIVE);
        assert!(gate.try_write().is_err(), "it runs beside the others");
        run.abort();
    }

    /// Otherwise, the job that crashes the process would run next to jobs for which another crash is the last one.
    #[tokio::test(start_paused = true)]
    async fn many_exclusive_runs_wait_for_each_other() {
        let (gate, turn) = (Arc::<RwLock<u64>>::default(), tokio::sync::Mutex::default());
        let length = MAX_EXCLUSIVE * 2 / 3;
        let run = async |claimed: OwnedRwLockReadGuard<u64>| {
            let permit = RunPermit::exclusive(&gate, &turn, claimed).await;
            assert!(matches!(permit, RunPermit::Exclusive(_)));
            permit.hold_during(tokio::time::sleep(length)).await;
        };
        let claim = async || gate.clone().read_owned().await;
        let (first, second, third, fourth) = (claim().await, claim().await, claim().await, claim().await);
        let began = Instant::now();
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(claim().await);
            assert_eq!(began.elapsed(), length * 2, "it waits only for the current one and the next one");
        };
        tokio::join!(run(first), run(second), run(third), run(fourth), other);
        assert_eq!(began.elapsed(), length * 4);
    }

    #[tokio::test]
    async fn an_aborted_run_waits_for_a_shared_transaction_and_enters_no_other() {
        let run = run();
        let shared = run.clone().enter_shared_transaction().await;
        assert!(shared.is_some());
        assert!(run.leave_shared_transactions().now_or_never().is_none(), "the transaction has not ended");
        drop(shared);
        assert!(run.leave_shared_transactions().now_or_never().is_some());
        assert!(run.clone().enter_shared_transaction().await.is_none());
    }
}
