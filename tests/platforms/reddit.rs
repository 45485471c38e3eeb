//! Reddit, against a server that responds as its documents and PRAW specify.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult, UploadedImage,
};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connect_in_browser, connector, image, now, post, publish, shown,
    unused_address,
};
use crate::support::oauth::{OAuthServer, TokenRules, bearer, form};
use crate::support::reddit_videos::submit_error;
use crate::support::request::assert_fields;

#[derive(Clone)]
struct Reddit {
    oauth: Arc<OAuthServer>,
    /// The fields of each submission.
    posts: Arc<Mutex<Vec<Value>>>,
    /// The bodies of the storage's forms.
    stored: Arc<Mutex<Vec<String>>>,
    scripted: Arc<Mutex<VecDeque<ResponseTemplate>>>,
    agents: Arc<Mutex<Vec<String>>>,
    /// Whether posts with one image are listed later.
    processing: Arc<Mutex<bool>>,
    /// The URL to which images are sent.
    storage: Arc<Mutex<String>>,
}

fn response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

impl Reddit {
    fn submit(&self, fields: Value) -> ResponseTemplate {
        let (kind, sr) = (fields["kind"].as_str().unwrap_or("gallery").to_owned(), fields["sr"].clone());
        let mut posts = self.posts.lock().unwrap();
        posts.push(fields);
        let id = format!("p{}", posts.len());
        let data = match kind.as_str() {
            "image" => json!({ "user_submitted_page": "https://x.example", "websocket_url": "wss://ws.example/1" }),
            "gallery" => json!({ "url": format!("https://www.reddit.com/gallery/{id}") }),
            _ => {
                let url = format!("https://www.reddit.com/r/{}/comments/{id}/x/", sr.as_str().unwrap());
                json!({ "id": id, "name": format!("t3_{id}"), "url": url })
            }
        };
        response(200, json!({ "json": { "errors": [], "data": data } }))
    }

    fn lease(&self, request: &Request) -> ResponseTemplate {
        let form = form(request);
        let number = self.stored.lock().unwrap().len();
        let fields = json!([
            { "name": "key", "value": format!("rte_images/{number}-{}", form["filepath"]) },
            { "name": "Content-Type", "value": form["mimetype"] },
            { "name": "x-amz-signature", "value": "signed" },
        ]);
        let action = self.storage.lock().unwrap().clone();
        let asset = json!({ "asset_id": format!("asset-{number}"), "websocket_url": "wss://ws.example/1" });
        response(200, json!({ "args": { "action": action, "fields": fields }, "asset": asset }))
    }

    fn submitted(&self) -> ResponseTemplate {
        let (posts, processing) = (self.posts.lock().unwrap(), *self.processing.lock().unwrap());
        let listed = (1..).zip(posts.iter()).filter(|(_, post)| !processing || post["kind"] != "image");
        let child = |(number, post): (usize, &Value)| {
            let data = json!({
                "name": format!("t3_p{number}"), "title": post["title"], "subreddit": post["sr"],
                "created_utc": now().timestamp() as f64 + 5.0, "selftext": post["text"],
            });
            json!({ "kind": "t3", "data": data })
        };
        let mut children: Vec<Value> = listed.map(child).collect();
        children.reverse();
        response(200, json!({ "kind": "Listing", "data": { "children": children, "after": null } }))
    }
}

impl Respond for Reddit {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let agent = request.headers.get_all("user-agent").iter().map(|value| value.to_str().unwrap());
        self.agents.lock().unwrap().push(agent.collect::<Vec<_>>().join("; "));
        let (method, path) = (request.method.as_str(), request.url.path());
        if (method, path) == ("POST", "/api/v1/access_token") {
            assert!(request.headers.contains_key("authorization"), "the application is named by Basic");
            let form = form(request);
            let rejected = form.get("refresh_token").is_some_and(|token| !self.oauth.knows_refresh_token(token));
            return match rejected {
                true => response(400, json!({ "message": "Bad Request", "error": 400 })),
                false => self.oauth.token(request),
            };
        }
        if (method, path) == ("POST", "/storage") {
            assert!(!request.headers.contains_key("authorization"), "the token stays with Reddit");
            self.stored.lock().unwrap().push(String::from_utf8_lossy(&request.body).into_owned());
            return ResponseTemplate::new(201);
        }
        if (method, path) == ("POST", "/api/v1/revoke_token") {
            assert_eq!(form(request)["token"], "refresh-0");
            return ResponseTemplate::new(200);
        }
        if !self.oauth.knows(&bearer(request)) {
            return response(401, json!({ "message": "Unauthorized", "error": 401 }));
        }
        if let Some(response) = self.scripted.lock().unwrap().pop_front() {
            return response;
        }
        match (method, path) {
            ("GET", "/api/v1/me") => {
                response(200, json!({ "id": "4xyz", "name": "ann_b", "icon_img": "https://p.example/a.png" }))
            }
            ("POST", "/api/media/asset.json") => self.lease(request),
            ("POST", "/api/submit") => {
                let fields: BTreeMap<String, String> = form(request);
                self.submit(json!(fields))
            }
            ("POST", "/api/submit_gallery_post.json") => self.submit(request.body_json().unwrap()),
            ("GET", "/user/ann_b/submitted") => self.submitted(),
            other => panic!("no such call: {other:?}"),
        }
    }
}

pub fn ann() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
    });
    ConnectorAccount { username: Some("ann_b".to_owned()), ..account("4xyz", secrets) }
}

async fn start() -> (Reddit, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let rules = TokenRules { expires_in: Some(86_400), refreshes: true, ..TokenRules::default() };
    let fake = Reddit {
        oauth: Arc::new(OAuthServer::new(rules)),
        posts: Arc::default(),
        stored: Arc::default(),
        scripted: Arc::default(),
        agents: Arc::default(),
        processing: Arc::default(),
        storage: Arc::default(),
    };
    fake.oauth.add_client("id", "secret");
    fake.oauth.add_token("access-0");
    fake.oauth.add_refresh_token("refresh-0");
    let server = MockServer::start().await;
    *fake.storage.lock().unwrap() = format!("{}/storage", server.uri());
    Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
    let connector = connector(Platform::Reddit, &server.uri());
    (fake, server, connector, ann())
}

fn reddit_post(connector: &dyn Connector, images: &[&str], more: Value) -> OutgoingPost {
    let mut outgoing = post(connector, "Rye & more");
    outgoing.images = images.iter().map(|name| image(name)).collect();
    outgoing.options.insert("subreddit".to_owned(), json!("Bread"));
    outgoing.options.insert("title".to_owned(), json!("Fresh"));
    outgoing.options.extend(more.as_object().unwrap().clone());
    outgoing
}

async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector, account) = start().await;
    fake.scripted.lock().unwrap().push_back(response);
    let error = connector.publish(&account, &reddit_post(connector.as_ref(), &[], json!({}))).await.unwrap_err();
    assert!(fake.posts.lock().unwrap().is_empty());
    error
}

fn url(id: &str) -> Option<String> {
    Some(format!("https://www.reddit.com/r/Bread/comments/{id}/"))
}

#[tokio::test]
async fn an_account_is_connected_with_a_token_that_is_renewed() {
    let (fake, _server, connector, _) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://www.reddit.com/api/v1/authorize");
    assert_eq!(attempt.server.extra, [("duration".to_owned(), "permanent".to_owned())]);
    assert_eq!((connected.external_id.as_str(), connected.username.as_deref()), ("4xyz", Some("ann_b")));
    assert_eq!(connected.profile_url.as_deref(), Some("https://www.reddit.com/user/ann_b"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::days(1)));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && !renewal.rotates);
}

#[tokio::test]
async fn texts_and_links_are_posted() {
    let (fake, _server, connector, account) = start().await;
    let text = reddit_post(connector.as_ref(), &[], json!({ "flair_id": "f-1", "flair_text": "News", "nsfw": true }));
    let published = connector.publish(&account, &text).await.unwrap();
    assert_eq!(published, Published::new("t3_p1", url("p1")));
    let link =
        reddit_post(connector.as_ref(), &[], json!({ "subreddit": "r/u_ann_b", "link": "https://example.com/" }));
    connector.publish(&account, &link).await.unwrap();
    let posts = fake.posts.lock().unwrap().clone();
    let expected = json!({
        "api_type": "json", "sr": "Bread", "title": "Fresh", "kind": "self", "text": "Rye & more", "nsfw": "true",
        "spoiler": "false", "sendreplies": "true", "resubmit": "true", "validate_on_submit": "true",
        "flair_id": "f-1", "flair_text": "News",
    });
    assert_eq!(posts[0], expected);
    assert_eq!((&posts[1]["kind"], &posts[1]["url"]), (&json!("link"), &json!("https://example.com/")));
    assert_eq!((&posts[1]["sr"], &posts[1]["text"]), (&json!("u_ann_b"), &json!("Rye & more")));
    let agent = format!("web:crier-id:v{} (by /u/ann_b)", env!("CARGO_PKG_VERSION"));
    assert_eq!(*fake.agents.lock().unwrap(), [agent.as_str(), agent.as_str()]);
}

#[tokio::test]
async fn one_image_is_a_post_that_is_found_afterwards() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = reddit_post(connector.as_ref(), &["cat"], json!({}));
    let accepted = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(accepted, CallError::Accepted { .. }), "its name is not known yet: {accepted:?}");
    let found = connector.reconcile(&account, &outgoing).await.unwrap();
    assert_eq!(found, ReconcileResult::Matches(vec![Published::new("t3_p1", url("p1"))]));
    let sent = fake.posts.lock().unwrap()[0].clone();
    let place = fake.storage.lock().unwrap().clone();
    assert_eq!((&sent["kind"], &sent["url"]), (&json!("image"), &json!(format!("{place}/rte_images/0-cat.png"))));
    assert_eq!(sent["text"], "Rye & more");
    let stored = fake.stored.lock().unwrap()[0].clone();
    for part in ["name=\"key\"", "rte_images/0-cat.png", "x-amz-signature", "name=\"file\"", "bytes of cat"] {
        assert!(stored.contains(part), "{part}: {stored}");
    }
    assert!(stored.find("name=\"key\"") < stored.find("name=\"file\""), "the file is the last");
}

#[tokio::test]
async fn an_image_in_processing_is_looked_for_again_and_not_posted_twice() {
    let (fake, _server, connector, account) = start().await;
    *fake.processing.lock().unwrap() = true;
    let mut outgoing = reddit_post(connector.as_ref(), &["cat"], json!({}));
    let open = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(open, CallError::Accepted { .. }), "{open:?}");
    // A post that is not listed yet may still appear.
    let waiting = connector.reconcile(&account, &outgoing).await.unwrap_err();
    assert!(matches!(waiting, CallError::Transient(_)), "{waiting:?}");
    let mut later = outgoing.clone();
    later.called_at = Some(now() - TimeDelta::minutes(11));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    *fake.processing.lock().unwrap() = false;
    let found = ReconcileResult::Matches(vec![Published::new("t3_p1", url("p1"))]);
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), found);
    assert_eq!(fake.posts.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn several_images_are_a_gallery() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = reddit_post(connector.as_ref(), &["cat", "dog"], json!({ "spoiler": true, "flair_id": "f-1" }));
    let published = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(published, Published::new("t3_p1", url("p1")));
    let sent = fake.posts.lock().unwrap()[0].clone();
    let item = |id: &str| json!({ "media_id": id, "caption": "", "outbound_url": "" });
    assert_fields(&sent, json!({ "items": [item("asset-0"), item("asset-1")], "sr": "Bread", "title": "Fresh" }));
    assert_fields(&sent, json!({ "text": "Rye & more", "spoiler": true, "flair_id": "f-1" }));
}

#[tokio::test]
async fn images_go_to_reddits_storage_alone() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = reddit_post(connector.as_ref(), &["cat"], json!({}));
    for evil in ["//evil.example", "http://x.amazonaws.com", "//amazonaws.com.evil.example", "file:///etc", "x"] {
        *fake.storage.lock().unwrap() = evil.to_owned();
        let error = connector.upload(&account, &outgoing, &image("cat")).await.unwrap_err();
        assert!(error.failure().message.contains("on another host"), "{evil}: {error:?}");
    }
}

#[tokio::test]
async fn a_lost_upload_is_repeated() {
    let (fake, _server, connector, account) = start().await;
    let mut outgoing = reddit_post(connector.as_ref(), &["cat"], json!({}));
    let name = connector.upload(&account, &outgoing, &outgoing.images[0]).await.unwrap();
    for (uploaded_in_this_run, is_lost) in [(false, true), (true, false)] {
        outgoing.images[0].uploaded = Some(UploadedImage { name: name.clone(), uploaded_in_this_run });
        fake.scripted.lock().unwrap().push_back(submit_error("BAD_URL", "you should check that url", "url"));
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert_eq!(matches!(error, CallError::UploadsMissing(_)), is_lost, "{error:?}");
    }
}

#[tokio::test]
async fn reconcile_finds_the_post_by_title_and_subreddit() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = reddit_post(connector.as_ref(), &[], json!({}));
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = connector.publish(&account, &outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    for other in [json!({ "title": "Other" }), json!({ "subreddit": "cakes" })] {
        let other = reddit_post(connector.as_ref(), &[], other);
        assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    }
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    assert_eq!(connector.reconcile(&account, &later).await.unwrap(), ReconcileResult::Absent);
    fake.scripted.lock().unwrap().push_back(ResponseTemplate::new(500));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
}

/// `validate_on_submit`: a 400 explains the subreddit's rules in its body.
#[tokio::test]
async fn a_subreddits_rules_are_quoted() {
    let (fake, _server, connector, account) = start().await;
    let explained = |status: u16, reason: &str, field: &str| {
        let text = "Your title must start with a [tag].";
        response(status, json!({ "reason": reason, "explanation": text, "message": "Bad Request", "fields": [field] }))
    };
    for (rejection, category) in [
        (explained(400, "SUBMIT_VALIDATION_TITLE_REQUIREMENT", "title"), Category::InvalidContent),
        (explained(400, "SOMETHING_NEW", "title"), Category::PlatformRejected),
        (explained(403, "SUBREDDIT_NOTALLOWED", "sr"), Category::Account),
    ] {
        let error = publish_expecting_error(rejection).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right && error.failure().message.contains("must start with a [tag]"), "{error:?}");
    }
    let mut outgoing = reddit_post(connector.as_ref(), &["cat"], json!({}));
    let name = connector.upload(&account, &outgoing, &outgoing.images[0]).await.unwrap();
    outgoing.images[0].uploaded = Some(UploadedImage { name, uploaded_in_this_run: false });
    fake.scripted.lock().unwrap().push_back(explained(400, "BAD_URL", "url"));
    let error = connector.publish(&account, &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
}

#[tokio::test]
async fn wrong_options_are_rejected() {
    let (fake, _server, connector, account) = start().await;
    for options in [
        json!({ "subreddit": null }),
        json!({ "subreddit": "a" }),
        json!({ "subreddit": "bread/../x" }),
        json!({ "title": " " }),
        json!({ "title": "x".repeat(301) }),
        json!({ "flair_id": 7 }),
    ] {
        let outgoing = reddit_post(connector.as_ref(), &[], options.clone());
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
        assert!(is_right, "{options}: {error:?}");
    }
    let both = reddit_post(connector.as_ref(), &["cat"], json!({ "link": "https://example.com" }));
    assert!(matches!(connector.publish(&account, &both).await, Err(CallError::Permanent(_))));
    assert!(fake.posts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_the_refresh_token_revoked() {
    let (fake, _server, connector, account) = start().await;
    fake.oauth.revoke("access-0");
    let outgoing = reddit_post(connector.as_ref(), &[], json!({}));
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
    let refreshed = connector.refresh(&account).await.unwrap();
    assert_eq!(refreshed.token_expires_at, Some(now() + TimeDelta::days(1)));
    let secrets = refreshed.secrets.unwrap();
    assert_ne!(shown(&secrets)["access_token"], "access-0");
    connector.publish(&ConnectorAccount { secrets, ..account.clone() }, &outgoing).await.unwrap();
    assert!(fake.agents.lock().unwrap().iter().all(|agent| agent.starts_with("web:crier-id:v")));
    connector.revoke(&account).await.unwrap();
    // The fake replaced the token, and Reddit rejects a revoked one.
    assert!(matches!(connector.refresh(&account).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn errors_are_classified() {
    let until = async |response| match publish_expecting_error(response).await {
        CallError::RateLimited { until, .. } => (until.unwrap() - now()).num_seconds(),
        other => panic!("{other:?}"),
    };
    let sentence = "Looks like you've been doing that a lot. Take a break for 9 minutes before trying again.";
    assert_eq!(until(submit_error("RATELIMIT", sentence, "ratelimit")).await, 540);
    let named = json!({ "json": { "ratelimit": 12.3, "errors": [["RATELIMIT", sentence, "ratelimit"]] } });
    assert_eq!(until(response(200, named)).await, 13);
    assert_eq!(until(ResponseTemplate::new(429).insert_header("X-Ratelimit-Reset", "42")).await, 42);
    for (code, category) in [
        ("ALREADY_SUB", Category::DuplicateContent),
        ("SUBREDDIT_NOEXIST", Category::InvalidContent),
        ("NO_SELFS", Category::InvalidContent),
        ("SUBMIT_VALIDATION_FLAIR_REQUIRED", Category::InvalidContent),
        ("SUBREDDIT_NOTALLOWED", Category::Account),
        ("SOMETHING_NEW", Category::PlatformRejected),
    ] {
        let error = publish_expecting_error(submit_error(code, "No.", "sr")).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right, "{code}: {error:?}");
    }
    let expired = publish_expecting_error(submit_error("USER_REQUIRED", "Please log in.", "")).await;
    assert!(matches!(expired, CallError::AuthExpired(_)), "{expired:?}");
    for (status, category) in [(403, Category::Account), (404, Category::InvalidContent)] {
        let error = publish_expecting_error(response(status, json!({ "message": "No", "error": status }))).await;
        let is_right = matches!(&error, CallError::Permanent(failure) if failure.category == category);
        assert!(is_right, "{status}: {error:?}");
    }
    for response in [ResponseTemplate::new(500), ResponseTemplate::new(503), response(200, json!({ "json": {} }))] {
        let unknown = publish_expecting_error(response).await;
        assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    }
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Reddit, &server.base);
    let unknown = broken.publish(&ann(), &reddit_post(broken.as_ref(), &[], json!({}))).await.unwrap_err();
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    let away = connector(Platform::Reddit, &unused_address().await);
    let passing = away.publish(&ann(), &reddit_post(away.as_ref(), &[], json!({}))).await.unwrap_err();
    assert!(matches!(passing, CallError::Transient(_)), "{passing:?}");
}
