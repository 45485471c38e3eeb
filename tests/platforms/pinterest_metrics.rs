//! Metrics of Pinterest, against a server that responds as its OpenAPI document specifies.

use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::platform::Platform;
use crier_platforms::CallError;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::metrics::{Started, ok, query};
use super::support::{account, now};
use crate::support::pinterest_videos::error;

async fn started(respond: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static) -> Started {
    let secrets = json!({ "access_token": "token", "client_id": "app", "client_secret": "secret" });
    Started::new(Platform::Pinterest, account("9", secrets), respond).await
}

fn scope_missing() -> ResponseTemplate {
    error(401, 3, "Your token does not have sufficient permissions to perform this operation.")
}

fn pin(metrics: Value) -> ResponseTemplate {
    ok(json!({ "id": "1", "title": "Bread", "pin_metrics": metrics }))
}

#[tokio::test]
async fn a_pin_has_the_counts_of_its_whole_life() {
    let mut pinterest = started(|request: &Request| {
        assert_eq!(request.headers["authorization"], "Bearer token");
        assert_eq!(query(request)["pin_metrics"], "true");
        match request.url.path() {
            "/v5/pins/1" => pin(json!({
                "90d": { "pin_click": 1, "impression": 2, "clickthrough": 1 },
                "lifetime_metrics": {
                    "pin_click": 7, "impression": 200, "clickthrough": 3, "reaction": 10, "comment": 2,
                },
            })),
            "/v5/pins/2" => error(404, 50, "Pin not found."),
            "/v5/pins/3" => error(403, 403, "Not authorized to access board or Pin."),
            "/v5/pins/4" => pin(Value::Null),
            other => panic!("{other}"),
        }
    })
    .await;
    let known = PostMetrics {
        impressions: Some(200),
        likes: Some(10),
        comments: Some(2),
        clicks: Some(7),
        ..PostMetrics::default()
    };
    let unknown = Some(PostMetrics::default());
    // Pin 2 was deleted; pin 3 is on a board that the account may no longer read.
    for (id, metrics) in [("1", Some(known)), ("2", None), ("3", unknown), ("4", unknown)] {
        assert_eq!(pinterest.posts(&[id]).await.unwrap(), [metrics], "{id}");
    }
    assert_eq!((pinterest.calls(), pinterest.aside.added().count()), (4, 0));
}

#[tokio::test]
async fn the_account_has_followers() {
    let mut pinterest = started(|request: &Request| {
        assert_eq!(request.url.path(), "/v5/user_account");
        ok(json!({
            "id": "9", "username": "bakery", "account_type": "BUSINESS", "follower_count": 10, "following_count": 347,
            "pin_count": null, "monthly_views": 163,
        }))
    })
    .await;
    let own = AccountMetrics { followers: Some(10), following: Some(347), posts: None };
    assert_eq!(pinterest.account().await.unwrap(), own);
}

/// A missing scope is not an expired token, so the account must not expire.
#[tokio::test]
async fn without_the_scope_all_metrics_are_set_aside() {
    let mut pinterest = started(|_: &Request| scope_missing()).await;
    for _ in 0..2 {
        assert_eq!(pinterest.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
        assert_eq!(pinterest.account().await.unwrap(), AccountMetrics::default());
    }
    assert_eq!((pinterest.calls(), pinterest.aside.added().count()), (2, 4 + 3));
    let mut forbidden = started(|_: &Request| error(403, 403, "Not authorized to access the user account.")).await;
    assert_eq!(forbidden.account().await.unwrap(), AccountMetrics::default());
    assert_eq!(forbidden.aside.added().count(), 3);
}

#[tokio::test]
async fn other_errors_set_nothing_aside() {
    let limit = error(429, 8, "This request exceeded a rate limit.").insert_header("x-ratelimit-reset", "60");
    for (response, is_right) in [
        (limit, (|e| matches!(e, CallError::RateLimited { until: Some(at), .. } if at > now())) as fn(_) -> bool),
        (error(401, 2, "Authentication failed."), |e| matches!(e, CallError::AuthExpired(_))),
        (error(500, 11, "Something went wrong."), |e| matches!(e, CallError::Transient(_))),
        (ResponseTemplate::new(200).set_body_string("<html>"), |e| matches!(e, CallError::Transient(_))),
        (ResponseTemplate::new(401).set_body_json(json!({ "code": "3" })), |e| matches!(e, CallError::AuthExpired(_))),
    ] {
        let mut pinterest = started(move |_: &Request| response.clone()).await;
        assert!(is_right(pinterest.posts(&["1"]).await.unwrap_err()));
        assert!(is_right(pinterest.account().await.unwrap_err()));
        assert_eq!((pinterest.calls(), pinterest.aside.added().count()), (2, 0));
    }
}

#[tokio::test]
async fn hostile_responses_give_no_metrics() {
    for body in [
        json!([]),
        json!("pin"),
        json!({ "pin_metrics": [] }),
        json!({ "pin_metrics": { "lifetime_metrics": 7 } }),
        json!({ "follower_count": -1, "following_count": "5", "pin_count": i64::MAX, "pin_metrics": {
            "lifetime_metrics": { "impression": -4, "reaction": "10", "comment": 1.5, "pin_click": u64::MAX },
        } }),
    ] {
        let mut pinterest = started(move |_: &Request| ok(body.clone())).await;
        assert_eq!(pinterest.posts(&["1"]).await.unwrap(), [Some(PostMetrics::default())]);
        assert_eq!(pinterest.account().await.unwrap(), AccountMetrics::default());
    }
}

#[tokio::test]
async fn an_id_is_one_part_of_the_address() {
    let mut pinterest = started(|request: &Request| {
        assert_eq!(request.url.path(), "/v5/pins/1%2F%2E%2E%2Fboards%3Fa");
        error(404, 50, "Pin not found.")
    })
    .await;
    assert_eq!(pinterest.posts(&["1/../boards?a"]).await.unwrap(), [None]);
}
