//! Link-in-bio pages: the list, their texts, themes and links.

use serde_json::{Value, json};

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;
use crate::support::request::assert_fields;

on_one_app!(console "unlimited" =>
    links_are_added_changed_and_removed,
    links_are_moved_by_one_place,
    one_link_is_primary,
    a_page_is_created_changed_and_deleted,
);
on_sqlite_app!(console "unlimited" => problems_of_a_page_are_shown, problems_of_a_link_are_shown_at_its_fields);

/// Creates a page with two links; returns it.
async fn create_page(t: &Tenant<'_>) -> Value {
    let links = json!([
        { "title": "Our shop", "url": "https://acme.example/shop", "icon": "shop", "is_primary": true },
        { "title": "Call us", "url": "tel:+4930123456" },
    ]);
    t.post(&t.path("/link-in-bio"), json!({ "title": "Acme Bakery", "links": links })).await.data(201)
}

async fn stored_links(t: &Tenant<'_>, page: &Value) -> Value {
    t.get(&t.path(&format!("/link-in-bio/{}", page["id"]))).await.data(200)["links"].clone()
}

async fn a_page_is_created_changed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (list, new) = (t.path("/bio"), t.path("/bio/new"));
    person.get(&list).await.expect(200, "No pages yet");
    let page = person.get(&new).await;
    page.expect(200, "value=\"light\" checked").expect(200, "The library is empty.");
    let form = [("title", "Acme Bakery"), ("slug", ""), ("theme", "ocean"), ("bio", "Bread"), ("avatar", "")];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &new, &form).await;
        shown.expect(200, "Page created.").expect(200, "/@acme-bakery").expect(200, "bio-show theme-ocean");
    }
    assert_eq!(t.app.count_rows("bio_pages").await, 1);
    person.get(&list).await.expect(200, "Acme Bakery").expect(200, "Ocean");
    let id = t.app.newest_id("bio_pages").await;
    let path = t.path(&format!("/bio/{id}"));
    let form = [("title", "Acme"), ("slug", "acme"), ("theme", "dark"), ("bio", ""), ("avatar", "")];
    let shown = person.submit(&path, &path, &form).await;
    shown.expect(200, "Page saved.").expect(200, "/@acme").expect(200, "value=\"dark\" checked");
    assert_eq!(t.app.count_rows("bio_pages WHERE bio IS NULL AND slug = 'acme'").await, 1);
    for library in ["0", "x", "7", "9223372036854775807"] {
        assert_eq!(person.get(&format!("{path}?library={library}")).await.status, 200);
    }
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No pages yet");
    person.get(&path).await.expect(404, "Page not found");
}

async fn problems_of_a_page_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_page(&t).await;
    let path = t.path(&format!("/bio/{}", created["id"]));
    let long = "x".repeat(501);
    for at in [t.path("/bio/new"), path] {
        let form = [("title", ""), ("slug", "Not A Slug"), ("theme", "pink"), ("bio", long.as_str()), ("avatar", "x")];
        let page = person.submit(&at, &at, &form).await;
        for field in ["e-title", "e-slug", "e-theme", "e-bio", "e-avatar", "value=\"Not A Slug\""] {
            page.expect(422, field);
        }
        let page = person.submit(&at, &at, &[("title", "Other"), ("avatar", "999999999")]).await;
        page.expect(422, "e-avatar").expect(422, "value=\"Other\"");
    }
    let new = t.path("/bio/new");
    let page = person.submit(&new, &new, &[("title", "Second"), ("slug", "acme-bakery")]).await;
    page.expect(422, "Another page already uses this URL.");
    assert_eq!(t.app.count_rows("bio_pages WHERE title = 'Acme Bakery'").await, 1);
    assert_eq!(t.app.count_rows("bio_pages").await, 1);
}

async fn links_are_added_changed_and_removed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_page(&t).await;
    t.app.sql("UPDATE bio_links SET clicks = 1234").await;
    let path = t.path(&format!("/bio/{}", created["id"]));
    person.get(&path).await.expect(200, "Our shop").expect(200, "1,234 clicks").expect(200, "Icon: shop");
    let new = format!("{path}/links/new");
    let page = person.get(&new).await;
    let form = [("title", "Map"), ("url", "https://acme.example/map"), ("icon", "map")];
    for _ in 0..2 {
        person.submit_from(&page, &new, &form).await.expect(200, "Link added.").expect(200, "Icon: map");
    }
    let stored = stored_links(&t, &created).await;
    assert_eq!((stored.as_array().map(Vec::len), &stored[2]["title"]), (Some(3), &json!("Map")));
    assert_eq!((&stored[0]["id"], &stored[0]["clicks"]), (&created["links"][0]["id"], &json!(1234)));
    let link = format!("{path}/links/{}", stored[0]["id"]);
    let page = person.get(&link).await;
    page.expect(200, "value=\"shop\" selected").expect(200, "value=\"true\" checked");
    let form = [("title", "Shop"), ("url", "mailto:ann@acme.example"), ("icon", "")];
    for _ in 0..2 {
        person.submit_from(&page, &link, &form).await.expect(200, "Link saved.");
    }
    let changed = stored_links(&t, &created).await[0].clone();
    assert_fields(&changed, json!({ "title": "Shop", "icon": null, "clicks": 1234, "is_primary": false }));
    let page = person.get(&link).await;
    for _ in 0..2 {
        person.submit_from(&page, &format!("{link}/delete"), &[]).await.expect(200, "Link removed.");
    }
    assert_eq!(stored_links(&t, &created).await.as_array().map(Vec::len), Some(2));
}

async fn links_are_moved_by_one_place(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_page(&t).await;
    let path = t.path(&format!("/bio/{}", created["id"]));
    let action = format!("{path}/links");
    let down = format!("down:{}", created["links"][0]["id"]);
    let page = person.get(&path).await;
    person.submit_from(&page, &action, &[("_action", &down)]).await.expect(200, "Link order saved.");
    // The first link is now the last one, and stays there.
    assert_eq!(person.submit_from(&page, &action, &[("_action", &down)]).await.status, 200);
    assert_eq!(stored_links(&t, &created).await[1]["id"], created["links"][0]["id"]);
    let up = format!("up:{}", created["links"][0]["id"]);
    person.submit(&path, &action, &[("_action", &up)]).await.expect(200, "Link order saved.");
    assert_eq!(stored_links(&t, &created).await[0]["id"], created["links"][0]["id"]);
    for unknown in ["", "up", "up:x", "up:999999999"] {
        person.submit(&path, &action, &[("_action", unknown)]).await.expect(404, "Page not found");
    }
}

async fn one_link_is_primary(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_page(&t).await;
    let path = t.path(&format!("/bio/{}", created["id"]));
    let link = format!("{path}/links/{}", created["links"][1]["id"]);
    let form = [("title", "Call us"), ("url", "tel:+4930123456"), ("icon", ""), ("is_primary", "true")];
    person.submit(&link, &link, &form).await.expect(200, "Link saved.");
    let stored = stored_links(&t, &created).await;
    assert_eq!((&stored[0]["is_primary"], &stored[1]["is_primary"]), (&json!(false), &json!(true)));
    let new = format!("{path}/links/new");
    let form = [("title", "First"), ("url", "https://acme.example"), ("icon", ""), ("is_primary", "true")];
    person.submit(&new, &new, &form).await.expect(200, "Link added.");
    let stored = stored_links(&t, &created).await;
    assert_eq!((&stored[1]["is_primary"], &stored[2]["is_primary"]), (&json!(false), &json!(true)));
}

async fn problems_of_a_link_are_shown_at_its_fields(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let created = create_page(&t).await;
    let path = t.path(&format!("/bio/{}/links", created["id"]));
    for at in [format!("{path}/new"), format!("{path}/{}", created["links"][1]["id"])] {
        let form = [("title", ""), ("url", "javascript:alert(1)"), ("icon", "skull")];
        let page = person.submit(&at, &at, &form).await;
        for field in ["e-title", "e-url", "e-icon", "value=\"javascript:alert(1)\""] {
            page.expect(422, field);
        }
    }
    assert_eq!(stored_links(&t, &created).await, created["links"]);
}
