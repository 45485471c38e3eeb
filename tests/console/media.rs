//! The media library.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::{Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::images;

on_one_app!(console "unlimited" =>
    an_image_is_uploaded_once,
    images_are_searched_and_paged,
    an_image_is_changed_and_deleted,
    an_import_is_requested_and_its_state_shown,
);
on_sqlite_app!(only_the_brands_images_are_listed);
on_sqlite_app!(console "free" => an_upload_above_the_storage_limit_is_rejected_by_its_head);
on_sqlite_app!(console "unlimited" => a_file_that_is_not_an_image_is_rejected_at_the_field);

/// Returns the URL of the form, with its key.
fn upload_form(page: &Page, path: &str) -> String {
    let start = page.text.find(&format!("{path}?_key=")).expect("the form");
    page.text[start..].split('"').next().unwrap().replace("&amp;", "&")
}

async fn upload(t: &Tenant<'_>, person: &ConsoleUser<'_>, form: &str, bytes: &[u8]) -> (u16, String) {
    upload_from(t, person, form, bytes, &t.app.url).await
}

/// Uploads an image from a page of another origin.
async fn upload_from(
    t: &Tenant<'_>,
    person: &ConsoleUser<'_>,
    form: &str,
    bytes: &[u8],
    origin: &str,
) -> (u16, String) {
    let request = t.app.visit("POST", &format!("{}{form}", t.app.url)).header("cookie", &person.cookie);
    let request = request.header("origin", origin);
    let texts = [("alt_text", "Fresh bread"), ("asset_type", "image")];
    let reply = request.form(Some(("bread.png", bytes)), &texts).send().await;
    (reply.status, String::from_utf8_lossy(&reply.body).into_owned())
}

async fn an_image_is_uploaded_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/media");
    let page = person.get(&path).await;
    page.expect(200, "No images or videos yet").expect(200, "at most 25 MiB");
    let (form, bytes) = (upload_form(&page, &path), images::png(60, 20));
    for _ in 0..2 {
        assert_eq!(upload(&t, &person, &form, &bytes).await.0, 303);
    }
    assert_eq!(t.app.count_rows("media").await, 1);
    let page = person.get(&path).await;
    page.expect(200, "bread.png")
        .expect(200, "60 × 20")
        .expect(200, "alt=\"Fresh bread\"")
        .expect(200, "src=\"/media/");
    for origin in ["https://evil.example", "null", ""] {
        assert_eq!(upload_from(&t, &person, &form, &bytes, origin).await.0, 403, "{origin}");
    }
}

async fn an_upload_above_the_storage_limit_is_rejected_by_its_head(t: Tenant<'_>, person: ConsoleUser<'_>) {
    // The plan has 500 MiB.
    t.app.set_storage_usage(t.workspace, 499 << 20, 0).await;
    let form = upload_form(&person.get(&t.path("/media")).await, &t.path("/media"));
    // Sends only the head: a server that waits for the body would wait forever.
    let head = format!(
        "POST {form} HTTP/1.1\r\nHost: x\r\nCookie: {}\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Sec-Fetch-Site: same-origin\r\nContent-Length: {}\r\n\r\n",
        person.cookie,
        10 << 20,
    );
    let mut stream = TcpStream::connect(t.app.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = [0; 12];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 422");
    assert_eq!(t.app.api.library.spools().held(), 0);
}

async fn a_file_that_is_not_an_image_is_rejected_at_the_field(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/media");
    for bytes in [b"%PDF-1.7 no image".as_slice(), b""] {
        let form = upload_form(&person.get(&path).await, &path);
        let (status, text) = upload(&t, &person, &form, bytes).await;
        assert!(status == 422 && text.contains("e-file"), "{status}: {text}");
        assert!(text.contains("\nFresh bread</textarea>"), "the description is kept: {text}");
    }
    assert_eq!(t.app.count_rows("media").await, 0);
}

async fn images_are_searched_and_paged(t: Tenant<'_>, person: ConsoleUser<'_>) {
    for n in 0..21_u32 {
        t.upload(&format!("bread{n}.png"), &images::png(20 + n, 20), &[]).await.data(201);
    }
    let path = t.path("/media");
    person.get(&path).await.expect(200, "1–20 of 21").expect(200, "no description");
    person.get(&format!("{path}?page=2")).await.expect(200, "21–21 of 21");
    person.get(&format!("{path}?search=BREAD20")).await.expect(200, "bread20.png").expect(200, "Show all");
    person.get(&format!("{path}?search=%25")).await.expect(200, "No matching files");
    person.get(&format!("{path}?asset_type=logo")).await.expect(200, "No matching files");
    for query in ["page=0", "asset_type=flown", &format!("search={}", "%00".repeat(300))] {
        person.get(&format!("{path}?{query}")).await.expect(200, "1–20 of 21");
    }
}

async fn an_image_is_changed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = t.upload("a.png", &images::png(60, 20), &[]).await.data(201)["id"].as_i64().unwrap();
    let path = t.path(&format!("/media/{id}"));
    person.get(&path).await.expect(200, "PNG").expect(200, &format!("{}/media/", t.app.url));
    let long = "x".repeat(2_001);
    let page = person.submit(&path, &path, &[("filename", ""), ("alt_text", &long), ("asset_type", "flown")]).await;
    page.expect(422, "e-filename").expect(422, "e-alt_text").expect(422, "e-asset_type");
    let form = [("filename", "Bread"), ("alt_text", "<i>Rye</i>"), ("asset_type", "logo")];
    let page = person.submit(&path, &path, &form).await;
    page.expect(200, "Image saved.").expect(200, "Bread").expect(200, "value=\"logo\" selected");
    let page = person.submit(&path, &path, &[("filename", "Bread"), ("alt_text", ""), ("asset_type", "logo")]).await;
    page.expect(200, "Image saved.");
    assert_eq!(t.app.count_rows("media WHERE alt_text IS NULL").await, 1);
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "Image deleted.");
    person.get(&path).await.expect(404, "Page not found");
}

async fn an_import_is_requested_and_its_state_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (path, import) = (t.path("/media"), t.path("/media/import"));
    person.submit(&path, &import, &[("url", ""), ("alt_text", "Rye")]).await.expect(422, "e-url").expect(422, "Rye");
    let page = person.submit(&path, &import, &[("url", "http://127.0.0.1/a.png")]).await;
    page.expect(422, "Use a public http:// or https:// URL.");
    let page = person.get(&path).await;
    for _ in 0..2 {
        let done = person.submit_from(&page, &import, &[("url", "https://8.8.8.8/a.png"), ("alt_text", "")]).await;
        done.expect(200, "Importing the file.").expect(200, "Waiting").expect(200, "https://8.8.8.8/a.png");
    }
    assert_eq!(t.app.count_rows("media_jobs").await, 1);
    t.app.sql(
        "UPDATE media_jobs SET status = 'failed', error = '{\"code\":\"http_error\",\"message\":\"It returned 404.\"}'",
    )
    .await;
    person.get(&path).await.expect(200, "Failed").expect(200, "It returned 404.");
}

async fn only_the_brands_images_are_listed(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    t.upload("a.png", &images::png(60, 20), &[]).await.expect(201);
    other.upload("theirs.png", &images::png(60, 20), &[]).await.expect(201);
    other.post(&other.path("/media/from-url"), json!({ "url": "https://8.8.8.8/theirs.png" })).await.expect(202);
    let list = ConsoleUser::sign_in(&t).await.get(&t.path("/media")).await;
    assert!(list.has("a.png") && !list.has("theirs"), "{}", list.text);
}
