//! X, against a server that responds as its documents specify.

use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_in_browser, connector, image, now, post, publish, shown,
    unused_address,
};
use crate::support::oauth::{OAuthServer, TokenRules, bearer};

#[derive(Clone)]
struct X {
    oauth: Arc<OAuthServer>,
    tweets: Arc<Mutex<Vec<Value>>>,
    uploads: Arc<Mutex<Vec<String>>>,
    alts: Arc<Mutex<Vec<Value>>>,
    scripted: Arc<Mutex<Vec<ResponseTemplate>>>,
}

impl Respond for X {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/2/oauth2/token" {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return problem(401, "about:blank", "Unauthorized");
        }
        let response = |status: u16, body: Value| ResponseTemplate::new(status).set_body_json(body);
        if path == "/2/users/me" {
            let data =
                json!({ "id": "44", "username": "ann_b", "name": "Ann", "profile_image_url": "https://p.example/a" });
            return response(200, json!({ "data": data }));
        }
        if let Some(response) = self.scripted.lock().unwrap().pop() {
            return response;
        }
        match (request.method.as_str(), path) {
            ("POST", "/2/media/upload") => {
                let mut uploads = self.uploads.lock().unwrap();
                uploads.push(String::from_utf8_lossy(&request.body).into_owned());
                response(200, json!({ "data": { "id": format!("m{}", uploads.len()), "media_key": "3_1" } }))
            }
            ("POST", "/2/media/metadata") => {
                self.alts.lock().unwrap().push(request.body_json().unwrap());
                response(200, json!({ "data": { "id": "m" } }))
            }
            ("POST", "/2/tweets") => {
                let mut tweets = self.tweets.lock().unwrap();
                tweets.push(request.body_json().unwrap());
                let id = format!("{}", 9_000 + tweets.len());
                response(201, json!({ "data": { "id": id, "text": "…" } }))
            }
            ("GET", "/2/users/44/tweets") => {
                let tweets = self.tweets.lock().unwrap();
                let shown: Vec<Value> = tweets
                    .iter()
                    .enumerate()
                    .rev()
                    .map(|(index, tweet)| {
                        let text = tweet["text"].as_str().unwrap().replace('&', "&amp;").replace('<', "&lt;");
                        let text = text.replace("example.com/bread", "https://t.co/abc123");
                        let media = if tweet.get("media").is_some() { " https://t.co/pic" } else { "" };
                        json!({ "id": (9_001 + index).to_string(), "text": format!("{text}{media}"), "created_at": now() })
                    })
                    .collect();
                match shown.is_empty() {
                    true => response(200, json!({ "meta": { "result_count": 0 } })),
                    false => response(200, json!({ "data": shown, "meta": {} })),
                }
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}

fn problem(status: u16, kind: &str, detail: &str) -> ResponseTemplate {
    let body = json!({ "type": kind, "title": "Problem", "detail": detail, "status": status });
    ResponseTemplate::new(status).set_body_json(body)
}

fn ann() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
    });
    ConnectorAccount { username: Some("ann_b".to_owned()), ..account("44", secrets) }
}

async fn start() -> (X, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let rules = TokenRules { expires_in: Some(7_200), refreshes: true, ..TokenRules::default() };
    let fake = X {
        oauth: Arc::new(OAuthServer::new(rules)),
        tweets: Arc::default(),
        uploads: Arc::default(),
        alts: Arc::default(),
        scripted: Arc::default(),
    };
    fake.oauth.add_client("id", "secret");
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
    let connector = connector(Platform::Twitter, &server.uri());
    (fake, server, connector, ann())
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push(response);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(fake.tweets.lock().unwrap().is_empty());
    error
}

#[tokio::test]
async fn an_account_is_connected_with_pkce() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://x.com/i/oauth2/authorize");
    assert!(attempt.server.pkce);
    assert_eq!((connected.external_id.as_str(), connected.username.as_deref()), ("44", Some("ann_b")));
    assert_eq!(connected.profile_url.as_deref(), Some("https://x.com/ann_b"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::hours(2)));
    assert!(connected.renewal.is_some_and(|renewal| renewal.renewable && renewal.rotates));
}

#[tokio::test]
async fn images_go_out_in_order_with_their_alt_texts() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://x.com/ann_b/status/9001"));
    assert_eq!(fake.tweets.lock().unwrap()[0], json!({ "text": "Two", "media": { "media_ids": ["m1", "m2"] } }));
    for (upload, name) in fake.uploads.lock().unwrap().iter().zip(["cat", "dog"]) {
        assert!(upload.contains(&format!("bytes of {name}")) && upload.contains("tweet_image"), "{upload}");
    }
    let alts = fake.alts.lock().unwrap().clone();
    assert_eq!(alts[1], json!({ "id": "m2", "metadata": { "alt_text": { "text": "a <dog>" } } }));
    let mut plain = post(connector.as_ref(), "Text alone");
    publish(connector.as_ref(), &account, &mut plain).await.unwrap();
    assert_eq!(fake.tweets.lock().unwrap()[1], json!({ "text": "Text alone" }));
}

#[tokio::test]
async fn reconcile_compares_texts_without_links() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Rye & <b> at example.com/bread, today");
    outgoing.images = vec![image("cat")];
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    let other = OutgoingPost { text: "Rye at example.com/bread".to_owned(), ..outgoing.clone() };
    assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    fake.scripted.lock().unwrap().push(problem(503, "about:blank", "Over capacity"));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_each_refresh_token() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let secrets = connector.refresh(&account).await.unwrap().secrets.unwrap();
    assert_ne!(shown(&secrets)["refresh_token"], "refresh-0");
    connector.publish(&ConnectorAccount { secrets, ..account.clone() }, &outgoing).await.unwrap();
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
    let refresh = async |body: Value| {
        let server = ScriptedServer::start(vec![ScriptStep::Respond(400, body)]).await;
        super::support::connector(Platform::Twitter, &server.base).refresh(&ann()).await.unwrap_err()
    };
    let used = json!({ "error": "invalid_request", "error_description": "Value passed for the token was invalid." });
    assert!(matches!(refresh(used).await, CallError::Reauth(_)));
    let wrong = json!({ "error": "invalid_request", "error_description": "Missing required parameter." });
    assert!(matches!(refresh(wrong).await, CallError::Transient(_)));
}

#[tokio::test]
async fn errors_are_classified() {
    let duplicate = "You are not allowed to create a Tweet with duplicate content.";
    for (status, detail, category) in [
        (403, duplicate, Category::DuplicateContent),
        (403, "You are not permitted to perform this action.", Category::PlatformRejected),
        (400, "The maximum of one cashtag", Category::InvalidContent),
    ] {
        let error = publish_expecting_error(problem(status, "about:blank", detail)).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right, "{detail}: {error:?}");
    }
    let suspended = publish_expecting_error(problem(403, "about:blank", "Your account is suspended")).await;
    assert!(matches!(suspended, CallError::Reauth(_)), "{suspended:?}");
    let reset = Utc.with_ymd_and_hms(2026, 3, 1, 12, 15, 0).unwrap();
    let response = problem(429, "about:blank", "Too Many Requests")
        .insert_header("x-rate-limit-reset", reset.timestamp().to_string());
    let CallError::RateLimited { until, .. } = publish_expecting_error(response).await else { panic!("a limit") };
    assert_eq!(until, Some(reset));
    let capped = "https://api.twitter.com/2/problems/usage-capped";
    for response in [problem(429, capped, "Usage cap exceeded"), problem(402, "about:blank", "Payment Required")] {
        let CallError::RateLimited { until, failure } = publish_expecting_error(response).await else {
            panic!("a limit")
        };
        assert_eq!(until, Some(now() + TimeDelta::hours(6)));
        assert!(failure.message.contains("credits"), "{failure:?}");
    }
}

#[tokio::test]
async fn a_broken_response_leaves_the_outcome_unknown() {
    for status in [500, 502, 503, 504] {
        let unknown = publish_expecting_error(problem(status, "about:blank", "oops")).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Twitter, &server.base);
    let unknown = broken.publish(&ann(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Twitter, &unused_address().await);
    let passing = away.publish(&ann(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
