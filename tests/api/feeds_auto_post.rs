//! The settings by which a feed publishes, the preview of its posts, and the list of the outcomes of its articles. No job
//! runs here.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::auto_post::{ArticleKeys, FeedPostStatus};
use crier_domain::feed::FeedType;
use crier_store::feed_posts::{self, NewFeedPost};
use crier_store::feeds::{self, FeedUpdate, FetchUpdate};
use serde_json::{Value, json};

use super::feeds::article;
use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::request::Reply;

on_both_apps!("unlimited" =>
    settings_are_stored_replaced_and_deleted,
    listed_articles_are_remembered_when_publishing_begins,
    publishing_begins_with_a_fetch_if_the_last_one_is_long_ago,
    what_became_of_articles_is_listed,
);
on_one_app!("unlimited" =>
    invalid_settings_are_reported,
    contributors_use_drafts_and_approvals,
    a_key_for_feeds_creates_no_posts,
    the_last_articles_are_previewed,
);
on_one_app!(approvals_require_the_feature);

/// Creates a feed; returns its path.
async fn create(t: &Tenant<'_>) -> (i64, String) {
    let created = t.post(&t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })).await.data(201);
    let id = created["id"].as_i64().unwrap();
    (id, t.path(&format!("/feeds/{id}")))
}

fn settings(accounts: &[i64], destination: &str) -> Value {
    json!({ "template": "{title}\n\n{url}", "accounts": accounts, "destination": destination, "max_per_day": 3 })
}

async fn put(t: &Tenant<'_>, path: &str, settings: Value) -> Reply {
    t.put(path, json!({ "auto_post": settings })).await
}

/// Records a successful fetch.
async fn fetched(t: &Tenant<'_>, id: i64) {
    let changed = FeedUpdate {
        title: None,
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

async fn settings_are_stored_replaced_and_deleted(t: Tenant<'_>) {
    let account = t.account("bakery").await;
    let (_, path) = create(&t).await;
    let mut all = settings(&[account], "now");
    all["include"] = json!([" bread ", "bread", "rye bread"]);
    let stored = put(&t, &path, all).await.data(200);
    assert_eq!(
        stored["auto_post"],
        json!({
            "is_active": true, "template": "{title}\n\n{url}", "accounts": [account], "destination": "now",
            "include": ["bread", "rye bread"], "exclude": [], "max_per_day": 3,
        })
    );
    assert_eq!(t.put(&path, json!({ "name": "News" })).await.data(200)["auto_post"], stored["auto_post"]);
    let replaced = put(&t, &path, settings(&[], "draft")).await.data(200);
    assert_eq!((&replaced["auto_post"]["include"], &replaced["auto_post"]["accounts"]), (&json!([]), &json!([])));
    assert_eq!(t.get(&t.path("/feeds")).await.data(200)[0], replaced);
    assert_eq!(put(&t, &path, Value::Null).await.data(200)["auto_post"], Value::Null);
}

async fn invalid_settings_are_reported(t: Tenant<'_>) {
    let account = t.account("bakery").await;
    let (_, path) = create(&t).await;
    for (field, value, problem) in [
        ("template", json!("{title} {link}"), "auto_post.template"),
        ("template", json!("The same text"), "auto_post.template"),
        ("template", json!(""), "auto_post.template"),
        ("template", json!("x".repeat(2_001)), "auto_post.template"),
        ("accounts", json!([account, account + 1_000]), "auto_post.accounts.1"),
        ("accounts", json!([]), "auto_post.accounts"),
        ("destination", json!("calendar"), "auto_post.destination"),
        ("include", json!([""]), "auto_post.include.0"),
        ("exclude", json!(vec!["word"; 51]), "auto_post.exclude"),
        ("max_per_day", json!(0), "auto_post.max_per_day"),
        ("max_per_day", json!(101), "auto_post.max_per_day"),
        ("max_per_day", Value::Null, "auto_post.max_per_day"),
        ("is_active", json!("perhaps"), "auto_post.is_active"),
    ] {
        let mut body = settings(&[account], "now");
        body[field] = value;
        assert_eq!(put(&t, &path, body).await.invalid_fields(), [problem], "{field}");
    }
    assert_eq!(put(&t, &path, json!([])).await.invalid_fields(), ["auto_post"]);
    assert_eq!(t.get(&path).await.data(200)["auto_post"], Value::Null);
}

async fn approvals_require_the_feature(app: TestApp) {
    let t = app.tenant("pro").await;
    let account = t.account("bakery").await;
    let (_, path) = create(&t).await;
    put(&t, &path, settings(&[account], "approval")).await.expect_error(402, "feature_not_available");
    put(&t, &path, settings(&[account], "draft")).await.expect(200);
}

async fn contributors_use_drafts_and_approvals(t: Tenant<'_>) {
    let account = t.account("bakery").await;
    let (_, path) = create(&t).await;
    let contributor = t.colleague(Role::Contributor).await;
    for destination in ["now", "queue"] {
        let reply = put(&contributor, &path, settings(&[account], destination)).await;
        reply.expect_error(403, "insufficient_scope");
    }
    let moved = json!({ "url": "https://8.8.4.4/feed.xml" });
    for destination in ["draft", "approval"] {
        put(&contributor, &path, settings(&[account], destination)).await.expect(200);
        contributor.put(&path, moved.clone()).await.expect(200);
    }
    put(&t, &path, settings(&[account], "now")).await.expect(200);
    let elsewhere = json!({ "url": "https://8.8.8.8/other.xml" });
    contributor.put(&path, elsewhere.clone()).await.expect_error(403, "insufficient_scope");
    contributor.put(&path, json!({ "name": "News" })).await.expect(200);
    contributor.put(&path, moved).await.expect(200);
    t.put(&path, elsewhere).await.expect(200);
}

/// A feed would otherwise publish with a key that cannot write posts.
async fn a_key_for_feeds_creates_no_posts(t: Tenant<'_>) {
    let account = t.account("bakery").await;
    let (_, path) = create(&t).await;
    let reader = t.with_scopes("feeds:read,feeds:write").await;
    for destination in ["now", "queue", "draft", "approval"] {
        let reply = put(&reader, &path, settings(&[account], destination)).await;
        reply.expect_error(403, "insufficient_scope");
    }
    reader.put(&path, json!({ "url": "https://8.8.4.4/feed.xml" })).await.expect(200);
    let elsewhere = json!({ "url": "https://8.8.8.8/other.xml" });
    for destination in ["draft", "now"] {
        put(&t, &path, settings(&[account], destination)).await.expect(200);
        reader.put(&path, elsewhere.clone()).await.expect_error(403, "insufficient_scope");
        reader.put(&path, json!({ "name": "News" })).await.expect(200);
    }
    put(&reader, &path, Value::Null).await.expect(200);
    reader.put(&path, elsewhere).await.expect(200);
    let draft = format!("{path}/articles/{MISSING_ID}/draft");
    reader.request("POST", &draft).send().await.expect_error(403, "insufficient_scope");
    t.request("POST", &draft).send().await.expect_error(404, "not_found");
}

async fn listed_articles_are_remembered_when_publishing_begins(t: Tenant<'_>) {
    let (id, path) = create(&t).await;
    article(&t, id, "first").await;
    let remembered = async || t.app.count_rows("feed_posts WHERE status = 'known'").await;
    let since = async || t.app.count_rows("feeds WHERE auto_post_since IS NOT NULL").await;
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!((remembered().await, since().await), (0, 0), "the next fetch shows what the feed lists");
    put(&t, &path, Value::Null).await.expect(200);
    fetched(&t, id).await;
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!((remembered().await, since().await), (1, 1));
    // A change of the settings is no new beginning.
    article(&t, id, "second").await;
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!(remembered().await, 1);
    let mut off = settings(&[], "draft");
    off["is_active"] = json!(false);
    put(&t, &path, off).await.expect(200);
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!(remembered().await, 2, "it was listed while the feed did not publish");
    assert_eq!(t.get(&format!("{path}/posts")).await.data(200), json!([]));
}

/// A feed is not fetched while the plan does not include feeds. What it listed meanwhile is not new.
async fn publishing_begins_with_a_fetch_if_the_last_one_is_long_ago(t: Tenant<'_>) {
    let (id, path) = create(&t).await;
    article(&t, id, "first").await;
    fetched(&t, id).await;
    let since = async || t.app.count_rows("feeds WHERE auto_post_since IS NOT NULL").await;
    t.app.clock.advance(TimeDelta::minutes(59));
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!(since().await, 1);
    put(&t, &path, Value::Null).await.expect(200);
    t.app.clock.advance(TimeDelta::minutes(2));
    put(&t, &path, settings(&[], "draft")).await.expect(200);
    assert_eq!(since().await, 0, "the next fetch shows what the feed lists");
}

async fn the_last_articles_are_previewed(t: Tenant<'_>) {
    let account = t.account("bakery").await;
    let (id, path) = create(&t).await;
    let preview = format!("{path}/preview");
    assert_eq!(t.post(&preview, settings(&[account], "now")).await.data(200), json!([]));
    for n in 0..6 {
        article(&t, id, &format!("a{n}")).await;
    }
    let mut body = settings(&[account], "now");
    body["template"] = json!("{title}: {summary}\n{url}");
    body["exclude"] = json!(["wheat"]);
    let shown = t.post(&preview, body).await.data(200);
    assert_eq!(shown.as_array().unwrap().len(), 5);
    let text = shown[0]["content"].as_str().unwrap();
    assert!(text.starts_with("Fresh & warm: Rye & wheat.") && text.ends_with("https://8.8.8.8/a5"), "{text}");
    assert_eq!(shown[0]["reason"], "The article contains the excluded word “wheat”.");
    assert_eq!(t.post(&preview, settings(&[account + 1_000], "now")).await.invalid_fields(), ["accounts.0"]);
    let mut unknown = settings(&[account], "now");
    unknown["template"] = json!("{body}");
    assert_eq!(t.post(&preview, unknown).await.invalid_fields(), ["template"]);
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn what_became_of_articles_is_listed(t: Tenant<'_>) {
    let (id, path) = create(&t).await;
    let post = t.post(&t.path("/posts"), json!({ "content": "Fresh" })).await.data(201)["id"].as_i64().unwrap();
    let one = |guid: &'static str, status, reason: Option<&str>| NewFeedPost {
        status,
        guid,
        keys: ArticleKeys::of(Some(&format!("https://8.8.8.8/{guid}")), Some(guid)),
        title: Some(guid),
        url: None,
        reason: reason.map(str::to_owned),
    };
    let all = [
        one("known", None, None),
        one("waiting", Some(FeedPostStatus::Waiting), None),
        one("skipped", Some(FeedPostStatus::Skipped), Some("Too old.")),
    ];
    let stored = t.app.write(async |tx| feed_posts::remember(tx, id, &all).await).await;
    let again = t.app.write(async |tx| feed_posts::remember(tx, id, &all).await).await;
    assert_eq!((stored.len(), again.len()), (3, 0));
    let other_guid = NewFeedPost { guid: "other", ..one("waiting", Some(FeedPostStatus::Waiting), None) };
    assert!(t.app.write(async |tx| feed_posts::remember(tx, id, &[other_guid]).await).await.is_empty());
    let waiting = stored.iter().find(|(_, guid)| guid == "waiting").unwrap().0;
    t.app.write(async |tx| feed_posts::mark_posted(tx, waiting, post).await).await;
    let listed = t.get(&format!("{path}/posts")).await.data(200);
    let rows: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| (&one["status"], &one["post_id"], &one["reason"])).collect();
    assert_eq!(
        rows,
        [(&json!("skipped"), &Value::Null, &json!("Too old.")), (&json!("posted"), &json!(post), &Value::Null)]
    );
    t.delete(&t.path(&format!("/posts/{post}"))).await.expect(204);
    assert_eq!(t.get(&format!("{path}/posts")).await.data(200)[1]["post_id"], Value::Null);
}
