//! Link-in-bio pages, as their owners see them.

use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;
use crate::support::request::assert_fields;

on_both_apps!(a_page_is_created_read_and_deleted, slugs_are_unique_across_workspaces);
on_both_apps!("unlimited" =>
    a_slug_is_derived_from_the_title,
    concurrent_pages_get_distinct_slugs,
    an_update_keeps_omitted_fields,
    reordered_links_keep_their_clicks,
    an_avatar_is_shown_and_cannot_be_deleted,
    concurrent_avatar_update_and_deletion_conflict,
    a_link_has_an_icon_and_one_stands_out,
);
on_one_app!("unlimited" => invalid_fields_are_reported);

async fn make(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/link-in-bio"), body).await.data(201)
}

fn link(title: &str) -> Value {
    json!({ "title": title, "url": "https://example.com" })
}

async fn a_page_is_created_read_and_deleted(app: TestApp) {
    let t = app.tenant("free").await;
    assert_eq!(t.get(&t.path("/link-in-bio")).await.expect(200), json!({ "data": [] }));
    let links = json!([{ "title": "Menu <1>", "url": "https://example.com/a?x=1&y=2" }, { "title": "Call", "url": "tel:+4930123" }]);
    let body =
        json!({ "title": "Café <i>Löwe</i>", "slug": "loewe", "theme": "ocean", "bio": "Best & only", "links": links });
    let reply = t.post(&t.path("/link-in-bio"), body).await;
    let created = reply.data(201);
    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    assert_fields(&created, json!({ "title": "Café <i>Löwe</i>", "bio": "Best & only", "slug": "loewe" }));
    assert_fields(&created, json!({ "theme": "ocean", "views": 0, "url": format!("{}/@loewe", app.url) }));
    let shown: Vec<_> = created["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["title"].clone(), l["url"].clone(), l["position"].clone(), l["clicks"].clone()))
        .collect();
    assert_eq!(shown[0], (json!("Menu <1>"), json!("https://example.com/a?x=1&y=2"), json!(1), json!(0)));
    assert_eq!(shown[1], (json!("Call"), json!("tel:+4930123"), json!(2), json!(0)));
    assert_eq!(t.get(&path).await.data(200), created);
    let second = make(&t, json!({ "title": "Second", "bio": null, "links": null })).await;
    assert_eq!((&second["theme"], &second["bio"], &second["links"]), (&json!("light"), &Value::Null, &json!([])));
    assert_eq!(t.get(&t.path("/link-in-bio")).await.expect(200), json!({ "data": [second, created] }));
    t.delete(&path).await.expect(204);
    t.delete(&path).await.expect_error(404, "not_found");
    t.get(&path).await.expect_error(404, "not_found");
    t.put(&path, json!({ "title": "x" })).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/link-in-bio")).await.data(200), json!([second]));
    let again = make(&t, json!({ "title": "Again", "slug": "loewe" })).await;
    assert_eq!(again["slug"], "loewe", "the slug is free again");
}

async fn a_slug_is_derived_from_the_title(t: Tenant<'_>) {
    let slug = async |title: &str| {
        make(&t, json!({ "title": title, "slug": null })).await["slug"].as_str().unwrap().to_owned()
    };
    assert_eq!(slug("Café Löwe!").await, "cafe-lowe");
    assert_eq!(slug("Cafe Lowe").await, "cafe-lowe-2");
    for _ in 0..3 {
        slug("Cafe Lowe").await;
    }
    let random = slug("Cafe Lowe").await;
    assert!(random.starts_with("cafe-lowe-") && random.len() == "cafe-lowe-".len() + 8, "{random}");
    assert!(slug("日本語").await.starts_with("page-"));
    let long = slug(&"long title ".repeat(10)).await;
    assert!(long.len() <= 63 && !long.ends_with('-'), "{long}");
}

async fn slugs_are_unique_across_workspaces(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let mine = make(&t, json!({ "title": "Mine", "slug": "acme" })).await;
    for who in [&t, &other] {
        let reply = who.post(&who.path("/link-in-bio"), json!({ "title": "", "slug": "acme" })).await;
        assert_eq!(reply.invalid_fields(), ["slug", "title"]);
    }
    let theirs = make(&other, json!({ "title": "Theirs", "slug": "other" })).await;
    let path = other.path(&format!("/link-in-bio/{}", theirs["id"]));
    assert_eq!(other.put(&path, json!({ "slug": "acme" })).await.invalid_fields(), ["slug"]);
    assert_eq!(other.put(&path, json!({ "slug": "other" })).await.data(200)["slug"], "other", "its own slug");
    let path = t.path(&format!("/link-in-bio/{}", mine["id"]));
    t.put(&path, json!({ "slug": "new" })).await.expect(200);
    make(&other, json!({ "title": "x", "slug": "acme" })).await;
}

async fn concurrent_pages_get_distinct_slugs(t: Tenant<'_>) {
    let path = &t.path("/link-in-bio");
    let named =
        futures::future::join_all((0..8).map(|_| t.post(path, json!({ "title": "T", "slug": "wanted" })))).await;
    assert_eq!(named.iter().filter(|r| r.status == 201).count(), 1);
    named.iter().filter(|r| r.status != 201).for_each(|r| assert_eq!(r.invalid_fields(), ["slug"]));
    let replies = futures::future::join_all((0..8).map(|_| t.post(path, json!({ "title": "Fresh bread" })))).await;
    let mut slugs: Vec<String> = replies.iter().map(|r| r.data(201)["slug"].as_str().unwrap().to_owned()).collect();
    slugs.sort();
    slugs.dedup();
    assert_eq!((slugs.len(), slugs[0].as_str()), (8, "fresh-bread"));
    let mut pages = Vec::new();
    for n in 0..8 {
        pages.push(make(&t, json!({ "title": "T", "slug": format!("page-{n}") })).await["id"].clone());
    }
    let change = async |id: &Value| t.put(&format!("{path}/{id}"), json!({ "slug": "renamed" })).await;
    let renamed = futures::future::join_all(pages.iter().map(change)).await;
    assert_eq!(renamed.iter().filter(|r| r.status == 200).count(), 1);
    renamed.iter().filter(|r| r.status != 200).for_each(|r| assert_eq!(r.invalid_fields(), ["slug"]));
}

async fn invalid_fields_are_reported(t: Tenant<'_>) {
    let with = |field: &str, value: Value| {
        let mut body = json!({ "title": "T", "links": [link("a")] });
        body[field] = value;
        body
    };
    let url = |url: &str| with("links", json!([link("a"), { "title": "x", "url": url }]));
    for (body, wrong) in [
        (json!({}), vec!["title"]),
        (with("title", json!("")), vec!["title"]),
        (with("title", json!("x".repeat(121))), vec!["title"]),
        (with("slug", json!("Upper")), vec!["slug"]),
        (with("slug", json!("a")), vec!["slug"]),
        (with("slug", json!("-ab")), vec!["slug"]),
        (with("slug", json!("a b")), vec!["slug"]),
        (with("slug", json!("a".repeat(64))), vec!["slug"]),
        (with("slug", json!(5)), vec!["slug"]),
        (with("theme", json!("neon")), vec!["theme"]),
        (with("bio", json!("x".repeat(501))), vec!["bio"]),
        (with("links", json!("x")), vec!["links"]),
        (with("links", json!(vec![link("a"); 101])), vec!["links"]),
        (with("links", json!(["x", {}])), vec!["links.0", "links.1.title", "links.1.url"]),
        (with("links", json!([{ "title": "x".repeat(121), "url": 5 }])), vec!["links.0.title", "links.0.url"]),
        (url("javascript:alert(1)"), vec!["links.1.url"]),
        (url("https://exa\tmple.com"), vec!["links.1.url"]),
        (url(&format!("https://example.com/{}", "x".repeat(2_048))), vec!["links.1.url"]),
    ] {
        let invalid = t.post(&t.path("/link-in-bio"), body.clone()).await.invalid_fields();
        assert_eq!(invalid, wrong, "{}", body.to_string().chars().take(100).collect::<String>());
    }
    assert_eq!(t.app.count_rows("bio_pages").await, 0);
    let created = make(&t, json!({ "title": "T", "links": [link("a")] })).await;
    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    let id = &created["links"][0]["id"];
    for (body, wrong) in [
        (json!({ "title": "", "slug": "Upper", "theme": 5, "bio": 5 }), vec!["bio", "slug", "theme", "title"]),
        (json!({ "links": [{ "id": MISSING_ID }] }), vec!["links.0.id"]),
        (json!({ "links": [{ "id": id }, { "id": id }] }), vec!["links.1.id"]),
        (json!({ "links": [{ "id": "x", "title": "t" }, { "title": "t" }] }), vec!["links.0.id", "links.1.url"]),
        (json!({ "links": [{ "id": id, "url": "javascript:alert(1)" }] }), vec!["links.0.url"]),
    ] {
        assert_eq!(t.put(&path, body.clone()).await.invalid_fields(), wrong, "{body}");
    }
    assert_eq!(t.get(&path).await.data(200), created);
    make(&t, with("links", json!(vec![link("a"); 100]))).await;
}

async fn an_update_keeps_omitted_fields(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "bio": "b", "theme": "forest", "links": [link("a")] })).await;
    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    let changed = t.put(&path, json!({ "title": "New", "slug": "new", "theme": "dark" })).await.data(200);
    assert_fields(&changed, json!({ "title": "New", "slug": "new", "theme": "dark", "bio": created["bio"] }));
    assert_fields(&changed, json!({ "links": created["links"], "url": format!("{}/@new", t.app.url) }));
    let same = t.put(&path, json!({ "title": null, "slug": null, "theme": null })).await.data(200);
    assert_eq!((&same["title"], &same["slug"], &same["theme"]), (&json!("New"), &json!("new"), &json!("dark")));
    let emptied = t.put(&path, json!({ "bio": null, "links": null })).await.data(200);
    assert_eq!((&emptied["bio"], &emptied["links"]), (&Value::Null, &json!([])));
}

async fn reordered_links_keep_their_clicks(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "slug": "order", "links": [link("a"), link("b"), link("c")] })).await;
    let id = |n: usize| created["links"][n]["id"].clone();
    t.app.request_at_root("GET", &t.app.url, &format!("/@order/l/{}", id(2))).send().await;
    t.app.api.write_counts().await.unwrap();
    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    let links = json!([{ "id": id(2) }, link("new"), { "id": id(0), "title": "A" }]);
    let changed = t.put(&path, json!({ "links": links })).await.data(200);
    let shown: Vec<_> = changed["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["title"].clone(), l["position"].clone(), l["clicks"].clone()))
        .collect();
    assert_eq!(
        shown,
        [(json!("c"), json!(1), json!(1)), (json!("new"), json!(2), json!(0)), (json!("A"), json!(3), json!(0))]
    );
    assert_eq!((&changed["links"][0]["id"], &changed["links"][2]["id"]), (&id(2), &id(0)));
    t.app.request_at_root("GET", &t.app.url, &format!("/@order/l/{}", id(1))).send().await.not_found();
}

async fn an_avatar_is_shown_and_cannot_be_deleted(t: Tenant<'_>) {
    let asset = t.upload("me.png", &images::png(60, 40), &[("alt_text", "Ann & \"Bo\"")]).await.data(201);
    let body = json!({ "title": "Acme", "slug": "acme", "avatar": asset["id"] });
    let page = t.post(&t.path("/link-in-bio"), body).await.data(201);
    assert_eq!(page["avatar"], asset);
    assert_eq!(t.get(&t.path("/link-in-bio")).await.data(200)[0]["avatar"], asset);
    let shown = String::from_utf8(t.app.page("/@acme").await.body).unwrap();
    let thumbnail = asset["thumbnail_url"].as_str().unwrap().strip_prefix(&t.app.url).unwrap();
    assert!(shown.contains(&format!("src=\"{thumbnail}\"")), "{shown}");
    assert!(shown.contains("alt=\"Ann &#38; &#34;Bo&#34;\""), "{shown}");
    assert!(shown.contains(&format!("<meta property=\"og:image\" content=\"{}\">", asset["url"].as_str().unwrap())));
    let path = t.path(&format!("/link-in-bio/{}", page["id"]));
    let image = t.path(&format!("/media/{}", asset["id"]));
    t.delete(&image).await.expect_error(409, "media_in_use");
    // An image of another workspace, or an unknown one, cannot be an avatar.
    let stranger = t.app.tenant("unlimited").await;
    let theirs = stranger.upload("a.png", &images::png(9, 9), &[]).await.data(201);
    for wrong in [theirs["id"].clone(), json!(999_999), json!("x")] {
        assert_eq!(t.put(&path, json!({ "avatar": wrong })).await.invalid_fields(), ["avatar"]);
    }
    // An omitted field keeps its value. Null clears it.
    assert_eq!(t.put(&path, json!({ "title": "New" })).await.data(200)["avatar"], asset);
    assert!(t.put(&path, json!({ "avatar": null })).await.data(200)["avatar"].is_null());
    assert!(!String::from_utf8(t.app.page("/@acme").await.body).unwrap().contains("<img"));
    t.delete(&image).await.expect(204);
}

/// If an image becomes an avatar while it is deleted, one of the requests is rejected, so that no page has a deleted
/// image.
async fn concurrent_avatar_update_and_deletion_conflict(t: Tenant<'_>) {
    let page = make(&t, json!({ "title": "T" })).await;
    let path = t.path(&format!("/link-in-bio/{}", page["id"]));
    for n in 1..=8 {
        let asset = t.upload("a.png", &images::png(n, 9), &[]).await.data(201);
        let image = t.path(&format!("/media/{}", asset["id"]));
        let (updated, deleted) = tokio::join!(t.put(&path, json!({ "avatar": asset["id"] })), t.delete(&image));
        match (updated.status, deleted.status) {
            (200, _) => {
                deleted.expect_error(409, "media_in_use");
                assert_eq!(t.get(&path).await.data(200)["avatar"], asset);
            }
            (_, 204) => assert_eq!(updated.invalid_fields(), ["avatar"]),
            both => panic!("{both:?}"),
        }
        t.put(&path, json!({ "avatar": null })).await.expect(200);
    }
}

async fn a_link_has_an_icon_and_one_stands_out(t: Tenant<'_>) {
    let with = |extra: Value| {
        let mut link = link("Shop");
        link.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        link
    };
    let links = json!([with(json!({ "icon": "shop", "is_primary": true })), link("Other")]);
    let created = make(&t, json!({ "title": "Icons", "slug": "icons", "links": links })).await;
    let of = |page: &Value, n: usize| (page["links"][n]["icon"].clone(), page["links"][n]["is_primary"].clone());
    assert_eq!(of(&created, 0), (json!("shop"), json!(true)));
    assert_eq!(of(&created, 1), (Value::Null, json!(false)));
    let shown = String::from_utf8(t.app.page("/@icons").await.body).unwrap();
    assert_eq!((shown.matches("class=\"primary\"").count(), shown.matches("<svg").count()), (1, 1), "{shown}");

    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    let (first, second) = (&created["links"][0]["id"], &created["links"][1]["id"]);
    let both = json!({ "links": [{ "id": first }, { "id": second, "is_primary": true }] });
    assert_eq!(t.put(&path, both).await.invalid_fields(), ["links.1.is_primary"]);
    let moved = json!({ "links": [{ "id": first, "icon": null, "is_primary": false }, { "id": second, "icon": "mail", "is_primary": true }] });
    let changed = t.put(&path, moved).await.data(200);
    assert_eq!((of(&changed, 0), of(&changed, 1)), ((Value::Null, json!(false)), (json!("mail"), json!(true))));
    let wrong = json!({ "title": "x", "links": [with(json!({ "icon": "skull" })), with(json!({ "is_primary": 1 }))] });
    assert_eq!(t.post(&t.path("/link-in-bio"), wrong).await.invalid_fields(), ["links.0.icon", "links.1.is_primary"]);
}
