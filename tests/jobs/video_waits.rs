//! Videos that a platform processes, and steps that fail: no wait uses an attempt, none lasts forever, and nothing is
//! published before its videos are ready.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::JobState;
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_jobs::publishing;
use crier_platforms::{CallError, VideoStep, VideoTransfer, VideoUpload};
use crier_store::posts;
use serde_json::{Map, Value, json};

use super::video::{part_count, stored_progress, three_parts, video_to_upload};
use crate::support::fake_platform::{
    Gate, PART, PublishStep, VideoAct, auth_expired, permanent, rate_limited, transient, unknown, upload,
};
use crate::support::images;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::videos::{VideoSpec, mp4};

worker_on_both!(
    a_wait_for_processing_uses_no_attempt,
    a_kill_while_the_platform_processes_sends_nothing_again,
    processing_ends_after_a_day,
    a_deleted_post_that_waits_aborts_its_upload,
    many_steps_continue_in_another_run,
    an_expired_upload_begins_again,
    an_upload_that_always_expires_uses_attempts,
    a_token_that_expires_between_steps_is_refreshed_once,
    a_rejected_video_is_sent_again_when_a_user_retries,
    a_step_of_unknown_outcome_is_retried,
    a_rate_limit_between_steps_keeps_the_progress,
    rate_limits_use_no_attempt_while_the_upload_continues,
    a_rate_limit_for_longer_than_a_day_uses_an_attempt,
    a_changed_video_is_handed_over_again,
    a_video_that_is_changed_during_its_upload_aborts_it,
    an_open_call_keeps_its_upload_until_its_outcome_is_known,
    interruptions_use_no_attempt_while_the_upload_continues,
    interruptions_without_progress_use_attempts,
    an_upload_that_is_always_interrupted_ends_after_a_day,
    a_step_that_is_always_the_same_uses_attempts,
    a_long_upload_leaves_the_call_to_another_run,
    uploads_that_are_always_missing_use_attempts,
    a_kill_while_a_video_is_uploaded_again_leaves_nothing_unknown,
);

fn pending(pause: TimeDelta) -> VideoAct {
    VideoAct::Return(VideoStep::Pending(upload(1, 0), pause))
}

async fn a_wait_for_processing_uses_no_attempt(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let pauses = [5, 5, 0].map(|seconds| pending(TimeDelta::seconds(seconds)));
    w.fake.videos.script([VideoAct::Take].into_iter().chain(pauses));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 0));
    assert_eq!((waiting.next_attempt_at, waiting.call_started_at), (Some(w.later(5)), None));
    let error = waiting.error.unwrap();
    assert_eq!(error.message, "Sandbox is processing the video.");
    // The job is scheduled, so it has no slot and does not hold the lane of the account.
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt, job.run_at), (JobState::Scheduled, 0, w.later(5)));
    let (other, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.post_status(other).await, PostStatus::Published);

    let times = w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(times.len(), 3, "a pause lasts at least a second: {times:?}");
    let target = w.target(target).await;
    assert_eq!((target.attempts, target.error), (1, None));
    assert_eq!(w.attempts(post).await.len(), 1);
}

async fn a_kill_while_the_platform_processes_sends_nothing_again(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.videos.script((0..4).map(|_| VideoAct::Take));
    w.fake.videos.script([VideoAct::Hang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    let sent = stored_progress(&w, target).await[&video.to_string()].clone();
    let processing = VideoStep::Pending(sent.as_object().unwrap().clone(), TimeDelta::minutes(1));
    w.fake.videos.script([VideoAct::Return(processing)]);
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((part_count(&w, video), w.fake.posts().len(), w.fake.count("publish")), (3, 1, 1));
}

async fn processing_ends_after_a_day(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script(std::iter::repeat_with(|| pending(TimeDelta::hours(1))).take(40));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let began = w.clock.now();
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    let waited = w.clock.now() - began;
    assert!(waited > TimeDelta::hours(22) && waited <= TimeDelta::hours(25), "{waited}");
    let error = w.target(target).await.error.unwrap();
    assert_eq!((error.category, w.fake.count("publish")), (Category::PlatformError, 0));
    assert!(error.message.contains("within a day"), "{}", error.message);
    assert_eq!(stored_progress(&w, target).await, Map::new());

    // A user retries the post much later.
    w.fake.videos.clear_script();
    w.clock.advance(TimeDelta::days(3));
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 3));
}

/// A platform may permit an account only a few open uploads.
async fn a_deleted_post_that_waits_aborts_its_upload(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, pending(TimeDelta::hours(1))]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 0, "the row is kept until the job ends");
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "post_deleted"));
    assert_eq!((w.fake.videos.aborted(), w.fake.videos.steps().len()), (vec![upload(1, 0)], 3));
    assert_eq!((w.fake.count("publish"), stored_progress(&w, target).await), (0, Map::new()));
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 1);

    // The video was handed over, and the call failed.
    let video = video_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::Reject(transient())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.count("publish")), (TargetStatus::Publishing, 1));
    w.write(async |tx| publishing::delete(tx, post).await).await;
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.count("publish")), (TargetStatus::Failed, 1));
    assert_eq!(w.fake.videos.aborted().len(), 1, "nothing is open");
}

/// A platform that always requests another step delays a post, and occupies no run forever.
async fn many_steps_continue_in_another_run(w: TestWorker) {
    let video = video_to_upload(&w).await;
    // The last step returns 0, so that all parts follow.
    let next = |left| VideoAct::Return(VideoStep::Next(upload(1, left)));
    w.fake.videos.script((0..100).rev().map(next));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.attempts, waiting.next_attempt_at), (0, Some(w.later(1))));
    assert_eq!((w.fake.videos.steps().len(), w.job_of(target).await.attempt), (100, 0));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.attempts(post).await.len()), (PostStatus::Published, 1));
}

async fn an_expired_upload_begins_again(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Return(VideoStep::Expired)]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.fake.videos.steps()[3].1, VideoUpload::new());
    assert_eq!((part_count(&w, video), w.target(target).await.attempts), (4, 1));
}

async fn an_upload_that_always_expires_uses_attempts(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script((0..4).map(|_| VideoAct::Return(VideoStep::Expired)));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 1));
    assert_eq!(w.attempts(post).await[0].outcome, AttemptOutcome::Retried);
    assert_eq!(w.fake.videos.steps().len(), 4);
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_token_that_expires_between_steps_is_refreshed_once(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Reject(auth_expired())]);
    let (post, _) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("refresh"), part_count(&w, video), w.attempts(post).await.len()), (1, 3, 1));

    // A second expiry in one run counts as rejected credentials.
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Reject(auth_expired()), VideoAct::Reject(auth_expired())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.target(target).await.error.unwrap().code, "account_expired");
}

async fn a_rejected_video_is_sent_again_when_a_user_retries(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Reject(permanent())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.target(target).await.error.unwrap().category, Category::PlatformRejected);
    assert_eq!((stored_progress(&w, target).await, w.fake.count("publish")), (Map::new(), 0));
    assert_eq!(w.fake.videos.aborted(), [upload(1, PART)]);
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 4));
}

async fn a_step_of_unknown_outcome_is_retried(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.disable_reconcile();
    w.fake.videos.script([VideoAct::Take, VideoAct::Reject(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.error.unwrap().category), (TargetStatus::Publishing, Category::Network));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 3));
}

async fn a_rate_limit_between_steps_keeps_the_progress(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let until = w.later(3_600);
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Reject(rate_limited(until))]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.next_attempt_at, waiting.call_started_at, waiting.attempts), (Some(until), None, 0));
    assert_eq!(waiting.error.unwrap().category, Category::RateLimited);
    // The limit is that of the account.
    let (other, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.post_status(other).await, PostStatus::Publishing);
    let stored = stored_progress(&w, target).await;
    assert_eq!(stored[&video.to_string()]["session"], Value::from(1));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 3));
}

/// A large video has more rate limits than a post has attempts.
async fn rate_limits_use_no_attempt_while_the_upload_continues(w: TestWorker) {
    w.fake.videos.set_transfer(VideoTransfer::Uploaded);
    let bytes = mp4(VideoSpec { data: 12 * 64 * 1024, ..VideoSpec::default() });
    let video = w.video("loaf.mp4", bytes.clone(), None).await;
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.fake.videos.script([VideoAct::Take]);
    for _ in 0..10 {
        w.fake.videos.script([VideoAct::Take, VideoAct::Reject(rate_limited(w.later(600)))]);
        w.run_jobs().await;
        let waiting = w.target(target).await;
        assert_eq!((waiting.attempts, waiting.next_attempt_at), (0, Some(w.later(600))));
        w.advance(601);
    }
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.videos.received(video, 1)), (PostStatus::Published, bytes));
    assert_eq!((w.target(target).await.attempts, w.attempts(post).await.len()), (1, 1));
}

async fn a_rate_limit_for_longer_than_a_day_uses_an_attempt(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let until = w.later(86_400 + 60);
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Reject(rate_limited(until))]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.attempts, waiting.next_attempt_at), (1, Some(until)));
    // The upload is too old by then, so it begins again.
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 4));
}

/// The alt text and the cover are part of the upload on some platforms.
async fn a_changed_video_is_handed_over_again(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let covers =
        [w.image("one.png", images::png(40, 30), None).await, w.image("two.png", images::png(30, 40), None).await];
    w.fake.script_publishes((0..4).map(|_| PublishStep::Reject(permanent())));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    // The last change is none.
    for (n, parts) in [3, 6, 9, 9].into_iter().enumerate() {
        match n % 2 {
            0 => w.set_options(target, json!({ "cover_media_id": covers[n / 2] })).await,
            _ => w.set_alt_text(video, "A bun").await,
        }
        if w.post_status(post).await == PostStatus::Failed {
            w.publish_again(post).await;
        }
        w.run_until_idle().await;
        assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Failed, parts));
    }
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 9));
    let published = w.fake.videos.published();
    let sent = &published.last().unwrap()[0];
    assert_eq!((sent.alt_text.as_deref(), sent.cover.as_ref().unwrap().id), (Some("A bun"), covers[1]));
}

/// A platform may permit an account only a few open uploads.
async fn a_video_that_is_changed_during_its_upload_aborts_it(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let processing = VideoAct::Return(VideoStep::Pending(upload(1, PART), TimeDelta::hours(1)));
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, processing]);
    let (post, _) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.fake.videos.aborted(), Vec::<VideoUpload>::new());
    w.set_alt_text(video, "A bun").await;
    w.run_until_idle().await;
    assert_eq!((w.fake.videos.aborted(), w.post_status(post).await), (vec![upload(1, PART)], PostStatus::Published));

    // The post is deleted too, so that nothing is sent any more.
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, pending(TimeDelta::hours(1))]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    w.set_alt_text(video, "A roll").await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Failed);
    assert_eq!(w.fake.videos.aborted(), [upload(1, PART), upload(1, 0)]);
}

/// The platform may be asked about the call by its upload.
async fn an_open_call_keeps_its_upload_until_its_outcome_is_known(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert!(w.target(target).await.call_started_at.is_some());
    w.set_alt_text(video, "A bun").await;
    let before = stored_progress(&w, target).await;
    w.advance(15);
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert!(waiting.status == TargetStatus::Publishing && waiting.call_started_at.is_some(), "{waiting:?}");
    assert_eq!((stored_progress(&w, target).await, part_count(&w, video)), (before, 3));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 6));
    assert_eq!(w.fake.posts().len(), 1);
}

/// A large video has more interruptions than a post has attempts.
async fn interruptions_use_no_attempt_while_the_upload_continues(w: TestWorker) {
    w.fake.videos.set_transfer(VideoTransfer::Uploaded);
    let bytes = mp4(VideoSpec { data: 20 * 64 * 1024, ..VideoSpec::default() });
    let video = w.video("loaf.mp4", bytes.clone(), None).await;
    w.fake.videos.script([VideoAct::Take]);
    for error in [transient, unknown].into_iter().cycle().take(16) {
        w.fake.videos.script([VideoAct::Take, VideoAct::Reject(error())]);
    }
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts, waiting.call_started_at), (TargetStatus::Publishing, 0, None));
    assert_eq!(waiting.error.as_ref(), Some(transient().failure()));
    assert!(waiting.next_attempt_at.unwrap() > w.later(7) && waiting.next_attempt_at.unwrap() < w.later(13));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.videos.received(video, 1)), (PostStatus::Published, bytes));
    assert_eq!((w.target(target).await.attempts, w.attempts(post).await.len()), (1, 1));
}

async fn interruptions_without_progress_use_attempts(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take, VideoAct::Take]);
    // The first run sends a part. The same step of the others fails, or makes no progress.
    let same = || VideoAct::Return(VideoStep::Next(upload(1, PART)));
    w.fake.videos.script([VideoAct::Reject(transient())]);
    w.fake.videos.script((0..8).flat_map(|_| [same(), VideoAct::Reject(transient())]));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.target(target).await.attempts), (PostStatus::Failed, 8));
    assert_eq!((w.attempts(post).await.len(), part_count(&w, video)), (8, 1));
}

async fn an_upload_that_is_always_interrupted_ends_after_a_day(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.script([VideoAct::Take]);
    w.fake.videos.script((0..2).flat_map(|_| [VideoAct::Take, VideoAct::Reject(transient())]));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    w.advance(86_400 - 5);
    w.run_jobs().await;
    assert_eq!((w.post_status(post).await, w.fake.count("publish")), (PostStatus::Failed, 0));
    let error = w.target(target).await.error.unwrap();
    assert!(error.message.contains("within a day"), "{}", error.message);
    assert_eq!(stored_progress(&w, target).await, Map::new());
}

/// A platform that always continues at the same place gets the same part a few times per attempt.
async fn a_step_that_is_always_the_same_uses_attempts(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let same = || VideoAct::Return(VideoStep::Next(upload(1, 0)));
    w.fake.videos.script([VideoAct::Take]);
    w.fake.videos.script(std::iter::repeat_with(same).take(4 * 8));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 1));
    assert_eq!(w.fake.videos.steps().len(), 5);
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.videos.steps().len()), (PostStatus::Failed, 1 + 4 * 8));
}

/// A token may expire more than once in an upload of hours.
async fn a_long_upload_leaves_the_call_to_another_run(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.videos.script([VideoAct::Reject(auth_expired())]);
    w.fake.videos.script((0..4).map(|_| VideoAct::Take).chain([VideoAct::TakeAndWait(gate.clone())]));
    w.fake.script_publishes([PublishStep::Reject(auth_expired())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let run = w.start_until(&gate, w.notified_job_of_target(target).await).await;
    w.clock.advance(TimeDelta::hours(1));
    gate.let_through();
    run.await.unwrap();
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts, waiting.call_started_at), (TargetStatus::Publishing, 0, None));
    assert_eq!((waiting.next_attempt_at, w.fake.count("publish")), (Some(w.later(1)), 0));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, part_count(&w, video)), (PostStatus::Published, 3));
    assert_eq!((w.fake.count("refresh"), w.fake.count("publish")), (2, 2));
}

pub(super) fn missing() -> PublishStep {
    PublishStep::Reject(CallError::UploadsMissing(transient().failure().clone()))
}

/// A platform that processes each upload and then does not know it delays a post, but not forever.
async fn uploads_that_are_always_missing_use_attempts(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.script_publishes(std::iter::repeat_with(missing).take(40));
    let size = u64::try_from(three_parts().len()).unwrap();
    let processing = || VideoAct::Return(VideoStep::Pending(upload(1, size), TimeDelta::seconds(3)));
    w.fake.videos.script((0..9).flat_map(|_| [VideoAct::Take, processing(), VideoAct::Take]));
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.target(target).await.error.unwrap().category, transient().failure().category);
    let attempts = w.attempts(post).await;
    assert_eq!((attempts.len(), attempts[7].number), (8, 8));
    assert_eq!(w.fake.count("publish"), 16, "each attempt uploads the video again once");
}

/// The platform rejected the call, so nothing is uncertain even if it cannot be queried.
async fn a_kill_while_a_video_is_uploaded_again_leaves_nothing_unknown(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.disable_reconcile();
    w.fake.script_publishes([missing()]);
    let gate = Gate::new();
    w.fake.videos.script((0..6).map(|_| VideoAct::Take));
    w.fake.videos.script([VideoAct::Hang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    assert_eq!(w.target(target).await.call_started_at, None);
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 1));
    assert_eq!(w.fake.videos.received(video, 2).len(), w.fake.videos.received(video, 1).len());
}
