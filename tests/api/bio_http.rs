//! Link-in-bio pages at the HTTP level: compression, conditional requests, security headers.

use std::io::Read as _;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::app::{Reply, Tenant, TestApp, on_one_app};

on_one_app!("unlimited" =>
    pages_are_compressed_if_accepted,
    every_response_has_security_headers,
    text_is_escaped_as_html,
    visits_of_a_deleted_page_are_discarded,
    a_matching_etag_returns_304,
);

async fn conditional_request(app: &TestApp, method: &str, path: &str, tag: &str) -> Reply {
    app.request_at_root(method, &app.url, path).header("if-none-match", tag).send().await
}

async fn a_matching_etag_returns_304(t: Tenant<'_>) {
    let page = t.post(&t.path("/link-in-bio"), json!({ "title": "T", "slug": "known" })).await.data(201);
    let first = t.app.page("/@known").await;
    let tag = first.header("etag").unwrap();
    assert_eq!((first.header("cache-control"), first.header("vary")), (Some("no-cache"), Some("accept-encoding")));
    for tags in [tag, tag.trim_start_matches("W/"), &format!("\"x\", {tag}"), "*"] {
        for method in ["GET", "HEAD"] {
            let reply = conditional_request(t.app, method, "/@known", tags).await;
            assert_eq!((reply.status, reply.body.len(), reply.header("etag")), (304, 0, Some(tag)), "{tags}");
            assert_eq!(reply.header("cache-control"), Some("no-cache"));
        }
    }
    assert_eq!(conditional_request(t.app, "GET", "/@known", "\"other\"").await.body, first.body);
    conditional_request(t.app, "GET", "/@nobody", "*").await.not_found();
    // Requests that return 304 count as views as well.
    t.app.api.write_counts().await.unwrap();
    let path = t.path(&format!("/link-in-bio/{}", page["id"]));
    assert_eq!(t.get(&path).await.data(200)["views"], 6);
    t.put(&path, json!({ "title": "New" })).await.expect(200);
    let changed = conditional_request(t.app, "GET", "/@known", tag).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(tag));
    // Pages with equal content have different ETags, because each contains its own URL.
    t.post(&t.path("/link-in-bio"), json!({ "title": "New", "slug": "twin" })).await.expect(201);
    assert_ne!(t.app.page("/@twin").await.header("etag"), changed.header("etag"));
    let styles = t.app.page("/bio.css").await;
    conditional_request(t.app, "GET", "/bio.css", styles.header("etag").unwrap()).await.assert_status(304);
}

/// Returns the head of a response in lower case, and its raw body, which the client of the tests would decompress.
pub async fn raw(app: &TestApp, method: &str, path: &str, encodings: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: {encodings}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&response[..end]).to_lowercase(), response.split_off(end + 4))
}

async fn pages_are_compressed_if_accepted(t: Tenant<'_>) {
    let links = vec![json!({ "title": "Menu", "url": "https://example.com" }); 100];
    t.post(&t.path("/link-in-bio"), json!({ "title": "T", "slug": "packed", "links": links })).await.expect(201);
    for path in ["/@packed", "/bio.css"] {
        let (plain_head, plain) = raw(t.app, "GET", path, "identity").await;
        let (packed_head, packed) = raw(t.app, "GET", path, "br, gzip").await;
        assert!(!plain_head.contains("content-encoding") && packed_head.contains("content-encoding: gzip"));
        assert!(packed.len() * 2 < plain.len(), "{path}: {} of {}", packed.len(), plain.len());
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain);
        for (encodings, length) in [("identity", plain.len()), ("gzip", packed.len())] {
            let (head, body) = raw(t.app, "HEAD", path, encodings).await;
            assert!(head.contains(&format!("content-length: {length}")) && body.is_empty(), "{path}: {head}");
        }
    }
}

async fn every_response_has_security_headers(t: Tenant<'_>) {
    let links = json!([{ "title": "Menu", "url": "https://example.com" }]);
    let page = t.post(&t.path("/link-in-bio"), json!({ "title": "T", "slug": "safe", "links": links })).await.data(201);
    for (path, status) in [("/@safe", 200), ("/@nobody", 404)] {
        let reply = t.app.page(path).await;
        reply.assert_status(status);
        let policy = reply.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("script"), "{path}: {policy}");
        assert_eq!(reply.header("referrer-policy"), Some("same-origin"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(reply.header("set-cookie").is_none() && reply.header("server").is_none(), "{path}");
    }
    assert_eq!(t.app.page("/bio.css").await.header("x-content-type-options"), Some("nosniff"));
    let click = t.app.page(&format!("/@safe/l/{}", page["links"][0]["id"])).await;
    assert_eq!((click.status, click.body.len()), (302, 0));
    assert_eq!(click.header("referrer-policy"), Some("no-referrer"));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        t.app.request_at_root(method, &t.app.url, "/@safe").send().await.assert_status(405);
    }
}

/// Text appears exactly as written, never as markup. Only NUL is rejected.
async fn text_is_escaped_as_html(t: Tenant<'_>) {
    for (n, words) in [
        "</title></h1><script>alert(1)</script>",
        "\" onmouseover=\"alert(1)\" x='",
        "{{ page.title }} {% include \"x\" %} ${x}",
        "<!--<![CDATA[ ]]>-->&lt;&amp;&#60;",
        "\u{202e}txt.exe\u{202c} مرحبا \u{200f}",
        "a\r\nSet-Cookie: x=y\r\n\r\n<b>",
        "\u{feff}\u{fffd}\u{10ffff}",
        "'; DROP TABLE bio_pages; --",
    ]
    .into_iter()
    .enumerate()
    {
        let links = json!([{ "title": words, "url": "https://example.com/'x'" }]);
        let body = json!({ "title": words, "bio": words, "slug": format!("hostile-{n}"), "links": links });
        let created = t.post(&t.path("/link-in-bio"), body).await.data(201);
        assert_eq!(
            (&created["title"], &created["bio"], &created["links"][0]["title"]),
            (&json!(words), &json!(words), &json!(words))
        );
        let reply = t.app.page(&format!("/@hostile-{n}")).await;
        reply.assert_status(200);
        let page = String::from_utf8(reply.body.clone()).unwrap();
        let escaped: String = words
            .chars()
            .map(|c| match c {
                '<' | '>' | '"' | '\'' | '&' => format!("&#{};", u32::from(c)),
                c => c.to_string(),
            })
            .collect();
        // Title, three descriptions, two preview titles, heading, bio, link.
        assert!(page.matches(&escaped).count() >= 6, "{words:?}: {page}");
        assert!(!page.contains("<script") && !page.contains("<b>") && reply.header("set-cookie").is_none());
    }
    let nul = json!({ "title": "a\u{0}b", "bio": "a\u{0}b", "links": [{ "title": "a\u{0}b", "url": "https://example.com/\u{0}" }] });
    let invalid = t.post(&t.path("/link-in-bio"), nul).await.invalid_fields();
    assert_eq!(invalid, ["bio", "links.0.title", "links.0.url", "title"]);
}

/// Unsaved visits of a deleted page are discarded; a new page with the same slug starts at zero.
async fn visits_of_a_deleted_page_are_discarded(t: Tenant<'_>) {
    let links = json!([{ "title": "Menu", "url": "https://example.com" }]);
    let body = json!({ "title": "T", "slug": "gone", "links": links });
    let page = t.post(&t.path("/link-in-bio"), body.clone()).await.data(201);
    let kept = t.post(&t.path("/link-in-bio"), json!({ "title": "T", "slug": "stays" })).await.data(201);
    for path in ["/@gone", &format!("/@gone/l/{}", page["links"][0]["id"]), "/@stays"] {
        t.app.page(path).await;
    }
    t.delete(&t.path(&format!("/link-in-bio/{}", page["id"]))).await.expect(204);
    let again = t.post(&t.path("/link-in-bio"), body).await.data(201);
    t.app.api.write_counts().await.unwrap();
    let read = async |id: &serde_json::Value| t.get(&t.path(&format!("/link-in-bio/{id}"))).await.data(200);
    assert_eq!(
        (&read(&again["id"]).await["views"], &read(&again["id"]).await["links"][0]["clicks"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(read(&kept["id"]).await["views"], 1);
}
