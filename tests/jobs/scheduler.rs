//! The scheduler: promotion, renotification and cleanup.

use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::TargetStatus;
use crier_scheduler::tasks::{clean_up, dispatch, measure};
use crier_store::{idempotency, posts};

use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    a_scheduled_post_is_published_at_its_time,
    dispatch_returns_the_delay_until_the_next_due_job,
    a_crash_on_the_last_attempt_is_reported,
    clean_up_deletes_only_expired_rows,
    clean_up_continues_until_nothing_is_left,
    clean_up_continues_after_rows_that_cannot_be_deleted,
    clean_up_ends_when_the_process_stops,
    measuring_changes_no_job,
);

async fn a_scheduled_post_is_published_at_its_time(w: TestWorker) {
    let at = w.later(3_600);
    let (_, target) = w.schedule(at).await;
    w.clock.advance(TimeDelta::seconds(3_600) - TimeDelta::microseconds(1));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Pending);
    w.clock.advance(TimeDelta::microseconds(1));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.published_at, Some(at));
}

async fn dispatch_returns_the_delay_until_the_next_due_job(w: TestWorker) {
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None, "no job is due");
    w.job_at(JobKind::Noop, 1, None, w.later(60)).await;
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None, "the next tick comes first");
    w.clock.advance(TimeDelta::milliseconds(59_900));
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), Some(std::time::Duration::from_millis(100)));
}

async fn a_crash_on_the_last_attempt_is_reported(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let (_, target) = w.publish_one().await;
    w.set_attempts(w.job_of(target).await.id, 7).await;
    w.claim(&w.s.notifier.take(), "gone").await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.scheduler.tick().await.unwrap();
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.last_error.as_deref()), (JobState::Dead, Some("attempts")));
    assert_eq!(w.target(target).await.error.unwrap().code, "internal");
    assert_eq!(w.events().await, ["post.failed"]);
}

async fn clean_up_deletes_only_expired_rows(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let (kept, kept_target) = w.publish_one().await;
    let (deleted, _) = w.publish_one().await;
    let in_flight = w.publish_one().await;
    let ids = w.s.notifier.take();
    w.engine.run(ids[0]).await;
    w.engine.run(ids[1]).await;
    w.claim(&[ids[2]], "busy").await;
    w.write(async |tx| posts::delete(tx, deleted).await).await;
    w.write(async |tx| posts::delete(tx, in_flight.0).await).await;
    let dead = w.enqueue_job(JobKind::Noop, 1, None).await;
    w.set_job_state(format!("jobs WHERE id = {dead}"), JobState::Dead).await;
    let key = w.key(w.world.user).await;
    let slot =
        idempotency::IdempotencySlot { api_key_id: key, key: "k".to_owned(), fingerprint: vec![1], request: None };
    w.write(async |tx| idempotency::acquire_lease(tx, &slot, idempotency::FreeKey::Unused).await).await;
    let count = async |sql: &str| w.count_rows(sql).await;

    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("posts").await, 2, "the deleted post is purged, and the one in flight is kept");
    assert_eq!((count("jobs").await, count("idempotency_keys").await), (6, 1));
    w.clock.advance(TimeDelta::hours(24));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!((count("jobs").await, count("idempotency_keys").await), (6, 0));
    w.clock.advance(TimeDelta::days(6));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("jobs WHERE state = 'done'").await, 0);
    assert_eq!((count("jobs").await, w.state(dead).await), (4, JobState::Dead));
    w.clock.advance(TimeDelta::days(23));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("jobs").await, 3, "unfinished jobs are kept");
    assert_eq!(w.target(kept_target).await.status, TargetStatus::Published);
    assert_eq!(w.attempts(kept).await.len(), 1, "the history for users is kept");
    w.clock.advance(TimeDelta::days(1_000));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("events").await, 2, "unfinished deliveries and their events are kept");
    w.sql("UPDATE webhook_deliveries SET status = 'succeeded'").await;
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!((count("webhook_deliveries").await, count("events").await), (0, 0));
}

/// Workers can finish thousands of jobs per second, so the cleanup continues immediately while expired rows remain.
async fn clean_up_continues_until_nothing_is_left(w: TestWorker) {
    w.enqueue_job(JobKind::Noop, 1, None).await;
    w.set_job_state("jobs", JobState::Done).await;
    w.copy_newest_row("jobs", 11_999, &[]).await;
    let kept = w.enqueue_job(JobKind::Noop, 1, None).await;
    w.clock.advance(TimeDelta::days(8));
    while let Some(wait) = clean_up::run(&w.scheduler).await.unwrap() {
        assert_eq!(wait, std::time::Duration::ZERO);
    }
    assert_eq!((w.count_rows("jobs").await, w.state(kept).await), (1, JobState::Ready));
}

async fn clean_up_continues_after_rows_that_cannot_be_deleted(w: TestWorker) {
    w.enqueue_job(JobKind::Noop, 1, None).await;
    w.set_job_state("jobs", JobState::Done).await;
    w.sql("INSERT INTO mail_counts SELECT id, '2020-01-01', 'digest', '', 1 FROM workspaces").await;
    w.sql(match w.is_postgres() {
        true => {
            "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'rejected'; END $$;
             CREATE TRIGGER reject BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION reject()"
        }
        false => "CREATE TRIGGER reject BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'rejected'); END",
    })
    .await;
    w.clock.advance(TimeDelta::days(8));
    assert!(clean_up::run(&w.scheduler).await.is_err(), "the failure is reported");
    assert_eq!((w.count_rows("jobs").await, w.count_rows("mail_counts").await), (1, 0));
}

async fn clean_up_ends_when_the_process_stops(w: TestWorker) {
    w.enqueue_job(JobKind::Noop, 1, None).await;
    w.set_job_state("jobs", JobState::Done).await;
    w.clock.advance(TimeDelta::days(8));
    w.scheduler.stop.cancel();
    assert_eq!(clean_up::run(&w.scheduler).await.unwrap(), None);
    assert_eq!(w.count_rows("jobs").await, 1);
}

async fn measuring_changes_no_job(w: TestWorker) {
    let id = w.enqueue_job(JobKind::Noop, 1, None).await;
    measure::run(&w.scheduler).await.unwrap();
    assert_eq!(w.state(id).await, JobState::Ready);
}
