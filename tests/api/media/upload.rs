//! Uploads of images.

use image::ImageFormat;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::{BASE, Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_both_apps!("unlimited" =>
    a_repeated_upload_is_replayed,
    reusing_a_key_for_another_form_is_rejected,
    concurrent_uploads_with_one_key_create_one_asset,
    identical_bytes_are_stored_once_per_brand,
    a_failed_write_releases_its_storage,
);
on_both_apps!("free" => an_upload_over_the_plan_cap_is_not_stored);
on_one_app!("unlimited" =>
    an_upload_is_stored_and_described,
    the_mime_type_is_detected_from_the_bytes,
    an_invalid_form_stores_nothing,
    a_malformed_multipart_body_is_rejected,
    files_other_than_images_are_rejected,
    an_oversized_content_length_is_rejected_before_reading,
    an_oversized_chunked_body_is_rejected_while_reading,
);

/// Asserts that nothing is stored after a rejected request.
async fn assert_nothing_stored(app: &TestApp) {
    assert_eq!(app.stored_files(), Vec::<String>::new());
    assert_eq!(app.count_rows("media").await, 0);
    assert_eq!(app.count_rows("files WHERE state <> 'doomed'").await, 0);
    assert_eq!(app.counted_bytes().await, 0);
}

async fn upload(t: &Tenant<'_>, bytes: &[u8]) -> Reply {
    t.upload("a.png", bytes, &[]).await
}

fn id(asset: &Value) -> i64 {
    asset["id"].as_i64().unwrap()
}

async fn an_upload_is_stored_and_described(t: Tenant<'_>) {
    let png = images::png(30, 20);
    let texts = [("asset_type", "logo"), ("alt_text", "A sign"), ("unknown", "is ignored")];
    let reply = t.upload("../up/the sign.jpg", &png, &texts).await;
    let asset = reply.data(201);
    assert_eq!(reply.header("location"), Some(format!("{BASE}{}/{}", t.path("/media"), asset["id"]).as_str()));
    assert_eq!((asset["asset_type"].as_str(), asset["alt_text"].as_str()), (Some("logo"), Some("A sign")));
    assert_eq!((asset["mime_type"].as_str(), asset["filename"].as_str()), (Some("image/png"), Some("the sign.jpg")));
    assert_eq!((asset["width"].as_i64(), asset["height"].as_i64()), (Some(30), Some(20)));
    assert!(asset["source_url"].is_null());
    assert!(asset["url"].as_str().unwrap().starts_with(&format!("{}/media/", t.app.url)), "{asset}");
    assert_eq!(t.app.stored_files().len(), 2, "the image and its thumbnail");
    let size = asset["size_bytes"].as_i64().unwrap();
    assert_eq!(t.app.counted_bytes().await, size);
    let usage = t.get(&t.path("/usage")).await.data(200);
    assert_eq!(usage["storage_mib"]["used"], 1, "a part of a MiB counts as one: {usage}");
}

async fn the_mime_type_is_detected_from_the_bytes(t: Tenant<'_>) {
    for (format, mime) in [
        (ImageFormat::Jpeg, "image/jpeg"),
        (ImageFormat::Png, "image/png"),
        (ImageFormat::Gif, "image/gif"),
        (ImageFormat::WebP, "image/webp"),
    ] {
        let bytes = images::encoded(&images::pixels(9, 7, 1), format);
        let asset = t.upload("page.html", &bytes, &[]).await.data(201);
        assert_eq!((asset["mime_type"].as_str(), asset["width"].as_i64()), (Some(mime), Some(9)), "{asset}");
        assert_eq!((asset["asset_type"].as_str(), asset["alt_text"].is_null()), (Some("image"), true), "{asset}");
    }
}

async fn an_invalid_form_stores_nothing(t: Tenant<'_>) {
    let png = images::png(3, 3);
    let path = t.path("/media");
    let send = |file: Option<&[u8]>, texts: &[(&str, &str)]| {
        let request = t.request("POST", &path).form(file.map(|bytes| ("a.png", bytes)), texts);
        async move { request.send().await }
    };
    assert_eq!(send(None, &[("asset_type", "film")]).await.invalid_fields(), ["asset_type", "file"]);
    assert_eq!(send(Some(b""), &[]).await.invalid_fields(), ["file"]);
    let long = "x".repeat(2_001);
    assert_eq!(send(Some(&png), &[("alt_text", &long)]).await.invalid_fields(), ["alt_text"]);
    assert_eq!(send(Some(&png), &[("alt_text", "a\0b")]).await.invalid_fields(), ["alt_text"]);
    let two = [
        "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n".to_owned(),
        "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ny\r\n--b--\r\n".to_owned(),
    ];
    assert_eq!(raw(&t, "multipart/form-data; boundary=b", two.concat().as_bytes()).await.invalid_fields(), ["file"]);
    assert_nothing_stored(t.app).await;
}

async fn raw(t: &Tenant<'_>, content_type: &str, body: &[u8]) -> Reply {
    t.request("POST", &t.path("/media")).raw(body).header("content-type", content_type).send().await
}

async fn a_malformed_multipart_body_is_rejected(t: Tenant<'_>) {
    let form = "multipart/form-data; boundary=b";
    raw(&t, "application/json", b"{}").await.expect_error(415, "unsupported_media_type");
    raw(&t, "image/png", &images::png(2, 2)).await.expect_error(415, "unsupported_media_type");
    raw(&t, "multipart/form-data", b"--b--\r\n").await.expect_error(400, "invalid_json");
    raw(&t, form, b"").await.expect_error(400, "invalid_json");
    raw(&t, form, b"no form at all").await.expect_error(400, "invalid_json");
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    raw(&t, form, format!("{head}cut off").as_bytes()).await.expect_error(400, "invalid_json");
    let latin =
        [b"--b\r\nContent-Disposition: form-data; name=\"alt_text\"\r\n\r\n\xe9\r\n--b--\r\n".as_slice()].concat();
    raw(&t, form, &latin).await.expect_error(400, "invalid_json");
    let part = "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n";
    raw(&t, form, format!("{}--b--\r\n", part.repeat(33)).as_bytes()).await.expect_error(400, "invalid_json");
    raw(&t, form, b"--b--\r\n").await.expect_error(422, "validation_failed");
    assert_nothing_stored(t.app).await;
}

async fn files_other_than_images_are_rejected(t: Tenant<'_>) {
    let svg = br#"<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>"#;
    let png = images::png(64, 64);
    for bytes in
        [&b"hello"[..], svg, b"<!doctype html><script>alert(1)</script>", b"%PDF-1.4\n", &png[..33], &png[..900]]
    {
        let error = upload(&t, bytes).await.expect_error(415, "unsupported_media_type");
        assert!(error["message"].as_str().unwrap().ends_with('.'), "{error}");
    }
    assert_nothing_stored(t.app).await;
}

/// Sends the head of an upload and a part of its body, and returns the response.
pub async fn upload_response(t: &Tenant<'_>, length: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(t.app.address).await.unwrap();
    let head = format!(
        "POST {BASE}{} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {}\r\nContent-Type: multipart/form-data; boundary=b\r\n{length}\r\n\r\n",
        t.path("/media"),
        t.key,
        t.app.fresh_key(),
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may close the connection when it rejects an upload early.
    let _ = stream.write_all(body).await;
    let mut response = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&response).contains("request_id") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(n) => response.extend_from_slice(&piece[..n]),
        }
    }
    String::from_utf8_lossy(&response).into_owned()
}

async fn an_oversized_content_length_is_rejected_before_reading(t: Tenant<'_>) {
    let response = upload_response(&t, &format!("Content-Length: {}", 2_u64 << 30), b"").await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("payload_too_large"), "{response}");
    assert!(response.contains("1024 MiB"), "{response}");
    // A client that is already sending the body can read the response as well. The file is no video.
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    let mut body = head.as_bytes().to_vec();
    body.resize(40 << 20, b'x');
    let response = upload_response(&t, &format!("Content-Length: {}", 40 << 20), &body).await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("25 MiB"), "{response}");
}

async fn an_oversized_chunked_body_is_rejected_while_reading(t: Tenant<'_>) {
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    let mut body = format!("{:x}\r\n{head}\r\n", head.len()).into_bytes();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..26 {
        body.extend_from_slice(b"100000\r\n");
        body.extend_from_slice(&chunk);
        body.extend_from_slice(b"\r\n");
    }
    let response = upload_response(&t, "Transfer-Encoding: chunked", &body).await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("payload_too_large"), "{response}");
    assert_nothing_stored(t.app).await;
}

async fn a_repeated_upload_is_replayed(t: Tenant<'_>) {
    let png = images::png(12, 9);
    let path = t.path("/media");
    let send =
        || t.request("POST", &path).idempotency_key("once").form(Some(("a.png", &png)), &[("alt_text", "A")]).send();
    let first = send().await;
    first.expect(201);
    // Each form has its own boundary.
    let again = send().await;
    assert!(again.replayed());
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(t.app.count_rows("media").await, 1);
}

async fn reusing_a_key_for_another_form_is_rejected(t: Tenant<'_>) {
    let (png, other) = (images::png(12, 9), images::png(12, 10));
    let path = t.path("/media");
    let send = |name: &'static str, bytes: &[u8], texts: &[(&str, &str)]| {
        let request = t.request("POST", &path).idempotency_key("once").form(Some((name, bytes)), texts);
        async move { request.send().await }
    };
    send("a.png", &png, &[("alt_text", "A")]).await.expect(201);
    send("a.png", &other, &[("alt_text", "A")]).await.expect_error(409, "idempotency_key_reused");
    send("b.png", &png, &[("alt_text", "A")]).await.expect_error(409, "idempotency_key_reused");
    send("a.png", &png, &[("alt_text", "B")]).await.expect_error(409, "idempotency_key_reused");
    send("a.png", &png, &[]).await.expect_error(409, "idempotency_key_reused");
    // A conflict with the key's first request is reported before errors in the body.
    let broken = t.request("POST", &path).idempotency_key("once").raw(b"x".as_slice());
    broken.send().await.expect_error(409, "idempotency_key_reused");
    // A rejected request releases its key.
    let rejected = t.request("POST", &path).idempotency_key("second").form(Some(("a.png", b"no")), &[]);
    rejected.send().await.expect_error(415, "unsupported_media_type");
    t.request("POST", &path).idempotency_key("second").form(Some(("a.png", &png)), &[]).send().await.expect(201);
}

async fn concurrent_uploads_with_one_key_create_one_asset(t: Tenant<'_>) {
    for round in 0..20u8 {
        let png = images::encoded(&images::pixels(20, 20, round), ImageFormat::Png);
        let (path, key) = (t.path("/media"), format!("round-{round}"));
        let send = || t.request("POST", &path).idempotency_key(&key).form(Some(("a.png", &png)), &[]).send();
        let (one, two, three) = tokio::join!(send(), send(), send());
        for reply in [one, two, three] {
            if reply.status == 409 {
                reply.expect_error(409, "idempotency_in_progress");
            } else {
                reply.expect(201);
            }
        }
        assert_eq!(t.app.count_rows("media").await, i64::from(round) + 1);
        assert_eq!(t.app.count_rows("files WHERE state = 'stored'").await, i64::from(round) + 1);
        assert_eq!(t.app.count_rows("files").await, i64::from(round) + 1);
    }
}

async fn identical_bytes_are_stored_once_per_brand(t: Tenant<'_>) {
    let png = images::png(40, 30);
    let (one, two) = (upload(&t, &png).await.data(201), upload(&t, &png).await.data(201));
    assert_ne!(id(&one), id(&two));
    assert_eq!(one["url"], two["url"]);
    assert_eq!(t.app.counted_bytes().await, one["size_bytes"].as_i64().unwrap());
    // The same holds for concurrent uploads.
    let other = images::png(41, 30);
    let all = futures::future::join_all((0..6).map(|_| upload(&t, &other))).await;
    let urls: Vec<Value> = all.iter().map(|reply| reply.data(201)["url"].clone()).collect();
    assert!(urls.iter().all(|url| *url == urls[0]), "{urls:?}");
    assert_eq!(t.app.stored_files().len(), 4, "two images with their thumbnails");
    // Files are shared only within a brand, so that no brand learns which files others have.
    let stranger = t.app.tenant("unlimited").await;
    let theirs = upload(&stranger, &png).await.data(201);
    assert_ne!(theirs["url"], one["url"]);
}

async fn an_upload_over_the_plan_cap_is_not_stored(t: Tenant<'_>) {
    let used = 500 << 20;
    t.app.set_storage_usage(t.workspace, used, 0).await;
    let error = upload(&t, &images::png(10, 10)).await.expect_error(402, "storage_limit_exceeded");
    assert!(error["message"].as_str().unwrap().contains("500 MiB"), "{error}");
    assert_eq!(t.app.stored_files(), Vec::<String>::new());
    assert_eq!(t.app.counted_bytes().await, used);
    assert_eq!(t.app.count_rows("files").await, 0);
    let usage = t.get(&t.path("/usage")).await.data(200);
    assert_eq!((&usage["storage_mib"]["used"], &usage["storage_mib"]["limit"]), (&500.into(), &500.into()));
}

async fn a_failed_write_releases_its_storage(t: Tenant<'_>) {
    // The bytes are stored, but the asset's row cannot be written.
    t.app.sql("ALTER TABLE media RENAME TO hidden").await;
    let reply = upload(&t, &images::png(16, 16)).await;
    reply.expect_error(500, "internal_error");
    t.app.sql("ALTER TABLE hidden RENAME TO media").await;
    assert_eq!(t.app.count_rows("files WHERE state = 'doomed'").await, 1);
    assert_eq!(t.app.counted_bytes().await, 0);
    // The stored bytes are discarded; the same bytes can be uploaded again.
    upload(&t, &images::png(16, 16)).await.expect(201);
}
