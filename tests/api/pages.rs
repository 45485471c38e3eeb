//! Pages for browsers and robots: the home page, error pages, and HEAD.

use chrono::TimeDelta;

use super::checks;
use super::tenancy::TenantRecords;
use crate::support::app::{TestApp, on_one_app, on_sqlite_app};

on_one_app!(head_matches_get,);

on_sqlite_app!(robots_and_browsers_find_their_files, not_found_is_a_page,);

async fn robots_and_browsers_find_their_files(app: TestApp) {
    for (path, kind, part) in [
        ("/robots.txt", "text/plain; charset=utf-8", "Disallow: /api/\n"),
        ("/favicon.svg", "image/svg+xml", "<svg"),
        ("/favicon.ico", "image/vnd.microsoft.icon", "\0\0\u{1}\0"),
        ("/page.css", "text/css; charset=utf-8", "body {"),
        ("/marks/bluesky.svg", "image/svg+xml", "<svg"),
    ] {
        let reply = app.page(path).await;
        reply.assert_status(200);
        assert_eq!(
            (reply.header("content-type"), reply.header("x-content-type-options")),
            (Some(kind), Some("nosniff"))
        );
        assert!(reply.header("cache-control").is_some_and(|cache| cache.starts_with("public, max-age=")), "{path}");
        assert!(reply.text().contains(part), "{path}");
        let tag = reply.header("etag").unwrap_or_default();
        let again = app.request_at_root("GET", &app.url, path).header("if-none-match", tag).send().await;
        again.assert_status(304);
    }
}

async fn not_found_is_a_page(app: TestApp) {
    let t = app.tenant("unlimited").await;
    t.account("demo").await;
    for path in
        ["/sandbox/unknown", "/sandbox/%20", "/media/unknown.png", "/media/unknown", "/@unknown", "/@unknown/l/1"]
    {
        let reply = app.page(path).await;
        reply.not_found();
        assert!(reply.text().contains("<h1>Not found</h1>") && reply.text().contains("/page.css?"), "{path}");
    }
    let comment = app.request_at_root("POST", &app.url, "/sandbox/demo/posts/999/comments");
    let reply = comment.raw("name=Vera&body=Hello").header("content-type", "application/x-www-form-urlencoded");
    let reply = reply.send().await;
    reply.not_found();
    assert!(reply.text().contains("This post does not exist"), "{}", reply.text());
    // Other unknown paths are a page in a browser, and otherwise return an API error.
    for path in ["/unknown", "/docs/unknown", "/brands/1/unknown"] {
        let browser = app.request_at_root("GET", &app.url, path).header("accept", "text/html,*/*;q=0.8");
        let reply = browser.send().await;
        reply.not_found();
        assert!(reply.text().contains("<h1>Not found</h1>"), "{path}: {}", reply.text());
    }
    app.page("/unknown").await.assert_status(404);
    assert_eq!(app.page("/unknown").await.json()["error"]["code"], "not_found");
}

/// A HEAD response has the status and the headers of GET, and no body.
async fn head_matches_get(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let records = TenantRecords::of(&t).await;
    let base = crate::support::app::BASE;
    let mut paths: Vec<String> = Vec::new();
    for e in checks::all(&app).await.into_iter().filter(|e| e.method == "GET") {
        paths.push(format!("{base}{}", e.at(t.brand, |name| records.id(&e.path, name))));
    }
    assert!(paths.len() > 30, "{paths:?}");
    let pages = [
        "/sign-in",
        "/console.css",
        "/upload.js",
        "/docs/",
        "/robots.txt",
        "/favicon.ico",
        "/sandbox/unknown",
        "/sandbox.css",
        "/connect.css",
        "/@unknown",
    ];
    paths.extend(pages.map(str::to_owned));
    paths.push(format!("{base}/openapi.json"));
    for path in paths {
        app.clock.advance(TimeDelta::minutes(1));
        let send = async |method: &str| app.request_at_root(method, &app.url, &path).key(&t.key).send().await;
        let (get, head) = (send("GET").await, send("HEAD").await);
        assert_eq!((get.status, head.body.len()), (head.status, 0), "{path}: {head:?}");
        for name in ["content-type", "content-length", "cache-control", "location"] {
            assert_eq!(get.header(name), head.header(name), "{path}: {name}");
        }
    }
    // A path that supports only POST does not support HEAD.
    let head = t.request("HEAD", &t.path(&format!("/posts/{}/submit", records.post))).send().await;
    assert_eq!((head.status, head.header("allow")), (405, Some("POST")));
}
