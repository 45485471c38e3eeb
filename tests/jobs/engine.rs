//! The engine: draining, releasing jobs, settling batches, and failures beside successes.

use std::sync::Arc;

use crier_domain::job::{JobKind, JobState, LEASE, Outcome};
use crier_domain::post::TargetStatus;
use crier_worker::engine::Engine;
use crier_worker::heartbeat;

use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};
use crate::support::scripted::{
    JobBehavior, StoreFailure, enqueue_noop, run_three_with_failing_middle, scripted_engine, start,
};

worker_on_both!(
    a_drain_finishes_running_jobs,
    a_claim_in_progress_at_drain_start_is_released,
    waiting_jobs_are_released_after_the_grace_period,
    an_open_call_after_the_grace_period_keeps_its_lease,
    concurrent_jobs_are_settled_in_one_batch,
    a_failed_settle_does_not_affect_others,
    an_unstorable_result_makes_its_job_dead,
    an_unhandled_kind_is_released,
    the_heartbeat_renews_running_jobs,
);

async fn a_drain_finishes_running_jobs(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted_engine(&w, [(1, JobBehavior::Wait(gate.clone()))]);
    let (first, second) = (enqueue_noop(&w, 1).await, enqueue_noop(&w, 2).await);
    let run = start(&engine, first);
    gate.wait_until_entered().await;
    engine.drain();
    assert!(!engine.run(second).await, "nothing new is claimed");
    gate.let_through();
    engine.idle().await;
    assert!(run.await.unwrap());
    assert_eq!((w.state(first).await, w.state(second).await), (JobState::Done, JobState::Ready));
    assert_eq!(w.show(second).await.attempt, 0);
}

async fn a_claim_in_progress_at_drain_start_is_released(w: TestWorker) {
    let engine = scripted_engine(&w, []);
    let id = enqueue_noop(&w, 1).await;
    // The claim waits for the database; the drain must wait for the claim.
    let mut tx = w.begin().await.unwrap();
    if w.is_postgres() {
        crate::support::store::lock_table(&mut tx, "jobs").await;
    }
    let run = start(&engine, id);
    tokio::task::yield_now().await;
    engine.drain();
    tx.rollback().await.unwrap();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Ready, 0, 0));
    // The next worker receives it immediately.
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.notifier.take(), [id]);
}

/// Stops an engine during a job that behaves like this, and ends the grace period. Returns the engine and the job's id.
async fn stop_during(w: &TestWorker, behavior: fn(Arc<Gate>) -> JobBehavior) -> (Engine, i64) {
    let gate = Gate::new();
    let engine = scripted_engine(w, [(1, behavior(gate.clone()))]);
    let id = enqueue_noop(w, 1).await;
    let run = start(&engine, id);
    gate.wait_until_entered().await;
    engine.drain();
    engine.abort();
    engine.idle().await;
    run.await.unwrap();
    (engine, id)
}

async fn waiting_jobs_are_released_after_the_grace_period(w: TestWorker) {
    let (engine, id) = stop_during(&w, JobBehavior::Wait).await;
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt, job.crashes, job.lease_until), (JobState::Ready, 0, 0, None));
    assert!(engine.held().is_empty());
}

async fn an_open_call_after_the_grace_period_keeps_its_lease(w: TestWorker) {
    let (_, id) = stop_during(&w, JobBehavior::WaitInCall).await;
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Running, 1));
    assert_eq!(job.lease_until, Some(w.clock.now() + LEASE));
    w.advance(LEASE_EXPIRY_SECONDS);
    w.scheduler.tick().await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.crashes), (JobState::Ready, 1));
}

async fn concurrent_jobs_are_settled_in_one_batch(w: TestWorker) {
    w.leaves_jobs();
    let engine = scripted_engine(&w, [(7, JobBehavior::End(Outcome::Abort("no".into())))]);
    let mut ids = Vec::new();
    for subject in 0..60 {
        ids.push(enqueue_noop(&w, subject).await);
    }
    let ran = futures::future::join_all(ids.iter().chain(&ids).map(|id| engine.run(*id))).await;
    assert_eq!(ran.iter().filter(|ran| **ran).count(), 60, "each once, however often it was notified");
    for (subject, id) in ids.iter().enumerate() {
        assert_eq!(w.state(*id).await, if subject == 7 { JobState::Dead } else { JobState::Done });
    }
}

async fn a_failed_settle_does_not_affect_others(w: TestWorker) {
    // The second failure affects only this job; the third write succeeds.
    assert_eq!(run_three_with_failing_middle(&w, 2, StoreFailure::Transient).await, [JobState::Done; 3]);
}

async fn an_unstorable_result_makes_its_job_dead(w: TestWorker) {
    w.leaves_jobs();
    for (failure, times) in [(StoreFailure::Final, 1_000), (StoreFailure::Panic, 1_000)] {
        w.delete_jobs().await;
        assert_eq!(
            run_three_with_failing_middle(&w, times, failure).await,
            [JobState::Done, JobState::Dead, JobState::Done]
        );
        w.advance(LEASE_EXPIRY_SECONDS);
        w.scheduler.tick().await.unwrap();
        assert_eq!(w.count_rows("jobs WHERE crashes > 0").await, 0, "no crash is counted");
        let dead = w.show(w.newest_id("jobs WHERE state = 'dead'").await).await;
        assert_eq!(dead.last_error.as_deref(), Some("the result of its run could not be stored"));
    }
}

async fn an_unhandled_kind_is_released(w: TestWorker) {
    let engine = w.engine_for(w.store.clone(), &[JobKind::Noop, JobKind::DeliverWebhook]);
    assert_eq!(engine.kinds(), [JobKind::DeliverWebhook, JobKind::Noop]);
    let (_, target) = w.publish_one().await;
    engine.run(w.notified_job()).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn the_heartbeat_renews_running_jobs(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (_, target) = w.publish_one().await;
    let run = start(&w.engine, w.notified_job());
    gate.wait_until_entered().await;
    for _ in 0..5 {
        w.advance(20);
        assert_eq!(heartbeat::renew_leases(&w.engine, &w.store).await.unwrap(), 1);
        w.run_jobs().await;
    }
    assert_eq!(w.job_of(target).await.crashes, 0);
    // A draining worker renews its leases as well.
    w.engine.drain();
    w.advance(20);
    assert_eq!(heartbeat::renew_leases(&w.engine, &w.store).await.unwrap(), 1);
    gate.let_through();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!(heartbeat::renew_leases(&w.engine, &w.store).await.unwrap(), 0, "no lease is held");
}
