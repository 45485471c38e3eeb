//! The applications to which a user gave access.

use serde_json::json;

use super::oauth_consent::{connect, token};
use crate::support::app::{Tenant, on_both_apps, on_one_app};
use crate::support::console::ConsoleUser;

on_both_apps!(console "unlimited" => applications_are_listed_and_disconnected);
on_one_app!(console "unlimited" => other_users_cannot_disconnect_an_application);

const PAGE: &str = "/settings/applications";

async fn applications_are_listed_and_disconnected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path(PAGE);
    person.get(&path).await.expect(200, "No connected applications");
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    connect(&t, &person, "read_only", "all").await;
    let (client, tokens) = connect(&t, &person, "drafts", &t.brand.to_string()).await;
    let page = person.get(&path).await;
    page.expect(200, "Bread helper").expect(200, "at client.example").expect(200, "1–2 of 2");
    page.expect(200, "Read only").expect(200, "All brands").expect(200, "Drafts only").expect(200, "<bdi>Bakery</bdi>");
    let keys = person.get(&t.path("/developers")).await;
    assert!(!keys.has("svc_oat_") && keys.has("1–1 of 1"), "a grant is no key: {}", keys.text);

    let id = t.app.newest_id("api_keys WHERE role_limit = 'contributor'").await;
    for _ in 0..2 {
        person
            .submit_from(&page, &format!("{path}/{id}/disconnect"), &[])
            .await
            .expect(200, "Application disconnected.");
    }
    let page = person.get(&path).await;
    page.expect(200, "1–1 of 1").expect(200, "Read only");
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", client.as_str())];
    let rejected = token(t.app, &fields).await;
    assert_eq!((rejected.status, &rejected.json()["error"]), (400, &json!("invalid_grant")));
}

async fn other_users_cannot_disconnect_an_application(t: Tenant<'_>, person: ConsoleUser<'_>) {
    connect(&t, &person, "drafts", "all").await;
    let grant = t.app.newest_id("api_keys WHERE role_limit = 'contributor'").await;
    let other = t.app.tenant("unlimited").await;
    let other_user = ConsoleUser::sign_in(&other).await;
    let page = other_user.get(&other.path(PAGE)).await;
    page.expect(200, "No connected applications");
    let hidden = page.hidden_fields("/sign-out");
    let disconnect = async |id: i64| {
        let fields: Vec<_> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        other_user.post(&other.path(&format!("{PAGE}/{id}/disconnect")), &fields).await
    };
    disconnect(grant).await.expect(404, "The application does not exist.");
    assert_eq!(t.app.count_rows("oauth_grants").await, 1);
    person.get(&t.path(PAGE)).await.expect(200, "Bread helper");
}
