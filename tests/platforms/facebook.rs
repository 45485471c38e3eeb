//! Facebook pages, against a Graph API that responds as Meta documents.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use super::support::{ScriptStep, ScriptedServer, account, connector, image, now, post, publish, unused_address};
use crate::support::facebook::{Facebook, error};

async fn start() -> (Facebook, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (facebook, server) = Facebook::start("2026-03-01T12:00:05+0000", &[("42", "Bakery")]).await;
    facebook.oauth.add_token("page-42");
    let connector = connector(Platform::Facebook, &server.uri());
    (facebook, server, connector, page())
}

fn page() -> ConnectorAccount {
    account("42", json!({ "access_token": "page-42", "client_id": "app", "client_secret": "secret" }))
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (facebook, _server, connector, account) = start().await;
    facebook.script(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(facebook.posts().is_empty());
    error
}

#[tokio::test]
async fn a_text_is_published_without_a_token_in_an_address() {
    let (facebook, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh <bread>");
    outgoing.options.insert("link".to_owned(), json!("https://example.com/"));
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(
        (published.external_id.as_str(), published.url.as_deref()),
        ("42_1", Some("https://www.facebook.com/42_1"))
    );
    let body = &facebook.posts()[0].body;
    assert_eq!((&body["message"], &body["link"]), (&json!("Fresh <bread>"), &json!("https://example.com/")));
    for address in facebook.requests() {
        assert!(!address.contains("page-42") && !address.contains("secret="), "{address}");
    }
}

#[tokio::test]
async fn images_are_staged_and_shown_in_order_with_their_alt_texts() {
    let (facebook, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let media = &facebook.posts()[0].body["attached_media"];
    assert_eq!(media, &json!([{ "media_fbid": "501" }, { "media_fbid": "502" }]));
    for (photo, name) in facebook.photos().iter().zip(["cat", "dog"]) {
        assert!(photo.contains(&format!("bytes of {name}")) && photo.contains(&format!("a <{name}>")), "{photo}");
        assert!(photo.contains("name=\"published\"\r\n\r\nfalse"), "{photo}");
    }
}

#[tokio::test]
async fn reconcile_finds_the_post_by_text_and_time() {
    let (facebook, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Hi");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let ReconcileResult::Matches(found) = connector.reconcile(&account, &outgoing).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(found[0].url.as_deref(), Some("https://www.facebook.com/42_1/permalink"));
    let other = OutgoingPost { text: "Other".to_owned(), ..outgoing.clone() };
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    facebook.script(error(500, 2, None, "Service temporarily unavailable"));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn a_revoked_token_expires_the_account() {
    let (facebook, _server, connector, account) = start().await;
    connector.refresh(&account).await.unwrap();
    facebook.oauth.revoke("page-42");
    let error = connector.refresh(&account).await.unwrap_err();
    assert!(matches!(&error, CallError::Reauth(f) if f.message.contains("changed the password")), "{error:?}");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::Reauth(_))));
    let lost = publish_expecting_error(super::facebook::error(400, 100, Some(33), "Object does not exist")).await;
    assert!(matches!(lost, CallError::Reauth(_)), "{lost:?}");
}

#[tokio::test]
async fn errors_are_classified_by_metas_codes() {
    for code in [4, 17, 32, 341, 613, 80_001] {
        let limited = publish_expecting_error(error(400, code, None, "Too many calls")).await;
        assert!(matches!(limited, CallError::RateLimited { .. }), "{code}: {limited:?}");
    }
    let permanent = async |code, subcode, category| {
        let error = publish_expecting_error(error(400, code, subcode, "No")).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right, "{code} {subcode:?}: {error:?}");
    };
    permanent(10, None, Category::Account).await;
    permanent(200, None, Category::Account).await;
    permanent(506, None, Category::DuplicateContent).await;
    // "These photos were already posted": the worker searches for the post of an earlier call.
    permanent(324, Some(1_366_051), Category::DuplicateContent).await;
    permanent(368, None, Category::PlatformRejected).await;
    permanent(100, None, Category::InvalidContent).await;
    permanent(1, Some(1_609_005), Category::InvalidContent).await;
    permanent(324, Some(1_366_046), Category::Media).await;
    permanent(1, Some(1_404_078), Category::Account).await;
}

#[tokio::test]
async fn a_rate_limit_lasts_as_long_as_meta_estimates() {
    let end = async |usage: &str| {
        let response = error(400, 80_001, None, "Too many calls").insert_header("x-business-use-case-usage", usage);
        let limited = publish_expecting_error(response).await;
        let CallError::RateLimited { until, .. } = limited else { panic!("{usage}: {limited:?}") };
        until
    };
    let use_case =
        |minutes: i64| json!({ "type": "pages", "call_count": 100, "estimated_time_to_regain_access": minutes });
    let usage = json!({ "42": [use_case(0), use_case(19)], "43": [use_case(7)] }).to_string();
    assert_eq!(end(&usage).await, Some(now() + TimeDelta::minutes(19)));
    let longest = json!({ "42": [use_case(1_000_000)] }).to_string();
    assert_eq!(end(&longest).await, Some(now() + TimeDelta::hours(24)), "no longer than other pauses");
    for usage in ["{}", "[]", "x", r#"{"42":[]}"#, r#"{"42":[{"estimated_time_to_regain_access":0}]}"#] {
        assert_eq!(end(usage).await, None, "{usage}");
    }
    let beyond = json!({ "42": [use_case(i64::MAX)] }).to_string();
    assert_eq!(end(&beyond).await, None);
}

#[tokio::test]
async fn an_internal_error_leaves_the_outcome_unknown() {
    for (status, code) in [(500, 1), (400, 2), (500, 99_999)] {
        let unknown = publish_expecting_error(error(status, code, None, "An unknown error occurred")).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status} {code}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Facebook, &server.base);
    let unknown = broken.publish(&page(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Facebook, &unused_address().await);
    let passing = away.publish(&page(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
