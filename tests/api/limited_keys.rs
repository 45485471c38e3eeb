//! Keys that can use only some of the brands of their user.

use crier_domain::access::{KeyMode, Scopes};
use crier_store::keys::{KeyLimits, NewKey};
use crier_store::{accounts, brands, keys};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps};

on_both_apps!(
    a_limited_key_uses_only_its_brands,
    a_limited_key_cannot_use_endpoints_for_all_brands,
    a_limit_gives_no_membership,
    a_limited_key_keeps_the_credentials_of_other_brands,
);

/// Returns a tenant with the same user and a key for these brands.
async fn limited<'a>(t: &Tenant<'a>, brands: &[i64]) -> Tenant<'a> {
    let key = t
        .app
        .write(async |tx| {
            let (limits, scopes) = (KeyLimits { brands: Some(brands), role: None }, Scopes::all());
            let new = NewKey { limits, ..NewKey::new(KeyMode::Live, &scopes) };
            keys::create_within_cap(tx, t.user, &new).await
        })
        .await;
    let key = key.expect("there are few keys").expose_secret().to_owned();
    Tenant { app: t.app, workspace: t.workspace, user: t.user, brand: t.brand, key }
}

async fn create_brand(t: &Tenant<'_>, name: &str) -> i64 {
    t.post("/brands", json!({ "name": name })).await.data(201)["id"].as_i64().expect("an id")
}

fn ids(list: &Value) -> Vec<i64> {
    list["data"].as_array().expect("a list").iter().filter_map(|brand| brand["id"].as_i64()).collect()
}

async fn a_limited_key_uses_only_its_brands(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (second, third) = (create_brand(&t, "Second").await, create_brand(&t, "Third").await);
    let agent = limited(&t, &[t.brand, third]).await;
    assert_eq!(ids(&agent.get("/brands").await.expect(200)), [third, t.brand]);
    assert_eq!(ids(&t.get("/brands").await.expect(200)), [third, second, t.brand]);
    for path in ["", "/posts", "/media", "/social-accounts", "/members", "/usage"] {
        agent.get(&t.path(path)).await.expect(200);
        agent.get(&format!("/brands/{second}{path}")).await.expect_error(403, "brand_forbidden");
        t.get(&format!("/brands/{second}{path}")).await.expect(200);
    }
    let post = json!({ "content": "Bread" });
    agent.post(&t.path("/posts"), post.clone()).await.expect(201);
    agent.post(&format!("/brands/{second}/posts"), post).await.expect_error(403, "brand_forbidden");
    assert_eq!(app.count_rows(format!("posts WHERE brand_id = {second}")).await, 0);
    // A brand that does not exist looks the same.
    agent.get(&format!("/brands/{MISSING_ID}")).await.expect_error(403, "brand_forbidden");
    // A brand that is created later is not one of the key's.
    let later = create_brand(&t, "Later").await;
    agent.get(&format!("/brands/{later}")).await.expect_error(403, "brand_forbidden");
}

/// They create brands, or send the events of all brands to a server.
async fn a_limited_key_cannot_use_endpoints_for_all_brands(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let agent = limited(&t, &[t.brand]).await;
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["post.published"] });
    let id = t.post("/webhooks", hook.clone()).await.data(201)["id"].clone();
    agent.post("/brands", json!({ "name": "Another" })).await.expect_error(403, "brand_forbidden");
    agent.post("/webhooks", hook.clone()).await.expect_error(403, "brand_forbidden");
    agent.put(&format!("/webhooks/{id}"), hook).await.expect_error(403, "brand_forbidden");
    agent.delete(&format!("/webhooks/{id}")).await.expect_error(403, "brand_forbidden");
    for path in ["/webhooks".to_owned(), format!("/webhooks/{id}"), format!("/webhooks/{id}/deliveries")] {
        let error = agent.get(&path).await.expect_error(403, "brand_forbidden");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("all brands")), "{error}");
    }
    for rest in ["rotate-secret", "test", "recover"] {
        let path = format!("/webhooks/{id}/{rest}");
        agent.request("POST", &path).send().await.expect_error(403, "brand_forbidden");
    }
    agent.get("/webhook-events").await.expect(200);
    assert_eq!((app.count_rows("brands").await, app.count_rows("webhooks").await), (1, 1));
}

/// A key is never limited to brands of which its user is not a member, and loses a brand with the membership.
async fn a_limit_gives_no_membership(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let stranger = app.tenant("unlimited").await;
    let agent = limited(&t, &[t.brand, stranger.brand, MISSING_ID]).await;
    assert_eq!(ids(&agent.get("/brands").await.expect(200)), [t.brand]);
    agent.get(&stranger.path("")).await.expect_error(403, "brand_forbidden");
    let none = limited(&t, &[]).await;
    assert_eq!(ids(&none.get("/brands").await.expect(200)), Vec::<i64>::new());
    none.get(&t.path("")).await.expect_error(403, "brand_forbidden");
    app.write(async |tx| brands::remove_member(tx, t.brand, t.user).await).await;
    assert_eq!(ids(&agent.get("/brands").await.expect(200)), Vec::<i64>::new());
    agent.get(&t.path("")).await.expect_error(403, "brand_forbidden");
}

/// A workspace has an account once, so new credentials would also apply to the other brands that have it.
async fn a_limited_key_keeps_the_credentials_of_other_brands(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let second = create_brand(&t, "Second").await;
    let account = t.account("demo").await;
    let agent = limited(&t, &[second]).await;
    let connect = async |handle: &str| {
        let body = json!({ "platform": "sandbox", "credentials": { "handle": handle } });
        agent.post(&format!("/brands/{second}/social-accounts"), body).await
    };
    let version = async || {
        let found = accounts::find_any(&mut app.store.conn().await, account).await.expect("the account is read");
        found.expect("an account").credentials_version
    };
    let before = version().await;
    connect("demo+other").await.expect_error(422, "invalid_credentials");
    assert_eq!(version().await, before);
    // With the stored credentials, nothing changes for the other brand.
    connect("demo").await.expect(201);
}
