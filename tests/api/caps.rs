//! The caps of a plan, with many concurrent requests to two processes. Exactly as many succeed as the cap allows,
//! whatever the endpoint, and the others change nothing. Also a change of the plan while requests run.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use crier_api::ai::PROVIDER_TIMEOUT;
use futures::future::join_all;
use serde_json::{Value, json};

use super::feeds;
use crate::support::ai_server::{AiApp, AiServer, captions, image_response};
use crate::support::app::{Reply, Tenant, TestApp};
use crate::support::command::crier;
use crate::support::images::png;
use crate::support::request::assert_fields;
use crate::support::store::on_both;

on_both!(TestApp::start =>
    concurrent_brands_never_exceed_the_cap,
    concurrent_accounts_never_exceed_the_cap,
    concurrent_posts_never_exceed_the_monthly_cap,
    an_already_counted_post_is_not_counted_again,
    concurrent_requests_never_exceed_the_rate_limit,
);
on_both!(AiApp::start =>
    concurrent_images_never_exceed_the_storage_cap,
    concurrent_requests_never_exceed_the_credits,
    a_plan_change_applies_to_every_process_immediately,
);

/// Two processes, and a tenant that alternates between them.
struct TwoProcesses<'a> {
    t: &'a Tenant<'a>,
    urls: [&'a str; 2],
}

impl TwoProcesses<'_> {
    async fn send(&self, n: usize, method: &str, path: &str, body: Value) -> Reply {
        self.t.request_at(self.urls[n % 2], method, path).json(&body).send().await
    }
}

fn passed(replies: &[Reply]) -> usize {
    replies.iter().filter(|reply| reply.status < 300).count()
}

/// Asserts that all other requests were rejected with this code.
fn assert_others_rejected(replies: &[Reply], code: &str) {
    replies.iter().filter(|reply| reply.status >= 300).for_each(|reply| drop(reply.expect_error(402, code)));
}

fn id(record: &Value) -> i64 {
    record["id"].as_i64().expect("an id")
}

async fn concurrent_brands_never_exceed_the_cap(app: TestApp) {
    let (t, replica) = (app.tenant("pro").await, app.replica().await);
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    let replies = join_all((0..10).map(|n| two.send(n, "POST", "/brands", json!({ "name": "More" })))).await;
    assert_others_rejected(&replies, "limit_reached");
    assert_eq!((passed(&replies), app.count_rows("brands").await), (4, 5), "one already existed");
}

async fn concurrent_accounts_never_exceed_the_cap(app: TestApp) {
    let (t, replica) = (app.tenant("free").await, app.replica().await);
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    let path = t.path("/social-accounts");
    let body = |n| json!({ "platform": "sandbox", "credentials": { "handle": format!("h{n}") } });
    let replies = join_all((0..10).map(|n| two.send(n, "POST", &path, body(n)))).await;
    assert_others_rejected(&replies, "limit_reached");
    assert_eq!((passed(&replies), app.count_rows("brand_accounts").await), (3, 3));
    // An account that is already connected does not count, however often it is connected concurrently.
    let known = t.get(&path).await.data(200)[0]["external_id"].as_str().unwrap().to_owned();
    let body = json!({ "platform": "sandbox", "credentials": { "handle": known } });
    let replies = join_all((0..4).map(|n| two.send(n, "POST", &path, body.clone()))).await;
    assert_eq!(passed(&replies), 4);
}

/// Creates an item that is planned at this time, and returns the path that schedules it.
async fn item(t: &Tenant<'_>, at: &str) -> String {
    let plan = json!({ "name": "P", "items": [{ "title": "a", "content": "a", "planned_at": at }] });
    let created = t.post(&t.path("/content-plans"), plan).await.data(201);
    t.path(&format!("/content-plans/{}/items/{}/schedule", created["id"], created["items"][0]["id"]))
}

async fn concurrent_posts_never_exceed_the_monthly_cap(app: TestApp) {
    let (t, replica) = (app.tenant("business").await, app.replica().await);
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    let account = t.account("demo").await;
    let later = (app.now() + TimeDelta::hours(5)).to_rfc3339();
    let posts = t.path("/posts");
    let draft = json!({ "content": "x", "accounts": [account] });
    let post = |kind: &str| {
        let at = (kind != "now").then_some(&later);
        json!({ "content": "x", "accounts": [account], "schedule_type": kind, "scheduled_at": at })
    };
    let mut drafts = Vec::new();
    for _ in 0..3 {
        drafts.push(format!("{posts}/{}", t.post(&posts, draft.clone()).await.data(201)["id"]));
    }
    let submit = format!("{}/submit", drafts[2]);
    let items = [item(&t, &later).await, item(&t, &later).await, item(&t, &later).await];
    let feed = t.post(&t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })).await.data(201);
    let article = feeds::article(&t, id(&feed), "guid").await;
    let of_article = t.path(&format!("/feeds/{}/articles/{article}/draft", id(&feed)));
    app.set_used_posts(t.workspace, 20_000 - 4).await;
    let to = |destination: &str| json!({ "account_ids": [account], "destination": destination });
    let counted = [
        ("POST", posts.as_str(), post("now")),
        ("POST", &posts, post("scheduled")),
        ("POST", &posts, post("now")),
        ("PUT", &drafts[0], json!({ "schedule_type": "now" })),
        ("PUT", &drafts[1], json!({ "schedule_type": "scheduled", "scheduled_at": later })),
        ("POST", &submit, json!({})),
        ("POST", &items[0], to("calendar")),
        ("POST", &items[1], to("approval")),
    ];
    let free = [("POST", posts.as_str(), draft), ("POST", &items[2], to("draft")), ("POST", &of_article, json!({}))];
    let send = |(n, (method, path, body)): (usize, (&'static str, &str, Value))| {
        let (two, path) = (&two, path.to_owned());
        async move { two.send(n, method, &path, body).await }
    };
    let (counted, free) = futures::join!(
        join_all(counted.into_iter().enumerate().map(send)),
        join_all(free.into_iter().enumerate().map(send))
    );
    assert_others_rejected(&counted, "limit_reached");
    assert_eq!((passed(&counted), passed(&free)), (4, 3), "{free:?}");
    assert_eq!(app.used_posts(t.workspace).await, 20_000);
    assert_eq!(app.count_rows("posts WHERE counted").await, 4);
    assert_eq!(app.count_rows("posts WHERE status <> 'draft'").await, 4, "the others are drafts still");
    let waiting = app.count_rows("jobs WHERE kind = 'publish_target'").await;
    let submitted = app.count_rows("posts WHERE status = 'pending_approval'").await;
    assert_eq!(waiting + submitted, 4, "rejected posts are not published");
}

async fn an_already_counted_post_is_not_counted_again(app: TestApp) {
    let t = app.tenant("business").await;
    let account = t.account("demo").await;
    app.set_used_posts(t.workspace, 20_000 - 2).await;
    let draft = json!({ "content": "x", "accounts": [account] });
    let path = t.path(&format!("/posts/{}", t.post(&t.path("/posts"), draft.clone()).await.data(201)["id"]));
    let change = async |what: &str| t.request("POST", &format!("{path}/{what}")).send().await;
    // Submitted, rejected, submitted again, approved: one post.
    for what in ["submit", "reject", "submit", "approve"] {
        change(what).await.expect(200);
    }
    assert_eq!(app.used_posts(t.workspace).await, 19_999);
    // Retrying a failed post costs nothing, even when the month's cap is reached.
    let mut now = draft;
    now["schedule_type"] = json!("now");
    let failed = t.post(&t.path("/posts"), now.clone()).await.data(201);
    t.post(&t.path("/posts"), now).await.expect_error(402, "limit_reached");
    app.end_post(id(&failed), "failed", &["failed"]).await;
    let again = t.put(&t.path(&format!("/posts/{}", failed["id"])), json!({ "schedule_type": "now" })).await;
    assert_eq!(again.data(200)["status"], "publishing");
    assert_eq!(app.used_posts(t.workspace).await, 20_000);
}

async fn concurrent_images_never_exceed_the_storage_cap(app: AiApp) {
    let t = app.tenant("business").await;
    let other = AiServer::start().await;
    let replica = app.replica_with(other.ai(PROVIDER_TIMEOUT)).await;
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    let images: Vec<Vec<u8>> = (0..10).map(|n| png(40 + n, 40)).collect();
    // There is room for three images of this size.
    let largest = t.upload("a.png", &images[9], &[]).await.data(201)["size_bytes"].as_i64().unwrap();
    let cap: i64 = 512_000 << 20;
    app.set_storage_usage(t.workspace, cap - 3 * largest, 0).await;
    app.ai.queue_responses([image_response(&images[0]), image_response(&images[1])]);
    other.queue_responses([image_response(&images[2]), image_response(&images[3])]);
    let path = t.path("/ai/images");
    let created = (0..4).map(|n| two.send(n, "POST", &path, json!({ "prompt": "bread" })));
    let media = t.path("/media");
    let uploads = images[4..9]
        .iter()
        .enumerate()
        .map(|(n, bytes)| t.request_at(two.urls[n % 2], "POST", &media).form(Some(("a.png", bytes)), &[]).send());
    let (created, uploads) = futures::join!(join_all(created), join_all(uploads));
    let paid = passed(&created);
    let all = [created, uploads].concat();
    assert_others_rejected(&all, "storage_limit_exceeded");
    assert_eq!(passed(&all), 3);
    assert_eq!(app.count_rows("media").await, 4);
    let bytes = app.counted_bytes().await;
    assert_eq!(bytes - (cap - 3 * largest), app.file_bytes().await - largest, "exactly the stored bytes");
    assert!(bytes <= cap);
    assert_eq!((app.used(t.workspace).await, app.held().await), (240 * paid as i64, 0));
}

async fn concurrent_requests_never_exceed_the_credits(app: AiApp) {
    let t = app.tenant("free").await;
    let other = AiServer::start().await;
    let replica = app.replica_with(other.ai(PROVIDER_TIMEOUT)).await;
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    // There are credits for six requests. The remainder suffices only for a request with fewer captions.
    let three = || captions(&["A", "B", "C"]);
    app.ai.queue_responses((0..5).map(|_| three()));
    other.queue_responses((0..5).map(|_| three()));
    let path = t.path("/ai/captions");
    let replies = join_all((0..10).map(|n| two.send(n, "POST", &path, json!({ "prompt": "bread" })))).await;
    assert_others_rejected(&replies, "insufficient_credits");
    let mut left: Vec<_> =
        replies.iter().filter(|r| r.status == 200).map(|r| r.data(200)["credits_remaining"].clone()).collect();
    left.sort_by_key(Value::as_i64);
    assert_eq!((passed(&replies), left.last()), (6, left.get(5)));
    assert_eq!((app.used(t.workspace).await, app.held().await), (90, 0));
    assert_eq!(
        app.ai.request_bodies().await.len() + other.request_bodies().await.len(),
        6,
        "the AI is not called for the others"
    );
}

async fn concurrent_requests_never_exceed_the_rate_limit(app: TestApp) {
    let t = app.tenant("free").await;
    let replies = join_all((0..75).map(|_| t.get("/brands"))).await;
    let rejected: Vec<_> = replies.iter().filter(|reply| reply.status != 200).collect();
    rejected.iter().for_each(|reply| drop(reply.expect_error(429, "rate_limited")));
    assert_eq!(rejected.len(), 15);
    let mut left: Vec<u32> = replies.iter().filter(|reply| reply.status == 200).map(remaining).collect();
    left.sort_unstable();
    assert_eq!(left, (0..60).collect::<Vec<_>>(), "each response has its own number");
}

fn remaining(reply: &Reply) -> u32 {
    reply.header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

/// Existing records stay readable. Writes beyond the new caps are rejected until usage fits again.
async fn a_plan_change_applies_to_every_process_immediately(app: AiApp) {
    let t = app.tenant("business").await;
    let replica = app.replica_with(app.ai.ai(PROVIDER_TIMEOUT)).await;
    let two = TwoProcesses { t: &t, urls: [&app.url, &replica] };
    let account = t.account("a0").await;
    for n in 1..5 {
        t.account(&format!("a{n}")).await;
    }
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    let hook = format!("/webhooks/{}", t.post("/webhooks", hook).await.data(201)["id"]);
    let asset = t.upload("a.png", &png(30, 30), &[]).await.data(201);
    app.ai.queue_responses([image_response(&png(31, 30))]);
    t.post(&t.path("/ai/images"), json!({ "prompt": "bread" })).await.expect(201);
    app.set_storage_usage(t.workspace, 600 << 20, 0).await;
    app.set_used_posts(t.workspace, 31).await;
    let email = app.email(t.user).await;
    let set = |plan: &str| drop(crier(&app.store, &["plan", "set", "--user", &email, plan]).expect_stdout().to_owned());

    let writes = async |n: usize| {
        let post = json!({ "content": "x", "schedule_type": "now", "accounts": [account] });
        let connect = json!({ "platform": "sandbox", "credentials": { "handle": format!("new{n}") } });
        let mut codes = BTreeMap::new();
        for (path, body) in [
            ("/brands".to_owned(), json!({ "name": "Third" })),
            (t.path("/social-accounts"), connect),
            (t.path("/posts"), post),
            (t.path("/ai/captions"), json!({ "prompt": "bread" })),
            (t.path("/ai/images"), json!({ "prompt": "bread" })),
            ("/webhooks".to_owned(), json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] })),
        ] {
            let reply = two.send(n, "POST", &path, body).await;
            let code = if reply.status < 300 {
                String::new()
            } else {
                reply.json()["error"]["code"].as_str().unwrap().to_owned()
            };
            codes.insert(path.rsplit('/').next().unwrap().to_owned(), (reply.status, code));
        }
        let upload =
            t.request_at(two.urls[n], "POST", &t.path("/media")).form(Some(("b.png", &png(33 + n as u32, 30))), &[]);
        codes.insert("media".to_owned(), (upload.send().await.status, String::new()));
        codes
    };
    set("free");
    for n in 0..2 {
        let rejected = writes(n).await;
        for (what, code) in [
            ("brands", "limit_reached"),
            ("social-accounts", "limit_reached"),
            ("posts", "limit_reached"),
            ("captions", "insufficient_credits"),
            ("images", "storage_limit_exceeded"),
            ("webhooks", "feature_not_available"),
        ] {
            assert_eq!(rejected[what], (402, code.to_owned()), "process {n}: {what}");
        }
        assert_eq!(rejected["media"].0, 402);
        let brands = t.request_at(two.urls[n], "GET", "/brands").send().await;
        assert_eq!((brands.data(200).as_array().unwrap().len(), brands.header("x-ratelimit-limit")), (2, Some("60")));
        for (list, count) in [("/social-accounts", 5), ("/media", 2)] {
            let there = t.request_at(two.urls[n], "GET", &t.path(list)).send().await.data(200);
            assert_eq!(there.as_array().unwrap().len(), count, "{list}");
        }
        let usage = t.request_at(two.urls[n], "GET", &t.path("/usage")).send().await.data(200);
        assert_fields(&usage, json!({ "plan": "free", "social_accounts": { "used": 5, "limit": 3 } }));
        assert_fields(&usage, json!({ "ai_credits": { "used": 240, "limit": 100 }, "credits_remaining": 0 }));
        let deliveries = format!("{hook}/deliveries");
        t.request_at(two.urls[n], "GET", &deliveries).send().await.expect_error(402, "feature_not_available");
    }
    // Existing records can be refreshed and deleted.
    t.account("a1").await;
    t.delete(&t.path(&format!("/media/{}", asset["id"]))).await.expect(204);
    assert_eq!(app.ai.request_bodies().await.len(), 1);
    set("business");
    for n in 0..2 {
        app.ai.queue_responses([captions(&["A", "B", "C"]), image_response(&png(50 + n as u32, 30))]);
        let codes = writes(n).await;
        assert!(codes.values().all(|(status, _)| *status < 300), "process {n}: {codes:?}");
        t.request_at(two.urls[n], "GET", &hook).send().await.expect(200);
    }
}
