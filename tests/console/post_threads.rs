//! Threads, first comments and unpublishing on the page of a post.

use crier_domain::access::Role;
use crier_domain::platform::Platform;
use crier_store::first_comments;
use serde_json::{Value, json};

use super::previews::connect;
use crate::support::app::{Tenant, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!("unlimited" => contributors_cannot_unpublish);
on_one_app!(console "unlimited" =>
    the_parts_of_each_account_are_shown,
    the_first_comment_of_each_account_is_shown,
    a_post_is_unpublished_on_one_account,
    a_post_is_unpublished_where_the_platform_permits,
    a_failed_unpublish_says_why,
);

fn page_of(t: &Tenant<'_>, id: i64) -> String {
    format!("/brands/{}/posts/{id}", t.brand)
}

/// Creates a post with these additional fields. Its targets get these statuses.
async fn create_post(t: &Tenant<'_>, accounts: &[i64], fields: Value, status: &str, targets: &[&str]) -> i64 {
    let mut body = json!({ "content": "Fresh bread", "accounts": accounts });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, status, targets).await;
    let set = "external_id = 'a', url = 'https://a.example/1', published_at = created_at";
    t.app.sql(format!("UPDATE post_targets SET {set} WHERE post_id = {id} AND status = 'published'")).await;
    id
}

/// Returns the status of each target.
async fn statuses(t: &Tenant<'_>, id: i64) -> Vec<Value> {
    let post = t.get(&t.path(&format!("/posts/{id}"))).await.data(200);
    post["targets"].as_array().unwrap().iter().map(|target| target["status"].clone()).collect()
}

async fn the_parts_of_each_account_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let thread = json!({ "thread": [{ "content": "Two" }, { "content": "Three" }, { "content": "Four" }] });
    let id = create_post(&t, &[account], thread, "failed", &["failed"]).await;
    t.app.publish_parts(id, 0, &["1", "2"]).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "Stopped at part 3: No.").expect(200, "href=\"https://a.example/2\"").expect(200, ">Three<");
    let badges: Vec<&str> = page
        .text
        .split("<span>Part ")
        .skip(1)
        .filter_map(|row| row.split_once("<span class=\"badge badge-")?.1.split(['>', '<']).nth(1))
        .collect();
    assert_eq!(badges, ["Published", "Published", "Failed", "Waiting"], "{}", page.text);
    page.expect(200, &format!("href=\"{}/edit#f-thread\"", page_of(&t, id)));

    let deleted = json!([
        { "external_id": "1", "published_at": "2026-01-01T00:00:00Z" },
        { "external_id": "2", "published_at": "2026-01-01T00:00:00Z", "is_unpublished": true },
    ]);
    t.app.sql(format!("UPDATE post_targets SET published_parts = '{deleted}' WHERE post_id = {id}")).await;
    person.get(&page_of(&t, id)).await.expect(200, ">Unpublished<");
}

async fn the_first_comment_of_each_account_is_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let tiktok: i64 = connect(&t, Platform::Tiktok).await.parse().unwrap();
    let comment = json!({ "first_comment": { "content": "The <b>menu", "delay_seconds": 60 } });
    let id = create_post(&t, &[account, tiktok], comment, "published", &["published", "published"]).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "The <b>menu")
        .expect(200, "After 1 minute")
        .expect(200, ">Waiting<")
        .expect(200, ">Not supported<");
    let post = t.get(&t.path(&format!("/posts/{id}"))).await.data(200);
    let target = post["targets"][0]["id"].as_i64().unwrap();
    t.app.write(async |tx| first_comments::insert(tx, target, "The <b>menu").await).await;
    t.app.sql("UPDATE first_comments SET status = 'published', url = 'https://a.example/c'").await;
    person.get(&page_of(&t, id)).await.expect(200, "href=\"https://a.example/c\"");
    let error = json!({ "code": "x", "message": "No comments today.", "category": "platform_rejected" });
    t.app.sql(format!("UPDATE first_comments SET status = 'failed', url = NULL, error = '{error}'")).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "No comments today.").expect(200, ">Failed<");
}

async fn a_post_is_unpublished_on_one_account(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (first, second) = (t.account("demo").await, t.account("second").await);
    let id = create_post(&t, &[first, second], json!({}), "published", &["published", "published"]).await;
    let (path, unpublish) = (page_of(&t, id), format!("{}/unpublish", page_of(&t, id)));
    let page = person.get(&path).await;
    page.expect(200, "Delete this post from demo (Sandbox), second (Sandbox)? This cannot be undone.");
    page.expect(200, "Delete this post from second (Sandbox)? This cannot be undone.");
    let second = second.to_string();
    for _ in 0..2 {
        let page = person.submit_from(&page, &unpublish, &[("accounts", second.as_str())]).await;
        page.expect(200, "Deleting the post from the platforms.")
            .expect(200, "data-moving")
            .expect(200, ">Unpublishing<");
    }
    assert_eq!(statuses(&t, id).await, ["published", "unpublishing"]);
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'unpublish_target'").await, 1);
    t.app.sql("UPDATE post_targets SET status = 'unpublished' WHERE status = 'unpublishing'").await;
    let page = person.get(&path).await;
    page.expect(200, ">Unpublished<").expect(200, "Delete this post from demo (Sandbox)? This cannot be undone.");
    assert!(!page.has("data-moving") && !page.has("second (Sandbox)"), "{}", page.text);
    assert_eq!(page.text.matches("https://a.example/1").count(), 1, "the deleted post has no link: {}", page.text);
}

async fn a_post_is_unpublished_where_the_platform_permits(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let tiktok: i64 = connect(&t, Platform::Tiktok).await.parse().unwrap();
    let id = create_post(&t, &[account, tiktok], json!({}), "published", &["published", "published"]).await;
    let (path, unpublish) = (page_of(&t, id), format!("{}/unpublish", page_of(&t, id)));
    let page = person.get(&path).await;
    page.expect(200, "Delete this post from demo (Sandbox)? This cannot be undone. It stays on user_tiktok (TikTok)");
    let only_tiktok = tiktok.to_string();
    let rejected = person.submit_from(&page, &unpublish, &[("accounts", only_tiktok.as_str())]).await;
    assert_eq!(rejected.status, 422, "{}", rejected.text);
    person.submit(&path, &unpublish, &[]).await.expect(200, "Deleting the post from the platforms.");
    assert_eq!(statuses(&t, id).await, ["unpublishing", "published"]);
    t.app.sql("UPDATE post_targets SET status = 'unpublished' WHERE status = 'unpublishing'").await;
    assert!(!person.get(&path).await.has("Unpublish post"), "the post is only where it cannot be deleted");
}

async fn a_failed_unpublish_says_why(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, &[account], json!({}), "published", &["published"]).await;
    let error = json!({ "code": "missing_permission", "message": "Reconnect the account.", "category": "account" });
    t.app.sql(format!("UPDATE post_targets SET error = '{error}' WHERE post_id = {id}")).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "Not deleted: Reconnect the account.").expect(200, "Unpublish post");
}

async fn contributors_cannot_unpublish(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, &[account], json!({}), "published", &["published"]).await;
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let page = contributor.get(&page_of(&t, id)).await;
    assert!(page.status == 200 && !page.has("Unpublish"), "{}", page.text);
    let hidden = page.hidden_fields("/sign-out");
    let fields: Vec<_> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let page = contributor.post(&format!("{}/unpublish", page_of(&t, id)), &fields).await;
    assert_eq!(page.status, 403, "{}", page.text);
    assert_eq!(statuses(&t, id).await, ["published"]);
}
