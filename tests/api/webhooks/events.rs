//! Events of the API: every member of the brand who subscribed is notified, and no other user, and the payload is as
//! documented. `tests/jobs/events.rs` covers the events of the worker.

use crier_domain::access::{KeyMode, Role};
use crier_store::brands;
use serde_json::json;

use super::subscribe;
use crate::support::app::{Tenant, TestApp, on_both_apps};

on_both_apps!(brand_created_is_sent_to_the_creator_only, account_events_are_sent_to_brand_members);
on_both_apps!("free" => rejected_requests_send_no_events);

const ALL: [&str; 3] = ["brand.created", "account.connected", "account.disconnected"];

/// Returns the payloads of an endpoint's deliveries as the response contains them, newest first.
async fn list_payloads(t: &Tenant<'_>, hook: &str) -> Vec<String> {
    let reply = t.get(&format!("{hook}/deliveries?per_page=100")).await;
    let shown: Vec<String> =
        reply.data(200).as_array().unwrap().iter().map(|delivery| delivery["payload"].to_string()).collect();
    // The response contains the payload byte for byte as it is stored, signed and sent.
    let text = String::from_utf8(reply.body).unwrap();
    for payload in &shown {
        assert!(text.contains(&format!("\"payload\":{payload},")), "{text}");
        let stored = payload.replace('\'', "''");
        assert!(t.app.count_rows(format!("events WHERE payload = '{stored}'")).await > 0, "{payload}");
    }
    shown
}

/// Returns another user of the same workspace, who is not a member of any brand.
async fn outsider<'a>(t: &'a Tenant<'_>) -> Tenant<'a> {
    let user = t.app.user(t.workspace, "outsider@example.com").await;
    let key = t.app.key_of(user, KeyMode::Live, "all").await;
    Tenant { app: t.app, workspace: t.workspace, user, brand: t.brand, key }
}

async fn brand_created_is_sent_to_the_creator_only(app: TestApp) {
    let (owner, stranger) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let colleague = owner.colleague(Role::Owner).await;
    let hooks = [subscribe(&owner, &ALL).await, subscribe(&owner, &["brand.created"]).await];
    let unsubscribed = subscribe(&owner, &["post.failed"]).await;
    let others = [(&colleague, subscribe(&colleague, &ALL).await), (&stranger, subscribe(&stranger, &ALL).await)];
    let name = "Ünï \"quoted\" 🥐";
    let created = owner.post("/brands", json!({ "name": name, "website": "https://x.example/" })).await.data(201);
    let payload =
        format!(r#"{{"event":"brand.created","data":{{"brand_id":{},"name":{}}}}}"#, created["id"], json!(name));
    for hook in hooks {
        assert_eq!(list_payloads(&owner, &hook).await, std::slice::from_ref(&payload));
    }
    assert!(list_payloads(&owner, &unsubscribed).await.is_empty());
    for (other, hook) in others {
        assert!(list_payloads(other, &hook).await.is_empty());
    }
}

async fn account_events_are_sent_to_brand_members(app: TestApp) {
    let (owner, stranger) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (editor, removed) = (owner.colleague(Role::Editor).await, owner.colleague(Role::Admin).await);
    let outsider = outsider(&owner).await;
    let hooks = [(&owner, subscribe(&owner, &ALL).await), (&editor, subscribe(&editor, &ALL).await)];
    let left = subscribe(&removed, &ALL).await;
    let others = [(&outsider, subscribe(&outsider, &ALL).await), (&stranger, subscribe(&stranger, &ALL).await)];
    let account = owner.account("demo").await;
    let about = |name: &str, brand: i64, result: &str| {
        format!(
            r#"{{"event":"account.{name}","data":{{"brand_id":{brand},"social_account_id":{account},"platform":"sandbox"{result}}}}}"#
        )
    };
    let connected = about("connected", owner.brand, "");
    for (member, hook) in hooks.iter().chain([&(&removed, left.clone())]) {
        assert_eq!(list_payloads(member, hook).await, std::slice::from_ref(&connected));
    }
    app.write(async |tx| brands::remove_member(tx, owner.brand, removed.user).await).await;

    // The editor connects the same account to their own brand. Only they are notified of events in that brand.
    let own = editor.post("/brands", json!({ "name": "Own" })).await.data(201)["id"].as_i64().unwrap();
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "demo" } });
    editor.post(&format!("/brands/{own}/social-accounts"), body).await.expect(201);
    owner.delete(&owner.path(&format!("/social-accounts/{account}"))).await.expect(200);
    editor.delete(&format!("/brands/{own}/social-accounts/{account}")).await.expect(200);
    let detached = about("disconnected", owner.brand, r#","result":"detached""#);
    let revoked = about("disconnected", own, r#","result":"revoked""#);
    let created = format!(r#"{{"event":"brand.created","data":{{"brand_id":{own},"name":"Own"}}}}"#);
    assert_eq!(list_payloads(&owner, &hooks[0].1).await, [detached.clone(), connected.clone()]);
    let of_editor = [revoked, detached, about("connected", own, ""), created, connected.clone()];
    assert_eq!(list_payloads(&editor, &hooks[1].1).await, of_editor);
    assert_eq!(list_payloads(&removed, &left).await, [connected], "a former member is not notified");
    for (other, hook) in others {
        assert!(list_payloads(other, &hook).await.is_empty());
    }
}

async fn rejected_requests_send_no_events(t: Tenant<'_>) {
    // The endpoint was created while the plan had webhooks.
    t.app.set_plan(t.workspace, "unlimited").await;
    let hook = subscribe(&t, &ALL).await;
    t.app.set_plan(t.workspace, "free").await;
    t.post("/brands", json!({ "name": "One too many" })).await.expect_error(402, "limit_reached");
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "refused" } });
    t.post(&t.path("/social-accounts"), body).await.expect_error(422, "invalid_credentials");
    t.delete(&t.path("/social-accounts/999999")).await.expect_error(404, "not_found");
    t.get(&format!("{hook}/deliveries")).await.expect_error(402, "feature_not_available");
    assert_eq!(t.app.count_rows("events").await, 0);
}
