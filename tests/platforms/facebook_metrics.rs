//! Metrics of Facebook pages, against a server that accepts batches as the Graph API documents.

use std::sync::{Arc, Mutex};

use crier_domain::analytics::PostMetrics;
use crier_domain::platform::Platform;
use crier_platforms::CallError;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::metrics::{Started, insight, meta_account, ok};
use crate::support::facebook::error;

/// The sizes of the received batches.
type Batches = Arc<Mutex<Vec<usize>>>;

/// A response within a batch: its status and its body.
type PartResponse = (u16, Value);

/// Starts a server. `respond` receives the path and the metric names of each call of a batch.
async fn started(
    respond: impl Fn(&str, &[&str]) -> Option<PartResponse> + Send + Sync + 'static,
) -> (Started, Batches) {
    let batches = Batches::default();
    let seen = batches.clone();
    let facebook = move |request: &Request| {
        assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/v25.0/"));
        let body: Value = request.body_json().unwrap();
        let calls = body["batch"].as_array().unwrap();
        assert!(calls.len() <= 50, "Facebook takes 50");
        seen.lock().unwrap().push(calls.len());
        let part = |call: &Value| {
            assert_eq!(call["method"], "GET");
            let (path, query) = call["relative_url"].as_str().unwrap().split_once('?').unwrap();
            let names: Vec<&str> =
                query.strip_prefix("metric=").map(|names| names.split(',').collect()).unwrap_or_default();
            match respond(path, &names) {
                Some((code, body)) => json!({ "code": code, "body": body.to_string() }),
                None => Value::Null,
            }
        };
        ok(calls.iter().map(part).collect())
    };
    (Started::new(Platform::Facebook, meta_account("42"), facebook).await, batches)
}

fn fields(likes: u64) -> Option<PartResponse> {
    Some((
        200,
        json!({
            "id": "42_1", "shares": { "count": 3 },
            "comments": { "data": [], "summary": { "total_count": 2 } },
            "reactions": { "data": [], "summary": { "total_count": likes } },
        }),
    ))
}

fn rejection(status: u16, code: i64, subcode: Option<i64>) -> Option<PartResponse> {
    let error = json!({ "message": "No.", "type": "OAuthException", "code": code, "error_subcode": subcode });
    Some((status, json!({ "error": error })))
}

fn gone() -> Option<PartResponse> {
    rejection(400, 100, Some(33))
}

/// The requested insights. An unknown metric fails the call.
fn insights(names: &[&str], known: &[(&str, i64)]) -> Option<PartResponse> {
    let mut data = Vec::new();
    for name in names {
        match known.iter().find(|(one, _)| one == name) {
            Some((_, value)) => data.push(insight(name, json!(value))),
            None => return rejection(400, 100, None),
        }
    }
    Some((200, json!({ "data": data })))
}

const ALL: [(&str, i64); 3] = [("post_impressions", 500), ("post_impressions_unique", 400), ("post_clicks", 9)];

fn known() -> PostMetrics {
    PostMetrics {
        impressions: Some(500),
        reach: Some(400),
        likes: Some(11),
        comments: Some(2),
        shares: Some(3),
        clicks: Some(9),
    }
}

#[tokio::test]
async fn many_posts_are_read_with_one_request() {
    let (mut facebook, batches) = started(|path, names| match path {
        "42_9" | "42_9/insights" => gone(),
        // The post exists, but its insights do not.
        "42_8/insights" => gone(),
        path if path.ends_with("/insights") => insights(names, &ALL),
        _ => fields(11),
    })
    .await;
    let ids: Vec<String> = (1..=25).map(|id| format!("42_{id}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let metrics = facebook.posts(&ids).await.unwrap();
    assert_eq!(batches.lock().unwrap().as_slice(), [50]);
    let mut expected = vec![Some(known()); 25];
    expected[7] = Some(PostMetrics { impressions: None, reach: None, clicks: None, ..known() });
    expected[8] = None;
    assert_eq!(metrics, expected);
    assert_eq!(facebook.aside.added().count(), 0);
}

/// For one post, each metric is requested separately; for the other posts, the remaining metrics together.
#[tokio::test]
async fn a_dead_name_is_set_aside() {
    let (mut facebook, batches) = started(|path, names| match path {
        "42_9" | "42_9/insights" => gone(),
        path if path.ends_with("/insights") => insights(names, &ALL[1..]),
        _ => fields(11),
    })
    .await;
    let without = Some(PostMetrics { impressions: None, ..known() });
    assert_eq!(facebook.posts(&["42_1", "42_9", "42_2", "42_3"]).await.unwrap(), [without, None, without, without]);
    assert_eq!(facebook.aside.added().collect::<Vec<_>>(), ["post_impressions"]);
    assert_eq!(batches.lock().unwrap().as_slice(), [8, 3, 2]);
    assert_eq!(facebook.posts(&["42_1"]).await.unwrap(), [without]);
    assert_eq!(batches.lock().unwrap().as_slice(), [8, 3, 2, 2], "what is set aside is not requested");
}

#[tokio::test]
async fn without_the_permission_the_counts_of_the_fields_are_left() {
    let (mut facebook, batches) = started(|path, _| match path {
        "42_9" | "42_9/insights" => gone(),
        path if path.ends_with("/insights") => rejection(403, 10, None),
        _ => fields(11),
    })
    .await;
    let counts = Some(PostMetrics { impressions: None, reach: None, clicks: None, ..known() });
    assert_eq!(facebook.posts(&["42_1", "42_2"]).await.unwrap(), [counts, counts]);
    assert_eq!(facebook.aside.added().count(), 3);
    assert_eq!(facebook.posts(&["42_1", "42_9"]).await.unwrap(), [counts, None]);
    assert_eq!(batches.lock().unwrap().as_slice(), [4, 3, 2], "only the fields");
}

/// A metric may be rejected for one post only, and only together with another metric.
#[tokio::test]
async fn names_that_are_rejected_together_are_requested_alone() {
    let (mut facebook, batches) = started(|path, names| match path {
        path if path.ends_with("/insights") && names.len() > 1 => rejection(400, 100, None),
        path if path.ends_with("/insights") => insights(names, &ALL),
        _ => fields(11),
    })
    .await;
    let all = [Some(known()); 3];
    assert_eq!(facebook.posts(&["42_1", "42_2", "42_3"]).await.unwrap(), all);
    assert_eq!(facebook.aside.added().count(), 0);
    assert_eq!(batches.lock().unwrap().as_slice(), [6, 3, 2, 3, 1, 3]);
}

/// Facebook returns null for a call if its time ran out.
#[tokio::test]
async fn calls_without_a_response_are_made_again() {
    let missing = Arc::new(Mutex::new(3));
    let (mut facebook, batches) = started(move |path, names| {
        let mut missing = missing.lock().unwrap();
        if path == "42_2/insights" && *missing > 1 {
            *missing -= 1;
            return None;
        }
        match path.ends_with("/insights") {
            true => insights(names, &ALL),
            false => fields(11),
        }
    })
    .await;
    assert_eq!(facebook.posts(&["42_1", "42_2"]).await.unwrap(), [Some(known()); 2]);
    assert_eq!(batches.lock().unwrap().as_slice(), [4, 1, 1]);
    let (mut never, batches) = started(|_, _| None).await;
    assert!(matches!(never.posts(&["42_1"]).await.unwrap_err(), CallError::Transient(_)));
    assert_eq!(batches.lock().unwrap().as_slice(), [2, 2, 2]);
}

/// An error that concerns all posts ends the batch.
#[tokio::test]
async fn other_errors_set_nothing_aside() {
    type Check = fn(CallError) -> bool;
    let cases: [(&str, i64, Check); 4] = [
        ("42_2", 4, |error| matches!(error, CallError::RateLimited { .. })),
        ("42_2", 190, |error| matches!(error, CallError::Reauth(_))),
        ("42_2/insights", 32, |error| matches!(error, CallError::RateLimited { .. })),
        ("42_2/insights", 2, |error| matches!(error, CallError::Transient(_))),
    ];
    for (failing, code, is_right) in cases {
        let (mut facebook, _) = started(move |path, names| match path {
            path if path == failing => rejection(400, code, None),
            path if path.ends_with("/insights") => insights(names, &ALL),
            _ => fields(11),
        })
        .await;
        assert!(is_right(facebook.posts(&["42_1", "42_2"]).await.unwrap_err()), "{failing} {code}");
        assert_eq!((facebook.calls(), facebook.aside.added().count()), (1, 0));
    }
    let whole = |_: &Request| error(400, 613, None, "Calls to this api have exceeded the rate limit.");
    let mut facebook = Started::new(Platform::Facebook, meta_account("42"), whole).await;
    assert!(matches!(facebook.posts(&["42_1"]).await.unwrap_err(), CallError::RateLimited { .. }));
}

#[tokio::test]
async fn hostile_responses_give_no_metrics() {
    let nothing = Some(PostMetrics::default());
    let (mut facebook, _) = started(|path, names| match path.ends_with("/insights") {
        true => Some((200, json!({ "data": names.iter().map(|name| insight(name, json!(-5))).collect::<Vec<_>>() }))),
        false => Some((
            200,
            json!({
                "shares": { "count": "3" }, "comments": { "summary": { "total_count": -1 } },
                "reactions": { "summary": { "total_count": u64::MAX } },
            }),
        )),
    })
    .await;
    assert_eq!(facebook.posts(&["42_1"]).await.unwrap(), [nothing]);
    for parts in [json!({ "batch": 1 }), json!([]), json!([7, "x", { "code": 200 }]), json!([{ "code": 9_999 }, null])]
    {
        let respond = move |_: &Request| ResponseTemplate::new(200).set_body_json(parts.clone());
        let mut facebook = Started::new(Platform::Facebook, meta_account("42"), respond).await;
        assert!(matches!(facebook.posts(&["42_1"]).await.unwrap_err(), CallError::Transient(_)));
    }
    // Responses to calls that were not made.
    let more = |request: &Request| {
        let body: Value = request.body_json().unwrap();
        let count = body["batch"].as_array().unwrap().len();
        ok((0..count + 5).map(|_| json!({ "code": 200, "body": "{}" })).collect())
    };
    let mut facebook = Started::new(Platform::Facebook, meta_account("42"), more).await;
    assert_eq!(facebook.posts(&["42_1"]).await.unwrap(), [nothing]);
}

#[tokio::test]
async fn the_page_has_followers() {
    let page = |request: &Request| {
        assert_eq!(request.url.path(), "/v25.0/42");
        ok(json!({ "id": "42", "followers_count": 77 }))
    };
    let mut facebook = Started::new(Platform::Facebook, meta_account("42"), page).await;
    assert_eq!(facebook.account().await.unwrap().followers, Some(77));
}
