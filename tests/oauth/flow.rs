//! From the discovery of the server to the end of a grant.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crier_domain::access::{AgentPreset, Role, Scope, Scopes};
use serde_json::{Value, json};

use super::{
    Allowed, CHALLENGE, REDIRECT, REGISTER, REVOKE, SCOPES, TOKEN, Tokens, allow, assert_error, caller, check, connect,
    count_grants, exchange_of, redirected, refresh, register, request_of, resource, revoke, scopes, send,
};
use crate::support::app::{TestApp, on_both_apps, on_one_app};

on_both_apps!(
    an_application_gets_tokens_and_acts_for_the_user,
    tokens_are_refreshed,
    an_application_can_name_itself_with_an_empty_password,
    a_refreshed_token_can_have_fewer_scopes,
    tokens_are_revoked,
    a_grant_has_only_the_scopes_and_brands_that_the_user_chose,
);
on_one_app!(
    clients_find_the_server,
    documents_for_keys_do_not_exist,
    other_methods_are_rejected,
    large_forms_are_rejected,
    requests_of_applications_are_checked,
    the_user_can_deny_access,
);

async fn clients_find_the_server(app: TestApp) {
    let get = async |path: &str| {
        let reply = app.page(path).await;
        reply.assert_status(200);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        reply.json()
    };
    let challenge = crier_oauth::challenge(&app.api);
    let url = challenge.strip_prefix("Bearer resource_metadata=\"").unwrap().strip_suffix('"').unwrap().to_owned();
    let metadata = get(url.strip_prefix(&app.url).unwrap()).await;
    assert_eq!(metadata["resource"], resource(&app));
    assert_eq!(metadata["authorization_servers"], json!([resource(&app)]));
    assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));

    let server = get("/.well-known/oauth-authorization-server/mcp/oauth").await;
    assert_eq!(server["issuer"], resource(&app));
    assert_eq!(server["authorization_endpoint"], format!("{}/mcp/oauth/authorize", app.url));
    assert_eq!(server["token_endpoint"], format!("{}{TOKEN}", app.url));
    assert_eq!(server["registration_endpoint"], format!("{}{REGISTER}", app.url));
    assert_eq!(server["revocation_endpoint"], format!("{}{REVOKE}", app.url));
    assert_eq!(server["code_challenge_methods_supported"], json!(["S256"]));
    assert_eq!(server["token_endpoint_auth_methods_supported"], json!(["none"]));
    for flag in ["authorization_response_iss_parameter_supported", "client_id_metadata_document_supported"] {
        assert_eq!(server[flag], true, "{flag}");
    }
    for document in [metadata, server] {
        let all = document["scopes_supported"].as_array().unwrap();
        assert!(all.contains(&json!("posts:write")) && all.contains(&json!("inbox:read")), "{all:?}");
        // No user can allow these.
        assert!(!all.contains(&json!("webhooks:read")) && !all.contains(&json!("inbox:write")), "{all:?}");
    }
    let lacking = crier_oauth::insufficient_scope(&app.api, &[Scope::PostsRead, Scope::PostsWrite]);
    assert!(lacking.starts_with(&challenge) && lacking.contains("error=\"insufficient_scope\""), "{lacking}");
    assert!(lacking.ends_with("scope=\"posts:read posts:write\""), "{lacking}");
}

/// Clients ignore a configured API key once one of these exists.
async fn documents_for_keys_do_not_exist(app: TestApp) {
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp/oauth",
        "/mcp/oauth/.well-known/openid-configuration",
    ] {
        for accept in ["application/json", "text/html", "*/*"] {
            let reply = app.request_at_root("GET", &app.url, path).header("accept", accept).send().await;
            reply.assert_status(404);
        }
    }
}

async fn other_methods_are_rejected(app: TestApp) {
    for (method, path) in [
        ("GET", TOKEN),
        ("GET", REGISTER),
        ("DELETE", REGISTER),
        ("GET", REVOKE),
        ("OPTIONS", TOKEN),
        ("POST", "/.well-known/oauth-authorization-server/mcp/oauth"),
    ] {
        app.request_at_root(method, &app.url, path).send().await.assert_status(405);
    }
}

async fn large_forms_are_rejected(app: TestApp) {
    for path in [TOKEN, REVOKE] {
        for size in [17_000, 2 << 20] {
            assert_error(&send(&app, path, &[("token", "a".repeat(size))].into()).await, "invalid_request");
        }
    }
}

async fn requests_of_applications_are_checked(app: TestApp) {
    let client = register(&app, REDIRECT).await;
    let fields = request_of(&app, &client);
    let request = check(&app, &fields).await.unwrap();
    assert_eq!((request.client_id.as_str(), request.client_name.as_str()), (client.as_str(), "Agent"));
    assert_eq!((request.redirect_uri.as_str(), request.redirect_host.as_str()), (REDIRECT, "agent.example"));
    assert_eq!((request.is_loopback_only, request.is_metadata_document), (false, false));
    assert_eq!((request.scopes, request.resource), (scopes(SCOPES), resource(&app)));
    assert_eq!((request.state.as_deref(), request.code_challenge.as_str()), (Some("a state & more"), CHALLENGE));

    let mut bare = fields.clone();
    for name in ["scope", "state", "resource"] {
        bare.remove(name);
    }
    let request = check(&app, &bare).await.unwrap();
    assert_eq!((request.scopes, request.state), (AgentPreset::all_scopes(), None));

    let local = register(&app, "http://localhost/callback").await;
    let mut fields = request_of(&app, &local);
    fields.insert("redirect_uri", "http://localhost:51234/callback".to_owned());
    let request = check(&app, &fields).await.unwrap();
    assert_eq!((request.is_loopback_only, request.redirect_host.as_str()), (true, "localhost"));
}

async fn the_user_can_deny_access(app: TestApp) {
    let client = register(&app, REDIRECT).await;
    let request = check(&app, &request_of(&app, &client)).await.unwrap();
    let parameters = redirected(&crier_oauth::authorize::denied(&request));
    assert_eq!(parameters["error"], "access_denied");
    assert_eq!((parameters["state"].as_str(), parameters["iss"].as_str()), ("a state & more", resource(&app).as_str()));
    assert_eq!(app.count_rows("oauth_codes").await, 0);
}

async fn an_application_gets_tokens_and_acts_for_the_user(app: TestApp) {
    let t = app.tenant("pro").await;
    let (_, tokens) = connect(&t, Allowed::default()).await;
    assert_eq!(tokens.scope, SCOPES);
    let found = caller(&app, &tokens.access, Some(t.brand)).await.unwrap();
    assert_eq!((found.caller.user_id, found.caller.workspace_id), (t.user, t.workspace));
    assert_eq!(found.caller.scopes, scopes(SCOPES));
    assert_eq!(found.membership.map(|(brand, role)| (brand.id, role)), Some((t.brand, Role::Owner)));
    assert!(caller(&app, &tokens.refresh, None).await.is_none(), "a refresh token is no access token");
    app.advance(3_600);
    assert!(caller(&app, &tokens.access, None).await.is_none(), "an access token is valid for an hour");
}

async fn tokens_are_refreshed(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, mut tokens) = connect(&t, Allowed::default()).await;
    // Longer than a refresh token is valid, in steps that are shorter.
    for _ in 0..3 {
        app.advance(20 * 86_400);
        let next = Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
        assert_ne!((&next.access, &next.refresh), (&tokens.access, &tokens.refresh));
        assert_eq!(next.scope, SCOPES);
        assert!(caller(&app, &next.access, None).await.is_some());
        tokens = next;
    }
    assert_eq!(count_grants(&app).await, 1);
    app.advance(30 * 86_400);
    assert_error(&refresh(&app, &client, &tokens.refresh).await, "invalid_grant");
    assert_error(&refresh(&app, &client, "svc_ort_unknown").await, "invalid_grant");
}

async fn an_application_can_name_itself_with_an_empty_password(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    let refresh = async |user: &str| {
        let form = format!("grant_type=refresh_token&refresh_token={}", tokens.refresh);
        let request = app.request_at_root("POST", &app.url, TOKEN).raw(form);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.header("authorization", &format!("Basic {}", STANDARD.encode(user))).send().await
    };
    // Applications have no secret, and the ID must be that of the token's application.
    assert_error(&refresh(&format!("{client}:secret")).await, "invalid_request");
    assert_error(&refresh(&client).await, "invalid_request");
    assert_error(&refresh("another:").await, "invalid_grant");
    Tokens::of(&refresh(&format!("{client}:")).await);
}

async fn a_refreshed_token_can_have_fewer_scopes(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    let narrow = async |token: &str, scope: &str| {
        let fields = [
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", token.to_owned()),
            ("client_id", client.clone()),
            ("scope", scope.to_owned()),
        ];
        send(&app, TOKEN, &fields.into()).await
    };
    for scope in ["posts:read inbox:read", "webhooks:read", "posts"] {
        assert_error(&narrow(&tokens.refresh, scope).await, "invalid_scope");
    }
    let fewer = Tokens::of(&narrow(&tokens.refresh, "posts:read").await);
    assert_eq!(fewer.scope, "posts:read");
    assert_eq!(caller(&app, &fewer.access, None).await.unwrap().caller.scopes, scopes("posts:read"));
    // The grant still has all of them.
    assert_eq!(Tokens::of(&refresh(&app, &client, &fewer.refresh).await).scope, SCOPES);
}

async fn tokens_are_revoked(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    revoke(&app, &client, "svc_oat_unknown").await.assert_status(200);
    assert_error(&revoke(&app, "another", &tokens.access).await, "invalid_client");
    assert_error(&send(&app, REVOKE, &[("token", tokens.access.clone())].into()).await, "invalid_request");
    assert!(caller(&app, &tokens.access, None).await.is_some());
    revoke(&app, &client, &tokens.access).await.assert_status(200);
    assert!(caller(&app, &tokens.access, None).await.is_none());
    let next = Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    revoke(&app, &client, &next.refresh).await.assert_status(200);
    assert!(caller(&app, &next.access, None).await.is_none());
    assert_error(&refresh(&app, &client, &next.refresh).await, "invalid_grant");
    assert_eq!((count_grants(&app).await, app.count_rows("oauth_tokens").await), (0, 0));
}

async fn a_grant_has_only_the_scopes_and_brands_that_the_user_chose(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let other: Value = t.post("/brands", json!({ "name": "Other" })).await.data(201)["id"].take();
    let other = other.as_i64().unwrap();
    let stranger = app.tenant("unlimited").await;
    let brands = [t.brand, stranger.brand];
    let allowed = Allowed { brands: Some(&brands), role_limit: Some(Role::Contributor) };
    let (_, tokens) = connect(&t, allowed).await;
    let role_in = async |brand: i64| {
        let found = caller(&app, &tokens.access, Some(brand)).await.unwrap();
        assert!(!found.caller.all_brands);
        found.membership.map(|(_, role)| role)
    };
    assert_eq!(role_in(t.brand).await, Some(Role::Contributor));
    assert_eq!((role_in(other).await, role_in(stranger.brand).await), (None, None));

    // Scopes that the application did not ask for are never granted.
    let client = register(&app, REDIRECT).await;
    let request = check(&app, &request_of(&app, &client)).await.unwrap();
    let all = Scopes::all();
    let url =
        app.write(async |tx| crier_oauth::authorize::grant(&app.api, tx, t.user, &request, &all, None, None).await);
    let code = redirected(&url.await)["code"].clone();
    assert_eq!(Tokens::of(&send(&app, TOKEN, &exchange_of(&app, &client, &code)).await).scope, SCOPES);
    let unused = allow(&t, &client, Allowed::default()).await;
    assert_ne!(unused, code);
}
