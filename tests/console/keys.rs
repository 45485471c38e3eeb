//! The keys of a user, and the log of their write requests.

use crier_domain::access::{MAX_KEYS, Role};
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::console::{ConsoleUser, Page};

on_both_apps!(writes_of_keys_are_listed);
on_both_apps!("unlimited" =>
    a_key_is_revoked,
    a_key_beyond_the_maximum_is_rejected,
    writes_of_older_processes_have_no_path,
);
on_both_apps!(console "unlimited" =>
    a_key_is_shown_once_and_works,
    a_key_has_the_chosen_scopes,
    a_key_has_the_chosen_name_and_limits,
);

/// Returns the key that a page shows.
pub fn shown_key(page: &Page) -> String {
    let (_, rest) = page.text.split_once("<code id=\"secret\">").unwrap_or_else(|| panic!("no secret: {}", page.text));
    rest.split('<').next().unwrap_or_default().to_owned()
}

/// The fields of the form that the tests do not choose.
const NO_LIMITS: [(&str, &str); 2] = [("brands", "all"), ("role_limit", "own")];

/// Returns the fields of a form for a key without limits.
fn form<'a>(fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    fields.iter().copied().chain(NO_LIMITS).collect()
}

const OWN: &str = "api_keys WHERE prefix <> 'session'";

async fn a_key_is_shown_once_and_works(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (from, action) = (t.path("/developers"), t.path("/developers/keys"));
    let page = person.get(&from).await;
    let form = form(&[("mode", "live"), ("scopes", "all")]);
    let created = person.submit_from(&page, &action, &form).await;
    created.expect(200, "It is not shown again.");
    let key = shown_key(&created);
    let again = person.submit_from(&page, &action, &form).await;
    assert_eq!(shown_key(&again), key, "the same form shows the same key");
    assert_eq!(t.app.count_rows(OWN).await, 2, "the tenant's own, and this one");
    t.app.request("GET", "/brands").key(&key).send().await.assert_status(200);
    let listed = person.get(&from).await;
    listed.expect(200, &key[key.len() - 4..]);
    assert!(!listed.has(&key), "{}", listed.text);
    let body: Vec<u8> = t.app.value("SELECT response FROM idempotency_keys ORDER BY created_at DESC LIMIT 1").await;
    assert!(!String::from_utf8_lossy(&body).contains(&key), "the stored response is sealed");
    let other = person.submit_from(&page, &action, &self::form(&[("mode", "test"), ("scopes", "all")])).await;
    other.expect(409, "This form was already submitted with other values.");
}

async fn a_key_has_the_chosen_scopes(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (from, action) = (t.path("/developers"), t.path("/developers/keys"));
    for fields in [&[("mode", "live")] as &[_], &[("mode", "live"), ("scopes", "posts:fly")]] {
        person.submit(&from, &action, &form(fields)).await.expect(422, "Choose at least one scope, or all.");
    }
    let page = person.submit(&from, &action, &form(&[("mode", "x"), ("scopes", "posts:read")])).await;
    page.expect(422, "Choose live or test.").expect(422, "value=\"posts:read\" aria-label=\"Posts: Read\" checked");
    assert_eq!(t.app.count_rows(OWN).await, 1);
    let form = form(&[("mode", "test"), ("scopes", "posts:read"), ("scopes", "brands:read")]);
    let key = shown_key(&person.submit(&from, &action, &form).await);
    assert!(key.starts_with("svc_test_"), "{key}");
    t.app.request("GET", "/brands").key(&key).send().await.assert_status(200);
    t.app.request("GET", "/webhooks").key(&key).send().await.expect_error(403, "insufficient_scope");
    person.get(&from).await.expect(200, "brands:read, posts:read");
}

async fn a_key_has_the_chosen_name_and_limits(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].to_string();
    let other = t.app.tenant("unlimited").await.brand.to_string();
    let (from, action) = (t.path("/developers"), t.path("/developers/keys"));
    let fixed = [("mode", "live"), ("scopes", "all")];
    let long = "x".repeat(101);
    let (second, other) = (second.as_str(), other.as_str());
    for (fields, problem) in [
        (
            [("name", long.as_str()), ("brands", "all"), ("role_limit", "own")],
            "Must be one line of 1 to 100 characters.",
        ),
        ([("name", "Shop"), ("brands", other), ("role_limit", "own")], "Choose at least one of your brands"),
        ([("name", "Shop"), ("brands", "none"), ("role_limit", "own")], "Choose at least one of your brands"),
        ([("name", "Shop"), ("brands", "all"), ("role_limit", "owner")], "Choose your role or drafts only."),
        ([("name", "Shop"), ("brands", "all"), ("role", "own")], "Choose your role or drafts only."),
    ] {
        let fields: Vec<_> = fixed.into_iter().chain(fields).collect();
        person.submit(&from, &action, &fields).await.expect(422, problem);
    }
    assert_eq!(t.app.count_rows(OWN).await, 2, "one of each tenant");

    let fields = [("name", " Shop "), ("brands", second), ("role_limit", "contributor")];
    let fields: Vec<_> = fixed.into_iter().chain(fields).collect();
    let created = person.submit(&from, &action, &fields).await;
    created.expect(200, "A live key with all scopes, drafts only, for Second.");
    let key = shown_key(&created);
    let send = async |brand: &str, body: Value| {
        let request = t.app.request("POST", &format!("/brands/{brand}/posts")).key(&key);
        request.idempotency_key(&t.app.fresh_key()).json(&body).send().await
    };
    send(second, json!({ "content": "x" })).await.expect(201);
    send(&t.brand.to_string(), json!({ "content": "x" })).await.expect_error(403, "brand_forbidden");
    let limit: String = t.app.value("SELECT role_limit FROM api_keys WHERE name = 'Shop'").await;
    assert_eq!(limit, "contributor");
    let listed = person.get(&from).await;
    listed.expect(200, "<bdi>Shop</bdi>").expect(200, "All (drafts only, only some brands)");
    let requests = person.get(&t.path("/developers/requests")).await;
    requests.expect(200, &format!("Shop (svc_live_…{})", &key[key.len() - 4..]));
}

async fn a_key_is_revoked(t: Tenant<'_>) {
    let colleague = t.colleague(Role::Editor).await;
    let person = ConsoleUser::sign_in(&t).await;
    let id = async |user: i64, prefix: &str| {
        t.app.newest_id(format!("api_keys WHERE user_id = {user} AND prefix = '{prefix}'")).await
    };
    let (own, theirs) = (id(t.user, "svc_live_").await, id(colleague.user, "svc_live_").await);
    let session = id(t.user, "session").await;
    let page = person.get(&t.path("/developers")).await;
    let action = t.path(&format!("/developers/keys/{own}/revoke"));
    let hidden = page.hidden_fields(&action);
    for other in [theirs, session] {
        let fields = [("_csrf", hidden[0].1.as_str()), ("_key", "another")];
        let path = t.path(&format!("/developers/keys/{other}/revoke"));
        person.post(&path, &fields).await.expect(404, "The key does not exist.");
    }
    for _ in 0..2 {
        person.submit_from(&page, &action, &[]).await.expect(200, "API key revoked");
    }
    t.get("/brands").await.assert_status(401);
    colleague.get("/brands").await.assert_status(200);
}

async fn a_key_beyond_the_maximum_is_rejected(t: Tenant<'_>) {
    for _ in 0..MAX_KEYS - 2 {
        t.app.key(t.user).await;
    }
    let person = ConsoleUser::sign_in(&t).await;
    let (from, action) = (t.path("/developers"), t.path("/developers/keys"));
    let form = form(&[("mode", "live"), ("scopes", "all")]);
    person.submit(&from, &action, &form).await.expect(200, "It is not shown again.");
    let page = person.get(&from).await;
    person.submit_from(&page, &action, &form).await.expect(422, "You have 50 API keys, the maximum. Revoke a key");
    assert_eq!(t.app.count_rows(OWN).await, 50, "the session's key does not count");
    let id = t.app.newest_id(format!("api_keys WHERE user_id = {} AND prefix <> 'session'", t.user)).await;
    person.submit(&from, &t.path(&format!("/developers/keys/{id}/revoke")), &[]).await.expect(200, "API key revoked");
    person.submit_from(&page, &action, &form).await.expect(200, "It is not shown again.");
}

async fn writes_of_keys_are_listed(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let person = ConsoleUser::sign_in(&t).await;
    let log = t.path("/developers/requests");
    person.get(&log).await.expect(200, "No requests");
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    t.post("/brands", json!({ "name": "" })).await.assert_status(422);
    other.post(&other.path("/posts"), json!({ "content": "x" })).await.expect(201);
    person.submit("/brands/new", "/brands/new", &[("name", "Third"), ("timezone", "UTC")]).await.expect(200, "Third");
    let page = person.get(&log).await;
    page.expect(200, "POST /api/public/v1/brands<").expect(200, "1–1 of 1");
    assert!(!page.has("/posts<") && page.has("svc_live_…"), "{}", page.text);
    let key = app.newest_id(format!("api_keys WHERE user_id = {} AND prefix <> 'session'", t.user)).await;
    person.get(&format!("{log}?key={key}")).await.expect(200, "1–1 of 1");
    let theirs = app.newest_id(format!("api_keys WHERE user_id = {}", other.user)).await;
    for key in [theirs.to_string().as_str(), "0", "x", "99999999999999999999"] {
        person.get(&format!("{log}?key={key}")).await.expect(200, "No matching requests");
    }
    person.get(&format!("{log}?page=9223372036854775807")).await.expect(200, "No requests");
    app.clock.advance(crier_store::idempotency::RETENTION);
    person.get(&log).await.expect(200, "No requests");
}

async fn writes_of_older_processes_have_no_path(t: Tenant<'_>) {
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    t.app.sql("UPDATE idempotency_keys SET method = NULL, path = NULL").await;
    ConsoleUser::sign_in(&t).await.get(&t.path("/developers/requests")).await.expect(200, "<code>—</code>");
}
