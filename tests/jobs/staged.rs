//! Platforms that publish in steps: containers are created before the publish call (Instagram, with its real
//! connector), or a post is accepted and published later. If a worker dies in between, the post is still published once,
//! and existing containers are reused.

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Platform;
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_platforms::{AcceptedPost, CallError, Marker, ReconcileResult};
use crier_store::accounts::NewAccount;
use secrecy::SecretString;
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use crate::support::containers::{ACCOUNT, ContainerServer, INSTAGRAM};
use crate::support::facebook::error;
use crate::support::fake_platform::{PublishStep, permanent, unknown};
use crate::support::images;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::{TestStore, new_account, on_both};

on_both!(
    a_carousel_is_published_from_containers,
    a_wait_for_a_container_uses_no_attempt,
    a_kill_at_any_call_publishes_once,
    a_lost_response_to_any_call_publishes_once,
);

worker_on_both!(
    an_accepted_post_is_polled_until_it_is_published,
    an_accepted_post_that_fails_is_failed,
    an_accepted_post_that_may_be_retried_is_published_again,
    a_platform_that_reports_no_result_leaves_the_outcome_unknown,
    a_crash_before_the_acceptance_is_stored_leaves_the_outcome_unknown,
);

/// The number of calls for a carousel of two images: the quota, the two images, the container, its status, the publish
/// call, and the post's URL.
const CALLS: usize = 7;

struct Started {
    w: TestWorker,
    server: ContainerServer,
    account: i64,
    images: [i64; 2],
    _mock: MockServer,
}

async fn start(s: TestStore) -> Started {
    let (server, mock) = ContainerServer::start(INSTAGRAM, "2099-01-01T00:00:00+0000").await;
    let w = TestWorker::with_base_url(s, Platform::Instagram, &mock.uri()).await;
    let secrets = json!({ "access_token": "token", "client_id": "id", "client_secret": "secret" }).to_string();
    let new = NewAccount {
        platform: Platform::Instagram,
        external_id: ACCOUNT.to_owned(),
        secrets: SecretString::from(secrets),
        ..new_account(ACCOUNT, "")
    };
    let account = w.store_account(w.world, &new).await.id;
    let images = [
        w.image("one.png", images::png(40, 40), Some("The first")).await,
        w.image("two.jpg", images::jpeg(40, 40), None).await,
    ];
    Started { w, server, account, images, _mock: mock }
}

async fn a_carousel_is_published_from_containers(s: TestStore) {
    let Started { w, server, account, images, _mock } = start(s).await;
    let (post, target) = w.publish_images(account, &images).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let target = w.target(target).await;
    assert_eq!((target.external_id.as_deref(), target.attempts), (Some("800"), 1));
    assert_eq!(target.url.as_deref(), Some("https://www.example/p/800/"));
    let requests = server.requests();
    assert_eq!(requests.len(), CALLS, "{requests:?}");
    let made = server.made();
    let url = made[0]["image_url"].as_str().unwrap();
    assert!(url.starts_with("https://crier.example/media/fetch/"), "{url}");
    assert_eq!((&made[0]["alt_text"], &made[1]["alt_text"]), (&json!("The first"), &json!(null)));
}

async fn a_wait_for_a_container_uses_no_attempt(s: TestStore) {
    let Started { w, server, account, images, _mock } = start(s).await;
    server.set_polls(3);
    let (post, target) = w.publish_images(account, &images).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 0));
    assert_eq!((waiting.next_attempt_at, waiting.call_started_at), (Some(w.later(2)), None));
    assert!(waiting.error.unwrap().message.contains("is processing this post"));
    assert_eq!(w.job_of(target).await.attempt, 0);
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let target = w.target(target).await;
    assert_eq!((target.attempts, target.error), (1, None));
    assert_eq!((server.made().len(), w.attempts(post).await.len()), (3, 1));
}

async fn a_kill_at_any_call_publishes_once(s: TestStore) {
    let Started { w, server, account, images, _mock } = start(s).await;
    for call in 0..CALLS {
        let (post, target) = w.publish_images(account, &images).await;
        let made = server.made().len();
        server.hang_at(call);
        let killed = w.killable_worker().await;
        killed.start(w.notified_job_of_target(target).await);
        server.hangs.wait_for(1).await;
        killed.kill().await;
        w.run_until_idle().await;
        assert_eq!(w.post_status(post).await, PostStatus::Published, "killed at call {call}");
        assert_eq!(server.published().len(), call + 1, "killed at call {call}");
        let more = server.made().len() - made;
        let repeated = usize::from((1..=3).contains(&call));
        assert_eq!(more, 3 + repeated, "only what the killed worker could not store is created again: call {call}");
        assert_eq!(server.count("POST media_publish"), call + 1, "the publish call is never repeated");
    }
}

async fn a_lost_response_to_any_call_publishes_once(s: TestStore) {
    let Started { w, server, account, images, _mock } = start(s).await;
    for edge in ["content_publishing_limit", "media", "{}", "media_publish"] {
        for response in [ResponseTemplate::new(502), error(500, 2, None, "An unexpected error")] {
            let before = server.published().len();
            let (post, _) = w.publish_images(account, &images).await;
            server.script(edge, response);
            w.run_until_idle().await;
            assert_eq!(w.post_status(post).await, PostStatus::Published, "{edge}");
            assert_eq!(server.published().len(), before + 1, "{edge}");
        }
    }
}

fn accepted(name: &str) -> CallError {
    let failure = Failure::of(Category::PlatformError, "It is published later.");
    let marker = Marker::from_iter([("key".to_owned(), json!(name))]);
    CallError::Accepted { post: Box::new(AcceptedPost { marker, pause: TimeDelta::seconds(3) }), failure }
}

fn pending() -> Result<ReconcileResult, CallError> {
    Ok(ReconcileResult::Pending(TimeDelta::seconds(60)))
}

async fn an_accepted_post_is_polled_until_it_is_published(w: TestWorker) {
    // The fake platform finds the post by the marker that came with the acceptance.
    w.fake.script_publishes([PublishStep::AcceptAnd(accepted("it"))]);
    w.fake.script_reconciles([pending(), pending(), Err(unknown())]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!(
        (waiting.status, waiting.attempts, waiting.next_attempt_at),
        (TargetStatus::Publishing, 0, Some(w.later(3)))
    );
    assert_eq!(waiting.marker.unwrap()["key"], "it");
    assert!(waiting.call_started_at.is_some(), "the call is open");
    w.fake.script_reconciles([Ok(ReconcileResult::Found(crier_platforms::Published::new("9", None)))]);
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile")), (1, 4));
    assert_eq!(w.attempts(post).await.len(), 2, "a failed check counts as an attempt, a wait does not");
}

async fn an_accepted_post_that_fails_is_failed(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(accepted("it"))]);
    w.fake.script_reconciles([pending(), Ok(ReconcileResult::Rejected(permanent()))]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    let target = w.target(target).await;
    assert_eq!(target.error.unwrap().category, Category::PlatformRejected);
    assert_eq!((target.call_started_at, w.fake.count("publish")), (None, 1));
    assert_eq!(w.attempts(post).await[0].outcome, AttemptOutcome::Failed);
}

async fn an_accepted_post_that_may_be_retried_is_published_again(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(accepted("it"))]);
    let retryable = CallError::Transient(Failure::of(Category::Media, "An image was not available."));
    w.fake.script_reconciles([Ok(ReconcileResult::Rejected(retryable))]);
    let (post, _) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (2, 1));
}

async fn a_platform_that_reports_no_result_leaves_the_outcome_unknown(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(accepted("it"))]);
    let an_hour = || Ok(ReconcileResult::Pending(TimeDelta::hours(1)));
    w.fake.script_reconciles(std::iter::repeat_with(an_hour).take(40));
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    let target = w.target(target).await;
    assert_eq!(target.error.unwrap().category, Category::OutcomeUnknown);
    assert!(target.call_started_at.is_some(), "a later run reconciles again");
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile")), (1, 25));
}

async fn a_crash_before_the_acceptance_is_stored_leaves_the_outcome_unknown(w: TestWorker) {
    w.fake.script_reconciles([Ok(ReconcileResult::Unsupported)]);
    let gate = crate::support::fake_platform::Gate::new();
    w.fake.script_publishes([PublishStep::AcceptAndHang(gate.clone())]);
    let (post, target) = w.publish_one().await;
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.target(target).await.error.unwrap().category, Category::OutcomeUnknown);
    assert_eq!(w.fake.count("publish"), 1);
}
