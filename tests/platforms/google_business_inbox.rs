//! The reviews of Google Business Profile, against a server that responds as its documentation specifies.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::google::error;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    reviews_and_their_replies_arrive,
    pages_are_read_back_to_what_is_known_and_each_message_once,
    an_edit_is_followed,
    a_deleted_review_is_followed,
    a_reply_replaces_the_one_before,
    a_reply_with_a_lost_response_is_looked_up,
    what_google_rejects_is_reported,
    an_expired_token_is_renewed,
    a_rate_limit_is_obeyed_until_its_time,
);

const LOCATION: &str = "/v4/accounts/1/locations/11/reviews";

#[derive(Default)]
struct Google {
    /// The one changed last is at the end.
    reviews: Vec<Value>,
    token: String,
    replies: i64,
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn respond(google: &mut Google, request: &Request) -> ResponseTemplate {
    let path = request.url.path();
    if path == "/token" {
        google.token = "new".to_owned();
        return json(200, json!({ "access_token": "new", "expires_in": 3599, "token_type": "Bearer" }));
    }
    if request.headers["authorization"] != format!("Bearer {}", google.token).as_str() {
        return error(401, "UNAUTHENTICATED", json!([]));
    }
    let rest = path.strip_prefix(LOCATION).unwrap();
    if rest.is_empty() {
        assert_eq!(parameter(request, "orderBy").as_deref(), Some("updateTime desc"));
        let size: usize = parameter(request, "pageSize").unwrap().parse().unwrap();
        let from: usize = parameter(request, "pageToken").map_or(0, |token| token.parse().unwrap());
        let page: Vec<&Value> = google.reviews.iter().rev().skip(from).take(size).collect();
        let next = (from + size < google.reviews.len()).then(|| (from + size).to_string());
        return json(200, json!({ "reviews": page, "totalReviewCount": 1, "nextPageToken": next }));
    }
    let id = rest.trim_start_matches('/').trim_end_matches("/reply").to_owned();
    let Some(review) = google.reviews.iter_mut().find(|review| review["reviewId"] == id.as_str()) else {
        return error(404, "NOT_FOUND", json!([]));
    };
    if request.method == "GET" {
        return json(200, review);
    }
    assert_eq!(request.method, "PUT");
    google.replies += 1;
    let at = review["createTime"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let comment = request.body_json::<Value>().unwrap()["comment"].clone();
    let made = json!({ "comment": comment, "updateTime": text(at + TimeDelta::seconds(google.replies)) });
    review["reviewReply"] = made.clone();
    json(200, made)
}

async fn start(s: TestStore) -> InboxTest<Google> {
    let api = FakeApi::start(Google { token: "old".to_owned(), ..Google::default() }, respond).await;
    let secrets = json!({
        "access_token": "old", "refresh_token": "r", "client_id": "id", "client_secret": "secret",
        "location": "accounts/1/locations/11",
    });
    InboxTest::new(s, Platform::GoogleBusiness, "locations/11", secrets, api).await
}

fn review(t: &InboxTest<Google>, id: &str, rating: &str, comment: &str) {
    let now = text(t.w.now());
    let reviewer = json!({ "displayName": "Vera Vogel", "profilePhotoUrl": "https://a.example/x.png" });
    t.api.with(|google| {
        google.reviews.retain(|review| review["reviewId"] != id);
        google.reviews.push(json!({
            "name": format!("accounts/1/locations/11/reviews/{id}"), "reviewId": id, "reviewer": reviewer,
            "starRating": rating, "comment": comment, "createTime": now, "updateTime": now,
        }));
    });
}

/// The time after which the account is due again, in seconds.
const NEXT_SYNC: i64 = 331;

async fn reviews_and_their_replies_arrive(t: InboxTest<Google>) {
    review(&t, "r_1-A", "FOUR", "Fresh bread!");
    t.w.advance(5);
    let at = text(t.w.now());
    t.api.with(|google| {
        google.reviews[0]["reviewReply"] = json!({ "comment": "Thank you.", "updateTime": at });
        google.reviews.push(json!({ "odd": true }));
    });
    t.look().await;
    let found = t.only().await;
    assert_eq!((found.kind.as_str(), found.thread_id.as_str(), found.unread_count), ("comment", "r_1-A", 1));
    assert_eq!(t.texts(found.id).await, ["inbound: ★★★★☆\nFresh bread!", "outbound: Thank you."]);
    assert_eq!((found.participant_name.as_deref(), t.error().await.as_str()), (Some("Vera Vogel"), ""));
}

async fn pages_are_read_back_to_what_is_known_and_each_message_once(t: InboxTest<Google>) {
    for n in 0..120 {
        review(&t, &format!("r{n}"), "ONE", "again");
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("reviews").len()), (120, 3));
    t.look_after(900).await;
    review(&t, "r200", "TWO", "more");
    t.look_after(NEXT_SYNC).await;
    t.look_after(NEXT_SYNC).await;
    assert_eq!(t.count().await, 121);
    assert_eq!(t.w.sum("unread_count", "conversations").await, 121);
}

async fn an_edit_is_followed(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    t.look().await;
    review(&t, "r1", "FIVE", "Good after all");
    t.look_after(NEXT_SYNC).await;
    let found = t.only().await;
    assert_eq!((t.texts(found.id).await, found.unread_count), (vec!["inbound: ★★★★★\nGood after all".to_owned()], 1));
}

async fn a_reply_replaces_the_one_before(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    t.look().await;
    let found = t.only().await;
    for words in ["We are sorry.", "We are sorry. Write to us."] {
        assert_eq!(t.reply_result(found.id, words).await, "sent");
    }
    t.look_after(NEXT_SYNC).await;
    let texts = t.texts(found.id).await;
    assert_eq!(texts[1..], ["outbound: We are sorry.", "outbound: We are sorry. Write to us."]);
    let google = connector(Platform::GoogleBusiness, "");
    let (inbox, thread) = (google.inbox().unwrap(), ReplyThread::from(&found));
    assert!(inbox.check_text(&thread, &"é".repeat(2_048)).is_ok());
    assert!(inbox.check_text(&thread, &"é".repeat(2_049)).unwrap_err().contains("4096"));
}

async fn a_reply_with_a_lost_response_is_looked_up(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    t.look().await;
    let found = t.only().await.id;
    t.reply_with_lost_response(found, "We are sorry.", "/reply", 503).await;
    assert_eq!(t.api.with(|google| google.replies), 1);
    // A reply that never arrived is sent again.
    t.reply_with_lost_call(found, "Write to us.", "/reply", 503).await;
    assert_eq!(t.api.with(|google| google.replies), 2);
}

async fn what_google_rejects_is_reported(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    t.look().await;
    let found = t.only().await.id;
    let rejected = json!({ "comment": "x", "updateTime": "2026-06-09T00:00:00Z", "reviewReplyState": "REJECTED" });
    for (response, category) in [
        (json(200, rejected), "invalid_content"),
        (error(404, "NOT_FOUND", json!([])), "platform_rejected"),
        (error(403, "PERMISSION_DENIED", json!([])), "account"),
    ] {
        t.api.respond_once("/reply", response);
        assert_eq!(t.reply_result(found, "We are sorry.").await, format!("failed: {category}"));
    }
}

async fn an_expired_token_is_renewed(t: InboxTest<Google>) {
    t.api.with(|google| google.token = "other".to_owned());
    review(&t, "r1", "ONE", "Bad");
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/token").len()), (1, 1));
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    t.api.respond_once("reviews", error(429, "RESOURCE_EXHAUSTED", json!([])).insert_header("retry-after", "900"));
    t.sync_under_rate_limit("reviews", NEXT_SYNC, 900).await;
    assert_eq!(t.count().await, 1);
}

async fn a_deleted_review_is_followed(t: InboxTest<Google>) {
    review(&t, "r1", "ONE", "Bad");
    review(&t, "r2", "FIVE", "Good");
    t.look().await;
    t.api.with(|google| google.reviews.remove(0));
    t.look_after(NEXT_SYNC).await;
    assert_eq!(t.w.count_rows("messages WHERE deleted_at IS NULL").await, 2, "a list says nothing");
    t.look_after(3_700).await;
    assert_eq!((t.deleted().await.as_str(), t.error().await.as_str()), ("r1", ""));
    assert_eq!(t.w.sum("unread_count", "conversations").await, 1);
}
