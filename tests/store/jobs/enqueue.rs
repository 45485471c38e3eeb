//! Operations in the caller's transaction: enqueue, cancel, run now.

use crier_domain::job::{JobKind, JobState, Lane, NewJob, Outcome};
use crier_store::jobs::{self, JobSubject, id_list};

use crate::support::store::{TestStore, on_both};

on_both![
    a_due_job_is_ready_and_notified,
    a_future_job_is_scheduled_and_not_notified,
    a_rollback_leaves_no_job_and_no_notification,
    similar_jobs_are_enqueued_in_one_batch,
    a_subject_has_one_active_job_per_kind,
    concurrent_enqueues_create_one_job,
    cancelling_a_subject_keeps_running_jobs,
    run_now_brings_the_next_attempt_forward,
    run_now_enqueues_if_no_job_waits,
    jobs_of_a_full_lane_wait,
];

#[test]
fn a_list_of_ids_is_a_json_array() {
    assert_eq!(id_list(&[]), "[]");
    assert_eq!(id_list(&[1]), "[1]");
    assert_eq!(id_list(&[1, -2, i64::MAX]), format!("[1,-2,{}]", i64::MAX));
}

async fn a_due_job_is_ready_and_notified(s: TestStore) {
    let mut tx = s.begin().await.unwrap();
    let job = NewJob::new(JobKind::PublishTarget, 7, s.now()).lane(Lane::Account(3)).trace(Some("req-1".to_owned()));
    let id = jobs::enqueue(&mut tx, &job).await.unwrap().unwrap();
    assert!(s.notifier.take().is_empty(), "notified before the commit");
    tx.commit().await.unwrap();
    assert_eq!(s.notifier.take(), [id]);

    let row = s.show(id).await;
    assert_eq!((row.kind, row.subject_id, row.state, row.waiting), (JobKind::PublishTarget, 7, JobState::Ready, false));
    assert_eq!((row.lane.as_deref(), row.trace.as_deref()), (Some("account:3"), Some("req-1")));
    assert_eq!((row.attempt, row.max_attempts, row.crashes), (0, 8, 0));
    assert_eq!((row.run_at, row.created_at), (s.now(), s.now()));
    assert_eq!((row.lease_until, row.last_error, row.finished_at), (None, None, None));
}

async fn a_future_job_is_scheduled_and_not_notified(s: TestStore) {
    let id = s.job_at(JobKind::Noop, 1, None, s.later(1)).await;
    assert_eq!(s.state(id).await, JobState::Scheduled);
    assert!(s.notifier.take().is_empty());
    assert!(s.claim(&[id], "w").await.is_empty(), "claimed before its time");
}

async fn a_rollback_leaves_no_job_and_no_notification(s: TestStore) {
    let job = NewJob::new(JobKind::Noop, 1, s.now());
    s.discard(async |tx| jobs::enqueue(tx, &job).await).await.unwrap();
    // The transaction is dropped, as after an error or a panic.
    let mut tx = s.begin().await.unwrap();
    jobs::enqueue(&mut tx, &job).await.unwrap().unwrap();
    drop(tx);
    assert_eq!(s.number("SELECT count(*) FROM jobs").await, 0);
    assert!(s.notifier.take().is_empty());
}

fn subject(id: i64, lane: Lane) -> JobSubject {
    JobSubject { id, lane, workspace_id: None }
}

async fn similar_jobs_are_enqueued_in_one_batch(s: TestStore) {
    let template = NewJob::new(JobKind::DeliverWebhook, 0, s.now()).trace(Some("req-1".to_owned()));
    let subjects: Vec<_> = (0..250).map(|n| subject(n, Lane::Endpoint(n % 3))).collect();
    let all = async || s.write(async |tx| jobs::enqueue_each(tx, &template, &subjects).await).await;
    all().await;
    let notified = s.notifier.take();
    assert_eq!(notified.len(), 250);
    for (id, JobSubject { id: subject, lane, .. }) in notified.iter().zip(&subjects) {
        let row = s.show(*id).await;
        assert_eq!((row.subject_id, row.lane, row.state), (*subject, Some(lane.to_string()), JobState::Ready));
        assert_eq!((row.kind, row.max_attempts, row.trace.as_deref()), (JobKind::DeliverWebhook, 1_000, Some("req-1")));
        assert_eq!((row.run_at, row.created_at), (s.now(), s.now()));
    }
    all().await;
    assert!(s.notifier.take().is_empty(), "each subject has a job");
    let later = NewJob { run_at: s.later(5), ..template.clone() };
    s.write(async |tx| jobs::enqueue_each(tx, &later, &[subject(900, Lane::Endpoint(1))]).await).await;
    assert!(s.notifier.take().is_empty(), "it is not due yet");
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE state = 'scheduled'").await, 1);
}

async fn a_subject_has_one_active_job_per_kind(s: TestStore) {
    let enqueue = async |kind, subject| {
        let job = NewJob::new(kind, subject, s.now());
        s.write(async |tx| jobs::enqueue(tx, &job).await).await
    };
    let first = s.job_at(JobKind::Noop, 1, None, s.later(60)).await;
    assert_eq!(enqueue(JobKind::Noop, 1).await, None, "scheduled");
    assert!(enqueue(JobKind::Noop, 2).await.is_some(), "another subject");
    assert!(enqueue(JobKind::PublishTarget, 1).await.is_some(), "another kind");
    s.notifier.take();
    s.advance(60);
    s.write(async |tx| jobs::dispatch::promote_due(tx, JobKind::Noop, 10).await).await;
    assert_eq!(enqueue(JobKind::Noop, 1).await, None, "ready");
    let held = s.claim(&[first], "w").await.remove(0);
    assert_eq!(enqueue(JobKind::Noop, 1).await, None, "running");
    assert_eq!(s.notifier.take(), [first], "only enqueued jobs are notified");
    assert!(s.settle(&held, Outcome::Done).await);
    for outcome in [Outcome::Abort("no".to_owned()), Outcome::Cancelled("gone".to_owned())] {
        let next = enqueue(JobKind::Noop, 1).await.expect("the previous job has ended");
        let held = s.claim(&[next], "w").await.remove(0);
        assert!(s.settle(&held, outcome).await);
    }
    assert!(enqueue(JobKind::Noop, 1).await.is_some());
}

async fn concurrent_enqueues_create_one_job(s: TestStore) {
    let created = crate::support::store::run_concurrently(8, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let created = jobs::enqueue(&mut tx, &NewJob::new(JobKind::Noop, 1, store.now())).await.unwrap();
            tx.commit().await.unwrap();
            created
        }
    })
    .await;
    let created: Vec<i64> = created.into_iter().flatten().collect();
    assert_eq!(created.len(), 1);
    assert_eq!(s.notifier.take(), created);
}

async fn cancelling_a_subject_keeps_running_jobs(s: TestStore) {
    let cancel = async |subject| s.write(async |tx| jobs::cancel_subject(tx, JobKind::Noop, subject).await).await;
    let (ready, running) = (s.enqueue_job(JobKind::Noop, 1, None).await, s.enqueue_job(JobKind::Noop, 2, None).await);
    let scheduled = s.job_at(JobKind::Noop, 3, None, s.later(60)).await;
    let other = s.enqueue_job(JobKind::PublishTarget, 1, None).await;
    let held = s.claim(&[running], "w").await.remove(0);
    s.advance(5);
    assert!(!cancel(1).await);
    assert!(cancel(2).await, "it runs");
    assert!(!cancel(3).await);
    assert!(!cancel(4).await, "it has no job");
    for (id, state) in [
        (ready, JobState::Cancelled),
        (running, JobState::Running),
        (scheduled, JobState::Cancelled),
        (other, JobState::Ready),
    ] {
        assert_eq!(s.state(id).await, state);
    }
    assert_eq!(s.show(ready).await.finished_at, Some(s.now()));
    assert!(s.claim(&[ready, scheduled], "w").await.is_empty());
    let mut conn = s.conn().await;
    assert!(jobs::is_running(&mut conn, JobKind::Noop, 2).await.unwrap());
    assert!(!jobs::is_running(&mut conn, JobKind::Noop, 1).await.unwrap());
    drop(conn);
    assert!(s.settle(&held, Outcome::Done).await);
}

async fn run_now_brings_the_next_attempt_forward(s: TestStore) {
    let id = s.job_at(JobKind::Noop, 1, None, s.later(3600)).await;
    s.advance(10);
    let job = NewJob::new(JobKind::Noop, 1, s.now());
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    assert_eq!(s.notifier.take(), [id]);
    let row = s.show(id).await;
    assert_eq!((row.state, row.run_at), (JobState::Ready, s.now()));
    // A ready job is only notified again.
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    assert_eq!(s.notifier.take(), [id]);
    let held = s.claim(&[id], "w").await;
    assert_eq!(held.len(), 1);
    // A running job continues, and no second job is created.
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    assert!(s.notifier.take().is_empty());
    assert_eq!(s.number("SELECT count(*) FROM jobs").await, 1);
}

async fn run_now_enqueues_if_no_job_waits(s: TestStore) {
    let job = NewJob::new(JobKind::Noop, 1, s.now());
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    let created = s.notifier.take();
    assert_eq!(created.len(), 1);
    let held = s.claim(&created, "w").await.remove(0);
    assert!(s.settle(&held, Outcome::Done).await);
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    let second = s.notifier.take();
    assert_eq!(second.len(), 1);
    assert_ne!(second, created);
}

/// Invariant: only as many jobs are notified as the lane has slots; the others follow one at a time.
async fn jobs_of_a_full_lane_wait(s: TestStore) {
    let template = NewJob::new(JobKind::PublishTarget, 0, s.now()).trace(Some("req-1".to_owned()));
    let lane = Lane::Account(3);
    let existing = s.enqueue_job(JobKind::PublishTarget, 2, None).await;
    let ended = s.enqueue_job(JobKind::PublishTarget, 3, None).await;
    s.enqueue_job(JobKind::DeliverWebhook, 4, None).await;
    s.write(async |tx| jobs::cancel_subject(tx, JobKind::PublishTarget, 3).await).await;
    s.notifier.take();
    let subjects: Vec<i64> = (1..=9).chain([4]).collect();
    let enqueue = async || s.write(async |tx| jobs::enqueue_in_lane(tx, &template, lane, &subjects).await).await;
    enqueue().await;
    let (created, notified) =
        (format!("SELECT count(*) FROM jobs WHERE id > {ended} AND kind = 'publish_target'"), s.notifier.take());
    assert_eq!((s.number(created.clone()).await, notified.len()), (8, 4), "one each; the second has one already");
    assert_eq!(s.show(existing).await.lane, None, "the existing job is unchanged");
    let row = s.show(notified[0]).await;
    assert_eq!((row.kind, row.state, row.waiting, row.attempt), (JobKind::PublishTarget, JobState::Ready, false, 0));
    assert_eq!((row.lane.as_deref(), row.trace.as_deref()), (Some("account:3"), Some("req-1")));
    assert_eq!((row.run_at, row.created_at), (s.now(), s.now()));
    let held = s.claim(&notified, "w").await;
    assert_eq!((held.len(), s.number("SELECT count(*) FROM jobs WHERE waiting").await), (4, 4));
    s.settle(&held[0], Outcome::Done).await;
    assert_eq!(s.notifier.take().len(), 1);
    enqueue().await;
    assert_eq!(s.number(created).await, 9, "a finished subject can be enqueued again");
    s.discard(async |tx| jobs::enqueue_in_lane(tx, &template, lane, &[50, 51]).await).await;
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE subject_id >= 50").await, 0);
}
