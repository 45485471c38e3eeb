//! Metrics of posts and accounts, against servers that respond as the platforms document.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use crier_base::clock::Clock;
use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::platform::Platform;
use crier_platforms::analytics::{MetricsSetAside, PublishedPost};
use crier_platforms::{CallError, Connector, ConnectorAccount, ConnectorRegistry};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{account, clients, now};
use crate::support::facebook::error;

type Responder = Box<dyn Fn(&Request) -> ResponseTemplate + Send + Sync>;

/// Responds to every call, and records the URLs.
#[derive(Clone)]
struct Server {
    respond: Arc<Responder>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Respond for Server {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        self.calls.lock().unwrap().push(request.url.to_string());
        (self.respond)(request)
    }
}

/// A connector, and the server that it calls.
pub(super) struct Started {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) account: ConnectorAccount,
    calls: Arc<Mutex<Vec<String>>>,
    pub(super) aside: MetricsSetAside,
    _mock: MockServer,
}

impl Started {
    pub(super) async fn new(
        platform: Platform,
        account: ConnectorAccount,
        respond: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static,
    ) -> Self {
        let server = Server { respond: Arc::new(Box::new(respond)), calls: Arc::default() };
        let calls = server.calls.clone();
        let mock = MockServer::start().await;
        Mock::given(any()).respond_with(server).mount(&mock).await;
        let mut account = account;
        if platform == Platform::Mastodon {
            let secrets = json!({ "access_token": "token", "instance": mock.uri() });
            account.secrets = super::support::secrets(secrets);
        }
        // X's metrics are read only if enabled.
        let settings = PlatformConfig { analytics: Some(true), ..PlatformConfig::default() };
        let config = PlatformsConfig { platforms: [(platform, settings)].into(), ..PlatformsConfig::default() };
        let config = config.with_base_url(platform, mock.uri());
        let registry = ConnectorRegistry::new(config, &clients(), &Clock::manual(now()));
        let connector = registry.get(platform).unwrap();
        Self { connector, account, calls, aside: MetricsSetAside::default(), _mock: mock }
    }

    pub(super) async fn posts(&mut self, ids: &[&str]) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let posts: Vec<_> = ids.iter().map(|id| (*id, now())).collect();
        self.posts_of(&posts).await
    }

    /// Requests the metrics of posts that were published at these times.
    pub(super) async fn posts_of(
        &mut self,
        posts: &[(&str, DateTime<Utc>)],
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let post = |&(id, published_at): &(&str, _)| PublishedPost { external_id: id.to_owned(), published_at };
        let posts: Vec<PublishedPost> = posts.iter().map(post).collect();
        let analytics = self.connector.analytics().unwrap();
        assert!(analytics.posts_per_call() >= posts.len());
        analytics.post_metrics(&self.account, &posts, &mut self.aside).await
    }

    pub(super) async fn account(&mut self) -> Result<AccountMetrics, CallError> {
        self.connector.analytics().unwrap().account_metrics(&self.account, &mut self.aside).await
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

pub(super) fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

pub(super) fn query(request: &Request) -> BTreeMap<String, String> {
    request.url.query_pairs().into_owned().collect()
}

pub(super) fn meta_account(id: &str) -> ConnectorAccount {
    account(id, json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" }))
}

fn gone() -> ResponseTemplate {
    error(400, 100, Some(33), "Unsupported get request. Object with ID '9' does not exist")
}

/// A value in the format of insights.
pub(super) fn insight(name: &str, value: Value) -> Value {
    json!({ "name": name, "period": "lifetime", "values": [{ "value": value }] })
}

/// Returns the requested metrics. An unknown metric fails the call.
fn insights(request: &Request, known: &[(&str, Value)]) -> ResponseTemplate {
    let asked = query(request)["metric"].clone();
    let mut data = Vec::new();
    for name in asked.split(',') {
        match known.iter().find(|(known, _)| *known == name) {
            // No value yet.
            Some((_, Value::Null)) => {}
            Some((_, value)) => data.push(insight(name, value.clone())),
            None => return error(400, 100, None, "(#100) The value must be a valid insights metric"),
        }
    }
    ok(json!({ "data": data }))
}

#[tokio::test]
async fn instagram_reads_insights_of_each_post() {
    let instagram = |request: &Request| match request.url.path() {
        "/v25.0/800/insights" => insights(
            request,
            &[
                ("views", json!(90)),
                ("reach", json!(60)),
                ("likes", json!(7)),
                ("comments", json!(0)),
                ("shares", Value::Null),
            ],
        ),
        "/v25.0/801/insights" => gone(),
        "/v25.0/17841" => ok(json!({ "id": "17841", "followers_count": 5, "follows_count": 6, "media_count": 7 })),
        other => panic!("{other}"),
    };
    let mut started = Started::new(Platform::Instagram, meta_account("17841"), instagram).await;
    let known = PostMetrics {
        impressions: Some(90),
        reach: Some(60),
        likes: Some(7),
        comments: Some(0),
        ..PostMetrics::default()
    };
    assert_eq!(started.posts(&["800"]).await.unwrap(), [Some(known)], "no metric is not 0");
    assert_eq!(started.posts(&["801"]).await.unwrap(), [None]);
    let own = AccountMetrics { followers: Some(5), following: Some(6), posts: Some(7) };
    assert_eq!(started.account().await.unwrap(), own);
    assert_eq!((started.calls(), started.aside.added().count()), (3, 0));
}

#[tokio::test]
async fn threads_adds_up_what_was_shared() {
    let threads = |request: &Request| match request.url.path() {
        "/v1.0/300/insights" => {
            let known = ["views", "likes", "replies", "reposts", "quotes", "shares"];
            insights(request, &known.map(|name| (name, json!(name.len()))))
        }
        "/v1.0/17841/threads_insights" => {
            assert_eq!(query(request)["metric"], "followers_count");
            ok(json!({ "data": [{ "name": "followers_count", "period": "day", "total_value": { "value": 12 } }] }))
        }
        other => panic!("{other}"),
    };
    let mut started = Started::new(Platform::Threads, meta_account("17841"), threads).await;
    let known = PostMetrics {
        impressions: Some(5),
        likes: Some(5),
        comments: Some(7),
        shares: Some(7 + 6 + 6),
        ..PostMetrics::default()
    };
    assert_eq!(started.posts(&["300"]).await.unwrap(), [Some(known)]);
    assert_eq!(started.account().await.unwrap().followers, Some(12));
}

#[tokio::test]
async fn without_the_permission_all_metrics_are_set_aside() {
    let rejects = |_: &Request| error(400, 10, None, "(#10) Application does not have permission for this action");
    let mut started = Started::new(Platform::Threads, meta_account("17841"), rejects).await;
    assert_eq!(started.posts(&["300"]).await.unwrap(), [Some(PostMetrics::default())]);
    assert_eq!((started.calls(), started.aside.added().count()), (1 + 6, 6));
    assert_eq!(started.posts(&["301"]).await.unwrap(), [Some(PostMetrics::default())]);
    assert_eq!(started.calls(), 7);
}

#[tokio::test]
async fn a_post_that_is_deleted_between_two_calls_is_gone() {
    let vanishes = |request: &Request| match query(request)["metric"].contains(',') {
        true => error(400, 100, None, "(#100) The value must be a valid insights metric"),
        false => gone(),
    };
    let mut started = Started::new(Platform::Instagram, meta_account("17841"), vanishes).await;
    assert_eq!(started.posts(&["800"]).await.unwrap(), [None], "the account is not to be expired");
    assert_eq!((started.calls(), started.aside.added().count()), (2, 0));
}

#[tokio::test]
async fn other_errors_set_nothing_aside() {
    for (response, is_right) in [
        (error(400, 190, Some(463), "Session has expired"), (|e| matches!(e, CallError::Reauth(_))) as fn(_) -> bool),
        (error(400, 4, None, "Application request limit reached"), |e| matches!(e, CallError::RateLimited { .. })),
        (error(500, 2, None, "An unexpected error"), |e| matches!(e, CallError::Transient(_))),
    ] {
        let mut started =
            Started::new(Platform::Instagram, meta_account("1"), move |_: &Request| response.clone()).await;
        let error = started.posts(&["800"]).await.unwrap_err();
        assert!(is_right(error));
        assert_eq!((started.calls(), started.aside.added().count()), (1, 0));
    }
}

#[tokio::test]
async fn reddit_reads_many_posts_with_one_call() {
    let reddit = |request: &Request| match request.url.path() {
        "/api/info" => {
            assert_eq!(query(request)["id"], "t3_a,t3_b,t3_c");
            let post = |name: &str, author: &str| {
                json!({ "kind": "t3", "data": {
                "name": name, "author": author, "score": 12, "num_comments": 3, "view_count": null,
            } })
            };
            ok(json!({ "data": { "children": [post("t3_c", "[deleted]"), post("t3_a", "bakery")] } }))
        }
        "/api/v1/me" => ok(json!({ "name": "bakery", "subreddit": { "subscribers": 4 } })),
        other => panic!("{other}"),
    };
    let secrets = json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" });
    let mut started = Started::new(Platform::Reddit, account("1", secrets), reddit).await;
    let known = PostMetrics { likes: Some(12), comments: Some(3), ..PostMetrics::default() };
    assert_eq!(started.posts(&["t3_a", "t3_b", "t3_c"]).await.unwrap(), [Some(known), None, None]);
    assert_eq!(started.account().await.unwrap().followers, Some(4));
}

#[tokio::test]
async fn linkedin_reads_the_posts_of_a_page() {
    let linkedin = |request: &Request| {
        let address = request.url.as_str();
        if request.url.path() == "/rest/networkSizes/urn%3Ali%3Aorganization%3A5" {
            assert!(address.ends_with("?edgeType=COMPANY_FOLLOWED_BY_MEMBER"), "{address}");
            return ok(json!({ "firstDegreeSize": 219 }));
        }
        assert!(address.contains("organizationalEntity=urn%3Ali%3Aorganization%3A5&"), "{address}");
        let total = json!({
            "uniqueImpressionsCount": 30, "clickCount": 4, "likeCount": 5, "commentCount": 6, "shareCount": 7,
            "impressionCount": 80, "engagement": 0.5,
        });
        match address.rsplit('&').next().unwrap() {
            "shares=List(urn%3Ali%3Ashare%3A1,urn%3Ali%3Ashare%3A2)" => {
                ok(json!({ "elements": [{ "share": "urn:li:share:2", "totalShareStatistics": total }] }))
            }
            "ugcPosts=List(urn%3Ali%3AugcPost%3A3)" => {
                ok(json!({ "elements": [{ "ugcPost": "urn:li:ugcPost:3", "totalShareStatistics": total }] }))
            }
            other => panic!("{other}"),
        }
    };
    let secrets = json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" });
    let page = account("urn:li:organization:5", secrets.clone());
    let mut started = Started::new(Platform::Linkedin, page, linkedin).await;
    let known = PostMetrics {
        impressions: Some(80),
        reach: Some(30),
        likes: Some(5),
        comments: Some(6),
        shares: Some(7),
        clicks: Some(4),
    };
    let posts = ["urn:li:share:1", "urn:li:share:2", "urn:li:ugcPost:3"];
    let none_yet = Some(PostMetrics::default());
    assert_eq!(started.posts(&posts).await.unwrap(), [none_yet, Some(known), Some(known)]);
    assert_eq!(started.account().await.unwrap().followers, Some(219));
    assert_eq!(started.calls(), 3);
    // No metrics are requested for a user's account.
    let mut person = Started::new(Platform::Linkedin, account("abc", secrets), |_: &Request| panic!("no call")).await;
    assert_eq!(person.posts(&["urn:li:share:1"]).await.unwrap(), [none_yet]);
    assert_eq!(person.account().await.unwrap(), AccountMetrics::default());
}

#[tokio::test]
async fn tumblr_counts_followers() {
    let tumblr = |request: &Request| match request.url.path() {
        "/v2/blog/t%3Aabc/followers" => {
            ok(json!({ "meta": { "status": 200 }, "response": { "total_users": 8, "users": [] } }))
        }
        other => panic!("{other}"),
    };
    let secrets = json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" });
    let mut started = Started::new(Platform::Tumblr, account("t:abc", secrets), tumblr).await;
    assert_eq!(started.account().await.unwrap(), AccountMetrics { followers: Some(8), ..AccountMetrics::default() });
    assert_eq!(started.connector.analytics().unwrap().posts_per_call(), 0);
}

#[tokio::test]
async fn bluesky_reads_many_posts_with_one_call() {
    let bluesky = |request: &Request| match request.url.path() {
        "/xrpc/app.bsky.feed.getPosts" => {
            let asked = request.url.query_pairs().filter(|(name, _)| name == "uris").count();
            assert_eq!(asked, 2);
            ok(json!({ "posts": [{
                "uri": "at://did:plc:x/app.bsky.feed.post/2", "likeCount": 4, "replyCount": 1, "repostCount": 2,
                "quoteCount": 3,
            }] }))
        }
        "/xrpc/app.bsky.actor.getProfile" => ok(json!({ "followersCount": 10, "followsCount": 20, "postsCount": 30 })),
        other => panic!("{other}"),
    };
    let secrets = json!({ "access_jwt": "token", "refresh_jwt": "refresh" });
    let mut started = Started::new(Platform::Bluesky, account("did:plc:x", secrets), bluesky).await;
    let known = PostMetrics { likes: Some(4), comments: Some(1), shares: Some(5), ..PostMetrics::default() };
    let posts = ["at://did:plc:x/app.bsky.feed.post/1", "at://did:plc:x/app.bsky.feed.post/2"];
    assert_eq!(started.posts(&posts).await.unwrap(), [None, Some(known)]);
    let own = AccountMetrics { followers: Some(10), following: Some(20), posts: Some(30) };
    assert_eq!(started.account().await.unwrap(), own);
}

#[tokio::test]
async fn mastodon_requests_each_post() {
    let mastodon = |request: &Request| match request.url.path() {
        "/api/v1/statuses/7" => ok(json!({ "favourites_count": 1, "replies_count": 2, "reblogs_count": 3 })),
        "/api/v1/statuses/8" => ResponseTemplate::new(404).set_body_json(json!({ "error": "Record not found" })),
        "/api/v1/accounts/verify_credentials" => {
            ok(json!({ "followers_count": 4, "following_count": 5, "statuses_count": 6 }))
        }
        other => panic!("{other}"),
    };
    let mut started = Started::new(Platform::Mastodon, account("1", json!({})), mastodon).await;
    let known = PostMetrics { likes: Some(1), comments: Some(2), shares: Some(3), ..PostMetrics::default() };
    assert_eq!(started.posts(&["7"]).await.unwrap(), [Some(known)]);
    assert_eq!(started.posts(&["8"]).await.unwrap(), [None]);
    let own = AccountMetrics { followers: Some(4), following: Some(5), posts: Some(6) };
    assert_eq!(started.account().await.unwrap(), own);
}

#[tokio::test]
async fn telegram_counts_members() {
    let telegram = |request: &Request| {
        assert!(request.url.path().ends_with("/getChatMemberCount"), "{}", request.url);
        ok(json!({ "ok": true, "result": 99 }))
    };
    let secrets = json!({ "bot_token": "1:abc", "chat_id": "-100" });
    let mut started = Started::new(Platform::Telegram, account("-100", secrets), telegram).await;
    assert_eq!(started.account().await.unwrap().followers, Some(99));
}
