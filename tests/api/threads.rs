//! Posts with several parts.

use crier_domain::platform::Platform;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_both_apps!(
    a_thread_is_stored_and_replaced,
    a_thread_can_differ_on_each_account,
    the_search_finds_words_of_the_thread,
    the_state_of_each_part_is_shown,
    published_parts_cannot_be_changed,
    a_part_with_an_unknown_outcome_cannot_be_changed,
    an_unpublished_post_cannot_be_changed,
    a_duplicate_has_the_thread_and_the_comment,
);
on_one_app!(
    invalid_parts_are_reported,
    parts_follow_the_rules_of_their_platform,
    a_platform_without_threads_needs_an_override,
    validation_shows_the_length_of_each_part,
);

async fn upload(t: &Tenant<'_>, width: u32) -> i64 {
    t.upload("a.png", &images::png(width, 20), &[]).await.data(201)["id"].as_i64().unwrap()
}

async fn create(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/posts"), body).await.data(201)
}

fn path_of(t: &Tenant<'_>, post: &Value) -> String {
    t.path(&format!("/posts/{}", post["id"]))
}

async fn a_thread_is_stored_and_replaced(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, image) = (t.account("demo").await, upload(&t, 20).await);
    let thread = json!([{ "content": "two", "media": [] }, { "content": "", "media": [image] }]);
    let body =
        json!({ "content": "one", "accounts": [account], "thread": [{ "content": "two" }, { "media": [image] }] });
    let created = create(&t, body).await;
    assert_eq!((&created["thread"], &created["targets"][0]["thread"]), (&thread, &Value::Null));
    let path = path_of(&t, &created);
    assert_eq!(t.get(&path).await.data(200), created);
    assert_eq!(t.get(&t.path("/posts")).await.data(200)[0]["thread"], thread);
    assert_eq!(app.count_rows("post_media").await, 1);
    assert_eq!(t.put(&path, json!({ "content": "1" })).await.data(200)["thread"], thread);
    let shorter = t.put(&path, json!({ "thread": [{ "content": "2" }] })).await.data(200);
    assert_eq!(shorter["thread"], json!([{ "content": "2", "media": [] }]));
    assert_eq!(app.count_rows("post_media").await, 0);
    assert_eq!(t.put(&path, json!({ "thread": null })).await.data(200)["thread"], json!([]));
}

async fn a_thread_can_differ_on_each_account(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("one").await, t.account("two").await, t.account("three").await];
    let overrides = json!([
        { "account_id": accounts[1], "thread": [] },
        { "account_id": accounts[2], "thread": [{ "content": "only here" }, { "content": "three" }] },
    ]);
    let body =
        json!({ "content": "one", "accounts": accounts, "thread": [{ "content": "two" }], "overrides": overrides });
    let created = create(&t, body).await;
    let targets = created["targets"].as_array().unwrap();
    let threads: Vec<&Value> = targets.iter().map(|target| &target["thread"]).collect();
    let own = json!([{ "content": "only here", "media": [] }, { "content": "three", "media": [] }]);
    assert_eq!(threads, [&Value::Null, &json!([]), &own]);
    let parts: Vec<usize> = targets.iter().map(|target| target["parts"].as_array().unwrap().len()).collect();
    assert_eq!(parts, [2, 0, 3]);
    let path = path_of(&t, &created);
    assert_eq!(t.put(&path, json!({ "thread": [] })).await.data(200)["targets"][2]["thread"], own);
    let cleared = t.put(&path, json!({ "overrides": null })).await.data(200);
    assert_eq!(cleared["targets"][2]["thread"], Value::Null);
}

async fn the_search_finds_words_of_the_thread(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let created = create(&t, json!({ "content": "Fresh bread", "thread": [{ "content": "and rolls" }] })).await;
    let found =
        async |word: &str| t.get(&t.path(&format!("/posts?search={word}"))).await.expect(200)["meta"]["total"].clone();
    assert_eq!((found("bread").await, found("rolls").await, found("cake").await), (json!(1), json!(1), json!(0)));
    t.put(&path_of(&t, &created), json!({ "thread": [{ "content": "and cake" }] })).await.expect(200);
    assert_eq!((found("bread").await, found("rolls").await, found("cake").await), (json!(1), json!(0), json!(1)));
    t.delete(&path_of(&t, &created)).await.expect(204);
    assert_eq!(app.count_rows("post_words").await, 0);
}

async fn invalid_parts_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let part = json!({ "content": "x" });
    for (thread, wrong) in [
        (json!("x"), "thread"),
        (json!(vec![part.clone(); 25]), "thread"),
        (json!(["x"]), "thread.0"),
        (json!([{}]), "thread.0.content"),
        (json!([part, { "content": "", "media": [] }]), "thread.1.content"),
        (json!([{ "content": 5 }]), "thread.0.content"),
        (json!([{ "content": "x".repeat(65_536) }]), "thread.0.content"),
        (json!([{ "content": "x", "media": [999] }]), "thread.0.media.0"),
        (json!([{ "media": ["x"] }]), "thread.0.media.0"),
        (json!([{ "contnet": "x", "content": "x" }]), "thread.0.contnet"),
    ] {
        let body = json!({ "content": "x", "accounts": [account], "thread": thread });
        assert_eq!(t.post(&t.path("/posts"), body).await.invalid_fields(), [wrong], "{thread}");
        let own = json!([{ "account_id": account, "thread": thread }]);
        let body = json!({ "content": "x", "accounts": [account], "overrides": own });
        let fields = t.post(&t.path("/posts"), body).await.invalid_fields();
        assert_eq!(fields, [format!("overrides.0.{wrong}")], "{thread}");
    }
    create(&t, json!({ "content": "x", "accounts": [account], "thread": vec![part; 24] })).await;
    assert_eq!(app.count_rows("posts").await, 1);
}

/// Returns a post that is published now.
fn now(account: i64, more: Value) -> Value {
    let mut body = json!({ "content": "one", "accounts": [account], "schedule_type": "now" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn parts_follow_the_rules_of_their_platform(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Bluesky).await;
    let thread = json!([{ "content": "two" }, { "content": "x".repeat(301) }]);
    let draft = json!({ "content": "one", "accounts": [account], "thread": thread });
    let draft = create(&t, draft).await;
    let submit = format!("{}/submit", path_of(&t, &draft));
    assert_eq!(t.request("POST", &submit).send().await.invalid_fields(), ["thread.1.content"]);
    let reply = t.post(&t.path("/posts"), now(account, json!({ "thread": thread }))).await;
    let error = reply.expect_error(422, "validation_failed");
    let message =
        format!("Account {account} (Demo), part 3: Bluesky accepts at most 300 characters; this text has 301.");
    assert_eq!(error["fields"], json!({ "thread.1.content": [message] }));
    let own = json!([{ "account_id": account, "thread": thread }]);
    let fields = t.post(&t.path("/posts"), now(account, json!({ "overrides": own }))).await.invalid_fields();
    assert_eq!(fields, ["overrides.0.thread.1.content"]);
    let mut many = Vec::new();
    for width in 20..25 {
        many.push(upload(&t, width).await);
    }
    let many = json!([{ "content": "two", "media": many }]);
    let many = now(t.account_on(Platform::Twitter).await, json!({ "thread": many }));
    assert_eq!(t.post(&t.path("/posts"), many).await.invalid_fields(), ["thread.0.media"]);
    let blank = now(account, json!({ "thread": [{ "content": " " }] }));
    assert_eq!(t.post(&t.path("/posts"), blank).await.invalid_fields(), ["thread.0.content"]);
}

async fn a_platform_without_threads_needs_an_override(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Facebook).await;
    let thread = json!([{ "content": "two" }]);
    let message = format!(
        "Account {account} (Demo): Facebook has no threads. Publish only the first part there with an override \
         `thread: []`."
    );
    let with = |own: Value| json!([{ "account_id": account, "thread": own }]);
    for (body, field) in [
        (now(account, json!({ "thread": thread })), "thread"),
        (now(account, json!({ "overrides": with(thread.clone()) })), "overrides.0.thread"),
    ] {
        let error = t.post(&t.path("/posts"), body.clone()).await.expect_error(422, "validation_failed");
        assert_eq!(error["fields"], json!({ (field): [message] }));
        let checked = t.post(&t.path("/posts/validate"), body).await.data(200);
        let problem = json!({ "field": field, "code": "thread_not_supported", "message": message });
        assert_eq!(checked["targets"][0]["problems"], json!([problem]));
    }
    let body = now(account, json!({ "thread": thread, "overrides": with(json!([])) }));
    assert_eq!(t.post(&t.path("/posts/validate"), body.clone()).await.data(200)["valid"], true);
    create(&t, body).await;
}

async fn validation_shows_the_length_of_each_part(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Twitter).await;
    let thread = json!([{ "content": "See https://a.example/with/a/long/path" }, { "content": "x".repeat(281) }]);
    let body = json!({ "content": "one", "accounts": [account], "thread": thread });
    let checked = t.post(&t.path("/posts/validate"), body).await.data(200);
    let target = &checked["targets"][0];
    let part = |position: u32, length: u32| json!({ "position": position, "length": length, "limit": 280 });
    assert_eq!(target["parts"], json!([part(1, 3), part(2, 27), part(3, 281)]));
    assert_eq!((&target["problems"][0]["field"], &checked["valid"]), (&json!("thread.1.content"), &json!(false)));
    let warning = &target["warnings"][0];
    assert_eq!((&warning["field"], &warning["code"]), (&json!("thread.0.content"), &json!("link_costs_more")));
    let single = json!({ "content": "one", "accounts": [account] });
    let checked = t.post(&t.path("/posts/validate"), single).await.data(200);
    assert_eq!(checked["targets"][0]["parts"], json!([]));
}

/// Creates a thread of three parts that failed at the last one. Returns its path.
async fn failed_thread(t: &Tenant<'_>, account: i64) -> String {
    let thread = json!([{ "content": "two" }, { "content": "three" }]);
    let created = create(t, now(account, json!({ "thread": thread }))).await;
    let id = created["id"].as_i64().unwrap();
    t.app.end_post(id, "failed", &["failed"]).await;
    t.app.publish_parts(id, 0, &["1", "2"]).await;
    path_of(t, &created)
}

async fn the_state_of_each_part_is_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let path = failed_thread(&t, t.account("demo").await).await;
    let shown = t.get(&path).await.data(200);
    let target = &shown["targets"][0];
    let published = |position: u32| {
        json!({
            "position": position, "status": "published", "external_id": position.to_string(),
            "url": format!("https://a.example/{position}"), "error": null,
        })
    };
    assert_eq!((&target["parts"][0], &target["parts"][1]), (&published(1), &published(2)));
    let last = &target["parts"][2];
    assert_eq!((&last["position"], &last["status"]), (&json!(3), &json!("failed")));
    assert_eq!((&last["error"], &target["error"]["part"]), (&target["error"], &json!(3)));
    let status = t.get(&format!("{path}/status")).await.data(200);
    assert_eq!(status["targets"][0]["error"], target["error"]);
    let listed = async || t.get(&t.path("/posts")).await.data(200)[0]["error"].take();
    assert_eq!((&shown["error"], &listed().await), (&target["error"], &target["error"]));
    // Without parts on the account, no part is named.
    t.app.sql("UPDATE post_targets SET thread = '[]'").await;
    let shown = t.get(&path).await.data(200);
    assert_eq!((&shown["error"]["part"], &listed().await["part"]), (&Value::Null, &Value::Null));
    t.app.sql("UPDATE post_targets SET thread = NULL").await;

    let again = t.put(&path, json!({ "schedule_type": "now" })).await.data(200);
    let statuses: Vec<&Value> =
        again["targets"][0]["parts"].as_array().unwrap().iter().map(|part| &part["status"]).collect();
    assert_eq!(statuses, ["published", "published", "pending"]);
}

async fn published_parts_cannot_be_changed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let path = failed_thread(&t, t.account("demo").await).await;
    for change in [
        json!({ "content": "1" }),
        json!({ "thread": [{ "content": "2" }, { "content": "three" }] }),
        json!({ "thread": [] }),
        json!({ "thread": null }),
    ] {
        let reply = t.put(&path, change.clone()).await;
        let error = reply.expect_error(409, "post_not_editable");
        assert!(error["message"].as_str().unwrap().contains("cannot be changed"), "{change}");
    }
    let thread = json!([{ "content": "two" }, { "content": "3" }]);
    let again = t.put(&path, json!({ "schedule_type": "now", "thread": thread })).await.data(200);
    assert_eq!((&again["status"], &again["thread"][1]["content"]), (&json!("publishing"), &json!("3")));
    assert_eq!(again["targets"][0]["parts"][1]["external_id"], "2");
}

async fn a_part_with_an_unknown_outcome_cannot_be_changed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Bluesky).await;
    let path = failed_thread(&t, account).await;
    app.sql("UPDATE post_targets SET call_started_at = created_at").await;
    for change in [
        json!({ "thread": [{ "content": "two" }] }),
        json!({ "thread": [{ "content": "two" }, { "content": "3" }], "schedule_type": "now" }),
        json!({ "overrides": [{ "account_id": account, "thread": [{ "content": "two" }] }] }),
    ] {
        let error = t.put(&path, change.clone()).await.expect_error(409, "post_not_editable");
        assert!(error["message"].as_str().unwrap().contains("is unknown"), "{change}");
    }
    let longer = json!([{ "content": "two" }, { "content": "three" }, { "content": "four" }]);
    t.put(&path, json!({ "thread": longer })).await.expect(200);
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.data(200)["status"], "publishing");
    assert_eq!(app.count_rows("post_targets WHERE call_started_at IS NOT NULL").await, 1);
}

async fn an_unpublished_post_cannot_be_changed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let created = create(&t, now(account, json!({ "thread": [{ "content": "two" }] }))).await;
    for status in ["unpublishing", "unpublished"] {
        app.end_post(created["id"].as_i64().unwrap(), "published", &[status]).await;
        for change in [json!({ "content": "1" }), json!({ "thread": [] }), json!({ "schedule_type": "now" })] {
            t.put(&path_of(&t, &created), change).await.expect_error(409, "post_not_editable");
        }
        assert_eq!(t.get(&path_of(&t, &created)).await.data(200)["targets"][0]["status"], status);
    }
}

async fn a_duplicate_has_the_thread_and_the_comment(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("one").await, t.account("two").await, t.account("three").await];
    let (kept, deleted) = (upload(&t, 20).await, upload(&t, 30).await);
    let thread = json!([{ "content": "two", "media": [deleted] }, { "media": [deleted] }, { "media": [kept] }]);
    let overrides = json!([
        { "account_id": accounts[1], "thread": [], "first_comment": null },
        { "account_id": accounts[2], "thread": thread, "first_comment": { "content": "own" } },
    ]);
    let body = json!({
        "content": "one", "accounts": accounts, "thread": thread, "overrides": overrides,
        "first_comment": { "content": "more", "delay_seconds": 60 },
    });
    let original = create(&t, body).await;
    t.delete(&t.path(&format!("/media/{deleted}"))).await.expect(204);
    let copy = t.request("POST", &format!("{}/duplicate", path_of(&t, &original))).send().await.data(201);
    let remaining = json!([{ "content": "two", "media": [] }, { "content": "", "media": [kept] }]);
    assert_eq!((&copy["thread"], &copy["first_comment"]), (&remaining, &original["first_comment"]));
    let threads = [0, 1, 2].map(|n: usize| copy["targets"][n]["thread"].clone());
    assert_eq!(threads, [Value::Null, json!([]), remaining]);
    for n in 0..3_usize {
        assert_eq!(copy["targets"][n]["first_comment"], original["targets"][n]["first_comment"]);
    }
}
