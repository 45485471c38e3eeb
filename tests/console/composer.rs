//! Writing and editing posts.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp, on_one_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;
use crate::support::request::assert_fields;

on_one_app!(other_brands_records_are_not_found);
on_one_app!("unlimited" => a_rejected_submission_leaves_one_draft);
on_one_app!(console "unlimited" =>
    the_only_account_that_can_publish_is_chosen,
    a_form_that_is_sent_twice_creates_one_post,
    a_post_is_scheduled_at_a_local_time,
    errors_are_shown_beside_the_entered_values,
    a_corrected_form_is_executed,
    a_text_survives_a_full_disk,
    a_post_is_saved_once_if_the_service_was_unavailable,
    images_are_chosen_without_saving,
    an_account_can_have_its_own_images,
    an_edit_keeps_values_that_the_form_does_not_have,
    an_unchanged_time_keeps_its_seconds,
    the_preview_is_a_fragment_for_the_script,
    the_preview_has_warnings_about_other_posts,
    a_published_post_cannot_be_edited,
    a_post_that_was_changed_meanwhile_is_not_overwritten,
    a_form_of_a_post_that_was_published_meanwhile_keeps_its_text,
    a_form_of_a_post_that_was_deleted_meanwhile_keeps_its_text,
    labels_are_written_with_commas,
    an_image_is_uploaded_from_the_composer,
);
on_one_app!(console "free" => the_text_of_a_form_must_fit_into_the_storage);

fn new_post_path(t: &Tenant<'_>) -> String {
    format!("/brands/{}/posts/new", t.brand)
}

async fn upload(t: &Tenant<'_>) -> i64 {
    t.upload("bread.png", &images::png(20, 20), &[]).await.data(201)["id"].as_i64().unwrap()
}

async fn only_post(t: &Tenant<'_>) -> Value {
    let listed = t.get(&t.path("/posts")).await.data(200);
    let [post] = listed.as_array().unwrap().as_slice() else { panic!("{listed}") };
    t.get(&t.path(&format!("/posts/{}", post["id"]))).await.data(200)
}

/// Returns the URL of the upload form.
fn upload_url(page: &Page) -> String {
    let at = page.text.find("posts/upload?").unwrap_or_else(|| panic!("{}", page.text));
    let start = page.text[..at].rfind('"').unwrap_or_default() + 1;
    page.text[start..].split('"').next().unwrap_or_default().replace("&amp;", "&")
}

async fn send_file(app: &TestApp, person: &ConsoleUser<'_>, page: &Page, bytes: &[u8], fetch: bool) -> Reply {
    let request = app.visit("POST", &format!("{}{}", app.url, upload_url(page))).header("cookie", &person.cookie);
    let request = request.header("origin", &app.url);
    let request = if fetch { request.header("x-requested-with", "fetch") } else { request };
    request.form(Some(("bread.png", bytes)), &[("alt_text", "Fresh bread")]).send().await
}

async fn the_only_account_that_can_publish_is_chosen(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let new = new_post_path(&t);
    let is_chosen = |page: &Page, account: i64| {
        page.expect(200, &format!("name=\"accounts\" value=\"{account}\""));
        page.has(&format!("name=\"accounts\" value=\"{account}\" data-thread checked"))
    };
    let first = t.account("first").await;
    assert!(is_chosen(&person.get(&new).await, first));
    // A form without accounts stays without them.
    let page = person.submit(&new, &new, &[("content", "As typed"), ("_action", "library:1")]).await;
    assert!(!is_chosen(&page, first), "{}", page.text);
    let draft = t.post(&t.path("/posts"), json!({ "content": "Bread" })).await.data(201)["id"].to_string();
    let page = person.get(&format!("/brands/{}/posts/{draft}/edit", t.brand)).await;
    assert!(!is_chosen(&page, first), "{}", page.text);

    let second = t.account("second").await;
    let page = person.get(&new).await;
    assert!(!is_chosen(&page, first) && !is_chosen(&page, second), "{}", page.text);
    assert!(!page.has("Reconnect expired accounts"), "{}", page.text);
    t.app.expire_account(first).await;
    let page = person.get(&new).await;
    assert!(!is_chosen(&page, first) && is_chosen(&page, second), "{}", page.text);
    page.expect(200, "Reconnect expired accounts");
}

async fn a_form_that_is_sent_twice_creates_one_post(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let page = person.get(&new_post_path(&t)).await;
    page.expect(200, "New post").expect(200, "demo");
    let fields = [("content", "Fresh bread"), ("accounts", account.as_str()), ("schedule_type", "draft")];
    for _ in 0..2 {
        person
            .submit_from(&page, &new_post_path(&t), &fields)
            .await
            .expect(200, "Draft saved.")
            .expect(200, "Fresh bread");
    }
    let post = only_post(&t).await;
    assert_eq!((&post["status"], &post["accounts"][0].to_string()), (&json!("draft"), &account));
    let path = format!("/brands/{}/posts/{}/edit", t.brand, post["id"]);
    let page = person.get(&path).await;
    page.expect(200, "Fresh bread");
    let fields = [("content", "Rolls"), ("accounts", account.as_str()), ("schedule_type", "now")];
    for _ in 0..2 {
        person.submit_from(&page, &path, &fields).await.expect(200, "Publishing started.");
    }
    let post = only_post(&t).await;
    assert_eq!((&post["status"], &post["content"]), (&json!("publishing"), &json!("Rolls")));
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'publish_target'").await, 1);
}

async fn the_text_of_a_form_must_fit_into_the_storage(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let page = person.get(&new_post_path(&t)).await;
    // The plan has 500 MiB.
    t.app.set_storage_usage(t.workspace, 400 << 20, (100 << 20) - 20_000).await;
    let long = "y".repeat(40_000);
    let fields = [("content", long.as_str()), ("schedule_type", "draft")];
    person.submit_from(&page, &new_post_path(&t), &fields).await.expect(422, "500 MiB");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn a_post_is_scheduled_at_a_local_time(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let fields = [
        ("content", "Two\r\nlines"),
        ("accounts", account.as_str()),
        ("overrides.0.account_id", account.as_str()),
        ("overrides.0.content", "For this account"),
        ("scheduled_at", "2026-07-01T09:30"),
        ("schedule_type", "scheduled"),
    ];
    person
        .submit(&new_post_path(&t), &new_post_path(&t), &fields)
        .await
        .expect(200, "Post scheduled.")
        .expect(200, "1 Jul, 09:30");
    let post = only_post(&t).await;
    assert_eq!((&post["scheduled_at"], &post["content"]), (&json!("2026-07-01T07:30:00Z"), &json!("Two\nlines")));
    assert_eq!(post["targets"][0]["content"], "For this account");
    let path = format!("/brands/{}/posts/{}/edit", t.brand, post["id"]);
    let fields = [("content", "x"), ("accounts", account.as_str()), ("scheduled_at", ""), ("schedule_type", "draft")];
    person.submit(&path, &path, &fields).await.expect(200, "Draft saved.");
    let post = only_post(&t).await;
    assert_eq!((&post["status"], &post["scheduled_at"]), (&json!("draft"), &Value::Null));
    assert_eq!(post["targets"][0]["content"], Value::Null, "the form had no text for this account");
}

async fn errors_are_shown_beside_the_entered_values(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let fields = [
        ("content", "As typed </textarea>"),
        ("accounts", account.as_str()),
        ("scheduled_at", "2020-01-01T09:30"),
        ("schedule_type", "scheduled"),
    ];
    let page = person.submit(&new_post_path(&t), &new_post_path(&t), &fields).await;
    page.expect(422, "Must be in the future.").expect(422, "As typed </textarea>").expect(422, "2020-01-01T09:30");
    page.expect(422, &format!("value=\"{account}\" data-thread checked"));
    // The returned form can be submitted.
    let fields = [("content", "As typed"), ("accounts", account.as_str()), ("schedule_type", "draft")];
    person.submit_from(&page, &new_post_path(&t), &fields).await.expect(200, "Draft saved.");
    for fields in [
        vec![("schedule_type", "now"), ("content", "No account")],
        vec![("schedule_type", "draft"), ("content", "")],
        vec![("schedule_type", "draft"), ("content", "x"), ("media", "999999")],
        vec![("schedule_type", "draft"), ("content", "x"), ("accounts", "999999")],
    ] {
        let page = person.submit(&new_post_path(&t), &new_post_path(&t), &fields).await;
        page.expect(422, "Fix these problems");
    }
    let long = "é".repeat(65_536);
    let page =
        person.submit(&new_post_path(&t), &new_post_path(&t), &[("schedule_type", "draft"), ("content", &long)]).await;
    page.expect(422, "at most 65535 characters");
    let huge = "x".repeat(1_100_000);
    let page =
        person.submit(&new_post_path(&t), &new_post_path(&t), &[("schedule_type", "draft"), ("content", &huge)]).await;
    assert_eq!(page.status, 413, "{}", page.text.len());
    // If the button is unknown, nothing is saved.
    person
        .submit(&new_post_path(&t), &new_post_path(&t), &[("content", "Which button?")])
        .await
        .expect(200, "Which button?");
    assert_eq!(t.app.count_rows("posts").await, 1);
}

async fn a_corrected_form_is_executed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (new, fields) = (new_post_path(&t), |content| [("content", content), ("schedule_type", "draft")]);
    let page = person.get(&new).await;
    let rejected = person.submit_from(&page, &new, &fields("")).await;
    rejected.expect(422, "Fix these problems");
    let key = |page: &Page| page.hidden_fields(&new).into_iter().find(|(name, _)| name == "_key");
    assert_ne!(key(&page), key(&rejected));
    // A rejected form stores nothing under its key, so the page before can be submitted as well.
    for (page, content) in [(&rejected, "Rye"), (&page, "Wheat")] {
        person.submit_from(page, &new, &fields(content)).await.expect(200, "Draft saved.").expect(200, content);
    }
    assert_eq!(t.app.count_rows("posts WHERE content IN ('Rye', 'Wheat')").await, 2);
}

async fn a_text_survives_a_full_disk(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (new, disk) = (new_post_path(&t), t.app.api.library.disk());
    let fields = [("content", "As typed"), ("schedule_type", "draft")];
    disk.set_low(true);
    let shown = person.submit(&new, &new, &fields).await;
    shown.expect(503, "too little free disk space").expect(503, "As typed</textarea>");
    disk.set_low(false);
    person.submit_from(&shown, &new, &fields).await.expect(200, "Draft saved.");
}

/// The database may have lost only its answer to a commit, so the form that is shown again has the key of the first one.
async fn a_post_is_saved_once_if_the_service_was_unavailable(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (new, disk) = (new_post_path(&t), t.app.api.library.disk());
    let fields = [("content", "Once"), ("schedule_type", "draft")];
    let page = person.get(&new).await;
    disk.set_low(true);
    let shown = person.submit_from(&page, &new, &fields).await;
    shown.expect(503, "Once</textarea>");
    disk.set_low(false);
    person.submit_from(&page, &new, &fields).await.expect(200, "Draft saved.");
    person.submit_from(&shown, &new, &fields).await.expect(200, "Draft saved.");
    assert_eq!(t.app.count_rows("posts WHERE content = 'Once'").await, 1);
    let changed = [("content", "Twice"), ("schedule_type", "draft")];
    let rejected = person.submit_from(&shown, &new, &changed).await;
    rejected.expect(422, "already submitted with other content").expect(422, "Twice</textarea>");
    person.submit_from(&rejected, &new, &changed).await.expect(200, "Draft saved.");
}

async fn images_are_chosen_without_saving(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (one, two) = (upload(&t).await.to_string(), upload(&t).await.to_string());
    let chosen = |page: &Page| -> Vec<String> {
        let boxes = page.text.split("name=\"media\" value=\"").skip(1);
        boxes.filter_map(|rest| Some(rest.split_once("\" checked")?.0.to_owned()).filter(|id| id.len() < 9)).collect()
    };
    let page = person.get(&format!("{}?media={one}", new_post_path(&t))).await;
    assert_eq!(chosen(&page), [one.as_str()], "{}", page.text);
    let fields_as_typed = [("content", "As typed"), ("media", one.as_str())];
    for (action, expected) in [
        (format!("attach:{two}"), vec![one.as_str(), two.as_str()]),
        (format!("attach:{one}"), vec![one.as_str()]),
        (format!("first:{two}"), vec![two.as_str(), one.as_str()]),
        ("library:2".to_owned(), vec![one.as_str()]),
        ("library:999999999999".to_owned(), vec![one.as_str()]),
    ] {
        let fields: Vec<_> = fields_as_typed.into_iter().chain([("_action", action.as_str())]).collect();
        let page = person.submit(&new_post_path(&t), &new_post_path(&t), &fields).await;
        page.expect(200, "As typed");
        assert_eq!(chosen(&page), expected, "{action}: {}", page.text);
    }
    assert_eq!(t.app.count_rows("posts").await, 0);
    let fields = [("content", "x"), ("media", two.as_str()), ("media", one.as_str()), ("schedule_type", "draft")];
    person.submit(&new_post_path(&t), &new_post_path(&t), &fields).await.expect(200, "Draft saved.");
    assert_eq!(only_post(&t).await["media"].to_string(), format!("[{two},{one}]"));
}

async fn an_account_can_have_its_own_images(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (first, second) = (t.account("demo").await.to_string(), t.account("second").await.to_string());
    let (wide, square) = (upload(&t).await.to_string(), upload(&t).await.to_string());
    let fields_as_typed: Vec<(&str, &str)> =
        vec![("content", "Bread"), ("accounts", &first), ("accounts", &second), ("media", &wide)];
    let with = |name: &'static str, value: &'static str| [&fields_as_typed[..], &[(name, value)]].concat();
    let (choose_images, use_post_images) = (format!("images:{second}"), format!("same-images:{second}"));
    let page = person.get(&new_post_path(&t)).await;
    let index = page.text.split_once(&format!(".account_id\" value=\"{second}\"")).expect("its part").0;
    let index = index.rsplit_once("overrides.").expect("its index").1.to_owned();
    let (own_field, field) = (format!("overrides.{index}.own_media"), format!("overrides.{index}.media"));

    // The selection starts with the images of the post.
    let fields = [&fields_as_typed[..], &[("_action", choose_images.as_str())]].concat();
    let page = person.submit_from(&page, &new_post_path(&t), &fields).await;
    page.expect(200, &format!("name=\"{field}\" value=\"{wide}\" checked"));
    page.expect(200, &format!("name=\"{field}\" value=\"{square}\" aria-label"));
    assert!(page.hidden_fields(&new_post_path(&t)).contains(&(own_field, "1".to_owned())), "{}", page.text);

    let fields = [&fields_as_typed[..], &[(field.as_str(), square.as_str()), ("schedule_type", "draft")]].concat();
    person.submit_from(&page, &new_post_path(&t), &fields).await.expect(200, "Draft saved.");
    let post = only_post(&t).await;
    let account_images = |post: &Value, account: &str| {
        let targets = post["targets"].as_array().unwrap().iter();
        targets.clone().find(|target| target["account_id"] == account.parse::<i64>().unwrap()).unwrap()["media"]
            .to_string()
    };
    assert_eq!(
        (account_images(&post, &first), account_images(&post, &second)),
        ("null".to_owned(), format!("[{square}]"))
    );

    // An edit keeps them even if the selection is not shown.
    let path = format!("/brands/{}/posts/{}/edit", t.brand, post["id"]);
    let fields = with("schedule_type", "draft");
    person.submit(&path, &path, &fields).await.expect(200, "Draft saved.");
    assert_eq!(account_images(&only_post(&t).await, &second), format!("[{square}]"));
    // An account can have no images, and can use the post's images again.
    let page =
        person.submit(&path, &path, &[&fields_as_typed[..], &[("_action", choose_images.as_str())]].concat()).await;
    person.submit_from(&page, &path, &fields).await.expect(200, "Draft saved.");
    assert_eq!(account_images(&only_post(&t).await, &second), "[]");
    let page =
        person.submit(&path, &path, &[&fields_as_typed[..], &[("_action", use_post_images.as_str())]].concat()).await;
    person.submit_from(&page, &path, &fields).await.expect(200, "Draft saved.");
    assert_eq!(account_images(&only_post(&t).await, &second), "null");
}

async fn an_image_is_uploaded_from_the_composer(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (page, png) = (person.get(&new_post_path(&t)).await, images::png(20, 20));
    let mut locations = Vec::new();
    for _ in 0..2 {
        let reply = send_file(t.app, &person, &page, &png, false).await;
        assert_eq!(reply.status, 303, "{}", String::from_utf8_lossy(&reply.body));
        locations.push(reply.header("location").unwrap_or_default().to_owned());
    }
    assert_eq!(locations[0], locations[1], "a form that is sent twice stores one image");
    assert_eq!(t.app.count_rows("media").await, 1);
    person.get(&locations[0]).await.expect(200, "Fresh bread").expect(200, "Image uploaded.");
    let page = person.get(&new_post_path(&t)).await;
    let reply = send_file(t.app, &person, &page, &png, true).await;
    let id: i64 = String::from_utf8_lossy(&reply.body).parse().expect("an id");
    assert_eq!((reply.status, t.app.newest_id("media").await), (201, id));
    let page = person.get(&new_post_path(&t)).await;
    let rejected = send_file(t.app, &person, &page, b"no image", true).await;
    assert!(rejected.status == 415 && !rejected.body.starts_with(b"<"), "{rejected:?}");
    let rejected = send_file(t.app, &person, &page, b"no image", false).await;
    assert!(rejected.status == 422 && rejected.body.starts_with(b"<!doctype html>"), "{rejected:?}");
    let text = String::from_utf8_lossy(&rejected.body);
    assert!(text.contains("id=\"e-file\"") && text.contains("name=\"alt_text\" value=\"Fresh bread\""), "{text}");
    // A client that does not send the page of the form.
    let url = format!("{}{}", t.app.url, upload_url(&page));
    let request = t.app.visit("POST", &url).header("cookie", &person.cookie).form(Some(("a.png", &png)), &[]);
    assert_eq!(request.send().await.status, 403);
    assert_eq!(t.app.count_rows("media").await, 2);
}

async fn an_edit_keeps_values_that_the_form_does_not_have(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, image) = (t.account("demo").await, upload(&t).await);
    let account_override = json!({ "account_id": account, "media": [image], "options": { "beyond": [1] } });
    let body = json!({ "content": "x", "accounts": [account], "overrides": [account_override] });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let (path, account) = (format!("/brands/{}/posts/{id}/edit", t.brand), account.to_string());
    let fields =
        [("content", "y"), ("accounts", account.as_str()), ("overrides.0.content", "Own"), ("schedule_type", "draft")];
    person.submit(&path, &path, &fields).await.expect(200, "Draft saved.");
    let target = only_post(&t).await["targets"][0].take();
    assert_fields(&target, json!({ "media": [image], "options": { "beyond": [1] }, "content": "Own" }));
}

async fn an_unchanged_time_keeps_its_seconds(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let body = json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": "2026-07-01T09:30:15",
        "accounts": [account] });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let (path, account) = (format!("/brands/{}/posts/{id}/edit", t.brand), account.to_string());
    let fields = [
        ("content", "y"),
        ("accounts", account.as_str()),
        ("scheduled_at", "2026-07-01T09:30"),
        ("schedule_type", "scheduled"),
    ];
    person.submit(&path, &path, &fields).await.expect(200, "Post scheduled.");
    let post = only_post(&t).await;
    assert_eq!((&post["content"], &post["scheduled_at"]), (&json!("y"), &json!("2026-07-01T07:30:15Z")));
}

async fn a_rejected_submission_leaves_one_draft(t: Tenant<'_>) {
    let account = t.account("demo").await.to_string();
    let person = ConsoleUser::sign_in(&t).await;
    let first = person.get(&new_post_path(&t)).await;
    let fields = [("content", "To approve"), ("_action", "submit")];
    let page = person.submit_from(&first, &new_post_path(&t), &fields).await;
    page.expect(422, "Choose at least one account").expect(422, "To approve");
    let id = only_post(&t).await["id"].as_i64().unwrap();
    let path = format!("/brands/{}/posts/{id}/edit", t.brand);
    let fields = [("content", "To approve"), ("accounts", account.as_str()), ("_action", "submit")];
    for _ in 0..2 {
        person.submit_from(&page, &path, &fields).await.expect(200, "Post submitted for approval.");
    }
    assert_eq!(only_post(&t).await["status"], "pending_approval");
    let basic_plan_tenant = t.app.tenant("bare").await;
    let page = ConsoleUser::sign_in(&basic_plan_tenant).await.get(&new_post_path(&basic_plan_tenant)).await;
    assert!(page.status == 200 && !page.has("Submit for approval"), "the plan has no approvals");
}

async fn the_preview_is_a_fragment_for_the_script(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let (page, path) = (person.get(&new_post_path(&t)).await, format!("/brands/{}/posts/check", t.brand));
    let hidden = page.hidden_fields(&new_post_path(&t));
    let csrf = &hidden.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let fields = [("_csrf", csrf.as_str()), ("content", "Five!"), ("accounts", account.as_str())];
    person.post(&path, &fields).await.expect(200, "New post").expect(200, "Five!").expect(200, "Ready");
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = t.app.visit("POST", &format!("{}{path}", t.app.url)).header("cookie", &person.cookie).raw(body);
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let reply = request.header("x-requested-with", "fetch").send().await;
    let text = String::from_utf8_lossy(&reply.body);
    assert!(reply.status == 200 && text.starts_with("<h2>Preview</h2>") && text.contains("Five!"), "{text}");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn the_preview_has_warnings_about_other_posts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let body = json!({
        "content": "Fresh bread", "schedule_type": "scheduled", "scheduled_at": "2026-07-01T09:30", "accounts": [account],
    });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].to_string();
    let (page, account) = (person.get(&new_post_path(&t)).await, account.to_string());
    let hidden = page.hidden_fields(&new_post_path(&t));
    let csrf = &hidden.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let preview = async |content: &str, time: &str, post: &str| {
        let fields = [
            ("_csrf", csrf.as_str()),
            ("content", content),
            ("accounts", account.as_str()),
            ("scheduled_at", time),
            ("_post", post),
        ];
        let fields = if post.is_empty() { &fields[..4] } else { &fields[..] };
        person.post(&format!("/brands/{}/posts/check", t.brand), fields).await
    };
    let same = "The same text is scheduled on this account for 2026-07-01 at 09:30.";
    let near = "This account has another post within 5 minutes, on 2026-07-01 at 09:30.";
    let both = preview("Fresh bread", "2026-07-01T09:32", "").await;
    both.expect(200, "Ready to publish").expect(200, same).expect(200, near).expect(200, "<p class=\"warning\"");
    let later = preview("Cake", "2026-07-01T09:36", "").await;
    assert!(later.status == 200 && !later.has("class=\"warning\""), "{}", later.text);
    let edited = preview("Fresh bread", "2026-07-01T09:30", &id).await;
    assert!(edited.status == 200 && !edited.has("class=\"warning\""), "{}", edited.text);
    // The time is reported when the post is saved.
    for time in ["2020-01-01T09:30", "soon"] {
        preview("Cake", time, "").await.expect(200, "Ready to publish");
    }
}

async fn labels_are_written_with_commas(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let new = new_post_path(&t);
    let fields = [("content", "x"), ("schedule_type", "draft"), ("labels", " spring,big <sale>, spring ")];
    let page = person.submit(&new, &new, &fields).await;
    page.expect(200, "Draft saved.").expect(200, ">big <sale></a>");
    let post = only_post(&t).await;
    assert_eq!(post["labels"], json!(["spring", "big <sale>"]));
    person.get(&new).await.expect(200, "<option value=\"big <sale>\"></option><option value=\"spring\"></option>");
    let edit = format!("/brands/{}/posts/{}/edit", t.brand, post["id"]);
    let long = "y".repeat(41);
    for (labels, problem) in [("a,b,c,d,e,f,g,h,i,j,k", "at most 10"), (long.as_str(), "at most 40 characters")] {
        let fields = [("content", "x"), ("schedule_type", "draft"), ("labels", labels)];
        let page = person.submit(&edit, &edit, &fields).await;
        page.expect(422, "id=\"e-labels\"").expect(422, problem).expect(422, labels);
    }
    // A label with a comma remains until the labels are changed.
    t.put(&t.path(&format!("/posts/{}", post["id"])), json!({ "labels": ["a, b", "c"] })).await.expect(200);
    for (labels, stored) in [("a, b, c", json!(["a, b", "c"])), ("c,d", json!(["c", "d"])), ("", json!([]))] {
        let fields = [("content", "x"), ("schedule_type", "draft"), ("labels", labels)];
        person.submit(&edit, &edit, &fields).await.expect(200, "Draft saved.");
        assert_eq!(only_post(&t).await["labels"], stored);
    }
}

async fn a_published_post_cannot_be_edited(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let body = json!({ "content": "Out", "schedule_type": "now", "accounts": [account] });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let path = format!("/brands/{}/posts/{id}/edit", t.brand);
    for status in ["publishing", "published"] {
        t.app.end_post(id, status, &[status]).await;
        assert_eq!(person.get(&path).await.status, 409, "{status}");
    }
    t.app.end_post(id, "failed", &["failed"]).await;
    let page = person.get(&path).await;
    page.expect(200, "can no longer be changed");
    assert!(!page.has("Publish now") && !page.has("name=\"scheduled_at\""), "{}", page.text);
    person.submit_from(&page, &path, &[("content", "Corrected"), ("_action", "save")]).await.expect(200, "Corrected");
    let post = only_post(&t).await;
    assert_eq!((&post["status"], &post["content"]), (&json!("failed"), &json!("Corrected")));
}

/// Two tabs, or two people, edit the same post.
async fn a_post_that_was_changed_meanwhile_is_not_overwritten(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await.to_string();
    let fields = |content, kind| [("content", content), ("accounts", account.as_str()), ("schedule_type", kind)];
    person.submit(&new_post_path(&t), &new_post_path(&t), &fields("Bread", "draft")).await.expect(200, "Draft saved.");
    let path = format!("/brands/{}/posts/{}/edit", t.brand, only_post(&t).await["id"]);
    let page = person.get(&path).await;
    t.app.clock.advance(TimeDelta::seconds(1));
    person.submit(&path, &path, &fields("Their bread", "draft")).await.expect(200, "Draft saved.");
    for action in [("schedule_type", "now"), ("_action", "submit")] {
        let fields = [("content", "My bread"), ("accounts", account.as_str()), action];
        let shown = person.submit_from(&page, &path, &fields).await;
        shown.expect(422, "was changed after you opened this form").expect(422, "My bread</textarea>");
        let post = only_post(&t).await;
        assert_eq!((&post["content"], &post["status"]), (&json!("Their bread"), &json!("draft")), "{action:?}");
    }
    // An action that saves nothing reports no changes, so the next one does.
    let shown = person.submit_from(&page, &path, &[("content", "My bread"), ("_action", "add-part")]).await;
    let shown = person.submit_from(&shown, &path, &fields("My bread", "draft")).await;
    shown.expect(422, "was changed after you opened this form");
    person.submit_from(&shown, &path, &fields("My bread", "draft")).await.expect(200, "Draft saved.");
    assert_eq!(only_post(&t).await["content"], "My bread");
}

async fn a_form_of_a_post_that_was_published_meanwhile_keeps_its_text(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id =
        t.post(&t.path("/posts"), json!({ "content": "Bread", "accounts": [account] })).await.data(201)["id"].clone();
    let path = format!("/brands/{}/posts/{id}/edit", t.brand);
    let page = person.get(&path).await;
    t.app.clock.advance(TimeDelta::seconds(1));
    t.put(&t.path(&format!("/posts/{id}")), json!({ "schedule_type": "now" })).await.expect(200);
    let account = account.to_string();
    let fields = [("content", "Rolls"), ("accounts", account.as_str()), ("schedule_type", "now")];
    let shown = person.submit_from(&page, &path, &fields).await;
    shown.expect(422, "is being published").expect(422, "Rolls</textarea>").expect(422, "can no longer be saved");
    assert!(!shown.has("Save changes"), "{}", shown.text);
    assert_eq!(only_post(&t).await["content"], "Bread");
}

async fn a_form_of_a_post_that_was_deleted_meanwhile_keeps_its_text(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = t.post(&t.path("/posts"), json!({ "content": "Bread" })).await.data(201)["id"].clone();
    let path = format!("/brands/{}/posts/{id}/edit", t.brand);
    let page = person.get(&path).await;
    t.delete(&t.path(&format!("/posts/{id}"))).await.expect(204);
    let fields = [("content", "Rolls"), ("schedule_type", "draft")];
    let shown = person.submit_from(&page, &path, &fields).await;
    shown.expect(404, "The post was deleted").expect(404, "Rolls</textarea>");
    person.submit_from(&shown, &new_post_path(&t), &fields).await.expect(200, "Draft saved.");
    assert_eq!(only_post(&t).await["content"], "Rolls");
}

async fn other_brands_records_are_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let id = other.post(&other.path("/posts"), json!({ "content": "A secret plan" })).await.data(201)["id"].clone();
    let image = upload(&other).await;
    let person = ConsoleUser::sign_in(&t).await;
    for id in [id.to_string(), MISSING_ID.to_string()] {
        person.get(&format!("/brands/{}/posts/{id}/edit", t.brand)).await.expect(404, "Page not found");
    }
    let page = person.get(&format!("{}?media={image}", new_post_path(&t))).await;
    assert!(page.status == 200 && !page.has("bread.png"), "{}", page.text);
    let id = id.to_string();
    let hidden = page.hidden_fields(&new_post_path(&t));
    let csrf = hidden.iter().filter(|(name, _)| name == "_csrf").map(|(name, value)| (name.as_str(), value.as_str()));
    let fields: Vec<_> = csrf.chain([("content", "x"), ("_post", id.as_str())]).collect();
    assert_eq!(person.post(&format!("/brands/{}/posts/check", t.brand), &fields).await.status, 404);
    assert_eq!(person.post(&format!("/brands/{}/posts/{id}/edit", t.brand), &fields).await.status, 404);
}
