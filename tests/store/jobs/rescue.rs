//! Rescue: the jobs of dead workers are recovered.

use std::collections::HashSet;

use crier_domain::job::{JobKind, JobState, LEASE, MAX_CRASHES, Outcome};
use crier_store::jobs::dispatch;

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    a_job_with_an_expired_lease_becomes_ready,
    the_third_crash_makes_the_job_dead,
    a_crash_in_the_last_attempt_makes_the_job_dead,
    crashes_are_counted_across_retries,
    a_rescue_takes_the_oldest_first_up_to_its_limit,
    concurrent_rescuers_rescue_each_job_once,
    rescuing_one_by_one_matches_the_batch,
];

/// Advances the clock until the leases of all running jobs have expired.
fn expire_leases(s: &TestStore) {
    s.advance(LEASE.num_seconds() + 1);
}

async fn a_job_with_an_expired_lease_becomes_ready(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    s.claim(&[id], "w").await;
    s.notifier.take();
    s.advance(LEASE.num_seconds());
    assert!(s.write(async |tx| dispatch::rescue(tx, 10).await).await.is_empty(), "the lease has not run out");
    s.advance(1);
    let rescued = s.write(async |tx| dispatch::rescue(tx, 10).await).await;
    assert_eq!((rescued.len(), rescued[0].job.id, rescued[0].dead), (1, id, None));
    assert_eq!(s.notifier.take(), [id]);
    let row = s.show(id).await;
    assert_eq!((row.state, row.attempt, row.crashes, row.lease_until), (JobState::Ready, 1, 1, None));
    assert!(row.last_error.is_some());
    assert!(s.write(async |tx| dispatch::rescue(tx, 10).await).await.is_empty());
    let again = s.claim(&[id], "w").await.remove(0);
    assert_eq!((again.attempt, again.crashes), (2, 1));
}

async fn the_third_crash_makes_the_job_dead(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    for crash in 1..=MAX_CRASHES {
        assert_eq!(s.claim(&[id], "w").await.len(), 1);
        s.notifier.take();
        expire_leases(&s);
        let rescued = s.write(async |tx| dispatch::rescue(tx, 10).await).await;
        let last = crash == MAX_CRASHES;
        assert_eq!(rescued[0].dead, last.then_some("poison"));
        assert_eq!(s.notifier.take().is_empty(), last, "a dead job is not notified");
    }
    let row = s.show(id).await;
    assert_eq!((row.state, row.last_error.as_deref(), row.crashes), (JobState::Dead, Some("poison"), MAX_CRASHES));
    assert_eq!((row.finished_at, row.lease_until), (Some(s.now()), None));
}

async fn a_crash_in_the_last_attempt_makes_the_job_dead(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    let max_attempts = JobKind::Noop.limits().max_attempts;
    for attempt in 1..=max_attempts {
        let held = s.claim(&[id], "w").await.remove(0);
        assert_eq!(held.attempt, attempt);
        if attempt < max_attempts {
            assert!(s.settle(&held, Outcome::RetryAt(s.now(), "busy".to_owned())).await);
            s.write(async |tx| dispatch::promote_due(tx, JobKind::Noop, 10).await).await;
        }
    }
    expire_leases(&s);
    let rescued = s.write(async |tx| dispatch::rescue(tx, 10).await).await;
    assert_eq!(rescued[0].dead, Some("attempts"));
    assert_eq!(s.state(id).await, JobState::Dead);
}

async fn crashes_are_counted_across_retries(s: TestStore) {
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    s.claim(&[id], "w").await;
    expire_leases(&s);
    s.write(async |tx| dispatch::rescue(tx, 10).await).await;
    let held = s.claim(&[id], "w").await.remove(0);
    assert!(s.settle(&held, Outcome::RetryAt(s.now(), "busy".to_owned())).await);
    s.write(async |tx| dispatch::promote_due(tx, JobKind::Noop, 10).await).await;
    assert_eq!(s.claim(&[id], "w").await[0].crashes, 1);
}

async fn a_rescue_takes_the_oldest_first_up_to_its_limit(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..5 {
        let id = s.enqueue_job(JobKind::Noop, subject, None).await;
        s.claim(&[id], "w").await;
        ids.push(id);
        s.advance(1);
    }
    expire_leases(&s);
    let rescue = async |limit| {
        let rescued = s.write(async |tx| dispatch::rescue(tx, limit).await).await;
        rescued.into_iter().map(|r| r.job.id).collect::<Vec<_>>()
    };
    assert_eq!(rescue(2).await, ids[..2]);
    assert_eq!(rescue(10).await, ids[2..]);
}

async fn concurrent_rescuers_rescue_each_job_once(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..40 {
        let lane = format!("endpoint:{}", subject % 5);
        ids.push(s.enqueue_job(JobKind::DeliverWebhook, subject, Some(&lane)).await);
    }
    assert_eq!(s.claim(&ids, "w").await.len(), 40);
    expire_leases(&s);
    let rescued = run_concurrently(6, |_| {
        let store = s.store.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let mut tx = store.begin().await.unwrap();
                let rescued = dispatch::rescue(&mut tx, 3).await.unwrap();
                tx.commit().await.unwrap();
                if rescued.is_empty() {
                    return mine;
                }
                mine.extend(rescued.into_iter().map(|r| r.job.id));
            }
        }
    })
    .await;
    let all: Vec<i64> = rescued.into_iter().flatten().collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 40);
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE crashes = 1 AND state = 'ready'").await, 40);
}

async fn rescuing_one_by_one_matches_the_batch(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..4 {
        let id = s.enqueue_job(JobKind::Noop, subject, None).await;
        s.claim(&[id], "w").await;
        ids.push(id);
        s.advance(1);
    }
    let expired = async |limit| dispatch::expired(&mut s.conn().await, s.now(), limit).await.unwrap();
    let rescue = async |id| s.write(async |tx| dispatch::rescue_one(tx, id).await).await;
    assert!(expired(10).await.is_empty());
    assert!(rescue(ids[0]).await.is_none(), "its lease holds");
    s.advance(LEASE.num_seconds() - 2);
    assert_eq!(expired(10).await, ids[..2]);
    assert_eq!(expired(1).await, ids[..1]);
    s.notifier.take();
    let rescued = rescue(ids[1]).await.unwrap();
    assert_eq!((rescued.job.id, rescued.dead), (ids[1], None));
    assert_eq!(s.notifier.take(), [ids[1]]);
    assert!(rescue(ids[1]).await.is_none() && rescue(999).await.is_none());
    assert_eq!(expired(10).await, ids[..1]);
    let row = s.show(ids[1]).await;
    assert_eq!((row.state, row.crashes), (JobState::Ready, 1));
    if s.is_postgres() {
        // A row that another rescuer has locked is skipped without waiting.
        let mut first = s.begin().await.unwrap();
        assert!(dispatch::rescue_one(&mut first, ids[0]).await.unwrap().is_some());
        assert!(rescue(ids[0]).await.is_none());
        first.commit().await.unwrap();
    }
}
