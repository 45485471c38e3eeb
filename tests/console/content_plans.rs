//! Content plans: the list, their items, and the posts that are made from them.

use serde_json::{Value, json};

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;
use crate::support::request::assert_fields;

on_sqlite_app!(console "unlimited" =>
    errors_in_a_plan_and_an_item_are_shown,
    problems_of_scheduling_are_shown,
    items_are_paged,
);
on_one_app!("unlimited" =>
    items_are_added_changed_and_deleted,
    a_post_is_created_from_an_item_once,
    an_item_becomes_a_draft_or_waits_for_approval,
);
on_one_app!(console "unlimited" => a_plan_is_created_changed_and_deleted);

/// Creates a plan with an item at 07:30 in Berlin; returns it.
async fn create_plan(t: &Tenant<'_>, name: &str) -> Value {
    let item = json!({ "title": "Rye week", "content": "All week", "planned_at": "2030-01-07T07:30" });
    t.post(&t.path("/content-plans"), json!({ "name": name, "items": [item] })).await.data(201)
}

/// Returns the paths of a plan and of its item.
fn paths(t: &Tenant<'_>, plan: &Value) -> (String, String) {
    let path = t.path(&format!("/plans/{}", plan["id"]));
    let item = format!("{path}/items/{}", plan["items"][0]["id"]);
    (path, item)
}

async fn read(t: &Tenant<'_>, plan: &Value) -> Value {
    t.get(&t.path(&format!("/content-plans/{}", plan["id"]))).await.data(200)
}

async fn a_plan_is_created_changed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (list, new) = (t.path("/plans"), t.path("/plans/new"));
    person.get(&list).await.expect(200, "No plans yet");
    let page = person.get(&new).await;
    let form = [("name", "Spring"), ("description", ""), ("starts_on", "2030-01-01"), ("ends_on", "2030-01-31")];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &new, &form).await;
        shown.expect(200, "Plan created.").expect(200, "1 Jan to 31 Jan 2030").expect(200, "No items here");
    }
    assert_eq!(t.app.count_rows("content_plans").await, 1);
    person.get(&list).await.expect(200, "Spring").expect(200, "1 Jan to 31 Jan 2030");
    let path = t.path(&format!("/plans/{}", t.app.newest_id("content_plans").await));
    let edit = format!("{path}/edit");
    person.get(&edit).await.expect(200, "value=\"Spring\"").expect(200, "value=\"2030-01-31\"");
    let form = [("name", "Summer"), ("description", "Ice"), ("starts_on", ""), ("ends_on", "2030-08-31")];
    let shown = person.submit(&edit, &edit, &form).await;
    shown.expect(200, "Plan saved.").expect(200, "Until 31 Aug 2030").expect(200, "Ice");
    person.submit(&edit, &format!("{path}/delete"), &[]).await.expect(200, "No plans yet");
    person.get(&path).await.expect(404, "Page not found");
}

async fn items_are_added_changed_and_deleted(t: Tenant<'_>) {
    let created = create_plan(&t, "Spring").await;
    let (path, item) = paths(&t, &created);
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&path).await;
    page.expect(200, "Rye week")
        .expect(200, "7 Jan 2030, 07:30")
        .expect(200, "Planned")
        .expect(200, "In Europe/Berlin.");
    let form = [("title", "Buns"), ("content", "Hot"), ("planned_at", "")];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &format!("{path}/items"), &form).await;
        shown.expect(200, "Item added.").expect(200, "No date yet");
    }
    assert_eq!(read(&t, &created).await["items"].as_array().map(Vec::len), Some(2));
    let shown = person.get(&item).await;
    shown.expect(200, "value=\"2030-01-07T07:30\"").expect(200, "value=\"calendar\" checked");
    let form = [("title", "Rye"), ("content", ""), ("planned_at", "2030-07-01T12:00")];
    person.submit(&item, &item, &form).await.expect(200, "Item saved.").expect(200, "value=\"Rye\"");
    let changed = read(&t, &created).await["items"][0].clone();
    assert_fields(&changed, json!({ "title": "Rye", "content": null, "planned_at": "2030-07-01T10:00:00Z" }));
    let shown = person.submit(&item, &format!("{item}/delete"), &[]).await;
    shown.expect(200, "Item deleted.").expect(200, "Buns");
    person.get(&item).await.expect(404, "Page not found");
}

async fn errors_in_a_plan_and_an_item_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_plan(&t, "Spring").await;
    let (path, item) = paths(&t, &created);
    for at in [t.path("/plans/new"), format!("{path}/edit")] {
        let form = [("name", ""), ("starts_on", "2030-02-01"), ("ends_on", "2030-01-01")];
        let page = person.submit(&at, &at, &form).await;
        page.expect(422, "e-name").expect(422, "e-ends_on").expect(422, "value=\"2030-02-01\"");
    }
    let long = "x".repeat(65_536);
    for (from, action) in [(&path, format!("{path}/items")), (&item, item.clone())] {
        let form = [("title", " "), ("content", long.as_str()), ("planned_at", "soon")];
        let page = person.submit(from, &action, &form).await;
        page.expect(422, "e-title").expect(422, "e-content").expect(422, "e-planned_at").expect(422, "value=\"soon\"");
    }
    assert_eq!(read(&t, &created).await, created);
}

async fn a_post_is_created_from_an_item_once(t: Tenant<'_>) {
    let account = t.account("bakery").await.to_string();
    let created = create_plan(&t, "Spring").await;
    let (path, item) = paths(&t, &created);
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&item).await;
    let form = [("destination", "calendar"), ("account_ids", account.as_str())];
    let hidden = page.hidden_fields(&format!("{item}/schedule"));
    let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fields: Vec<(&str, &str)> = hidden.chain(form).collect();
    for _ in 0..2 {
        let response = person.post(&format!("{item}/schedule"), &fields).await;
        let post = t.app.newest_id("posts").await;
        let to = t.path(&format!("/posts/{post}?note=post-scheduled"));
        assert_eq!((response.status, response.reply.header("location")), (303, Some(to.as_str())));
    }
    assert_eq!(t.app.count_rows("posts WHERE status = 'scheduled'").await, 1);
    person.get(&item).await.expect(200, "A post was created from this item.").expect(200, "Scheduled");
    person.get(&path).await.expect(200, "Scheduled");
    // A form from a page that was opened earlier.
    let response =
        person.post(&format!("{item}/schedule"), &[fields[0], ("_key", "another-key"), fields[2], fields[3]]).await;
    response.expect(422, "was already created from this item");
    assert_eq!(t.app.count_rows("posts").await, 1);
}

async fn an_item_becomes_a_draft_or_waits_for_approval(t: Tenant<'_>) {
    let account = t.account("bakery").await.to_string();
    let (first, second) = (create_plan(&t, "First").await, create_plan(&t, "Second").await);
    let person = ConsoleUser::sign_in(&t).await;
    for (plan, destination, status) in [(&first, "draft", "draft"), (&second, "approval", "pending_approval")] {
        let (path, item) = paths(&t, plan);
        let form = [("destination", destination), ("account_ids", account.as_str())];
        person.submit(&item, &format!("{item}/schedule"), &form).await;
        assert_eq!(t.app.count_rows(format!("posts WHERE status = '{status}'")).await, 1, "{destination}");
        assert!(!person.get(&path).await.has("Planned"));
    }
    let basic = t.app.tenant("pro").await;
    let (_, item) = paths(&basic, &create_plan(&basic, "Basic").await);
    let page = ConsoleUser::sign_in(&basic).await.get(&item).await;
    page.expect(200, "You can continue editing it.");
    assert!(!page.has("Post pending approval"), "the plan lacks approvals");
}

async fn problems_of_scheduling_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("bakery").await.to_string();
    let created = create_plan(&t, "Spring").await;
    let (_, item) = paths(&t, &created);
    let schedule = format!("{item}/schedule");
    let page = person.submit(&item, &schedule, &[("destination", "calendar")]).await;
    page.expect(422, "e-account_ids").expect(422, "value=\"Rye week\"");
    let form = [("destination", "moon"), ("account_ids", account.as_str()), ("account_ids", "x")];
    person
        .submit(&item, &schedule, &form)
        .await
        .expect(422, "e-destination")
        .expect(422, &format!("value=\"{account}\" checked"));
    t.app.sql("UPDATE content_plan_items SET planned_at = NULL").await;
    let form = [("destination", "calendar"), ("account_ids", account.as_str())];
    person.submit(&item, &schedule, &form).await.expect(422, "The item has no planned time.");
    t.app.expire_account(account.parse().unwrap()).await;
    person.get(&item).await.expect(200, "Expired. Reconnect it to publish.").expect(200, "value=\"draft\" checked");
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn items_are_paged(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let items: Vec<Value> = (0..21).map(|n| json!({ "title": format!("Item {n:02}") })).collect();
    let created = t.post(&t.path("/content-plans"), json!({ "name": "Long", "items": items })).await.data(201);
    let path = t.path(&format!("/plans/{}", created["id"]));
    let page = person.get(&path).await;
    page.expect(200, "1–20 of 21").expect(200, "Item 19");
    assert!(!page.has("Item 20"));
    person.get(&format!("{path}?page=2")).await.expect(200, "21–21 of 21").expect(200, "Item 20");
    for page in ["9", "9223372036854775807"] {
        person.get(&format!("{path}?page={page}")).await.expect(200, "No items here");
    }
    person.get(&format!("{path}?page=x")).await.expect(200, "1–20 of 21");
}
