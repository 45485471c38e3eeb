//! Daily caps: an account makes at most this many calls within any 24 hours, and posts that wait are not lost.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_platforms::{ImageTransfer, ReconcileResult, UploadQuota, VideoStep};
use crier_store::calls;

use super::video::video_to_upload;
use super::video_waits::missing;
use crate::support::fake_platform::{PublishStep, VideoAct, auth_expired, secrets, transient, unknown, upload};
use crate::support::images;
use crate::support::jobs::{MAX_CALL_SECONDS, TestWorker};
use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    posts_over_the_cap_wait_for_capacity,
    waiting_for_the_cap_is_never_missed,
    a_post_late_without_the_cap_is_missed,
    attempts_count_and_token_refreshes_do_not,
    a_call_after_an_open_call_counts,
    other_accounts_are_not_delayed,
    a_cap_of_zero_means_unlimited,
    concurrent_workers_never_exceed_the_cap,
    the_images_of_a_post_over_the_cap_are_not_uploaded,
    a_call_repeated_after_a_wait_counts_once,
    an_upload_is_reserved_for_each_other_workspace,
    uploads_of_an_application_are_limited_together,
];

const DAY: i64 = 86_400;

/// Returns the number of published targets.
async fn count_published(w: &TestWorker, posts: &[(i64, i64)]) -> usize {
    let mut count = 0;
    for (_, target) in posts {
        count += usize::from(w.target(*target).await.status == TargetStatus::Published);
    }
    count
}

async fn publish(w: &TestWorker, count: usize) -> Vec<(i64, i64)> {
    let mut posts = Vec::new();
    for _ in 0..count {
        posts.push(w.publish_one().await);
    }
    posts
}

async fn posts_over_the_cap_wait_for_capacity(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 3).await;
    let started_at = w.now();
    let posts = publish(&w, 5).await;
    w.run_jobs().await;
    assert_eq!((count_published(&w, &posts).await, w.fake.count("publish")), (3, 3));
    for (post, target) in &posts[3..] {
        let (target, job) = (w.target(*target).await, w.job_of(*target).await);
        let error = target.error.unwrap();
        assert_eq!((target.status, target.attempts), (TargetStatus::Publishing, 0));
        assert_eq!(target.next_attempt_at, Some(started_at + TimeDelta::seconds(DAY)));
        assert_eq!((error.category, error.code.as_str()), (Category::RateLimited, "rate_limited"));
        assert!(
            error.message.starts_with("The daily limit is reached: Crier publishes at most 3 posts"),
            "{}",
            error.message
        );
        assert_eq!(
            (job.state, job.attempt, job.run_at),
            (JobState::Scheduled, 0, started_at + TimeDelta::seconds(DAY))
        );
        assert_eq!(job.last_error, Some(error.message));
        assert_eq!(w.post_status(*post).await, PostStatus::Publishing);
        assert!(w.attempts(*post).await.is_empty(), "no attempt was made");
    }
    // Nothing is published before the day is over.
    w.advance(DAY - 1);
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 3);
    w.advance(1);
    w.run_jobs().await;
    assert_eq!(count_published(&w, &posts).await, 5);
    let last = w.target(posts[4].1).await;
    assert_eq!((last.attempts, last.error, last.next_attempt_at), (1, None, None));
    assert_eq!(w.count_rows("publish_calls").await, 2, "calls outside the window are deleted");
}

/// The workers in tests treat a post as missed if it is a day late. The cap makes these posts wait for three days.
async fn waiting_for_the_cap_is_never_missed(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 2).await;
    let posts = publish(&w, 5).await;
    // More posts become due while the others wait.
    w.run_jobs().await;
    w.advance(1);
    let late = publish(&w, 2).await;
    w.run_until_idle().await;
    assert_eq!(count_published(&w, &[posts, late].concat()).await, 7);
    assert!(w.now() - crate::support::store::start_time() > TimeDelta::days(3));
}

async fn a_post_late_without_the_cap_is_missed(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 1).await;
    let posts = publish(&w, 2).await;
    w.run_jobs().await;
    // No worker runs when the cap allows the second post, nor for a day after.
    w.advance(2 * DAY + 1);
    w.run_jobs().await;
    let target = w.target(posts[1].1).await;
    assert_eq!((target.status, target.error.unwrap().category), (TargetStatus::Failed, Category::Missed));
}

async fn attempts_count_and_token_refreshes_do_not(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 2).await;
    // The first call is rejected because of its token and repeated immediately. Both count as one call.
    w.fake.script_publishes([PublishStep::Reject(auth_expired())]);
    w.fake.script_refreshes([Ok(crier_platforms::RefreshedTokens {
        secrets: Some(secrets("token-1")),
        token_expires_at: None,
        refresh_expires_at: None,
    })]);
    let (first, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.post_status(first).await, w.fake.count("publish")), (PostStatus::Published, 2));
    assert_eq!(w.count_rows("publish_calls").await, 1);
    // A failed attempt is the second call. Its retry waits for the cap, which is not an attempt.
    w.fake.script_publishes([PublishStep::Reject(transient())]);
    let (second, target) = w.publish_one().await;
    w.run_jobs().await;
    w.advance(20);
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 1));
    assert_eq!(w.job_of(target).await.attempt, 1);
    w.run_until_idle().await;
    assert_eq!((w.post_status(second).await, w.target(target).await.attempts), (PostStatus::Published, 2));
}

async fn a_call_after_an_open_call_counts(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 1).await;
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    w.advance(MAX_CALL_SECONDS + 1);
    w.fake.script_reconciles([Ok(ReconcileResult::Absent)]);
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts, waiting.call_started_at), (TargetStatus::Publishing, 1, None));
    assert_eq!((w.fake.count("publish"), w.job_of(target).await.attempt), (1, 1));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 1));
}

async fn other_accounts_are_not_delayed(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 1).await;
    publish(&w, 2).await;
    let other = w.another_account("other").await.id;
    let (_, theirs) = w.publish(&[other]).await;
    w.run_jobs().await;
    assert_eq!(w.target(theirs[0]).await.status, TargetStatus::Published);
    assert_eq!(w.fake.count("publish"), 2);
    // The account's own lane is not paused either.
    assert_eq!(w.count_rows("paused_lanes").await, 0);
}

async fn a_cap_of_zero_means_unlimited(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 0).await;
    let posts = publish(&w, 9).await;
    w.run_jobs().await;
    assert_eq!(count_published(&w, &posts).await, 9);
    assert_eq!(w.count_rows("publish_calls").await, 0);
}

async fn concurrent_workers_never_exceed_the_cap(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 7).await;
    let posts = publish(&w, 30).await;
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(w.engine_for(w.open_second_store().await, &[JobKind::PublishTarget]));
    }
    let ids = w.s.notifier.take();
    // A lane runs four jobs at a time. The jobs that wait are notified again.
    let mut notified = ids;
    while !notified.is_empty() {
        let (engines, ids) = (engines.clone(), notified.clone());
        run_concurrently(notified.len(), |n| {
            let (engine, id) = (engines[n % engines.len()].clone(), ids[n]);
            async move { engine.run(id).await }
        })
        .await;
        for engine in &engines {
            w.wait_for_successors(engine, &[]).await;
        }
        w.scheduler.tick().await.unwrap();
        w.advance(11);
        w.scheduler.tick().await.unwrap();
        notified = w.s.notifier.take();
    }
    assert_eq!((count_published(&w, &posts).await, w.fake.count("publish")), (7, 7));
    // The same for the counter alone.
    let other = w.another_account("other").await.id;
    let permitted = run_concurrently(40, |_| {
        let store = w.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let permitted = calls::begin(&mut tx, other, 7).await.unwrap().is_none();
            tx.commit().await.unwrap();
            permitted
        }
    })
    .await;
    assert_eq!(permitted.into_iter().filter(|permitted| *permitted).count(), 7);
}

async fn the_images_of_a_post_over_the_cap_are_not_uploaded(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 1).await;
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    let image = w.image("one.png", images::png(20, 20), None).await;
    let posts = [w.publish_images(w.account.id, &[image]).await, w.publish_images(w.account.id, &[image]).await];
    w.run_jobs().await;
    assert_eq!((count_published(&w, &posts).await, w.fake.count("upload"), w.fake.count("publish")), (1, 1, 1));
    assert_eq!(w.count_rows("publish_calls").await, 1, "only the call that was made counts");
    w.run_until_idle().await;
    assert_eq!((count_published(&w, &posts).await, w.fake.count("upload")), (2, 2));
}

/// The platform lost the uploads, rejected the call, and processes the new upload. The post does not wait for its own
/// call.
async fn a_call_repeated_after_a_wait_counts_once(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 1).await;
    let video = video_to_upload(&w).await;
    let began = w.now();
    w.fake.script_publishes([missing()]);
    let processing = VideoStep::Pending(upload(2, 0), TimeDelta::seconds(3));
    w.fake.videos.script((0..6).map(|_| VideoAct::Take).chain([VideoAct::Return(processing)]));
    let posts = [w.publish_images(w.account.id, &[video]).await];
    w.run_until_idle().await;
    assert_eq!((count_published(&w, &posts).await, w.fake.count("publish")), (1, 2));
    assert!(w.now() - began < TimeDelta::minutes(1), "{}", w.now() - began);
    assert_eq!(w.count_rows("publish_calls").await, 1);
    // The next post waits for a day.
    let next = [w.publish_images(w.account.id, &[video]).await];
    w.run_jobs().await;
    assert_eq!((count_published(&w, &next).await, w.fake.count("publish")), (0, 2));
}

/// The limit is that of a day, and each upload counts when it begins.
async fn uploads_of_an_application_are_limited_together(s: TestStore) {
    let w = TestWorker::with_daily_posts(s, 3).await;
    let video = video_to_upload(&w).await;
    let quota = |since, until| UploadQuota { name: "fake:app".to_owned(), since, until, resets_at: "midnight" };
    let midnight = w.later(3_600);
    w.fake.videos.set_quota(quota(midnight - TimeDelta::days(1), midnight));
    let other = w.another_account("other").await.id;
    // The upload of the first post begins twice.
    w.fake.videos.script([VideoAct::Take, VideoAct::Return(VideoStep::Expired)]);
    let first = [w.publish_images(w.account.id, &[video]).await];
    w.run_jobs().await;
    let second = [w.publish_images(other, &[video]).await];
    w.run_jobs().await;
    assert_eq!((count_published(&w, &first).await, count_published(&w, &second).await), (1, 1));
    let third = [w.publish_images(w.account.id, &[video]).await, w.publish_images(other, &[video]).await];
    let steps = w.fake.count("send_video");
    w.run_jobs().await;
    for (post, target) in third {
        let waiting = w.target(target).await;
        assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 0));
        assert_eq!((waiting.next_attempt_at, waiting.call_started_at), (Some(midnight), None));
        let message = waiting.error.unwrap().message;
        assert!(message.contains("3 videos per day from all accounts of an application"), "{message}");
        assert!(message.contains("ends at midnight") && w.attempts(post).await.is_empty(), "{message}");
    }
    assert_eq!((w.fake.count("send_video"), w.count_rows("publish_calls").await), (steps, 3));
    // A post without a video does not count.
    let (text, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.post_status(text).await, PostStatus::Published);

    w.fake.videos.set_quota(quota(midnight, midnight + TimeDelta::days(1)));
    w.run_until_idle().await;
    assert_eq!((count_published(&w, &third).await, w.count_rows("publish_calls").await), (2, 5));
}

/// A workspace that uploaded within a week can upload once per day, whatever the others do.
async fn an_upload_is_reserved_for_each_other_workspace(s: TestStore) {
    let begin = async |workspace: i64, day| {
        s.write(async |tx| calls::begin_upload(tx, (1, workspace), "fake:app", day, 5).await).await
    };
    let first = s.now();
    for (workspace, is_permitted) in [(2, true), (3, true), (1, true), (1, true), (1, true), (1, false), (4, false)] {
        assert_eq!(begin(workspace, first).await, is_permitted, "{workspace}");
    }
    s.advance(86_400);
    // A post of the account with an application that has no such limit.
    assert_eq!(s.write(async |tx| calls::begin(tx, 1, 1).await).await, None);
    let second = s.now();
    for (workspace, is_permitted) in
        [(1, true), (1, true), (1, true), (1, false), (2, true), (2, false), (3, true), (3, false), (1, false)]
    {
        assert_eq!(begin(workspace, second).await, is_permitted, "{workspace}");
    }
    s.advance(8 * 86_400);
    let later = s.now();
    for is_permitted in [true, true, true, true, true, false] {
        assert_eq!(begin(1, later).await, is_permitted, "the others no longer upload");
    }
}
