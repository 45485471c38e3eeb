//! Imports and exports of posts in the console. No job runs here.

use serde_json::json;

use crate::support::app::{Tenant, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(console "unlimited" =>
    imports_are_listed_and_started,
    a_rejected_import_keeps_what_was_chosen,
    posts_are_downloaded_with_the_filters_of_the_list,
);

async fn imports_are_listed_and_started(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let list = t.path("/posts/imports");
    t.account("demo").await;
    person.get(&list).await.expect(200, " on Sandbox</option>");
    person.get(&list).await.expect(200, "No imports yet").expect(200, "31/05/2026");
    person.get(&t.path("/posts")).await.expect(200, "Import");
    let form = t.request("POST", &t.path("/posts/import")).form(Some(("<May>.csv", b"content\na\nb\n")), &[]);
    let id = form.send().await.data(202)["id"].as_i64().unwrap();
    let path = t.path(&format!("/posts/imports/{id}"));
    person.get(&list).await.expect(200, "<May>.csv").expect(200, "Waiting");
    let page = person.get(&path).await;
    page.expect(200, "data-moving")
        .expect(200, "Cancel this import?")
        .expect(200, "<progress aria-label=\"Processed rows\"></progress>");
    t.app.sql("UPDATE post_imports SET status = 'running', rows_total = 2, rows_done = 1").await;
    person.get(&path).await.expect(200, "max=\"2\" value=\"1\"");
    t.app.sql("UPDATE post_imports SET status = 'completed', rows_total = 2, rows_done = 2, rows_valid = 1").await;
    let problem = "INSERT INTO post_import_errors (import_id, number, row_number, column_name, message)
        SELECT id, 0, 3, 'content', 'Too long.' FROM post_imports";
    t.app.sql(problem).await;
    t.app.sql(problem.replace("0, 3, 'content', 'Too long.'", "1, 4, 'schedule', 'Must be `draft`.'")).await;
    let page = person.get(&path).await;
    page.expect(200, "1 of 2 rows can be imported").expect(200, "Too long.").expect(200, "Import 1 post");
    page.expect(200, ">Must be “draft”.<");
    person.get(&format!("{path}/errors")).await.expect(200, "\"3\",\"content\",\"Too long.\"");
    for _ in 0..2 {
        let shown = person.submit_from(&page, &format!("{path}/start"), &[]).await;
        shown.expect(200, "Importing the posts.").expect(200, "0 of 0 rows processed");
    }
    assert_eq!(t.app.count_rows("post_imports WHERE NOT dry_run").await, 1);
    let page = person.get(&path).await;
    t.app.sql("UPDATE post_imports SET status = 'completed'").await;
    let shown = person.submit_from(&page, &format!("{path}/cancel"), &[]).await;
    assert!(shown.status == 200 && !shown.has("Import canceled."), "it had completed: {}", shown.text);
    t.app.sql("UPDATE post_imports SET status = 'pending'").await;
    let shown = person.submit(&path, &format!("{path}/cancel"), &[]).await;
    shown.expect(200, "Import canceled.").expect(200, "A member canceled this import.");
    assert!(!person.get(&path).await.has("Cancel this import?"));
}

async fn a_rejected_import_keeps_what_was_chosen(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (path, account) = (t.path("/posts/imports"), t.account("demo").await.to_string());
    let import = async || {
        let page = person.get(&path).await;
        let start = page.text.find(&format!("{path}?_key=")).expect("the form");
        let form = page.text[start..].split('"').next().unwrap_or_default();
        let request = t.app.visit("POST", &format!("{}{form}", t.app.url)).header("cookie", &person.cookie);
        let texts = [("date_format", "dmy"), ("accounts", account.as_str())];
        request.header("origin", &t.app.url).form(Some(("may.csv", b"content\na\n")), &texts).send().await
    };
    assert_eq!(import().await.status, 303);
    // A brand imports one file at a time.
    let rejected = import().await;
    let text = String::from_utf8_lossy(&rejected.body);
    assert_eq!(rejected.status, 422, "{text}");
    for chosen in ["dmy", &account] {
        assert!(text.contains(&format!("value=\"{chosen}\" selected")), "{chosen}: {text}");
    }
}

async fn posts_are_downloaded_with_the_filters_of_the_list(t: Tenant<'_>, person: ConsoleUser<'_>) {
    for text in ["Fresh bread", "Cake"] {
        t.post(&t.path("/posts"), json!({ "content": text })).await.expect(201);
    }
    person.get(&t.path("/posts?search=bread")).await.expect(200, "posts/export/csv?search=bread");
    let file = person.get(&t.path("/posts/export/csv?search=bread")).await;
    file.expect(200, "Fresh bread");
    assert!(!file.has("Cake"));
    person.get(&t.path("/posts/export/json")).await.expect(200, "\"Cake\"");
    person.get(&t.path("/posts/export/xml")).await.expect(404, "");
}
