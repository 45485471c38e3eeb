//! The scheduler's operations on jobs: promote, renotify, purge.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_store::jobs::{dispatch, operate};

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    due_jobs_are_notified_in_order,
    concurrent_dispatchers_notify_each_job_once,
    stale_ready_jobs_are_renotified,
    each_kind_is_notified_separately,
    the_next_due_time_is_returned,
    finished_jobs_are_deleted_in_batches_and_dead_ones_later,
];

async fn promote_due(s: &TestStore, limit: i64) -> usize {
    s.write(async |tx| dispatch::promote_due(tx, JobKind::Noop, limit).await).await
}

/// Returns when the first no-op job is due; asserts that no other kind has a due job.
async fn next_due(s: &TestStore) -> Option<DateTime<Utc>> {
    let mut due_times = dispatch::next_due(&mut s.conn().await).await.unwrap();
    let first = due_times.pop();
    assert!(due_times.is_empty() && first.is_none_or(|(kind, _)| kind == JobKind::Noop));
    first.map(|(_, at)| at)
}

async fn due_jobs_are_notified_in_order(s: TestStore) {
    let mut ids = Vec::new();
    // The last job is enqueued first.
    for subject in (1..=20).rev() {
        ids.push(s.job_at(JobKind::Noop, subject, None, s.later(subject)).await);
    }
    ids.reverse();
    assert_eq!(promote_due(&s, 10).await, 0);
    s.advance(15);
    assert_eq!(promote_due(&s, 10).await, 10);
    assert_eq!(s.notifier.take(), ids[..10]);
    assert_eq!(s.state(ids[0]).await, JobState::Ready);
    assert_eq!(promote_due(&s, 10).await, 5);
    assert_eq!(s.notifier.take(), ids[10..15]);
    assert_eq!(promote_due(&s, 10).await, 0);
    assert_eq!(s.state(ids[15]).await, JobState::Scheduled);
    assert_eq!(s.claim(&ids, "w").await.len(), 15);
    // After a rollback, no job is ready, and no job is notified.
    s.advance(5);
    assert_eq!(s.discard(async |tx| dispatch::promote_due(tx, JobKind::Noop, 10).await).await, 5);
    assert_eq!((s.state(ids[15]).await, s.notifier.take().len()), (JobState::Scheduled, 0));
}

async fn concurrent_dispatchers_notify_each_job_once(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..100 {
        ids.push(s.job_at(JobKind::Noop, subject, None, s.later(1)).await);
    }
    s.advance(1);
    let notified = run_concurrently(6, |_| {
        let store = s.store.clone();
        async move {
            let mut notified = 0;
            loop {
                let mut tx = store.begin().await.unwrap();
                let promoted = dispatch::promote_due(&mut tx, JobKind::Noop, 7).await.unwrap();
                tx.commit().await.unwrap();
                assert!(promoted <= 7, "more than requested");
                if promoted == 0 {
                    return notified;
                }
                notified += promoted;
            }
        }
    })
    .await;
    assert_eq!(notified.iter().sum::<usize>(), 100);
    let notified = s.notifier.take();
    assert_eq!(notified.len(), 100);
    assert_eq!(notified.into_iter().collect::<HashSet<_>>(), ids.into_iter().collect());
}

#[tokio::test]
async fn a_dispatcher_skips_locked_jobs() {
    let s = TestStore::postgres().await;
    let mut ids = Vec::new();
    for subject in 1..=6 {
        ids.push(s.job_at(JobKind::Noop, subject, None, s.later(subject)).await);
    }
    s.advance(10);
    let mut first = s.begin().await.unwrap();
    assert_eq!(dispatch::promote_due(&mut first, JobKind::Noop, 2).await.unwrap(), 2);
    assert_eq!(promote_due(&s, 3).await, 3);
    assert_eq!(s.notifier.take(), ids[2..5]);
    first.commit().await.unwrap();
    assert_eq!(s.notifier.take(), ids[..2]);
    // Renotification skips locked jobs as well.
    s.advance(60);
    let mut first = s.begin().await.unwrap();
    assert_eq!(dispatch::renotify_stale(&mut first, JobKind::Noop, s.now(), 2).await.unwrap(), 2);
    assert_eq!(s.write(async |tx| dispatch::renotify_stale(tx, JobKind::Noop, s.now(), 10).await).await, 3);
    first.commit().await.unwrap();
}

async fn stale_ready_jobs_are_renotified(s: TestStore) {
    let renotify_stale = async |limit| {
        let before = s.now() - dispatch::RENOTIFY_AFTER;
        s.write(async |tx| dispatch::renotify_stale(tx, JobKind::Noop, before, limit).await).await
    };
    let oldest_unclaimed = async || dispatch::oldest_unclaimed(&mut s.conn().await).await.unwrap();
    assert_eq!(oldest_unclaimed().await, []);
    let mut ids = Vec::new();
    for subject in 0..4 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, None).await);
        s.advance(1);
    }
    let scheduled = s.job_at(JobKind::Noop, 9, None, s.later(3600)).await;
    s.notifier.take();
    assert_eq!(renotify_stale(10).await, 0, "all were just notified");
    assert_eq!(oldest_unclaimed().await, [(JobKind::Noop, s.later(-4))]);
    s.advance(20);
    assert_eq!(s.claim(&[ids[0]], "w").await.len(), 1);
    assert_eq!(oldest_unclaimed().await, [(JobKind::Noop, s.later(-23))]);
    assert_eq!(renotify_stale(2).await, 2, "no more than requested");
    assert_eq!(s.notifier.take(), ids[1..3], "the longest waiting first");
    assert_eq!(renotify_stale(10).await, 1);
    assert_eq!(s.notifier.take(), ids[3..]);
    assert_eq!(renotify_stale(10).await, 0, "they were just renotified");
    s.advance(10);
    assert_eq!(renotify_stale(10).await, 3);
    assert_eq!(s.state(scheduled).await, JobState::Scheduled);
}

async fn each_kind_is_notified_separately(s: TestStore) {
    let publish = s.job_at(JobKind::PublishTarget, 1, None, s.later(1)).await;
    let noop = s.job_at(JobKind::Noop, 1, None, s.later(2)).await;
    let due = dispatch::next_due(&mut s.conn().await).await.unwrap();
    assert_eq!(due, [(JobKind::PublishTarget, s.later(1)), (JobKind::Noop, s.later(2))]);
    s.advance(5);
    assert_eq!(promote_due(&s, 10).await, 1);
    assert_eq!((s.notifier.take(), s.state(publish).await), (vec![noop], JobState::Scheduled));
    s.write(async |tx| dispatch::promote_due(tx, JobKind::PublishTarget, 10).await).await;
    s.notifier.take();
    s.advance(60);
    assert_eq!(s.write(async |tx| dispatch::renotify_stale(tx, JobKind::Noop, s.now(), 10).await).await, 1);
    assert_eq!(s.notifier.take(), [noop]);
    // Jobs of a paused kind do not count.
    s.write(async |tx| operate::pause_kind(tx, JobKind::PublishTarget).await).await;
    assert_eq!(dispatch::oldest_unclaimed(&mut s.conn().await).await.unwrap(), [(JobKind::Noop, s.now())]);
    s.write(async |tx| operate::resume_kind(tx, JobKind::PublishTarget).await).await;
    assert_eq!(dispatch::oldest_unclaimed(&mut s.conn().await).await.unwrap().len(), 2);
}

async fn the_next_due_time_is_returned(s: TestStore) {
    assert_eq!(next_due(&s).await, None);
    s.enqueue_job(JobKind::Noop, 1, None).await;
    assert_eq!(next_due(&s).await, None, "ready jobs are not counted");
    s.job_at(JobKind::Noop, 2, None, s.later(50)).await;
    // Times with and without a fraction of a second.
    let soon = s.later(20) + TimeDelta::microseconds(1_500);
    s.job_at(JobKind::Noop, 3, None, soon).await;
    assert_eq!(next_due(&s).await, Some(soon));
    s.job_at(JobKind::Noop, 4, None, s.later(20)).await;
    assert_eq!(next_due(&s).await, Some(s.later(20)));
    s.advance(20);
    assert_eq!(promote_due(&s, 10).await, 1, "the fraction counts");
    assert_eq!(next_due(&s).await, Some(soon));
}

async fn finished_jobs_are_deleted_in_batches_and_dead_ones_later(s: TestStore) {
    let purge = async |state, days, limit| {
        let before = s.now() - TimeDelta::days(days);
        s.write(async |tx| dispatch::purge(tx, state, before, limit).await).await
    };
    const REMAINING: &str = "SELECT string_agg(id || '', ',') FROM (SELECT id FROM jobs ORDER BY id) j";
    let remaining = async || s.value::<String>(REMAINING).await;
    let mut ids = Vec::new();
    for subject in 0..8 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, None).await);
    }
    let held = s.claim(&ids[..6], "w").await;
    assert!(s.settle(&held[0], Outcome::Abort("no".to_owned())).await);
    for (job, outcome) in held[1..5].iter().zip([
        Outcome::Done,
        Outcome::Done,
        Outcome::Cancelled("gone".to_owned()),
        Outcome::RetryAt(s.later(1), "busy".to_owned()),
    ]) {
        s.advance(1);
        assert!(s.settle(job, outcome).await);
    }
    // The states by position: 0 is dead, 1 and 2 are done, 3 is cancelled, 4 is scheduled, 5 is running, 6 and 7 are
    // ready.
    assert_eq!((purge(JobState::Done, 7, 10).await, remaining().await), (0, join(&ids)), "all of them are new");
    s.advance(7 * 86_400);
    let after_first = [&ids[..1], &ids[2..]].concat();
    assert_eq!((purge(JobState::Done, 7, 1).await, remaining().await), (1, join(&after_first)), "the oldest");
    assert_eq!((purge(JobState::Done, 7, 10).await, purge(JobState::Cancelled, 7, 10).await), (1, 1));
    assert_eq!(purge(JobState::Dead, 30, 10).await, 0);
    s.advance(23 * 86_400);
    assert_eq!((purge(JobState::Dead, 30, 10).await, remaining().await), (1, join(&ids[4..])));
    s.advance(365 * 86_400);
    for state in JobState::ALL {
        assert_eq!(purge(*state, 0, 10).await, 0, "{state}: the others have not ended");
    }
}

fn join(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
