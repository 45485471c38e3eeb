//! Feeds and their articles. No job runs here: the tests write the results of fetches themselves.

use chrono::TimeDelta;
use crier_domain::feed::{FeedType, FoundArticle};
use crier_domain::job::JobState;
use crier_store::articles::{self, ArticleRow, Changes};
use crier_store::feeds::{self, FeedUpdate, FetchUpdate};
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, on_both_apps, on_one_app};
use crate::support::request::assert_fields;

on_both_apps!("unlimited" =>
    a_feed_is_created_listed_updated_and_deleted,
    changing_the_url_resets_the_feed,
    fetch_results_are_shown,
    an_article_becomes_a_draft,
);
on_one_app!("unlimited" =>
    the_name_defaults_to_the_feed_title,
    a_url_must_be_public,
    invalid_fields_are_reported,
);

const URL: &str = "https://8.8.8.8/feed.xml";

/// Adds an article to a feed, and returns its id.
pub async fn article(t: &Tenant<'_>, feed: i64, guid: &str) -> i64 {
    let found = FoundArticle {
        guid: guid.to_owned(),
        title: Some("Fresh & warm".to_owned()),
        url: Some(format!("https://8.8.8.8/{guid}")),
        summary: Some("<p>Rye &amp; <b>wheat</b>.</p><p>Come <a href=\"https://8.8.8.8/\">in</a>!</p>".to_owned()),
        ..FoundArticle::default()
    };
    insert(t, feed, found).await
}

async fn insert(t: &Tenant<'_>, feed: i64, found: FoundArticle) -> i64 {
    let guid = found.guid.clone();
    let row = ArticleRow { found, published_at: t.app.now(), digest: "d".to_owned() };
    let changes = Changes { insert: vec![row], ..Changes::default() };
    t.app.write(async |tx| articles::write(tx, feed, &changes).await).await;
    t.app.newest_id(format!("articles WHERE feed_id = {feed} AND guid = '{guid}'")).await
}

async fn make(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/feeds"), body).await.data(201)
}

async fn a_feed_is_created_listed_updated_and_deleted(t: Tenant<'_>) {
    let reply = t.post(&t.path("/feeds"), json!({ "name": "News", "url": URL, "type": "atom" })).await;
    let created = reply.data(201);
    let path = t.path(&format!("/feeds/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    let at = t.app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        created,
        json!({
            "id": created["id"], "name": "News", "url": URL, "type": "atom", "status": "pending", "last_fetched_at": null,
            "last_error": null, "articles_count": 0, "auto_post": null, "auto_post_problem": null, "created_at": at, "updated_at": at,
        })
    );
    let second = make(&t, json!({ "url": "http://8.8.4.4:8080/rss?x=1" })).await;
    assert_eq!(second["type"], "rss");
    let ids = |list: &Value| list.as_array().unwrap().iter().map(|f| f["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&t.get(&t.path("/feeds")).await.data(200)), [second["id"].clone(), created["id"].clone()]);
    assert_eq!(t.get(&path).await.data(200), created);
    assert_eq!(t.get(&format!("{path}/articles")).await.expect(200), json!({ "data": [] }));
    t.app.clock.advance(TimeDelta::seconds(5));
    let changed = t.put(&path, json!({ "name": "Other", "type": "json", "status": "active" })).await.data(200);
    assert_fields(&changed, json!({ "name": "Other", "type": "atom", "status": "pending" }));
    assert_ne!(changed["updated_at"], created["updated_at"]);
    assert_eq!(t.put(&path, json!({})).await.data(200), changed, "omitted fields are unchanged");
    assert_eq!(t.delete(&path).await.expect(204), Value::Null);
    for reply in [t.get(&path).await, t.delete(&path).await, t.put(&path, json!({ "name": "x" })).await] {
        reply.expect_error(404, "not_found");
    }
    t.get(&format!("{path}/articles")).await.expect_error(404, "not_found");
    t.get(&t.path(&format!("/feeds/{MISSING_ID}"))).await.expect_error(404, "not_found");
}

async fn the_name_defaults_to_the_feed_title(t: Tenant<'_>) {
    let created = make(&t, json!({ "url": "https://8.8.8.8:8443/a" })).await;
    assert_eq!(created["name"], "8.8.8.8", "its host, until it is fetched");
    let id = created["id"].as_i64().unwrap();
    fetched(&t, id, "Its own title").await;
    let path = t.path(&format!("/feeds/{id}"));
    assert_eq!(t.get(&path).await.data(200)["name"], "Its own title");
    assert_eq!(t.put(&path, json!({ "name": "Mine" })).await.data(200)["name"], "Mine");
    fetched(&t, id, "Another title").await;
    assert_eq!(t.get(&path).await.data(200)["name"], "Mine");
    let long = "é".repeat(120);
    assert_eq!(make(&t, json!({ "url": URL, "name": long })).await["name"], long);
}

async fn fetched(t: &Tenant<'_>, id: i64, title: &str) {
    let changed = FeedUpdate {
        title: Some(title.to_owned()),
        kind: FeedType::Rss,
        found_url: None,
        validator_url: None,
        etag: None,
        last_modified: None,
        articles_count: 1,
    };
    let good = FetchUpdate { changed: Some(changed), next_fetch_at: t.app.later(900) };
    t.app.write(async |tx| feeds::record_success(tx, id, &good).await).await;
}

async fn a_url_must_be_public(t: Tenant<'_>) {
    let id = make(&t, json!({ "url": URL })).await["id"].clone();
    let path = t.path(&format!("/feeds/{id}"));
    for url in [
        "",
        "feed",
        "ftp://example.org/f",
        "file:///etc/passwd",
        "http://169.254.169.254/f",
        "https://10.0.0.1/f",
        "http://localhost/",
        "http://[::1]/f",
        "http://0x7f.1/",
        "https://user:pass@8.8.8.8/",
        "https://[::ffff:10.0.0.1]/",
        "javascript:alert(1)",
        " https://8.8.8.8/",
        "https:8.8.8.8",
    ] {
        let error = t.post(&t.path("/feeds"), json!({ "url": url })).await.expect_error(422, "invalid_source_url");
        assert!(error["message"].as_str().unwrap().contains("http"), "{url}: {error}");
        t.put(&path, json!({ "url": url })).await.expect_error(422, "invalid_source_url");
    }
    assert_eq!(t.get(&t.path("/feeds")).await.data(200).as_array().unwrap().len(), 1);
    assert_eq!(t.app.count_rows("jobs").await, 1, "nothing was enqueued");
}

async fn invalid_fields_are_reported(t: Tenant<'_>) {
    let id = make(&t, json!({ "url": URL })).await["id"].clone();
    let path = t.path(&format!("/feeds/{id}"));
    let long = "x".repeat(121);
    for (body, fields) in [
        (json!({}), vec!["url"]),
        (json!({ "url": null }), vec!["url"]),
        (json!({ "url": 5, "name": 5, "type": 5 }), vec!["name", "type", "url"]),
        (json!({ "url": URL, "name": null }), vec!["name"]),
        (json!({ "url": URL, "name": "" }), vec!["name"]),
        (json!({ "url": URL, "name": long, "type": "xml" }), vec!["name", "type"]),
        (json!({ "url": URL, "name": "a\0b" }), vec!["name"]),
        (json!({ "url": format!("https://8.8.8.8/{}", "x".repeat(2048)) }), vec!["url"]),
    ] {
        assert_eq!(t.post(&t.path("/feeds"), body.clone()).await.invalid_fields(), fields, "{body}");
    }
    for body in [json!({ "name": 5 }), json!({ "name": null }), json!({ "name": "" }), json!({ "name": long })] {
        assert_eq!(t.put(&path, body.clone()).await.invalid_fields(), ["name"], "{body}");
    }
    assert_eq!(t.put(&path, json!({ "url": 5 })).await.invalid_fields(), ["url"]);
    // A null type means the default.
    assert_eq!(make(&t, json!({ "url": URL, "type": null })).await["type"], "rss");
}

async fn changing_the_url_resets_the_feed(t: Tenant<'_>) {
    let id = make(&t, json!({ "url": URL })).await["id"].as_i64().unwrap();
    let path = t.path(&format!("/feeds/{id}"));
    fetched(&t, id, "Its own title").await;
    article(&t, id, "one").await;
    t.app.set_job_state("jobs", JobState::Done).await;
    // The same URL is not a change.
    let same = t.put(&path, json!({ "url": URL, "name": "Mine" })).await.data(200);
    assert_eq!((&same["status"], &same["articles_count"]), (&json!("active"), &json!(1)));
    assert_eq!(t.app.count_rows("jobs WHERE state = 'ready'").await, 0);
    let moved = t.put(&path, json!({ "url": "https://8.8.4.4/other" })).await.data(200);
    assert_fields(&moved, json!({ "url": "https://8.8.4.4/other", "status": "pending", "name": "Mine" }));
    assert_fields(&moved, json!({ "articles_count": 0, "last_fetched_at": null }));
    assert_eq!(t.get(&format!("{path}/articles")).await.data(200), json!([]));
    assert_eq!(t.app.newest_job().await.lane.as_deref(), Some("host:8.8.4.4"));
}

async fn fetch_results_are_shown(t: Tenant<'_>) {
    let id = make(&t, json!({ "url": URL })).await["id"].as_i64().unwrap();
    let path = t.path(&format!("/feeds/{id}"));
    t.app
        .write(async |tx| feeds::record_failure(tx, id, "The server returned 404.", false, t.app.later(900)).await)
        .await;
    let failing = t.get(&path).await.data(200);
    assert_eq!((&failing["status"], &failing["last_error"]), (&json!("failing"), &json!("The server returned 404.")));
    assert!(failing["last_fetched_at"].is_string());
    fetched(&t, id, "Title").await;
    let older = article(&t, id, "one").await;
    t.app.clock.advance(TimeDelta::minutes(1));
    let newer = article(&t, id, "two").await;
    let active = t.get(&path).await.data(200);
    assert_fields(&active, json!({ "status": "active", "last_error": null, "articles_count": 1 }));
    let list = t.get(&format!("{path}/articles")).await.expect(200);
    assert_eq!(list.as_object().unwrap().len(), 1, "data alone");
    let at = t.app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        list["data"][0],
        json!({
            "id": newer, "feed_id": id, "guid": "two", "title": "Fresh & warm", "url": "https://8.8.8.8/two",
            "summary": "<p>Rye &amp; <b>wheat</b>.</p><p>Come <a href=\"https://8.8.8.8/\">in</a>!</p>", "author": null,
            "image_url": null, "published_at": at, "created_at": at, "updated_at": at,
        })
    );
    assert_eq!(list["data"][1]["id"], older);
}

async fn an_article_becomes_a_draft(t: Tenant<'_>) {
    let id = make(&t, json!({ "url": URL })).await["id"].as_i64().unwrap();
    let whole = article(&t, id, "one").await;
    let path = |article: i64| t.path(&format!("/feeds/{id}/articles/{article}/draft"));
    let reply = t.request("POST", &path(whole)).send().await;
    let post = reply.data(201);
    assert_eq!(post["content"], "Fresh & warm\n\nRye & wheat.\n\nCome in!\n\nhttps://8.8.8.8/one");
    assert_eq!((&post["status"], &post["schedule_type"]), (&json!("draft"), &json!("draft")));
    assert_eq!((&post["author"]["id"], &post["targets"], &post["accounts"]), (&json!(t.user), &json!([]), &json!([])));
    let at = t.path(&format!("/posts/{}", post["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{at}").as_str()));
    assert_eq!(t.get(&at).await.data(200), post);
    let bare = FoundArticle { guid: "bare".to_owned(), title: Some("Alone".to_owned()), ..FoundArticle::default() };
    let bare = insert(&t, id, bare).await;
    assert_eq!(t.request("POST", &path(bare)).send().await.data(201)["content"], "Alone");
    t.request("POST", &path(MISSING_ID)).send().await.expect_error(404, "not_found");
    let other = make(&t, json!({ "url": URL })).await["id"].clone();
    let of_other = t.path(&format!("/feeds/{other}/articles/{whole}/draft"));
    t.request("POST", &of_other).send().await.expect_error(404, "not_found");
    let posts = t.app.count_rows("posts").await;
    let again = async || t.request("POST", &path(whole)).idempotency_key("once").send().await;
    let (first, second) = (again().await, again().await);
    assert_eq!((first.data(201)["id"].clone(), second.replayed()), (second.data(201)["id"].clone(), true));
    assert_eq!(t.app.count_rows("posts").await, posts + 1);
    assert_eq!(t.app.used_posts(t.workspace).await, 0, "a draft does not count");
}
