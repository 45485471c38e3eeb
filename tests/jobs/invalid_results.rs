//! Invalid platform responses: the job ends, and other jobs are unaffected.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_platforms::{CallError, Published, ReconcileResult};
use crier_store::{Result, StoreError, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{AnyJob, AnyResult, FinishedRun, Registry, RunError};

use crate::support::fake_platform::{PublishStep, rate_limited, reauth, unknown};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    an_invalid_publish_response_is_stored_sanitized,
    an_invalid_reconcile_response_is_stored_sanitized,
    an_invalid_failure_is_stored_sanitized,
    an_unstorable_result_is_stored_reduced,
    every_result_has_a_storable_reduced_form,
);

fn invalid_post() -> Published {
    Published {
        external_id: format!("\0post\n{}", "9".repeat(3_900_000)),
        url: Some("javascript:alert(1)".into()),
        other_ids: Vec::new(),
        secrets: None,
    }
}

/// Asserts that the target was published after this number of attempts, without a crash, and with an event.
async fn assert_published(w: &TestWorker, target: i64, attempts: i32) {
    let (ended, job) = (w.target(target).await, w.job_of(target).await);
    assert_eq!((ended.status, ended.url), (TargetStatus::Published, None));
    assert_eq!(ended.external_id, Some(format!("post {}", "9".repeat(507))));
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, attempts, 0));
    let payload = w.event_payloads().await[0].to_string();
    assert!(
        payload.len() < 2_000 && payload.contains("post.published") && !payload.contains("javascript"),
        "{payload}"
    );
}

async fn an_invalid_publish_response_is_stored_sanitized(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::PublishAs(invalid_post())]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_published(&w, target, 1).await;
}

async fn an_invalid_reconcile_response_is_stored_sanitized(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    w.fake.script_reconciles([Ok(ReconcileResult::Found(invalid_post()))]);
    let (_, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_published(&w, target, 2).await;
}

async fn an_invalid_failure_is_stored_sanitized(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let failure = |category| Failure {
        code: "n\0".into(),
        message: format!("No\0\r\nBcc: {}", "x".repeat(3_900_000)),
        category,
        platform_code: Some("\u{1b}[31m\0".repeat(100)),
    };
    w.fake.script_publishes([
        PublishStep::Reject(CallError::Transient(failure(Category::PlatformError))),
        PublishStep::Reject(CallError::Permanent(failure(Category::PlatformRejected))),
    ]);
    let (_, target) = w.publish_one().await;
    w.run_until_idle().await;
    let (ended, job) = (w.target(target).await, w.job_of(target).await);
    let error = ended.error.unwrap();
    assert_eq!(
        (ended.status, error.code.as_str(), job.state, job.attempt),
        (TargetStatus::Failed, "n", JobState::Done, 2)
    );
    assert!(error.message.starts_with("No Bcc: xxx") && error.message.len() == 1_000, "{}", error.message.len());
    assert_eq!(error.platform_code.unwrap().chars().filter(|c| c.is_control()).count(), 0);
    assert_eq!((job.crashes, w.events().await), (0, vec!["post.failed".to_owned()]));
    // The account stores the error as well.
    w.fake.script_publishes([PublishStep::Reject(CallError::Reauth(failure(Category::AuthExpired)))]);
    w.publish_one().await;
    w.run_jobs().await;
    let last_error = w.stored_account().await.last_error.unwrap().message;
    assert!(last_error.contains("No Bcc: xxx") && last_error.len() < 1_200, "{} bytes", last_error.len());
}

/// `publish_target`, whose results cannot be stored unless they are reduced.
struct Unstorable(Arc<dyn AnyJob>);

#[async_trait]
impl AnyJob for Unstorable {
    async fn run(&self, run: &Run) -> std::result::Result<Arc<dyn AnyResult>, RunError> {
        Ok(Arc::new(UnstorableResult(self.0.run(run).await?)))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, dyn AnyResult>]) -> Result<Vec<Outcome>> {
        for run in runs {
            if let Some(UnstorableResult(whole)) = (run.result as &dyn Any).downcast_ref() {
                self.0.settle(tx, &[FinishedRun { job: run.job, result: &**whole }]).await?;
                return Err(StoreError::Database(sqlx::Error::Encode("the test rejects this result".into())));
            }
        }
        self.0.settle(tx, runs).await
    }

    fn settles_together(&self) -> usize {
        self.0.settles_together()
    }

    fn starts_without_slot(&self) -> bool {
        self.0.starts_without_slot()
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.0.undo_aborted(tx, run).await
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.0.undo_failed(tx, run).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        self.0.backoff(attempt)
    }
}

struct UnstorableResult(Arc<dyn AnyResult>);

impl AnyResult for UnstorableResult {
    fn order(&self) -> i64 {
        self.0.order()
    }

    fn reduced(&self) -> Option<Arc<dyn AnyResult>> {
        self.0.reduced()
    }

    fn observe(&self, outcome: &Outcome) {
        self.0.observe(outcome);
    }
}

async fn with_unstorable_results(mut w: TestWorker) -> TestWorker {
    w.listen_at("http://127.0.0.1:1/").await;
    let registry = Registry::of([
        (JobKind::PublishTarget, Arc::new(Unstorable(w.handler(JobKind::PublishTarget)))),
        (JobKind::DeliverWebhook, w.handler(JobKind::DeliverWebhook)),
    ]);
    w.engine = Engine::new(w.store.clone(), registry);
    w
}

async fn an_unstorable_result_is_stored_reduced(w: TestWorker) {
    let w = with_unstorable_results(w).await;
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    let (ended, job) = (w.target(target).await, w.job_of(target).await);
    assert_eq!((ended.status, ended.external_id.as_deref()), (TargetStatus::Published, Some("post-1")));
    assert_eq!((w.post_status(post).await, ended.url), (PostStatus::Published, None));
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0));
    assert_eq!((w.fake.count("publish"), w.events().await), (1, vec!["post.published".to_owned()]));
}

async fn every_result_has_a_storable_reduced_form(w: TestWorker) {
    let w = with_unstorable_results(w).await;
    let permanent = CallError::Permanent(Failure::of(Category::PlatformRejected, "It says: no.").from_platform("422"));
    w.fake.script_publishes([
        PublishStep::Reject(permanent),
        PublishStep::Reject(rate_limited(w.later(60))),
        PublishStep::Reject(unknown()),
        PublishStep::Publish,
    ]);
    let failed = w.publish_one().await.1;
    w.run_jobs().await;
    let error = w.target(failed).await.error.unwrap();
    assert_eq!((error.code.as_str(), error.platform_code), ("platform_rejected", None));
    assert!(!error.message.contains("It says"), "{}", error.message);
    // Retries are kept: at the time that the platform requested, and after the longest duration of a call.
    let rate_limited_target = w.publish_one().await.1;
    w.run_jobs().await;
    assert_eq!(w.job_of(rate_limited_target).await.run_at, w.later(60));
    w.run_until_idle().await;
    assert_eq!((w.target(rate_limited_target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
    w.fake.script_publishes([PublishStep::Reject(reauth())]);
    let expired = w.publish_one().await.1;
    w.run_jobs().await;
    assert_eq!(w.target(expired).await.error.unwrap().code, "account_expired");
    let unsettled = "
        SELECT count(*)
        FROM jobs
        WHERE crashes > 0
            OR state NOT IN ('done', 'cancelled') AND kind = 'publish_target'";
    assert_eq!(w.number(unsettled).await, 0);
}
