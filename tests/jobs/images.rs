//! `publish_target` with images: each image is loaded, converted and uploaded once, before the publish call.

use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_platforms::{CallError, Image, ImageTransfer};
use crier_store::{media, post_media};
use crier_worker::jobs::RunError;

use crate::support::fake_platform::{
    Gate, PublishStep, UploadStep, auth_expired, permanent, rate_limited, reauth, transient, unknown,
};
use crate::support::images;
use crate::support::jobs::{MAX_CALL_SECONDS, TestWorker, worker_on_both};
use crate::support::store::{TestStore, lock_table};

worker_on_both!(
    images_are_uploaded_in_order_and_then_published,
    images_sent_by_url_are_not_loaded,
    images_sent_inline_are_loaded,
    a_retry_does_not_repeat_uploads,
    uploads_stored_before_a_rate_limit_are_kept,
    an_upload_lost_in_a_crash_is_repeated,
    a_token_expiring_during_uploads_is_refreshed_once,
    a_rejected_upload_fails_the_target,
    an_upload_of_unknown_outcome_is_retried,
    an_unknown_outcome_is_reconciled_before_uploading,
    missing_uploads_are_repeated_once_per_run,
    a_deleted_image_fails_the_target,
    a_missing_file_fails_the_target,
    an_unavailable_storage_is_retried,
    a_target_s_own_images_are_published,
    new_images_of_a_failed_post_are_uploaded,
    a_run_with_a_lost_lease_stores_no_upload,
    a_stop_during_an_upload_refunds_the_attempt,
    a_stop_during_a_reconcile_refunds_the_attempt,
    a_stop_after_a_lost_lease_refunds_nothing,
);

fn ids(images: &[Image]) -> Vec<i64> {
    images.iter().map(|image| image.id).collect()
}

/// Returns the platform's names of the images in a publish call.
fn names(images: &[Image]) -> Vec<&str> {
    images.iter().map(|i| i.uploaded.as_ref().and_then(|u| u.name.as_str()).unwrap_or("none")).collect()
}

async fn create_three_images(w: &TestWorker) -> [i64; 3] {
    [
        w.image("one.png", images::png(40, 30), Some("The first")).await,
        w.image("two.jpg", images::jpeg(30, 40), None).await,
        w.image("three.png", images::png(20, 20), Some("The third")).await,
    ]
}

/// Creates three images, which the platform receives as uploads.
async fn three_images_to_upload(w: &TestWorker) -> [i64; 3] {
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    create_three_images(w).await
}

async fn uploads(w: &TestWorker, target: i64) -> serde_json::Value {
    post_media::uploads(&mut w.conn().await, target).await.unwrap().into()
}

async fn images_are_uploaded_in_order_and_then_published(w: TestWorker) {
    let [one, two, three] = three_images_to_upload(&w).await;
    let (post, target) = w.publish_images(w.account.id, &[two, one, three]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let calls: Vec<_> = w.fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls, ["upload", "upload", "upload", "publish"]);
    let sent = w.fake.uploads();
    assert_eq!(ids(&sent), [two, one, three]);
    assert_eq!((sent[0].mime_type.as_str(), sent[0].filename.as_str()), ("image/jpeg", "two.jpg"));
    assert_eq!((sent[1].alt_text.as_deref(), sent[0].alt_text.as_deref()), (Some("The first"), None));
    assert_eq!((sent[1].width, sent[1].height), (40, 30));
    assert!(sent.iter().all(|image| !image.bytes.is_empty()));
    let shown = &w.fake.published_images()[0];
    assert_eq!((ids(shown), names(shown)), (vec![two, one, three], vec!["upload-1", "upload-2", "upload-3"]));
    assert!(shown.iter().all(|image| image.bytes.is_empty()), "the bytes are dropped after the upload");
    assert_eq!(uploads(&w, target).await[one.to_string()], "upload-2");
    assert_eq!(w.target(target).await.attempts, 1);
}

async fn images_sent_by_url_are_not_loaded(w: TestWorker) {
    let image = w.image("one.png", images::png(40, 30), Some("The first")).await;
    // Loading it would fail.
    std::fs::remove_dir_all(w.files().join("media")).unwrap();
    let (post, _) = w.publish_images(w.account.id, &[image]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let shown = &w.fake.published_images()[0][0];
    assert!(shown.url.starts_with("https://crier.example/media/") && shown.url.ends_with(".png"), "{}", shown.url);
    assert!(shown.bytes.is_empty() && shown.uploaded.is_none());
}

async fn images_sent_inline_are_loaded(w: TestWorker) {
    let all = create_three_images(&w).await;
    w.fake.set_image_transfer(ImageTransfer::Inline);
    w.fake.script_publishes([PublishStep::Reject(transient())]);
    let (post, _) = w.publish_images(w.account.id, &all).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("upload"), w.fake.count("publish")), (0, 2));
    for shown in w.fake.published_images() {
        assert_eq!(ids(&shown), all);
        assert!(shown.iter().all(|image| !image.bytes.is_empty()));
    }
}

async fn a_retry_does_not_repeat_uploads(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::Reject(transient()), PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("upload"), w.fake.count("publish"), w.fake.posts().len()), (3, 2, 1));
    assert_eq!(names(&w.fake.published_images()[1]), ["upload-1", "upload-2", "upload-3"]);
    assert_eq!(w.target(target).await.attempts, 3, "the third attempt reconciled the second");
}

async fn uploads_stored_before_a_rate_limit_are_kept(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    let until = w.later(3_600);
    w.fake.script_uploads([UploadStep::Accept, UploadStep::Reject(rate_limited(until))]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.next_attempt_at), (TargetStatus::Publishing, Some(until)));
    assert_eq!(waiting.error.unwrap().category, Category::RateLimited);
    assert_eq!(waiting.call_started_at, None, "no call has begun");
    assert_eq!(uploads(&w, target).await, serde_json::json!({ all[0].to_string(): "upload-1" }));
    assert_eq!(w.attempts(post).await[0].outcome, AttemptOutcome::Retried);

    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(ids(&w.fake.uploads()), all, "each once");
    let first = w.fake.published_images()[0][0].uploaded.clone().unwrap();
    assert!(
        !first.uploaded_in_this_run && w.fake.published_images()[0][2].uploaded.clone().unwrap().uploaded_in_this_run
    );
}

async fn an_upload_lost_in_a_crash_is_repeated(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.script_uploads([UploadStep::Accept, UploadStep::AcceptAndHang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(ids(&w.fake.uploads()), [all[0], all[1], all[1], all[2]], "stored uploads are not repeated");
    assert_eq!((w.fake.count("reconcile"), w.fake.posts().len()), (0, 1), "no call has an unknown outcome");
}

async fn a_token_expiring_during_uploads_is_refreshed_once(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    w.fake.script_uploads([UploadStep::Accept, UploadStep::Reject(auth_expired())]);
    let (post, _) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("refresh"), ids(&w.fake.uploads())), (1, all.to_vec()));
    assert_eq!(w.attempts(post).await.len(), 1);

    // A second expiry in one run counts as rejected credentials.
    w.fake.script_uploads([UploadStep::Reject(auth_expired()), UploadStep::Reject(auth_expired())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.target(target).await.error.unwrap().code, "account_expired");
    assert_eq!(w.account_status().await.as_str(), "expired");
}

async fn a_rejected_upload_fails_the_target(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let all = three_images_to_upload(&w).await;
    for (error, category) in [(permanent(), Category::PlatformRejected), (reauth(), Category::AuthExpired)] {
        w.fake.script_uploads([UploadStep::Reject(error)]);
        let (post, target) = w.publish_images(w.account.id, &all).await;
        w.engine.run(w.notified_job_of_target(target).await).await;
        assert_eq!(w.post_status(post).await, PostStatus::Failed);
        assert_eq!(w.target(target).await.error.unwrap().category, category);
        assert_eq!(w.attempts(post).await[0].outcome, AttemptOutcome::Failed);
    }
    assert_eq!((w.fake.count("publish"), w.events().await.len()), (0, 2));
}

async fn an_upload_of_unknown_outcome_is_retried(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    w.fake.disable_reconcile();
    w.fake.script_uploads([UploadStep::Reject(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.error.unwrap().category), (TargetStatus::Publishing, Category::Network));
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn an_unknown_outcome_is_reconciled_before_uploading(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    w.sql(format!("UPDATE post_targets SET uploads = NULL WHERE id = {target}")).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("upload"), w.fake.posts().len()), (3, 1));
}

async fn missing_uploads_are_repeated_once_per_run(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    let uploads_missing = || PublishStep::Reject(CallError::UploadsMissing(transient().failure().clone()));
    w.fake.script_publishes([PublishStep::Reject(transient()), uploads_missing()]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(ids(&w.fake.uploads()), [all, all].concat());
    assert_eq!(names(&w.fake.published_images()[2]), ["upload-4", "upload-5", "upload-6"]);
    assert_eq!(uploads(&w, target).await[all[2].to_string()], "upload-6");
    assert_eq!(w.target(target).await.attempts, 2);

    // A platform that keeps reporting this is not retried forever.
    w.fake.script_publishes([uploads_missing(), uploads_missing()]);
    let (_, target) = w.publish_images(w.account.id, &all).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.call_started_at), (TargetStatus::Publishing, None));
    assert!(waiting.next_attempt_at.is_some());
}

async fn delete_asset(w: &TestWorker, id: i64) {
    w.write(async |tx| media::delete(tx, w.world.brand, id).await).await;
}

async fn a_deleted_image_fails_the_target(w: TestWorker) {
    for transfer in [ImageTransfer::Uploaded, ImageTransfer::Inline, ImageTransfer::Fetched] {
        let all = create_three_images(&w).await;
        w.fake.set_image_transfer(transfer);
        let (post, target) = w.publish_images(w.account.id, &all).await;
        delete_asset(&w, all[1]).await;
        w.run_jobs().await;
        assert_eq!(w.post_status(post).await, PostStatus::Failed);
        let error = w.target(target).await.error.unwrap();
        assert_eq!((error.category, error.code.as_str()), (Category::InvalidContent, "media_deleted"));
        assert!(error.message.contains(&format!("Media asset {} ", all[1])), "{}", error.message);
    }
    assert!(w.fake.calls().is_empty());
}

async fn a_missing_file_fails_the_target(w: TestWorker) {
    for transfer in [ImageTransfer::Uploaded, ImageTransfer::Inline] {
        let image = w.image("one.png", images::png(40, 30), None).await;
        w.fake.set_image_transfer(transfer);
        let (post, target) = w.publish_images(w.account.id, &[image]).await;
        let asset = media::find(&mut w.conn().await, w.world.brand, image).await.unwrap().unwrap();
        w.media().storage().delete(&asset.key).await.unwrap();
        w.run_jobs().await;
        assert_eq!(w.post_status(post).await, PostStatus::Failed);
        assert_eq!(w.target(target).await.error.unwrap().code, "media_deleted");
        w.media().storage().put(&asset.key, images::png(40, 30).into()).await.unwrap();
    }
    assert!(w.fake.calls().is_empty());
}

async fn an_unavailable_storage_is_retried(w: TestWorker) {
    let image = w.image("one.png", images::png(40, 30), None).await;
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    let (post, target) = w.publish_images(w.account.id, &[image]).await;
    let (files, aside) = (w.files().join("media"), w.files().join("aside"));
    std::fs::rename(&files, &aside).unwrap();
    // A file in place of the directory causes an error other than "not found".
    std::fs::write(&files, "no directory").unwrap();
    w.run_jobs().await;
    let waiting = w.target(target).await;
    let error = waiting.error.unwrap();
    assert_eq!(
        (waiting.status, error.category, error.category.is_retryable()),
        (TargetStatus::Publishing, Category::Media, true)
    );
    assert!(!error.message.contains("directory"), "the cause is not exposed: {}", error.message);
    std::fs::remove_file(&files).unwrap();
    std::fs::rename(&aside, &files).unwrap();
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_target_s_own_images_are_published(w: TestWorker) {
    let [one, two, _] = create_three_images(&w).await;
    let (_, target) = w.publish_images(w.account.id, &[one]).await;
    w.change_target(target, |own| own.media = Some(vec![two])).await;
    w.run_jobs().await;
    assert_eq!(ids(&w.fake.published_images()[0]), [two]);
}

async fn new_images_of_a_failed_post_are_uploaded(w: TestWorker) {
    let [one, two, three] = three_images_to_upload(&w).await;
    w.fake.script_publishes([PublishStep::Reject(permanent())]);
    let (post, target) = w.publish_images(w.account.id, &[one, two]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    w.change_post(post, |p| p.media = vec![three, one]).await;
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(names(&w.fake.published_images()[1]), ["upload-3", "upload-1"]);
    assert_eq!(w.state(w.job_of(target).await.id).await, JobState::Done);
}

async fn a_run_with_a_lost_lease_stores_no_upload(w: TestWorker) {
    w.leaves_jobs();
    let all = three_images_to_upload(&w).await;
    let (_, target) = w.publish_images(w.account.id, &all).await;
    let id = w.notified_job_of_target(target).await;
    let handler = w.handler(JobKind::PublishTarget);
    let job = w.claim(&[id], "frozen").await.remove(0);
    let run = crier_worker::engine::Run::new(job);
    let gate = Gate::new();
    w.fake.script_uploads([UploadStep::Wait(gate.clone())]);
    // Another worker claims the job before the first upload is stored.
    let meanwhile = async {
        gate.wait_until_entered().await;
        w.take_over(id).await;
        gate.let_through();
    };
    let (ended, ()) = tokio::join!(handler.run(&run), meanwhile);
    assert!(matches!(ended, Err(RunError::Ended(_))), "its lease is lost");
    assert_eq!((w.fake.count("upload"), w.fake.count("publish")), (1, 0));
    assert_eq!(uploads(&w, target).await, serde_json::json!({}));
}

/// Runs the target's job, and stops its worker after the run has reached the gate and `meanwhile` has finished.
async fn stop_at(w: &TestWorker, target: i64, gate: &Gate, meanwhile: impl AsyncFnOnce()) {
    let stopping = w.engine_for(w.store.clone(), JobKind::ALL);
    let (engine, id) = (stopping.clone(), w.notified_job_of_target(target).await);
    let running = tokio::spawn(async move { engine.run(id).await });
    gate.wait_until_entered().await;
    meanwhile().await;
    stopping.drain();
    stopping.abort();
    running.await.unwrap();
}

async fn a_stop_during_an_upload_refunds_the_attempt(w: TestWorker) {
    let all = three_images_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.script_uploads([UploadStep::Accept, UploadStep::AcceptAndHang(gate.clone())]);
    let (post, target) = w.publish_images(w.account.id, &all).await;
    stop_at(&w, target, &gate, async || {}).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt, job.crashes, job.lease_until), (JobState::Ready, 0, 0, None));
    assert_eq!(w.target(target).await.attempts, 0);
    w.run_jobs().await;
    assert_eq!((w.post_status(post).await, w.target(target).await.attempts), (PostStatus::Published, 1));
    assert_eq!(ids(&w.fake.uploads()), [all[0], all[1], all[1], all[2]]);
    assert_eq!((w.attempts(post).await[0].number, w.fake.count("reconcile")), (1, 0));
}

/// The earlier call stays open, whatever the outcome of the reconciliation.
async fn a_stop_during_a_reconcile_refunds_the_attempt(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    w.advance(MAX_CALL_SECONDS);
    w.scheduler.tick().await.unwrap();
    w.fake.hold_reconcile(gate.clone());
    stop_at(&w, target, &gate, async || {}).await;
    assert_eq!((w.job_of(target).await.attempt, w.target(target).await.attempts), (1, 1));
    w.run_jobs().await;
    assert_eq!((w.post_status(post).await, w.target(target).await.attempts), (PostStatus::Published, 2));
    assert_eq!((w.fake.count("reconcile"), w.fake.posts().len()), (2, 1));
}

async fn a_stop_after_a_lost_lease_refunds_nothing(w: TestWorker) {
    w.leaves_jobs();
    let all = three_images_to_upload(&w).await;
    let gate = Gate::new();
    w.fake.script_uploads([UploadStep::AcceptAndHang(gate.clone())]);
    let (_, target) = w.publish_images(w.account.id, &all).await;
    stop_at(&w, target, &gate, async || w.take_over(w.job_of(target).await.id).await).await;
    assert_eq!((w.job_of(target).await.state, w.target(target).await.attempts), (JobState::Running, 1));
}

/// The grace period ends while the run still waits for the database.
#[tokio::test]
async fn a_stop_while_a_run_is_prepared_undoes_it() {
    // On SQLite the claim itself would wait.
    let w = TestWorker::over(TestStore::postgres().await).await;
    let (_, target) = w.publish_one().await;
    let mut tx = w.begin().await.unwrap();
    lock_table(&mut tx, "posts").await;
    let stopping = w.engine_for(w.store.clone(), JobKind::ALL);
    let (engine, id) = (stopping.clone(), w.notified_job_of_target(target).await);
    let running = tokio::spawn(async move { engine.run(id).await });
    w.poll_until(async || w.job_of(target).await.state == JobState::Running).await;
    stopping.drain();
    stopping.abort();
    // The transaction may be shared with other runs, so it is finished. Then the aborted run undoes its part.
    tx.rollback().await.unwrap();
    running.await.unwrap();
    let found = w.target(target).await;
    assert_eq!((w.job_of(target).await.state, found.attempts, found.call_started_at), (JobState::Ready, 0, None));
}
