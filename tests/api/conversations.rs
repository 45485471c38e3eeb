//! The endpoints of the inbox.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::conversation::FetchedMessage;
use crier_runtime::sandbox;
use crier_store::accounts;
use crier_store::conversations::receive;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::fake_inbox::{COMMENTS, message};
use crate::support::request::assert_fields;

on_both_apps!("pro" =>
    a_single_letter_is_searched_as_a_word,
    a_conversation_is_listed_and_shown,
    search_and_filters_narrow_the_list,
    a_status_is_set,
    a_conversation_is_assigned_to_members_only,
    tags_are_set,
    reading_clears_the_count,
    a_reply_is_accepted_once,
    a_reply_resolves_on_request,
    a_sync_is_requested,
);
on_one_app!("pro" => filters_are_checked, rejected_replies_include_the_reason);

/// Connects a handle of the real sandbox, and stores comments on it, each in its own thread. Returns the account.
pub async fn inbox(app: &TestApp, t: &Tenant<'_>, comments: &[&str]) -> i64 {
    let real = sandbox::connector(&app.store.store, app.url.clone());
    let _ = app.connector.real.set(real);
    let account = t.account(&format!("demo{}", t.brand)).await;
    let found = accounts::find(&mut app.conn().await, t.brand, account).await.unwrap().unwrap();
    let now = app.now();
    let messages: Vec<FetchedMessage> = (0_i64..)
        .zip(comments)
        .map(|(n, body)| message(COMMENTS, &format!("{n}"), &format!("{n}"), body, now + TimeDelta::milliseconds(n)))
        .collect();
    app.write(async |tx| receive::receive(tx, &found, &messages).await).await;
    account
}

/// Stores a comment on an account, and returns its conversation.
pub async fn received(t: &Tenant<'_>, account: i64) -> i64 {
    let found = accounts::find(&mut t.app.conn().await, t.brand, account).await.unwrap().unwrap();
    let comment = message(COMMENTS, "c1", "t1", "mine", t.app.now());
    t.app.write(async |tx| receive::receive(tx, &found, &[comment]).await).await;
    t.app.newest_id(format!("conversations WHERE brand_id = {}", t.brand)).await
}

async fn ids(t: &Tenant<'_>, query: &str) -> Vec<i64> {
    let found = t.get(&t.path(&format!("/conversations{query}"))).await.data(200);
    found.as_array().unwrap().iter().map(|one| one["id"].as_i64().unwrap()).collect()
}

async fn put(t: &Tenant<'_>, id: i64, what: &str, body: Value) -> crate::support::app::Reply {
    t.put(&t.path(&format!("/conversations/{id}/{what}")), body).await
}

async fn a_conversation_is_listed_and_shown(t: Tenant<'_>) {
    let account = inbox(t.app, &t, &["When do you open?", "Nice"]).await;
    let page = t.get(&t.path("/conversations?per_page=1")).await.expect(200);
    assert_eq!((page["meta"]["total"].as_i64(), page["links"]["next"].is_string()), (Some(2), true));
    let shown = &page["data"][0];
    assert_eq!(
        *shown,
        json!({
            "id": shown["id"], "type": "comment", "platform": "sandbox", "account_id": account, "status": "open",
            "participant": { "name": "Vera Vogel", "username": "vera", "avatar_url": null, "external_id": "vera" },
            "subject": { "external_id": "post-1", "url": null, "post_id": null },
            "assignee_id": null, "tags": [], "unread_count": 1, "can_reply": true, "reply_refusal": null,
            "snoozed_until": null, "last_message_at": shown["last_message_at"], "last_message_preview": "Nice",
            "last_message_direction": "inbound",
            "created_at": shown["created_at"], "updated_at": shown["updated_at"],
        })
    );
    let detail = t.get(&t.path(&format!("/conversations/{}", shown["id"]))).await.data(200);
    let wanted = json!([{
        "id": detail["messages"][0]["id"], "direction": "inbound", "body": "Nice",
        "author": { "name": "Vera Vogel", "user_id": null }, "status": "received", "external_id": "1", "error": null,
        "sent_at": shown["last_message_at"], "deleted_at": null, "created_at": shown["created_at"], "updated_at": shown["created_at"],
    }]);
    assert_eq!((&detail["messages"], &detail["id"]), (&wanted, &shown["id"]));
    t.get(&t.path(&format!("/conversations/{MISSING_ID}"))).await.expect_error(404, "not_found");
}

async fn filters_are_checked(t: Tenant<'_>) {
    for (query, field) in [
        ("status=closed", "status"),
        ("type=email", "type"),
        ("platform=myspace", "platform"),
        ("assignee_id=x", "assignee_id"),
        ("account_id=", "account_id"),
        ("unread=maybe", "unread"),
        ("per_page=0", "per_page"),
        ("search=%00", "search"),
    ] {
        let reply = t.get(&t.path(&format!("/conversations?{query}"))).await;
        assert_eq!(reply.invalid_fields(), [field], "{query}");
    }
    let long = "x".repeat(201);
    assert_eq!(t.get(&t.path(&format!("/conversations?search={long}"))).await.invalid_fields(), ["search"]);
    assert!(ids(&t, "?search=%21%3F&page=3").await.is_empty());
}

async fn search_and_filters_narrow_the_list(t: Tenant<'_>) {
    let account = inbox(t.app, &t, &["Where is my refund?", "Thank you", "Refunds are fine"]).await;
    let all = ids(&t, "").await;
    assert_eq!(all.len(), 3);
    assert_eq!(ids(&t, "?search=refund").await, [all[0], all[2]]);
    assert_eq!(ids(&t, "?search=vera+thank").await, [all[1]]);
    assert_eq!(ids(&t, &format!("?account_id={account}&type=comment&platform=sandbox&unread=true")).await, all);
    assert!(ids(&t, "?unread=false").await.is_empty());
    put(&t, all[1], "tags", json!({ "tags": ["vip"] })).await.expect(200);
    put(&t, all[1], "assign", json!({ "user_id": t.user })).await.expect(200);
    for query in ["?tag=vip", "?tag=vip&search=than", &format!("?assignee_id={}", t.user)] {
        assert_eq!(ids(&t, query).await, [all[1]], "{query}");
    }
}

async fn a_status_is_set(t: Tenant<'_>) {
    inbox(t.app, &t, &["hello"]).await;
    let id = ids(&t, "").await[0];
    let shown = put(&t, id, "status", json!({ "status": "snoozed", "snoozed_until": "2999-01-01T08:00:00" })).await;
    let shown = shown.data(200);
    assert_eq!((&shown["status"], &shown["snoozed_until"]), (&json!("snoozed"), &json!("2999-01-01T07:00:00Z")));
    assert_eq!(shown["messages"].as_array().unwrap().len(), 1);
    for status in ["resolved", "spam", "assigned", "open"] {
        let shown = put(&t, id, "status", json!({ "status": status })).await.data(200);
        assert_eq!((&shown["status"], &shown["snoozed_until"]), (&json!(status), &Value::Null));
        assert_eq!(ids(&t, &format!("?status={status}")).await, [id]);
    }
    for (body, field) in [
        (json!({}), "status"),
        (json!({ "status": "closed" }), "status"),
        (json!({ "status": "snoozed" }), "snoozed_until"),
        (json!({ "status": "snoozed", "snoozed_until": null }), "snoozed_until"),
        (json!({ "status": "snoozed", "snoozed_until": "2000-01-01T00:00:00Z" }), "snoozed_until"),
        (json!({ "status": "snoozed", "snoozed_until": "soon" }), "snoozed_until"),
    ] {
        assert_eq!(put(&t, id, "status", body.clone()).await.invalid_fields(), [field], "{body}");
    }
    put(&t, MISSING_ID, "status", json!({})).await.expect_error(404, "not_found");
}

async fn a_conversation_is_assigned_to_members_only(t: Tenant<'_>) {
    inbox(t.app, &t, &["hello"]).await;
    let id = ids(&t, "").await[0];
    let bob = t.colleague(Role::Editor).await;
    let stranger = t.app.user(t.workspace, "stranger@example.com").await;
    let shown = put(&t, id, "assign", json!({ "user_id": bob.user })).await.data(200);
    assert_eq!((&shown["assignee_id"], &shown["status"]), (&json!(bob.user), &json!("open")));
    assert_eq!(put(&t, id, "assign", json!({ "user_id": stranger })).await.invalid_fields(), ["user_id"]);
    assert_eq!(put(&t, id, "assign", json!({})).await.invalid_fields(), ["user_id"]);
    assert_eq!(put(&t, id, "assign", json!({ "user_id": "4" })).await.invalid_fields(), ["user_id"]);
    assert_eq!(put(&t, id, "assign", json!({ "user_id": null })).await.data(200)["assignee_id"], Value::Null);
}

async fn tags_are_set(t: Tenant<'_>) {
    inbox(t.app, &t, &["hello"]).await;
    let id = ids(&t, "").await[0];
    let shown = put(&t, id, "tags", json!({ "tags": ["vip", " refund ", "vip"] })).await.data(200);
    assert_eq!(shown["tags"], json!(["refund", "vip"]));
    let long = "x".repeat(41);
    for (body, field) in [
        (json!({}), "tags"),
        (json!({ "tags": "vip" }), "tags"),
        (json!({ "tags": ["", "a"] }), "tags.0"),
        (json!({ "tags": ["a", long] }), "tags.1"),
        (json!({ "tags": [4] }), "tags.0"),
        (json!({ "tags": vec!["a"; 21] }), "tags"),
    ] {
        assert_eq!(put(&t, id, "tags", body.clone()).await.invalid_fields(), [field], "{body}");
    }
    assert_eq!(put(&t, id, "tags", json!({ "tags": [] })).await.data(200)["tags"], json!([]));
}

async fn reading_clears_the_count(t: Tenant<'_>) {
    inbox(t.app, &t, &["hello"]).await;
    let id = ids(&t, "").await[0];
    let path = t.path(&format!("/conversations/{id}/read"));
    assert_eq!(t.post(&path, json!({})).await.data(200)["unread_count"], 0);
    assert_eq!(ids(&t, "?unread=false").await, [id]);
    assert_eq!(t.post(&path, json!({})).await.data(200)["unread_count"], 0);
}

async fn a_reply_is_accepted_once(t: Tenant<'_>) {
    inbox(t.app, &t, &["When do you open?"]).await;
    let id = ids(&t, "").await[0];
    let path = t.path(&format!("/conversations/{id}/reply"));
    let send = async || {
        let request = t.app.request("POST", &path).key(&t.key).idempotency_key("one");
        request.json(&json!({ "body": "At seven." })).send().await
    };
    let accepted = send().await;
    let shown = accepted.data(202);
    assert_fields(&shown, json!({ "status": "pending", "direction": "outbound", "body": "At seven." }));
    assert_fields(&shown, json!({ "author": { "name": "Ann", "user_id": t.user } }));
    let wanted = format!("/api/public/v1{}", t.path(&format!("/conversations/{id}")));
    assert_eq!(accepted.header("location"), Some(wanted.as_str()));
    let again = send().await;
    assert!(again.replayed() && again.data(202) == shown);
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'send_reply'").await, 1);
    let detail = t.get(&t.path(&format!("/conversations/{id}"))).await.data(200);
    assert_eq!(
        (detail["messages"].as_array().unwrap().len(), &detail["last_message_preview"]),
        (2, &json!("At seven."))
    );
    assert_eq!(ids(&t, "?search=seven").await, [id]);
    for body in [json!({}), json!({ "body": "" }), json!({ "body": " \n" }), json!({ "body": "x".repeat(10_001) })] {
        assert_eq!(t.post(&path, body).await.invalid_fields(), ["body"]);
    }
}

async fn a_reply_resolves_on_request(t: Tenant<'_>) {
    inbox(t.app, &t, &["When do you open?"]).await;
    let id = ids(&t, "").await[0];
    put(&t, id, "status", json!({ "status": "snoozed", "snoozed_until": "2999-01-01T08:00:00Z" })).await.expect(200);
    let path = t.path(&format!("/conversations/{id}"));
    for (resolve, status) in [(json!(null), "snoozed"), (json!(false), "snoozed"), (json!(true), "resolved")] {
        t.post(&format!("{path}/reply"), json!({ "body": "At seven.", "resolve": resolve })).await.expect(202);
        let shown = t.get(&path).await.data(200);
        assert_eq!((&shown["status"], &shown["last_message_direction"]), (&json!(status), &json!("outbound")));
        assert_eq!(shown["snoozed_until"].is_null(), status == "resolved");
    }
    let reply = t.post(&format!("{path}/reply"), json!({ "body": "x", "resolve": "yes" })).await;
    assert_eq!(reply.invalid_fields(), ["resolve"]);
    t.app.sql("UPDATE messages SET body = '', deleted_at = sent_at").await;
    assert_eq!(t.get(&path).await.data(200)["last_message_direction"], Value::Null);
}

async fn rejected_replies_include_the_reason(t: Tenant<'_>) {
    let account = inbox(t.app, &t, &["hello"]).await;
    let id = ids(&t, "").await[0];
    let path = t.path(&format!("/conversations/{id}/reply"));
    let rejected = async |body: &str| {
        let error = t.post(&path, json!({ "body": body })).await.expect_error(422, "platform_capability_unavailable");
        error["message"].as_str().unwrap().to_owned()
    };
    assert!(rejected(&"x".repeat(2_001)).await.contains("at most 2000 characters"));
    t.app.expire_account(account).await;
    assert!(rejected("hello").await.contains("expired"));
    t.delete(&t.path(&format!("/social-accounts/{account}"))).await.expect(200);
    assert!(rejected("hello").await.contains("no longer connected"));
    let shown = t.get(&t.path(&format!("/conversations/{id}"))).await.data(200);
    assert_eq!(shown["can_reply"], false);
    assert!(shown["reply_refusal"].as_str().unwrap().contains("no longer connected"));
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'send_reply'").await, 0);
}

async fn a_sync_is_requested(t: Tenant<'_>) {
    let account = inbox(t.app, &t, &[]).await;
    let path = t.path(&format!("/social-accounts/{account}/sync"));
    let accepted = t.post(&path, json!({})).await;
    assert_eq!(accepted.data(202), json!({ "account_id": account, "synced_at": null, "last_error": null }));
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'sync_inbox' AND state = 'ready'").await, 1);
    t.post(&path, json!({})).await.expect(202);
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'sync_inbox'").await, 1);
    t.app.expire_account(account).await;
    t.post(&path, json!({})).await.expect_error(409, "reconnect_required");
    t.app
        .sql(format!("UPDATE social_accounts SET status = 'active', platform = 'pinterest' WHERE id = {account}"))
        .await;
    t.post(&path, json!({})).await.expect_error(422, "platform_capability_unavailable");
    t.post(&t.path(&format!("/social-accounts/{MISSING_ID}/sync")), json!({})).await.expect_error(404, "not_found");
}

/// As a prefix, a single letter would match almost everything.
async fn a_single_letter_is_searched_as_a_word(t: Tenant<'_>) {
    inbox(t.app, &t, &["Plan b is fine", "Bread and butter"]).await;
    let all = ids(&t, "").await;
    assert_eq!(all.len(), 2);
    assert_eq!(ids(&t, "?search=b").await, [all[1]]);
    assert_eq!(ids(&t, "?search=x").await, [0; 0]);
}
