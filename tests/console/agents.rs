//! Keys for agents, and the configuration of their clients.

use serde_json::{Value, json};

use super::keys::shown_key;
use crate::support::app::{Reply, Tenant, on_both_apps, on_one_app};
use crate::support::console::ConsoleUser;

on_both_apps!(console "unlimited" => each_access_allows_what_it_says, a_key_is_limited_to_the_chosen_brands);
on_one_app!(console "unlimited" => invalid_choices_are_rejected, clients_without_a_key_get_a_url);

const PAGE: &str = "/developers/agents";

async fn create(t: &Tenant<'_>, person: &ConsoleUser<'_>, access: &str, brands: &[&str]) -> String {
    let fields: Vec<_> = brands.iter().map(|brand| ("brands", *brand)).chain([("access", access)]).collect();
    let path = t.path(PAGE);
    let page = person.submit(&path, &path, &fields).await;
    page.expect(200, "It is not shown again.");
    shown_key(&page)
}

async fn publish(t: &Tenant<'_>, key: &str, account: i64) -> Reply {
    let body = json!({ "content": "x", "accounts": [account], "schedule_type": "now" });
    send(t, key, body).await
}

async fn send(t: &Tenant<'_>, key: &str, body: Value) -> Reply {
    let request = t.app.request("POST", &t.path("/posts")).key(key).idempotency_key(&t.app.fresh_key());
    request.json(&body).send().await
}

async fn each_access_allows_what_it_says(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let (path, brand) = (t.path(PAGE), t.brand.to_string());
    let page = person.get(&path).await;
    let fields = [("access", "drafts"), ("brands", brand.as_str())];
    let created = person.submit_from(&page, &path, &fields).await;
    let drafts = shown_key(&created);
    created.expect(200, "Drafts only, for Bakery.");
    let command = format!("crier {}/mcp --header \"Authorization: Bearer {drafts}\"", t.app.url);
    for text in ["claude mcp add --transport http", &command, "\"mcpServers\"", "\"servers\"", "HTTP Streamable"] {
        created.expect(200, text);
    }
    let again = person.submit_from(&page, &path, &fields).await;
    assert_eq!(shown_key(&again), drafts, "the same form shows the same key");
    let read_only = create(&t, &person, "read_only", &["all"]).await;
    let publisher = create(&t, &person, "publish", &["all"]).await;

    for key in [&read_only, &drafts, &publisher] {
        t.app.request("GET", &t.path("/posts")).key(key).send().await.assert_status(200);
        t.app.request("GET", "/webhooks").key(key).send().await.expect_error(403, "insufficient_scope");
    }
    let draft = json!({ "content": "x", "accounts": [account] });
    send(&t, &read_only, draft.clone()).await.expect_error(403, "insufficient_scope");
    send(&t, &drafts, draft.clone()).await.expect(201);
    send(&t, &publisher, draft).await.expect(201);
    publish(&t, &read_only, account).await.expect_error(403, "insufficient_scope");
    publish(&t, &drafts, account).await.expect_error(403, "insufficient_scope");
    publish(&t, &publisher, account).await.expect(201);
    // A key that reads texts of strangers changes nothing, and imports nothing.
    for path in ["/conversations", "/feeds"] {
        let read = async |key: &str| t.app.request("GET", &t.path(path)).key(key).send().await;
        read(&read_only).await.assert_status(200);
        read(&drafts).await.expect_error(403, "insufficient_scope");
        read(&publisher).await.expect_error(403, "insufficient_scope");
    }

    let named = [("access", "drafts"), ("brands", "all"), ("name", "Claude Code")];
    person.submit(&path, &path, &named).await.expect(200, "It is not shown again.");
    let listed = person.get(&t.path("/developers")).await;
    listed.expect(200, "<bdi>Agent, drafts only</bdi>").expect(200, "<bdi>Claude Code</bdi>");
    listed.expect(200, "Drafts only (only some brands)").expect(200, ">Read only<").expect(200, ">Publish<");
    assert!([&read_only, &drafts, &publisher].iter().all(|key| !listed.has(key)), "{}", listed.text);
}

async fn a_key_is_limited_to_the_chosen_brands(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].to_string();
    let page = person.get(&t.path(PAGE)).await;
    page.expect(200, &format!("value=\"{}\" checked", t.brand));
    assert!(!page.has(&format!("value=\"{second}\" checked")), "only the brand of the page is chosen");
    let key = create(&t, &person, "read_only", &[second.as_str()]).await;
    let brands = t.app.request("GET", "/brands").key(&key).send().await.data(200);
    assert_eq!((brands.as_array().unwrap().len(), brands[0]["id"].to_string()), (1, second));
    let other = t.app.request("GET", &t.path("/posts")).key(&key).send().await;
    other.expect_error(403, "brand_forbidden");
}

async fn invalid_choices_are_rejected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let other = t.app.tenant("unlimited").await;
    let (path, own, theirs) = (t.path(PAGE), t.brand.to_string(), other.brand.to_string());
    let (own, theirs) = (own.as_str(), theirs.as_str());
    let keys = t.app.count_rows("api_keys").await;
    for (fields, problem) in [
        (vec![("brands", own)], "Choose what the agent may do."),
        (vec![("access", "owner"), ("brands", own)], "Choose what the agent may do."),
        (vec![("access", "drafts")], "Choose at least one of your brands"),
        (vec![("access", "drafts"), ("brands", own), ("brands", theirs)], "Choose at least one of your brands"),
    ] {
        person.submit(&path, &path, &fields).await.expect(422, problem);
    }
    assert_eq!(t.app.count_rows("api_keys").await, keys);
}

async fn clients_without_a_key_get_a_url(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let page = person.get(&t.path(PAGE)).await;
    page.expect(200, &format!(">{}/mcp/oauth<", t.app.url)).expect(200, "ChatGPT");
    page.expect(200, "Only programs on this computer or in this network can reach Crier.");
}
