//! `publish_target` with threads: the parts are published one after the other, or all in one call.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::JobState;
use crier_domain::post::{PostStatus, TargetStatus};
use crier_platforms::{ImageTransfer, Marker, Published, ReconcileResult};
use crier_store::targets;

use crate::support::fake_platform::{Gate, PublishStep, permanent, rate_limited, transient, unknown};
use crate::support::images;
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    the_parts_of_a_thread_reply_to_each_other,
    a_thread_that_fails_goes_on_at_the_part_that_failed,
    a_rate_limit_in_the_middle_waits_without_using_up_the_attempts,
    each_part_has_its_own_attempts,
    a_part_is_repeated_while_the_platform_does_not_show_its_parent,
    a_thread_whose_parent_was_deleted_stops_there,
    a_part_whose_response_was_lost_is_found,
    a_part_that_is_found_by_its_text_is_not_an_earlier_part,
    a_part_with_an_unknown_outcome_keeps_its_marker,
    a_kill_between_parts_publishes_each_once,
    all_parts_are_published_in_one_call,
    a_thread_in_one_call_is_found_after_a_lost_response,
    an_override_without_parts_publishes_only_the_post,
    each_part_uploads_its_own_images,
    a_post_deleted_in_the_middle_stops,
    a_thread_whose_remaining_parts_were_removed_is_published,
    a_removed_part_whose_call_is_open_has_an_unknown_outcome,
);

const PARTS: [&str; 2] = ["second part", "third part"];

/// Returns the texts on the platform, each with the index of the post that it replies to.
fn chain(w: &TestWorker) -> Vec<(String, Option<usize>)> {
    let posts = w.fake.posts();
    let place = |id: &String| posts.iter().position(|posted| posted.id == *id).expect("a parent");
    posts.iter().map(|posted| (posted.text.clone(), posted.parent.as_ref().map(place))).collect()
}

fn full_chain() -> Vec<(String, Option<usize>)> {
    vec![("Fresh bread".to_owned(), None), (PARTS[0].to_owned(), Some(0)), (PARTS[1].to_owned(), Some(1))]
}

async fn the_parts_of_a_thread_reply_to_each_other(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_thread(&PARTS).await;
    w.run_jobs().await;
    assert_eq!(chain(&w), full_chain());
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Published, PostStatus::Published));
    assert_eq!((ended.external_id.as_deref(), ended.attempts), (Some("post-1"), 3));
    let ids: Vec<_> = ended.published_parts.iter().map(|part| part.external_id.as_str()).collect();
    assert_eq!(ids, ["post-1", "post-2", "post-3"]);
    let markers: std::collections::BTreeSet<_> = w.fake.posts().into_iter().map(|posted| posted.marker).collect();
    assert_eq!(markers.len(), 3, "each part has its own marker");
    assert_eq!(w.events().await, ["post.published"]);
    assert_eq!(w.event_data("post.published").await[0]["external_id"], "post-1");
}

async fn a_thread_that_fails_goes_on_at_the_part_that_failed(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    let (post, target) = w.publish_thread(&PARTS).await;
    w.run_jobs().await;
    let failed = w.target(target).await;
    assert_eq!((failed.status, failed.published_parts.len()), (TargetStatus::Failed, 1));
    assert_eq!(failed.external_id.as_deref(), Some("post-1"), "the first part is published");
    assert_eq!(w.post_status(post).await, PostStatus::Failed);

    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!(chain(&w), full_chain());
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_rate_limit_in_the_middle_waits_without_using_up_the_attempts(w: TestWorker) {
    let until = w.later(77);
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(rate_limited(until))]);
    let (_, target) = w.publish_thread(&PARTS).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.next_attempt_at), (TargetStatus::Publishing, Some(until)));
    w.run_until_idle().await;
    assert_eq!(chain(&w), full_chain());
}

async fn each_part_has_its_own_attempts(w: TestWorker) {
    let failing = || (0..7).map(|_| PublishStep::Reject(transient())).chain([PublishStep::Publish]);
    w.fake.script_publishes(failing().chain(failing()));
    let (post, _) = w.publish_thread(&PARTS).await;
    w.run_until_idle().await;
    assert_eq!((chain(&w), w.post_status(post).await), (full_chain(), PostStatus::Published));
}

async fn a_part_is_repeated_while_the_platform_does_not_show_its_parent(w: TestWorker) {
    let (_, target) = w.publish_thread(&PARTS).await;
    let id = w.notified_job();
    assert!(w.engine.run(id).await);
    let first = w.fake.posts();
    w.fake.delete_post(&first[0].id);
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.published_parts.len()), (TargetStatus::Publishing, 1));
    assert!(waiting.next_attempt_at.is_some());
    w.fake.restore_post(first[0].clone());
    w.run_until_idle().await;
    assert_eq!(chain(&w), full_chain());
}

async fn a_thread_whose_parent_was_deleted_stops_there(w: TestWorker) {
    let (post, target) = w.publish_thread(&PARTS).await;
    w.engine.run(w.notified_job()).await;
    w.fake.delete_post("post-1");
    w.run_until_idle().await;
    let failed = w.target(target).await;
    assert_eq!((failed.status, failed.published_parts.len()), (TargetStatus::Failed, 1));
    assert_eq!(failed.error.unwrap().code, "parent_missing");
    assert!(w.clock.now() - failed.published_parts[0].published_at < TimeDelta::minutes(10));
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Failed, 0));
}

async fn a_part_whose_response_was_lost_is_found(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let (_, target) = w.publish_thread(&PARTS).await;
    w.run_until_idle().await;
    assert_eq!(chain(&w), full_chain());
    assert_eq!(w.target(target).await.published_parts.len(), 3);
}

async fn a_part_that_is_found_by_its_text_is_not_an_earlier_part(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let found = ["post-1", "post-2"].map(|id| Published::new(id, None));
    w.fake.script_reconciles([Ok(ReconcileResult::Matches(found.to_vec()))]);
    let (_, target) = w.publish_thread(&["Fresh bread", "third part"]).await;
    w.run_until_idle().await;
    let parts = w.target(target).await.published_parts;
    assert_eq!(parts[1].external_id, "post-2");
    assert_eq!(w.fake.posts().len(), 3);
}

async fn a_part_with_an_unknown_outcome_keeps_its_marker(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(unknown())]);
    w.fake.script_reconciles([Ok(ReconcileResult::Unsupported)]);
    let (post, target) = w.publish_thread(&PARTS).await;
    w.run_until_idle().await;
    let failed = w.target(target).await;
    assert!(failed.may_be_published() && failed.published_parts.len() == 1, "{failed:?}");
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!(chain(&w), full_chain());
    let calls = w.fake.calls().into_iter().filter(|call| call.what == "publish");
    let markers: Vec<_> = calls.map(|call| call.marker).collect();
    assert_eq!((markers.len(), &markers[1]), (4, &markers[2]), "a key prevents a duplicate");
}

async fn a_kill_between_parts_publishes_each_once(w: TestWorker) {
    for killed_at in 0..3 {
        let gate = Gate::new();
        let before = w.fake.posts().len();
        w.fake.script_publishes((0..killed_at).map(|_| PublishStep::Publish));
        w.fake.script_publishes([PublishStep::AcceptAndHang(gate.clone())]);
        let (post, target) = w.publish_thread(&PARTS).await;
        for _ in 0..killed_at {
            let job = w.job_of(target).await.id;
            w.scheduler.tick().await.unwrap();
            w.engine.run(job).await;
        }
        w.scheduler.tick().await.unwrap();
        w.s.notifier.take();
        w.kill_at(&gate, w.job_of(target).await.id).await;
        w.run_until_idle().await;
        assert_eq!(w.post_status(post).await, PostStatus::Published, "killed at part {killed_at}");
        let texts: Vec<_> = w.fake.posts()[before..].iter().map(|posted| posted.text.clone()).collect();
        assert_eq!(texts, ["Fresh bread", PARTS[0], PARTS[1]], "killed at part {killed_at}");
    }
}

async fn all_parts_are_published_in_one_call(w: TestWorker) {
    w.fake.publish_whole_threads();
    w.fake.script_publishes([PublishStep::Reject(transient())]);
    let (post, target) = w.publish_thread(&PARTS).await;
    w.run_until_idle().await;
    assert_eq!((chain(&w), w.post_status(post).await), (full_chain(), PostStatus::Published));
    let ended = w.target(target).await;
    assert_eq!((ended.published_parts.len(), ended.attempts), (3, 2));
    assert_eq!((w.fake.count("publish"), w.job_of(target).await.state), (2, JobState::Done));
}

async fn a_thread_in_one_call_is_found_after_a_lost_response(w: TestWorker) {
    w.fake.publish_whole_threads();
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (_, target) = w.publish_thread(&PARTS).await;
    w.run_until_idle().await;
    assert_eq!(chain(&w), full_chain());
    let ids: Vec<_> = w.target(target).await.published_parts.into_iter().map(|part| part.external_id).collect();
    assert_eq!(ids, ["post-1", "post-2", "post-3"]);
}

async fn an_override_without_parts_publishes_only_the_post(w: TestWorker) {
    let (post, target) = w.publish_thread(&PARTS).await;
    w.change_target(target, |own| own.thread = Some(Vec::new())).await;
    w.run_jobs().await;
    assert_eq!((w.fake.posts().len(), w.post_status(post).await), (1, PostStatus::Published));
    assert!(w.target(target).await.published_parts.is_empty());
}

async fn each_part_uploads_its_own_images(w: TestWorker) {
    w.fake.set_image_transfer(ImageTransfer::Uploaded);
    let image = w.image("one.png", images::png(40, 40), None).await;
    let (post, _) = w.publish_images(w.account.id, &[image]).await;
    let part = crier_domain::post::ThreadPart { content: String::new(), media: vec![image] };
    w.change_post(post, |p| p.thread = vec![part]).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let names = w.fake.published_images().into_iter().map(|images| images[0].uploaded.clone().unwrap().name);
    assert_eq!(names.collect::<Vec<_>>(), ["upload-1", "upload-2"]);
}

async fn a_post_deleted_in_the_middle_stops(w: TestWorker) {
    let (post, target) = w.publish_thread(&PARTS).await;
    w.engine.run(w.notified_job()).await;
    w.write(async |tx| crier_jobs::publishing::delete(tx, post).await).await;
    w.run_until_idle().await;
    assert_eq!(w.fake.posts().len(), 1);
    assert_eq!(w.target(target).await.published_parts.len(), 1);
}

async fn a_thread_whose_remaining_parts_were_removed_is_published(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    let (post, target) = w.publish_thread(&PARTS).await;
    w.run_jobs().await;
    w.change_post(post, |p| p.thread = Vec::new()).await;
    w.publish_again(post).await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Published, PostStatus::Published));
    assert_eq!((ended.external_id.as_deref(), ended.error), (Some("post-1"), None));
    assert_eq!((w.fake.posts().len(), ended.published_parts.len()), (1, 1));
}

async fn a_removed_part_whose_call_is_open_has_an_unknown_outcome(w: TestWorker) {
    let (post, target) = w.publish_thread(&PARTS).await;
    w.engine.run(w.notified_job()).await;
    w.write(async |tx| targets::mark_call(tx, target, &Marker::new()).await).await;
    w.change_post(post, |p| p.thread = Vec::new()).await;
    w.run_jobs().await;
    let failed = w.target(target).await;
    assert_eq!((failed.status, failed.published_parts.len()), (TargetStatus::Failed, 1));
    assert_eq!(failed.error.unwrap().category, Category::OutcomeUnknown);
    // The person has checked the platform.
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::Published, 1));
}
