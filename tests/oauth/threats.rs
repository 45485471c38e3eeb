//! One test for each attack in "Threat model of agents and OAuth" of `docs/security.md` that does not need the page.

use std::collections::BTreeSet;
use std::time::Duration;

use crier_oauth::authorize::AuthorizeError;
use crier_store::oauth::clients::MAX_UNUSED_PER_NETWORK;
use crier_store::users;
use futures::future::join_all;
use secrecy::SecretString;
use serde_json::json;

use super::{
    Allowed, CHALLENGE, REDIRECT, REGISTER, TOKEN, Tokens, VERIFIER, allow, assert_error, caller, check, connect,
    count_grants, exchange_of, redirected, refresh, register, register_with, request_of, resource, revoke, send,
};
use crate::support::app::{TestApp, on_both_apps, on_one_app};

on_both_apps!(
    a_code_that_is_used_twice_revokes_its_grant,
    a_code_works_only_for_its_request_and_for_a_minute,
    concurrent_requests_with_one_code_get_no_tokens_that_stay,
    a_refresh_token_that_is_used_twice_revokes_its_grant,
    concurrent_refreshes_revoke_the_grant,
    tokens_work_only_where_they_belong,
    a_second_use_is_detected_after_many_refreshes,
    only_hashes_are_stored,
    guesses_do_not_wait_for_writers,
);
on_one_app!(
    responses_name_their_issuer,
    requests_without_pkce_are_rejected,
    users_are_redirected_only_to_registered_uris,
    other_resources_are_rejected,
    repeated_parameters_are_rejected,
    floods_of_registrations_are_rejected,
    guesses_are_rate_limited,
    guesses_of_tokens_to_revoke_are_rate_limited,
    refreshes_are_rate_limited,
    names_cannot_hide_what_they_are,
);

/// Mix-up: a client of several servers sees which one responded.
async fn responses_name_their_issuer(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    allow(&t, &client, Allowed::default()).await;
    let mut fields = request_of(&app, &client);
    fields.insert("response_type", "token".to_owned());
    let Err(AuthorizeError::Redirect(url)) = check(&app, &fields).await else { panic!("it is an error") };
    let parameters = redirected(&url);
    assert_eq!(parameters["error"], "unsupported_response_type");
    assert_eq!((&parameters["iss"], &parameters["state"]), (&resource(&app), &fields["state"]));
}

/// Downgrade: without the hash of a verifier there is no code, and without the verifier there are no tokens.
async fn requests_without_pkce_are_rejected(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let (long, padded) = ("a".repeat(44), "=".repeat(43));
    for (name, value) in [
        ("code_challenge_method", "plain"),
        ("code_challenge_method", ""),
        ("code_challenge", ""),
        ("code_challenge", "short"),
        ("code_challenge", long.as_str()),
        ("code_challenge", padded.as_str()),
    ] {
        let mut fields = request_of(&app, &client);
        fields.insert(name, value.to_owned());
        let Err(AuthorizeError::Redirect(url)) = check(&app, &fields).await else { panic!("{name}={value}") };
        assert_eq!(redirected(&url)["error"], "invalid_request", "{name}={value}");
    }
    let code = allow(&t, &client, Allowed::default()).await;
    let mut fields = exchange_of(&app, &client, &code);
    fields.remove("code_verifier");
    assert_error(&send(&app, TOKEN, &fields).await, "invalid_request");
    for verifier in [CHALLENGE, "short", &VERIFIER.replace('X', "Y"), &VERIFIER.repeat(3)] {
        fields.insert("code_verifier", verifier.to_owned());
        assert_error(&send(&app, TOKEN, &fields).await, "invalid_grant");
    }
    fields.insert("code_verifier", VERIFIER.to_owned());
    Tokens::of(&send(&app, TOKEN, &fields).await);
}

/// Open redirect: with a wrong application or redirect URI, the user sees a page.
async fn users_are_redirected_only_to_registered_uris(app: TestApp) {
    let client = register(&app, REDIRECT).await;
    for uri in [
        "",
        "https://attacker.example/callback",
        "https://agent.example/callback/",
        "https://agent.example/callback?x=1",
        "https://agent.example/callback#x",
        "https://agent.example:444/callback",
        "https://user@agent.example/callback",
        "https://agent.example.attacker.example/callback",
        "http://agent.example/callback",
        "javascript:alert(1)",
    ] {
        let mut fields = request_of(&app, &client);
        fields.insert("redirect_uri", uri.to_owned());
        // Further mistakes do not change this.
        fields.insert("response_type", "token".to_owned());
        let result = check(&app, &fields).await;
        assert!(matches!(result, Err(AuthorizeError::Page(_))), "{uri}: {result:?}");
    }
    for id in ["", "unknown", "https://10.0.0.1/client.json"] {
        let result = check(&app, &request_of(&app, id)).await;
        assert!(matches!(result, Err(AuthorizeError::Page(_))), "{id}: {result:?}");
    }
}

async fn repeated_parameters_are_rejected(app: TestApp) {
    let client = register(&app, REDIRECT).await;
    let query = super::encoded(&request_of(&app, &client));
    for more in ["client_id=other", "redirect_uri=https%3A%2F%2Fattacker.example%2F"] {
        let result = crier_oauth::authorize::check(&app.api, &format!("{query}&{more}")).await;
        assert!(matches!(result, Err(AuthorizeError::Page(_))), "{more}: {result:?}");
    }
    for more in ["scope=posts%3Aread", "state=x", "code_challenge=x", "other=1&other=2"] {
        let result = crier_oauth::authorize::check(&app.api, &format!("{query}&{more}")).await;
        let Err(AuthorizeError::Redirect(url)) = result else { panic!("{more}: {result:?}") };
        assert_eq!(redirected(&url)["error"], "invalid_request", "{more}");
    }
    let form = "grant_type=refresh_token&client_id=a&client_id=b&refresh_token=c";
    let request = app.request_at_root("POST", &app.url, TOKEN).raw(form);
    let reply = request.header("content-type", "application/x-www-form-urlencoded").send().await;
    assert_error(&reply, "invalid_request");
}

/// Code replay: whoever used the code first loses the tokens.
async fn a_code_that_is_used_twice_revokes_its_grant(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let exchange = exchange_of(&app, &client, &code);
    let tokens = Tokens::of(&send(&app, TOKEN, &exchange).await);
    // Also after the code has expired.
    app.advance(120);
    assert_error(&send(&app, TOKEN, &exchange).await, "invalid_grant");
    assert!(caller(&app, &tokens.access, None).await.is_none());
    assert_error(&refresh(&app, &client, &tokens.refresh).await, "invalid_grant");
    assert_eq!(count_grants(&app).await, 0);
    assert_error(&send(&app, TOKEN, &exchange).await, "invalid_grant");
}

async fn a_code_works_only_for_its_request_and_for_a_minute(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, other) = (register(&app, REDIRECT).await, register(&app, REDIRECT).await);
    let code = allow(&t, &client, Allowed::default()).await;
    let unknown = "a".repeat(43);
    for (name, value) in [
        ("client_id", other.as_str()),
        ("redirect_uri", "https://attacker.example/callback"),
        ("code", unknown.as_str()),
        ("code", "short"),
    ] {
        let mut fields = exchange_of(&app, &client, &code);
        fields.insert(name, value.to_owned());
        assert_error(&send(&app, TOKEN, &fields).await, "invalid_grant");
    }
    let mut fields = exchange_of(&app, &client, &code);
    app.advance(60);
    assert_error(&send(&app, TOKEN, &fields).await, "invalid_grant");
    // As OAuth 2.1, without the redirect URI, and in time.
    fields.insert("code", allow(&t, &client, Allowed::default()).await);
    fields.remove("redirect_uri");
    fields.remove("resource");
    app.advance(59);
    Tokens::of(&send(&app, TOKEN, &fields).await);
    fields.insert("grant_type", "password".to_owned());
    assert_error(&send(&app, TOKEN, &fields).await, "unsupported_grant_type");
}

async fn concurrent_requests_with_one_code_get_no_tokens_that_stay(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let exchange = exchange_of(&app, &client, &code);
    let replies = join_all((0..4).map(|_| send(&app, TOKEN, &exchange))).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
    assert_eq!(count_grants(&app).await, 0);
}

/// Token for another resource: a client cannot be made to get one here that it sends elsewhere.
async fn other_resources_are_rejected(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let code = allow(&t, &client, Allowed::default()).await;
    for other in [app.url.clone(), format!("{}/mcp", app.url), format!("{}/", resource(&app))] {
        let mut fields = request_of(&app, &client);
        fields.insert("resource", other.clone());
        let Err(AuthorizeError::Redirect(url)) = check(&app, &fields).await else { panic!("{other}") };
        assert_eq!(redirected(&url)["error"], "invalid_target");
        let mut fields = exchange_of(&app, &client, &code);
        fields.insert("resource", other);
        assert_error(&send(&app, TOKEN, &fields).await, "invalid_target");
    }
}

async fn tokens_work_only_where_they_belong(app: TestApp) {
    let t = app.tenant("pro").await;
    let (_, tokens) = connect(&t, Allowed::default()).await;
    for token in [&tokens.access, &tokens.refresh] {
        app.request("GET", "/brands").key(token).send().await.expect_error(401, "unauthorized");
    }
    assert!(caller(&app, &t.key, None).await.is_none(), "an API key is no access token");
    let token = SecretString::from(tokens.access.as_str());
    let session = crier_store::sessions::authenticate(&mut app.conn().await, &token, None, app.now()).await;
    assert!(session.unwrap().is_none(), "an access token is no session");
}

/// Theft of a refresh token: the thief and the application cannot both use it.
async fn a_refresh_token_that_is_used_twice_revokes_its_grant(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    assert_error(&refresh(&app, "another", &tokens.refresh).await, "invalid_grant");
    let next = Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    assert!(caller(&app, &next.access, None).await.is_some());
    assert_error(&refresh(&app, &client, &tokens.refresh).await, "invalid_grant");
    assert!(caller(&app, &next.access, None).await.is_none() && caller(&app, &tokens.access, None).await.is_none());
    assert_error(&refresh(&app, &client, &next.refresh).await, "invalid_grant");
    assert_eq!(count_grants(&app).await, 0);
}

async fn concurrent_refreshes_revoke_the_grant(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    let replies = join_all((0..4).map(|_| refresh(&app, &client, &tokens.refresh))).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
    assert_eq!(count_grants(&app).await, 0);
}

/// A copy of the database has no code and no token that works.
async fn only_hashes_are_stored(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    allow(&t, &client, Allowed::default()).await;
    let column = if app.is_postgres() { "encode(hash, 'hex')" } else { "hex(hash)" };
    let mut hashes = BTreeSet::new();
    for table in ["api_keys", "oauth_codes", "oauth_tokens"] {
        let separated = if app.is_postgres() { "string_agg" } else { "group_concat" };
        let all = app.value::<String>(format!("SELECT {separated}({column}, ',') FROM {table}")).await;
        hashes.extend(all.to_lowercase().split(',').map(str::to_owned));
    }
    // The tenant's key, the grant, two codes, two tokens.
    assert_eq!(hashes.len(), 6);
    assert!(hashes.iter().all(|hash| hash.len() == 64));
    for secret in [&tokens.access, &tokens.refresh] {
        let as_hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(hashes.iter().all(|hash| !as_hex.contains(hash.as_str())));
    }
}

/// A flood of registrations uses up the allowance of its address, and leaves room for others.
async fn floods_of_registrations_are_rejected(app: TestApp) {
    let metadata = json!({ "redirect_uris": [REDIRECT] });
    let from = async |address: &str| {
        let request = app.request_at_root("POST", &app.url, REGISTER).header("x-forwarded-for", address);
        request.json(&metadata).send().await
    };
    for _ in 0..MAX_UNUSED_PER_NETWORK {
        from("203.0.113.1").await.assert_status(201);
    }
    let full = from("203.0.113.1").await;
    full.assert_status(429);
    assert!(full.header("retry-after").is_some());
    from("203.0.113.2").await.assert_status(201);
    // The number of requests is limited too, whatever they contain.
    for _ in 0..60 {
        from("2001:db8::1").await;
    }
    from("2001:db8::2").await.assert_status(429);
    app.advance(60);
    from("2001:db8:0:1::1").await.assert_status(201);
}

async fn guesses_are_rate_limited(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    for _ in 0..59 {
        assert_error(&refresh(&app, &client, "svc_ort_guess").await, "invalid_grant");
    }
    let limited = refresh(&app, &client, "svc_ort_guess").await;
    limited.assert_status(429);
    assert!(limited.header("retry-after").is_some());
    // Successful requests do not count: all users of a hosted application share its addresses.
    Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
}

async fn guesses_of_tokens_to_revoke_are_rate_limited(app: TestApp) {
    let t = app.tenant("pro").await;
    // The registration counts too.
    let (client, tokens) = connect(&t, Allowed::default()).await;
    for _ in 0..59 {
        revoke(&app, &client, "svc_ort_guess").await.assert_status(200);
    }
    let limited = revoke(&app, &client, "svc_ort_guess").await;
    limited.assert_status(429);
    assert!(limited.header("retry-after").is_some());
    // A token that exists can be revoked.
    revoke(&app, &client, &tokens.refresh).await.assert_status(200);
    assert_eq!(count_grants(&app).await, 0);
}

/// Anyone can send guesses. On SQLite, one transaction at a time writes.
async fn guesses_do_not_wait_for_writers(app: TestApp) {
    let t = app.tenant("pro").await;
    let mut writer = app.begin().await.unwrap();
    users::lock(&mut writer, t.user).await.unwrap();
    let unknown = "a".repeat(43);
    let guesses = async {
        assert_error(&send(&app, TOKEN, &exchange_of(&app, "client", &unknown)).await, "invalid_grant");
        assert_error(&refresh(&app, "client", &format!("svc_ort_{unknown}{unknown}")).await, "invalid_grant");
        revoke(&app, "client", &format!("svc_oat_{unknown}")).await.assert_status(200);
    };
    tokio::time::timeout(Duration::from_secs(20), guesses).await.unwrap();
    writer.rollback().await.unwrap();
}

/// A thief who refreshes all the time cannot hide that the application uses a token that was replaced long ago.
async fn a_second_use_is_detected_after_many_refreshes(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, first) = connect(&t, Allowed::default()).await;
    let mut newest = first.refresh.clone();
    for _ in 0..60 {
        app.advance(6);
        newest = Tokens::of(&refresh(&app, &client, &newest).await).refresh;
    }
    let limited = loop {
        let reply = refresh(&app, &client, &newest).await;
        if reply.status != 200 {
            break reply;
        }
        newest = Tokens::of(&reply).refresh;
    };
    limited.assert_status(429);
    assert_error(&refresh(&app, &client, &first.refresh).await, "invalid_grant");
    assert_eq!(count_grants(&app).await, 0);
}

/// An application that refreshes all the time. The refresh token of a rejected request stays valid.
async fn refreshes_are_rate_limited(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, mut tokens) = connect(&t, Allowed::default()).await;
    let (other, other_tokens) = connect(&t, Allowed::default()).await;
    for _ in 0..10 {
        tokens = Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    }
    let limited = refresh(&app, &client, &tokens.refresh).await;
    limited.assert_status(429);
    assert_eq!(
        (limited.header("retry-after"), &limited.json()["error"]),
        (Some("6"), &json!("temporarily_unavailable"))
    );
    // Each grant has its own limit.
    Tokens::of(&refresh(&app, &other, &other_tokens.refresh).await);
    app.advance(6);
    Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    assert_eq!(count_grants(&app).await, 2);
}

/// Phishing by name: the name is one visible line, and the page shows the host of the redirect beside it.
async fn names_cannot_hide_what_they_are(app: TestApp) {
    for (name, shown) in [
        (json!("Claude\u{202e}\u{200b}\n<b>"), "Claude <b>"),
        (json!(null), "An application without a name"),
        (json!("\u{200b} \u{feff}"), "An application without a name"),
        (json!(7), "An application without a name"),
    ] {
        let reply = register_with(&app, &json!({ "client_name": name, "redirect_uris": [REDIRECT] })).await;
        reply.assert_status(201);
        let id = reply.json()["client_id"].as_str().unwrap().to_owned();
        let request = check(&app, &request_of(&app, &id)).await.unwrap();
        assert_eq!((request.client_name.as_str(), request.redirect_host.as_str()), (shown, "agent.example"));
    }
}
