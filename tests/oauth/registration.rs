//! Dynamic registration.

use crier_oauth::authorize::AuthorizeError;
use crier_store::oauth::clients::{self, MAX_CLIENTS, MAX_UNUSED_PER_NETWORK, NewClient, Registration};
use serde_json::{Value, json};

use super::{
    Allowed, REDIRECT, REGISTER, TOKEN, Tokens, allow, assert_error, check, connect, exchange_of, register,
    register_with, request_of, send,
};
use crate::support::app::{TestApp, on_both_apps, on_one_app};

on_both_apps!(
    unused_registrations_expire_and_used_ones_stay,
    registrations_are_limited_in_number,
    any_text_can_be_an_unknown_id,
);
on_one_app!(an_application_is_registered, wrong_metadata_is_rejected, nothing_is_registered_on_a_full_disk);

async fn an_application_is_registered(app: TestApp) {
    let metadata = json!({
        "client_name": "Agent", "redirect_uris": [REDIRECT, "http://127.0.0.1/callback"],
        "grant_types": ["refresh_token", "authorization_code"], "response_types": ["code"],
        "token_endpoint_auth_method": "none", "client_uri": "https://agent.example", "unknown": { "a": [1] },
    });
    let reply = register_with(&app, &metadata).await;
    reply.assert_status(201);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let registered = reply.json();
    assert_eq!(registered["redirect_uris"], metadata["redirect_uris"]);
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert_eq!(registered["client_id_issued_at"], app.now().timestamp());
    assert_eq!(registered.get("client_secret"), None);
    let request = check(&app, &request_of(&app, registered["client_id"].as_str().unwrap())).await.unwrap();
    assert_eq!(request.client_name, "Agent");
    // Of the redirect URIs, one does not lead to this computer.
    assert!(!request.is_loopback_only);
    // The default of the Python SDK for MCP, which then follows the response.
    let metadata = json!({ "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "client_secret_post" });
    let reply = register_with(&app, &metadata).await;
    reply.assert_status(201);
    let registered = reply.json();
    assert_eq!((&registered["token_endpoint_auth_method"], registered.get("client_secret")), (&json!("none"), None));
}

async fn wrong_metadata_is_rejected(app: TestApp) {
    let of = |name: &str, value: Value| {
        let mut metadata = json!({ "redirect_uris": [REDIRECT] });
        metadata[name] = value;
        metadata
    };
    for uris in [
        json!(null),
        json!([]),
        json!("https://agent.example/"),
        json!([1]),
        json!(["http://agent.example/"]),
        json!(["javascript:alert(1)"]),
        json!([REDIRECT, "https://agent.example/#fragment"]),
        Value::from(vec![REDIRECT; 21]),
    ] {
        assert_error(&register_with(&app, &of("redirect_uris", uris)).await, "invalid_redirect_uri");
    }
    for (name, value) in [
        ("grant_types", json!(["client_credentials"])),
        ("response_types", json!(["token"])),
        ("padding", json!("x".repeat(17_000))),
    ] {
        assert_error(&register_with(&app, &of(name, value)).await, "invalid_client_metadata");
    }
    for body in ["", "[]", "{", "redirect_uris=x"] {
        let reply = app.request_at_root("POST", &app.url, REGISTER).raw(body).send().await;
        assert_error(&reply, "invalid_client_metadata");
    }
    assert_eq!(app.count_rows("oauth_clients").await, 0);
}

async fn nothing_is_registered_on_a_full_disk(app: TestApp) {
    let disk = app.api.library.disk();
    disk.set_low(true);
    let reply = register_with(&app, &json!({ "redirect_uris": [REDIRECT] })).await;
    reply.assert_status(503);
    assert_eq!(reply.json()["error"], "temporarily_unavailable");
    disk.set_low(false);
    register(&app, REDIRECT).await;
}

async fn unused_registrations_expire_and_used_ones_stay(app: TestApp) {
    let t = app.tenant("pro").await;
    let (used, unused) = (register(&app, REDIRECT).await, register(&app, REDIRECT).await);
    let code = allow(&t, &used, Allowed::default()).await;
    Tokens::of(&send(&app, TOKEN, &exchange_of(&app, &used, &code)).await);
    let is_known = async |client: &str| check(&app, &request_of(&app, client)).await.is_ok();
    assert!(is_known(&used).await && is_known(&unused).await);
    app.advance(clients::UNUSED_LIFETIME.num_seconds());
    assert!(is_known(&used).await && !is_known(&unused).await);
    app.advance((clients::LIFETIME - clients::UNUSED_LIFETIME).num_seconds());
    assert!(!is_known(&used).await);
}

async fn any_text_can_be_an_unknown_id(app: TestApp) {
    let long = "a".repeat(10_000);
    for id in ["a", "\0", "aaaaaaaaaaaaaaaaaaaaaaa\0", "\u{e9}", "'; --", long.as_str()] {
        let result = check(&app, &request_of(&app, id)).await;
        let is_unknown = matches!(&result, Err(AuthorizeError::Page(text)) if text.contains("is not registered"));
        assert!(is_unknown, "{id:?}: {result:?}");
    }
}

async fn registrations_are_limited_in_number(app: TestApp) {
    let uris = [REDIRECT.to_owned()];
    let register = async |network: &str| {
        let new = NewClient { name: "Agent", redirect_uris: &uris, network };
        app.write(async |tx| clients::register(tx, &new).await).await
    };
    let Registration::Created(first) = register("address:203.0.113.1").await else { panic!("it is the first one") };
    app.advance(1);
    for _ in 1..MAX_UNUSED_PER_NETWORK {
        assert!(matches!(register("address:203.0.113.1").await, Registration::Created(_)));
    }
    assert_eq!(register("address:203.0.113.1").await, Registration::NetworkFull);
    assert!(matches!(register("address:203.0.113.2").await, Registration::Created(_)));

    // If there are too many, the oldest unused one is deleted for a new one.
    let missing = MAX_CLIENTS - app.count_rows("oauth_clients").await;
    app.sql(format!(
        "
        INSERT INTO oauth_clients (id, created_at, network, name, redirect_uris)
        WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {missing})
        SELECT 'copy' || n, '{}', 'other', 'Agent', '[]'
        FROM c",
        app.now().to_rfc3339()
    ))
    .await;
    assert!(matches!(register("address:203.0.113.3").await, Registration::Created(_)));
    assert_eq!(app.count_rows("oauth_clients").await, MAX_CLIENTS);
    assert_eq!(app.count_rows(format!("oauth_clients WHERE id = '{first}'")).await, 0);
    // A user who allows many applications cannot keep out others: a user has few grants.
    let t = app.tenant("pro").await;
    let (client, _) = connect(&t, Allowed::default()).await;
    app.sql("UPDATE oauth_clients SET last_used_at = created_at").await;
    for network in 4..7 {
        let created = register(&format!("address:203.0.113.{network}")).await;
        assert!(matches!(created, Registration::Created(_)), "{created:?}");
        app.sql("UPDATE oauth_clients SET last_used_at = created_at").await;
    }
    assert_eq!(app.count_rows("oauth_clients").await, MAX_CLIENTS);
    assert_eq!(app.count_rows(format!("oauth_clients WHERE id = '{client}'")).await, 1);
}
