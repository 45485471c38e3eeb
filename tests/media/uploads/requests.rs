//! The requests of resumable uploads: the protocol, invalid ones, those of others, and those of the console.

use crier_domain::access::KeyMode;
use serde_json::json;

use super::{
    BYTES, METADATA, append, append_some, assert_asset, create, new_upload, number, offset, status, tus,
    until_released, video,
};
use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::console::ConsoleUser;

const MIB: i64 = 1 << 20;

on_both_apps!(uploads_of_others_are_not_found);
on_one_app!("unlimited" => invalid_requests_are_rejected, responses_name_the_protocol, options_need_no_key);
on_one_app!(console "unlimited" => the_console_s_script_can_upload);

async fn uploads_of_others_are_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let theirs = create(&t, 1_000).await;
    let upload = theirs.rsplit('/').next().unwrap();
    let below_own = other.path(&format!("/media/uploads/{upload}"));
    for method in ["HEAD", "PATCH", "DELETE"] {
        let send = async |path: &str| tus(&other, method, path).header("upload-offset", "0").send().await.status;
        assert_eq!((send(&theirs).await, send(&below_own).await), (403, 404), "{method}");
    }
    let below_theirs = tus(&other, "POST", &t.path("/media/uploads")).header("upload-length", "5").send().await;
    below_theirs.expect_error(403, "brand_forbidden");
    assert_eq!(offset(&t, &theirs).await, 0);
    // A test key cannot write.
    let test_key = app.key_of(t.user, KeyMode::Test, "all").await;
    let reply = new_upload(&t, 5).key(&test_key).send().await;
    reply.expect_error(403, "test_mode_write_forbidden");
    let reader = app.key_of(t.user, KeyMode::Live, "media:read").await;
    new_upload(&t, 5).key(&reader).send().await.expect_error(403, "insufficient_scope");
}

async fn invalid_requests_are_rejected(t: Tenant<'_>) {
    let uploads = t.path("/media/uploads");
    for (header, value, words) in [
        ("upload-defer-length", "1", "Upload-Length"),
        ("upload-concat", "partial", "Upload-Concat"),
        ("upload-length", "0", "Upload-Length"),
        ("upload-length", "-1", "Upload-Length"),
        ("upload-length", "5.5", "Upload-Length"),
        ("upload-metadata", "filename ???", "base64"),
        ("upload-metadata", "filename YQ==,filename YQ==", "only once"),
    ] {
        let error = new_upload(&t, 5).header(header, value).send().await.expect_error(400, "invalid_upload");
        assert!(error["message"].as_str().unwrap().contains(words), "{header}: {value}: {error}");
    }
    tus(&t, "POST", &uploads).send().await.expect_error(400, "invalid_upload");
    new_upload(&t, 5).raw("bytes").send().await.expect_error(400, "invalid_upload");
    new_upload(&t, 1_025 * MIB).send().await.expect_error(413, "payload_too_large");
    new_upload(&t, i64::MAX).send().await.expect_error(413, "payload_too_large");
    // The words `image` and `x`.
    for metadata in ["asset_type aW1hZ2U=", "asset_type eA=="] {
        let reply = new_upload(&t, 5).header("upload-metadata", metadata).send().await;
        assert_eq!(reply.invalid_fields(), ["asset_type"], "{metadata}");
    }
    assert_eq!((t.app.count_rows("media_uploads").await, t.app.counted_bytes().await), (0, 0));

    let path = create(&t, 1_000).await;
    append_some(&t, &path, 0, &[1; 10]).await;
    append(&t, &path, 10, &[1]).await.expect(204);
    for wrong in [0, 10, 12, 2_000] {
        let error = append(&t, &path, wrong, &[1]).await.expect_error(409, "upload_offset_mismatch");
        assert!(error["message"].as_str().unwrap().contains("`Upload-Offset: 11`"), "{error}");
    }
    append(&t, &path, 11, &[1; 990]).await.expect_error(413, "payload_too_large");
    tus(&t, "PATCH", &path).raw("x").send().await.expect_error(415, "unsupported_media_type");
    let without_offset = tus(&t, "PATCH", &path).raw("x").header("content-type", BYTES).send().await;
    without_offset.expect_error(400, "invalid_upload");
    assert_eq!(offset(&t, &path).await, 11, "nothing was added");
    until_released(t.app, 11).await;
    let nowhere = t.path(&format!("/media/uploads/{MISSING_ID}"));
    append(&t, &nowhere, 0, &[1]).await.expect_error(404, "not_found");
}

async fn responses_name_the_protocol(t: Tenant<'_>) {
    let path = create(&t, 1_000).await;
    for reply in [
        new_upload(&t, 5).send().await,
        status(&t, &path).await,
        append(&t, &path, 0, &[1]).await,
        append(&t, &path, 0, &[1]).await,
        tus(&t, "DELETE", &path).send().await,
        tus(&t, "DELETE", &path).send().await,
    ] {
        assert_eq!(reply.header("tus-resumable"), Some("1.0.0"), "{reply:?}");
    }
    for version in [None, Some("0.2.2")] {
        let request = new_upload(&t, 5).without("tus-resumable");
        let request = if let Some(version) = version { request.header("tus-resumable", version) } else { request };
        let reply = request.send().await;
        reply.expect_error(412, "upload_version_unsupported");
        assert_eq!((reply.header("tus-version"), reply.header("tus-resumable")), (Some("1.0.0"), Some("1.0.0")));
    }
    new_upload(&t, 5).without("authorization").send().await.expect_error(401, "unauthorized");
}

async fn options_need_no_key(t: Tenant<'_>) {
    let uploads = t.path("/media/uploads");
    for path in [uploads.clone(), format!("{uploads}/1")] {
        let reply = t.app.request("OPTIONS", &path).send().await;
        reply.expect(204);
        for (name, value) in [
            ("tus-resumable", "1.0.0"),
            ("tus-version", "1.0.0"),
            ("tus-extension", "creation,expiration,termination"),
            ("tus-max-size", "1073741824"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{name}");
        }
    }
}

/// The script of the console uses the session and its CSRF token in place of an API key.
async fn the_console_s_script_can_upload(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let hidden = person.get(&t.path("")).await.hidden_fields("/sign-out");
    let csrf = hidden.into_iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let uploads = format!("/console{}", t.path("/media/uploads"));
    let request = |method: &str, path: &str| {
        let request = t.app.visit(method, &format!("{}{path}", t.app.url)).header("tus-resumable", "1.0.0");
        request.header("cookie", &person.cookie).header("x-csrf-token", &csrf)
    };
    let video = video(1_000);
    let new = || request("POST", &uploads).header("upload-length", &video.len().to_string());
    for (name, value) in [("x-csrf-token", ""), ("x-csrf-token", "00"), ("sec-fetch-site", "cross-site")] {
        new().header(name, value).send().await.assert_status(403);
    }
    new().without("cookie").send().await.assert_status(401);
    new().without("tus-resumable").send().await.assert_status(412);
    assert_eq!(t.app.count_rows("media_uploads").await, 0);
    let created = new().header("upload-metadata", METADATA).send().await;
    created.assert_status(201);
    let path = created.header("location").unwrap().to_owned();
    assert!(path.starts_with(&uploads), "{path}");
    let shown = request("HEAD", &path).send().await;
    assert_eq!((shown.status, number(&shown, "upload-offset")), (200, Some(0)));
    let send = |offset: &str| request("PATCH", &path).header("upload-offset", offset).raw(video.as_slice());
    let wrong = send("5").header("content-type", BYTES).send().await;
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (409, &json!("upload_offset_mismatch")));
    let reply = send("0").header("content-type", BYTES).send().await;
    reply.assert_status(204);
    assert_asset(&t, number(&reply, "crier-media-id").unwrap(), &video).await;
    request("DELETE", &path).send().await.assert_status(204);
}
