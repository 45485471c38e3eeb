//! Pinterest, against a server that responds as its OpenAPI document specifies.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_in_browser, connector, image, now, post, publish, shown,
    unpublish_post, unused_address,
};
use crate::support::oauth::{OAuthServer, TokenRules, bearer};
use crate::support::pinterest_videos::error;

#[derive(Clone)]
struct Pinterest {
    oauth: Arc<OAuthServer>,
    pins: Arc<Mutex<Vec<Value>>>,
    scripted: Arc<Mutex<Vec<ResponseTemplate>>>,
}

impl Respond for Pinterest {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/v5/oauth/token" {
            assert!(request.headers.contains_key("authorization"), "the application is named by Basic");
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return error(401, 2, "Authentication failed.");
        }
        let response = |status: u16, body: Value| ResponseTemplate::new(status).set_body_json(body);
        if path == "/v5/user_account" {
            return response(
                200,
                json!({
                    "id": "643", "username": "ann", "business_name": "Ann's", "profile_image": "https://p.example/a.png",
                }),
            );
        }
        if let Some(response) = self.scripted.lock().unwrap().pop() {
            return response;
        }
        let mut pins = self.pins.lock().unwrap();
        match (request.method.as_str(), path) {
            ("POST", "/v5/pins") => {
                let mut pin: Value = request.body_json().unwrap();
                pin["id"] = json!((900 + pins.len()).to_string());
                pin["created_at"] = json!("2026-03-01T12:00:05");
                pins.push(pin.clone());
                response(201, pin)
            }
            ("GET", "/v5/pins") => {
                response(200, json!({ "items": pins.iter().rev().collect::<Vec<_>>(), "bookmark": null }))
            }
            ("GET", "/v5/boards") => response(200, json!({ "items": [], "bookmark": null })),
            ("DELETE", path) => {
                let id = path.strip_prefix("/v5/pins/").unwrap();
                let found = pins.iter().position(|pin| pin["id"] == id);
                match found.map(|at| pins.remove(at)) {
                    Some(_) => ResponseTemplate::new(204),
                    None => error(404, 50, "Pin not found."),
                }
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}

fn ann() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
    });
    account("643", secrets)
}

async fn start() -> (Pinterest, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let rules = TokenRules { expires_in: Some(2_592_000), refreshes: true, ..TokenRules::default() };
    let fake = Pinterest { oauth: Arc::new(OAuthServer::new(rules)), pins: Arc::default(), scripted: Arc::default() };
    fake.oauth.add_client("id", "secret");
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
    let connector = connector(Platform::Pinterest, &server.uri());
    (fake, server, connector, ann())
}

fn pin_post(connector: &dyn Connector, images: &[&str]) -> OutgoingPost {
    let mut outgoing = post(connector, "Rye & more");
    outgoing.images = images.iter().map(|name| image(name)).collect();
    let options = json!({ "board": "77", "title": "Bread", "link": "https://example.com/" });
    outgoing.options = options.as_object().unwrap().clone();
    outgoing
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push(response);
    let error = connector.publish(&account, &pin_post(connector.as_ref(), &["cat"])).await.unwrap_err();
    assert!(fake.pins.lock().unwrap().is_empty());
    error
}

#[tokio::test]
async fn an_account_is_connected_with_tokens_that_rotate() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://www.pinterest.com/oauth/");
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("643", "Ann's"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://www.pinterest.com/ann/"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(30)));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && renewal.rotates);
}

#[tokio::test]
async fn pins_carry_their_images() {
    let (fake, _server, connector, account) = start().await;
    let published = publish(connector.as_ref(), &account, &mut pin_post(connector.as_ref(), &["cat"])).await.unwrap();
    assert_eq!(published.external_id, "900");
    assert_eq!(published.url.as_deref(), Some("https://www.pinterest.com/pin/900/"));
    publish(connector.as_ref(), &account, &mut pin_post(connector.as_ref(), &["cat", "dog"])).await.unwrap();
    let pins = fake.pins.lock().unwrap().clone();
    let one = &pins[0];
    assert_eq!((&one["board_id"], &one["title"], &one["alt_text"]), (&json!("77"), &json!("Bread"), &json!("a <cat>")));
    assert_eq!((&one["description"], &one["link"]), (&json!("Rye & more"), &json!("https://example.com/")));
    let data = STANDARD.encode("bytes of cat");
    let source = json!({ "source_type": "image_base64", "content_type": "image/png", "data": data });
    assert_eq!(one["media_source"], source);
    let items = pins[1]["media_source"]["items"].as_array().unwrap();
    let sent: Vec<_> = items.iter().map(|item| STANDARD.decode(item["data"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(sent, [b"bytes of cat".to_vec(), b"bytes of dog".to_vec()]);
    let mut homeless = pin_post(connector.as_ref(), &["cat"]);
    homeless.options.remove("board");
    let error = connector.publish(&account, &homeless).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent), "{error:?}");
}

#[tokio::test]
async fn reconcile_finds_the_pin() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = pin_post(connector.as_ref(), &["cat"]);
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    for (name, value) in [("board", "78"), ("title", "Other"), ("link", "https://other.example/")] {
        let mut other = outgoing.clone();
        other.options.insert(name.to_owned(), json!(value));
        assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent, "{name}");
    }
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    fake.scripted.lock().unwrap().push(error(500, 0, "oops"));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn a_pin_is_deleted_and_a_deletion_can_be_repeated() {
    let (fake, _server, connector, account) = start().await;
    for _ in 0..2 {
        publish(connector.as_ref(), &account, &mut pin_post(connector.as_ref(), &["cat"])).await.unwrap();
    }
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("900")).await.unwrap();
        let left = fake.pins.lock().unwrap().clone();
        assert_eq!((left.len(), &left[0]["id"]), (1, &json!("901")));
    }
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (fake, _server, connector, account) = start().await;
    let post = unpublish_post("900");
    fake.scripted.lock().unwrap().push(error(403, 29, "You are not permitted to access that resource."));
    let forbidden = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&forbidden, CallError::Permanent(f) if f.category == Category::Account), "{forbidden:?}");
    fake.scripted.lock().unwrap().push(error(429, 8, "Slow down").insert_header("X-RateLimit-Reset", "30"));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { until: Some(_), .. })));
    fake.scripted.lock().unwrap().push(error(500, 0, "oops"));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Transient(_))));
    fake.oauth.revoke("access-0");
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::AuthExpired(_))));
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let lost = connector_at(&server.base).unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(lost, CallError::Transient(_)), "{lost:?}");
}

fn connector_at(base: &str) -> Arc<dyn Connector> {
    connector(Platform::Pinterest, base)
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_each_refresh_token() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = pin_post(connector.as_ref(), &["cat"]);
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let secrets = connector.refresh(&account).await.unwrap().secrets.unwrap();
    assert_ne!(shown(&secrets)["refresh_token"], "refresh-0");
    connector.publish(&ConnectorAccount { secrets, ..account.clone() }, &outgoing).await.unwrap();
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    for (status, category) in
        [(400, Category::InvalidContent), (403, Category::Account), (404, Category::InvalidContent)]
    {
        let error = publish_expecting_error(error(status, 1, "No")).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right, "{status}: {error:?}");
    }
    let limited = publish_expecting_error(error(429, 8, "Slow down").insert_header("X-RateLimit-Reset", "30")).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::seconds(30)));
    for status in [500, 502, 503] {
        let unknown = publish_expecting_error(error(status, 0, "oops")).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Pinterest, &server.base);
    let unknown = broken.publish(&ann(), &pin_post(broken.as_ref(), &["cat"])).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Pinterest, &unused_address().await);
    let passing = away.publish(&ann(), &pin_post(away.as_ref(), &["cat"])).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
