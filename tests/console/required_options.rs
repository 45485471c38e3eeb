//! Options that a platform requires, in the composer.

use crier_domain::platform::Platform;
use serde_json::json;

use super::link_cards::only_options;
use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(a_required_yes_or_no_has_no_default,);

async fn youtube(t: &Tenant<'_>) -> String {
    t.account_on(Platform::Youtube).await.to_string()
}

async fn a_required_yes_or_no_has_no_default(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = youtube(&t).await;
    let person = ConsoleUser::sign_in(&t).await;
    let mut path = format!("/brands/{}/posts/new", t.brand);
    person.get(&path).await.expect(200, "Choose yes or no");
    for (choice, stored) in [
        ("false", json!({ "title": "Rye", "made_for_kids": false })),
        ("true", json!({ "title": "Rye", "made_for_kids": true })),
        ("", json!({ "title": "Rye" })),
    ] {
        let fields = [
            ("content", "How we bake"),
            ("accounts", account.as_str()),
            ("overrides.0.account_id", account.as_str()),
            ("overrides.0.options.title", "Rye"),
            ("overrides.0.options.made_for_kids", choice),
            ("schedule_type", "draft"),
        ];
        person.submit(&path, &path, &fields).await.expect(200, "Draft saved.");
        assert_eq!(only_options(&t).await, stored, "{choice}");
        path = format!("/brands/{}/posts/{}/edit", t.brand, t.get(&t.path("/posts")).await.data(200)[0]["id"]);
    }
}
