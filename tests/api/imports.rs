//! Imports of posts through the API. No job runs here, unless a test starts it.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{BASE, MISSING_ID, Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::reports::TestInstallation;
use crate::support::store::{TestStore, on_both};

on_both_apps!(
    an_import_is_accepted_and_listed,
    a_brand_imports_one_file_at_a_time,
    only_the_newest_imports_and_files_are_kept,
    an_import_is_canceled,
    contributors_cancel_dry_runs_and_their_own_imports,
);
on_one_app!(invalid_requests_are_rejected, a_repeated_key_starts_one_import, a_key_for_posts_imports_no_files);
on_both!(
    a_dry_run_is_started,
    a_contributor_cannot_schedule_by_starting_a_dry_run,
    errors_are_downloaded,
    rows_enter_the_queue
);

async fn send(t: &Tenant<'_>, file: &str, texts: &[(&str, &str)]) -> Reply {
    t.request("POST", &t.path("/posts/import")).form(Some(("posts.csv", file.as_bytes())), texts).send().await
}

/// Starts a dry run, and returns its id.
pub async fn dry_run(t: &Tenant<'_>, file: &str) -> i64 {
    send(t, file, &[]).await.data(202)["id"].as_i64().expect("an id")
}

fn path_of(t: &Tenant<'_>, import: i64) -> String {
    t.path(&format!("/posts/imports/{import}"))
}

async fn show(t: &Tenant<'_>, import: i64) -> Value {
    t.get(&path_of(t, import)).await.data(200)
}

/// Ends all imports, as the worker does.
pub async fn end_all(app: &TestApp) {
    app.sql("UPDATE post_imports SET status = 'completed'").await;
}

async fn an_import_is_accepted_and_listed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let ids = account.to_string();
    let texts = [("dry_run", "false"), ("timezone", "Asia/Tokyo"), ("date_format", "dmy"), ("accounts", ids.as_str())];
    let reply = send(&t, "content\nBread\n", &texts).await;
    let import = reply.data(202);
    let id = import["id"].as_i64().unwrap();
    assert_eq!(reply.header("location"), Some(format!("{BASE}{}", path_of(&t, id)).as_str()));
    assert_eq!((&import["status"], &import["dry_run"]), (&json!("pending"), &json!(false)));
    assert_eq!((&import["timezone"], &import["date_format"]), (&json!("Asia/Tokyo"), &json!("dmy")));
    assert_eq!((&import["filename"], &import["accounts"]), (&json!("posts.csv"), &json!([account])));
    assert_eq!(show(&t, id).await["errors"], json!([]));
    assert_eq!(t.get(&t.path("/posts/imports")).await.data(200)[0]["id"], id);
    assert_eq!(app.count_rows("jobs WHERE kind = 'import_posts'").await, 1);
    assert_eq!(app.count_rows("post_import_files").await, 1);
}

async fn a_brand_imports_one_file_at_a_time(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    dry_run(&t, "content\na\n").await;
    send(&t, "content\nb\n", &[]).await.expect_error(402, "limit_reached");
    dry_run(&other, "content\na\n").await;
    end_all(&app).await;
    dry_run(&t, "content\nb\n").await;
}

async fn only_the_newest_imports_and_files_are_kept(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let first = dry_run(&t, "content\na\n").await;
    end_all(&app).await;
    app.copy_newest_row("post_imports", 99, &[]).await;
    dry_run(&t, "content\nb\n").await;
    assert_eq!(t.get(&t.path("/posts/imports")).await.data(200).as_array().unwrap().len(), 100);
    t.get(&path_of(&t, first)).await.expect_error(404, "not_found");
    assert_eq!(app.count_rows("post_import_files").await, 1, "only that of the newest import");
}

async fn an_import_is_canceled(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let id = dry_run(&t, "content\na\n").await;
    for _ in 0..2 {
        let import = t.post(&format!("{}/cancel", path_of(&t, id)), json!({})).await.data(200);
        assert_eq!((&import["status"], &import["error"]), (&json!("failed"), &json!("A member canceled this check.")));
    }
    assert_eq!(app.count_rows("jobs WHERE kind = 'import_posts' AND state = 'cancelled'").await, 1);
    assert_eq!(app.count_rows("jobs WHERE kind = 'import_posts'").await, 1);
    assert_eq!(app.count_rows("post_import_files").await, 0);
    // The brand can import another file. An import that has ended stays as it is.
    let id = dry_run(&t, "content\na\n").await;
    end_all(&app).await;
    let import = t.post(&format!("{}/cancel", path_of(&t, id)), json!({})).await.data(200);
    assert_eq!((&import["status"], &import["error"]), (&json!("completed"), &json!(null)));
    assert_eq!(app.count_rows("post_import_files").await, 1);
    t.post(&format!("{}/cancel", path_of(&t, MISSING_ID)), json!({})).await.expect_error(404, "not_found");
}

/// Starts an import, and returns the path that cancels it.
async fn cancelable(t: &Tenant<'_>, dry_run: &str) -> String {
    let id = send(t, "content\na\n", &[("dry_run", dry_run)]).await.data(202)["id"].as_i64().unwrap();
    format!("{}/cancel", path_of(t, id))
}

async fn contributors_cancel_dry_runs_and_their_own_imports(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let contributor = t.colleague(Role::Contributor).await;
    let of_publisher = cancelable(&t, "false").await;
    contributor.post(&of_publisher, json!({})).await.expect_error(403, "insufficient_scope");
    assert_eq!(app.count_rows("post_imports WHERE status = 'pending'").await, 1);
    t.post(&of_publisher, json!({})).await.expect(200);
    let check = cancelable(&t, "true").await;
    contributor.post(&check, json!({})).await.expect(200);
    let own = cancelable(&contributor, "false").await;
    contributor.post(&own, json!({})).await.expect(200);
}

async fn invalid_requests_are_rejected(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for (field, value) in [
        ("timezone", "Nowhere"),
        ("date_format", "us"),
        ("dry_run", "perhaps"),
        ("accounts", "1,x"),
        ("accounts", "999999999"),
    ] {
        assert_eq!(send(&t, "content\na\n", &[(field, value)]).await.invalid_fields(), [field]);
    }
    let without_file = t.request("POST", &t.path("/posts/import")).form(None, &[("dry_run", "true")]).send().await;
    assert_eq!(without_file.invalid_fields(), ["file"]);
    let large = "a".repeat((10 << 20) + 1);
    send(&t, &large, &[]).await.expect_error(413, "payload_too_large");
    t.post(&t.path("/posts/import"), json!({})).await.expect_error(415, "unsupported_media_type");
    t.get(&path_of(&t, MISSING_ID)).await.expect_error(404, "not_found");
    assert_eq!(app.count_rows("post_imports").await, 0);
}

async fn a_repeated_key_starts_one_import(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let again = async || {
        let request = t.request("POST", &t.path("/posts/import")).idempotency_key("once");
        request.form(Some(("posts.csv", b"content\na\n")), &[]).send().await
    };
    let first = again().await.data(202);
    let second = again().await;
    assert!(second.replayed());
    assert_eq!(second.data(202)["id"], first["id"]);
    assert_eq!(app.count_rows("post_imports").await, 1);
}

/// The files of `media_urls` would otherwise be added with a key that cannot write media.
async fn a_key_for_posts_imports_no_files(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let posts = t.with_scopes("posts:read,posts:write").await;
    let file = "content,media_urls\nBread,https://8.8.8.8/bread.png\n";
    send(&posts, file, &[("dry_run", "false")]).await.expect_error(403, "insufficient_scope");
    let id = dry_run(&posts, file).await;
    end_all(&app).await;
    let start = format!("{}/start", path_of(&t, id));
    posts.post(&start, json!({})).await.expect_error(403, "insufficient_scope");
    t.post(&start, json!({})).await.expect(202);
}

async fn a_dry_run_is_started(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let file = format!("content,date,time,accounts\nDraft,,,\nLate,2020-01-01,09:00,{account}\n");
    let id = dry_run(&t, &file).await;
    t.post(&format!("{}/start", path_of(&t, id)), json!({})).await.expect_error(404, "not_found");
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!(
        (&import["status"], &import["rows_total"], &import["rows_valid"]),
        (&json!("completed"), &json!(2), &json!(1))
    );
    assert_eq!(import["errors"][0], json!({ "row": 3, "column": "date", "message": "Must be in the future." }));
    assert_eq!(app.count_rows("posts").await, 0);
    let started = t.post(&format!("{}/start", path_of(&t, id)), json!({})).await.data(202);
    assert_eq!((&started["id"], &started["dry_run"], &started["rows_done"]), (&json!(id), &json!(false), &json!(0)));
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!((&import["rows_imported"], import["errors"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(app.count_rows("posts").await, 1);
    assert_eq!(app.count_rows("post_import_files").await, 0);
    t.post(&format!("{}/start", path_of(&t, id)), json!({})).await.expect_error(404, "not_found");
}

/// A dry run says how many posts would be queued. The posts take the next free slots, in the order of the rows.
async fn rows_enter_the_queue(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let file =
        format!("content,scheduled_at,schedule,accounts\nOne,,queue,{account}\nTwo,queue,,{account}\nDraft,,,\n");
    let id = dry_run(&t, &file).await;
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!((&import["rows_valid"], &import["rows_queued"]), (&json!(1), &json!(0)), "the queue has no slots");
    assert_eq!(import["errors"][0]["column"], "schedule");
    let slots: Vec<Value> = (1..=7).map(|day| json!({ "weekday": day, "time": "09:00" })).collect();
    t.put(&t.path("/queue"), json!({ "slots": slots })).await.expect(200);
    let taken = json!({ "content": "First", "accounts": [account], "schedule_type": "queue" });
    t.post(&t.path("/posts"), taken).await.expect(201);
    let next = t.get(&t.path(&format!("/queue/next?accounts={account}&count=2"))).await.data(200);
    let id = dry_run(&t, &file).await;
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!((&import["rows_valid"], &import["rows_queued"], &import["errors"]), (&json!(3), &json!(2), &json!([])));
    assert_eq!(app.count_rows("posts").await, 1, "a dry run writes nothing");
    t.post(&format!("{}/start", path_of(&t, id)), json!({})).await.expect(202);
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!((&import["rows_imported"], &import["rows_queued"]), (&json!(3), &json!(2)), "{import}");
    let posts = t.get(&t.path("/posts")).await.data(200);
    let queued = |content: &str| {
        let post = posts.as_array().unwrap().iter().find(|post| post["content"] == content).unwrap();
        (post["queued"].clone(), post["scheduled_at"].clone())
    };
    for (content, at) in ["One", "Two"].into_iter().zip(next.as_array().unwrap()) {
        assert_eq!(queued(content), (json!(true), at["scheduled_at"].clone()), "{content}");
    }
    assert_eq!(app.count_rows("queue_places").await, 3);
}

/// The member who starts the import is the author of its posts, not the one who uploaded the file.
async fn a_contributor_cannot_schedule_by_starting_a_dry_run(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let at = (app.now() + TimeDelta::days(1)).to_rfc3339();
    let id = dry_run(&t, &format!("content,scheduled_at,accounts\nLater,{at},{account}\nDraft,,\n")).await;
    app.run_jobs().await;
    contributor.post(&format!("{}/start", path_of(&t, id)), json!({})).await.expect(202);
    app.run_jobs().await;
    let import = show(&t, id).await;
    assert_eq!((&import["rows_imported"], &import["errors"][0]["row"]), (&json!(1), &json!(2)), "{import}");
    assert_eq!(app.count_rows("posts WHERE status = 'scheduled'").await, 0);
    assert_eq!(app.count_rows(format!("posts WHERE author_id = {}", contributor.user)).await, 1);
}

async fn errors_are_downloaded(s: TestStore) {
    let app = TestInstallation::start(s).await;
    let t = app.tenant("unlimited").await;
    let id = dry_run(&t, "content,accounts\nBread,\"=1, Bob\"\n").await;
    app.run_jobs().await;
    let reply = t.get(&format!("{}/errors", path_of(&t, id))).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/csv")));
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "\u{feff}\"row\",\"column\",\"message\"");
    assert_eq!(lines[1], "\"2\",\"accounts\",\"The brand has no account `=1`.\"");
    assert_eq!(lines.len(), 3);
}
