//! Metrics of TikTok, against a server that responds as its documents specify.

use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::platform::Platform;
use crier_platforms::CallError;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::metrics::{Started, ok, query};
use super::support::account;
use crate::support::tiktok::rejection;

async fn started(respond: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static) -> Started {
    let secrets = json!({ "access_token": "token", "client_id": "key", "client_secret": "secret" });
    Started::new(Platform::Tiktok, account("723f24d7", secrets), respond).await
}

fn data(data: Value) -> ResponseTemplate {
    ok(json!({ "data": data, "error": { "code": "ok", "message": "", "log_id": "x" } }))
}

/// An object with the requested fields.
fn requested_fields(request: &Request, all: &Value) -> Value {
    let fields = query(request)["fields"].clone();
    fields.split(',').filter_map(|name| Some((name.to_owned(), all.get(name)?.clone()))).collect()
}

fn video(id: &str) -> Value {
    json!({ "id": id, "like_count": 30, "comment_count": 2, "share_count": 4, "view_count": 900, "title": "Bread" })
}

fn known() -> PostMetrics {
    PostMetrics {
        impressions: Some(900),
        likes: Some(30),
        comments: Some(2),
        shares: Some(4),
        ..PostMetrics::default()
    }
}

#[tokio::test]
async fn many_posts_are_read_with_one_call() {
    let mut tiktok = started(|request: &Request| {
        assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/v2/video/query/"));
        assert_eq!(request.headers["authorization"], "Bearer token");
        assert_eq!(query(request)["fields"], "id,view_count,like_count,comment_count,share_count");
        let body: Value = request.body_json().unwrap();
        assert_eq!(body, json!({ "filters": { "video_ids": ["7077642457847991554", "7080217258529737986"] } }));
        data(json!({ "videos": [requested_fields(request, &video("7080217258529737986")), { "id": "1", "like_count": 5 }] }))
    })
    .await;
    let unknown = Some(PostMetrics::default());
    // The first post is omitted, which does not prove that it was deleted. The last id is invalid.
    let metrics = tiktok.posts(&["7077642457847991554", "7080217258529737986", "v_pub~1"]).await.unwrap();
    assert_eq!(metrics, [unknown, Some(known()), unknown]);
    assert_eq!(tiktok.posts(&["v_pub~1"]).await.unwrap(), [unknown]);
    assert_eq!((tiktok.calls(), tiktok.aside.added().count()), (1, 0));
}

#[tokio::test]
async fn the_account_has_followers() {
    let mut tiktok = started(|request: &Request| {
        assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/v2/user/info/"));
        assert_eq!(query(request)["fields"], "follower_count,following_count,video_count");
        data(json!({ "user": { "follower_count": 10, "following_count": 20, "video_count": 30 } }))
    })
    .await;
    let own = AccountMetrics { followers: Some(10), following: Some(20), posts: Some(30) };
    assert_eq!(tiktok.account().await.unwrap(), own);
}

/// Each scope is missing separately, and the account does not expire.
#[tokio::test]
async fn without_a_scope_its_metrics_are_set_aside() {
    for rejected in [rejection(401, "scope_not_authorized"), rejection(400, "scope_permission_missed")] {
        let mut tiktok = started(move |request: &Request| match request.url.path() {
            "/v2/video/query/" => rejected.clone(),
            _ => data(json!({ "user": { "follower_count": 10 } })),
        })
        .await;
        for _ in 0..2 {
            assert_eq!(tiktok.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
        }
        let names: Vec<&str> = tiktok.aside.added().collect();
        assert_eq!(names, ["comment_count", "like_count", "share_count", "view_count"]);
        assert_eq!(tiktok.calls(), 1, "what is set aside is not requested");
        assert_eq!(tiktok.account().await.unwrap().followers, Some(10));
    }
    let mut tiktok = started(|_: &Request| rejection(401, "scope_not_authorized")).await;
    assert_eq!(tiktok.account().await.unwrap(), AccountMetrics::default());
    assert_eq!(tiktok.aside.added().collect::<Vec<_>>(), ["follower_count", "following_count", "video_count"]);
}

#[tokio::test]
async fn a_name_that_is_rejected_is_set_aside() {
    let mut tiktok = started(|request: &Request| {
        if query(request)["fields"].split(',').any(|name| name == "share_count" || name == "video_count") {
            return rejection(400, "invalid_params");
        }
        match request.url.path() {
            "/v2/video/query/" => data(json!({ "videos": [requested_fields(request, &video("1"))] })),
            _ => data(
                json!({ "user": requested_fields(request, &json!({ "follower_count": 1, "following_count": 2 })) }),
            ),
        }
    })
    .await;
    let without_shares = Some(PostMetrics { shares: None, ..known() });
    assert_eq!(tiktok.posts(&["1"]).await.unwrap(), [without_shares]);
    assert_eq!((tiktok.calls(), tiktok.aside.added().collect::<Vec<_>>()), (1 + 4, vec!["share_count"]));
    assert_eq!(tiktok.posts(&["1"]).await.unwrap(), [without_shares]);
    assert_eq!(tiktok.calls(), 5 + 1);
    let own = AccountMetrics { followers: Some(1), following: Some(2), posts: None };
    assert_eq!(tiktok.account().await.unwrap(), own);
    assert_eq!(tiktok.aside.added().collect::<Vec<_>>(), ["share_count", "video_count"]);
}

#[tokio::test]
async fn other_errors_set_nothing_aside() {
    for (response, is_right) in [
        (
            rejection(429, "rate_limit_exceeded"),
            (|e| matches!(e, CallError::RateLimited { until: Some(_), .. })) as fn(_) -> bool,
        ),
        (rejection(401, "access_token_invalid"), |e| matches!(e, CallError::AuthExpired(_))),
        (rejection(500, "internal_error"), |e| matches!(e, CallError::Transient(_))),
        (ok(json!({ "data": "posts", "error": { "code": "ok" } })), |e| matches!(e, CallError::Transient(_))),
        (ResponseTemplate::new(503), |e| matches!(e, CallError::Transient(_))),
    ] {
        let mut tiktok = started(move |_: &Request| response.clone()).await;
        assert!(is_right(tiktok.posts(&["1"]).await.unwrap_err()));
        assert_eq!((tiktok.calls(), tiktok.aside.added().count()), (1, 0));
    }
}

#[tokio::test]
async fn hostile_responses_give_no_metrics() {
    for body in [
        json!({}),
        json!({ "videos": [], "user": [] }),
        json!({ "videos": [1, null, "1", { "id": 1, "like_count": 5 }], "user": "me" }),
        json!({
            "videos": [
                { "id": "1", "like_count": -1, "comment_count": "2", "share_count": 1e300, "view_count": i64::MAX },
            ],
            "user": { "follower_count": -5, "following_count": {}, "video_count": u64::MAX },
        }),
    ] {
        let mut tiktok = started(move |_: &Request| data(body.clone())).await;
        assert_eq!(tiktok.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
        assert_eq!(tiktok.account().await.unwrap(), AccountMetrics::default());
    }
}

/// A public post may get its id after publishing, when it has been moderated.
#[tokio::test]
async fn the_id_of_a_post_is_found_later() {
    let tiktok = started(|request: &Request| {
        assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/v2/post/publish/status/fetch/"));
        let body: Value = request.body_json().unwrap();
        match body["publish_id"].as_str().unwrap() {
            "p_pub_url~1" => data(json!({ "status": "PUBLISH_COMPLETE", "publicaly_available_post_id": [7_u64] })),
            "p_pub_url~2" => data(json!({ "status": "PUBLISH_COMPLETE" })),
            _ => rejection(400, "invalid_publish_id"),
        }
    })
    .await;
    let find_id = async |publish_id: &str| {
        let Value::Object(marker) = json!({ "publish_id": publish_id }) else { panic!("an object") };
        let analytics = tiktok.connector.analytics().unwrap();
        assert!(analytics.assigns_ids_later());
        analytics.find_id(&tiktok.account, &marker).await.map(|found| found.map(|post| post.external_id))
    };
    assert_eq!(find_id("p_pub_url~1").await.unwrap().as_deref(), Some("7"));
    assert_eq!(find_id("p_pub_url~2").await.unwrap(), None);
    assert!(matches!(find_id("p_pub_url~3").await, Err(CallError::Permanent(_))));
}
