//! Malicious and malformed request bodies.

use bytes::Bytes;
use crier_api::MinRate;
use crier_domain::access::KeyMode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::{BASE, Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::store::TestStore;

on_sqlite_app!("unlimited" =>
    malformed_json_returns_400,
    oversized_bodies_are_rejected,
    oversized_chunked_bodies_are_rejected,
    an_oversized_content_length_is_rejected_early,
    ambiguously_framed_bodies_smuggle_no_request,
    every_body_shape_gets_a_small_response,
);

on_one_app!("unlimited" => unicode_text_is_preserved, unexpected_bodies_are_ignored);

async fn malformed_json_returns_400(t: Tenant<'_>) {
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
        t.request("POST", "/brands").raw(body).send().await.expect_error(400, "invalid_json");
    }
    t.get("/brands").await.expect(200);
}

/// Returns a body of `n` bytes.
fn sized(n: usize) -> Vec<u8> {
    let head = br#"{"name":"Big","nope":""#;
    let mut body = head.to_vec();
    body.resize(n - 2, b'x');
    body.extend_from_slice(b"\"}");
    body
}

async fn oversized_bodies_are_rejected(t: Tenant<'_>) {
    t.request("POST", "/brands").raw(sized(1 << 20)).send().await.expect(201);
    for n in [(1 << 20) + 1, 8 << 20] {
        t.request("POST", "/brands").raw(sized(n)).send().await.expect_error(413, "payload_too_large");
    }
}

async fn oversized_chunked_bodies_are_rejected(t: Tenant<'_>) {
    let http = crier_http::HttpClient::trusted(std::time::Duration::from_secs(30), 1 << 20);
    for (size, status) in [(1 << 20, 201), ((1 << 20) + 1, 413)] {
        let body = sized(size);
        let chunks: Vec<std::io::Result<Bytes>> = body.chunks(10_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let request = http
            .request(http::Method::POST, &format!("{}/api/public/v1/brands", t.app.url))
            .bearer_auth(&t.key)
            .header("idempotency-key", t.app.fresh_key())
            .header("content-type", "application/json")
            .body(reqwest::Body::wrap_stream(futures::stream::iter(chunks)));
        let response = http.send(request).await.expect("a response");
        assert_eq!(response.status.as_u16(), status);
    }
}

async fn an_oversized_content_length_is_rejected_early(t: Tenant<'_>) {
    let mut socket = tokio::net::TcpStream::connect(t.app.address).await.unwrap();
    let head = format!(
        "POST /api/public/v1/brands HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n",
        t.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("payload_too_large"), "{response}");
}

/// Sends a chunked body with these framing headers, followed by another request. Returns all responses.
async fn responses_to(app: &TestApp, t: &Tenant<'_>, framing: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
    let request = format!(
        "POST /api/public/v1/brands HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {}\r\n\
         Content-Type: application/json\r\n{framing}\r\n\r\nc\r\n{{\"name\":\"x\"}}\r\n0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        t.key,
        app.fresh_key()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut responses = Vec::new();
    // The connection may be reset, because the bytes after the request are not read.
    let _ = socket.read_to_end(&mut responses).await;
    String::from_utf8_lossy(&responses).into_owned()
}

async fn ambiguously_framed_bodies_smuggle_no_request(t: Tenant<'_>) {
    for framing in ["Transfer-Encoding: identity, chunked", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked"] {
        let responses = responses_to(t.app, &t, framing).await;
        assert!(responses.starts_with("HTTP/1.1 400 ") && responses.contains("connection: close"), "{responses}");
    }
    assert_eq!(t.app.count_rows("brands").await, 1, "the tenant's own");
    for framing in [
        "Transfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ] {
        let responses = responses_to(t.app, &t, framing).await;
        assert!(responses.starts_with("HTTP/1.1 201 ") && responses.contains("connection: close"), "{responses}");
        assert_eq!(responses.matches("HTTP/1.1 ").count(), 1, "{framing}: {responses}");
    }
}

/// Returns bodies of about 1 MiB, each of a different shape.
fn shapes() -> Vec<String> {
    const SIZE: usize = (1 << 20) - 64;
    let fill = |head: &str, piece: &str, last: &str, end: &str| {
        let times = (SIZE - head.len() - last.len() - end.len()) / piece.len();
        format!("{head}{}{last}{end}", piece.repeat(times))
    };
    let mut all = vec![
        fill(r#"{"nope":["#, "0,", "0", "]}"),
        fill(r#"{"nope":["#, "[[[]]],", "0", "]}"),
        fill("{", r#""a":{},"#, r#""a":0"#, "}"),
        fill("{", r#""name":"x","#, r#""name":"x""#, "}"),
        fill(r#"{"nope":""#, "x", "", r#""}"#),
        format!("{{{}\"z\":0}}", (0..19_000).map(|n| format!(r#""unknown{n:040}":"","#)).collect::<String>()),
    ];
    for field in ["accounts", "account_ids", "overrides", "media", "items", "links", "events", "options", "credentials"]
    {
        for (piece, last) in [("{},", "{}"), ("1,", "1"), (r#""x","#, r#""x""#), (r#"{"id":1,"account_id":1},"#, "{}")]
        {
            all.push(fill(&format!(r#"{{"{field}":["#), piece, last, "]}"));
        }
        // Few enough values to pass the limit on values.
        let long = format!(r#"{{"title":"{0}","content":"{0}","id":7,"account_id":7}},"#, "e\u{301}".repeat(4_000));
        all.push(fill(&format!(r#"{{"{field}":["#), &long, "{}", "]}"));
    }
    for field in ["name", "content", "title", "url", "prompt", "reason", "since", "slug", "scheduled_at", "description"]
    {
        for piece in ["x", "\u{301}", "\u{1f1e9}", " ", "9"] {
            all.push(fill(&format!(r#"{{"{field}":""#), piece, "", r#""}"#));
        }
    }
    all
}

/// Returns the method and the path of every endpoint with a JSON body. The paths contain the tenant's brand.
async fn json_endpoints(t: &Tenant<'_>) -> Vec<(String, String)> {
    let document = t.get("/openapi.json").await.json();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["requestBody"]["content"].get("application/json").is_some() {
                let path = path.strip_prefix(BASE).unwrap_or(path).replace("{brand}", &t.brand.to_string());
                let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
                found.push((method.to_uppercase(), parts.collect::<Vec<_>>().join("/")));
            }
        }
    }
    found
}

async fn every_body_shape_gets_a_small_response(t: Tenant<'_>) {
    let endpoints = json_endpoints(&t).await;
    assert!(endpoints.len() > 20, "{endpoints:?}");
    for (n, shape) in shapes().into_iter().enumerate() {
        assert!(shape.len() <= 1 << 20);
        // Each shape is sent to an eleventh of the endpoints. A field has five shapes, so each endpoint receives all of
        // them, for different fields.
        for (method, path) in endpoints.iter().skip(n % 11).step_by(11) {
            let reply = t.request(method, path).raw(shape.clone()).send().await;
            assert!((200..500).contains(&reply.status), "{method} {path} {}: {reply:?}", &shape[..40]);
            assert!(reply.body.len() < 64 << 10, "{method} {path} {}: {}", &shape[..40], reply.body.len());
            if let Some(fields) = reply.json()["error"]["fields"].as_object() {
                let reported: usize = fields.values().map(|all| all.as_array().unwrap().len()).sum();
                assert!(reported <= 100, "{reported}");
            }
        }
    }
    // Validation of posts with a test key is limited as well.
    let key = t.app.key_of(t.user, KeyMode::Test, "all").await;
    let validate =
        |body: serde_json::Value| t.app.request("POST", &t.path("/posts/validate")).key(&key).json(&body).send();
    assert_eq!(
        validate(json!({ "overrides": vec![json!({}); 15_000] })).await.invalid_fields(),
        ["content", "overrides"]
    );
    let reported = validate(json!({ "content": "x", "overrides": vec![json!({}); 1_000] })).await;
    assert_eq!(reported.invalid_fields().len(), 100);
    let many = validate(json!({ "nope": vec![0; 60_000] })).await.expect_error(413, "payload_too_large");
    assert!(many["message"].as_str().unwrap().contains("values"), "{many}");
}

async fn unicode_text_is_preserved(t: Tenant<'_>) {
    for (text, kept) in [
        ("🦊👩‍👩‍👧‍👦🇪🇺", "🦊👩‍👩‍👧‍👦🇪🇺"),
        ("مرحبا \u{200f}عالم", "مرحبا \u{200f}عالم"),
        ("e\u{301}a\u{308}", "éä"),
        ("<b>&amp;'\"\\/", "<b>&amp;'\"\\/"),
    ] {
        let created = t.post("/brands", json!({ "name": text })).await.data(201);
        assert_eq!(created["name"], kept);
        assert_eq!(t.get(&format!("/brands/{}", created["id"])).await.data(200)["name"], kept);
    }
}

async fn unexpected_bodies_are_ignored(t: Tenant<'_>) {
    let post = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201)["id"].clone();
    t.request("DELETE", &t.path(&format!("/posts/{post}"))).raw("{not json").send().await.expect(204);
    t.request("GET", "/brands").raw("{not json").send().await.expect(200);
}

/// Asserts that a body that is sent one byte at a time is aborted.
async fn check_slow_body(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
    let head = format!(
        "POST {BASE}/brands HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
        t.key
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let response = send_slowly(&mut socket).await;
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("too slowly"), "{response}");
}

/// Sends a byte at intervals until there is a response. The API measures the rate in real time, so the test must wait.
pub async fn send_slowly(socket: &mut tokio::net::TcpStream) -> String {
    let (mut from, mut to) = socket.split();
    let mut response = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&response).contains("request_id") {
        tokio::select! {
            read = from.read(&mut piece) => match read {
                Ok(0) | Err(_) => break,
                Ok(n) => response.extend_from_slice(&piece[..n]),
            },
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => drop(to.write_all(b" ").await),
        }
    }
    String::from_utf8_lossy(&response).into_owned()
}

/// A minimum rate with a grace period short enough for a test in which nothing is sent in time.
pub const SHORT_MIN_RATE: MinRate =
    MinRate { grace: std::time::Duration::from_millis(400), bytes_per_second: 64 << 10 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_are_aborted() {
    check_slow_body(TestApp::start_with_min_rate(TestStore::sqlite().await, SHORT_MIN_RATE).await).await;
}
