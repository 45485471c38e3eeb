//! Mastodon, against a server that responds as its documentation specifies.

use std::sync::Arc;

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, ConnectError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::json;
use wiremock::ResponseTemplate;

use super::support::{ScriptStep, ScriptedServer, account, connector, image, now, post, publish, unused_address};
use crate::support::mastodon::{Mastodon, RunningMastodon};

const TOKEN: &str = "access-of-ann";

pub(super) async fn start() -> (RunningMastodon, Arc<dyn Connector>, ConnectorAccount) {
    let mastodon = Mastodon::start("2026-03-01T12:00:05.000Z").await;
    mastodon.fake.oauth.add_token(TOKEN);
    let account = account_at(&mastodon.server.uri());
    (mastodon, connector(Platform::Mastodon, ""), account)
}

pub(super) fn account_at(base: &str) -> ConnectorAccount {
    account(
        "ann@example.social",
        json!({
            "instance": base,
            "access_token": TOKEN,
            "account_id": "23634",
            "client_id": "app-1",
            "client_secret": "shh-1",
        }),
    )
}

pub(super) fn error(status: u16, text: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": text }))
}

/// Publishes to a server that returns this response to the post.
async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (mastodon, connector, account) = start().await;
    mastodon.fake.script("/api/v1/statuses", response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(mastodon.fake.toots().is_empty());
    error
}

#[tokio::test]
async fn a_text_is_published_once_for_each_key() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh <bread> at https://example.com");
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "1000");
    assert_eq!(published.url, Some(format!("{}/@ann/1000", mastodon.server.uri())));
    let again = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(again, published);
    assert_eq!(mastodon.fake.toots().len(), 1);
    let other = OutgoingPost { marker: connector.marker(seed(8)), ..outgoing };
    connector.publish(&account, &other).await.unwrap();
    assert_eq!(mastodon.fake.toots().len(), 2);
}

pub(super) fn seed(target_id: i64) -> crier_platforms::MarkerSeed {
    crier_platforms::MarkerSeed { target_id, at: now(), random: 1, reply: None, parts: 1 }
}

#[tokio::test]
async fn images_go_out_in_order_with_their_alt_texts() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(mastodon.fake.toots()[0].media, ["100", "101"]);
    let media = mastodon.fake.media();
    for (id, name) in [("100", "cat"), ("101", "dog")] {
        let body = &media[id];
        assert!(body.contains(&format!("bytes of {name}")) && body.contains(&format!("a <{name}>")), "{body}");
        assert!(body.contains(&format!("filename=\"{name}.png\"")) && body.contains("image/png"), "{body}");
    }
}

#[tokio::test]
async fn options_are_passed_and_checked() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Hi");
    let options = json!({ "visibility": "unlisted", "spoiler_text": "food", "sensitive": true, "language": "de" });
    outgoing.options = options.as_object().unwrap().clone();
    connector.publish(&account, &outgoing).await.unwrap();
    let body = &mastodon.fake.toots()[0].body;
    for (name, value) in options.as_object().unwrap() {
        assert_eq!(&body[name], value);
    }
    outgoing.options.insert("visibility".to_owned(), json!("direct"));
    let error = connector.publish(&account, &outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    assert_eq!(mastodon.fake.toots().len(), 1);
}

#[tokio::test]
async fn reconcile_finds_the_post_by_its_source() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh & <b>");
    outgoing.images = vec![image("cat")];
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    // The same text without an image is another post, and so is an older one.
    let without = OutgoingPost { images: Vec::new(), ..outgoing.clone() };
    assert_eq!(connector.reconcile(&account, &without).await.unwrap(), ReconcileResult::Absent);
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    let other = OutgoingPost { text: "Stale".to_owned(), ..outgoing };
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    assert_eq!(mastodon.fake.toots().len(), 1);
}

#[tokio::test]
async fn a_failed_look_is_not_absence() {
    let (mastodon, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "Hi");
    connector.publish(&account, &outgoing).await.unwrap();
    for path in ["/api/v1/accounts/23634/statuses", "/api/v1/statuses/1000/source"] {
        mastodon.fake.script(path, error(503, "later"));
        let error = connector.reconcile(&account, &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_revoked_token_expires_the_account() {
    let (mastodon, connector, account) = start().await;
    connector.refresh(&account).await.unwrap();
    connector.revoke(&account).await.unwrap();
    assert!(!mastodon.fake.oauth.knows(TOKEN));
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::Reauth(_))));
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn a_rate_limit_ends_at_its_time() {
    let response = error(429, "Too many requests").insert_header("X-RateLimit-Reset", "2026-03-01T12:05:00.123456Z");
    match publish_expecting_error(response).await {
        CallError::RateLimited { until, .. } => {
            let reset = Utc.with_ymd_and_hms(2026, 3, 1, 12, 5, 0).unwrap() + TimeDelta::microseconds(123_456);
            assert_eq!(until, Some(reset));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rejections_are_final_and_quoted() {
    let (mastodon, connector, account) = start().await;
    let long = post(connector.as_ref(), &"x".repeat(501));
    let error_of_length = connector.publish(&account, &long).await.unwrap_err();
    let failure = error_of_length.failure();
    assert!(matches!(error_of_length, CallError::Permanent(_)));
    assert_eq!(failure.category, Category::InvalidContent);
    assert!(failure.message.contains("Text character limit of 500 exceeded"), "{failure:?}");
    assert!(mastodon.fake.toots().is_empty());
    let suspended = publish_expecting_error(error(403, "Your login is currently disabled")).await;
    assert!(matches!(&suspended, CallError::Permanent(f) if f.category == Category::Account), "{suspended:?}");
}

#[tokio::test]
async fn a_broken_response_leaves_the_outcome_unknown() {
    for status in [500, 502, 503] {
        let error = publish_expecting_error(error(status, "oops")).await;
        assert!(matches!(error, CallError::Unknown(_)), "{status}: {error:?}");
    }
    let connector = connector(Platform::Mastodon, "");
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let outgoing = post(connector.as_ref(), "Hi");
    let error = connector.publish(&account_at(&server.base), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    let error = connector.publish(&account_at(&unused_address().await), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
}

#[tokio::test]
async fn dropped_and_unfinished_images_are_recognised() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let reject = || mastodon.fake.script("/api/v1/statuses", error(422, "Validation failed: Media not found"));
    for (status, expected) in [(404, "deleted an image"), (206, "processing"), (200, "Media not found")] {
        mastodon.fake.set_media_status(status);
        reject();
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(error.failure().message.contains(expected), "{status}: {error:?}");
        match status {
            404 => assert!(matches!(error, CallError::UploadsMissing(_))),
            206 => assert!(matches!(error, CallError::Transient(_))),
            _ => assert!(matches!(error, CallError::Permanent(_))),
        }
    }
}

#[tokio::test]
async fn a_servers_address_is_checked() {
    let connector = connector(Platform::Mastodon, "");
    let oauth = connector.oauth().unwrap();
    for good in ["example.social", " https://example.social/ ", "https://example.social?x#y"] {
        assert_eq!(oauth.check_instance(good).await.unwrap(), "https://example.social", "{good}");
    }
    for bad in ["", "https://", "https://a:b@example.social", "https://example.social/@ann", "https://rejected.example"]
    {
        let rejected = oauth.check_instance(bad).await;
        assert!(matches!(rejected, Err(ConnectError::Field { field: "instance", .. })), "{bad}: {rejected:?}");
    }
}
