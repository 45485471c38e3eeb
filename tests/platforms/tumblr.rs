//! Tumblr, against a server that responds as its documentation specifies.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::json;
use wiremock::matchers::{bearer_token, body_string, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, now, post, publish, shown, unpublish_post, unused_address,
};
use crate::support::request::assert_fields;
use crate::support::tumblr::{Tumblr, error};

pub(super) async fn start() -> (Tumblr, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let (tumblr, server) = Tumblr::start(&[("ann", "Ann's")]).await;
    tumblr.oauth.add_client("id", "secret");
    tumblr.oauth.add_token("access-0");
    tumblr.oauth.add_refresh_token("refresh-0");
    let connector = connector(Platform::Tumblr, &server.uri());
    (tumblr, server, connector, tumblr_account())
}

pub(super) fn tumblr_account() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
    });
    ConnectorAccount { username: Some("ann".to_owned()), ..account("t:ann", secrets) }
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (tumblr, _server, connector, account) = start().await;
    tumblr.script(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(tumblr.posts().is_empty());
    error
}

#[tokio::test]
async fn a_text_is_published_in_blocks() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), &format!("First\nline\n\n{}", "ä".repeat(5_000)));
    outgoing.options.insert("tags".to_owned(), json!("bread,rye"));
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "7001");
    assert_eq!(published.url.as_deref(), Some("https://www.tumblr.com/ann/7001"));
    let (sent, _) = &tumblr.posts()[0];
    let texts: Vec<_> =
        sent["content"].as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!((texts[0], texts[1].chars().count(), texts[2].chars().count()), ("First\nline", 4_096, 904));
    assert_fields(sent, json!({ "state": "published", "tags": "bread,rye", "slug": outgoing.marker["slug"] }));
}

#[tokio::test]
async fn paragraphs_share_blocks_if_there_are_too_many() {
    let (tumblr, _server, connector, account) = start().await;
    for (paragraphs, images, blocks) in [(1_000, 0, 1_000), (1_001, 0, 1), (999, 1, 1_000), (1_000, 1, 2)] {
        let text = vec!["ab"; paragraphs].join("\n\n");
        let mut outgoing = post(connector.as_ref(), &text);
        outgoing.images = vec![image("cat"); images];
        publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
        let (sent, _) = tumblr.posts().pop().unwrap();
        let content = sent["content"].as_array().unwrap();
        assert_eq!(content.len(), blocks, "{paragraphs} paragraphs, {images} images");
        let texts: Vec<_> = content.iter().filter_map(|block| block["text"].as_str()).collect();
        assert_eq!(texts.join("\n\n"), text);
    }
}

#[tokio::test]
async fn images_go_out_in_order_with_their_alt_texts() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let (sent, raw) = &tumblr.posts()[0];
    for (index, name) in ["cat", "dog"].into_iter().enumerate() {
        let block = &sent["content"][index];
        assert_eq!((&block["type"], &block["alt_text"]), (&json!("image"), &json!(format!("a <{name}>"))));
        assert_eq!(block["media"][0]["identifier"], format!("picture-{index}"));
        let head = format!("name=\"picture-{index}\"; filename=\"{name}.png\"");
        assert!(raw.contains(&head) && raw.contains(&format!("bytes of {name}")), "{raw}");
    }
    assert_eq!(sent["content"][2], json!({ "type": "text", "text": "Two" }));
}

#[tokio::test]
async fn reconcile_finds_the_post_by_its_slug() {
    let (tumblr, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Hi");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Found(published));
    let seed = crier_platforms::MarkerSeed { target_id: 8, at: now(), random: 99, reply: None, parts: 1 };
    let other = OutgoingPost { marker: connector.marker(seed), ..outgoing.clone() };
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    tumblr.script(error(500, None, "oops"));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn an_expired_token_is_renewed_with_its_application() {
    let (tumblr, _server, connector, account) = start().await;
    tumblr.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let refreshed = connector.refresh(&account).await.unwrap();
    assert_eq!(refreshed.token_expires_at, Some(now() + TimeDelta::seconds(2_520)));
    let secrets = refreshed.secrets.unwrap();
    let kept = shown(&secrets);
    assert_eq!((&kept["client_id"], &kept["client_secret"]), (&json!("id"), &json!("secret")));
    assert!(kept["refresh_token"] != "refresh-0" && kept["access_token"] != "access-0");
    let renewed = ConnectorAccount { secrets, ..account.clone() };
    connector.publish(&renewed, &outgoing).await.unwrap();
    // The old pair of tokens is no longer valid.
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn only_a_rejected_grant_expires_the_account() {
    let refresh = async |steps| {
        let server = ScriptedServer::start(steps).await;
        connector(Platform::Tumblr, &server.base).refresh(&tumblr_account()).await.unwrap_err()
    };
    let response = |status, body| vec![ScriptStep::Respond(status, body)];
    for (status, body) in [
        (400, json!({ "error": "invalid_grant" })),
        (401, json!({ "meta": { "status": 401, "msg": "Unauthorized" }, "response": [] })),
    ] {
        assert!(matches!(refresh(response(status, body)).await, CallError::Reauth(_)), "{status}");
    }
    for (status, body) in [
        (401, json!({ "error": "invalid_client" })),
        (400, json!({ "error": "invalid_request" })),
        (200, json!({ "unexpected": true })),
        (500, json!({})),
        (503, json!({ "error": "invalid_grant" })),
    ] {
        let error = refresh(response(status, body.clone())).await;
        assert!(matches!(error, CallError::Transient(_)), "{status} {body}: {error:?}");
    }
    assert!(matches!(refresh(response(429, json!({}))).await, CallError::RateLimited { .. }));
    assert!(matches!(refresh(vec![ScriptStep::HangUp]).await, CallError::Transient(_)));
    let away = connector(Platform::Tumblr, &unused_address().await).refresh(&tumblr_account()).await;
    assert!(matches!(away, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn errors_are_classified_by_tumblrs_codes() {
    let invalid = publish_expecting_error(error(400, Some(8001), "Bad block")).await;
    assert!(matches!(&invalid, CallError::Permanent(f) if f.category == Category::InvalidContent), "{invalid:?}");
    assert!(invalid.failure().message.contains("Bad block"));
    let media = publish_expecting_error(error(400, Some(8005), "Bad format")).await;
    assert!(matches!(&media, CallError::Permanent(f) if f.category == Category::Media), "{media:?}");
    for code in [8004, 8022, 8023] {
        let limited = publish_expecting_error(error(403, Some(code), "The daily limit")).await;
        let CallError::RateLimited { until, failure } = limited else { panic!("{code}: {limited:?}") };
        assert_eq!((until, failure.is_daily_limit()), (Some(now() + TimeDelta::hours(3)), true));
    }
    let passing = publish_expecting_error(error(500, Some(8006), "later")).await;
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
    for status in [403, 404] {
        assert!(matches!(publish_expecting_error(error(status, None, "no")).await, CallError::Permanent(_)));
    }
}

#[tokio::test]
async fn used_up_calls_are_waited_for() {
    for (hour, day, seconds) in [
        (None, None, 3_600),
        (Some(("0", "1800")), Some(("4000", "80000")), 1_800),
        (Some(("900", "1800")), Some(("0", "80000")), 80_000),
        (Some(("0", "1800")), Some(("0", "80000")), 80_000),
        (Some(("900", "1800")), Some(("4000", "80000")), 3_600),
        (Some(("0", "soon")), None, 3_600),
        (None, Some(("0", "999999999")), 86_400),
    ] {
        let mut response = error(429, None, "Limit Exceeded");
        for (period, limit) in [("perhour", hour), ("perday", day)] {
            if let Some((remaining, reset)) = limit {
                response = response.insert_header(format!("x-ratelimit-{period}-remaining").as_str(), remaining);
                response = response.insert_header(format!("x-ratelimit-{period}-reset").as_str(), reset);
            }
        }
        let limited = publish_expecting_error(response).await;
        let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
        assert_eq!(until, Some(now() + TimeDelta::seconds(seconds)), "{hour:?} {day:?}");
    }
}

#[tokio::test]
async fn a_broken_response_leaves_the_outcome_unknown() {
    // A 503 may also come from a proxy, after Tumblr has created the post.
    for status in [502, 503] {
        let unknown = publish_expecting_error(error(status, None, "oops")).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let connector = connector(Platform::Tumblr, &server.base);
    let outgoing = post(connector.as_ref(), "Hi");
    let error = connector.publish(&tumblr_account(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
}

/// Sets the response to the next deletion.
async fn deletes(server: &MockServer, response: ResponseTemplate) {
    let deletion = Mock::given(method("POST"))
        .and(path("/v2/blog/t%3Aann/post/delete"))
        .and(bearer_token("access-0"))
        .and(body_string("id=7001"));
    deletion.respond_with(response).up_to_n_times(1).with_priority(1).mount(server).await;
}

#[tokio::test]
async fn a_post_is_deleted_and_a_deletion_can_be_repeated() {
    let (_tumblr, server, connector, account) = start().await;
    let body = json!({ "meta": { "status": 200, "msg": "OK" }, "response": { "id": 7001, "id_string": "7001" } });
    deletes(&server, ResponseTemplate::new(200).set_body_json(body)).await;
    deletes(&server, error(404, None, "Not Found")).await;
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("7001")).await.unwrap();
    }
    let paths = server.received_requests().await.unwrap().into_iter().map(|one| one.url.path().to_owned());
    let deletion = "/v2/blog/t%3Aann/post/delete";
    assert_eq!(paths.collect::<Vec<_>>(), [deletion, deletion, "/v2/user/info"]);
}

#[tokio::test]
async fn a_post_on_a_lost_blog_is_not_reported_as_deleted() {
    let (_tumblr, server, connector, account) = start().await;
    deletes(&server, error(404, None, "Not Found")).await;
    let info =
        json!({ "meta": { "status": 200, "msg": "OK" }, "response": { "user": { "name": "ann", "blogs": [] } } });
    let response = ResponseTemplate::new(200).set_body_json(info);
    Mock::given(path("/v2/user/info")).respond_with(response).with_priority(1).mount(&server).await;
    let lost = connector.unpublish(&account, &unpublish_post("7001")).await.unwrap_err();
    assert!(matches!(&lost, CallError::Permanent(f) if f.category == Category::Account), "{lost:?}");
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (tumblr, server, connector, account) = start().await;
    let post = unpublish_post("7001");
    deletes(&server, error(403, None, "Forbidden")).await;
    let forbidden = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&forbidden, CallError::Permanent(f) if f.category == Category::Account), "{forbidden:?}");
    deletes(&server, error(429, None, "Limit Exceeded")).await;
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { .. })));
    for status in [500, 503] {
        deletes(&server, error(status, None, "oops")).await;
        assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Transient(_))));
    }
    let broken = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let lost = connector_at(&broken.base).unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(lost, CallError::Transient(_)), "{lost:?}");
    tumblr.oauth.revoke("access-0");
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::AuthExpired(_))));
}

fn connector_at(base: &str) -> Arc<dyn Connector> {
    connector(Platform::Tumblr, base)
}
