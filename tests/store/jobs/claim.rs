//! Claims: which jobs are claimed, and by which worker.

use std::collections::HashSet;

use crier_domain::job::{JobKind, JobState, LEASE, Outcome};
use crier_store::jobs::{engine, operate};

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    a_claim_starts_a_lease,
    a_claim_skips_jobs_that_are_not_ready,
    claims_are_exclusive,
    concurrent_claims_never_return_a_job_twice,
    a_rolled_back_claim_has_no_effect,
];

async fn a_claim_starts_a_lease(s: TestStore) {
    let id = s.enqueue_job(JobKind::PublishTarget, 9, Some("account:1")).await;
    s.advance(3);
    let claimed = s.claim(&[id], "worker-a").await;
    assert_eq!(claimed.len(), 1);
    let job = &claimed[0];
    assert_eq!(
        (job.id, job.kind, job.subject_id, job.lane.as_deref()),
        (id, JobKind::PublishTarget, 9, Some("account:1"))
    );
    assert_eq!((job.attempt, job.max_attempts, job.crashes, job.fence), (1, 8, 0, 1));
    assert_eq!(job.run_at, s.later(-3));
    let row = s.show(id).await;
    assert_eq!((row.state, row.attempt, row.lease_until), (JobState::Running, 1, Some(s.now() + LEASE)));
    assert_eq!(s.number(format!("SELECT count(*) FROM jobs WHERE id = {id} AND worker = 'worker-a'")).await, 1);
}

async fn a_claim_skips_jobs_that_are_not_ready(s: TestStore) {
    let ready = s.enqueue_job(JobKind::Noop, 1, None).await;
    let (running, done) = (s.enqueue_job(JobKind::Noop, 2, None).await, s.enqueue_job(JobKind::Noop, 3, None).await);
    let scheduled = s.job_at(JobKind::Noop, 4, None, s.later(1)).await;
    let cancelled = s.enqueue_job(JobKind::Noop, 5, None).await;
    let dead = s.enqueue_job(JobKind::Noop, 6, None).await;
    let paused = s.enqueue_job(JobKind::DeliverWebhook, 7, None).await;
    let held = s.claim(&[running, done, dead], "w").await;
    assert!(s.settle(&held[1], Outcome::Done).await);
    assert!(s.settle(&held[2], Outcome::Abort("no".to_owned())).await);
    s.write(async |tx| operate::cancel(tx, cancelled).await).await;
    s.write(async |tx| operate::pause_kind(tx, JobKind::DeliverWebhook).await).await;
    // The same id twice, and unknown ids.
    let ids = [ready, ready, running, done, scheduled, cancelled, dead, paused, 0, -1, i64::MAX];
    let claimed = s.claim(&ids, "w").await;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [ready]);
    assert!(s.claim(&[], "w").await.is_empty());
    assert_eq!(s.state(paused).await, JobState::Ready);
    s.write(async |tx| operate::resume_kind(tx, JobKind::DeliverWebhook).await).await;
    assert_eq!(s.claim(&[paused], "w").await.len(), 1);
}

async fn claims_are_exclusive(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    assert_eq!(s.claim(&[id], "a").await.len(), 1);
    assert!(s.claim(&[id], "b").await.is_empty());
    assert!(s.claim(&[id], "a").await.is_empty());
}

async fn concurrent_claims_never_return_a_job_twice(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..120 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, None).await);
    }
    let claimed = run_concurrently(8, |worker| {
        let (store, mut ids) = (s.store.clone(), ids.clone());
        async move {
            // Each worker starts at another position, and claims all ids.
            ids.rotate_left(worker * 15);
            let mut mine = Vec::new();
            for some in ids.chunks(10) {
                let mut tx = store.begin().await.unwrap();
                mine.extend(engine::claim(&mut tx, some, &worker.to_string()).await.unwrap());
                tx.commit().await.unwrap();
            }
            mine
        }
    })
    .await;
    let all: Vec<i64> = claimed.iter().flatten().map(|job| job.id).collect();
    assert_eq!(all.len(), ids.len(), "a job was lost or given twice");
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), ids.into_iter().collect());
}

async fn a_rolled_back_claim_has_no_effect(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    assert_eq!(s.discard(async |tx| engine::claim(tx, &[id], "w").await).await.len(), 1);
    assert_eq!(s.state(id).await, JobState::Ready);
    let claimed = s.claim(&[id], "w").await;
    assert_eq!((claimed[0].attempt, claimed[0].fence), (1, 1));
}

/// On Postgres, a claim must not wait for the other transaction. On SQLite there is only one writer.
#[tokio::test]
async fn a_claim_skips_locked_jobs() {
    let s = TestStore::postgres().await;
    let (one, two) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let mut first = s.begin().await.unwrap();
    assert_eq!(engine::claim(&mut first, &[one], "a").await.unwrap().len(), 1);
    let second = s.claim(&[one, two], "b").await;
    assert_eq!(second.iter().map(|job| job.id).collect::<Vec<_>>(), [two]);
    first.commit().await.unwrap();
}
