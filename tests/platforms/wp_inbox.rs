//! The comments of WordPress and the reviews of WooCommerce, against a site that responds as their documentation
//! specifies.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};

on_one!(reviews_arrive_and_cannot_be_replied_to, deleted_reviews_are_followed);
on_one!(start =>
    comments_become_threads,
    a_comment_that_is_approved_late_arrives,
    pages_are_read_forwards_and_each_message_once,
    a_reply_is_a_comment_below,
    a_reply_with_a_lost_response_is_searched,
    replies_with_one_text_are_told_apart,
    what_the_site_rejects_is_reported,
    a_reply_that_is_held_for_moderation_is_not_shown_as_sent,
    wrong_credentials_are_noticed_within_the_hour,
    a_rate_limit_is_obeyed_until_its_time,
    deleted_comments_are_followed,
    without_the_right_to_moderate_only_what_is_gone_is_followed,
);

const ME: i64 = 5;

#[derive(Default)]
struct Site {
    comments: Vec<Value>,
    rejects_me: bool,
    /// Whether the account may read only what everyone may read.
    may_not_moderate: bool,
    now: String,
}

fn text(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S").to_string()
}

fn rejected(status: u16, code: &str) -> ResponseTemplate {
    json(status, json!({ "code": code, "message": "Sorry.", "data": { "status": status } }))
}

fn respond(site: &mut Site, request: &Request) -> ResponseTemplate {
    let path = request.url.path();
    assert_eq!(request.headers["authorization"], "Basic YWRhOnA=");
    match (request.method.as_str(), path) {
        ("GET", "/wp-json/wp/v2/users/me") if site.rejects_me => rejected(401, "rest_not_logged_in"),
        ("GET", "/wp-json/wp/v2/users/me") => json(200, json!({ "id": ME })),
        ("GET", "/wp-json/wp/v2/comments" | "/wp-json/wc/v3/products/reviews") => {
            let size: usize = parameter(request, "per_page").unwrap().parse().unwrap();
            let after = parameter(request, "after").map(|after| after.trim_end_matches('Z').to_owned());
            let include: Option<Vec<String>> =
                parameter(request, "include").map(|ids| ids.split(',').map(str::to_owned).collect());
            let post = parameter(request, "post");
            let time =
                |c: &Value| c.get("date_gmt").or(c.get("date_created_gmt")).unwrap().as_str().unwrap().to_owned();
            let shown = if path.ends_with("reviews") { "approved" } else { "approve" };
            let status = parameter(request, "status").unwrap_or_else(|| shown.to_owned());
            if site.may_not_moderate && status != shown {
                return rejected(403, "rest_forbidden_param");
            }
            let is_wanted = |c: &&Value| {
                (c["status"] == status || (c["status"] == "approved" && status == shown))
                    && after.as_ref().is_none_or(|after| time(c) > *after)
                    && include.as_ref().is_none_or(|ids| ids.contains(&c["id"].to_string()))
                    && post.as_ref().is_none_or(|post| c["post"].as_i64() == post.parse().ok())
            };
            let mut found: Vec<&Value> = site.comments.iter().filter(is_wanted).collect();
            found.sort_by_key(|c| time(c));
            found.truncate(size);
            json(200, found)
        }
        ("POST", "/wp-json/wp/v2/comments") => {
            let body: Value = request.body_json().unwrap();
            let content = body["content"].as_str().unwrap();
            let is_same =
                |c: &Value| c["author"] == ME && c["parent"] == body["parent"] && c["sent"] == body["content"];
            if site.comments.iter().any(is_same) {
                return rejected(409, "comment_duplicate");
            }
            let id = 900 + site.comments.len();
            // As WordPress renders it, with paragraphs and typographic quotation marks.
            let shown = content.replace("&quot;", "&#8221;").replace("...", "&#8230;");
            let made = json!({
                "id": id, "post": body["post"], "parent": body["parent"], "author": ME, "author_name": "Ada",
                "author_avatar_urls": [], "date_gmt": site.now, "content": { "rendered": format!("<p>{shown}</p>\n") },
                "link": format!("https://b.example/news/#comment-{id}"), "status": "approved", "sent": content,
            });
            site.comments.push(made.clone());
            json(201, made)
        }
        ("GET", one) => {
            let id = one.rsplit('/').next().unwrap();
            match site.comments.iter().find(|c| c["id"].as_i64() == id.parse().ok()) {
                Some(c) if c["status"] == "approved" || !site.may_not_moderate => json(200, c),
                Some(_) => rejected(403, "rest_cannot_read"),
                None if one.contains("/wc/v3/products/reviews/") => rejected(404, "woocommerce_rest_review_invalid_id"),
                None => rejected(404, "rest_comment_invalid_id"),
            }
        }
        other => panic!("no such call: {other:?}"),
    }
}

async fn start(s: TestStore) -> InboxTest<Site> {
    let api = FakeApi::start(Site::default(), respond).await;
    let root = format!("{}/wp-json/", api.base());
    let secrets = json!({ "username": "ada", "application_password": "p", "api_root": root });
    InboxTest::new(s, Platform::Wordpress, "https://b.example", secrets, api).await
}

fn comment_at(t: &InboxTest<Site>, id: i64, parent: i64, body: &str, at: DateTime<Utc>) {
    let made = json!({
        "id": id, "post": 11, "parent": parent, "author": 0, "author_name": "Vera &amp; Co",
        "author_avatar_urls": { "96": "https://a.example/x.png" }, "date_gmt": text(at),
        "content": { "rendered": format!("<p>{body}</p>\n") }, "link": format!("https://b.example/news/#comment-{id}"),
        "status": "approved",
    });
    t.api.with(|site| {
        site.comments.push(made);
        site.now = text(at.max(t.w.now()));
    });
}

fn comment(t: &InboxTest<Site>, id: i64, parent: i64, body: &str) {
    comment_at(t, id, parent, body, t.w.now());
}

async fn comments_become_threads(t: InboxTest<Site>) {
    comment_at(&t, 1, 0, "Long ago", t.w.now() - TimeDelta::days(40));
    comment(&t, 2, 1, "And me");
    comment(&t, 3, 0, "Open &#8220;now&#8221;?<br />\nTell me");
    comment(&t, 4, 3, "At seven.");
    comment(&t, 5, 77, "Below one that was deleted");
    comment(&t, 6, 0, "What the account wrote itself");
    t.api.with(|site| {
        (site.comments[3]["author"], site.comments[5]["author"]) = (json!(ME), json!(ME));
        site.comments.push(json!({ "id": 7, "odd": true, "date_gmt": "x" }));
    });
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(threads, [("1", 1), ("3", 1), ("77", 1)]);
    assert_eq!(t.texts(found[1].id).await, ["inbound: Open “now”?\nTell me", "outbound: At seven."]);
    assert_eq!(
        (found[1].subject_external_id.as_deref(), found[1].subject_url.as_deref()),
        (Some("11"), Some("https://b.example/news/"))
    );
    assert_eq!(found[1].participant_name.as_deref(), Some("Vera & Co"));
    assert!(t.api.requests_to("users/me").len() == 1 && t.error().await.is_empty());
}

async fn a_comment_that_is_approved_late_arrives(t: InboxTest<Site>) {
    comment(&t, 1, 0, "held");
    t.api.with(|site| site.comments[0]["status"] = json!("hold"));
    t.w.advance(60);
    comment(&t, 2, 0, "newer");
    t.look().await;
    assert_eq!(t.only().await.thread_id, "2");
    t.api.with(|site| site.comments[0]["status"] = json!("approved"));
    t.sync_inbox_later().await;
    assert_eq!(t.count().await, 2, "within ten minutes it is seen at once");
    comment_at(&t, 3, 0, "held for a week", t.w.now() - TimeDelta::days(7));
    t.sync_inbox_later().await;
    assert_eq!(t.count().await, 2);
    t.look_after(3_600).await;
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, t.conversations().await.iter().map(|c| c.unread_count).sum::<i32>()), (3, 2));
}

async fn pages_are_read_forwards_and_each_message_once(t: InboxTest<Site>) {
    for n in 0..130 {
        comment_at(&t, n + 1, 0, "again", t.w.now() - TimeDelta::hours(1) + TimeDelta::seconds(n / 3));
    }
    t.look().await;
    assert_eq!(t.count().await, 130);
    let before = t.api.requests_to("comments").len();
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, t.api.requests_to("comments").len() - before), (130, 3), "ten minutes overlap");
}

async fn a_reply_is_a_comment_below(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.reply_result(found.id, "At <seven> & \"later\"").await, "sent");
    let posted: Value = t.api.requests_to("comments").pop().unwrap().body_json().unwrap();
    assert_eq!((&posted["post"], &posted["parent"]), (&json!(11), &json!(3)));
    assert!(!posted["content"].as_str().unwrap().contains('<'), "{posted}");
    t.sync_inbox_later().await;
    assert_eq!(t.messages(found.id).await.len(), 2, "it is not there twice");
}

async fn a_reply_with_a_lost_response_is_searched(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    t.look().await;
    let found = t.only().await.id;
    t.reply_with_lost_response(found, "At \"seven\"...", "wp/v2/comments", 502).await;
    assert_eq!(t.api.with(|site| site.comments.len()), 2);
    // A reply that never arrived is sent again.
    t.reply_with_lost_call(found, "At eight.", "wp/v2/comments", 502).await;
    assert_eq!(t.api.with(|site| site.comments.len()), 3);
}

async fn replies_with_one_text_are_told_apart(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    comment(&t, 4, 0, "Closed?");
    t.look().await;
    t.send_one_text_to_two(t.two_conversations().await, "wp/v2/comments").await;
    let own = |one: &&Value| one["author"] == ME;
    let parents: Vec<Value> =
        t.api.with(|site| site.comments.iter().filter(own).map(|one| one["parent"].clone()).collect());
    assert_eq!(parents, [4, 3]);
}

async fn what_the_site_rejects_is_reported(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    t.look().await;
    let found = t.only().await.id;
    for (status, code, state, category) in [
        (409, "comment_duplicate", "failed", "duplicate_content"),
        (400, "comment_flood", "pending", "platform_error"),
        (403, "rest_comment_closed", "failed", "account"),
    ] {
        t.api.respond_once("wp/v2/comments", rejected(status, code));
        assert_eq!(t.reply_result(found, "At seven.").await, format!("{state}: {category}"), "{code}");
    }
}

async fn a_reply_that_is_held_for_moderation_is_not_shown_as_sent(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    t.look().await;
    let found = t.only().await.id;
    let held = json!({ "id": 901, "post": 7, "parent": 3, "author": ME, "date_gmt": "2026-03-01T12:00:00",
        "status": "hold" });
    t.api.respond_once("wp/v2/comments", json(201, held));
    assert_eq!(t.reply_result(found, "At seven.").await, "failed: platform_rejected");
}

async fn wrong_credentials_are_noticed_within_the_hour(t: InboxTest<Site>) {
    t.look().await;
    t.api.with(|site| site.rejects_me = true);
    t.sync_inbox_later().await;
    assert_eq!(t.status().await, AccountStatus::Active);
    t.look_after(3_600).await;
    assert_eq!(t.status().await, AccountStatus::Expired);
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Site>) {
    comment(&t, 3, 0, "Open?");
    t.api.respond_once("wp/v2", rejected(429, "too_many").insert_header("retry-after", "300"));
    t.sync_under_rate_limit("wp/v2", 70, 300).await;
    assert_eq!(t.count().await, 1);
}

async fn reviews_arrive_and_cannot_be_replied_to(s: TestStore) {
    let api = FakeApi::start(Site::default(), respond).await;
    let root = format!("{}/wp-json/", api.base());
    let secrets = json!({ "consumer_key": "ada", "consumer_secret": "p", "api_root": root });
    let t = InboxTest::new(s, Platform::Woocommerce, "https://b.example", secrets, api).await;
    let review = json!({
        "id": 31, "date_created_gmt": text(t.w.now()), "product_id": 12,
        "product_permalink": "https://b.example/bread/", "reviewer": "Vera", "reviewer_email": "vera@b.example",
        "review": "<p>Fresh!</p>\n", "rating": 4, "verified": true,
        "reviewer_avatar_urls": { "96": "https://a.example/x.png" }, "status": "approved",
    });
    t.api.with(|site| site.comments.push(review));
    t.look().await;
    t.sync_inbox_later().await;
    let found = t.only().await;
    assert_eq!((found.kind.as_str(), found.thread_id.as_str(), found.unread_count), ("comment", "31", 1));
    assert_eq!(t.texts(found.id).await, ["inbound: ★★★★☆\nFresh!"]);
    assert_eq!(
        (found.subject_external_id.as_deref(), found.participant_external_id.as_deref()),
        (Some("12"), Some("name:Vera"))
    );
    assert!(!t.api.requests_to("reviews")[0].url.query().unwrap().contains("email"));
    let woocommerce = connector(Platform::Woocommerce, "");
    let rejection = woocommerce.inbox().unwrap().rejection(&ReplyThread::from(&found), t.w.now());
    assert!(rejection.unwrap().contains("Reply in the store"));
}

/// Returns the threads whose message was deleted.
async fn deleted(t: &InboxTest<Site>) -> Vec<String> {
    let mut deleted = Vec::new();
    for found in t.conversations().await {
        if t.messages(found.id).await.iter().all(|message| message.deleted_at.is_some()) {
            assert_eq!((found.unread_count, found.last_message_preview.as_str()), (0, "–"));
            deleted.push(found.thread_id);
        }
    }
    deleted.sort();
    deleted
}

/// Adds six comments, of which one is in the trash, one is spam, one waits for approval and one was deleted.
async fn lose_some(t: &InboxTest<Site>) {
    for id in 1..=6 {
        comment(t, id, 0, &format!("comment {id}"));
    }
    t.look().await;
    t.api.with(|site| {
        for (at, status) in [(1, "trash"), (2, "spam"), (3, "hold")] {
            site.comments[at]["status"] = json!(status);
        }
        site.comments.remove(4);
    });
    t.look_after(3_700).await;
}

async fn deleted_comments_are_followed(t: InboxTest<Site>) {
    lose_some(&t).await;
    assert_eq!(deleted(&t).await, ["2", "3", "5"]);
    assert_eq!(t.error().await, "");
    // One is restored from the trash.
    t.api.with(|site| site.comments[1]["status"] = json!("approved"));
    t.look_after(3_700).await;
    assert_eq!(deleted(&t).await, ["3", "5"]);
}

async fn without_the_right_to_moderate_only_what_is_gone_is_followed(t: InboxTest<Site>) {
    t.api.with(|site| site.may_not_moderate = true);
    lose_some(&t).await;
    assert_eq!((deleted(&t).await, t.error().await.as_str()), (vec!["5".to_owned()], ""));
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn deleted_reviews_are_followed(s: TestStore) {
    let api = FakeApi::start(Site::default(), respond).await;
    let root = format!("{}/wp-json/", api.base());
    let secrets = json!({ "consumer_key": "ada", "consumer_secret": "p", "api_root": root });
    let t = InboxTest::new(s, Platform::Woocommerce, "https://b.example", secrets, api).await;
    for id in 31..=33 {
        let review = json!({ "id": id, "date_created_gmt": text(t.w.now()), "product_id": 12, "reviewer": "Vera",
            "review": "<p>Fresh!</p>", "rating": 4, "status": "approved" });
        t.api.with(|site| site.comments.push(review));
    }
    t.look().await;
    t.api.with(|site| {
        site.comments[0]["status"] = json!("trash");
        site.comments.remove(1);
    });
    t.look_after(3_700).await;
    assert_eq!((deleted(&t).await, t.error().await.as_str()), (vec!["31".to_owned(), "32".to_owned()], ""));
}
