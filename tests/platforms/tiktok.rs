//! TikTok, against a server that responds as its documents specify.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use super::support::{account, connect_in_browser, connector, image, is_invalid, now, post, shown, unused_address};
use crate::support::request::assert_fields;
use crate::support::tiktok::{Tiktok, rejection};

fn bakery() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
    });
    ConnectorAccount { username: Some("bakery".to_owned()), ..account("723f24d7", secrets) }
}

async fn start() -> (Tiktok, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (fake, server) = Tiktok::start().await;
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let connector = connector(Platform::Tiktok, &server.uri());
    (fake, server, connector, bakery())
}

fn outgoing(connector: &dyn Connector) -> OutgoingPost {
    let mut outgoing = post(connector, "Fresh bread");
    outgoing.images = vec![image("cat"), image("dog")];
    outgoing.options.insert("visibility".to_owned(), json!("public"));
    outgoing
}

/// Publishes a post, and returns it with the marker that identifies it.
async fn accepted(connector: &dyn Connector, account: &ConnectorAccount, post: &OutgoingPost) -> OutgoingPost {
    let CallError::Accepted { post: accepted, .. } = connector.publish(account, post).await.unwrap_err() else {
        panic!("it is published later")
    };
    assert_eq!(accepted.pause, TimeDelta::seconds(3));
    OutgoingPost { marker: accepted.marker, ..post.clone() }
}

#[tokio::test]
async fn an_account_is_connected_by_its_client_key() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://www.tiktok.com/v2/auth/authorize/");
    assert!(attempt.server.sends_client_key);
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("723f24d7", "The Bakery"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://www.tiktok.com/@bakery"));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && renewal.rotates);
    assert_eq!(renewal.refresh_expires_at, Some(now() + TimeDelta::days(180)));
}

#[tokio::test]
async fn a_post_is_accepted_and_found_when_it_is_out() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = outgoing(connector.as_ref());
    outgoing.options.insert("title".to_owned(), json!("Rye"));
    outgoing.options.insert("disable_comment".to_owned(), json!(true));
    let accepted = accepted(connector.as_ref(), &account, &outgoing).await;
    let body = fake.posts.lock().unwrap()[0].clone();
    assert_eq!((&body["media_type"], &body["post_mode"]), (&json!("PHOTO"), &json!("DIRECT_POST")));
    let urls = json!(["https://crier.example/media/cat.png", "https://crier.example/media/dog.png"]);
    assert_fields(&body["source_info"], json!({ "source": "PULL_FROM_URL", "photo_images": urls }));
    let expected = json!({
        "title": "Rye", "description": "Fresh bread", "privacy_level": "PUBLIC_TO_EVERYONE", "disable_comment": true,
        "auto_add_music": false, "brand_content_toggle": false, "brand_organic_toggle": false,
    });
    assert_eq!(body["post_info"], expected);

    fake.statuses.lock().unwrap().push_back(json!({ "status": "PROCESSING_DOWNLOAD" }));
    let waiting = connector.reconcile(&account, &accepted).await.unwrap();
    assert_eq!(waiting, ReconcileResult::Pending(TimeDelta::seconds(3)));
    let ReconcileResult::Found(found) = connector.reconcile(&account, &accepted).await.unwrap() else {
        panic!("it is out")
    };
    assert_eq!(
        (found.external_id.as_str(), found.url.as_deref()),
        ("73001", Some("https://www.tiktok.com/@bakery/photo/73001"))
    );
    // A private post has no id.
    fake.statuses.lock().unwrap().push_back(json!({ "status": "PUBLISH_COMPLETE" }));
    let ReconcileResult::Found(found) = connector.reconcile(&account, &accepted).await.unwrap() else {
        panic!("it is out")
    };
    assert_eq!((found.external_id.as_str(), found.url), ("", None));
    // Without a response to the publish, the post cannot be found.
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Unsupported);
}

#[tokio::test]
async fn an_accepted_post_may_fail_later() {
    let (fake, _server, connector, account) = start().await;
    let accepted = accepted(connector.as_ref(), &account, &outgoing(connector.as_ref())).await;
    let fail = async |reason: &str| {
        fake.statuses.lock().unwrap().push_back(json!({ "status": "FAILED", "fail_reason": reason }));
        match connector.reconcile(&account, &accepted).await.unwrap() {
            ReconcileResult::Rejected(error) => error,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        matches!(fail("picture_size_check_failed").await, CallError::Permanent(f) if f.category == Category::InvalidContent)
    );
    assert!(matches!(fail("photo_pull_failed").await, CallError::Transient(f) if f.category == Category::Media));
    assert!(matches!(fail("spam_risk_too_many_posts").await, CallError::RateLimited { .. }));
    assert!(matches!(fail("internal").await, CallError::Transient(_)));
    assert!(matches!(fail("auth_removed").await, CallError::Reauth(_)));
    // That an earlier post failed does not mean that a later call, whose response was lost, published nothing.
    let later = OutgoingPost { called_at: Some(now() + TimeDelta::hours(1)), ..accepted.clone() };
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Unsupported);
}

#[tokio::test]
async fn a_visibility_is_required_and_must_be_allowed() {
    let (fake, _server, connector, account) = start().await;
    let mut without = outgoing(connector.as_ref());
    without.options.clear();
    for options in [json!({}), json!({ "visibility": "friends" })] {
        without.options = options.as_object().unwrap().clone();
        let error = connector.publish(&account, &without).await.unwrap_err();
        assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
    }
    assert!(fake.posts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn branded_content_cannot_be_private() {
    let (fake, _server, connector, account) = start().await;
    let mut private = outgoing(connector.as_ref());
    private.options.insert("visibility".to_owned(), json!("private"));
    private.options.insert("brand_content".to_owned(), json!(true));
    let error = connector.publish(&account, &private).await.unwrap_err();
    assert!(is_invalid(&error) && error.failure().message.contains("brand_content"), "{error:?}");
    assert!(fake.posts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn errors_are_classified() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = outgoing(connector.as_ref());
    let publish = async |response: ResponseTemplate| {
        fake.scripted.lock().unwrap().push(response);
        connector.publish(&account, &outgoing).await.unwrap_err()
    };
    let until = |error: CallError| match error {
        CallError::RateLimited { until, .. } => until.unwrap() - now(),
        other => panic!("{other:?}"),
    };
    assert_eq!(until(publish(rejection(429, "rate_limit_exceeded")).await), TimeDelta::minutes(1));
    for code in ["spam_risk_too_many_posts", "reached_active_user_cap"] {
        // Errors may also have the status 200.
        let limited = publish(rejection(200, code)).await;
        assert!(limited.failure().is_daily_limit());
        assert_eq!(until(limited), TimeDelta::hours(6));
    }
    for (code, category) in [
        ("unaudited_client_can_only_post_to_private_accounts", Category::Account),
        ("url_ownership_unverified", Category::Account),
        ("scope_not_authorized", Category::Account),
        ("privacy_level_option_mismatch", Category::InvalidContent),
        ("spam_risk_text", Category::PlatformRejected),
        ("something_new", Category::PlatformRejected),
    ] {
        let error = publish(rejection(403, code)).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == category), "{code}: {error:?}");
    }
    for response in [
        rejection(500, "internal_error"),
        rejection(200, "internal_error"),
        rejection(503, "something_new"),
        ResponseTemplate::new(502),
    ] {
        assert!(matches!(publish(response).await, CallError::Unknown(_)));
    }
    let unreadable = ResponseTemplate::new(200).set_body_string("<html>");
    assert!(matches!(publish(unreadable).await, CallError::Unknown(_)));
    assert!(fake.posts.lock().unwrap().is_empty());
    let away = super::support::connector(Platform::Tiktok, &unused_address().await);
    assert!(matches!(away.publish(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn tokens_rotate_and_a_used_one_ends_the_access() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = outgoing(connector.as_ref());
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let refreshed = connector.refresh(&account).await.unwrap();
    assert_eq!(refreshed.refresh_expires_at, Some(now() + TimeDelta::days(180)));
    let secrets = refreshed.secrets.unwrap();
    assert_ne!(shown(&secrets)["refresh_token"], "refresh-0");
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
    let renewed = ConnectorAccount { secrets, ..account };
    accepted(connector.as_ref(), &renewed, &outgoing).await;
    connector.revoke(&renewed).await.unwrap();
    assert_eq!(fake.revoked.lock().unwrap().len(), 1);
}
