//! What stops when a plan or a membership ends, or when storage is full.

use crier_domain::access::Role;
use crier_domain::event::EventName;
use crier_domain::feed::FeedType;
use crier_domain::webhook::{DeliveryStatus, Webhook};
use crier_scheduler::tasks;
use crier_store::feeds::{self, NewFeed};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{brands, events, inbox_syncs, users};
use secrecy::SecretString;

use super::webhooks::{Receiver, advance_to, attempt, emit_event, endpoint_with_delivery, replay};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    a_plan_without_webhooks_receives_nothing,
    a_removed_member_receives_nothing,
    a_sample_belongs_to_no_brand,
    a_plan_without_feeds_fetches_nothing,
    a_plan_without_inbox_syncs_nothing,
    a_full_storage_syncs_no_inbox,
    a_low_disk_fetches_and_syncs_nothing,
);

async fn set_plan(w: &TestWorker, plan: &str) {
    w.write(async |tx| users::set_plan(tx, w.world.workspace, plan).await).await;
}

async fn a_plan_without_webhooks_receives_nothing(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses([500]);
    attempt(&w).await;
    set_plan(&w, "free").await;
    // The retry of an earlier event, and a new event.
    let later = emit_event(&w).await;
    w.run_jobs().await;
    advance_to(&w, w.delivery(id).await.next_attempt_at.unwrap()).await;
    w.run_jobs().await;
    for (id, attempts) in [(id, 1), (later, 0)] {
        let delivery = w.delivery(id).await;
        assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Failed, attempts));
        assert_eq!(delivery.error.as_deref(), Some("the workspace's plan does not include webhooks"));
    }
    assert_eq!(receiver.requests().await.len(), 1);
    set_plan(&w, "pro").await;
    replay(&w, &webhook, later).await;
    attempt(&w).await;
    assert_eq!((w.delivery(later).await.status, receiver.requests().await.len()), (DeliveryStatus::Succeeded, 2));
}

/// Creates an endpoint of a user.
async fn endpoint_of(w: &TestWorker, user: i64, url: &str) -> Webhook {
    let secret = SecretString::from("whsec_of_the_tests");
    let new =
        NewWebhook { url, events: &[EventName::PostPublished], description: None, is_active: true, secret: &secret };
    w.write(async |tx| webhooks::create(tx, user, &new).await).await
}

async fn a_removed_member_receives_nothing(w: TestWorker) {
    let (owner, leaver) = (Receiver::start().await, Receiver::start().await);
    w.listen_at(&owner.url()).await;
    let user = w.user(w.world.workspace, "bob@example.com").await;
    w.member(w.world.brand, user, Role::Editor).await;
    let webhook = endpoint_of(&w, user, &leaver.url()).await;
    let id = emit_event(&w).await;
    assert_eq!(w.delivery(id).await.webhook_id, webhook.id);
    leaver.respond_with_statuses([500]);
    w.run_jobs().await;
    w.write(async |tx| brands::remove_member(tx, w.world.brand, user).await).await;
    advance_to(&w, w.delivery(id).await.next_attempt_at.unwrap()).await;
    w.run_jobs().await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Failed, 1));
    assert_eq!(delivery.error.as_deref(), Some("the endpoint's owner is no longer a member of the brand"));
    // The user requests a retry, before and after rejoining the brand.
    replay(&w, &webhook, id).await;
    w.run_jobs().await;
    assert_eq!((w.delivery(id).await.status, leaver.requests().await.len()), (DeliveryStatus::Failed, 1));
    w.member(w.world.brand, user, Role::Editor).await;
    replay(&w, &webhook, id).await;
    w.run_jobs().await;
    assert_eq!((w.delivery(id).await.status, leaver.requests().await.len()), (DeliveryStatus::Succeeded, 2));
    assert_eq!(owner.requests().await.len(), 1, "the other members' endpoints received it");
}

async fn a_sample_belongs_to_no_brand(w: TestWorker) {
    let receiver = Receiver::start().await;
    let user = w.user(w.world.workspace, "bob@example.com").await;
    let webhook = endpoint_of(&w, user, &receiver.url()).await;
    w.write(async |tx| events::emit_sample(tx, webhook.id, EventName::PostFailed, None).await).await;
    w.run_jobs().await;
    assert_eq!(receiver.requests().await.len(), 1);
}

async fn a_plan_without_feeds_fetches_nothing(w: TestWorker) {
    w.leaves_jobs();
    let new = NewFeed { name: "Blog", named: true, url: "https://8.8.8.8/feed.xml", kind: FeedType::Rss };
    let feed = w.write(async |tx| feeds::create(tx, w.world.brand, &new, None).await).await;
    w.delete_jobs().await;
    for (plan, expected) in [("free", 0), ("pro", 1)] {
        set_plan(&w, plan).await;
        let due = feeds::find_any(&mut w.conn().await, feed.id).await.unwrap().unwrap().next_fetch_at;
        advance_to(&w, due).await;
        tasks::feeds::run(&w.scheduler).await.unwrap();
        assert_eq!(w.count_rows("jobs WHERE kind = 'fetch_feed'").await, expected, "{plan}");
    }
}

async fn a_plan_without_inbox_syncs_nothing(w: TestWorker) {
    w.leaves_jobs();
    w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
    for (plan, expected) in [("free", 0), ("pro", 1)] {
        set_plan(&w, plan).await;
        let sync = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
        advance_to(&w, sync.next_sync_at.unwrap()).await;
        tasks::inbox::run(&w.scheduler).await.unwrap();
        assert_eq!(w.count_rows("jobs WHERE kind = 'sync_inbox'").await, expected, "{plan}");
        let late = inbox_syncs::oldest(&mut w.conn().await, &w.scheduler.plans).await.unwrap();
        assert_eq!(late.is_empty(), expected == 0, "an account that is not synced is not late: {plan}");
    }
}

async fn a_full_storage_syncs_no_inbox(w: TestWorker) {
    w.leaves_jobs();
    w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
    // The `pro` plan includes 20,480 MiB.
    let full = 20_480_i64 << 20;
    for (texts, expected) in [(full, 0), (full - 4_096, 1)] {
        w.set_storage_usage(w.world.workspace, 0, texts).await;
        let sync = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
        advance_to(&w, sync.next_sync_at.unwrap()).await;
        tasks::inbox::run(&w.scheduler).await.unwrap();
        assert_eq!(w.count_rows("jobs WHERE kind = 'sync_inbox'").await, expected, "{texts}");
    }
}

async fn a_low_disk_fetches_and_syncs_nothing(w: TestWorker) {
    w.leaves_jobs();
    w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
    let new = NewFeed { name: "Blog", named: true, url: "https://8.8.8.8/feed.xml", kind: FeedType::Rss };
    w.write(async |tx| feeds::create(tx, w.world.brand, &new, None).await).await;
    w.delete_jobs().await;
    w.advance(3_600);
    for (is_low, expected) in [(true, 0), (false, 2)] {
        w.media().disk().set_low(is_low);
        tasks::feeds::run(&w.scheduler).await.unwrap();
        tasks::inbox::run(&w.scheduler).await.unwrap();
        assert_eq!(w.count_rows("jobs").await, expected, "{is_low}");
    }
}
