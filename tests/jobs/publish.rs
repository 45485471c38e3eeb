//! `publish_target` with known outcomes: published, or rejected.

use crier_domain::failure::Category;
use crier_domain::job::JobState;
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};

use crate::support::fake_platform::{PublishStep, permanent};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    a_post_is_published,
    one_of_two_targets_is_rejected,
    a_permanent_error_is_not_retried,
    a_target_s_own_text_is_published,
    a_signature_is_published_with_the_text,
    an_edited_post_finishes_when_both_targets_finish,
    a_job_notified_twice_runs_once,
);

async fn a_post_is_published(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    let id = w.notified_job();
    assert!(w.engine.run(id).await);

    let ended = w.target(target).await;
    assert_eq!(ended.status, TargetStatus::Published);
    assert_eq!(
        (ended.external_id.as_deref(), ended.url.as_deref()),
        (Some("post-1"), Some("https://fake.example/post-1"))
    );
    assert_eq!((ended.published_at, ended.attempts, ended.call_started_at), (Some(w.clock.now()), 1, None));
    assert!(ended.error.is_none() && ended.next_attempt_at.is_none());
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.state(id).await, JobState::Done);
    let attempts = w.attempts(post).await;
    assert_eq!((attempts.len(), attempts[0].number, attempts[0].outcome), (1, 1, AttemptOutcome::Published));
    assert_eq!(w.fake.posts().len(), 1);
    assert_eq!(w.fake.posts()[0].text, "Fresh bread");

    // The event, its delivery and its job were committed together, and the job was notified.
    assert_eq!(w.events().await, ["post.published"]);
    assert_eq!(
        w.event_payloads().await[0],
        serde_json::json!({ "event": "post.published", "data": {
            "post_id": post, "brand_id": w.world.brand, "social_account_id": w.account.id, "platform": "sandbox",
            "external_id": "post-1", "url": "https://fake.example/post-1",
        }})
    );
    let delivery = w.notified_job();
    assert_eq!(w.count_rows("webhook_deliveries").await, 1);
    let job = w.show(delivery).await;
    assert_eq!(
        (job.kind.as_str(), job.state, job.trace.as_deref()),
        ("deliver_webhook", JobState::Ready, Some("request-1"))
    );
}

async fn one_of_two_targets_is_rejected(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let other = w.another_account("other").await;
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    let (post, targets) = w.publish(&[w.account.id, other.id]).await;
    let ids = w.s.notifier.take();

    assert!(w.engine.run(ids[0]).await);
    assert_eq!(w.post_status(post).await, PostStatus::Publishing, "one target is pending");
    assert!(w.engine.run(ids[1]).await);
    assert_eq!(w.post_status(post).await, PostStatus::PartiallyPublished);
    assert_eq!(w.target(targets[0]).await.status, TargetStatus::Published);
    assert_eq!(w.target(targets[1]).await.status, TargetStatus::Failed);
    assert_eq!(w.events().await, ["post.published", "post.failed"]);
}

async fn a_permanent_error_is_not_retried(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::Reject(permanent())]);
    let (post, target) = w.publish_one().await;
    let id = w.notified_job();
    w.engine.run(id).await;
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!((error.category, error.code.as_str()), (Category::PlatformRejected, "platform_rejected"));
    assert_eq!(error.platform_code.as_deref(), Some("422"));
    assert!(!error.category.is_retryable() && ended.next_attempt_at.is_none());
    assert_eq!((w.post_status(post).await, w.state(id).await), (PostStatus::Failed, JobState::Done));
    assert_eq!(w.attempts(post).await[0].status_code, Some(422));
    assert_eq!(w.events().await, ["post.failed"]);

    // Publishing again clears the error.
    w.publish_again(post).await;
    w.engine.run(w.notified_job_of_target(target).await).await;
    let ended = w.target(target).await;
    assert!(ended.error.is_none() && ended.status == TargetStatus::Published && ended.attempts == 2);
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_target_s_own_text_is_published(w: TestWorker) {
    let (_, target) = w.publish_one().await;
    w.change_target(target, |own| own.content = Some("For this account only".to_owned())).await;
    w.run_jobs().await;
    assert_eq!(w.fake.posts()[0].text, "For this account only");
}

async fn a_signature_is_published_with_the_text(w: TestWorker) {
    let other = w.another_account("other").await;
    let (_, targets) = w.publish(&[w.account.id, other.id]).await;
    for (target, text) in targets.into_iter().zip([None, Some("Only here".to_owned())]) {
        w.change_target(target, |own| (own.content, own.signature) = (text, Some("— Ann".to_owned()))).await;
    }
    w.run_jobs().await;
    let mut texts: Vec<String> = w.fake.posts().iter().map(|post| post.text.clone()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["Fresh bread\n\n— Ann", "Only here\n\n— Ann"]);
}

async fn an_edited_post_finishes_when_both_targets_finish(w: TestWorker) {
    let other = w.another_account("other").await;
    w.fake.script_publishes([PublishStep::Reject(permanent()), PublishStep::Reject(permanent())]);
    let (post, targets) = w.publish(&[w.account.id, other.id]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    w.change_post(post, |p| p.content = "Better bread".to_owned()).await;
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::PartiallyPublished);
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let attempts = (w.target(targets[0]).await.attempts, w.target(targets[1]).await.attempts);
    assert_eq!(attempts, (2, 3), "published targets are unchanged");
    assert!(w.fake.posts().iter().all(|posted| posted.text == "Better bread"));
}

async fn a_job_notified_twice_runs_once(w: TestWorker) {
    w.publish_one().await;
    let id = w.notified_job();
    let runs = futures::future::join_all((0..20).map(|_| w.engine.run(id))).await;
    assert_eq!(runs.iter().filter(|ran| **ran).count(), 1);
    assert!(!w.engine.run(id).await && !w.engine.run(id + 1_000).await, "one is done, and the other does not exist");
    assert_eq!(w.fake.posts().len(), 1);
}
