//! Metrics of X, against a server that responds as its documents and its specification say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::TimeDelta;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::platform::Platform;
use crier_platforms::CallError;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::metrics::{Started, ok, query};
use super::support::{account, now};

const CLICKS: &str = "/non_public_metrics/url_link_clicks";

async fn started(respond: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static) -> Started {
    let secrets = json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" });
    Started::new(Platform::Twitter, account("9", secrets), respond).await
}

/// A post as X returns it with these objects.
fn post(id: &str, fields: &str) -> Value {
    let mut post = json!({ "id": id, "text": "Fresh bread", "edit_history_tweet_ids": [id] });
    if fields.contains("public_metrics") {
        post["public_metrics"] = json!({
            "retweet_count": 5, "reply_count": 2, "like_count": 30, "quote_count": 1, "bookmark_count": 8,
            "impression_count": 900,
        });
    }
    if fields.contains("non_public_metrics") {
        post["non_public_metrics"] = json!({
            "impression_count": 900, "url_link_clicks": 12, "user_profile_clicks": 3, "engagements": 60,
        });
    }
    post
}

fn problem(id: &str, kind: &str) -> Value {
    json!({
        "resource_id": id, "value": id, "resource_type": "tweet", "parameter": "ids", "title": "Error",
        "detail": format!("Something about [{id}]."), "type": format!("https://api.x.com/2/problems/{kind}"),
    })
}

fn known() -> PostMetrics {
    PostMetrics {
        impressions: Some(900),
        likes: Some(30),
        comments: Some(2),
        shares: Some(6),
        clicks: Some(12),
        ..PostMetrics::default()
    }
}

#[tokio::test]
async fn many_posts_are_read_with_one_call_and_clicks_with_those_of_the_last_month() {
    let mut x = started(|request: &Request| {
        assert_eq!(request.url.path(), "/2/tweets");
        assert_eq!(request.headers["authorization"], "Bearer token");
        let query = query(request);
        let data: Value = match (query["ids"].as_str(), query["tweet.fields"].as_str()) {
            ("1,2,3,5", fields @ "non_public_metrics,public_metrics") => {
                let mut edited = post("66", fields);
                edited["edit_history_tweet_ids"] = json!(["5", "66"]);
                return ok(json!({
                    "data": [edited, post("1", fields)],
                    "errors": [problem("2", "resource-not-found"), problem("3", "not-authorized-for-resource")],
                }));
            }
            ("4", fields @ "public_metrics") => json!([post("4", fields)]),
            other => panic!("{other:?}"),
        };
        ok(json!({ "data": data }))
    })
    .await;
    let month = now() - TimeDelta::days(30);
    let posts = [("1", now()), ("2", now()), ("3", now()), ("4", month), ("5", now()), ("not-an-id", now())];
    let metrics = x.posts_of(&posts).await.unwrap();
    let without_clicks = PostMetrics { clicks: None, ..known() };
    let unknown = Some(PostMetrics::default());
    // Post 2 was deleted, 3 is only hidden, and 5 was edited.
    assert_eq!(metrics, [Some(known()), None, unknown, Some(without_clicks), Some(known()), unknown]);
    assert_eq!((x.calls(), x.aside.added().count()), (2, 0));
}

#[tokio::test]
async fn the_names_of_the_specification_are_known_too() {
    let mut x = started(|request: &Request| match request.url.path() {
        "/2/tweets" => {
            ok(json!({ "data": [{ "id": "1", "public_metrics": { "repost_count": 4, "quote_count": 3 } }] }))
        }
        "/2/users/me" => ok(json!({ "data": { "id": "9", "public_metrics": {
            "followers_count": 10, "following_count": 20, "post_count": 30, "listed_count": 4,
        } } })),
        other => panic!("{other}"),
    })
    .await;
    assert_eq!(x.posts(&["1"]).await.unwrap(), [Some(PostMetrics { shares: Some(7), ..PostMetrics::default() })]);
    let own = AccountMetrics { followers: Some(10), following: Some(20), posts: Some(30) };
    assert_eq!(x.account().await.unwrap(), own);
}

#[tokio::test]
async fn the_account_has_followers() {
    let mut x = started(|request: &Request| {
        assert_eq!(query(request)["user.fields"], "public_metrics");
        ok(json!({ "data": { "id": "9", "public_metrics": {
            "followers_count": 10, "following_count": -2, "tweet_count": "30",
        } } }))
    })
    .await;
    let own = AccountMetrics { followers: Some(10), ..AccountMetrics::default() };
    assert_eq!(x.account().await.unwrap(), own, "what is no count is no metric");
}

/// A field can be rejected within a response, with or without the posts, or for the whole call.
#[tokio::test]
async fn clicks_that_are_rejected_are_set_aside() {
    let rejection = problem("1", "not-authorized-for-field");
    let responses = [
        ok(json!({ "data": [post("1", "public_metrics")], "errors": [rejection.clone()] })),
        ok(json!({ "errors": [rejection] })),
        ResponseTemplate::new(403).set_body_json(problem("1", "not-authorized-for-field")),
        ResponseTemplate::new(400).set_body_json(problem("1", "invalid-request")),
    ];
    for rejected in responses {
        let mut x = started(move |request: &Request| match query(request)["tweet.fields"].as_str() {
            "public_metrics" => ok(json!({ "data": [post("1", "public_metrics")] })),
            _ => rejected.clone(),
        })
        .await;
        let without_clicks = Some(PostMetrics { clicks: None, ..known() });
        assert_eq!(x.posts(&["1"]).await.unwrap(), [without_clicks]);
        assert_eq!(x.aside.added().collect::<Vec<_>>(), [CLICKS]);
        assert_eq!(x.posts(&["1"]).await.unwrap(), [without_clicks]);
        assert_eq!(x.calls(), 3, "what is set aside is not requested");
    }
}

#[tokio::test]
async fn without_access_all_metrics_are_set_aside() {
    let forbidden = |_: &Request| ResponseTemplate::new(403).set_body_json(problem("1", "client-forbidden"));
    let mut x = started(forbidden).await;
    assert_eq!(x.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
    assert_eq!(x.account().await.unwrap(), AccountMetrics::default());
    let calls = x.calls();
    assert_eq!((calls, x.aside.added().count()), (3, 6 + 3));
    assert_eq!(x.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
    assert_eq!(x.account().await.unwrap(), AccountMetrics::default());
    assert_eq!(x.calls(), calls);
}

#[tokio::test]
async fn other_errors_set_nothing_aside() {
    let limit = ResponseTemplate::new(429).insert_header("x-rate-limit-reset", (now().timestamp() + 600).to_string());
    for (response, is_right) in [
        (limit, (|e| matches!(e, CallError::RateLimited { until: Some(_), .. })) as fn(_) -> bool),
        (
            ResponseTemplate::new(402),
            |e| matches!(e, CallError::RateLimited { failure, .. } if failure.waits_for_operator()),
        ),
        (ResponseTemplate::new(401), |e| matches!(e, CallError::AuthExpired(_))),
        (ResponseTemplate::new(503), |e| matches!(e, CallError::Transient(_))),
        (ok(json!({ "data": "posts" })), |e| matches!(e, CallError::Transient(_))),
        (ResponseTemplate::new(200).set_body_string("["), |e| matches!(e, CallError::Transient(_))),
    ] {
        let mut x = started(move |_: &Request| response.clone()).await;
        assert!(is_right(x.posts(&["1"]).await.unwrap_err()));
        assert_eq!((x.calls(), x.aside.added().count()), (1, 0));
    }
}

#[tokio::test]
async fn hostile_responses_give_no_metrics() {
    let nothing = [Some(PostMetrics::default())];
    for data in [
        json!([]),
        json!([{ "id": "2", "public_metrics": { "like_count": 1 } }]),
        json!([{ "id": "1" }, 7, null, [], "1"]),
        json!([{ "id": "1", "public_metrics": [1, 2], "non_public_metrics": "none" }]),
        json!([{ "id": "1", "edit_history_tweet_ids": 1, "public_metrics": {
            "like_count": -1, "reply_count": "5", "retweet_count": 1e300, "quote_count": u64::MAX,
            "impression_count": i64::MAX,
        } }]),
    ] {
        let mut x = started(move |_: &Request| {
            ok(json!({ "data": data, "errors": [1, null, { "type": 5 }, { "type": "resource-not-found" }] }))
        })
        .await;
        assert_eq!(x.posts(&["1"]).await.unwrap(), nothing);
    }
}

#[tokio::test]
async fn a_hundred_posts_are_one_call() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let mut x = started(move |request: &Request| {
        seen.store(query(request)["ids"].split(',').count(), Ordering::SeqCst);
        ok(json!({ "data": [] }))
    })
    .await;
    let ids: Vec<String> = (1..=100).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(x.posts(&ids).await.unwrap().len(), 100);
    assert_eq!((x.calls(), asked.load(Ordering::SeqCst)), (1, 100));
}
