//! Threads and first comments in the composer.

use crier_domain::platform::Platform;
use serde_json::{Value, json};

use super::previews::connect;
use crate::support::app::{Tenant, on_one_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;

on_one_app!(console "unlimited" =>
    parts_are_added_and_removed_without_saving,
    a_thread_is_saved_and_edited,
    a_long_text_is_split_into_parts,
    a_part_has_its_own_images,
    an_edit_keeps_all_images_of_long_threads,
    an_account_can_publish_only_the_first_part,
    an_edit_keeps_what_the_form_does_not_have,
    a_first_comment_is_saved_and_cleared,
    errors_are_shown_at_their_parts,
    the_preview_shows_the_chain,
    published_parts_are_read_only,
    a_published_part_keeps_a_deleted_image,
    an_account_keeps_its_own_parts_when_another_one_is_retried,
    a_changed_comment_is_for_the_failed_accounts,
);

fn new_path(t: &Tenant<'_>) -> String {
    format!("/brands/{}/posts/new", t.brand)
}

/// Returns the only post of the brand and the path of its form.
async fn only_post(t: &Tenant<'_>) -> (Value, String) {
    let listed = t.get(&t.path("/posts")).await.data(200);
    let [post] = listed.as_array().unwrap().as_slice() else { panic!("{listed}") };
    let edit = format!("/brands/{}/posts/{}/edit", t.brand, post["id"]);
    (t.get(&t.path(&format!("/posts/{}", post["id"]))).await.data(200), edit)
}

/// Returns the texts of the parts after the first one.
fn texts(thread: &Value) -> Vec<&str> {
    thread.as_array().unwrap().iter().map(|part| part["content"].as_str().unwrap()).collect()
}

fn target<'a>(post: &'a Value, account: &str) -> &'a Value {
    let mut targets = post["targets"].as_array().unwrap().iter();
    targets.find(|target| target["account_id"].as_i64() == account.parse().ok()).unwrap_or_else(|| panic!("{post}"))
}

/// Returns the preview for an account.
fn result_of(page: &Page, platform: Platform) -> &str {
    let name = format!("<bdi>user_{platform}</bdi>");
    let mut results = page.text.split("<div class=\"result\">").skip(1);
    let result = results.find(|result| result.contains(&name)).unwrap_or_else(|| panic!("{platform}: {}", page.text));
    result.split("</aside>").next().unwrap_or_default()
}

async fn parts_are_added_and_removed_without_saving(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (t.account("demo").await.to_string(), new_path(&t));
    person.get(&new).await.expect(200, "Add part").expect(200, "data-thread");
    let send = async |action: &str| {
        let fields = [
            ("content", "One"),
            ("accounts", account.as_str()),
            ("thread.0.content", "Two"),
            ("thread.1.content", "Three"),
            ("_action", action),
        ];
        person.submit(&new, &new, &fields).await
    };
    let page = send("add-part").await;
    page.expect(200, ">\nOne</textarea>").expect(200, ">\nTwo</textarea>").expect(200, ">\nThree</textarea>");
    page.expect(200, "name=\"thread.2.content\" rows=\"4\" dir=\"auto\" autofocus").expect(200, ">Part 4<");
    let page = send("remove-part:1").await;
    page.expect(200, "name=\"thread.0.content\"").expect(200, ">\nThree</textarea>");
    assert!(!page.has(">\nTwo</textarea>") && !page.has("name=\"thread.1.content\""), "{}", page.text);
    send("remove-part:9").await.expect(200, ">\nTwo</textarea>").expect(200, ">\nThree</textarea>");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn a_thread_is_saved_and_edited(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (t.account("demo").await.to_string(), new_path(&t));
    let common = [("content", "One"), ("accounts", account.as_str()), ("schedule_type", "draft")];
    let parts = [("thread.0.content", "Two"), ("thread.1.content", " "), ("thread.2.content", "<b>Three")];
    let page = person.submit(&new, &new, &[&common[..], &parts].concat()).await;
    page.expect(200, "Draft saved.").expect(200, ">Part 2<").expect(200, ">Part 3<").expect(200, "<b>Three");
    let (post, edit) = only_post(&t).await;
    assert_eq!(texts(&post["thread"]), ["Two", "<b>Three"], "an empty part is no part");
    let page = person.get(&edit).await;
    page.expect(200, ">\nTwo</textarea>").expect(200, ">\n<b>Three</textarea>");
    person.submit(&edit, &edit, &[&common[..], &parts[..1]].concat()).await.expect(200, "Draft saved.");
    assert_eq!(texts(&only_post(&t).await.0["thread"]), ["Two"]);
    person.submit(&edit, &edit, &common).await.expect(200, "Draft saved.");
    assert_eq!(only_post(&t).await.0["thread"], json!([]));
}

async fn a_long_text_is_split_into_parts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (connect(&t, Platform::Bluesky).await, new_path(&t));
    let (first, second) = ("Fresh bread. ".repeat(20), "Warm rolls. ".repeat(20));
    let (first, second) = (first.trim_end(), second.trim_end());
    let content = format!("{first}\n\n{second}");
    let fields = [
        ("content", content.as_str()),
        ("accounts", account.as_str()),
        ("thread.0.content", "The end"),
        ("_action", "split"),
    ];
    let page = person.submit(&new, &new, &fields).await;
    let part = |index: usize, text: &str| {
        let field = page.text.split_once(&format!("name=\"thread.{index}.content\"")).expect("the part").1;
        assert!(
            field.split("</textarea>").next().unwrap_or_default().ends_with(&format!(">\n{text}")),
            "{}",
            page.text
        );
    };
    page.expect(200, &format!(">\n{first}</textarea>"));
    part(0, second);
    part(1, "The end");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn a_part_has_its_own_images(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (t.account("demo").await.to_string(), new_path(&t));
    let image = t.upload("bread.png", &images::png(20, 20), &[]).await.data(201)["id"].to_string();
    let common = [("content", "One"), ("accounts", account.as_str()), ("thread.0.content", "Two")];
    let page = person.submit(&new, &new, &[&common[..], &[("_action", "part-images:1")]].concat()).await;
    page.expect(200, &format!("name=\"thread.0.media\" value=\"{image}\" aria-label"));
    let chosen = [("thread.0.media", image.as_str()), ("schedule_type", "draft")];
    person.submit_from(&page, &new, &[&common[..], &chosen].concat()).await.expect(200, "Draft saved.");
    let (post, edit) = only_post(&t).await;
    assert_eq!(post["thread"][0]["media"].to_string(), format!("[{image}]"));
    // An edit keeps them even if the selection is not shown.
    person.submit(&edit, &edit, &[&common[..], &[("schedule_type", "draft")]].concat()).await.expect(200, "bread.png");
    assert_eq!(only_post(&t).await.0["thread"][0]["media"].to_string(), format!("[{image}]"));
}

async fn an_edit_keeps_all_images_of_long_threads(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let first = t.upload("bread.png", &images::png(20, 20), &[]).await.data(201)["id"].as_i64().unwrap();
    t.app.copy_newest_row("media", 100, &[]).await;
    let last = t.app.newest_id("media").await;
    let many: Vec<i64> = (last - 99..=last).collect();
    let thread = json!([
        { "content": "Two", "media": many },
        { "content": "Three", "media": many },
        { "content": "Four", "media": [first] },
    ]);
    t.post(&t.path("/posts"), json!({ "content": "One", "thread": thread })).await.expect(201);
    let (before, edit) = only_post(&t).await;
    let fields = [
        ("content", "One more"),
        ("thread.0.content", "Two"),
        ("thread.1.content", "Three"),
        ("thread.2.content", "Four"),
        ("schedule_type", "draft"),
    ];
    person.submit(&edit, &edit, &fields).await.expect(200, "Draft saved.");
    let (after, _) = only_post(&t).await;
    assert_eq!((&after["content"], &after["thread"]), (&json!("One more"), &before["thread"]));
}

async fn an_account_can_publish_only_the_first_part(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (first, second) = (t.account("demo").await.to_string(), t.account("second").await.to_string());
    let (facebook, new) = (connect(&t, Platform::Facebook).await, new_path(&t));
    let common = [
        ("content", "One"),
        ("accounts", first.as_str()),
        ("accounts", second.as_str()),
        ("accounts", facebook.as_str()),
        ("thread.0.content", "Two"),
        ("schedule_type", "draft"),
    ];
    let own = [("overrides.0.account_id", first.as_str()), ("overrides.0.thread", "none")];
    person.submit(&new, &new, &[&common[..], &own].concat()).await.expect(200, "Draft saved.");
    let (post, edit) = only_post(&t).await;
    let thread = |post: &Value, account: &str| target(post, account)["thread"].clone();
    assert_eq!([&first, &second, &facebook].map(|id| thread(&post, id)), [json!([]), Value::Null, json!([])]);
    let page = person.get(&edit).await;
    page.expect(200, "value=\"none\" checked").expect(200, "Facebook publishes only the first part.");
    assert_eq!(page.text.matches("value=\"none\"").count(), 2, "Facebook has no choice: {}", page.text);
    person.submit_from(&page, &edit, &common).await.expect(200, "Draft saved.");
    let (post, _) = only_post(&t).await;
    assert_eq!([&first, &facebook].map(|id| thread(&post, id)), [Value::Null, json!([])]);
}

async fn an_edit_keeps_what_the_form_does_not_have(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (first, second) = (t.account("demo").await, t.account("second").await);
    let overrides = json!([
        { "account_id": first, "thread": [{ "content": "Own" }], "first_comment": { "content": "Mine" } },
        { "account_id": second, "first_comment": null },
    ]);
    let body = json!({
        "content": "One", "accounts": [first, second], "overrides": overrides, "thread": [{ "content": "Two" }],
        "first_comment": { "content": "More", "delay_seconds": 90 },
    });
    t.post(&t.path("/posts"), body).await.expect(201);
    let (before, edit) = only_post(&t).await;
    let page = person.get(&edit).await;
    page.expect(200, "value=\"90\" selected>After 90 seconds<");
    let (first, second) = (first.to_string(), second.to_string());
    let fields = [
        ("content", "One more"),
        ("accounts", first.as_str()),
        ("accounts", second.as_str()),
        ("thread.0.content", "Two"),
        ("first_comment.content", "More"),
        ("first_comment.delay_seconds", "90"),
        ("schedule_type", "draft"),
    ];
    person.submit_from(&page, &edit, &fields).await.expect(200, "Draft saved.");
    let (after, _) = only_post(&t).await;
    assert_eq!(after["content"], "One more");
    for name in ["thread", "first_comment"] {
        assert_eq!(after[name], before[name]);
        assert_eq!(
            [&first, &second].map(|id| &target(&after, id)[name]),
            [&first, &second].map(|id| &target(&before, id)[name])
        );
    }
}

async fn a_first_comment_is_saved_and_cleared(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (t.account("demo").await.to_string(), new_path(&t));
    connect(&t, Platform::Tiktok).await;
    person.get(&new).await.expect(200, "Crier cannot comment on TikTok.");
    let common = [("content", "One"), ("accounts", account.as_str()), ("schedule_type", "draft")];
    let comment = [("first_comment.content", "The menu:"), ("first_comment.delay_seconds", "300")];
    let page = person.submit(&new, &new, &[&common[..], &comment].concat()).await;
    page.expect(200, "Draft saved.").expect(200, "The menu:").expect(200, "After 5 minutes");
    let (post, edit) = only_post(&t).await;
    assert_eq!(post["first_comment"], json!({ "content": "The menu:", "delay_seconds": 300 }));
    person.get(&edit).await.expect(200, ">\nThe menu:</textarea>").expect(200, "value=\"300\" selected");
    let empty = [("first_comment.content", " "), ("first_comment.delay_seconds", "300")];
    person.submit(&edit, &edit, &[&common[..], &empty].concat()).await.expect(200, "Draft saved.");
    assert_eq!(only_post(&t).await.0["first_comment"], Value::Null);
}

async fn errors_are_shown_at_their_parts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, new) = (connect(&t, Platform::Bluesky).await, new_path(&t));
    let long = "y".repeat(301);
    let fields = [
        ("content", "One"),
        ("accounts", account.as_str()),
        ("thread.0.content", "Two"),
        ("thread.1.content", long.as_str()),
        ("first_comment.content", long.as_str()),
        ("scheduled_at", "2026-07-01T09:30"),
        ("schedule_type", "scheduled"),
    ];
    let page = person.submit(&new, &new, &fields).await;
    page.expect(422, "id=\"e-thread.1.content\"").expect(422, "href=\"#f-thread.1.content\">Part 3</a>");
    page.expect(422, "id=\"e-first_comment.content\"").expect(422, &format!(">\n{long}</textarea>"));
    assert!(!page.has("id=\"e-thread.0.content\""), "{}", page.text);
    let far = "yes ".repeat(16_385);
    let fields = [("content", "One"), ("thread.0.content", far.as_str()), ("schedule_type", "draft")];
    person.submit(&new, &new, &fields).await.expect(422, "id=\"e-thread.0.content\"");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn the_preview_shows_the_chain(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let form = new_path(&t);
    let mut fields: Vec<(&str, String)> = Vec::new();
    for platform in [Platform::Bluesky, Platform::Facebook, Platform::Tiktok] {
        fields.push(("accounts", connect(&t, platform).await));
    }
    let hidden = person.get(&form).await.hidden_fields(&form);
    let csrf = hidden.iter().find(|(name, _)| name == "_csrf").expect("a token").1.as_str();
    let texts = [
        ("_csrf", csrf),
        ("content", "One"),
        ("thread.0.content", "Two #bread"),
        ("thread.1.content", ""),
        ("thread.2.content", "Three"),
        ("first_comment.content", "The menu"),
    ];
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).chain(texts).collect();
    let page = person.post(&format!("/brands/{}/posts/check", t.brand), &fields).await;
    let bluesky = result_of(&page, Platform::Bluesky);
    let places = ["One", "<span class=\"link\">#bread</span>", "Part 2 of 3", "10 of 300", "Part 3 of 3", "The menu"];
    let places = places.map(|words| bluesky.find(words));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {bluesky}");
    assert!(bluesky.contains("First comment") && !bluesky.contains("only the first part"), "{bluesky}");
    let facebook = result_of(&page, Platform::Facebook);
    assert!(facebook.contains("Facebook publishes only the first part."), "{facebook}");
    assert!(facebook.contains("The menu") && !facebook.contains("Part 2"), "{facebook}");
    let tiktok = result_of(&page, Platform::Tiktok);
    assert!(tiktok.contains("Crier cannot comment on TikTok.") && !tiktok.contains("The menu"), "{tiktok}");
}

async fn published_parts_are_read_only(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (done, stopped) = (t.account("demo").await, t.account("second").await.to_string());
    let body = json!({
        "content": "One", "schedule_type": "now", "accounts": [done, stopped.parse::<i64>().unwrap()],
        "thread": [{ "content": "Two" }, { "content": "Three" }],
    });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, "partially_published", &["published", "failed"]).await;
    t.app.publish_parts(id, 0, &["a", "b", "c"]).await;
    t.app.publish_parts(id, 1, &["a", "b"]).await;
    let (_, edit) = only_post(&t).await;
    let page = person.get(&edit).await;
    page.expect(200, "The first parts of this thread are published");
    let is_locked = |name: &str| {
        let field = page.text.split_once(&format!("<textarea id=\"f-{name}\"")).expect("the field").1;
        field.split('>').next().unwrap_or_default().contains(" readonly")
    };
    let fields = ["content", "thread.0.content", "thread.1.content"];
    assert_eq!(fields.map(is_locked), [true, true, false], "{}", page.text);
    assert!(!page.has("value=\"remove-part:1\"") && page.has("value=\"remove-part:2\""), "{}", page.text);
    let fields =
        [("content", "One"), ("thread.0.content", "Two"), ("thread.1.content", "Three!"), ("schedule_type", "now")];
    person.submit_from(&page, &edit, &fields).await.expect(200, "Retrying the failed accounts.");
    // The account where the thread is complete keeps its parts.
    let (post, _) = only_post(&t).await;
    assert_eq!(texts(&post["thread"]), ["Two", "Three"]);
    assert_eq!(texts(&target(&post, &stopped)["thread"]), ["Two", "Three!"]);
}

async fn a_published_part_keeps_a_deleted_image(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let image = t.upload("bread.png", &images::png(20, 20), &[]).await.data(201)["id"].as_i64().unwrap();
    let thread = json!([{ "content": "Two", "media": [image] }, { "content": "Three" }]);
    let body = json!({ "content": "One", "schedule_type": "now", "accounts": [account], "thread": thread });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, "failed", &["failed"]).await;
    t.app.publish_parts(id, 0, &["a", "b"]).await;
    t.delete(&t.path(&format!("/media/{image}"))).await.expect(204);
    let (_, edit) = only_post(&t).await;
    let page = person.get(&edit).await;
    page.expect(200, "Images and videos: Deleted image").expect(200, "Ready to publish");
    let field = ("thread.0.media".to_owned(), image.to_string());
    assert!(page.hidden_fields(&edit).contains(&field), "{}", page.text);
    let fields =
        [("content", "One"), ("thread.0.content", "Two"), ("thread.1.content", "Three!"), ("schedule_type", "now")];
    person.submit_from(&page, &edit, &fields).await.expect(200, "Retrying the failed accounts.");
    let (post, _) = only_post(&t).await;
    let thread = &target(&post, &account.to_string())["thread"];
    assert_eq!((texts(thread), &thread[0]["media"]), (vec!["Two", "Three!"], &json!([image])));
}

async fn a_changed_comment_is_for_the_failed_accounts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (done, failed) = (t.account("demo").await, t.account("second").await);
    let body = json!({
        "content": "One", "schedule_type": "now", "accounts": [done, failed], "first_comment": { "content": "More" },
    });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, "partially_published", &["published", "failed"]).await;
    let (_, edit) = only_post(&t).await;
    for comment in ["Other", ""] {
        let fields = [("content", "One"), ("first_comment.content", comment), ("_action", "save")];
        person.submit(&edit, &edit, &fields).await.expect(200, "Changes saved.");
        let (post, _) = only_post(&t).await;
        assert_eq!(post["first_comment"]["content"], "More");
        assert_eq!(target(&post, &done.to_string())["first_comment"]["content"], "More");
        let own = &target(&post, &failed.to_string())["first_comment"];
        assert_eq!(own["content"].as_str().unwrap_or_default(), comment);
    }
}

async fn an_account_keeps_its_own_parts_when_another_one_is_retried(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (first, second) = (t.account("demo").await, t.account("second").await);
    let body = json!({
        "content": "One", "schedule_type": "now", "accounts": [first, second], "thread": [{ "content": "Two" }],
        "overrides": [{ "account_id": second, "thread": [{ "content": "Own" }] }],
    });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.end_post(id, "failed", &["failed", "failed"]).await;
    let (_, edit) = only_post(&t).await;
    for part in ["Two", "Two!"] {
        let fields = [("content", "One"), ("thread.0.content", part), ("_action", "save")];
        person.submit(&edit, &edit, &fields).await.expect(200, "Changes saved.");
        let (post, _) = only_post(&t).await;
        let first = &target(&post, &first.to_string())["thread"];
        assert!(if part == "Two" { first.is_null() } else { texts(first) == [part] }, "{first}");
        assert_eq!(texts(&target(&post, &second.to_string())["thread"]), ["Own"]);
    }
}
