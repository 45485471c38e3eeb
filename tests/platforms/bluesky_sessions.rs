//! Bluesky: sessions, their renewal and their end.

use crier_domain::platform::Platform;
use crier_platforms::CallError;
use serde_json::{Value, json};
use wiremock::matchers::{bearer_token, body_json, method};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::bluesky::{ACCESS, NoBody, bluesky_account, error, pds, respond, session, xrpc};
use super::support::{connector, post, shown};

async fn refreshing(refresh: ResponseTemplate, create: ResponseTemplate) -> (Result<Value, CallError>, MockServer) {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(xrpc("com.atproto.server.refreshSession"))
        .and(bearer_token("refresh-1"))
        .and(NoBody)
        .respond_with(refresh)
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(method("POST"))
        .and(xrpc("com.atproto.server.createSession"))
        .and(body_json(json!({ "identifier": "alice.example", "password": "abcd-efgh" })))
        .respond_with(create)
        .mount(&server)
        .await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let refreshed = bluesky.refresh(&bluesky_account()).await;
    (refreshed.map(|r| shown(&r.secrets.unwrap())), server)
}

#[tokio::test]
async fn a_refresh_stores_both_new_tokens() {
    let fresh = ResponseTemplate::new(200).set_body_json(session("access-2", "refresh-2"));
    let (secrets, _server) = refreshing(fresh, ResponseTemplate::new(500)).await;
    let secrets = secrets.unwrap();
    assert_eq!((&secrets["access_jwt"], &secrets["refresh_jwt"]), (&json!("access-2"), &json!("refresh-2")));
    assert_eq!(secrets["app_password"], json!("abcd-efgh"));

    let empty = ResponseTemplate::new(200).set_body_json(session("access-2", ""));
    let (secrets, _server) = refreshing(empty, ResponseTemplate::new(500)).await;
    assert_eq!(secrets.unwrap()["refresh_jwt"], json!("refresh-1"), "an empty token does not replace another");
}

#[tokio::test]
async fn an_expired_refresh_token_falls_back_to_the_app_password() {
    for name in ["ExpiredToken", "InvalidToken"] {
        let created = ResponseTemplate::new(200).set_body_json(session("access-3", "refresh-3"));
        let (secrets, _server) = refreshing(error(400, name, "Token has been revoked"), created).await;
        assert_eq!(secrets.unwrap()["refresh_jwt"], json!("refresh-3"));
    }
}

#[tokio::test]
async fn only_a_rejected_app_password_expires_the_account() {
    let expired = || error(400, "ExpiredToken", "Token has been revoked");
    let (rejected, _server) =
        refreshing(expired(), error(401, "AuthenticationRequired", "Invalid identifier or password")).await;
    assert!(matches!(rejected, Err(CallError::Reauth(_))), "{rejected:?}");
    for (refresh, create) in [
        (ResponseTemplate::new(502), ResponseTemplate::new(200)),
        (expired(), ResponseTemplate::new(503)),
        (expired(), error(429, "RateLimitExceeded", "x")),
    ] {
        let (passing, _server) = refreshing(refresh, create).await;
        assert!(matches!(passing, Err(CallError::Transient(_) | CallError::RateLimited { .. })), "{passing:?}");
    }
    let mut other = session("a", "r");
    other["did"] = json!("did:plc:mallory");
    let (moved, _server) = refreshing(expired(), ResponseTemplate::new(200).set_body_json(other)).await;
    assert!(matches!(moved, Err(CallError::Reauth(_))), "the handle belongs to another account now");
}

#[tokio::test]
async fn publishing_succeeds_after_a_token_refresh() {
    let (server, repo) = pds().await;
    Mock::given(xrpc("com.atproto.repo.putRecord"))
        .and(bearer_token("stale"))
        .respond_with(error(400, "ExpiredToken", "Token has expired"))
        .mount(&server)
        .await;
    respond(
        &server,
        "com.atproto.server.refreshSession",
        ResponseTemplate::new(200).set_body_json(session(ACCESS, "r2")),
    )
    .await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let mut account = bluesky_account();
    account.secrets = account.secrets.with(&[("access_jwt", "stale")]);
    let outgoing = post(bluesky.as_ref(), "Hi");
    assert!(matches!(bluesky.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    account.secrets = bluesky.refresh(&account).await.unwrap().secrets.unwrap();
    bluesky.publish(&account, &outgoing).await.unwrap();
    assert_eq!(repo.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn revoking_ends_the_session() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(xrpc("com.atproto.server.deleteSession"))
        .and(bearer_token("refresh-1"))
        .and(NoBody)
        .respond_with(ResponseTemplate::new(200))
        .expect(1)
        .mount(&server)
        .await;
    connector(Platform::Bluesky, &server.uri()).revoke(&bluesky_account()).await.unwrap();

    let gone = MockServer::start().await;
    respond(&gone, "com.atproto.server.deleteSession", error(400, "ExpiredToken", "x")).await;
    connector(Platform::Bluesky, &gone.uri()).revoke(&bluesky_account()).await.unwrap();
}
