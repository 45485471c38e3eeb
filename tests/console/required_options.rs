//! Options that a platform requires, in the composer.

use crier_domain::platform::Platform;
use crier_store::accounts::{self, NewAccount};
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::store::new_account;

on_one_app!(a_required_yes_or_no_has_no_default,);

async fn youtube(t: &Tenant<'_>) -> String {
    let new = NewAccount { platform: Platform::Youtube, ..new_account("youtube", "token") };
    let created = t.app.write(async |tx| {
        let created = accounts::save(tx, t.workspace, &new).await?;
        accounts::attach(tx, t.brand, created.id).await?;
        Ok(created.id)
    });
    created.await.to_string()
}

async fn options(t: &Tenant<'_>) -> Value {
    let listed = t.get(&t.path("/posts")).await.data(200);
    let post = t.get(&t.path(&format!("/posts/{}", listed[0]["id"]))).await.data(200);
    post["targets"][0]["options"].clone()
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
        assert_eq!(options(&t).await, stored, "{choice}");
        path = format!("/brands/{}/posts/{}/edit", t.brand, t.get(&t.path("/posts")).await.data(200)[0]["id"]);
    }
}
