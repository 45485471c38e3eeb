//! Exports of posts.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::reports::TestInstallation;
use crate::support::size::sized;
use crate::support::store::{TestStore, on_both};

on_both_apps!(posts_are_exported_with_the_filters_of_the_list, many_posts_are_exported);
on_one_app!(formulas_are_guarded);
on_both!(
    an_export_is_imported_again,
    a_draft_with_a_time_remains_a_draft,
    every_column_survives_an_export_and_an_import,
    a_draft_whose_time_has_passed_is_imported_without_it,
);

async fn export(t: &Tenant<'_>, query: &str) -> String {
    let reply = t.get(&t.path(&format!("/posts/export{query}"))).await;
    assert_eq!(reply.status, 200, "{query}");
    String::from_utf8(reply.body.to_vec()).unwrap()
}

async fn create(t: &Tenant<'_>, body: Value) {
    t.post(&t.path("/posts"), body).await.expect(201);
}

/// Imports a file without errors.
async fn import(app: &TestInstallation, t: &Tenant<'_>, file: &str) {
    let form = t.request("POST", &t.path("/posts/import"));
    let form = form.form(Some(("posts.csv", file.as_bytes())), &[("dry_run", "false")]);
    let id = form.send().await.data(202)["id"].as_i64().unwrap();
    app.run_jobs().await;
    let import = t.get(&t.path(&format!("/posts/imports/{id}"))).await.data(200);
    assert_eq!((&import["errors"], &import["rows_imported"]), (&json!([]), &import["rows_total"]));
}

async fn posts_are_exported_with_the_filters_of_the_list(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    create(&t, json!({ "content": "First" })).await;
    create(&t, json!({ "content": "Second", "labels": ["a,b"], "accounts": [account], "first_comment": { "content": "More" } })).await;
    let reply = t.get(&t.path("/posts/export?bom=false")).await;
    assert_eq!(reply.header("content-type"), Some("text/csv"));
    assert!(reply.header("content-disposition").unwrap().starts_with("attachment; filename=\"posts.csv\""));
    let text = export(&t, "?bom=false").await;
    assert_eq!(
        text,
        format!(
            "\"content\",\"scheduled_at\",\"schedule\",\"accounts\",\"media_urls\",\"labels\",\"first_comment\",\"external_ref\"\r\n\
             \"Second\",\"\",\"draft\",\"{account}\",\"\",\"a,b\n\",\"More\",\"\"\r\n\
             \"First\",\"\",\"draft\",\"\",\"\",\"\",\"\",\"\"\r\n"
        )
    );
    assert!(export(&t, "").await.starts_with('\u{feff}'));
    let data = |text: &str| serde_json::from_str::<Value>(text).unwrap()["data"].clone();
    let found = data(&export(&t, "?format=json&search=second").await);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["accounts"]), (1, &json!([account])));
    assert_eq!(data(&export(&t, "?format=json&status=published").await), json!([]));
    assert_eq!(data(&export(&t, &format!("?format=json&account_id={account}")).await)[0]["content"], "Second");
    assert_eq!(t.get(&t.path("/posts/export?format=xml")).await.invalid_fields(), ["format"]);
}

async fn formulas_are_guarded(app: TestApp) {
    let t = app.tenant("unlimited").await;
    create(&t, json!({ "content": "=HYPERLINK(\"https://evil.example\")" })).await;
    assert!(export(&t, "").await.contains("\"'=HYPERLINK(\"\"https://evil.example\"\")\""));
    assert!(export(&t, "?format=json").await.contains("\"=HYPERLINK("), "JSON is not opened by spreadsheet programs");
}

/// An export has all posts, although it is sent in pieces.
async fn many_posts_are_exported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let count = sized(5_000, 1_500);
    create(&t, json!({ "content": "Bread" })).await;
    app.copy_newest_row("posts", count - 1, &[]).await;
    let text = export(&t, "").await;
    assert_eq!(i64::try_from(text.lines().count()).unwrap(), count + 1);
    let text = export(&t, "?format=json").await;
    let posts = serde_json::from_str::<Value>(&text).unwrap()["data"].as_array().unwrap().len();
    assert_eq!(i64::try_from(posts).unwrap(), count);
}

async fn an_export_is_imported_again(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let at = app.now() + TimeDelta::days(7);
    let texts = ["Plan:\n- rye\n'- wheat", "=1+1", "'=1", "a;-b", "\t@x", "  \"quoted\", ", "🥐\r\nCafé"];
    for text in texts {
        create(&t, json!({ "content": text, "labels": ["x;y", "z"], "scheduled_at": at })).await;
    }
    for format in ["csv", "json"] {
        let other = app.tenant("unlimited").await;
        let file = export(&t, &format!("?format={format}")).await;
        let account = other.account(&format!("handle-{format}")).await;
        let form = other.request("POST", &other.path("/posts/import"));
        let account = account.to_string();
        let texts_of_form = [("dry_run", "false"), ("accounts", account.as_str())];
        let form = form.form(Some(("posts.csv", file.as_bytes())), &texts_of_form);
        let id = form.send().await.data(202)["id"].as_i64().unwrap();
        app.run_jobs().await;
        let import = other.get(&other.path(&format!("/posts/imports/{id}"))).await.data(200);
        assert_eq!(import["errors"], json!([]), "{format}");
        let copies = other.get(&other.path("/posts")).await.data(200);
        let mut copies: Vec<&str> = copies.as_array().unwrap().iter().map(|p| p["content"].as_str().unwrap()).collect();
        let mut expected = texts;
        copies.sort_unstable();
        expected.sort_unstable();
        assert_eq!(copies, expected, "{format}");
    }
}

/// An import of an export creates each post as it was: a draft with a time, a scheduled post, and a queued one.
async fn a_draft_with_a_time_remains_a_draft(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let at = app.now() + TimeDelta::days(7);
    t.put(&t.path("/queue"), json!({ "slots": [{ "weekday": 1, "time": "09:00" }] })).await.expect(200);
    for (content, schedule_type) in [("Draft", "draft"), ("Scheduled", "scheduled"), ("Queued", "queue")] {
        let mut post = json!({ "content": content, "accounts": [account], "schedule_type": schedule_type });
        if schedule_type != "queue" {
            post["scheduled_at"] = json!(at);
        }
        create(&t, post).await;
    }
    let files = [export(&t, "?format=csv").await, export(&t, "?format=json").await];
    for file in files {
        import(&app, &t, &file).await;
        let posts = t.get(&t.path("/posts")).await.data(200);
        let found = |content: &str| {
            let post = posts.as_array().unwrap().iter().find(|post| post["content"] == content).unwrap().clone();
            (post["status"].clone(), post["queued"].clone(), post["scheduled_at"].is_string())
        };
        assert_eq!(found("Draft"), (json!("draft"), json!(false), true));
        assert_eq!(found("Scheduled"), (json!("scheduled"), json!(false), true));
        assert_eq!(found("Queued"), (json!("scheduled"), json!(true), true));
    }
}

/// The posts of an exported file, in any order.
fn rows(format: &str, file: &str) -> Vec<String> {
    let mut rows: Vec<String> = match format {
        "csv" => file.split("\r\n").map(str::to_owned).collect(),
        _ => {
            let file: Value = serde_json::from_str(file).unwrap();
            file["data"].as_array().unwrap().iter().map(Value::to_string).collect()
        }
    };
    rows.sort_unstable();
    rows
}

async fn every_column_survives_an_export_and_an_import(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    t.put(&t.path("/queue"), json!({ "slots": [{ "weekday": 1, "time": "09:00" }] })).await.expect(200);
    let at = app.now() + TimeDelta::days(7);
    let posts = json!([
        { "content": "No time", "external_ref": "a, b;c" },
        {
            "content": "A draft\n- with a time", "schedule": "draft", "scheduled_at": at, "accounts": [one],
            "labels": ["x,y"], "first_comment": "'=more\n- lines",
        },
        {
            "content": "=Scheduled", "schedule": "scheduled", "scheduled_at": at, "accounts": [one, two],
            "labels": ["x;y", "z"], "external_ref": "=1",
        },
        { "content": "Queued; \"quoted\"", "schedule": "queue", "accounts": [two], "labels": ["spring"] },
    ]);
    import(&app, &t, &posts.to_string()).await;
    for format in ["csv", "json"] {
        let file = export(&t, &format!("?format={format}")).await;
        for post in t.get(&t.path("/posts")).await.data(200).as_array().unwrap() {
            t.delete(&t.path(&format!("/posts/{}", post["id"]))).await.expect(204);
        }
        assert_eq!(t.get(&t.path("/posts")).await.data(200), json!([]));
        import(&app, &t, &file).await;
        assert_eq!(rows(format, &export(&t, &format!("?format={format}")).await), rows(format, &file));
    }
}

async fn a_draft_whose_time_has_passed_is_imported_without_it(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    create(&t, json!({ "content": "Bread", "scheduled_at": app.now() + TimeDelta::hours(1) })).await;
    let file = export(&t, "").await;
    app.advance(7_200);
    import(&app, &t, &file).await;
    assert_eq!(app.count_rows("posts WHERE status = 'draft'").await, 2);
    assert_eq!(app.count_rows("posts WHERE scheduled_at IS NULL").await, 1);
}
