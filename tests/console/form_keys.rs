//! The keys of forms that are shown again: a form that was carried out is not carried out a second time.

use crier_store::idempotency::IdempotencySlot;

use crate::support::app::{Tenant, on_one_app};
use crate::support::console::{ConsoleUser, Page};

on_one_app!(console "unlimited" =>
    a_post_is_created_once_by_two_clicks,
    a_post_is_created_once_if_its_form_is_changed_between,
    an_invitation_is_created_once_by_two_clicks,
    a_saved_draft_can_be_submitted_after_two_clicks,
);

/// Returns the key of the form with this action.
fn key_of(page: &Page, action: &str) -> String {
    page.hidden_fields(action).into_iter().find(|(name, _)| name == "_key").expect("a key").1
}

/// Processes a write with this key of the user's session until the result is dropped.
async fn process(t: &Tenant<'_>, key: String) -> impl Sized {
    let sql = "SELECT s.api_key_id FROM sessions s JOIN api_keys k ON k.id = s.api_key_id WHERE k.user_id";
    let api_key_id: i64 = t.app.value(format!("{sql} = {}", t.user)).await;
    let slot = IdempotencySlot { api_key_id, key, fingerprint: Vec::new(), request: None };
    t.app.api.in_flight.enter(&slot).expect("no other write has this key")
}

async fn a_post_is_created_once_by_two_clicks(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let new = t.path("/posts/new");
    let page = person.get(&new).await;
    let fields = [("content", "Fresh bread"), ("schedule_type", "draft")];
    let first = process(&t, key_of(&page, &new)).await;
    let shown = person.submit_from(&page, &new, &fields).await;
    shown.expect(422, "still being processed").expect(422, "Fresh bread</textarea>");
    drop(first);
    for page in [&page, &shown] {
        person.submit_from(page, &new, &fields).await.expect(200, "Draft saved.");
    }
    assert_eq!(t.app.count_rows("posts").await, 1);
}

/// As if the response to the first submission was that the service is unavailable: the form has the same key then.
async fn a_post_is_created_once_if_its_form_is_changed_between(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (new, check) = (t.path("/posts/new"), t.path("/posts/check"));
    let page = person.get(&new).await;
    let fields = [("content", "Fresh bread"), ("schedule_type", "draft")];
    person.submit_from(&page, &new, &fields).await.expect(200, "Draft saved.");
    for (path, action) in [(&new, "library:1"), (&check, "check")] {
        let shown = person.submit_from(&page, path, &[("content", "Fresh bread"), ("_action", action)]).await;
        shown.expect(200, "Fresh bread</textarea>");
        person.submit_from(&shown, &new, &fields).await.expect(200, "Draft saved.");
    }
    assert_eq!(t.app.count_rows("posts").await, 1);
}

/// Two clicks on a form without an endpoint.
async fn an_invitation_is_created_once_by_two_clicks(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/settings/members");
    let page = person.get(&path).await;
    let fields = [("email", "eve@example.com"), ("role", "editor")];
    let first = process(&t, key_of(&page, &path)).await;
    let shown = person.submit_from(&page, &path, &fields).await;
    shown.expect(422, "still being processed").expect(422, "value=\"eve@example.com\"");
    assert_eq!(key_of(&shown, &path), key_of(&page, &path));
    drop(first);
    person.submit_from(&shown, &path, &fields).await.expect(200, "Copy it now.");
}

/// The draft was created with the key of the first form, so the form that changes it needs another one.
async fn a_saved_draft_can_be_submitted_after_two_clicks(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (new, account) = (t.path("/posts/new"), t.account("demo").await.to_string());
    let page = person.get(&new).await;
    let fields = [("content", "To approve"), ("accounts", account.as_str()), ("_action", "submit")];
    let first = process(&t, format!("{}-submit", key_of(&page, &new))).await;
    let shown = person.submit_from(&page, &new, &fields).await;
    shown.expect(422, "still being processed").expect(422, "To approve</textarea>");
    drop(first);
    let edit = t.path(&format!("/posts/{}/edit", t.app.newest_id("posts").await));
    person.submit_from(&shown, &edit, &fields).await.expect(200, "Post submitted for approval.");
    assert_eq!(t.app.count_rows("posts").await, 1);
}
