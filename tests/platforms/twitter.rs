//! X, against a server that responds as its documents specify.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, comment_on, connect_in_browser, connector, image, now, part_of, post, publish,
    shown, unpublish_post, unused_address,
};
use crate::support::inbox::parameter;
use crate::support::oauth::{OAuthServer, TokenRules, bearer};

#[derive(Clone)]
struct X {
    oauth: Arc<OAuthServer>,
    /// The bodies of the requests that created the posts 9001, 9002 and so on.
    tweets: Arc<Mutex<Vec<Value>>>,
    deleted: Arc<Mutex<BTreeSet<String>>>,
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
                let body = String::from_utf8_lossy(&request.body).into_owned();
                // It accepts no GIFs and no videos.
                if !body.contains("tweet_image") {
                    return problem(
                        400,
                        "about:blank",
                        "media_category is not one of [tweet_image, dm_image, subtitles].",
                    );
                }
                let mut uploads = self.uploads.lock().unwrap();
                uploads.push(body);
                response(200, json!({ "data": { "id": format!("m{}", uploads.len()), "media_key": "3_1" } }))
            }
            ("POST", "/2/media/metadata") => {
                self.alts.lock().unwrap().push(request.body_json().unwrap());
                response(200, json!({ "data": { "id": "m" } }))
            }
            ("POST", "/2/tweets") => {
                let body: Value = request.body_json().unwrap();
                if body["reply"]["in_reply_to_tweet_id"].as_str().is_some_and(|parent| !self.exists(parent)) {
                    return problem(403, "about:blank", PARENT_DELETED);
                }
                let mut tweets = self.tweets.lock().unwrap();
                tweets.push(body);
                let id = format!("{}", 9_000 + tweets.len());
                response(201, json!({ "data": { "id": id, "text": "…" } }))
            }
            ("GET", "/2/users/44/tweets") => {
                let shown = self.show(&parameter(request, "tweet.fields").unwrap());
                match shown.is_empty() {
                    true => response(200, json!({ "meta": { "result_count": 0 } })),
                    false => response(200, json!({ "data": shown, "meta": {} })),
                }
            }
            ("DELETE", path) => {
                let id = path.strip_prefix("/2/tweets/").unwrap().to_owned();
                if !self.exists(&id) {
                    let kind = "https://api.twitter.com/2/problems/resource-not-found";
                    return problem(404, kind, "Could not find tweet.");
                }
                self.deleted.lock().unwrap().insert(id);
                response(200, json!({ "data": { "deleted": true } }))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}

impl X {
    fn exists(&self, id: &str) -> bool {
        let number: usize = id.parse().unwrap();
        (9_001..9_001 + self.tweets.lock().unwrap().len()).contains(&number)
            && !self.deleted.lock().unwrap().contains(id)
    }

    /// Returns the account's posts as X shows them, newest first.
    fn show(&self, fields: &str) -> Vec<Value> {
        let (tweets, deleted) = (self.tweets.lock().unwrap(), self.deleted.lock().unwrap());
        let mut shown = Vec::new();
        for (index, tweet) in tweets.iter().enumerate().rev() {
            let id = (9_001 + index).to_string();
            if deleted.contains(&id) {
                continue;
            }
            let text = tweet["text"].as_str().unwrap().replace('&', "&amp;").replace('<', "&lt;");
            let text = text.replace("example.com/bread", "https://t.co/abc123");
            let media = if tweet.get("media").is_some() { " https://t.co/pic" } else { "" };
            let parent = tweet["reply"]["in_reply_to_tweet_id"].as_str();
            let above = parent.map(|id| tweets[id.parse::<usize>().unwrap() - 9_001]["text"].as_str().unwrap());
            // X adds the users that the parent mentions.
            let mentioned = above.into_iter().flat_map(str::split_whitespace).filter(|word| word.starts_with('@'));
            let words: Vec<&str> = mentioned.chain([text.as_str()]).collect();
            let text = format!("{}{media}", words.join(" "));
            let mut one = json!({ "id": id, "text": text, "created_at": now() });
            if parent.is_some() && fields.contains("referenced_tweets") {
                one["referenced_tweets"] = json!([{ "type": "replied_to", "id": parent }]);
            }
            shown.push(one);
        }
        shown
    }
}

const PARENT_DELETED: &str = "You attempted to reply to a Tweet that is deleted or not visible to you.";

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
        deleted: Arc::default(),
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
async fn parts_of_a_thread_and_a_comment_are_replies() {
    let (fake, _server, connector, account) = start().await;
    publish(connector.as_ref(), &account, &mut post(connector.as_ref(), "One")).await.unwrap();
    let mut second = part_of(connector.as_ref(), "Two", "9001", "9001");
    second.images = vec![image("cat")];
    let published = publish(connector.as_ref(), &account, &mut second).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://x.com/ann_b/status/9002"));
    for mut outgoing in
        [part_of(connector.as_ref(), "Three", "9001", "9002"), comment_on(connector.as_ref(), "More", "9001")]
    {
        publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    }
    let reply = |parent: &str| json!({ "in_reply_to_tweet_id": parent });
    let expected = [
        json!({ "text": "One" }),
        json!({ "text": "Two", "media": { "media_ids": ["m1"] }, "reply": reply("9001") }),
        json!({ "text": "Three", "reply": reply("9002") }),
        json!({ "text": "More", "reply": reply("9001") }),
    ];
    assert_eq!(*fake.tweets.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_reply_is_found_among_the_replies_to_its_parent() {
    let (_fake, _server, connector, account) = start().await;
    let send = async |outgoing: &OutgoingPost| connector.publish(&account, outgoing).await.unwrap();
    let find = async |outgoing: &OutgoingPost| connector.reconcile(&account, outgoing).await.unwrap();
    send(&post(connector.as_ref(), "Thanks to @bob")).await;
    let part = part_of(connector.as_ref(), "Bread at example.com/bread", "9001", "9001");
    assert_eq!(find(&part).await, ReconcileResult::Absent);
    let reply = send(&part).await;
    assert_eq!(find(&part).await, ReconcileResult::Matches(vec![reply.clone()]));
    let elsewhere = part_of(connector.as_ref(), &part.text, "9001", "9002");
    assert_eq!(find(&elsewhere).await, ReconcileResult::Absent);
    let plain = post(connector.as_ref(), &part.text);
    assert_eq!(find(&plain).await, ReconcileResult::Absent, "a reply is not the post");
    let published = send(&plain).await;
    assert_eq!(find(&plain).await, ReconcileResult::Matches(vec![published]));
    assert_eq!(find(&part).await, ReconcileResult::Matches(vec![reply]));
}

#[tokio::test]
async fn a_deleted_parent_is_recognized() {
    let (fake, _server, connector, account) = start().await;
    connector.publish(&account, &post(connector.as_ref(), "One")).await.unwrap();
    connector.unpublish(&account, &unpublish_post("9001")).await.unwrap();
    for outgoing in [part_of(connector.as_ref(), "Two", "9001", "9001"), comment_on(connector.as_ref(), "More", "9001")]
    {
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(&error, CallError::ParentMissing(failure) if !failure.category.is_retryable()), "{error:?}");
        fake.scripted.lock().unwrap().push(problem(400, "about:blank", PARENT_DELETED));
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::ParentMissing(_)), "{error:?}");
        fake.scripted.lock().unwrap().push(problem(403, "about:blank", "You are not permitted to reply."));
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::Permanent(_)), "{error:?}");
    }
    assert_eq!(fake.tweets.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_post_is_deleted_and_a_second_deletion_changes_nothing() {
    let (fake, _server, connector, account) = start().await;
    for text in ["One", "Two"] {
        connector.publish(&account, &post(connector.as_ref(), text)).await.unwrap();
    }
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("9001")).await.unwrap();
        assert_eq!(*fake.deleted.lock().unwrap(), BTreeSet::from(["9001".to_owned()]));
    }
    let found = json!({ "errors": [{ "type": "https://api.twitter.com/2/problems/resource-not-found" }] });
    fake.scripted.lock().unwrap().push(ResponseTemplate::new(200).set_body_json(found));
    connector.unpublish(&account, &unpublish_post("9001")).await.unwrap();
}

#[tokio::test]
async fn a_failed_deletion_is_classified() {
    let (fake, _server, connector, account) = start().await;
    connector.publish(&account, &post(connector.as_ref(), "One")).await.unwrap();
    let delete = async |response: ResponseTemplate| {
        fake.scripted.lock().unwrap().push(response);
        connector.unpublish(&account, &unpublish_post("9001")).await.unwrap_err()
    };
    let kept = ResponseTemplate::new(200).set_body_json(json!({ "data": { "deleted": false } }));
    let response = delete(kept).await;
    assert!(matches!(response, CallError::Transient(_)), "{response:?}");
    let response = delete(problem(503, "about:blank", "Over capacity")).await;
    assert!(matches!(response, CallError::Transient(_)), "{response:?}");
    let response = delete(problem(403, "about:blank", "You are not authorized to delete this Tweet.")).await;
    assert!(matches!(response, CallError::Permanent(_)), "{response:?}");
    let limited = problem(429, "about:blank", "Too Many Requests").insert_header("retry-after", "900");
    let response = delete(limited).await;
    let until = Some(now() + TimeDelta::minutes(15));
    assert!(matches!(&response, CallError::RateLimited { until: at, .. } if *at == until), "{response:?}");
    let error = connector.unpublish(&account, &unpublish_post("9001/retweets")).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(failure) if failure.message.contains("ID")), "{error:?}");
    fake.oauth.revoke("access-0");
    let error = connector.unpublish(&account, &unpublish_post("9001")).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    assert!(fake.deleted.lock().unwrap().is_empty());
    let server = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = super::support::connector(Platform::Twitter, &server.base);
    let error = broken.unpublish(&account, &unpublish_post("9001")).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
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
async fn a_daily_limit_is_waited_for_until_its_end() {
    for (of_user, of_app, minutes) in
        [(Some("0"), None, 300), (None, Some("0"), 600), (Some("0"), Some("0"), 600), (Some("7"), Some("12"), 15)]
    {
        let end = |minutes| (now() + TimeDelta::minutes(minutes)).timestamp().to_string();
        let mut response =
            problem(429, "about:blank", "Too Many Requests").insert_header("x-rate-limit-reset", end(15));
        for (owner, remaining, reset) in [("user", of_user, end(300)), ("app", of_app, end(600))] {
            if let Some(remaining) = remaining {
                response = response.insert_header(format!("x-{owner}-limit-24hour-remaining").as_str(), remaining);
                response = response.insert_header(format!("x-{owner}-limit-24hour-reset").as_str(), reset);
            }
        }
        let limited = publish_expecting_error(response).await;
        let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
        assert_eq!(until, Some(now() + TimeDelta::minutes(minutes)), "{of_user:?} {of_app:?}");
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
