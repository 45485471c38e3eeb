//! Keys with a role limit, such as those that only write drafts.

use chrono::TimeDelta;
use crier_domain::access::{AgentPreset, KeyMode, Role, Scopes};
use crier_store::keys::{self, KeyLimits, NewKey};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::imports;
use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(a_key_for_drafts_cannot_publish, a_limit_never_raises_the_role_of_a_member);
on_one_app!(a_key_for_drafts_cannot_start_work_in_the_name_of_its_user, a_key_for_drafts_has_no_other_way_to_publish);

/// Returns a tenant with the same user and another key, which has all scopes.
async fn limited<'a>(t: &Tenant<'a>, role: Role) -> Tenant<'a> {
    let key = t
        .app
        .write(async |tx| {
            let (limits, scopes) = (KeyLimits { brands: None, role: Some(role) }, Scopes::all());
            let new = NewKey { limits, ..NewKey::new(KeyMode::Live, &scopes) };
            keys::create_within_cap(tx, t.user, &new).await
        })
        .await;
    let key = key.expect("there are few keys").expose_secret().to_owned();
    Tenant { app: t.app, workspace: t.workspace, user: t.user, brand: t.brand, key }
}

fn later(app: &TestApp) -> String {
    (app.now() + TimeDelta::hours(3)).to_rfc3339()
}

/// The key of an owner has the rights of a contributor.
async fn a_key_for_drafts_cannot_publish(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let agent = limited(&t, AgentPreset::Drafts.role_limit().expect("a limit")).await;
    let posts = t.path("/posts");
    let body = |more: Value| {
        let mut body = json!({ "content": "x", "accounts": [account] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let publishing =
        [json!({ "schedule_type": "now" }), json!({ "schedule_type": "scheduled", "scheduled_at": later(&app) })];
    for more in publishing {
        agent.post(&posts, body(more.clone())).await.expect_error(403, "insufficient_scope");
        let draft = agent.post(&posts, body(json!({}))).await.data(201);
        let path = format!("{posts}/{}", draft["id"]);
        agent.put(&path, more).await.expect_error(403, "insufficient_scope");
        assert_eq!(t.get(&path).await.data(200)["status"], "draft");
    }
    let draft = agent.post(&posts, body(json!({}))).await.data(201);
    let path = format!("{posts}/{}", draft["id"]);
    agent.put(&path, json!({ "content": "better" })).await.expect(200);
    agent.request("POST", &format!("{path}/submit")).send().await.expect(200);
    agent.put(&path, json!({ "content": "worse" })).await.expect_error(403, "insufficient_scope");
    agent.request("POST", &format!("{path}/approve")).send().await.expect_error(403, "insufficient_scope");
    agent.delete(&t.path(&format!("/social-accounts/{account}"))).await.expect_error(403, "insufficient_scope");
    // The other key of the same user is not limited.
    t.request("POST", &format!("{path}/approve")).send().await.expect(200);
    agent.request("POST", &format!("{path}/unpublish")).send().await.expect_error(403, "insufficient_scope");
}

async fn a_limit_never_raises_the_role_of_a_member(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let contributor = t.colleague(Role::Contributor).await;
    let agent = limited(&contributor, Role::Admin).await;
    let account = t.account("demo").await;
    let body = json!({ "content": "x", "accounts": [account], "schedule_type": "now" });
    agent.post(&t.path("/posts"), body).await.expect_error(403, "insufficient_scope");
}

/// Imports and recurring posts run with the role of their user, which is not limited.
async fn a_key_for_drafts_cannot_start_work_in_the_name_of_its_user(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let agent = limited(&t, Role::Contributor).await;
    let file = format!("content,scheduled_at,accounts\nBread,{},{account}\n", later(&app));
    let import = async |dry_run: &str| {
        let form = agent.request("POST", &t.path("/posts/import"));
        form.form(Some(("posts.csv", file.as_bytes())), &[("dry_run", dry_run)]).send().await
    };
    import("false").await.expect_error(403, "insufficient_scope");
    let id = import("true").await.data(202)["id"].clone();
    imports::end_all(&app).await;
    let start = t.path(&format!("/posts/imports/{id}/start"));
    agent.request("POST", &start).send().await.expect_error(403, "insufficient_scope");
    t.request("POST", &start).send().await.expect(202);
    let cancel = t.path(&format!("/posts/imports/{id}/cancel"));
    agent.request("POST", &cancel).send().await.expect_error(403, "insufficient_scope");
    t.request("POST", &cancel).send().await.expect(200);

    let rule = |destination: &str| {
        json!({
            "name": "Daily", "variations": [{ "content": "Bread" }], "accounts": [account], "frequency": "daily",
            "time": "09:00", "starts_on": app.now().date_naive().to_string(), "destination": destination,
        })
    };
    let rules = t.path("/recurring-posts");
    for destination in ["calendar", "approval"] {
        agent.post(&rules, rule(destination)).await.expect_error(403, "insufficient_scope");
    }
    let id = agent.post(&rules, rule("draft")).await.data(201)["id"].clone();
    let path = format!("{rules}/{id}");
    agent.put(&path, json!({ "destination": "approval" })).await.expect_error(403, "insufficient_scope");
    t.put(&path, json!({ "destination": "approval" })).await.expect(200);
    agent.put(&path, json!({ "name": "Changed" })).await.expect_error(403, "insufficient_scope");
}

/// Feeds publish in the name of a member, and plans publish without the scope `posts:write`.
async fn a_key_for_drafts_has_no_other_way_to_publish(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let agent = limited(&t, Role::Contributor).await;
    let feed = agent.post(&t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })).await.data(201);
    let feed = t.path(&format!("/feeds/{}", feed["id"]));
    let publishing = |destination: &str| {
        let settings = json!({
            "template": "{title} {url}", "accounts": [account], "destination": destination, "max_per_day": 5,
        });
        json!({ "auto_post": settings })
    };
    for destination in ["now", "queue"] {
        agent.put(&feed, publishing(destination)).await.expect_error(403, "insufficient_scope");
    }
    t.put(&feed, publishing("now")).await.expect(200);
    let moved = json!({ "url": "https://8.8.4.4/feed.xml" });
    agent.put(&feed, moved).await.expect_error(403, "insufficient_scope");

    let plan = json!({ "name": "p", "items": [{ "title": "a", "content": "x", "planned_at": later(&app) }] });
    let plan = agent.post(&t.path("/content-plans"), plan).await.data(201);
    let schedule = t.path(&format!("/content-plans/{}/items/{}/schedule", plan["id"], plan["items"][0]["id"]));
    agent.post(&schedule, json!({ "account_ids": [account] })).await.expect_error(403, "insufficient_scope");

    let draft = json!({ "content": "x", "accounts": [account] });
    let id = agent.post(&t.path("/posts"), draft).await.data(201)["id"].clone();
    let bulk = json!({ "ids": [id], "action": "schedule", "scheduled_at": later(&app) });
    let results = agent.post(&t.path("/posts/bulk"), bulk).await.data(200);
    assert_eq!(
        (&results[0]["outcome"], &results[0]["error"]["code"]),
        (&json!("refused"), &json!("insufficient_scope"))
    );
    assert_eq!(app.count_rows("posts WHERE status <> 'draft'").await, 0);
}
