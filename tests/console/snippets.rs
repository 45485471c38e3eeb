//! Snippets: the list, a snippet, its place in the composer, and the signature of an account.

use crier_domain::access::Role;
use serde_json::json;

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_one_app!(
    a_snippet_is_added_changed_and_deleted,
    a_snippet_is_inserted_into_the_text,
    the_signature_of_an_account_is_chosen,
);
on_sqlite_app!(errors_in_a_snippet_are_shown, contributors_do_not_choose_signatures);

/// Creates a snippet; returns its id.
async fn create_snippet(t: &Tenant<'_>, name: &str, kind: &str, content: &str) -> i64 {
    let body = json!({ "name": name, "kind": kind, "content": content });
    t.post(&t.path("/snippets"), body).await.data(201)["id"].as_i64().expect("an id")
}

async fn a_snippet_is_added_changed_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let list = t.path("/snippets");
    let page = person.get(&list).await;
    page.expect(200, "No snippets yet");
    let form = [("name", "Hours"), ("kind", "text"), ("content", "Open from 6 to 18.\r\nNot on Mondays.")];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &list, &form).await;
        shown.expect(200, "Snippet added.").expect(200, "Open from 6 to 18. Not on Mondays.");
    }
    assert_eq!(app.count_rows("snippets WHERE content = 'Open from 6 to 18.\nNot on Mondays.'").await, 1);
    let path = t.path(&format!("/snippets/{}", app.newest_id("snippets").await));
    person.get(&path).await.expect(200, "value=\"Hours\"").expect(200, "value=\"text\" selected");
    let form = [("name", "Rye & wheat"), ("kind", "hashtags"), ("content", "#rye")];
    let shown = person.submit(&path, &path, &form).await;
    shown.expect(200, "Snippet saved.").expect(200, "Rye & wheat").expect(200, "#rye").expect(200, "Hashtags");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No snippets yet");
    for path in [path.clone(), format!("{path}/text")] {
        assert_eq!(person.get(&path).await.status, 404, "{path}");
    }
}

async fn errors_in_a_snippet_are_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let list = t.path("/snippets");
    let path = t.path(&format!("/snippets/{}", create_snippet(&t, "Hours", "text", "Open from 6.").await));
    let person = ConsoleUser::sign_in(&t).await;
    let long = "x".repeat(5_001);
    for at in [&list, &path] {
        let page = person.submit(at, at, &[("name", ""), ("kind", "text"), ("content", &long)]).await;
        page.expect(422, "e-name").expect(422, "e-content").expect(422, &long);
        let page = person.submit(at, at, &[("name", "Typed"), ("kind", "footer"), ("content", "")]).await;
        page.expect(422, "e-kind").expect(422, "e-content").expect(422, "value=\"Typed\"");
    }
    assert_eq!(app.count_rows("snippets WHERE content = 'Open from 6.'").await, 1);
    assert_eq!(app.count_rows("snippets").await, 1);
}

async fn a_snippet_is_inserted_into_the_text(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let composer = t.path("/posts/new");
    assert!(!person.get(&composer).await.has("name=\"_snippet\""), "there is nothing to insert");
    let id = create_snippet(&t, "Hours", "text", "Open from 6 & <18>.").await;
    let page = person.get(&composer).await;
    page.expect(200, &format!("<option value=\"{id}\">Hours</option>"));
    let (own, missing) = (id.to_string(), MISSING_ID.to_string());
    for (content, id, expected) in [
        ("Bread", own.as_str(), "\nBread\n\nOpen from 6 & <18>.</textarea>"),
        ("", own.as_str(), "\nOpen from 6 & <18>.</textarea>"),
        ("Bread", missing.as_str(), "\nBread</textarea>"),
        ("Bread", "", "\nBread</textarea>"),
    ] {
        let fields = [("content", content), ("_snippet", id), ("_action", "insert")];
        person.submit_from(&page, &composer, &fields).await.expect(200, expected);
    }
    assert_eq!(app.count_rows("posts").await, 0);
    // The script inserts the text at the cursor.
    let text = person.get(&t.path(&format!("/snippets/{id}/text"))).await;
    assert_eq!(text.reply.body, "Open from 6 & <18>.".as_bytes());
    assert!(text.reply.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
}

async fn the_signature_of_an_account_is_chosen(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let person = ConsoleUser::sign_in(&t).await;
    let (list, path) = (t.path("/accounts"), t.path(&format!("/accounts/{account}/signature")));
    create_snippet(&t, "Hours", "text", "Open from 6.").await;
    person.get(&path).await.expect(200, "There is no signature yet.");
    let id = create_snippet(&t, "Closing", "signature", "— Ann").await.to_string();
    let page = person.get(&path).await;
    page.expect(200, "Closing");
    assert!(!page.has("Hours"), "{}", page.text);
    let shown = person.submit_from(&page, &path, &[("signature_id", &id)]).await;
    shown.expect(200, "Signature saved.").expect(200, "Closing");
    person.get(&path).await.expect(200, &format!("value=\"{id}\" selected"));
    // The same form with another choice is rejected, and keeps it.
    let other = create_snippet(&t, "Greeting", "signature", "Bye!").await.to_string();
    let rejected = person.submit_from(&page, &path, &[("signature_id", &other)]).await;
    rejected.expect(422, "already submitted").expect(422, &format!("value=\"{other}\" selected"));

    let account = account.to_string();
    let fields = [("content", "Bread"), ("accounts", account.as_str()), ("_action", "check")];
    let composer = t.path("/posts/new");
    person.submit(&composer, &composer, &fields).await.expect(200, "Bread\n\n— Ann</p>");
    let fields = [("content", "Bread"), ("accounts", account.as_str()), ("schedule_type", "draft")];
    person.submit(&composer, &composer, &fields).await.expect(200, "Signature: <bdi>— Ann</bdi>");

    person.submit(&path, &path, &[("signature_id", "x")]).await.expect(422, "e-signature_id");
    person.submit(&path, &path, &[("signature_id", "")]).await.expect(200, "Signature saved.");
    assert!(!person.get(&list).await.has("Closing"));
}

async fn contributors_do_not_choose_signatures(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let path = t.path(&format!("/accounts/{account}/signature"));
    assert_eq!(contributor.get(&path).await.status, 403);
    assert!(!contributor.get(&t.path("/accounts")).await.has("/signature\""));
    let list = t.path("/snippets");
    let form = [("name", "Hours"), ("kind", "text"), ("content", "Open from 6.")];
    contributor.submit(&list, &list, &form).await.expect(200, "Snippet added.");
}
