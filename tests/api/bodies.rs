//! Bodies that mean no good, or that somebody got wrong.

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::{TestApp, on_both_apps};

on_both_apps!(
    what_is_no_object_is_told,
    a_body_has_a_limit,
    a_chunked_body_has_the_same_limit,
    an_announced_body_is_refused_before_it_is_sent,
    text_survives,
    unknown_fields_are_ignored,
    a_body_that_is_not_wanted_is_ignored,
);

async fn what_is_no_object_is_told(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let deep = |open: &str, close: &str, n| format!("{{\"name\":{}1{}}}", open.repeat(n), close.repeat(n));
    for body in [
        br#"{"name":"#.to_vec(),
        br#"{"name":"x"} y"#.to_vec(),
        br#"{"name":NaN}"#.to_vec(),
        b"{'name':'x'}".to_vec(),
        b"{\"name\":\"\xff\xfe\"}".to_vec(),
        b"{\"name\":\"\xc0\xaf\"}".to_vec(),
        b"{\"name\":\"\xed\xa0\x80\"}".to_vec(),
        br#"{"name":"\ud800"}"#.to_vec(),
        b"[]".to_vec(),
        b"\"x\"".to_vec(),
        b"null".to_vec(),
        deep("[", "]", 10_000).into_bytes(),
        deep("{\"a\":", "}", 10_000).into_bytes(),
        "[".repeat(100_000).into_bytes(),
    ] {
        t.request("POST", "/brands").raw(body).send().await.refused(400, "invalid_json");
    }
    t.get("/brands").await.expect(200);
}

/// A body of so many bytes.
fn sized(n: usize) -> Vec<u8> {
    let head = br#"{"name":"Big","nope":""#;
    let mut body = head.to_vec();
    body.resize(n - 2, b'x');
    body.extend_from_slice(b"\"}");
    body
}

async fn a_body_has_a_limit(app: TestApp) {
    let t = app.tenant("unlimited").await;
    t.request("POST", "/brands").raw(sized(1 << 20)).send().await.expect(201);
    for n in [(1 << 20) + 1, 8 << 20] {
        t.request("POST", "/brands").raw(sized(n)).send().await.refused(413, "payload_too_large");
    }
}

async fn a_chunked_body_has_the_same_limit(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let http = crier_common::http::HttpClient::trusted(std::time::Duration::from_secs(30), 1 << 20);
    for (size, status) in [(1 << 20, 201), ((1 << 20) + 1, 413)] {
        let body = sized(size);
        let chunks: Vec<std::io::Result<Bytes>> = body.chunks(10_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let request = http
            .request(http::Method::POST, &format!("{}/api/public/v1/brands", app.url))
            .bearer_auth(&t.key)
            .header("idempotency-key", app.fresh_key())
            .header("content-type", "application/json")
            .body(reqwest::Body::wrap_stream(futures::stream::iter(chunks)));
        let answer = http.send(request).await.expect("an answer");
        assert_eq!(answer.status.as_u16(), status);
    }
}

async fn an_announced_body_is_refused_before_it_is_sent(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
    let head = format!(
        "POST /api/public/v1/brands HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n",
        t.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("payload_too_large"), "{answer}");
}

async fn text_survives(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for (text, kept) in [
        ("🦊👩‍👩‍👧‍👦🇪🇺", "🦊👩‍👩‍👧‍👦🇪🇺"),
        ("مرحبا \u{200f}عالم", "مرحبا \u{200f}عالم"),
        ("e\u{301}a\u{308}", "éä"),
        ("<b>&amp;'\"\\/", "<b>&amp;'\"\\/"),
    ] {
        let made = t.post("/brands", json!({ "name": text })).await.data(201);
        assert_eq!(made["name"], kept);
        assert_eq!(t.get(&format!("/brands/{}", made["id"])).await.data(200)["name"], kept);
    }
}

async fn unknown_fields_are_ignored(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let made = t.post("/brands", json!({ "name": "Known", "nope": { "a": [1] }, "id": 7_777_777 })).await.data(201);
    assert!(made.get("nope").is_none() && made["id"] != 7_777_777);
}

async fn a_body_that_is_not_wanted_is_ignored(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let post = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201)["id"].clone();
    t.request("DELETE", &t.path(&format!("/posts/{post}"))).raw("{not json").send().await.expect(204);
    t.request("GET", "/brands").raw("{not json").send().await.expect(200);
}
