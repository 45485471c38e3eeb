//! Data that cannot be processed: deleted subjects, kinds of a newer version, invalid JSON, and secrets that cannot be
//! decrypted. Invariant: the job ends and is reported, or is unchanged; everything else continues.

use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_scheduler::tasks::{clean_up, dispatch, measure, rescue};
use crier_store::jobs::operate::{self, JobQuery};
use crier_store::targets;

use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    jobs_of_deleted_subjects_are_cancelled,
    a_kind_of_a_newer_version_is_left_alone,
    an_unreadable_target_does_not_affect_others,
    an_unreadable_target_is_reported_after_a_crash,
    an_unrescuable_job_does_not_block_others,
    undecryptable_secrets_do_not_affect_other_accounts,
    secrets_are_used_once_decryptable_again,
    a_store_error_is_reported_after_the_last_attempt,
);

/// Invariant: the platform is not called, and no job of the subject remains.
async fn jobs_of_deleted_subjects_are_cancelled(w: TestWorker) {
    let (_, deleted_target) = w.publish_one().await;
    let (deleted_post, _) = w.publish_one().await;
    let (_, fine) = w.publish_one().await;
    w.write(async |tx| targets::delete(tx, deleted_target).await).await;
    w.sql(format!("DELETE FROM posts WHERE id = {deleted_post}")).await;
    let delivery = w.enqueue_job(JobKind::DeliverWebhook, 999, None).await;
    let ids = w.s.notifier.take();
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    assert_eq!((w.state(ids[0]).await, w.state(ids[1]).await), (JobState::Cancelled, JobState::Cancelled));
    assert_eq!((w.state(ids[2]).await, w.state(delivery).await), (JobState::Done, JobState::Cancelled));
    assert_eq!((w.target(fine).await.status, w.fake.count("publish")), (TargetStatus::Published, 1));
}

/// Invariant: rows of kinds that this version does not know are unchanged, and all other jobs end.
async fn a_kind_of_a_newer_version_is_left_alone(w: TestWorker) {
    w.leaves_jobs();
    let lane = format!("account:{}", w.account.id);
    let rows =
        [("scheduled", false, "NULL"), ("ready", false, "NULL"), ("ready", true, "NULL"), ("running", false, "run_at")];
    // Their rows come first and are older than those of known kinds, so that every batch contains them.
    for (subject, (state, waiting, lease)) in rows.iter().enumerate() {
        let now = w.clock.now().to_rfc3339();
        w.sql(format!(
            "
            INSERT INTO jobs (kind, subject_id, lane, state, waiting, run_at, max_attempts, dispatched_at, created_at)
            VALUES ('reel_to_come', {subject}, '{lane}', '{state}', {waiting}, '{now}', 3, '{now}', '{now}')"
        ))
        .await;
        w.sql(format!("UPDATE jobs SET lease_until = {lease} WHERE kind = 'reel_to_come' AND subject_id = {subject}"))
            .await;
    }
    w.sql("INSERT INTO paused_kinds (kind) SELECT kind FROM jobs LIMIT 1").await;
    let unknown = async || -> String {
        w.value(
            "
            SELECT string_agg(r, ' ')
            FROM (
                SELECT id || ':' || state || ':' || attempt || ':' || fence || ':' || crashes || ':' || waiting AS r
                FROM jobs
                WHERE kind = 'reel_to_come'
                ORDER BY id
            ) j",
        )
        .await
    };
    let before = unknown().await;

    let due = w.schedule(w.later(5)).await.1;
    let mut targets = vec![due];
    for _ in 0..6 {
        targets.push(w.publish_one().await.1);
    }
    let abandoned = w.enqueue_job(JobKind::Noop, 1, None).await;
    w.claim(&[abandoned], "gone").await;
    w.advance(LEASE_EXPIRY_SECONDS);
    // Claims with ids of unknown kinds next to others in one batch.
    let mut ids: Vec<i64> = vec![1, 2, 3, 4];
    ids.extend(w.s.notifier.take());
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    dispatch::run(&w.scheduler).await.unwrap();
    rescue::run(&w.scheduler).await.unwrap();
    measure::run(&w.scheduler).await.unwrap();
    clean_up::run(&w.scheduler).await.unwrap();
    let listed = operate::list(&mut w.conn().await, &JobQuery::default(), 100).await.unwrap();
    assert_eq!(listed.len(), 8, "known kinds are listed");
    w.run_until_known_kinds_end().await;
    for target in targets {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.state(abandoned).await, w.fake.posts().len()), (JobState::Done, 7));
    assert_eq!(unknown().await, before);
}

impl TestWorker {
    /// Like [`TestWorker::run_until_idle`], but ignores jobs that never run.
    async fn run_until_known_kinds_end(&self) {
        for _ in 0..5 {
            self.run_jobs().await;
            self.advance(LEASE_EXPIRY_SECONDS);
        }
    }
}

/// Creates three targets on three accounts; the middle one's options are invalid.
async fn publish_three_with_one_unreadable(w: &TestWorker) -> (i64, Vec<i64>) {
    w.listen_at("http://127.0.0.1:1/").await;
    let accounts = [w.account.id, w.another_account("b").await.id, w.another_account("c").await.id];
    let (post, targets) = w.publish(&accounts).await;
    w.sql(format!("UPDATE post_targets SET options = '[]' WHERE id = {}", targets[1])).await;
    (post, targets)
}

/// Asserts that the other targets of the post are published once, and that this one is reported.
async fn assert_others_are_published(w: &TestWorker, post: i64, targets: &[i64]) {
    w.run_until_idle().await;
    let stored = format!("SELECT status || ' ' || attempts FROM post_targets WHERE id = {}", targets[1]);
    assert_eq!(w.value::<String>(stored).await, "failed 0");
    for target in [targets[0], targets[2]] {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
        assert_eq!((w.job_of(target).await.attempt, w.job_of(target).await.crashes), (1, 0));
    }
    let mut events = w.events().await;
    events.sort();
    assert_eq!(events, ["post.failed", "post.published", "post.published"]);
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::PartiallyPublished, 2));
    assert_eq!(w.count_rows("jobs WHERE state IN ('scheduled', 'ready', 'running')").await, 0);
}

async fn an_unreadable_target_does_not_affect_others(w: TestWorker) {
    w.leaves_jobs();
    let (post, targets) = publish_three_with_one_unreadable(&w).await;
    let ids = w.s.notifier.take();
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    assert_others_are_published(&w, post, &targets).await;
    assert_eq!(w.job_of(targets[1]).await.attempt, 8, "it may become readable");
}

async fn an_unreadable_target_is_reported_after_a_crash(w: TestWorker) {
    w.leaves_jobs();
    let (post, targets) = publish_three_with_one_unreadable(&w).await;
    let ids = w.s.notifier.take();
    w.claim(&ids[1..2], "gone").await;
    w.set_crashes(ids[1], 2).await;
    futures::future::join_all([ids[0], ids[2]].iter().map(|id| w.engine.run(*id))).await;
    assert_others_are_published(&w, post, &targets).await;
}

/// Publishes on two accounts. The first one has the secrets of the second, which cannot be decrypted there.
async fn publish_with_swapped_secrets(w: &TestWorker) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let other = w.another_account("b").await.id;
    let (_, targets) = w.publish(&[other, w.account.id]).await;
    let other_secrets = format!("(SELECT secrets FROM social_accounts WHERE id = {})", w.account.id);
    w.sql(format!("UPDATE social_accounts SET secrets = {other_secrets} WHERE id = {other}")).await;
    let ids = w.s.notifier.take();
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    (targets[0], targets[1])
}

async fn undecryptable_secrets_do_not_affect_other_accounts(w: TestWorker) {
    w.leaves_jobs();
    let (undecryptable, fine) = publish_with_swapped_secrets(&w).await;
    w.run_until_idle().await;
    assert_eq!((w.target(fine).await.status, w.job_of(fine).await.attempt), (TargetStatus::Published, 1));
    let (failed, job) = (w.target(undecryptable).await, w.job_of(undecryptable).await);
    assert_eq!((failed.status, failed.error.unwrap().code.as_str()), (TargetStatus::Failed, "internal"));
    assert_eq!((job.state, job.attempt, w.fake.count("publish")), (JobState::Dead, 8, 1));
    assert_eq!(w.events().await, ["post.published", "post.failed"]);
}

async fn secrets_are_used_once_decryptable_again(w: TestWorker) {
    let (undecryptable, _) = publish_with_swapped_secrets(&w).await;
    assert_eq!(w.job_of(undecryptable).await.state, JobState::Scheduled);
    w.another_account("b").await;
    w.run_until_idle().await;
    assert_eq!((w.target(undecryptable).await.status, w.fake.posts().len()), (TargetStatus::Published, 2));
}

async fn an_unrescuable_job_does_not_block_others(w: TestWorker) {
    w.leaves_jobs();
    let (post, stuck) = w.publish_one().await;
    let (_, fine) = w.publish_one().await;
    let ids = w.s.notifier.take();
    w.claim(&ids, "gone").await;
    w.set_crashes(ids[0], 2).await;
    // The subject cannot be notified, because the stored data of its post cannot be read.
    w.sql(format!("UPDATE posts SET media = '{{}}' WHERE id = {post}")).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    rescue::run(&w.scheduler).await.unwrap_err();
    assert_eq!((w.state(ids[0]).await, w.state(ids[1]).await), (JobState::Running, JobState::Ready));
    w.engine.run(ids[1]).await;
    assert_eq!(w.target(fine).await.status, TargetStatus::Published);
    w.sql(format!("UPDATE posts SET media = '[]' WHERE id = {post}")).await;
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!((w.state(ids[0]).await, w.target(stuck).await.status), (JobState::Dead, TargetStatus::Failed));
}

async fn a_store_error_is_reported_after_the_last_attempt(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let (_, target) = w.publish_one().await;
    let id = w.notified_job();
    // The secrets of the account cannot be decrypted, so every attempt fails there.
    w.sql("UPDATE social_accounts SET secrets = secrets || secrets").await;
    w.set_attempts(id, 6).await;
    w.engine.run(id).await;
    assert_eq!(w.state(id).await, JobState::Scheduled);
    assert!(w.target(target).await.call_started_at.is_none(), "no call was marked as begun");
    w.run_until_idle().await;
    assert_eq!(w.state(id).await, JobState::Dead);
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "internal"));
    assert_eq!((w.events().await, w.fake.calls().len()), (vec!["post.failed".to_owned()], 0));
}
