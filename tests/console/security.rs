//! What holds for all pages of the console: no forged forms, no other workspace's records, strict headers.

use crier_common::domain::access::Role;

use crate::support::app::{MISSING_ID, TestApp, on_both_apps, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_both_apps!(another_workspaces_brand_is_not_found);
on_sqlite_app!(pages_have_strict_headers, forged_forms_are_refused, pages_are_limited_by_session);

async fn another_workspaces_brand_is_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let person = ConsoleUser::sign_in(&t).await;
    for brand in [other.brand, MISSING_ID] {
        let page = person.get(&format!("/brands/{brand}")).await;
        page.expect(404, "There is nothing here");
        assert!(page.has("Bakery"), "the person's own brands are still offered");
    }
    let colleague = t.colleague(Role::Editor).await;
    ConsoleUser::sign_in(&colleague).await.get(&format!("/brands/{}", t.brand)).await.expect(200, "editor");
}

async fn pages_have_strict_headers(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    for path in ["/sign-in".to_owned(), "/".to_owned(), format!("/brands/{}", t.brand), "/brands/999999".to_owned()] {
        let page = person.get(&path).await;
        let policy = page.reply.header("content-security-policy").unwrap_or_else(|| panic!("{path}: no policy"));
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
            assert_eq!(page.reply.header(name), Some(value), "{path}");
        }
        assert!(!page.text.contains(" style=\"") && !page.text.contains("<script>"), "{path}: inline");
    }
}

async fn forged_forms_are_refused(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (person, stranger) = (ConsoleUser::sign_in(&t).await, ConsoleUser::sign_in(&other).await);
    let theirs = stranger.get(&format!("/brands/{}", other.brand)).await.hidden_fields("/sign-out");
    let csrf = &theirs.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    for fields in [vec![], vec![("_csrf", "")], vec![("_csrf", csrf.as_str())]] {
        let fields: Vec<_> = fields.into_iter().chain([("name", "Forged")]).collect();
        person.post("/brands/new", &fields).await.expect(403, "You may not do this");
    }
    assert_eq!(app.number("SELECT count(*) FROM brands").await, 2);
}

async fn pages_are_limited_by_session(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}", t.brand);
    let mut last = 200;
    for _ in 0..=600 {
        last = person.get(&path).await.status;
    }
    assert_eq!(last, 429);
}
