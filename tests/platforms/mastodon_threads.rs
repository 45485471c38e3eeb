//! Threads, first comments and unpublishing on Mastodon.

use std::sync::Arc;

use crier_domain::failure::Category;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::mastodon::{error, seed, start};
use super::support::{comment_on, image, part_of, post, publish, unpublish_post};
use crate::support::mastodon::RunningMastodon;

const STATUSES: &str = "/api/v1/statuses";

struct Toots {
    mastodon: RunningMastodon,
    connector: Arc<dyn Connector>,
    account: ConnectorAccount,
}

/// Starts a server with the status 1000, which has this visibility.
async fn with_root(visibility: &'static str) -> Toots {
    let (mastodon, connector, account) = start().await;
    mastodon.fake.set_default_visibility(visibility);
    let t = Toots { mastodon, connector, account };
    t.publish(&t.root()).await.unwrap();
    t
}

impl Toots {
    fn root(&self) -> OutgoingPost {
        post(self.connector.as_ref(), "One")
    }

    /// A part of the thread 1000.
    fn part(&self, number: i64, parent: &str) -> OutgoingPost {
        let part = part_of(self.connector.as_ref(), "Next", "1000", parent);
        OutgoingPost { marker: self.connector.marker(seed(100 + number)), ..part }
    }

    /// A comment on the status 1000.
    fn comment(&self) -> OutgoingPost {
        let comment = comment_on(self.connector.as_ref(), "Next", "1000");
        OutgoingPost { marker: self.connector.marker(seed(200)), ..comment }
    }

    async fn publish(&self, outgoing: &OutgoingPost) -> Result<Published, CallError> {
        publish(self.connector.as_ref(), &self.account, &mut outgoing.clone()).await
    }

    async fn publish_expecting_error(&self, outgoing: &OutgoingPost) -> CallError {
        let before = self.count();
        let error = self.publish(outgoing).await.unwrap_err();
        assert_eq!(self.count(), before);
        error
    }

    async fn reconcile(&self, outgoing: &OutgoingPost) -> ReconcileResult {
        self.connector.reconcile(&self.account, outgoing).await.unwrap()
    }

    async fn unpublish(&self, id: &str) -> Result<(), CallError> {
        self.connector.unpublish(&self.account, &unpublish_post(id)).await
    }

    fn count(&self) -> usize {
        self.mastodon.fake.toots().len()
    }

    /// Returns a field of the last status as it was sent.
    fn last(&self, field: &str) -> Value {
        self.mastodon.fake.toots().last().unwrap().body[field].clone()
    }
}

fn with_option(mut outgoing: OutgoingPost, name: &str, value: &str) -> OutgoingPost {
    outgoing.options.insert(name.to_owned(), json!(value));
    outgoing
}

#[tokio::test]
async fn each_part_replies_to_the_part_before() {
    let t = with_root("public").await;
    assert!(!t.connector.publishes_whole_threads());
    for (number, parent) in [(1, "1000"), (2, "1001")] {
        let part = with_option(t.part(number, parent), "spoiler_text", "Food");
        let part = with_option(part, "language", "de");
        assert_eq!(t.publish(&part).await.unwrap().external_id, format!("{}", 1000 + number));
        assert_eq!(t.last("in_reply_to_id"), parent);
        assert_eq!((t.last("spoiler_text"), t.last("language")), (json!("Food"), json!("de")));
    }
    assert_eq!(t.count(), 3);
}

#[tokio::test]
async fn later_parts_are_unlisted_if_the_post_is_public() {
    for (option, default, expected) in [
        (Some("public"), "public", "unlisted"),
        (Some("unlisted"), "public", "unlisted"),
        (Some("private"), "public", "private"),
        (Some("public"), "private", "unlisted"),
        (None, "public", "unlisted"),
        (None, "unlisted", "unlisted"),
        (None, "private", "private"),
        (None, "direct", "direct"),
    ] {
        let t = with_root(default).await;
        let part = t.part(1, "1000");
        let part = option.map_or(part.clone(), |option| with_option(part, "visibility", option));
        t.publish(&part).await.unwrap();
        assert_eq!(t.last("visibility"), expected, "{option:?} {default}");
    }
}

#[tokio::test]
async fn a_first_comment_is_as_visible_as_its_post() {
    for default in ["public", "unlisted", "private"] {
        let t = with_root(default).await;
        let comment = t.comment();
        // The user changes the default after the post.
        t.mastodon.fake.set_default_visibility("public");
        t.publish(&comment).await.unwrap();
        assert_eq!((t.last("visibility"), t.last("in_reply_to_id")), (json!(default), json!("1000")));
    }
    let t = with_root("public").await;
    t.publish(&with_option(t.comment(), "visibility", "private")).await.unwrap();
    assert_eq!(t.last("visibility"), "private");
}

#[tokio::test]
async fn a_deleted_parent_is_recognized() {
    let t = with_root("public").await;
    t.mastodon.fake.delete_as_user("1000");
    for outgoing in [t.part(1, "1000"), t.comment()] {
        for outgoing in [outgoing.clone(), with_option(outgoing, "visibility", "private")] {
            let error = t.publish_expecting_error(&outgoing).await;
            assert!(matches!(&error, CallError::ParentMissing(f) if f.message.contains("replies to")), "{error:?}");
        }
    }
    // A server without this API is not a missing parent.
    t.mastodon.fake.script(STATUSES, error(404, "Not found"));
    let other = OutgoingPost { marker: t.connector.marker(seed(300)), ..t.root() };
    assert!(matches!(t.publish_expecting_error(&other).await, CallError::Permanent(_)));
}

#[tokio::test]
async fn a_failed_lookup_of_the_parent_proves_nothing() {
    let t = with_root("public").await;
    t.mastodon.fake.script("/api/v1/statuses/1000", error(503, "later"));
    let error = t.publish_expecting_error(&t.part(1, "1000")).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
}

#[tokio::test]
async fn missing_images_of_a_reply_are_not_a_missing_parent() {
    let t = with_root("public").await;
    let part = OutgoingPost { images: vec![image("cat")], ..t.part(1, "1000") };
    for status in [404, 422] {
        t.mastodon.fake.set_media_status(404);
        t.mastodon.fake.script(STATUSES, error(status, "Media not found"));
        let error = t.publish_expecting_error(&part).await;
        assert!(matches!(error, CallError::UploadsMissing(_)), "{status}: {error:?}");
    }
    t.mastodon.fake.set_media_status(200);
    t.mastodon.fake.script(STATUSES, error(404, "Record not found"));
    assert!(matches!(t.publish_expecting_error(&part).await, CallError::ParentMissing(_)));
}

#[tokio::test]
async fn a_thread_continues_after_a_rate_limit() {
    let t = with_root("public").await;
    let limited = error(429, "Too many requests").insert_header("X-RateLimit-Reset", "2026-03-01T12:05:00.123456Z");
    t.mastodon.fake.script(STATUSES, limited);
    let part = t.part(1, "1000");
    assert!(matches!(t.publish_expecting_error(&part).await, CallError::RateLimited { until: Some(_), .. }));
    let published = t.publish(&part).await.unwrap();
    assert_eq!(t.publish(&part).await.unwrap(), published, "it has its own key");
    assert_eq!(t.count(), 2);
}

/// All have the same text.
#[tokio::test]
async fn reconcile_distinguishes_replies_by_their_parent() {
    let t = with_root("public").await;
    let next = OutgoingPost { text: "Next".to_owned(), marker: t.connector.marker(seed(300)), ..t.root() };
    let parts = [t.part(1, "1000"), t.part(2, "1001")];
    for part in &parts {
        assert_eq!(t.reconcile(part).await, ReconcileResult::Absent);
    }
    assert_eq!(t.reconcile(&next).await, ReconcileResult::Absent);
    let mut published = Vec::new();
    for part in &parts {
        published.push(t.publish(part).await.unwrap());
    }
    assert_eq!(t.reconcile(&next).await, ReconcileResult::Absent, "a post has no parent");
    published.push(t.publish(&next).await.unwrap());
    for (outgoing, published) in [&parts[0], &parts[1], &next].into_iter().zip(published) {
        assert_eq!(t.reconcile(outgoing).await, ReconcileResult::Matches(vec![published]));
    }
}

#[tokio::test]
async fn unpublishing_deletes_one_post_and_can_be_repeated() {
    let t = with_root("public").await;
    t.publish(&t.part(1, "1000")).await.unwrap();
    for id in ["1001", "1001", "9999", "../../v2/media"] {
        t.unpublish(id).await.unwrap();
        let deleted: Vec<_> = t.mastodon.fake.deleted().into_iter().collect();
        assert_eq!(deleted, [("1001".to_owned(), true)], "with its images");
    }
}

#[tokio::test]
async fn a_failed_unpublish_is_classified() {
    let t = with_root("public").await;
    let fail = async |response: ResponseTemplate| {
        t.mastodon.fake.script("/api/v1/statuses/1000", response);
        t.unpublish("1000").await.unwrap_err()
    };
    let unscoped = fail(error(403, "This action is outside the authorized scopes")).await;
    assert!(matches!(&unscoped, CallError::Permanent(f) if f.code == "missing_permission"), "{unscoped:?}");
    let suspended = fail(error(403, "Your login is currently disabled")).await;
    let is_account = matches!(&suspended, CallError::Permanent(f) if f.category == Category::Account);
    assert!(is_account && suspended.failure().code != "missing_permission", "{suspended:?}");
    assert!(matches!(fail(error(429, "Too many requests")).await, CallError::RateLimited { .. }));
    assert!(matches!(fail(error(502, "later")).await, CallError::Transient(_)), "it can be repeated");
    assert!(matches!(fail(error(401, "The access token was revoked")).await, CallError::Reauth(_)));
    assert!(t.mastodon.fake.deleted().is_empty());
}
