//! `publish_target` with videos: each step of handing a video over is stored before the next one, so no crash sends a
//! part again whose step was stored. `video_waits` has the tests of waiting and of failures.

use std::time::Duration;

use crier_config::MediaConfig;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_domain::platform::Platform;
use crier_domain::post::{PostStatus, TargetStatus, ThreadPart};
use crier_jobs::publishing;
use crier_platforms::{CallError, ImageTransfer, VideoStep, VideoTransfer};
use crier_store::{accounts, media, post_media};
use futures::TryStreamExt;
use serde_json::{Map, Value, json};

use crate::support::fake_platform::{Gate, PART, PublishStep, VideoAct, transient, unknown, upload};
use crate::support::images;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker, worker_on_both};
use crate::support::store::{TestStore, on_one};
use crate::support::videos::{VideoSpec, mp4};

on_one!(a_platform_gets_the_index_first);
worker_on_both!(
    a_video_is_sent_in_parts_and_then_published,
    each_step_is_stored_before_the_next,
    a_kill_at_any_step_repeats_only_that_step,
    a_stop_between_steps_refunds_the_attempt,
    a_kill_in_the_call_sends_no_part_again,
    images_and_videos_keep_their_order,
    each_part_of_a_thread_sends_its_own_video,
    a_video_in_two_parts_of_one_call_is_sent_once,
    missing_uploads_begin_again,
    missing_uploads_do_not_wait_for_the_memory_of_their_own_cover,
    a_retry_does_not_send_a_video_again,
    a_long_progress_is_stored,
    a_video_that_is_fetched_is_not_read,
    the_deadline_of_a_call_includes_its_videos,
    the_cover_is_loaded_for_the_platform,
    a_missing_video_or_cover_fails_the_target,
    a_post_that_is_deleted_during_the_transfer_is_not_published,
    an_account_that_is_disconnected_during_the_transfer_is_not_called,
    a_storage_that_fails_during_the_call_leaves_nothing_unknown,
);

/// The steps of a video of three parts: the upload begins, the parts, and the reference.
const STEPS: usize = 5;

/// Returns a video of three parts.
pub(super) fn three_parts() -> Vec<u8> {
    let bytes = mp4(VideoSpec { data: 150_000, ..VideoSpec::default() });
    assert_eq!((bytes.len() as u64).div_ceil(PART), 3);
    bytes
}

/// Creates a video of three parts, which the platform receives in steps.
pub(super) async fn video_to_upload(w: &TestWorker) -> i64 {
    w.fake.videos.set_transfer(VideoTransfer::Uploaded);
    w.video("loaf.mp4", three_parts(), Some("A loaf")).await
}

/// Returns the stored progress of the videos.
pub(super) async fn stored_progress(w: &TestWorker, target: i64) -> Map<String, Value> {
    post_media::video_uploads(&mut w.conn().await, w.cipher(), target).await.unwrap()
}

/// Returns the number of parts that arrived of a video.
pub(super) fn part_count(w: &TestWorker, video: i64) -> usize {
    w.fake.videos.parts().iter().filter(|part| part.video == video).count()
}

async fn a_video_is_sent_in_parts_and_then_published(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let calls: Vec<_> = w.fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls, [vec!["send_video"; STEPS], vec!["publish"]].concat());
    assert_eq!(w.fake.videos.received(video, 1), three_parts());
    let sent = w.fake.videos.published()[0].remove(0);
    assert_eq!((sent.id, sent.position, sent.filename.as_str()), (video, 0, "loaf.mp4"));
    assert_eq!((sent.alt_text.as_deref(), sent.width, sent.height), (Some("A loaf"), 720, 1_280));
    assert_eq!((sent.uploaded, &sent.upload["sent"]), (Some(json!("video-1")), &json!(sent.size)));
    assert!(sent.url.starts_with("https://crier.example/media/") && sent.url.ends_with(".mp4"), "{}", sent.url);
    let stored = post_media::uploads(&mut w.conn().await, target).await.unwrap();
    assert_eq!(Value::from(stored), json!({ video.to_string(): "video-1" }));
    assert_eq!((w.target(target).await.attempts, w.attempts(post).await.len()), (1, 1));
}

async fn each_step_is_stored_before_the_next(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.videos.script((0..STEPS).map(|_| VideoAct::TakeAndWait(gate.clone())));
    let (_, target) = w.publish_images(w.account.id, &[video]).await;
    let run = w.start_until(&gate, w.notified_job_of_target(target).await).await;
    let mut expected = Map::new();
    for step in 0..STEPS {
        if step > 0 {
            gate.wait_until_entered().await;
        }
        let (id, received) = w.fake.videos.steps().remove(step);
        assert_eq!((id, &received), (video, &expected), "step {step} receives the result of the one before");
        let stored = stored_progress(&w, target).await.get(&video.to_string()).cloned();
        assert_eq!(stored.unwrap_or_else(|| json!({})), Value::from(received), "step {step}");
        assert_eq!(w.target(target).await.call_started_at, None, "no call has begun");
        let sent = PART * u64::try_from(step).unwrap();
        expected = upload(1, sent.min(three_parts().len() as u64));
        gate.let_through();
    }
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_kill_at_any_step_repeats_only_that_step(w: TestWorker) {
    for step in 0..STEPS {
        for takes_effect in [true, false] {
            let when = format!("killed at step {step}, which takes effect: {takes_effect}");
            let video = video_to_upload(&w).await;
            let gate = Gate::new();
            w.fake.videos.script((0..step).map(|_| VideoAct::Take));
            w.fake.videos.script([match takes_effect {
                true => VideoAct::TakeAndHang(gate.clone()),
                false => VideoAct::Hang(gate.clone()),
            }]);
            let (post, target) = w.publish_images(w.account.id, &[video]).await;
            w.kill_at(&gate, w.notified_job_of_target(target).await).await;
            w.run_until_idle().await;
            assert_eq!(w.post_status(post).await, PostStatus::Published, "{when}");
            let is_part = (1..=3).contains(&step);
            assert_eq!(part_count(&w, video), 3 + usize::from(is_part && takes_effect), "{when}");
            let steps = w.fake.videos.steps().iter().filter(|(id, _)| *id == video).count();
            assert_eq!(steps, STEPS + 1, "{when}");
        }
    }
    assert_eq!((w.fake.posts().len(), w.fake.count("publish"), w.fake.count("reconcile")), (10, 10, 0));
}

async fn a_stop_between_steps_refunds_the_attempt(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.videos.script([VideoAct::Take, VideoAct::Take, VideoAct::Hang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let stopping = w.engine_for(w.store.clone(), JobKind::ALL);
    let (engine, id) = (stopping.clone(), w.notified_job_of_target(target).await);
    let running = tokio::spawn(async move { engine.run(id).await });
    gate.wait_until_entered().await;
    stopping.drain();
    stopping.abort();
    running.await.unwrap();
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Ready, 0, 0));
    assert_eq!(w.target(target).await.attempts, 0);
    w.run_jobs().await;
    assert_eq!((w.post_status(post).await, w.target(target).await.attempts), (PostStatus::Published, 1));
    assert_eq!(w.fake.videos.received(video, 1), three_parts(), "each part once");
}

async fn a_kill_in_the_call_sends_no_part_again(w: TestWorker) {
    for is_accepted in [true, false] {
        let video = video_to_upload(&w).await;
        let gate = Gate::new();
        w.fake.script_publishes([match is_accepted {
            true => PublishStep::AcceptAndHang(gate.clone()),
            false => PublishStep::Hang(gate.clone()),
        }]);
        let before = w.fake.posts().len();
        let (post, target) = w.publish_images(w.account.id, &[video]).await;
        w.kill_at(&gate, w.notified_job_of_target(target).await).await;
        w.run_until_idle().await;
        assert_eq!(w.post_status(post).await, PostStatus::Published);
        assert_eq!((part_count(&w, video), w.fake.posts().len()), (3, before + 1));
    }
    assert_eq!(w.fake.count("publish"), 3, "only the call that was not accepted is repeated");
}

async fn images_and_videos_keep_their_order(w: TestWorker) {
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    let (first, second) = (video_to_upload(&w).await, video_to_upload(&w).await);
    let image = w.image("one.png", images::png(40, 30), None).await;
    for media in [[first, image, second], [image, second, first], [second, first, image]] {
        let (post, _) = w.publish_images(w.account.id, &media).await;
        w.run_jobs().await;
        assert_eq!(w.post_status(post).await, PostStatus::Published);
        assert_eq!(w.fake.videos.published_ids().pop().unwrap(), media);
    }
    assert_eq!((w.fake.count("upload"), w.fake.count("send_video")), (3, 3 * 2 * STEPS));
}

async fn each_part_of_a_thread_sends_its_own_video(w: TestWorker) {
    let (first, second) = (video_to_upload(&w).await, video_to_upload(&w).await);
    let (post, target) = w.publish_images(w.account.id, &[first]).await;
    let part = ThreadPart { content: "second part".to_owned(), media: vec![second] };
    w.change_post(post, |p| p.thread = vec![part]).await;
    w.write(async |tx| post_media::set(tx, w.world.brand, post, &[first, second]).await).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.fake.videos.published_ids(), [vec![first], vec![second]]);
    assert_eq!((part_count(&w, first), part_count(&w, second)), (3, 3));
    assert_eq!(w.fake.videos.published()[1][0].uploaded, Some(json!("video-2")));
    assert_eq!(stored_progress(&w, target).await, Map::new(), "the progress ends with its part");
}

async fn a_video_in_two_parts_of_one_call_is_sent_once(w: TestWorker) {
    w.fake.publish_whole_threads();
    let video = video_to_upload(&w).await;
    let (post, _) = w.publish_images(w.account.id, &[video]).await;
    let part = ThreadPart { content: "second part".to_owned(), media: vec![video] };
    w.change_post(post, |p| p.thread = vec![part]).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.videos.published_ids(), part_count(&w, video)), (vec![vec![video, video]], 3));
    let uploaded: Vec<_> = w.fake.videos.published()[0].iter().map(|video| video.uploaded.clone()).collect();
    assert_eq!(uploaded, vec![Some(json!("video-1")); 2]);
}

async fn missing_uploads_begin_again(w: TestWorker) {
    let missing = || PublishStep::Reject(CallError::UploadsMissing(transient().failure().clone()));
    let video = video_to_upload(&w).await;
    w.fake.script_publishes([missing()]);
    let (post, _) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.fake.videos.received(video, 2), three_parts());
    assert_eq!(w.fake.videos.published()[1][0].uploaded, Some(json!("video-2")));
    assert_eq!((part_count(&w, video), w.attempts(post).await.len()), (6, 1));

    // The platform processes the new upload. The earlier call was rejected, so its outcome is known.
    w.fake.disable_reconcile();
    w.fake.script_publishes([missing()]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let processing = VideoStep::Pending(upload(4, three_parts().len() as u64), chrono::TimeDelta::seconds(3));
    let takes = || (0..STEPS).map(|_| VideoAct::Take);
    w.fake.videos.script(takes().chain(takes().take(STEPS - 1)).chain([VideoAct::Return(processing)]));
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.call_started_at, waiting.attempts), (TargetStatus::Publishing, None, 0));
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 2));
}

/// The cover stays in memory until the run ends, and the image needs memory again.
async fn missing_uploads_do_not_wait_for_the_memory_of_their_own_cover(w: TestWorker) {
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    let video = video_to_upload(&w).await;
    let image = w.image("one.png", images::png(40, 30), None).await;
    let cover = w.image("cover.png", images::png(40, 30), None).await;
    w.fake.script_publishes([PublishStep::Reject(CallError::UploadsMissing(transient().failure().clone()))]);
    let (post, target) = w.publish_images(w.account.id, &[video, image]).await;
    w.set_options(target, json!({ "cover_media_id": cover })).await;
    // Of the workspace's quarter, there is room for one file.
    let others = MediaConfig::default().memory_bytes / 4 - (1 << 20);
    let _others = w.media().budget().share_of_workspace(w.world.workspace, others, others).await;
    let run = tokio::time::timeout(Duration::from_secs(120), w.run_jobs()).await;
    assert!(run.is_ok(), "the run waits for memory forever");
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("upload"), w.fake.count("publish")), (2, 2));
    let sent = w.fake.videos.published().pop().unwrap().remove(0);
    assert_eq!((sent.uploaded, sent.cover.unwrap().bytes.is_empty()), (Some(json!("video-2")), false));
}

async fn a_retry_does_not_send_a_video_again(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::Reject(transient()), PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((part_count(&w, video), w.fake.count("publish"), w.fake.posts().len()), (3, 2, 1));
    assert_eq!(w.target(target).await.attempts, 3, "the third attempt reconciled the second");
}

/// URLs of parts are long, and there are many.
async fn a_long_progress_is_stored(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let mut progress = upload(1, 0);
    progress.insert("urls".to_owned(), json!(vec!["https://fake.example/upload?part=1&signature=abcdef"; 2_000]));
    let gate = Gate::new();
    w.fake.videos.script([VideoAct::Return(VideoStep::Next(progress.clone())), VideoAct::Hang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.fake.videos.steps()[2].1, progress);
}

async fn a_video_that_is_fetched_is_not_read(w: TestWorker) {
    let video = video_to_upload(&w).await;
    w.fake.videos.set_transfer(VideoTransfer::Fetched);
    std::fs::remove_dir_all(w.files().join("media")).unwrap();
    let (post, _) = w.publish_images(w.account.id, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("send_video"), w.fake.videos.published()[0][0].uploaded.clone()), (0, None));
}

/// Facebook rejects a file whose index is at its end, whether it downloads the file or receives the bytes.
async fn a_platform_gets_the_index_first(s: TestStore) {
    let w = TestWorker::with_fake_of(s, Platform::Facebook).await;
    let stored = mp4(VideoSpec { index_first: false, data: 150_000, ..VideoSpec::default() });
    let last = w.video_with_index("last.mp4", stored.clone(), None, false).await;
    let first = w.video("first.mp4", mp4(VideoSpec::default()), None).await;
    for transfer in [VideoTransfer::Fetched, VideoTransfer::Uploaded] {
        w.fake.videos.set_transfer(transfer);
        for video in [last, first] {
            let (post, target) = w.publish_images(w.account.id, &[video]).await;
            w.run_until_idle().await;
            let error = w.target(target).await.error;
            assert_eq!(w.post_status(post).await, PostStatus::Published, "{transfer:?} {error:?}");
        }
    }
    let urls: Vec<String> = w.fake.videos.published().into_iter().flatten().map(|video| video.url).collect();
    let moved: Vec<bool> = urls.iter().map(|url| url.contains("/media/index-first/")).collect();
    assert_eq!(moved, [true, false, true, false], "{urls:?}");
    let place = |file: &[u8], kind: &[u8]| file.windows(4).position(|window| window == kind).unwrap();
    let received = w.fake.videos.received(last, 1);
    assert_eq!(received.len(), stored.len());
    assert!(place(&received, b"moov") < place(&received, b"mdat"));
    assert!(place(&stored, b"mdat") < place(&stored, b"moov"));
    assert_eq!(w.fake.videos.received(first, 2), mp4(VideoSpec::default()));
}

/// "Not found" is conclusive only when the earlier call, which sends the video, must have ended. Another worker
/// calculates the same time.
async fn the_deadline_of_a_call_includes_its_videos(w: TestWorker) {
    let bytes = mp4(VideoSpec { data: 700_000, ..VideoSpec::default() });
    let seconds = MAX_CALL_SECONDS + i64::try_from(bytes.len() / (64 * 1024)).unwrap();
    assert!(seconds > MAX_CALL_SECONDS);
    w.fake.videos.set_transfer(VideoTransfer::Inline);
    let video = w.video("loaf.mp4", bytes, None).await;

    let (began, gate) = (w.clock.now(), Gate::new());
    w.fake.script_publishes([PublishStep::Hang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    assert_eq!(w.target(target).await.call_started_at, Some(began), "no step comes before the call");
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    let deadline = began + chrono::TimeDelta::seconds(seconds);
    assert_eq!(w.target(target).await.next_attempt_at, Some(deadline));
    assert_eq!(w.fake.count("reconcile"), 1);
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 1));

    // A call with an unknown outcome.
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (began, (_, target)) = (w.clock.now(), w.publish_images(w.account.id, &[video]).await);
    w.run_jobs().await;
    assert_eq!(w.target(target).await.next_attempt_at, Some(began + chrono::TimeDelta::seconds(seconds)));
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 2));
}

async fn the_cover_is_loaded_for_the_platform(w: TestWorker) {
    let cover = w.image("cover.png", images::png(40, 30), None).await;
    for transfer in [VideoTransfer::Uploaded, VideoTransfer::Inline, VideoTransfer::Fetched] {
        let video = video_to_upload(&w).await;
        w.fake.videos.set_transfer(transfer);
        let (post, target) = w.publish_images(w.account.id, &[video]).await;
        w.set_options(target, json!({ "cover_media_id": cover, "cover_at_ms": 1_500 })).await;
        w.run_jobs().await;
        assert_eq!(w.post_status(post).await, PostStatus::Published);
        let sent = w.fake.videos.published().pop().unwrap().remove(0);
        let shown = sent.cover.unwrap();
        assert_eq!((shown.id, shown.bytes.is_empty()), (cover, transfer == VideoTransfer::Fetched), "{transfer:?}");
        assert!(shown.url.ends_with(".png") && sent.cover_at_ms == Some(1_500));
    }
}

async fn a_missing_video_or_cover_fails_the_target(w: TestWorker) {
    let fails = async |post: i64, target: i64| {
        w.run_jobs().await;
        assert_eq!(w.post_status(post).await, PostStatus::Failed);
        assert_eq!(w.target(target).await.error.unwrap().code, "media_deleted");
    };
    // The asset was deleted.
    let video = video_to_upload(&w).await;
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.write(async |tx| media::delete(tx, w.world.brand, video).await).await;
    fails(post, target).await;
    // The file is missing.
    let video = video_to_upload(&w).await;
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let asset = media::find(&mut w.conn().await, w.world.brand, video).await.unwrap().unwrap();
    w.media().storage().delete(&asset.key).await.unwrap();
    fails(post, target).await;
    // The cover was deleted.
    let video = video_to_upload(&w).await;
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    w.set_options(target, json!({ "cover_media_id": 999 })).await;
    fails(post, target).await;
    assert_eq!((part_count(&w, video), w.fake.count("publish")), (0, 0));
}

async fn a_post_that_is_deleted_during_the_transfer_is_not_published(w: TestWorker) {
    for step in [0, STEPS / 2, STEPS - 1] {
        let video = video_to_upload(&w).await;
        let gate = Gate::new();
        w.fake.videos.script((0..step).map(|_| VideoAct::Take));
        w.fake.videos.script([VideoAct::TakeAndWait(gate.clone())]);
        let (post, target) = w.publish_images(w.account.id, &[video]).await;
        let job = w.notified_job_of_target(target).await;
        let run = w.start_until(&gate, job).await;
        w.write(async |tx| publishing::delete(tx, post).await).await;
        gate.let_through();
        run.await.unwrap();
        let ended = w.target(target).await;
        assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "post_deleted"));
        assert_eq!((ended.call_started_at, w.state(job).await), (None, JobState::Done), "deleted at step {step}");
        assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (0, 0));
    }
}

/// Another brand still has the account, so its credentials are valid.
async fn an_account_that_is_disconnected_during_the_transfer_is_not_called(w: TestWorker) {
    let video = video_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.videos.script([VideoAct::Take, VideoAct::TakeAndWait(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    let job = w.notified_job_of_target(target).await;
    let run = w.start_until(&gate, job).await;
    w.write(async |tx| accounts::disconnect(tx, w.world.brand, w.account.id).await).await;
    gate.let_through();
    run.await.unwrap();
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "account_disconnected"));
    assert_eq!((ended.call_started_at, w.state(job).await, w.fake.count("publish")), (None, JobState::Done, 0));
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
}

/// The platform has not received the whole request, so it has published nothing.
async fn a_storage_that_fails_during_the_call_leaves_nothing_unknown(w: TestWorker) {
    w.fake.disable_reconcile();
    w.fake.videos.set_transfer(VideoTransfer::Inline);
    let bytes = three_parts();
    let video = w.video("loaf.mp4", bytes.clone(), None).await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::WaitAndReject(gate.clone(), unknown())]);
    let (post, target) = w.publish_images(w.account.id, &[video]).await;
    let run = w.start_until(&gate, w.notified_job_of_target(target).await).await;
    let sent = w.fake.videos.published()[0].remove(0);
    let body = sent.file.read(0..sent.size).await.unwrap();
    let asset = media::find(&mut w.conn().await, w.world.brand, video).await.unwrap().unwrap();
    let path = w.files().join("media").join(&asset.key[..2]).join(&asset.key);
    std::fs::write(&path, "cut").unwrap();
    let read: std::io::Result<Vec<bytes::Bytes>> = body.try_collect().await;
    assert!(read.is_err());
    std::fs::write(&path, &bytes).unwrap();
    gate.let_through();
    run.await.unwrap();
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.call_started_at), (TargetStatus::Publishing, None));
    assert_eq!(waiting.error.unwrap().category, Category::Media);
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 1));
}
