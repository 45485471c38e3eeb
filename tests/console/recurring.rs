//! Recurring posts: the list, the form, and the problems on the home page.

use serde_json::json;

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(
    a_rule_is_added_changed_and_deleted,
    an_account_of_a_rule_is_shown_among_many,
    errors_in_a_rule_are_shown,
    a_form_of_a_rule_that_was_deleted_meanwhile_keeps_its_texts,
    a_problem_is_shown_on_the_home_page,
    an_occurrence_has_a_mark,
);

async fn create_rule(t: &Tenant<'_>, account: i64) -> i64 {
    let body = json!({
        "name": "Menu", "variations": [{ "content": "Bread" }], "accounts": [account], "frequency": "daily",
        "overrides": [{ "account_id": account, "content": "Here only" }], "destination": "calendar",
    });
    t.post(&t.path("/recurring-posts"), body).await.data(201)["id"].as_i64().expect("an id")
}

/// The form of a rule that publishes this text every day.
fn daily<'a>(name: &'a str, text: &'a str, account: &'a str, is_active: bool) -> Vec<(&'a str, &'a str)> {
    let mut form = vec![("name", name), ("text", text), ("images", ""), ("accounts", account)];
    form.extend([("frequency", "daily"), ("time", "10:00"), ("starts_on", "2026-06-09"), ("destination", "calendar")]);
    form.extend(is_active.then_some(("is_active", "true")));
    form
}

async fn a_rule_is_added_changed_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await.to_string();
    let person = ConsoleUser::sign_in(&t).await;
    let list = t.path("/recurring");
    person.get(&list).await.expect(200, "No recurring posts yet");
    let new = t.path("/recurring/new");
    let form = [
        ("name", "Menu"),
        ("text", "Bread"),
        ("images", ""),
        ("text", ""),
        ("images", ""),
        ("text", "Rolls"),
        ("images", ""),
        ("accounts", &*account),
        ("labels", "menu, bread"),
        ("frequency", "weekly"),
        ("weekdays", "1"),
        ("weekdays", "5"),
        ("day", "3"),
        ("time", "08:30"),
        ("cron", "* * * * *"),
        ("starts_on", "2026-06-09"),
        ("destination", "calendar"),
        ("is_active", "true"),
    ];
    let shown = person.submit(&new, &new, &form).await;
    shown.expect(200, "Recurring post created.").expect(200, "Every Monday, Friday at 08:30").expect(200, "Active");
    let id = app.newest_id("recurring_posts").await;
    let stored = t.get(&t.path(&format!("/recurring-posts/{id}"))).await.data(200);
    assert_eq!(stored["variations"][1]["content"], "Rolls");
    assert_eq!((&stored["labels"], &stored["day"]), (&json!(["menu", "bread"]), &json!(null)));
    let path = t.path(&format!("/recurring/{id}"));
    let page = person.get(&path).await;
    page.expect(200, "value=\"Menu\"").expect(200, "12 Jun, 08:30");
    let (_, mut next) = page.text.split_once("Next posts").expect("the list");
    for words in ["12 Jun, 08:30", "Bread", "15 Jun, 08:30", "Rolls", "19 Jun, 08:30", "Bread"] {
        (_, next) = next.split_once(words).unwrap_or_else(|| panic!("{words} in {next}"));
    }
    let shown = person.submit(&path, &path, &daily("Menu", "Bread", &account, false)).await;
    shown.expect(200, "Recurring post saved.").expect(200, "Every day at 10:00").expect(200, "Paused");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No recurring posts yet");
    assert_eq!(person.get(&path).await.status, 404);
}

async fn an_account_of_a_rule_is_shown_among_many(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let oldest = t.account("oldest").await;
    let path = t.path(&format!("/recurring/{}", create_rule(&t, oldest).await));
    // The form lists the newest 100 accounts.
    app.copy_accounts(t.brand, 100).await;
    let person = ConsoleUser::sign_in(&t).await;
    let checked = format!("name=\"accounts\" value=\"{oldest}\" checked");
    person.get(&path).await.expect(200, &checked).expect(200, "oldest");
}

async fn errors_in_a_rule_are_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let id = create_rule(&t, account).await;
    let person = ConsoleUser::sign_in(&t).await;
    let long = "x".repeat(70_000);
    let account = account.to_string();
    for at in [t.path("/recurring/new"), t.path(&format!("/recurring/{id}"))] {
        let form = [
            ("name", ""),
            ("text", "Typed"),
            ("images", ""),
            ("text", &*long),
            ("images", ""),
            ("accounts", &*account),
            ("frequency", "cron"),
            ("cron", "61 * * * *"),
            ("starts_on", "2026-06-09"),
            ("count", "many"),
            ("destination", "draft"),
        ];
        let page = person.submit(&at, &at, &form).await;
        page.expect(422, "e-name").expect(422, "e-variations.1.content").expect(422, "e-count").expect(422, "Typed");
        page.expect(422, "value=\"many\"");
    }
    // An override that the form does not show stays.
    let path = t.path(&format!("/recurring/{id}"));
    let saved = person.submit(&path, &path, &daily("New", "Bread", &account, true)).await;
    saved.expect(200, "Recurring post saved.");
    let stored = t.get(&t.path(&format!("/recurring-posts/{id}"))).await.data(200);
    assert_eq!((&stored["name"], &stored["overrides"][0]["content"]), (&json!("New"), &json!("Here only")));
}

async fn a_form_of_a_rule_that_was_deleted_meanwhile_keeps_its_texts(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let id = create_rule(&t, account).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path(&format!("/recurring/{id}"));
    let page = person.get(&path).await;
    t.delete(&t.path(&format!("/recurring-posts/{id}"))).await.expect(204);
    let account = account.to_string();
    let form = daily("Menu", "Poppy seed rolls", &account, true);
    let shown = person.submit_from(&page, &path, &form).await;
    shown.expect(404, "was deleted after you opened this form").expect(404, "Poppy seed rolls</textarea>");
    person.submit_from(&shown, &t.path("/recurring/new"), &form).await.expect(200, "Recurring post created.");
}

async fn a_problem_is_shown_on_the_home_page(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    create_rule(&t, account).await;
    let person = ConsoleUser::sign_in(&t).await;
    let home = t.path("");
    assert!(!person.get(&home).await.has("Recurring posts that need attention"));
    app.expire_account(account).await;
    let shown = person.get(&home).await;
    shown.expect(200, "Recurring posts that need attention").expect(200, "has expired");
    person.get(&t.path("/recurring")).await.expect(200, "Problem").expect(200, "has expired");
}

async fn an_occurrence_has_a_mark(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let id = create_rule(&t, account).await;
    let post = json!({
        "content": "Bread", "accounts": [account], "schedule_type": "scheduled", "scheduled_at": "2026-06-12T08:00:00Z",
    });
    let post = t.post(&t.path("/posts"), post).await.data(201)["id"].as_i64().expect("an id");
    app.sql(format!("UPDATE posts SET recurring_id = {id} WHERE id = {post}")).await;
    let person = ConsoleUser::sign_in(&t).await;
    let mark = format!("href=\"{}\"", t.path(&format!("/recurring/{id}")));
    let path = t.path(&format!("/posts/{post}"));
    for page in [&t.path("/posts"), &path] {
        person.get(page).await.expect(200, &mark);
    }
    person.get(&path).await.expect(200, "dir=\"auto\">Menu</a>");
    person.get(&format!("{}?date=2026-06-12", t.path("/calendar"))).await.expect(200, "Recurring</span>");
    t.delete(&t.path(&format!("/recurring-posts/{id}"))).await.expect(204);
    let page = person.get(&t.path("/posts")).await;
    page.expect(200, "No longer recurring");
    assert!(!page.has(&mark), "the page of the rule does not exist");
    let page = person.get(&path).await;
    page.expect(200, "<dt>Recurring post</dt><dd>Deleted</dd>");
    assert!(!page.has(&mark), "the page of the rule does not exist");
}
