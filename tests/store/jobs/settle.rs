//! The end of a run: settle, release, heartbeat.

use crier_domain::job::{ClaimedJob, JobKind, JobState, LEASE, Outcome};
use crier_store::jobs::{dispatch, engine};
use crier_store::users;

use crate::support::store::{TestStore, on_both};

on_both![
    each_outcome_sets_its_state,
    a_retry_waits_for_its_time,
    a_settle_commits_with_the_writes_of_its_run,
    a_resumed_worker_changes_nothing,
    a_lost_lease_is_reported_for_the_whole_batch,
    a_release_refunds_the_attempt,
    a_heartbeat_renews_only_its_own_leases,
    still_held_checks_the_fence,
];

async fn each_outcome_sets_its_state(s: TestStore) {
    let cases = [
        (Outcome::Done, JobState::Done, None),
        (Outcome::Abort("bad".to_owned()), JobState::Dead, Some("bad")),
        (Outcome::Cancelled("gone".to_owned()), JobState::Cancelled, Some("gone")),
    ];
    for (subject, (outcome, state, error)) in (1..).zip(cases) {
        let id = s.enqueue_job(JobKind::Noop, subject, None).await;
        let held = s.claim(&[id], "w").await.remove(0);
        s.advance(1);
        assert!(s.settle(&held, outcome.clone()).await);
        let row = s.show(id).await;
        assert_eq!((row.state, row.last_error.as_deref()), (state, error));
        assert_eq!((row.finished_at, row.lease_until), (Some(s.now()), None));
        assert!(!s.settle(&held, Outcome::Done).await, "a final state is permanent");
        assert_eq!(s.state(id).await, state);
        assert!(s.claim(&[id], "w").await.is_empty());
    }
}

async fn a_retry_waits_for_its_time(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    s.notifier.take();
    let held = s.claim(&[id], "w").await.remove(0);
    assert!(s.settle(&held, Outcome::RetryAt(s.later(30), "busy".to_owned())).await);
    let row = s.show(id).await;
    assert_eq!((row.state, row.run_at, row.last_error.as_deref()), (JobState::Scheduled, s.later(30), Some("busy")));
    assert_eq!((row.attempt, row.finished_at, row.lease_until), (1, None, None));
    assert!(s.notifier.take().is_empty());
    s.advance(30);
    assert_eq!(s.write(async |tx| dispatch::promote_due(tx, JobKind::Noop, 10).await).await, 1);
    let second_claim = s.claim(&s.notifier.take(), "w").await.remove(0);
    assert_eq!((second_claim.id, second_claim.attempt, second_claim.fence), (id, 2, 2));
}

async fn a_settle_commits_with_the_writes_of_its_run(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let held = s.claim(&[id], "w").await.remove(0);
    s.discard(async |tx| {
        users::create_workspace(tx, "lost", "pro").await?;
        engine::settle(tx, &[(&held, Outcome::Done)]).await
    })
    .await;
    assert_eq!(s.state(id).await, JobState::Running);
    assert_eq!(s.number("SELECT count(*) FROM workspaces").await, 0);
    s.write(async |tx| {
        users::create_workspace(tx, "kept", "pro").await?;
        engine::settle(tx, &[(&held, Outcome::Done)]).await
    })
    .await;
    assert_eq!(s.state(id).await, JobState::Done);
    assert_eq!(s.number("SELECT count(*) FROM workspaces").await, 1);
}

async fn a_resumed_worker_changes_nothing(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let frozen = s.claim(&[id], "a").await.remove(0);
    s.advance(LEASE.num_seconds() + 1);
    let rescued = s.write(async |tx| dispatch::rescue(tx, 10).await).await;
    assert_eq!(rescued.len(), 1);
    assert!(!s.settle(&frozen, Outcome::Done).await, "rescued, not yet claimed again");
    let second = s.claim(&[id], "b").await.remove(0);
    assert!(second.fence > frozen.fence);
    assert!(!s.settle(&frozen, Outcome::Done).await);
    s.write(async |tx| engine::release(tx, &frozen).await).await;
    assert!(!s.write(async |tx| engine::still_held(tx, &frozen).await).await);
    let row = s.show(id).await;
    assert_eq!((row.state, row.attempt), (JobState::Running, 2));
    // A heartbeat does not renew another worker's lease.
    assert_eq!(s.write(async |tx| engine::heartbeat(tx, &[id], "a").await).await, 0);
    assert!(s.settle(&second, Outcome::Done).await);
}

async fn a_lost_lease_is_reported_for_the_whole_batch(s: TestStore) {
    let ids = [s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await];
    let held = s.claim(&ids, "w").await;
    for (fence, worker) in [(0, "w"), (1, "another")] {
        let lost = ClaimedJob { fence, worker: worker.to_owned(), ..held[1].clone() };
        let ends = [(&held[0], Outcome::Done), (&lost, Outcome::Done)];
        assert!(!s.discard(async |tx| engine::settle(tx, &ends).await).await);
    }
    let ends = [(&held[0], Outcome::Done), (&held[1], Outcome::Done)];
    assert!(s.write(async |tx| engine::settle(tx, &ends).await).await);
}

async fn a_release_refunds_the_attempt(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let held = s.claim(&[id], "w").await.remove(0);
    s.notifier.take();
    s.write(async |tx| engine::release(tx, &held).await).await;
    let row = s.show(id).await;
    assert_eq!((row.state, row.attempt, row.crashes, row.lease_until), (JobState::Ready, 0, 0, None));
    // Renotification finds the released job immediately.
    let before = s.later(-10);
    assert_eq!(s.write(async |tx| dispatch::renotify_stale(tx, JobKind::Noop, before, 10).await).await, 1);
    let second_claim = s.claim(&s.notifier.take(), "w").await.remove(0);
    assert_eq!((second_claim.attempt, second_claim.fence), (1, 2));
    // The first claim has ended: it can neither settle nor release the job of the second claim.
    assert!(!s.settle(&held, Outcome::Done).await);
    s.write(async |tx| engine::release(tx, &held).await).await;
    assert_eq!(s.state(id).await, JobState::Running);
}

async fn a_heartbeat_renews_only_its_own_leases(s: TestStore) {
    let (mine, other) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let (done, ready) = (s.enqueue_job(JobKind::Noop, 3, None).await, s.enqueue_job(JobKind::Noop, 4, None).await);
    let held = s.claim(&[mine, done], "a").await;
    s.claim(&[other], "b").await;
    assert!(s.settle(&held[1], Outcome::Done).await);
    let before = s.now() + LEASE;
    s.advance(20);
    let ids = [mine, other, done, ready];
    assert_eq!(s.write(async |tx| engine::heartbeat(tx, &ids, "a").await).await, 1);
    assert_eq!(s.show(mine).await.lease_until, Some(s.now() + LEASE));
    assert_eq!(s.show(other).await.lease_until, Some(before));
    assert_eq!(s.show(ready).await.lease_until, None);
    s.advance(15);
    let rescued = s.write(async |tx| dispatch::rescue(tx, 10).await).await;
    assert_eq!(rescued.iter().map(|r| r.job.id).collect::<Vec<_>>(), [other]);
}

/// A row that another transaction has locked (a settle, a rescue) is skipped. Waiting could cause a deadlock between
/// two transactions that each hold a row that the other needs.
#[tokio::test]
async fn a_heartbeat_does_not_wait_for_locks() {
    let s = TestStore::postgres().await;
    let (one, two) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let held = s.claim(&[one, two], "w").await;
    let mut settling = s.begin().await.unwrap();
    assert!(engine::settle(&mut settling, &[(&held[1], Outcome::Done)]).await.unwrap());
    let beat = s.write(async |tx| engine::heartbeat(tx, &[one, two], "w").await);
    let renewed = tokio::time::timeout(std::time::Duration::from_secs(60), beat).await.expect("it waits for a settle");
    assert_eq!(renewed, 1);
    settling.commit().await.unwrap();
}

async fn still_held_checks_the_fence(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let held = s.claim(&[id], "w").await.remove(0);
    assert!(s.write(async |tx| engine::still_held(tx, &held).await).await);
    let mut forged = held.clone();
    forged.fence += 1;
    assert!(!s.write(async |tx| engine::still_held(tx, &forged).await).await);
    assert!(s.settle(&held, Outcome::Done).await);
    assert!(!s.write(async |tx| engine::still_held(tx, &held).await).await);
}
