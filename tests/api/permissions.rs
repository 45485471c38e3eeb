//! Permissions that an account's consent lacks are named before a post is accepted, and before it is unpublished.

use crier_domain::platform::Platform;
use crier_store::accounts::NewAccount;
use serde_json::{Value, json};

use crate::support::app::{Tenant, on_one_app};
use crate::support::store::new_account;

on_one_app!("unlimited" =>
    a_first_comment_without_its_permission_is_rejected,
    a_thread_without_its_permission_is_rejected,
    validation_names_the_permission,
    a_deletion_without_its_permission_is_rejected,
    posts_of_the_other_accounts_are_deleted,
);

const BASIC: [&str; 2] = ["threads_basic", "threads_content_publish"];

/// Creates an account on Threads whose user granted these scopes. `None`: they are unknown.
async fn account(t: &Tenant<'_>, name: &str, granted: Option<&[&str]>) -> i64 {
    let granted_scopes = granted.map(|scopes| scopes.iter().map(|scope| (*scope).to_owned()).collect());
    let new = NewAccount { platform: Platform::Threads, granted_scopes, ..new_account(name, "token") };
    t.store_account(&new).await
}

fn with_comment(account: i64) -> Value {
    let comment = json!({ "content": "Recipe in the bio" });
    json!({ "content": "Fresh bread", "accounts": [account], "schedule_type": "now", "first_comment": comment })
}

fn with_thread(account: i64) -> Value {
    let thread = json!([{ "content": "And cake" }]);
    json!({ "content": "Fresh bread", "accounts": [account], "schedule_type": "now", "thread": thread })
}

async fn a_first_comment_without_its_permission_is_rejected(t: Tenant<'_>) {
    let id = account(&t, "a", Some(&BASIC)).await;
    let reply = t.post(&t.path("/posts"), with_comment(id)).await;
    assert_eq!(reply.invalid_fields(), ["first_comment"]);
    let text = reply.text();
    let (missing, variable) = ("Missing: threads_manage_replies.", "CRIER_THREADS_SCOPES");
    assert!(text.contains(missing) && text.contains(variable) && text.contains(&format!("Account {id}")), "{text}");

    // An override that has the comment is named, and one that switches it off solves the problem.
    let overrides = |comment: Value| json!([{ "account_id": id, "first_comment": comment }]);
    let mut body = with_comment(id);
    body["overrides"] = overrides(json!({ "content": "Recipe here" }));
    assert_eq!(t.post(&t.path("/posts"), body.clone()).await.invalid_fields(), ["overrides.0.first_comment"]);
    body["overrides"] = overrides(Value::Null);
    t.post(&t.path("/posts"), body).await.expect(201);
    // A draft may have the comment. It cannot be published.
    let mut draft = with_comment(id);
    draft["schedule_type"] = json!("draft");
    let draft = t.post(&t.path("/posts"), draft).await.data(201);
    let path = t.path(&format!("/posts/{}", draft["id"]));
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["first_comment"]);

    let granted = [&BASIC[..], &["threads_manage_replies"][..]].concat();
    for (name, granted) in [("b", Some(granted.as_slice())), ("c", None)] {
        let id = account(&t, name, granted).await;
        t.post(&t.path("/posts"), with_comment(id)).await.expect(201);
    }
}

async fn a_thread_without_its_permission_is_rejected(t: Tenant<'_>) {
    let id = account(&t, "a", Some(&BASIC)).await;
    assert_eq!(t.post(&t.path("/posts"), with_thread(id)).await.invalid_fields(), ["thread"]);
    let mut body = with_thread(id);
    body["overrides"] = json!([{ "account_id": id, "thread": [] }]);
    t.post(&t.path("/posts"), body).await.expect(201);
    let id = account(&t, "b", None).await;
    t.post(&t.path("/posts"), with_thread(id)).await.expect(201);
}

async fn validation_names_the_permission(t: Tenant<'_>) {
    let id = account(&t, "a", Some(&BASIC)).await;
    for (mut body, field) in [(with_comment(id), "first_comment"), (with_thread(id), "thread")] {
        body.as_object_mut().unwrap().remove("schedule_type");
        let checked = t.post(&t.path("/posts/validate"), body).await.data(200);
        assert_eq!(checked["valid"], false, "{checked}");
        let problem = &checked["targets"][0]["problems"][0];
        assert_eq!((&problem["field"], &problem["code"]), (&json!(field), &json!("missing_permission")), "{checked}");
    }
}

/// Creates a post on these accounts that is published on all of them, as if a worker had done it. Returns the path that
/// unpublishes it.
async fn published(t: &Tenant<'_>, accounts: &[i64]) -> String {
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": accounts });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, "published", &vec!["published"; accounts.len()]).await;
    t.app.sql(format!("UPDATE post_targets SET external_id = '1' WHERE post_id = {id}")).await;
    t.path(&format!("/posts/{id}/unpublish"))
}

async fn a_deletion_without_its_permission_is_rejected(t: Tenant<'_>) {
    let id = account(&t, "a", Some(&BASIC)).await;
    let unpublish = published(&t, &[id]).await;
    let error = t.post(&unpublish, json!({})).await.expect_error(422, "platform_capability_unavailable");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("Missing: threads_delete.") && message.contains(&format!("Account {id}: ")), "{message}");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'unpublish_target'").await, 0);
    // After the account was connected again with the permission, the same request is accepted.
    let granted = [&BASIC[..], &["threads_delete"][..]].concat();
    account(&t, "a", Some(granted.as_slice())).await;
    assert_eq!(t.post(&unpublish, json!({})).await.data(202)["targets"][0]["status"], "unpublishing");
}

async fn posts_of_the_other_accounts_are_deleted(t: Tenant<'_>) {
    let accounts = [account(&t, "a", Some(&BASIC)).await, account(&t, "b", None).await];
    let unpublish = published(&t, &accounts).await;
    let targets = t.post(&unpublish, json!({})).await.data(202)["targets"].clone();
    assert_eq!((&targets[0]["status"], &targets[1]["status"]), (&json!("published"), &json!("unpublishing")));
    assert_eq!((&targets[0]["error"]["code"], &targets[1]["error"]), (&json!("missing_permission"), &Value::Null));
}
