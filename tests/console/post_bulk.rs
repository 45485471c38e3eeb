//! Actions on the selected posts of the list.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::{ConsoleUser, Page};

on_one_app!(only_own_posts_are_changed, the_bar_offers_what_the_role_and_the_plan_permit);
on_one_app!(console "unlimited" =>
    selected_posts_are_changed_together,
    posts_that_were_changed_meanwhile_are_not_published,
    the_list_keeps_its_filters,
    posts_that_are_not_changed_stay_selected,
    errors_are_shown_beside_the_entered_values,
);

fn list_path(t: &Tenant<'_>) -> String {
    format!("/brands/{}/posts", t.brand)
}

async fn create_draft(t: &Tenant<'_>, content: &str, accounts: &[i64]) -> i64 {
    let body = json!({ "content": content, "accounts": accounts });
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

async fn read_post(t: &Tenant<'_>, id: i64) -> Value {
    t.get(&t.path(&format!("/posts/{id}"))).await.data(200)
}

/// Opens the list, and submits the bar with these posts and fields.
async fn submit(t: &Tenant<'_>, person: &ConsoleUser<'_>, ids: &[i64], fields: &[(&str, &str)]) -> Page {
    let (list, ids) = (list_path(t), ids.iter().map(i64::to_string).collect::<Vec<_>>());
    let all: Vec<_> = ids.iter().map(|id| ("ids", id.as_str())).chain(fields.iter().copied()).collect();
    person.submit(&list, &format!("{list}/bulk"), &all).await
}

/// Returns whether the checkbox of the post is checked.
fn is_selected(page: &Page, id: i64) -> bool {
    page.has(&format!("name=\"ids\" value=\"{id}\" checked"))
}

async fn selected_posts_are_changed_together(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let mut ids = Vec::new();
    for content in ["one", "two", "three"] {
        ids.push(create_draft(&t, content, &[account]).await);
    }
    let list = list_path(&t);
    let page = person.get(&list).await;
    let (first, second) = (ids[0].to_string(), ids[1].to_string());
    let fields = [("ids", first.as_str()), ("ids", second.as_str()), ("action", "label"), ("label", "spring")];
    for _ in 0..2 {
        let list = person.submit_from(&page, &format!("{list}/bulk"), &fields).await;
        list.expect(200, "Label added.");
        assert!(!is_selected(&list, ids[0]), "{}", list.text);
    }
    let labels = async |id| read_post(&t, id).await["labels"].clone();
    assert_eq!([labels(ids[0]).await, labels(ids[2]).await], [json!(["spring"]), json!([])]);
    // The script checks all boxes; without it, the box for all selects the posts of the page.
    let all = submit(&t, &person, &[], &[("all", "true"), ("action", "label"), ("label", "bread")]).await;
    all.expect(200, "Label added.");
    assert_eq!(labels(ids[2]).await, json!(["bread"]));

    let at = "2026-07-01T09:30";
    let expected = ["07:30:00Z", "07:00:00Z"].map(|time| json!(format!("2026-07-03T{time}")));
    for (fields, message) in [
        (vec![("action", "unlabel"), ("label", " bread ")], "Label removed."),
        (vec![("action", "schedule"), ("scheduled_at", at), ("label", "ignored")], "Posts scheduled."),
        (vec![("action", "later"), ("amount", "2"), ("unit", "days")], "Posts moved."),
        (vec![("action", "earlier"), ("amount", "30"), ("unit", "minutes")], "Posts moved."),
    ] {
        submit(&t, &person, &ids[..2], &fields).await.expect(200, message);
        let post = read_post(&t, ids[1]).await;
        match fields[0].1 {
            "unlabel" => assert_eq!(post["labels"], json!(["spring"])),
            "schedule" => assert_eq!(post["scheduled_at"], "2026-07-01T07:30:00Z"),
            "later" => assert_eq!(post["scheduled_at"], expected[0]),
            _ => assert_eq!((&post["scheduled_at"], &post["status"]), (&expected[1], &json!("scheduled"))),
        }
    }
    for (action, message, status) in [
        ("draft", "Posts returned to draft.", "draft"),
        ("submit", "Posts submitted for approval.", "pending_approval"),
        ("reject", "Posts rejected.", "draft"),
        ("submit", "Posts submitted for approval.", "pending_approval"),
        ("approve", "Posts approved.", "scheduled"),
    ] {
        submit(&t, &person, &ids[..2], &[("action", action)]).await.expect(200, message);
        for id in &ids[..2] {
            assert_eq!(read_post(&t, *id).await["status"], status, "{action}");
        }
    }
    let page = submit(&t, &person, &ids[..2], &[("action", "delete")]).await;
    page.expect(200, "Posts deleted.").expect(200, "1–1 of 1");
}

async fn posts_that_were_changed_meanwhile_are_not_published(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let (kept, changed) = (create_draft(&t, "Rye", &[account]).await, create_draft(&t, "Wheat", &[account]).await);
    let (list, bulk) = (list_path(&t), format!("{}/bulk", list_path(&t)));
    let edit = async |content: &str| {
        t.app.clock.advance(TimeDelta::seconds(1));
        t.put(&t.path(&format!("/posts/{changed}")), json!({ "content": content })).await.expect(200);
    };
    let page = person.get(&list).await;
    edit("Everything is free").await;
    let schedule = [("all", "true"), ("action", "schedule"), ("scheduled_at", "2026-07-01T09:30")];
    let shown = person.submit_from(&page, &bulk, &schedule).await;
    shown.expect(200, "1 post was changed. 1 post was not changed and is still selected:");
    shown.expect(200, ">Everything is free</a>: ").expect(200, "was changed in the meantime");
    assert_eq!(read_post(&t, changed).await["status"], "draft");
    assert_eq!(read_post(&t, kept).await["status"], "scheduled");
    // A label does not publish the text, so it does not depend on it.
    let (one, other) = (changed.to_string(), kept.to_string());
    let label = [("ids", one.as_str()), ("ids", other.as_str()), ("action", "label"), ("label", "bread")];
    person.submit_from(&page, &bulk, &label).await.expect(409, "already submitted with other content");
    person.submit_from(&shown, &bulk, &label).await.expect(200, "Label added.");

    let submit = [("ids", one.as_str()), ("action", "submit")];
    person.submit(&list, &bulk, &submit).await.expect(200, "Posts submitted for approval.");
    let page = person.get(&list).await;
    edit("Everything is half price").await;
    let approve = [("ids", one.as_str()), ("action", "approve")];
    let shown = person.submit_from(&page, &bulk, &approve).await;
    shown.expect(200, "was changed in the meantime").expect(200, ">Everything is half price</a>: ");
    assert_eq!(read_post(&t, changed).await["status"], "pending_approval");
    // The page with the reason shows the new text.
    person.submit_from(&shown, &bulk, &approve).await.expect(200, "Posts approved.");
}

async fn the_list_keeps_its_filters(t: Tenant<'_>, person: ConsoleUser<'_>) {
    for n in 0..21 {
        create_draft(&t, &format!("Bread {n}."), &[]).await;
    }
    let query = "status=draft&search=bread&page=2";
    let (list, action) = (format!("{}?{query}", list_path(&t)), format!("{}/bulk?{query}", list_path(&t)));
    let label = [("all", "true"), ("action", "label"), ("label", "old")];
    let page = person.submit(&list, &action, &label).await;
    page.expect(200, "Label added.").expect(200, "21–21 of 21");
    assert!(page.path.starts_with(&list), "{}", page.path);
    assert_eq!(t.app.count_rows("post_labels").await, 1);
    // The last page no longer exists.
    let page = person.submit(&list, &action, &[("all", "true"), ("action", "delete")]).await;
    page.expect(200, "Posts deleted.").expect(200, "1–20 of 20");
}

async fn posts_that_are_not_changed_stay_selected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let published = create_draft(&t, "Old <bread>", &[account]).await;
    t.app.end_post(published, "published", &["published"]).await;
    let (bare, good) = (create_draft(&t, "No account", &[]).await, create_draft(&t, "Fresh bread", &[account]).await);
    let fields = [("action", "schedule"), ("scheduled_at", "2026-07-01T09:30")];
    let page = submit(&t, &person, &[published, bare, good], &fields).await;
    page.expect(200, "1 post was changed. 2 posts were not changed and are still selected:");
    page.expect(200, &format!("href=\"{}/{published}\" dir=\"auto\">Old <bread></a>: ", list_path(&t)));
    page.expect(200, ">No account</a>: ").expect(200, "role=\"alert\" id=\"errors\"");
    assert_eq!([published, bare, good].map(|id| is_selected(&page, id)), [true, true, false], "{}", page.text);
    assert_eq!(read_post(&t, good).await["status"], "scheduled");
    assert_eq!(read_post(&t, bare).await["status"], "draft");
    // The returned form can be submitted.
    let one = bare.to_string();
    let fields = [("ids", one.as_str()), ("action", "delete")];
    let bulk = format!("{}/bulk", list_path(&t));
    person.submit_from(&page, &bulk, &fields).await.expect(200, "Posts deleted.");
    let page = submit(&t, &person, &[published], &[("action", "draft")]).await;
    page.expect(200, "<strong>1 post was not changed and is still selected:");
}

async fn errors_are_shown_beside_the_entered_values(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (id, long) = (create_draft(&t, "x", &[]).await, "é".repeat(41));
    for (fields, path, value) in [
        (vec![("action", "label"), ("label", " ")], "label", ""),
        (vec![("action", "label"), ("label", long.as_str())], "label", long.as_str()),
        (vec![("action", "later"), ("amount", "")], "shift_minutes", ""),
        (vec![("action", "earlier"), ("amount", "1.5"), ("unit", "hours")], "shift_minutes", "1.5"),
        (vec![("action", "later"), ("amount", "9223372036854775807"), ("unit", "days")], "shift_minutes", "922"),
        (vec![("action", "schedule"), ("scheduled_at", "soon")], "scheduled_at", "soon"),
    ] {
        let page = submit(&t, &person, &[id], &fields).await;
        page.expect(422, &format!("id=\"e-{path}\"")).expect(422, "Fix these problems").expect(422, value);
        assert!(is_selected(&page, id), "{fields:?}: {}", page.text);
    }
    for action in ["", "publish"] {
        submit(&t, &person, &[id], &[("action", action)]).await.expect(422, ">Action</a>");
    }
    let page = submit(&t, &person, &[], &[("action", "delete")]).await;
    page.expect(422, "Choose at least one post.").expect(422, "id=\"e-ids\"");
    assert_eq!(read_post(&t, id).await["labels"], json!([]));
}

async fn only_own_posts_are_changed(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (own, theirs) = (create_draft(&t, "mine", &[]).await, create_draft(&other, "theirs", &[]).await);
    let person = ConsoleUser::sign_in(&t).await;
    let page = submit(&t, &person, &[theirs, own], &[("action", "delete")]).await;
    page.expect(200, "1 post was changed.").expect(200, &format!(">Post {theirs}</a>"));
    assert!(!page.has(">theirs<"), "{}", page.text);
    read_post(&other, theirs).await;
}

async fn the_bar_offers_what_the_role_and_the_plan_permit(app: TestApp) {
    let (t, pro) = (app.tenant("unlimited").await, app.tenant("pro").await);
    let account = t.account("demo").await;
    let id = create_draft(&t, "x", &[account]).await;
    create_draft(&pro, "x", &[]).await;
    let (editor, contributor) = (t.colleague(Role::Editor).await, t.colleague(Role::Contributor).await);
    let everyone = ["later", "earlier", "label", "unlabel", "delete"];
    for (who, more) in [
        (&t, vec!["schedule", "draft", "submit", "approve", "reject"]),
        (&editor, vec!["schedule", "draft", "submit"]),
        (&contributor, vec!["submit"]),
        (&pro, vec!["schedule", "draft"]),
    ] {
        let page = ConsoleUser::sign_in(who).await.get(&list_path(who)).await;
        for action in ["schedule", "draft", "submit", "approve", "reject"].iter().chain(&everyone) {
            let is_offered = page.has(&format!("name=\"action\" value=\"{action}\""));
            assert_eq!(is_offered, more.contains(action) || everyone.contains(action), "{action}: {}", page.text);
        }
    }
    let person = ConsoleUser::sign_in(&contributor).await;
    let page = submit(&contributor, &person, &[id], &[("action", "approve")]).await;
    page.expect(200, "1 post was not changed and is still selected:");
    let page = submit(&contributor, &person, &[id], &[("action", "submit")]).await;
    page.expect(200, "Posts submitted for approval.");
    let person = ConsoleUser::sign_in(&pro).await;
    let page = submit(&pro, &person, &[id], &[("action", "submit")]).await;
    page.expect(402, "Your plan does not include approvals.");
}
