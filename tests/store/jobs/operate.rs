//! The operator's actions on jobs.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, JobState, NewJob, Outcome};
use crier_store::jobs::operate::{self, JobQuery, LaneRow};
use crier_store::jobs::{self, dispatch, engine, lanes};

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    each_list_filter_is_applied,
    the_jobs_of_a_lane_are_listed_in_every_state,
    a_dead_job_can_be_retried,
    a_retry_is_skipped_if_the_subject_has_an_active_job,
    only_jobs_that_have_not_started_can_be_cancelled,
    a_paused_kind_runs_nothing_until_resumed,
    jobs_are_counted_by_kind_and_state,
    the_overview_separates_jobs_waiting_for_a_lane,
    paging_through_all_jobs_returns_each_once,
];

async fn list(s: &TestStore, filter: JobQuery, limit: i64) -> Vec<i64> {
    let rows = operate::list(&mut s.conn().await, &filter, limit).await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

async fn each_list_filter_is_applied(s: TestStore) {
    let one = s.enqueue_job(JobKind::Noop, 1, None).await;
    s.advance(10);
    let two = s.job_at(JobKind::Noop, 2, Some("brand:1"), s.later(5)).await;
    let three = s.enqueue_job(JobKind::PublishTarget, 1, Some("account:1")).await;
    s.claim(&[one], "w").await;
    let all = JobQuery::default();
    assert_eq!(list(&s, all.clone(), 10).await, [three, two, one]);
    assert_eq!(list(&s, all.clone(), 2).await, [three, two]);
    assert_eq!(list(&s, JobQuery { kind: Some(JobKind::Noop), ..all.clone() }, 10).await, [two, one]);
    assert_eq!(list(&s, JobQuery { state: Some(JobState::Running), ..all.clone() }, 10).await, [one]);
    assert_eq!(list(&s, JobQuery { lane: Some("brand:1".to_owned()), ..all.clone() }, 10).await, [two]);
    assert_eq!(list(&s, JobQuery { created_before: Some(s.later(-5)), ..all.clone() }, 10).await, [one]);
    let filtered = JobQuery { kind: Some(JobKind::Noop), state: Some(JobState::Scheduled), ..all };
    assert_eq!(list(&s, filtered, 10).await, [two]);
    assert!(operate::show(&mut s.conn().await, 999).await.unwrap().is_none());
}

/// Running jobs are found by a different index from the other jobs.
async fn the_jobs_of_a_lane_are_listed_in_every_state(s: TestStore) {
    let mut ids = Vec::new();
    for (subject, state) in JobState::ALL.iter().enumerate() {
        let id = s.enqueue_job(JobKind::Noop, subject.try_into().unwrap(), Some("brand:1")).await;
        s.enqueue_job(JobKind::PublishTarget, subject.try_into().unwrap(), Some("brand:2")).await;
        s.sql(format!("UPDATE jobs SET state = '{state}' WHERE id IN ({id}, {id} + 1)")).await;
        ids.insert(0, id);
        let in_lane = JobQuery { lane: Some("brand:1".to_owned()), state: Some(*state), ..JobQuery::default() };
        assert_eq!(list(&s, in_lane, 10).await, [id], "{state}");
    }
    let in_lane = JobQuery { lane: Some("brand:1".to_owned()), ..JobQuery::default() };
    assert_eq!(list(&s, in_lane.clone(), 10).await, ids);
    assert_eq!(list(&s, in_lane.clone(), 4).await, ids[..4]);
    assert_eq!(operate::count(&mut s.conn().await, &in_lane).await.unwrap(), 6);
}

async fn a_dead_job_can_be_retried(s: TestStore) {
    let retry = async |id| s.write(async |tx| operate::retry(tx, id).await).await;
    let id = s.enqueue_job(JobKind::Noop, 1, None).await;
    assert_eq!(retry(id).await, None, "ready");
    let held = s.claim(&[id], "w").await.remove(0);
    assert_eq!(retry(id).await, None, "running");
    assert!(s.settle(&held, Outcome::Abort("no".to_owned())).await);
    s.sql(format!("UPDATE jobs SET crashes = 3, attempt = 5 WHERE id = {id}")).await;
    s.notifier.take();
    s.advance(60);
    assert_eq!(retry(id).await, Some((JobKind::Noop, 1)));
    assert_eq!(s.notifier.take(), [id]);
    let row = s.show(id).await;
    assert_eq!((row.state, row.attempt, row.crashes, row.run_at), (JobState::Ready, 0, 0, s.now()));
    assert_eq!((row.finished_at, row.last_error), (None, None));
    let again = s.claim(&[id], "w").await.remove(0);
    assert!(again.fence > held.fence, "an old claim must not settle the new run");
    assert!(s.settle(&again, Outcome::Done).await);
    assert_eq!(retry(id).await, None, "done");
    assert_eq!(retry(999).await, None, "unknown");
    let cancelled = s.enqueue_job(JobKind::Noop, 2, None).await;
    assert!(s.write(async |tx| operate::cancel(tx, cancelled).await).await.is_some());
    assert_eq!(retry(cancelled).await, Some((JobKind::Noop, 2)));
}

async fn a_retry_is_skipped_if_the_subject_has_an_active_job(s: TestStore) {
    let mut dead = Vec::new();
    for _ in 0..2 {
        let id = s.enqueue_job(JobKind::Noop, 1, None).await;
        let held = s.claim(&[id], "w").await.remove(0);
        assert!(s.settle(&held, Outcome::Abort("no".to_owned())).await);
        dead.push(id);
    }
    // Both retries are in one transaction: when the second one runs, its subject already has another job.
    let retried = s
        .write(async |tx| {
            let first = operate::retry(tx, dead[0]).await?;
            Ok((first, operate::retry(tx, dead[1]).await?))
        })
        .await;
    assert_eq!(retried, (Some((JobKind::Noop, 1)), None));
    let job = NewJob::new(JobKind::Noop, 1, s.now());
    assert_eq!(s.write(async |tx| jobs::enqueue(tx, &job).await).await, None);
}

async fn only_jobs_that_have_not_started_can_be_cancelled(s: TestStore) {
    let cancel = async |id| s.write(async |tx| operate::cancel(tx, id).await).await.is_some();
    let (ready, running) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let scheduled = s.job_at(JobKind::Noop, 3, None, s.later(60)).await;
    let held = s.claim(&[running], "w").await.remove(0);
    s.advance(1);
    assert!(cancel(ready).await && cancel(scheduled).await);
    assert!(!cancel(running).await && !cancel(ready).await && !cancel(999).await);
    let row = s.show(scheduled).await;
    assert_eq!((row.state, row.finished_at), (JobState::Cancelled, Some(s.now())));
    assert!(row.last_error.is_some());
    assert!(s.settle(&held, Outcome::Done).await);
    assert!(!cancel(running).await);
    s.advance(60);
    assert_eq!(s.write(async |tx| dispatch::promote_due(tx, JobKind::Noop, 10).await).await, 0);
}

async fn a_paused_kind_runs_nothing_until_resumed(s: TestStore) {
    let pause = async |kind| s.write(async |tx| operate::pause_kind(tx, kind).await).await;
    let resume = async |kind| s.write(async |tx| operate::resume_kind(tx, kind).await).await;
    let (one, two) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let held = s.claim(&[one], "w").await.remove(0);
    pause(JobKind::PublishTarget).await;
    pause(JobKind::Noop).await;
    pause(JobKind::Noop).await;
    assert_eq!(operate::paused_kinds(&mut s.conn().await).await.unwrap(), [JobKind::Noop, JobKind::PublishTarget]);
    assert!(s.claim(&[two], "w").await.is_empty());
    assert!(s.settle(&held, Outcome::Done).await, "running jobs continue");
    assert!(resume(JobKind::Noop).await);
    assert!(!resume(JobKind::Noop).await);
    assert_eq!(operate::paused_kinds(&mut s.conn().await).await.unwrap(), [JobKind::PublishTarget]);
    assert_eq!(s.claim(&[two], "w").await.len(), 1);
}

/// Returns the kind, the state, the count, and the time since when the oldest job has been due.
async fn overview(s: &TestStore) -> Vec<(JobKind, JobState, i64, DateTime<Utc>)> {
    let all = operate::overview(&mut s.conn().await).await.unwrap();
    let mut all: Vec<_> = all.into_iter().map(|one| (one.kind, one.state, one.jobs, one.oldest)).collect();
    all.sort();
    all
}

async fn jobs_are_counted_by_kind_and_state(s: TestStore) {
    assert_eq!(overview(&s).await, []);
    let mut ids = Vec::new();
    let first = s.now();
    for subject in 0..5 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, None).await);
        s.advance(1);
    }
    let due = s.later(60);
    s.job_at(JobKind::PublishTarget, 1, None, due).await;
    let held = s.claim(&ids[..3], "w").await;
    let of = |id| held.iter().find(|job| job.id == id).unwrap();
    assert!(s.settle(of(ids[0]), Outcome::Done).await);
    assert!(s.settle(of(ids[1]), Outcome::Abort("no".to_owned())).await);
    let after = |seconds| first + TimeDelta::seconds(seconds);
    assert_eq!(
        overview(&s).await,
        [
            (JobKind::PublishTarget, JobState::Scheduled, 1, due),
            (JobKind::Noop, JobState::Ready, 2, after(3)),
            (JobKind::Noop, JobState::Running, 1, after(2)),
            (JobKind::Noop, JobState::Dead, 1, after(1)),
        ]
    );
}

async fn the_overview_separates_jobs_waiting_for_a_lane(s: TestStore) {
    let cap = JobKind::PublishTarget.limits().lane_cap.unwrap();
    let mut ids = Vec::new();
    for subject in 0..cap + 2 {
        ids.push(s.enqueue_job(JobKind::PublishTarget, subject, Some("account:1")).await);
    }
    let due = s.now();
    s.claim(&ids, "w").await;
    s.advance(5);
    s.enqueue_job(JobKind::PublishTarget, 100, Some("account:2")).await;
    let mut all: Vec<_> = operate::overview(&mut s.conn().await).await.unwrap();
    all.sort_by_key(|s| (s.state, s.waiting));
    let counts: Vec<_> = all.iter().map(|s| (s.state, s.waiting, s.jobs, s.oldest)).collect();
    let now = s.now();
    assert_eq!(
        counts,
        [(JobState::Ready, false, 1, now), (JobState::Ready, true, 2, due), (JobState::Running, false, cap, due)]
    );
    let until = s.later(60);
    s.write(async |tx| lanes::pause_lane(tx, "account:1", until).await).await;
    let lane = operate::lane(&mut s.conn().await, "account:1", s.now()).await.unwrap();
    assert_eq!(lane, LaneRow { running: cap, waiting: 2, paused_until: Some(until), places: None });
    let other = operate::lane(&mut s.conn().await, "account:2", s.now()).await.unwrap();
    assert_eq!(other, LaneRow { running: 0, waiting: 0, paused_until: None, places: None });
}

async fn paging_through_all_jobs_returns_each_once(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..7 {
        let kind = if subject % 2 == 0 { JobKind::Noop } else { JobKind::DeliverWebhook };
        ids.push(s.job_at(kind, subject, Some("endpoint:1"), s.later(60)).await);
    }
    s.enqueue_job(JobKind::Noop, 50, None).await;
    for (lane, count) in [(Some("endpoint:1".to_owned()), 7), (None, 7)] {
        let filter = JobQuery { state: Some(JobState::Scheduled), lane, ..JobQuery::default() };
        assert_eq!(operate::count(&mut s.conn().await, &filter).await.unwrap(), count);
        let (mut found, mut after) = (Vec::new(), 0);
        while let Some(last) = {
            let some = operate::next(&mut s.conn().await, &filter, after, 3).await.unwrap();
            found.extend(some.iter().map(|job| job.id));
            some.last().map(|job| job.id)
        } {
            after = last;
        }
        assert_eq!(found, ids);
    }
}

/// A worker claims jobs while an operator cancels them: the row lock decides, and each job has one outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_is_either_claimed_or_cancelled() {
    let s = TestStore::postgres().await;
    let mut ids = Vec::new();
    for subject in 0..200 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, None).await);
    }
    let outcomes = run_concurrently(8, |n| {
        let (store, ids) = (s.store.clone(), ids.clone());
        async move {
            let mut mine = Vec::new();
            for part in ids.chunks(5) {
                let mut tx = store.begin().await.unwrap();
                if n % 2 == 0 {
                    mine.extend(engine::claim(&mut tx, part, "w").await.unwrap().into_iter().map(|job| job.id));
                } else {
                    for id in part {
                        mine.extend(operate::cancel(&mut tx, *id).await.unwrap().map(|_| *id));
                    }
                }
                tx.commit().await.unwrap();
            }
            (n % 2 == 0, mine)
        }
    })
    .await;
    let mut all: Vec<i64> = outcomes.iter().flat_map(|(_, mine)| mine.clone()).collect();
    all.sort_unstable();
    assert_eq!(all, ids, "each has one outcome");
    for (claimed, mine) in outcomes {
        let state = if claimed { JobState::Running } else { JobState::Cancelled };
        for id in mine {
            assert_eq!(s.state(id).await, state);
        }
    }
}
