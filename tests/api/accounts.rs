//! Social accounts.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::access::Role;
use crier_domain::platform::Platform;
use crier_store::{accounts, brands};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::client::until_true;
use crate::support::request::assert_fields;
use crate::support::store::{TestStore, on_both};

on_both_apps!(a_token_that_another_workspace_has_is_not_revoked);
on_both_apps!("unlimited" =>
    connecting_saves_the_account_and_sends_an_event,
    a_refresh_renews_or_expires_the_account,
    a_late_result_of_a_refresh_does_not_change_new_credentials,
    disconnecting_the_last_brand_revokes_the_grant,
    replaced_credentials_are_revoked_if_they_differ,
    an_account_of_other_users_brands_keeps_its_credentials,
    account_data_from_the_platform_is_sanitized,
);
on_one_app!("unlimited" =>
    fields_are_validated_before_the_platform_call,
    platform_errors_are_reported,
);

on_both!(platforms_list_enabled_capabilities);

/// The metrics of X are collected only if the operator enables this.
async fn platforms_list_enabled_capabilities(s: TestStore) {
    let settings = |analytics| PlatformConfig { analytics: Some(analytics), ..PlatformConfig::default() };
    let no_inbox = PlatformConfig { no_inbox: true, ..PlatformConfig::default() };
    let config = PlatformsConfig {
        platforms: [
            (Platform::Threads, settings(false)),
            (Platform::Twitter, settings(true)),
            (Platform::Bluesky, no_inbox),
        ]
        .into(),
        ..PlatformsConfig::default()
    };
    for (app, expected, has_inbox) in [
        (TestApp::start_with_platforms(s, config).await, [false, true, true, false], [true, true, false, false]),
        (TestApp::start(TestStore::sqlite().await).await, [true, false, true, false], [true, true, true, false]),
    ] {
        let t = app.tenant("unlimited").await;
        let platforms = t.get(&t.path("/social-accounts/platforms")).await.data(200);
        let found = ["threads", "twitter", "bluesky", "shopify"].map(|key| {
            let found = platforms.as_array().unwrap().iter().find(|platform| platform["platform"] == key).unwrap();
            found["capabilities"].clone()
        });
        assert_eq!(found.each_ref().map(|capabilities| capabilities["analytics"] == true), expected);
        for kinds in ["inbox", "replies"] {
            assert_eq!(found.each_ref().map(|capabilities| capabilities[kinds] != json!([])), has_inbox);
        }
    }
}

async fn connect(t: &Tenant<'_>, platform: &str, credentials: Value) -> Reply {
    t.post(&t.path("/social-accounts"), json!({ "platform": platform, "credentials": credentials })).await
}

async fn connecting_saves_the_account_and_sends_an_event(t: Tenant<'_>) {
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["account.connected"] });
    let hook = t.post("/webhooks", hook).await.data(201)["id"].clone();
    let created = connect(&t, "sandbox", json!({ "handle": "demo" })).await.data(201)[0].take();
    assert_fields(&created, json!({ "platform": "sandbox", "status": "active", "external_id": "demo" }));
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([created]));
    let again = connect(&t, "sandbox", json!({ "handle": "demo" })).await.data(201)[0].take();
    assert_eq!(again["id"], created["id"]);
    let deliveries = t.get(&format!("/webhooks/{hook}/deliveries")).await.data(200);
    let data = json!({ "brand_id": t.brand, "social_account_id": created["id"], "platform": "sandbox" });
    assert_eq!(deliveries[0]["payload"]["data"], data);
}

async fn fields_are_validated_before_the_platform_call(t: Tenant<'_>) {
    let path = t.path("/social-accounts");
    assert_eq!(t.post(&path, json!({})).await.invalid_fields(), ["credentials", "platform"]);
    assert_eq!(connect(&t, "nope", json!({})).await.invalid_fields(), ["platform"]);
    assert_eq!(connect(&t, "facebook", json!({})).await.invalid_fields(), ["platform"]);
    assert_eq!(connect(&t, "sandbox", json!("x")).await.invalid_fields(), ["credentials"]);
    assert_eq!(connect(&t, "sandbox", json!({ "handle": 5 })).await.invalid_fields(), ["credentials.handle"]);
    assert_eq!(
        connect(&t, "telegram", json!({})).await.invalid_fields(),
        ["credentials.bot_token", "credentials.chat_id"]
    );
    for platform in ["mastodon", "shopify"] {
        connect(&t, platform, json!({})).await.expect_error(422, "interactive_setup_required");
    }
    let authorize =
        async |platform: &str| t.post(&t.path("/social-accounts/authorize"), json!({ "platform": platform })).await;
    assert_eq!(authorize("sandbox").await.invalid_fields(), ["platform"]);
    authorize("mastodon").await.expect_error(422, "interactive_setup_required");
    authorize("facebook").await.expect_error(422, "platform_not_configured");
    assert_eq!(t.app.connector.connects.load(std::sync::atomic::Ordering::SeqCst), 0);
}

async fn platform_errors_are_reported(t: Tenant<'_>) {
    connect(&t, "sandbox", json!({ "handle": "refused" })).await.expect_error(422, "invalid_credentials");
    connect(&t, "sandbox", json!({ "handle": "away" })).await.expect_error(502, "platform_unavailable");
    assert_eq!(connect(&t, "sandbox", json!({ "handle": "wrong" })).await.invalid_fields(), ["credentials.handle"]);
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([]));
}

async fn account_data_from_the_platform_is_sanitized(t: Tenant<'_>) {
    let created = connect(&t, "sandbox", json!({ "handle": "odd" })).await.data(201)[0].take();
    assert_fields(&created, json!({ "name": format!("Odd {}", "x".repeat(251)), "username": null }));
    assert_fields(&created, json!({ "profile_url": null, "avatar_url": "https://odd.example/a%00.png" }));
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([created]));
    // An id that cannot be stored unchanged is rejected, because a changed id could belong to another account.
    connect(&t, "sandbox", json!({ "handle": "nul" })).await.expect_error(502, "platform_unavailable");
}

/// Connects the account again while its refresh waits for the platform. Returns the response to the refresh and the
/// token that is stored afterwards.
async fn reconnect_during_refresh(app: &TestApp, t: &Tenant<'_>, handle: &str) -> (Reply, String) {
    let id = t.account(handle).await;
    let refresh = async { t.request("POST", &t.path(&format!("/social-accounts/{id}/refresh"))).send().await };
    let again = async {
        app.connector.waiting.acquire().await.unwrap().forget();
        t.account(handle).await;
        app.connector.go.add_permits(1);
    };
    let (reply, ()) = futures::future::join(refresh, again).await;
    let found = accounts::with_secrets(&mut app.store.conn().await, app.store.cipher(), id).await.unwrap().unwrap();
    let secrets: Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    (reply, secrets["token"].as_str().unwrap().to_owned())
}

async fn a_late_result_of_a_refresh_does_not_change_new_credentials(t: Tenant<'_>) {
    for (handle, token) in [("late-refusal", "hunter2-1"), ("late-tokens", "hunter2-3")] {
        let (reply, stored) = reconnect_during_refresh(t.app, &t, handle).await;
        assert_eq!((&reply.data(200)["status"], stored.as_str()), (&json!("active"), token));
        assert_eq!(t.get(&t.path("/social-accounts")).await.data(200)[0]["status"], "active");
    }
}

async fn a_refresh_renews_or_expires_the_account(t: Tenant<'_>) {
    let (good, expired, down) = (t.account("good").await, t.account("expired").await, t.account("down").await);
    let refresh = async |id: i64| t.request("POST", &t.path(&format!("/social-accounts/{id}/refresh"))).send().await;
    assert_eq!(refresh(good).await.data(200)["status"], "active");
    refresh(expired).await.expect_error(409, "reconnect_required");
    refresh(down).await.expect_error(502, "platform_unavailable");
    let accounts = t.get(&t.path("/social-accounts")).await.data(200);
    let status = |id: i64| accounts.as_array().unwrap().iter().find(|a| a["id"] == id).unwrap()["status"].clone();
    assert_eq!((status(good), status(expired), status(down)), (json!("active"), json!("expired"), json!("active")));
    t.account("expired").await;
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200)[1]["status"], "active");
}

async fn disconnecting_the_last_brand_revokes_the_grant(t: Tenant<'_>) {
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["account.disconnected"] });
    let hook = t.post("/webhooks", hook).await.data(201)["id"].clone();
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    let account = t.account("same").await;
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "same" } });
    t.post(&format!("/brands/{second}/social-accounts"), body).await.expect(201);
    let first = t.delete(&t.path(&format!("/social-accounts/{account}"))).await.data(200);
    assert_eq!(first, json!({ "result": "detached", "account_id": account }));
    assert!(t.app.connector.revoked.lock().unwrap().is_empty());
    let last = t.delete(&format!("/brands/{second}/social-accounts/{account}")).await.data(200);
    assert_eq!(last["result"], "revoked");
    until_true("the grant is revoked", || *t.app.connector.revoked.lock().unwrap() == ["same"]).await;
    let deliveries = t.get(&format!("/webhooks/{hook}/deliveries")).await.data(200);
    let results: Vec<_> =
        deliveries.as_array().unwrap().iter().map(|d| d["payload"]["data"]["result"].clone()).collect();
    assert_eq!(results, ["revoked", "detached"]);
}

async fn a_token_that_another_workspace_has_is_not_revoked(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (first, second) = (t.account("same").await, other.account("same").await);
    let deleted = t.delete(&t.path(&format!("/social-accounts/{first}"))).await.data(200);
    assert_eq!(deleted["result"], "revoked");
    // The revocation of a grant that only this workspace has shows that the first disconnect was processed as well.
    let alone = t.account("alone").await;
    t.delete(&t.path(&format!("/social-accounts/{alone}"))).await.expect(200);
    until_true("the grant is revoked", || !app.connector.revoked.lock().unwrap().is_empty()).await;
    assert_eq!(*app.connector.revoked.lock().unwrap(), ["alone"]);
    other.delete(&other.path(&format!("/social-accounts/{second}"))).await.expect(200);
    until_true("the last disconnect revokes", || *app.connector.revoked.lock().unwrap() == ["alone", "same"]).await;
}

async fn replaced_credentials_are_revoked_if_they_differ(t: Tenant<'_>) {
    for handle in ["same", "same", "demo", "demo"] {
        t.account(handle).await;
    }
    until_true("the former token is revoked", || !t.app.connector.revoked.lock().unwrap().is_empty()).await;
    assert_eq!(*t.app.connector.revoked.lock().unwrap(), ["demo"]);
}

/// A colleague can connect the account to another brand of the workspace only with the stored credentials. Members of a
/// brand that has the account can replace them.
async fn an_account_of_other_users_brands_keeps_its_credentials(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let colleague = t.colleague(Role::Editor).await;
    let brand = colleague.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    t.app.write(async |tx| brands::remove_member(tx, t.brand, colleague.user).await).await;
    let path = format!("/brands/{brand}/social-accounts");
    let connect = async |handle: &str| {
        colleague.post(&path, json!({ "platform": "sandbox", "credentials": { "handle": handle } })).await
    };
    let version = async || {
        let found = accounts::find_any(&mut t.app.store.conn().await, account).await.unwrap();
        found.unwrap().credentials_version
    };
    let before = version().await;
    let error = connect("demo+other").await.expect_error(422, "invalid_credentials");
    assert!(error["message"].as_str().unwrap().contains("you cannot connect"), "{error}");
    assert_eq!((version().await, colleague.get(&path).await.data(200)), (before, json!([])));
    connect("demo").await.expect(201);
    connect("demo+other").await.expect(201);
    assert_eq!(version().await, before + 2);
}
