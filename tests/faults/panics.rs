//! A job's code that panics: in the run, while its result is stored, while the outcome is observed, or while the retry
//! delay is computed. Invariant: the job ends, and its subject is notified once. The other jobs of its batch are
//! published once and count no crash.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_store::{Result, StoreError, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{AnyJob, AnyResult, FinishedRun, Registry, RunError};

use crate::support::fake_platform::PublishStep;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::scripted::{StoreFailure, run_three_with_failing_middle};

worker_on_both!(
    a_panic_is_retried_and_reported_after_the_last_attempt,
    a_panic_while_storing_does_not_affect_other_jobs,
    a_panic_in_the_run_fails_only_its_target,
    a_panic_while_storing_fails_only_its_target,
    a_panic_in_observe_changes_no_result,
    a_panic_in_the_retry_delay_fails_only_its_target,
);

#[derive(Clone, Copy, PartialEq)]
enum PanicPoint {
    Run,
    End,
    Observe,
    Pause,
}

/// A handler that panics for one subject, whenever its job runs. Fails the first settle, so that each result is stored
/// alone.
struct PanickingJob {
    kind: Arc<dyn AnyJob>,
    at: PanicPoint,
    subject: i64,
    fails_to_settle: AtomicBool,
}

#[async_trait]
impl AnyJob for PanickingJob {
    async fn run(&self, run: &Run) -> std::result::Result<Arc<dyn AnyResult>, RunError> {
        let is_panicking = run.job.subject_id == self.subject;
        assert!(
            !(is_panicking && matches!(self.at, PanicPoint::Run | PanicPoint::Pause)),
            "the run panics, as the test wants"
        );
        let panics = is_panicking && self.at == PanicPoint::Observe;
        Ok(Arc::new(ObservedResult { result: self.kind.run(run).await?, panics }))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, dyn AnyResult>]) -> Result<Vec<Outcome>> {
        if self.fails_to_settle.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Database(sqlx::Error::PoolTimedOut));
        }
        let mut outcomes = Vec::new();
        for run in runs {
            let inner = FinishedRun { job: run.job, result: inner(run.result) };
            outcomes.extend(self.kind.settle(tx, &[inner]).await?);
            let panics = run.job.subject_id == self.subject && self.at == PanicPoint::End;
            assert!(!panics, "the end panics, as the test wants");
        }
        Ok(outcomes)
    }

    fn settles_together(&self) -> usize {
        self.kind.settles_together()
    }

    fn starts_without_slot(&self) -> bool {
        self.kind.starts_without_slot()
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.kind.undo_aborted(tx, run).await
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.kind.undo_failed(tx, run).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        assert!(self.at != PanicPoint::Pause, "the pause panics, as the test wants");
        self.kind.backoff(attempt)
    }
}

struct ObservedResult {
    result: Arc<dyn AnyResult>,
    panics: bool,
}

/// Returns the result that an [`ObservedResult`] contains.
fn inner(result: &dyn AnyResult) -> &dyn AnyResult {
    let observed: Option<&ObservedResult> = (result as &dyn Any).downcast_ref();
    &*observed.expect("every result is of this type").result
}

impl AnyResult for ObservedResult {
    fn order(&self) -> i64 {
        self.result.order()
    }

    /// There is no smaller result.
    fn reduced(&self) -> Option<Arc<dyn AnyResult>> {
        None
    }

    fn observe(&self, outcome: &Outcome) {
        assert!(!self.panics, "the count panics, as the test wants");
        self.result.observe(outcome);
    }
}

/// Runs three targets of a post concurrently; the code of the middle one panics. Returns the worker, the post and its
/// targets after all jobs have ended.
async fn run_three_targets(mut w: TestWorker, at: PanicPoint) -> (TestWorker, i64, Vec<i64>) {
    w.listen_at("http://127.0.0.1:1/").await;
    let accounts = [w.account.id, w.another_account("b").await.id, w.another_account("c").await.id];
    let (post, targets) = w.publish(&accounts).await;
    let panicking_job = PanickingJob {
        kind: w.handler(JobKind::PublishTarget),
        at,
        subject: targets[1],
        fails_to_settle: AtomicBool::new(at == PanicPoint::Observe),
    };
    let registry = Registry::of([
        (JobKind::PublishTarget, Arc::new(panicking_job)),
        (JobKind::DeliverWebhook, w.handler(JobKind::DeliverWebhook)),
        (JobKind::Noop, w.handler(JobKind::Noop)),
    ]);
    w.engine = Engine::new(w.store.clone(), registry);
    let ids = w.s.notifier.take();
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    for i in [0, 2] {
        assert_eq!(w.target(targets[i]).await.status, TargetStatus::Published);
        let job = w.show(ids[i]).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0), "it is unaffected");
    }
    w.run_until_idle().await;
    assert!(w.engine.held().is_empty());
    let mut markers: Vec<_> = w.fake.posts().into_iter().map(|posted| posted.marker).collect();
    markers.sort();
    markers.dedup();
    assert_eq!(markers.len(), w.fake.posts().len(), "each is published once");
    (w, post, targets)
}

async fn assert_reported_as_failed(w: &TestWorker, post: i64, target: i64, reason: &str) {
    let (ended, job) = (w.target(target).await, w.job_of(target).await);
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "internal"));
    assert_eq!((job.state, job.last_error.as_deref()), (JobState::Dead, Some(reason)));
    assert_eq!(w.post_status(post).await, PostStatus::PartiallyPublished);
    let mut events = w.events().await;
    events.sort();
    assert_eq!(events, ["post.failed", "post.published", "post.published"]);
}

async fn a_panic_in_the_run_fails_only_its_target(w: TestWorker) {
    w.leaves_jobs();
    let (w, post, targets) = run_three_targets(w, PanicPoint::Run).await;
    assert_reported_as_failed(&w, post, targets[1], "panicked").await;
    assert_eq!((w.job_of(targets[1]).await.attempt, w.fake.posts().len()), (8, 2));
}

/// The call was made, so the platform has the post, but the result cannot be stored. The job is dead, without a crash.
async fn a_panic_while_storing_fails_only_its_target(w: TestWorker) {
    w.leaves_jobs();
    let (w, post, targets) = run_three_targets(w, PanicPoint::End).await;
    assert_reported_as_failed(&w, post, targets[1], "the result of its run could not be stored").await;
    assert_eq!(w.job_of(targets[1]).await.crashes, 0);
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (3, 3), "it was not sent again");
}

async fn a_panic_in_observe_changes_no_result(w: TestWorker) {
    let (w, post, targets) = run_three_targets(w, PanicPoint::Observe).await;
    let job = w.job_of(targets[1]).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0));
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 3));
    assert_eq!(w.events().await, ["post.published", "post.published", "post.published"]);
}

async fn a_panic_in_the_retry_delay_fails_only_its_target(w: TestWorker) {
    w.leaves_jobs();
    let (w, post, targets) = run_three_targets(w, PanicPoint::Pause).await;
    assert_reported_as_failed(&w, post, targets[1], "poison").await;
    assert_eq!(w.fake.posts().len(), 2);
}

async fn a_panic_while_storing_does_not_affect_other_jobs(w: TestWorker) {
    assert_eq!(run_three_with_failing_middle(&w, 2, StoreFailure::Panic).await, [JobState::Done; 3]);
}

async fn a_panic_is_retried_and_reported_after_the_last_attempt(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes((0..8).map(|_| PublishStep::Panic));
    let (post, target) = w.publish_one().await;
    let id = w.notified_job();
    w.engine.run(id).await;
    let job = w.show(id).await;
    assert_eq!((job.state, job.last_error.as_deref()), (JobState::Scheduled, Some("panicked")));
    let milliseconds = (job.run_at - w.clock.now()).num_milliseconds();
    assert!((8_000..=12_000).contains(&milliseconds), "{milliseconds} ms");

    // The run panicked in the middle of the call: the post is looked up before the next call.
    w.set_attempts(id, 7).await;
    w.advance(70);
    w.run_jobs().await;
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile")), (2, 1));
    assert_eq!(w.state(id).await, JobState::Dead);
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!(
        (ended.status, error.code.as_str(), error.category),
        (TargetStatus::Failed, "internal", Category::Internal)
    );
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.events().await, ["post.failed"]);
}
