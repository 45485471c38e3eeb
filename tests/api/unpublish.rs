//! `POST /brands/{brand}/posts/{post}/unpublish`. `tests/jobs/unpublish.rs` covers the jobs.

use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{BASE, Tenant, TestApp, on_both_apps};

on_both_apps!("unlimited" =>
    a_post_is_unpublished_from_all_its_accounts,
    only_the_chosen_accounts_are_unpublished,
    a_partially_published_post_can_be_unpublished,
    a_request_names_accounts_of_the_post,
    a_post_that_is_not_published_is_rejected,
    a_platform_without_deletion_is_named,
    a_post_without_an_id_is_rejected,
    deleting_a_post_keeps_the_deletion_from_its_platforms,
);
on_both_apps!(only_publishers_of_the_brand_can_unpublish);

/// Creates a post on two accounts with these statuses, as if a worker had set them. Returns its path and its accounts.
async fn create(t: &Tenant<'_>, status: &str, targets: [&str; 2]) -> (String, [i64; 2]) {
    let accounts = [t.account("one").await, t.account("two").await];
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": accounts });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, status, &targets).await;
    t.app.sql(format!("UPDATE post_targets SET external_id = 'x' WHERE post_id = {id}")).await;
    (t.path(&format!("/posts/{id}")), accounts)
}

fn statuses(post: &Value) -> Vec<&str> {
    post["targets"].as_array().unwrap().iter().map(|target| target["status"].as_str().unwrap()).collect()
}

async fn jobs(t: &Tenant<'_>) -> i64 {
    t.app.count_rows("jobs WHERE kind = 'unpublish_target' AND state = 'ready'").await
}

async fn a_post_is_unpublished_from_all_its_accounts(t: Tenant<'_>) {
    let (path, accounts) = create(&t, "published", ["published", "published"]).await;
    let unpublish = format!("{path}/unpublish");
    let reply = t.request("POST", &unpublish).send().await;
    let post = reply.data(202);
    assert_eq!(reply.header("location"), Some(format!("{BASE}{path}").as_str()));
    assert_eq!((&post["status"], statuses(&post)), (&json!("published"), vec!["unpublishing", "unpublishing"]));
    assert_eq!(t.get(&path).await.data(200), post);
    assert_eq!(jobs(&t).await, 2);
    let lane = format!("jobs WHERE kind = 'unpublish_target' AND lane = 'account:{}'", accounts[0]);
    assert_eq!(t.app.count_rows(lane).await, 1);
    // Repeated requests change nothing, before and after the deletion.
    assert_eq!(t.post(&unpublish, json!({})).await.data(202), post);
    t.app.sql("UPDATE post_targets SET status = 'unpublished'").await;
    let post = t.post(&unpublish, json!({ "accounts": null })).await.data(202);
    assert_eq!((statuses(&post), jobs(&t).await), (vec!["unpublished", "unpublished"], 2));
}

async fn only_the_chosen_accounts_are_unpublished(t: Tenant<'_>) {
    let (path, accounts) = create(&t, "published", ["published", "published"]).await;
    let post = t.post(&format!("{path}/unpublish"), json!({ "accounts": [accounts[1]] })).await.data(202);
    assert_eq!((statuses(&post), jobs(&t).await), (vec!["published", "unpublishing"], 1));
    let post = t.post(&format!("{path}/unpublish"), json!({ "accounts": accounts })).await.data(202);
    assert_eq!((statuses(&post), jobs(&t).await), (vec!["unpublishing", "unpublishing"], 2));
}

async fn a_partially_published_post_can_be_unpublished(t: Tenant<'_>) {
    let (path, accounts) = create(&t, "partially_published", ["failed", "published"]).await;
    let unpublish = format!("{path}/unpublish");
    t.post(&unpublish, json!({ "accounts": [accounts[0]] })).await.expect_error(409, "post_not_editable");
    let post = t.post(&unpublish, json!({})).await.data(202);
    assert_eq!(post["status"], "partially_published");
    assert_eq!((statuses(&post), jobs(&t).await), (vec!["failed", "unpublishing"], 1));
}

async fn a_request_names_accounts_of_the_post(t: Tenant<'_>) {
    let (path, accounts) = create(&t, "published", ["published", "published"]).await;
    let (unpublish, other) = (format!("{path}/unpublish"), t.account("three").await);
    for (named, invalid) in [
        (json!([accounts[0], other]), "accounts.1"),
        (json!([999_999]), "accounts.0"),
        (json!([]), "accounts"),
        (json!("all"), "accounts"),
    ] {
        assert_eq!(t.post(&unpublish, json!({ "accounts": named })).await.invalid_fields(), [invalid]);
    }
    assert_eq!(jobs(&t).await, 0);
    let missing = t.path("/posts/999999/unpublish");
    t.post(&missing, json!({ "accounts": accounts })).await.expect_error(404, "not_found");
}

async fn a_post_that_is_not_published_is_rejected(t: Tenant<'_>) {
    for (status, targets) in [
        ("draft", ["pending", "pending"]),
        ("failed", ["failed", "failed"]),
        ("publishing", ["published", "publishing"]),
    ] {
        let (path, _) = create(&t, status, targets).await;
        t.post(&format!("{path}/unpublish"), json!({})).await.expect_error(409, "post_not_editable");
        assert_eq!(statuses(&t.get(&path).await.data(200)), targets);
    }
    assert_eq!(jobs(&t).await, 0);
}

async fn a_platform_without_deletion_is_named(t: Tenant<'_>) {
    let (path, accounts) = create(&t, "published", ["published", "published"]).await;
    let unpublish = format!("{path}/unpublish");
    t.app.sql(format!("UPDATE post_targets SET platform = 'tiktok' WHERE account_id = {}", accounts[0])).await;
    let only = json!({ "accounts": [accounts[0]] });
    let error = t.post(&unpublish, only.clone()).await.expect_error(422, "platform_capability_unavailable");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("Account {}: ", accounts[0])) && message.contains("TikTok"), "{message}");
    assert_eq!(t.get(&path).await.data(200)["targets"][0]["error"], Value::Null);
    // The others are unpublished nevertheless, and the target has the reason.
    let post = t.post(&unpublish, json!({})).await.data(202);
    assert_eq!((statuses(&post), jobs(&t).await), (vec!["published", "unpublishing"], 1));
    assert_eq!(post["targets"][0]["error"]["code"], "not_supported");
    // A repeated request has the same response, before and after the deletion.
    for status in ["unpublishing", "unpublished"] {
        t.app.sql(format!("UPDATE post_targets SET status = '{status}' WHERE account_id = {}", accounts[1])).await;
        let post = t.post(&unpublish, json!({})).await.data(202);
        assert_eq!((statuses(&post), jobs(&t).await), (vec!["published", status], 1));
    }
    t.post(&unpublish, only).await.expect_error(422, "platform_capability_unavailable");
}

async fn a_post_without_an_id_is_rejected(t: Tenant<'_>) {
    let (path, _) = create(&t, "published", ["published", "published"]).await;
    t.app.sql("UPDATE post_targets SET external_id = NULL").await;
    let reply = t.post(&format!("{path}/unpublish"), json!({})).await;
    reply.expect_error(422, "platform_capability_unavailable");
    assert_eq!(jobs(&t).await, 0);
}

async fn deleting_a_post_keeps_the_deletion_from_its_platforms(t: Tenant<'_>) {
    let (path, _) = create(&t, "published", ["published", "published"]).await;
    t.post(&format!("{path}/unpublish"), json!({})).await.expect(202);
    t.delete(&path).await.expect(204);
    assert_eq!(jobs(&t).await, 2);
    assert_eq!(t.app.count_rows("post_targets WHERE status = 'unpublishing'").await, 2);
    t.post(&format!("{path}/unpublish"), json!({})).await.expect_error(404, "not_found");
}

async fn only_publishers_of_the_brand_can_unpublish(app: TestApp) {
    let (t, stranger) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (path, _) = create(&t, "published", ["published", "published"]).await;
    let unpublish = format!("{path}/unpublish");
    let contributor = t.colleague(Role::Contributor).await;
    contributor.post(&unpublish, json!({})).await.expect_error(403, "insufficient_scope");
    stranger.post(&unpublish, json!({})).await.expect_error(403, "brand_forbidden");
    let (_, post) = path.rsplit_once('/').unwrap();
    let foreign = stranger.path(&format!("/posts/{post}/unpublish"));
    stranger.post(&foreign, json!({})).await.expect_error(404, "not_found");
    assert_eq!(jobs(&t).await, 0);
    t.colleague(Role::Editor).await.post(&unpublish, json!({})).await.expect(202);
    assert_eq!(jobs(&t).await, 2);
}
