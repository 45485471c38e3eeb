//! Bluesky, against a server that responds like a personal data server.

use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::{AccountKind, Platform};
use crier_platforms::{CallError, ConnectError, ConnectorAccount, LinkCard, OutgoingPost, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::{bearer_token, body_bytes, body_json, header, method, path, query_param};
use wiremock::{Match, Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, now, post, publish, secrets, shown, unused_address,
    with_directory,
};

pub(super) const DID: &str = "did:plc:alice";

/// A token whose claims contain an expiry of 1 January 2027.
pub(super) const ACCESS: &str = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3OTg3NjE2MDB9.c2ln";

pub(super) fn bluesky_account() -> ConnectorAccount {
    account(
        DID,
        json!({
            "identifier": "alice.example",
            "app_password": "abcd-efgh",
            "service": "",
            "access_jwt": ACCESS,
            "refresh_jwt": "refresh-1",
        }),
    )
}

pub(super) fn xrpc(name: &str) -> wiremock::matchers::PathExactMatcher {
    path(format!("/xrpc/{name}"))
}

pub(super) fn error(status: u16, name: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": name, "message": message }))
}

pub(super) fn session(access: &str, refresh: &str) -> Value {
    json!({ "did": DID, "handle": "alice.example", "accessJwt": access, "refreshJwt": refresh, "active": true })
}

pub(super) async fn respond(server: &MockServer, name: &str, response: ResponseTemplate) {
    Mock::given(xrpc(name)).respond_with(response).mount(server).await;
}

/// Stores one record per key and handles `putRecord` as a server does: an identical record is no change; a different
/// one with `swapRecord: null` returns `InvalidSwap`.
#[derive(Clone, Default)]
pub(super) struct Repo(pub(super) Arc<Mutex<Vec<Value>>>);

impl Respond for Repo {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut kept = self.0.lock().unwrap();
        let find = |kept: &[Value], rkey: &str| kept.iter().find(|put| put["rkey"] == *rkey).cloned();
        let written = |rkey: &str| json!({ "uri": format!("at://{DID}/app.bsky.feed.post/{rkey}"), "cid": "bafy" });
        if request.method == "GET" {
            let rkey = request.url.query_pairs().find(|(name, _)| name == "rkey").unwrap().1.into_owned();
            let Some(put) = find(&kept, &rkey) else { return error(400, "RecordNotFound", "Could not locate record") };
            let mut record = written(&rkey);
            record["value"] = put["record"].clone();
            return ResponseTemplate::new(200).set_body_json(record);
        }
        let put: Value = request.body_json().unwrap();
        let rkey = put["rkey"].as_str().unwrap().to_owned();
        assert_eq!((&put["repo"], &put["swapRecord"]), (&json!(DID), &Value::Null));
        assert!(put.as_object().unwrap().contains_key("swapRecord"), "without it the record would be replaced");
        match find(&kept, &rkey) {
            Some(old) if old["record"] != put["record"] => return error(400, "InvalidSwap", "Record was at bafy"),
            Some(_) => {}
            None => kept.push(put),
        }
        ResponseTemplate::new(200).set_body_json(written(&rkey))
    }
}

/// A server with a repository.
pub(super) async fn pds() -> (MockServer, Repo) {
    let (server, repo) = (MockServer::start().await, Repo::default());
    for name in ["com.atproto.repo.putRecord", "com.atproto.repo.getRecord"] {
        Mock::given(xrpc(name)).and(bearer_token(ACCESS)).respond_with(repo.clone()).mount(&server).await;
    }
    (server, repo)
}

async fn connect(server: &MockServer) -> Result<crier_platforms::Connected, ConnectError> {
    let credentials = secrets(json!({ "identifier": " @alice.example", "app_password": "abcd-efgh" }));
    connector(Platform::Bluesky, &server.uri()).connect(1, &credentials).await
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let server = MockServer::start().await;
    respond(&server, "com.atproto.repo.putRecord", response).await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    bluesky.publish(&bluesky_account(), &post(bluesky.as_ref(), "Hi")).await.unwrap_err()
}

#[tokio::test]
async fn connecting_creates_a_session_and_loads_the_profile() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(xrpc("com.atproto.server.createSession"))
        .and(body_json(json!({ "identifier": "alice.example", "password": "abcd-efgh" })))
        .respond_with(ResponseTemplate::new(200).set_body_json(session(ACCESS, "refresh-1")))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(xrpc("app.bsky.actor.getProfile"))
        .and(query_param("actor", DID))
        .and(bearer_token(ACCESS))
        .respond_with(
            ResponseTemplate::new(200).set_body_json(json!({ "displayName": "Alice", "avatar": "https://a/b" })),
        )
        .mount(&server)
        .await;
    let connected = connect(&server).await.unwrap();
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), (DID, "Alice"));
    assert_eq!(connected.username.as_deref(), Some("alice.example"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://bsky.app/profile/alice.example"));
    assert_eq!(connected.avatar_url.as_deref(), Some("https://a/b"));
    assert_eq!(connected.kind, AccountKind::Profile);
    assert_eq!(connected.token_expires_at, Some(Utc.with_ymd_and_hms(2027, 1, 1, 0, 0, 0).unwrap()));
    let kept = shown(&connected.secrets);
    assert_eq!((&kept["access_jwt"], &kept["refresh_jwt"]), (&json!(ACCESS), &json!("refresh-1")));
    assert_eq!((&kept["app_password"], &kept["service"]), (&json!("abcd-efgh"), &json!("")));
}

#[tokio::test]
async fn connecting_works_without_a_profile_endpoint() {
    let server = MockServer::start().await;
    respond(
        &server,
        "com.atproto.server.createSession",
        ResponseTemplate::new(200).set_body_json(session("opaque", "r")),
    )
    .await;
    respond(&server, "app.bsky.actor.getProfile", error(501, "MethodNotImplemented", "no")).await;
    let connected = connect(&server).await.unwrap();
    assert_eq!((connected.name.as_str(), connected.token_expires_at), ("alice.example", None));
}

#[tokio::test]
async fn bad_credentials_and_inactive_accounts_are_rejected() {
    let inactive = json!({ "did": DID, "handle": "a.b", "accessJwt": "a", "refreshJwt": "r", "active": false, "status": "deactivated" });
    for (response, word) in [
        (error(401, "AuthenticationRequired", "Invalid identifier or password"), "app password"),
        (error(401, "AuthFactorTokenRequired", "A sign in code has been sent"), "app password"),
        (error(400, "AccountTakedown", "Account has been taken down"), "suspended"),
        (ResponseTemplate::new(200).set_body_json(inactive), "deactivated"),
    ] {
        let server = MockServer::start().await;
        respond(&server, "com.atproto.server.createSession", response).await;
        let rejection = connect(&server).await.unwrap_err();
        assert!(matches!(&rejection, ConnectError::Rejected(message) if message.contains(word)), "{rejection:?}");
    }
    for response in [error(429, "RateLimitExceeded", "Rate Limit Exceeded"), ResponseTemplate::new(502)] {
        let server = MockServer::start().await;
        respond(&server, "com.atproto.server.createSession", response).await;
        assert!(matches!(connect(&server).await, Err(ConnectError::Unavailable(_))));
    }
}

#[tokio::test]
async fn the_service_url_is_validated_and_stored() {
    let server = MockServer::start().await;
    respond(&server, "com.atproto.server.createSession", ResponseTemplate::new(200).set_body_json(session("a", "r")))
        .await;
    let directory = MockServer::start().await;
    let document = json!({ "id": DID, "service": [{ "id": "#atproto_pds", "serviceEndpoint": server.uri() }] });
    let response = ResponseTemplate::new(200).set_body_json(document);
    Mock::given(path(format!("/{DID}"))).respond_with(response).mount(&directory).await;
    let bluesky = with_directory(&unused_address().await, &directory.uri());
    let with = |service: &str| secrets(json!({ "identifier": "a.b", "app_password": "p", "service": service }));
    let connected = bluesky.connect(1, &with(&format!("{}/?x=y", server.uri()))).await.unwrap();
    assert_eq!(shown(&connected.secrets)["service"], json!(server.uri()));
    for service in ["not a url", "ftp://example.com", "https://user:pass@example.com", "https://rejected.example"] {
        let rejection = bluesky.connect(1, &with(service)).await.unwrap_err();
        assert!(matches!(rejection, ConnectError::Field { field: "service", .. }), "{service}: {rejection:?}");
    }
}

#[tokio::test]
async fn a_post_is_a_record_with_its_own_key() {
    let (server, repo) = pds().await;
    Mock::given(xrpc("com.atproto.identity.resolveHandle"))
        .and(query_param("handle", "bob.test"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "did": "did:plc:bob" })))
        .mount(&server)
        .await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let text = "Ünder https://例え.jp/パス #C++ $aapl @bob.test @nobody.test www.example.com";
    let outgoing = post(bluesky.as_ref(), text);
    let published = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap();

    let rkey = outgoing.marker["rkey"].as_str().unwrap();
    assert_eq!(rkey.len(), 13);
    assert_eq!(published.external_id, format!("at://{DID}/app.bsky.feed.post/{rkey}"));
    assert_eq!(published.url.unwrap(), format!("https://bsky.app/profile/{DID}/post/{rkey}"));
    let puts = repo.0.lock().unwrap().clone();
    assert_eq!(puts[0]["collection"], json!("app.bsky.feed.post"));
    let facet = |start, end, feature| json!({ "index": { "byteStart": start, "byteEnd": end }, "features": [feature] });
    assert_eq!(
        puts[0]["record"],
        json!({
            "$type": "app.bsky.feed.post",
            "text": outgoing.text,
            "createdAt": "2026-03-01T12:00:00.000Z",
            "facets": [
                facet(7, 31, json!({ "$type": "app.bsky.richtext.facet#link", "uri": "https://例え.jp/パス" })),
                facet(32, 36, json!({ "$type": "app.bsky.richtext.facet#tag", "tag": "C++" })),
                facet(37, 42, json!({ "$type": "app.bsky.richtext.facet#tag", "tag": "$AAPL" })),
                facet(43, 52, json!({ "$type": "app.bsky.richtext.facet#mention", "did": "did:plc:bob" })),
                facet(66, 81, json!({ "$type": "app.bsky.richtext.facet#link", "uri": "https://www.example.com" })),
            ],
        })
    );
}

/// Matches a request without a body and without a content type.
pub(super) struct NoBody;

impl Match for NoBody {
    fn matches(&self, request: &Request) -> bool {
        request.body.is_empty() && !request.headers.contains_key("content-type")
    }
}

#[tokio::test]
async fn images_are_uploaded_and_embedded() {
    let (server, repo) = pds().await;
    let blob = json!({ "$type": "blob", "ref": { "$link": "bafkrei" }, "mimeType": "image/png", "size": 12 });
    Mock::given(method("POST"))
        .and(xrpc("com.atproto.repo.uploadBlob"))
        .and(bearer_token(ACCESS))
        .and(header("content-type", "image/png"))
        .and(body_bytes(b"bytes of cat".to_vec()))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "blob": blob })))
        .expect(1)
        .mount(&server)
        .await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let mut outgoing = post(bluesky.as_ref(), "Cat");
    outgoing.images = vec![image("cat")];
    publish(bluesky.as_ref(), &bluesky_account(), &mut outgoing).await.unwrap();
    let embed = repo.0.lock().unwrap()[0]["record"]["embed"].clone();
    let image = json!({ "image": blob, "alt": "a <cat>", "aspectRatio": { "width": 400, "height": 300 } });
    assert_eq!(embed, json!({ "$type": "app.bsky.embed.images", "images": [image] }));
}

#[tokio::test]
async fn a_link_card_is_embedded_unless_the_post_has_images() {
    let blob = json!({ "$type": "blob", "ref": { "$link": "bafkrei" }, "mimeType": "image/png", "size": 12 });
    let external = json!({ "uri": "https://a.example", "title": "Fish & Chips", "description": "" });
    let mut with_thumb = external.clone();
    with_thumb["thumb"] = blob.clone();
    for (thumb, external) in [(None, external), (Some(blob.clone()), with_thumb)] {
        let (server, repo) = pds().await;
        let bluesky = connector(Platform::Bluesky, &server.uri());
        let mut outgoing = post(bluesky.as_ref(), "See https://a.example");
        outgoing.card = Some(LinkCard { image: thumb, ..card() });
        bluesky.publish(&bluesky_account(), &outgoing).await.unwrap();
        let embed = repo.0.lock().unwrap()[0]["record"]["embed"].clone();
        assert_eq!(embed, json!({ "$type": "app.bsky.embed.external", "external": external }));
    }
    let (server, repo) = pds().await;
    respond(&server, "com.atproto.repo.uploadBlob", ResponseTemplate::new(200).set_body_json(json!({ "blob": blob })))
        .await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let mut outgoing = OutgoingPost { images: vec![image("cat")], card: Some(card()), ..post(bluesky.as_ref(), "Cat") };
    publish(bluesky.as_ref(), &bluesky_account(), &mut outgoing).await.unwrap();
    assert_eq!(repo.0.lock().unwrap()[0]["record"]["embed"]["$type"], json!("app.bsky.embed.images"));
}

fn card() -> LinkCard {
    LinkCard {
        url: "https://a.example".to_owned(),
        title: "Fish & Chips".to_owned(),
        description: String::new(),
        image: None,
    }
}

#[tokio::test]
async fn a_missing_image_of_a_link_card_requires_a_new_upload() {
    let server = MockServer::start().await;
    respond(&server, "com.atproto.repo.putRecord", error(400, "BlobNotFound", "Could not find blob: bafkrei")).await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    for (image, is_missing) in [(Some(json!({ "$type": "blob" })), true), (None, false)] {
        let outgoing = OutgoingPost {
            card: Some(LinkCard { image, ..card() }),
            ..post(bluesky.as_ref(), "See https://a.example")
        };
        let error = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap_err();
        assert_eq!(matches!(error, CallError::UploadsMissing(_)), is_missing, "{error:?}");
    }
}

/// A page may change between two calls.
#[tokio::test]
async fn a_record_with_another_link_card_counts_as_published() {
    let (server, repo) = pds().await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let outgoing = OutgoingPost { card: Some(card()), ..post(bluesky.as_ref(), "See https://a.example") };
    let first = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap();
    for card in [None, Some(LinkCard { title: "Another".to_owned(), ..card() })] {
        let again = OutgoingPost { card, attempt: 2, has_earlier_attempt: true, ..outgoing.clone() };
        assert_eq!(bluesky.publish(&bluesky_account(), &again).await.unwrap(), first);
    }
    assert_eq!(repo.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_failed_upload_is_transient() {
    let server = MockServer::start().await;
    respond(&server, "com.atproto.repo.uploadBlob", ResponseTemplate::new(502)).await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let mut outgoing = post(bluesky.as_ref(), "Cat");
    outgoing.images = vec![image("cat")];
    let error = publish(bluesky.as_ref(), &bluesky_account(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "nothing was published: {error:?}");
}

#[tokio::test]
async fn a_missing_blob_requires_a_new_upload() {
    let cases = [
        (error(400, "BlobNotFound", "Could not find blob: bafkrei"), true),
        (error(400, "InvalidRequest", "Could not find blob: bafkrei"), true),
        (error(400, "InvalidRequest", "Invalid app.bsky.feed.post record"), false),
        (error(500, "BlobNotFound", "x"), false),
    ];
    for (response, gone) in cases {
        let server = MockServer::start().await;
        let blob = ResponseTemplate::new(200).set_body_json(json!({ "blob": { "$type": "blob" } }));
        respond(&server, "com.atproto.repo.uploadBlob", blob).await;
        respond(&server, "com.atproto.repo.putRecord", response).await;
        let bluesky = connector(Platform::Bluesky, &server.uri());
        let mut outgoing = OutgoingPost { images: vec![image("cat")], ..post(bluesky.as_ref(), "Cat") };
        let error = publish(bluesky.as_ref(), &bluesky_account(), &mut outgoing).await.unwrap_err();
        let uploads_gone = matches!(&error, CallError::UploadsMissing(f) if f.category == Category::Media);
        assert_eq!(uploads_gone, gone, "{error:?}");
    }
}

#[tokio::test]
async fn publishing_twice_creates_one_record() {
    let (server, repo) = pds().await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let outgoing = post(bluesky.as_ref(), "Once #only");
    let first = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap();
    let again = OutgoingPost { attempt: 2, has_earlier_attempt: true, ..outgoing };
    assert_eq!(bluesky.publish(&bluesky_account(), &again).await.unwrap(), first);
    assert_eq!(repo.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_record_of_an_earlier_attempt_counts_as_published() {
    let (server, repo) = pds().await;
    let bluesky = connector(Platform::Bluesky, &server.uri());
    let outgoing = post(bluesky.as_ref(), "First words");
    let first = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap();
    let edited = OutgoingPost { text: "Second thoughts".to_owned(), ..outgoing.clone() };
    assert_eq!(bluesky.publish(&bluesky_account(), &edited).await.unwrap(), first);

    // A record of another time under the key is not this post.
    repo.0.lock().unwrap()[0]["record"]["createdAt"] = json!("2020-01-01T00:00:00.000Z");
    let error = bluesky.publish(&bluesky_account(), &edited).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::DuplicateContent), "{error:?}");
}

#[tokio::test]
async fn markers_are_deterministic_per_target() {
    let bluesky = connector(Platform::Bluesky, "http://127.0.0.1:1");
    let (one, two) = (post(bluesky.as_ref(), "a"), post(bluesky.as_ref(), "b"));
    assert_eq!(one.marker, two.marker);
    let mut lost = one;
    lost.marker.clear();
    assert!(matches!(bluesky.publish(&bluesky_account(), &lost).await, Err(CallError::Transient(_))));
}

/// Publishes over a connection that breaks, then reconciles.
async fn reconcile_after_disconnect(look_up: ScriptStep) -> (Result<ReconcileResult, CallError>, Vec<String>) {
    let script = ScriptedServer::start(vec![ScriptStep::HangUp, look_up]).await;
    let bluesky = connector(Platform::Bluesky, &script.base);
    let outgoing = post(bluesky.as_ref(), "Hi");
    let error = bluesky.publish(&bluesky_account(), &outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::Unknown(f) if f.category == Category::OutcomeUnknown), "{error:?}");
    assert!(bluesky.can_reconcile());
    (bluesky.reconcile(&bluesky_account(), &outgoing).await, script.requests())
}

#[tokio::test]
async fn reconcile_finds_the_record_by_key() {
    let uri = format!("at://{DID}/app.bsky.feed.post/x");
    let (found, requests) =
        reconcile_after_disconnect(ScriptStep::Respond(200, json!({ "uri": uri, "cid": "c", "value": {} }))).await;
    let ReconcileResult::Found(published) = found.unwrap() else { panic!("not found") };
    assert_eq!(published.external_id, uri);
    assert!(requests[1].starts_with("GET /xrpc/com.atproto.repo.getRecord?repo=did%3Aplc%3Aalice&collection="));

    for (name, message) in [("RecordNotFound", "x"), ("InvalidRequest", "Could not locate record: at://x")] {
        let (absent, _) =
            reconcile_after_disconnect(ScriptStep::Respond(400, json!({ "error": name, "message": message }))).await;
        assert_eq!(absent.unwrap(), ReconcileResult::Absent);
    }
    let (failed, _) = reconcile_after_disconnect(ScriptStep::HangUp).await;
    assert!(matches!(failed, Err(CallError::Transient(_))), "a failed look-up proves nothing");
}

#[tokio::test]
async fn errors_are_classified_by_name() {
    let error_of =
        |status, name: &'static str, message: &'static str| publish_expecting_error(error(status, name, message));
    for name in ["ExpiredToken", "InvalidToken"] {
        assert!(matches!(error_of(400, name, "Token has expired").await, CallError::AuthExpired(_)), "{name}");
    }
    assert!(matches!(error_of(401, "AuthMissing", "Authentication Required").await, CallError::Reauth(_)));
    for (status, name, message, category) in [
        (400, "AccountTakedown", "Account has been taken down", Category::Account),
        (
            400,
            "InvalidRequest",
            "Invalid app.bsky.feed.post record: Record/text must not be longer than 300 graphemes",
            Category::InvalidContent,
        ),
        (400, "InvalidRequest", "Input/repo must be a valid did", Category::PlatformRejected),
        (413, "PayloadTooLarge", "request entity too large", Category::InvalidContent),
    ] {
        let error = error_of(status, name, message).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == category), "{error:?}");
        assert_eq!(error.failure().platform_code.as_deref(), Some(name));
    }
    assert!(matches!(error_of(500, "InternalServerError", "x").await, CallError::Unknown(_)));
    assert!(matches!(error_of(502, "ExpiredToken", "a proxy that says so").await, CallError::Unknown(_)));
}

#[tokio::test]
async fn a_rate_limit_uses_the_reset_header() {
    let reset = (now() + TimeDelta::minutes(5)).timestamp().to_string();
    let response = error(429, "RateLimitExceeded", "x").insert_header("RateLimit-Reset", reset.as_str());
    let error = publish_expecting_error(response).await;
    assert!(
        matches!(error, CallError::RateLimited { until, .. } if until == Some(now() + TimeDelta::minutes(5))),
        "{error:?}"
    );
}
