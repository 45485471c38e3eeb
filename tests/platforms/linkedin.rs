//! LinkedIn, against a server that answers as its documentation says.

use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, TimeZone, Utc};
use crier_common::domain::failure::Category;
use crier_common::domain::platform::Platform;
use crier_common::platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, Reconciled};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_in_browser, connector, image, now, post, publish, shown,
    unused_address,
};
use crate::support::oauth::{OAuthServer, TokenRules, bearer};

#[derive(Clone)]
struct Linkedin {
    oauth: Arc<OAuthServer>,
    posts: Arc<Mutex<Vec<Value>>>,
    pictures: Arc<Mutex<Vec<String>>>,
    scripted: Arc<Mutex<Vec<ResponseTemplate>>>,
    base: Arc<Mutex<String>>,
}

impl Respond for Linkedin {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/oauth/v2/accessToken" {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return ResponseTemplate::new(401).set_body_json(
                json!({ "status": 401, "serviceErrorCode": 65_602, "message": "The token has expired" }),
            );
        }
        if path.starts_with("/rest/") {
            let version = request.headers.get("linkedin-version").and_then(|v| v.to_str().ok());
            assert_eq!(version, Some("202607"));
        }
        match (request.method.as_str(), path) {
            ("GET", "/v2/userinfo") => ResponseTemplate::new(200).set_body_json(json!({
                "sub": "782bbtaQ", "name": "Ann Baker", "picture": "https://p.example/a.png",
            })),
            ("POST", "/rest/images") => {
                assert_eq!(request.url.query(), Some("action=initializeUpload"));
                let number = self.pictures.lock().unwrap().len();
                let base = self.base.lock().unwrap().clone();
                ResponseTemplate::new(200).set_body_json(json!({
                    "value": { "uploadUrl": format!("{base}/upload/{number}"), "image": format!("urn:li:image:{number}") },
                }))
            }
            ("PUT", _) => {
                self.pictures.lock().unwrap().push(String::from_utf8_lossy(&request.body).into_owned());
                ResponseTemplate::new(201)
            }
            ("POST", "/rest/posts") => {
                if let Some(answer) = self.scripted.lock().unwrap().pop() {
                    return answer;
                }
                let mut posts = self.posts.lock().unwrap();
                posts.push(request.body_json().unwrap());
                ResponseTemplate::new(201).insert_header("x-restli-id", format!("urn:li:share:{}", posts.len()))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}

fn person() -> ConnectorAccount {
    let secrets = json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" });
    account("782bbtaQ", secrets)
}

async fn start() -> (Linkedin, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let rules = TokenRules { expires_in: Some(5_184_000), refreshes: false };
    let fake = Linkedin {
        oauth: Arc::new(OAuthServer::new(rules)),
        posts: Arc::default(),
        pictures: Arc::default(),
        scripted: Arc::default(),
        base: Arc::default(),
    };
    fake.oauth.add_client("id", "secret");
    fake.oauth.add_token("access-0");
    let server = MockServer::start().await;
    *fake.base.lock().unwrap() = server.uri();
    Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
    let connector = connector(Platform::Linkedin, &server.uri());
    (fake, server, connector, person())
}

fn error(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

async fn publish_expecting_error(answer: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push(answer);
    let error = connector.publish(&account, &post(connector.as_ref(), "Hi")).await.unwrap_err();
    assert!(fake.posts.lock().unwrap().is_empty());
    error
}

#[tokio::test]
async fn a_person_is_connected_for_sixty_days() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://www.linkedin.com/oauth/v2/authorization");
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("782bbtaQ", "Ann Baker"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(60)));
    let renewal = connected.renewal.unwrap();
    assert_eq!(renewal.access_ends_at(connected.token_expires_at), connected.token_expires_at);
    assert_eq!(shown(&connected.secrets)["client_id"], "id");
}

#[tokio::test]
async fn a_text_is_published_escaped() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Fresh (rye) #bread @home <b> a_b #1 C# #");
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "urn:li:share:1");
    assert_eq!(published.url.as_deref(), Some("https://www.linkedin.com/feed/update/urn:li:share:1"));
    let sent = fake.posts.lock().unwrap()[0].clone();
    let expected = r"Fresh \(rye\) {hashtag|\#|bread} \@home \<b\> a\_b {hashtag|\#|1} C\# \#";
    assert_eq!((&sent["commentary"], &sent["author"]), (&json!(expected), &json!("urn:li:person:782bbtaQ")));
    assert_eq!((&sent["visibility"], sent.get("content")), (&json!("PUBLIC"), None));
}

#[tokio::test]
async fn pictures_and_links_are_shown() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = post(connector.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let mut outgoing = post(connector.as_ref(), "One");
    outgoing.images = vec![image("cat")];
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let mut outgoing = post(connector.as_ref(), "Link");
    outgoing.options.insert("link".to_owned(), json!("https://example.com"));
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    let posts = fake.posts.lock().unwrap().clone();
    let two = json!([
        { "id": "urn:li:image:0", "altText": "a <cat>" }, { "id": "urn:li:image:1", "altText": "a <dog>" },
    ]);
    assert_eq!(posts[0]["content"]["multiImage"]["images"], two);
    assert_eq!(posts[1]["content"]["media"], json!({ "id": "urn:li:image:2", "altText": "a <cat>" }));
    assert_eq!(posts[2]["content"]["article"]["source"], "https://example.com");
    assert_eq!(*fake.pictures.lock().unwrap(), ["bytes of cat", "bytes of dog", "bytes of cat"]);
}

#[tokio::test]
async fn an_upload_goes_to_linkedin_alone() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = post(connector.as_ref(), "One");
    for evil in ["https://evil.example", "https://linkedin.com.evil.example", "http://www.linkedin.com", "file:///etc"]
    {
        *fake.base.lock().unwrap() = evil.to_owned();
        let error = connector.upload(&account, &outgoing, &image("cat")).await.unwrap_err();
        assert!(error.failure().message.contains("not its own"), "{evil}: {error:?}");
    }
}

#[tokio::test]
async fn a_duplicate_of_an_earlier_call_is_adopted() {
    let duplicate = || {
        error(
            422,
            json!({
                "message": "Content is a duplicate of urn:li:share:7", "status": 422,
                "errorDetails": { "inputErrors": [{ "code": "DUPLICATE_POST" }] },
            }),
        )
    };
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push(duplicate());
    let again = OutgoingPost { has_earlier_attempt: true, ..post(connector.as_ref(), "Hi") };
    assert_eq!(connector.publish(&account, &again).await.unwrap().external_id, "urn:li:share:7");
    let fresh = publish_expecting_error(duplicate()).await;
    assert!(matches!(&fresh, CallError::Permanent(f) if f.category == Category::DuplicateContent), "{fresh:?}");
    assert!(!connector.can_reconcile());
    assert_eq!(connector.reconcile(&account, &again).await.unwrap(), Reconciled::Unsupported);
}

#[tokio::test]
async fn an_expired_token_asks_for_a_person() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = post(connector.as_ref(), "Hi");
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    let limited = publish_expecting_error(error(429, json!({ "message": "Resource level throttle" }))).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(Utc.with_ymd_and_hms(2026, 3, 2, 0, 0, 0).unwrap()));
    let dead = publish_expecting_error(error(426, json!({ "message": "NONEXISTENT_VERSION" }))).await;
    assert!(matches!(&dead, CallError::Transient(f) if f.message.contains("CRIER_LINKEDIN_API_VERSION")), "{dead:?}");
    let denied = publish_expecting_error(error(403, json!({ "serviceErrorCode": 100, "message": "Not enough" }))).await;
    assert!(matches!(&denied, CallError::Permanent(f) if f.category == Category::Account), "{denied:?}");
    let invalid = publish_expecting_error(error(422, json!({ "message": "too long" }))).await;
    assert!(matches!(&invalid, CallError::Permanent(f) if f.category == Category::InvalidContent), "{invalid:?}");
    for status in [500, 503, 504] {
        let unknown = publish_expecting_error(error(status, json!({}))).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{status}: {unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Linkedin, &server.base);
    let unknown = broken.publish(&person(), &post(broken.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Linkedin, &unused_address().await);
    let passing = away.publish(&person(), &post(away.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
