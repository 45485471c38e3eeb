//! The engine: drain, hand-back, batches, and failures next to successes.

use crier_common::domain::job::{JobKind, JobState, LEASE, Outcome};
use crier_common::domain::post::TargetStatus;
use crier_worker::heartbeat;

use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_OVER, TestWorker, worker_on_both};
use crate::support::scripted::{Act, Refusal, noop, run_three_with_failing_middle, scripted, start};

worker_on_both!(
    what_runs_is_finished_by_a_drain,
    a_claim_under_way_when_the_drain_begins_is_handed_back,
    what_waits_when_the_grace_is_over_is_handed_back,
    a_call_when_the_grace_is_over_is_left_to_its_lease,
    jobs_that_come_together_end_together,
    one_bad_end_spoils_no_other,
    an_end_that_is_refused_ends_its_job_all_the_same,
    a_kind_that_is_not_taken_is_handed_back,
    the_heartbeat_renews_what_runs,
);

async fn what_runs_is_finished_by_a_drain(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::Wait(gate.clone()))]);
    let (first, second) = (noop(&w, 1).await, noop(&w, 2).await);
    let run = start(&engine, first);
    gate.entered().await;
    engine.drain();
    assert!(!engine.run(second).await, "nothing new is claimed");
    gate.let_through();
    engine.idle().await;
    assert!(run.await.unwrap());
    assert_eq!((w.state(first).await, w.state(second).await), (JobState::Done, JobState::Ready));
    assert_eq!(w.show(second).await.attempt, 0);
}

async fn a_claim_under_way_when_the_drain_begins_is_handed_back(w: TestWorker) {
    let engine = scripted(&w, []);
    let id = noop(&w, 1).await;
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
    // The next worker gets it at once.
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.notifier.take(), [id]);
}

async fn what_waits_when_the_grace_is_over_is_handed_back(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::Wait(gate.clone()))]);
    let id = noop(&w, 1).await;
    let run = start(&engine, id);
    gate.entered().await;
    engine.drain();
    engine.abort();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt, job.crashes, job.lease_until), (JobState::Ready, 0, 0, None));
    assert!(engine.held().is_empty());
}

async fn a_call_when_the_grace_is_over_is_left_to_its_lease(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::WaitInCall(gate.clone()))]);
    let id = noop(&w, 1).await;
    let run = start(&engine, id);
    gate.entered().await;
    engine.drain();
    engine.abort();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Running, 1));
    assert_eq!(job.lease_until, Some(w.clock.now() + LEASE));
    w.advance(LEASE_OVER);
    w.scheduler.tick().await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.crashes), (JobState::Ready, 1));
}

async fn jobs_that_come_together_end_together(w: TestWorker) {
    let engine = scripted(&w, [(7, Act::End(Outcome::Abort("no".into())))]);
    let mut ids = Vec::new();
    for subject in 0..60 {
        ids.push(noop(&w, subject).await);
    }
    let ran = futures::future::join_all(ids.iter().chain(&ids).map(|id| engine.run(*id))).await;
    assert_eq!(ran.iter().filter(|ran| **ran).count(), 60, "each once, however often it was notified");
    for (subject, id) in ids.iter().enumerate() {
        assert_eq!(w.state(*id).await, if subject == 7 { JobState::Dead } else { JobState::Done });
    }
}

async fn one_bad_end_spoils_no_other(w: TestWorker) {
    // The second failure affects only this job; the third write succeeds.
    assert_eq!(run_three_with_failing_middle(&w, 2, Refusal::Passing).await, [JobState::Done; 3]);
}

async fn an_end_that_is_refused_ends_its_job_all_the_same(w: TestWorker) {
    for (how, times) in [(Refusal::Final, 1_000), (Refusal::Panic, 1_000)] {
        w.sql("DELETE FROM jobs").await;
        assert_eq!(
            run_three_with_failing_middle(&w, times, how).await,
            [JobState::Done, JobState::Dead, JobState::Done]
        );
        w.advance(LEASE_OVER);
        w.scheduler.tick().await.unwrap();
        assert_eq!(w.number("SELECT count(*) FROM jobs WHERE crashes > 0").await, 0, "no crash is counted");
        let why: String = w.value("SELECT last_error FROM jobs WHERE state = 'dead'").await;
        assert_eq!(why, "the end of its run could not be stored");
    }
}

async fn a_kind_that_is_not_taken_is_handed_back(w: TestWorker) {
    let engine = w.engine_for(w.store.clone(), &[JobKind::Noop, JobKind::DeliverWebhook]);
    assert_eq!(engine.kinds(), [JobKind::DeliverWebhook, JobKind::Noop]);
    let (_, target) = w.publish_one().await;
    engine.run(w.notified_job()).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn the_heartbeat_renews_what_runs(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (_, target) = w.publish_one().await;
    let run = start(&w.engine, w.notified_job());
    gate.entered().await;
    for _ in 0..5 {
        w.advance(20);
        assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 1);
        w.run_jobs().await;
    }
    assert_eq!(w.job_of(target).await.crashes, 0);
    // Also while draining.
    w.engine.drain();
    w.advance(20);
    assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 1);
    gate.let_through();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 0, "nothing is held any more");
}
