//! Link-in-bio pages, as visitors see them.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::images;

on_one_app!(an_unknown_slug_returns_404, visits_are_served_from_the_cache);
on_one_app!("unlimited" =>
    a_page_is_served_publicly,
    a_link_redirects_to_its_url,
    views_and_clicks_are_counted_except_from_bots,
    counts_are_written_at_shutdown_and_after_a_failure,
    a_change_reaches_other_replicas_within_two_seconds,
    a_cached_page_is_served_during_a_database_outage,
    an_alt_text_change_invalidates_the_page,
);

async fn make(t: &Tenant<'_>, body: Value) -> Value {
    t.post(&t.path("/link-in-bio"), body).await.data(201)
}

fn links() -> Value {
    json!([
        { "title": "Menu <1>", "url": "https://example.com/a?x=1&y=2" },
        { "title": "Mail", "url": "mailto:a@example.com" },
        { "title": "Straße", "url": "https://example.com/straße" },
    ])
}

async fn a_page_is_served_publicly(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "Café <i>Löwe</i>", "slug": "loewe", "theme": "ocean", "bio": "Best & only", "links": links() })).await;
    let reply = t.app.page("/@loewe").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{policy}");
    let page = reply.text();
    assert!(
        page.contains("<h1 dir=\"auto\">Café &#60;i&#62;Löwe&#60;/i&#62;</h1>") && page.contains("Best &#38; only"),
        "{page}"
    );
    assert!(page.contains("data-theme=\"ocean\"") && !page.contains("<script"), "{page}");
    let link = &created["links"][0]["id"];
    assert!(
        page.contains(&format!(
            "<a href=\"/@loewe/l/{link}\" rel=\"noopener nofollow ugc\" dir=\"auto\">Menu &#60;1&#62;</a>"
        )),
        "{page}"
    );
    assert!(page.contains(&format!("<meta property=\"og:url\" content=\"{}/@loewe\">", t.app.url)), "{page}");
    for other in ["/@Loewe", "/%40loewe"] {
        assert_eq!(t.app.page(other).await.body, reply.body, "{other}");
    }
    let styles = page.split("href=\"/bio.css").nth(1).unwrap().split('"').next().unwrap();
    let styles = t.app.page(&format!("/bio.css{styles}")).await;
    assert_eq!((styles.status, styles.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert!(styles.body.len() + reply.body.len() < 30_000);
    let head = t.app.request_at_root("HEAD", &t.app.url, "/@loewe").send().await;
    assert_eq!((head.status, head.body.len(), head.header("content-type")), (200, 0, reply.header("content-type")));
}

async fn a_link_redirects_to_its_url(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "slug": "mine", "links": links() })).await;
    let other = make(&t, json!({ "title": "T", "slug": "other", "links": links() })).await;
    let expected = ["https://example.com/a?x=1&y=2", "mailto:a@example.com", "https://example.com/stra%C3%9Fe"];
    for (link, to) in created["links"].as_array().unwrap().iter().zip(expected) {
        let path = format!("/@mine/l/{}", link["id"]);
        for method in ["GET", "HEAD"] {
            let reply = t.app.request_at_root(method, &t.app.url, &path).send().await;
            assert_eq!((reply.status, reply.header("location")), (302, Some(to)));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        }
    }
    for path in [
        format!("/@mine/l/{}", other["links"][0]["id"]),
        "/@mine/l/999999".to_owned(),
        "/@mine/l/x".to_owned(),
        "/@mine/l/-1".to_owned(),
        format!("/@nobody/l/{}", created["links"][0]["id"]),
    ] {
        t.app.page(&path).await.not_found();
    }
}

async fn an_unknown_slug_returns_404(app: TestApp) {
    for path in
        ["/@nobody", "/@n", "/@-x", "/@a%20b", "/@%F0%9F%A5%90", "/@nobody.html", &format!("/@{}", "a".repeat(64))]
    {
        let reply = app.page(path).await;
        reply.not_found();
        assert!(reply.text().contains("Not found"), "{path}");
        assert_eq!(app.request_at_root("HEAD", &app.url, path).send().await.status, 404);
    }
}

async fn views_and_clicks_are_counted_except_from_bots(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "slug": "counted", "links": links() })).await;
    let (page, link) = ("/@counted", format!("/@counted/l/{}", created["links"][1]["id"]));
    let agents = ["Mozilla/5.0 (iPhone)", "", "Mozilla/5.0 (compatible; Googlebot/2.1)", "facebookexternalhit/1.1"];
    for agent in agents {
        for path in [page, &link] {
            t.app.request_at_root("GET", &t.app.url, path).header("user-agent", agent).send().await;
            t.app.request_at_root("HEAD", &t.app.url, path).header("user-agent", agent).send().await;
        }
    }
    t.app.page(page).await;
    t.app.page("/@counted/l/999").await.not_found();
    let shown = async || {
        let page = t.get(&t.path("/link-in-bio")).await.data(200)[0].take();
        (page["views"].clone(), page["links"][0]["clicks"].clone(), page["links"][1]["clicks"].clone())
    };
    t.app.api.write_counts().await.unwrap();
    assert_eq!(shown().await, (json!(3), json!(0), json!(2)));
    t.app.api.write_counts().await.unwrap();
    assert_eq!(shown().await, (json!(3), json!(0), json!(2)), "each visit is written once");
    let after = t.get(&t.path("/link-in-bio")).await.data(200)[0].take();
    assert_eq!(after["updated_at"], created["updated_at"], "a visit does not change the page");
}

async fn counts_are_written_at_shutdown_and_after_a_failure(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "slug": "stopped", "links": links() })).await;
    let visit = async || {
        t.app.page("/@stopped").await.assert_status(200);
        t.app.page(&format!("/@stopped/l/{}", created["links"][0]["id"])).await.assert_status(302);
    };
    visit().await;
    t.app.sql("ALTER TABLE bio_links RENAME TO away").await;
    t.app.api.write_counts().await.unwrap_err();
    t.app.sql("ALTER TABLE away RENAME TO bio_links").await;
    visit().await;
    t.app.stop().await;
    assert_eq!(t.app.sum("views", "bio_pages").await, 2);
    assert_eq!(t.app.sum("clicks", "bio_links").await, 2);
}

async fn a_change_reaches_other_replicas_within_two_seconds(t: Tenant<'_>) {
    let replica = t.app.replica().await;
    let seen = async |path: &str| {
        let mut titles = Vec::new();
        for url in [&t.app.url, &replica] {
            let reply = t.app.request_at_root("GET", url, path).send().await;
            let page = reply.text();
            titles.push(page.split("<h1 dir=\"auto\">").nth(1).map(|rest| rest.split('<').next().unwrap().to_owned()));
        }
        titles.iter().map(|title| title.clone().unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
    };
    let soon = || t.app.clock.advance(TimeDelta::seconds(2));
    assert_eq!(seen("/@page").await, "- -");
    let created = make(&t, json!({ "title": "one", "slug": "page" })).await;
    let path = t.path(&format!("/link-in-bio/{}", created["id"]));
    assert_eq!(seen("/@page").await, "one -", "a missing page is cached for a while");
    soon();
    assert_eq!(seen("/@page").await, "one one");
    t.put(&path, json!({ "title": "two" })).await.expect(200);
    assert_eq!(seen("/@page").await, "two one");
    t.app.clock.advance(TimeDelta::milliseconds(1_999));
    assert_eq!(seen("/@page").await, "two one");
    t.app.clock.advance(TimeDelta::milliseconds(1));
    assert_eq!(seen("/@page").await, "two two");
    t.put(&path, json!({ "slug": "moved" })).await.expect(200);
    assert_eq!((seen("/@page").await, seen("/@moved").await), ("- two".to_owned(), "two two".to_owned()));
    soon();
    assert_eq!((seen("/@page").await, seen("/@moved").await), ("- -".to_owned(), "two two".to_owned()));
    t.delete(&path).await.expect(204);
    assert_eq!(seen("/@moved").await, "- two");
    soon();
    assert_eq!(seen("/@moved").await, "- -");
    make(&t, json!({ "title": "three", "slug": "moved" })).await;
    soon();
    assert_eq!(seen("/@moved").await, "three three");
}

async fn a_cached_page_is_served_during_a_database_outage(t: Tenant<'_>) {
    let created = make(&t, json!({ "title": "T", "slug": "shown" })).await;
    let before = t.app.page("/@shown").await;
    t.app.sql("ALTER TABLE bio_pages RENAME TO away").await;
    t.app.clock.advance(TimeDelta::minutes(5));
    for _ in 0..3 {
        let now = t.app.page("/@shown").await;
        assert_eq!((now.status, &now.body), (200, &before.body));
    }
    t.app.page("/@unknown").await.assert_status(503);
    t.app.sql("ALTER TABLE away RENAME TO bio_pages").await;
    t.app.page("/@unknown").await.not_found();
    t.delete(&t.path(&format!("/link-in-bio/{}", created["id"]))).await.expect(204);
    t.app.page("/@shown").await.not_found();
}

/// A change made directly in the database appears at the next version check, after two seconds.
async fn visits_are_served_from_the_cache(app: TestApp) {
    let t = app.tenant("unlimited").await;
    make(&t, json!({ "title": "T", "slug": "kept" })).await;
    let before = app.page("/@kept").await;
    app.sql("UPDATE bio_pages SET title = 'changed', version = version + 1").await;
    app.clock.advance(TimeDelta::milliseconds(1_900));
    assert_eq!(app.page("/@kept").await.body, before.body);
    app.clock.advance(TimeDelta::milliseconds(100));
    assert!(app.page("/@kept").await.text().contains("changed"));
    // An unchanged page is not reloaded: only its version is checked.
    app.sql("UPDATE bio_pages SET title = 'unversioned'").await;
    app.clock.advance(TimeDelta::seconds(2));
    assert!(app.page("/@kept").await.text().contains("changed"));
}

/// The avatar's alt text is part of the page, but it can change without a change to the page's row.
async fn an_alt_text_change_invalidates_the_page(t: Tenant<'_>) {
    let replica = t.app.replica().await;
    let asset = t.upload("me.png", &images::png(6, 4), &[("alt_text", "One")]).await.data(201);
    make(&t, json!({ "title": "T", "slug": "seen", "avatar": asset["id"] })).await;
    for url in [&t.app.url, &replica] {
        assert!(t.app.request_at_root("GET", url, "/@seen").send().await.text().contains("alt=\"One\""));
    }
    t.put(&t.path(&format!("/media/{}", asset["id"])), json!({ "alt_text": "Two" })).await.expect(200);
    t.app.clock.advance(TimeDelta::seconds(2));
    for url in [&t.app.url, &replica] {
        assert!(t.app.request_at_root("GET", url, "/@seen").send().await.text().contains("alt=\"Two\""));
    }
}
