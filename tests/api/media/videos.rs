//! Uploads of videos.

use serde_json::{Value, json};

use super::receiving::start_upload;
use super::upload::upload_response;
use crate::support::app::{Reply, Tenant, on_both_apps, on_one_app};
use crate::support::client::until_true;
use crate::support::images;
use crate::support::request::assert_fields;
use crate::support::videos::{VideoSpec, mp4};

on_both_apps!("unlimited" =>
    a_video_is_stored_unchanged_and_described,
    a_repeated_upload_of_a_video_is_replayed,
);
on_one_app!("unlimited" =>
    a_video_is_served_in_ranges,
    a_video_is_served_with_its_index_first,
    files_of_the_other_kind_are_rejected,
    a_small_video_may_precede_its_type,
    an_oversized_video_is_rejected_before_it_arrives,
    a_video_waits_in_its_own_space,
    the_type_of_a_file_stays_that_of_its_kind,
    a_video_cannot_replace_an_image,
);
on_one_app!("free" => a_video_over_the_free_storage_is_rejected_before_it_arrives);

const MIB: u64 = 1 << 20;

fn video() -> Vec<u8> {
    mp4(VideoSpec::default())
}

async fn upload(t: &Tenant<'_>, bytes: &[u8], asset_type: Option<&str>) -> Reply {
    let texts: Vec<_> = asset_type.iter().map(|word| ("asset_type", *word)).collect();
    t.upload("loaf.mp4", bytes, &texts).await
}

async fn uploaded(t: &Tenant<'_>) -> Value {
    upload(t, &video(), Some("video")).await.data(201)
}

async fn a_video_is_stored_unchanged_and_described(t: Tenant<'_>) {
    let bytes = mp4(VideoSpec { rotation: 90, index_first: false, ..VideoSpec::default() });
    let asset = upload(&t, &bytes, Some("video")).await.data(201);
    assert_fields(&asset, json!({ "asset_type": "video", "mime_type": "video/mp4", "filename": "loaf.mp4" }));
    assert_fields(&asset, json!({ "size_bytes": bytes.len(), "width": 1_280, "height": 720, "rotation": 90 }));
    assert_fields(&asset, json!({ "duration_ms": 5_000, "frame_rate": 30.0, "video_codec": "h264" }));
    assert_fields(&asset, json!({ "audio_codec": null, "cover_url": null, "thumbnail_url": null, "source_url": null }));
    let path = t.path(&format!("/media/{}", asset["id"]));
    assert_eq!(t.get(&path).await.data(200), asset);
    assert_eq!(t.get(&t.path("/media?asset_type=video")).await.expect(200)["data"], json!([asset]));
    let served = t.app.visit("GET", asset["url"].as_str().unwrap()).send().await;
    assert!(served.status == 200 && served.body == bytes);
    assert_eq!((t.app.stored_files().len(), t.app.counted_bytes().await), (1, bytes.len() as i64));
    t.delete(&path).await.expect(204);
    assert_eq!(t.app.counted_bytes().await, 0);
    // The fields of a video are null for an image.
    let image = t.upload("a.png", &images::png(4, 3), &[]).await.data(201);
    assert_fields(&image, json!({ "duration_ms": null, "rotation": null, "frame_rate": null, "cover_url": null }));
    assert!(image["thumbnail_url"].is_string() && image["video_codec"].is_null(), "{image}");
}

async fn a_repeated_upload_of_a_video_is_replayed(t: Tenant<'_>) {
    let (bytes, path) = (video(), t.path("/media"));
    let send = || {
        let texts = [("asset_type", "video")];
        t.request("POST", &path).idempotency_key("once").form(Some(("a.mp4", &bytes)), &texts).send()
    };
    let (first, again) = (send().await, send().await);
    assert_eq!((again.data(201), again.replayed()), (first.data(201), true));
    assert_eq!(t.app.count_rows("media").await, 1);
}

async fn a_video_is_served_in_ranges(t: Tenant<'_>) {
    let bytes = video();
    let asset = uploaded(&t).await;
    let url = asset["url"].as_str().unwrap();
    assert!(url.ends_with(".mp4"), "{url}");
    let head = t.app.visit("HEAD", url).send().await;
    let length = bytes.len().to_string();
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some(length.as_str()), 0));
    let part = t.app.visit("GET", url).header("range", "bytes=100-1099").send().await;
    assert!(part.status == 206 && part.body == bytes[100..1_100]);
    assert_eq!(part.header("content-range"), Some(format!("bytes 100-1099/{length}").as_str()));
    for reply in [&head, &part] {
        assert_eq!((reply.header("content-type"), reply.header("accept-ranges")), (Some("video/mp4"), Some("bytes")));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let tag = head.header("etag").unwrap();
    assert_eq!(t.app.visit("GET", url).header("if-none-match", tag).send().await.status, 304);
    assert_eq!(t.app.visit("GET", url).header("range", "bytes=99999999-").send().await.status, 416);
}

/// Returns the positions of the index and of the frames in a file.
fn places(file: &[u8]) -> (usize, usize) {
    let place = |kind: &[u8]| file.windows(4).position(|window| window == kind).unwrap();
    (place(b"moov"), place(b"mdat"))
}

/// Returns the frames, and the position of the first one by the index.
fn frames(file: &[u8]) -> (&[u8], usize) {
    let (_, frames) = places(file);
    let table = file.windows(4).position(|window| window == b"stco").unwrap();
    // After the name: the version and flags, and the number of positions.
    let first = u32::from_be_bytes(file[table + 12..table + 16].try_into().unwrap());
    (&file[frames + 4..frames + 4 + 3 * MIB as usize], first as usize)
}

async fn a_video_is_served_with_its_index_first(t: Tenant<'_>) {
    // The frames and the index are in different blocks.
    let stored = mp4(VideoSpec { index_first: false, data: 3 * MIB as usize, ..VideoSpec::default() });
    let asset = upload(&t, &stored, Some("video")).await.data(201);
    let url = asset["url"].as_str().unwrap().replace("/media/", "/media/index-first/");
    let whole = t.app.visit("GET", &url).send().await;
    assert_eq!((whole.status, whole.body.len()), (200, stored.len()));
    let ((index, data), (old_index, old_data)) = (places(&whole.body), places(&stored));
    assert!(index < data && old_data < old_index);
    let (found, first) = frames(&whole.body);
    assert!(found == frames(&stored).0 && first == data + 4, "{first} {data}");

    let size = stored.len();
    let length = size.to_string();
    let head = t.app.visit("HEAD", &url).send().await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some(length.as_str()), 0));
    for (range, part) in [
        ("bytes=0-0".to_owned(), 0..1),
        (format!("bytes={}-{}", data - 10, data + 99), data - 10..data + 100),
        (format!("bytes={}-", size - 7), size - 7..size),
        ("bytes=-5".to_owned(), size - 5..size),
    ] {
        let reply = t.app.visit("GET", &url).header("range", &range).send().await;
        assert!(reply.status == 206 && reply.body == whole.body[part.clone()], "{range}: {}", reply.status);
        let expected = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        assert_eq!(reply.header("content-range"), Some(expected.as_str()));
        assert_eq!((reply.header("content-type"), reply.header("accept-ranges")), (Some("video/mp4"), Some("bytes")));
    }
    assert_eq!(t.app.visit("GET", &url).header("range", &format!("bytes={size}-")).send().await.status, 416);
    // The tag is not that of the stored file, whose bytes are in another order.
    let plain = t.app.visit("HEAD", asset["url"].as_str().unwrap()).send().await;
    assert_ne!(head.header("etag"), plain.header("etag"));
    let tag = head.header("etag").unwrap();
    assert_eq!(t.app.visit("GET", &url).header("if-none-match", tag).send().await.status, 304);

    // A file whose index is first is sent as it is stored. Other files are not at this URL.
    let first = uploaded(&t).await["url"].as_str().unwrap().replace("/media/", "/media/index-first/");
    assert!(t.app.visit("GET", &first).send().await.body == video());
    let image = t.upload("a.png", &images::png(4, 3), &[]).await.data(201);
    let image = image["url"].as_str().unwrap().replace("/media/", "/media/index-first/");
    let nothing = format!("{}/media/index-first/{}.mp4", t.app.url, "a".repeat(40));
    for url in [image, nothing] {
        assert_eq!(t.app.visit("GET", &url).send().await.status, 404, "{url}");
    }
}

async fn files_of_the_other_kind_are_rejected(t: Tenant<'_>) {
    let (video, png) = (video(), images::png(30, 20));
    for (bytes, asset_type, hint) in [
        (&video, None, "send `asset_type` with the value `video`"),
        (&video, Some("image"), "send `asset_type` with the value `video`"),
        (&png, Some("video"), "omit `asset_type`"),
        (&b"hello".to_vec(), Some("video"), "Use an MP4, MOV or WebM video"),
    ] {
        let error = upload(&t, bytes, asset_type).await.expect_error(415, "unsupported_media_type");
        assert!(error["message"].as_str().unwrap().contains(hint), "{asset_type:?}: {error}");
    }
    // Looks like a video until its headers are read.
    upload(&t, &video[..200], Some("video")).await.expect_error(415, "unsupported_media_type");
    assert_eq!(upload(&t, b"", Some("video")).await.invalid_fields(), ["file"]);
    assert_eq!((t.app.stored_files().len(), t.app.count_rows("media").await), (0, 0));
    assert_eq!(t.app.api.library.video_spools().held(), 0);
}

/// The head of the part with the file, and the part with the type of a video.
const FILE: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\n\r\n";
const TYPE: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"asset_type\"\r\n\r\nvideo\r\n";

async fn a_small_video_may_precede_its_type(t: Tenant<'_>) {
    let body = [FILE, &video(), b"\r\n", TYPE, b"--b--\r\n"].concat();
    let request = t.request("POST", &t.path("/media")).raw(body.as_slice());
    let reply = request.header("content-type", "multipart/form-data; boundary=b").send().await;
    assert_eq!(reply.data(201)["asset_type"], "video");
    // A larger one is rejected when its first bytes have arrived.
    let response = upload_response(&t, &format!("Content-Length: {}", 100 * MIB), &[FILE, &video()].concat()).await;
    assert!(response.starts_with("HTTP/1.1 415 ") && response.contains("before `file`"), "{response}");
}

async fn an_oversized_video_is_rejected_before_it_arrives(t: Tenant<'_>) {
    let length = format!("Content-Length: {}", 2_048 * MIB);
    let response = upload_response(&t, &length, &[TYPE, FILE, &video()].concat()).await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("1024 MiB"), "{response}");
    // So is an image of the size of a video, also in a request for a video.
    let length = format!("Content-Length: {}", 100 * MIB);
    let response = upload_response(&t, &length, &[FILE, &images::png(30, 20)].concat()).await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.contains("25 MiB"), "{response}");
    let response = upload_response(&t, &length, &[TYPE, FILE, &images::png(30, 20)].concat()).await;
    assert!(response.starts_with("HTTP/1.1 415 "), "{response}");
}

async fn a_video_over_the_free_storage_is_rejected_before_it_arrives(t: Tenant<'_>) {
    let response = upload_response(&t, &format!("Content-Length: {}", 600 * MIB), TYPE).await;
    assert!(response.starts_with("HTTP/1.1 402 ") && response.contains("storage_limit_exceeded"), "{response}");
}

async fn a_video_waits_in_its_own_space(t: Tenant<'_>) {
    let (others, videos) = (t.app.api.library.spools(), t.app.api.library.video_spools());
    let length = usize::try_from(900 * MIB).unwrap();
    let begun = [TYPE, FILE, &video()].concat();
    let stream = start_upload(&t, &t.app.fresh_key(), length, &begun).await;
    until_true("the video is being received", || videos.held() == 900 * MIB).await;
    assert_eq!(others.held(), 0);
    t.upload("a.png", &images::png(20, 20), &[]).await.expect(201);
    drop(stream);
    until_true("nothing is held", || videos.held() == 0).await;
}

async fn the_type_of_a_file_stays_that_of_its_kind(t: Tenant<'_>) {
    let video = uploaded(&t).await;
    let image = t.upload("a.png", &images::png(20, 20), &[]).await.data(201);
    let path = |asset: &Value| t.path(&format!("/media/{}", asset["id"]));
    for (asset, wrong) in [(&video, "image"), (&video, "logo"), (&image, "video")] {
        let reply = t.put(&path(asset), json!({ "asset_type": wrong })).await;
        assert_eq!(reply.invalid_fields(), ["asset_type"], "{wrong}");
    }
    let change = json!({ "asset_type": "video", "alt_text": "A loaf rises", "filename": "rising.mp4" });
    let changed = t.put(&path(&video), change).await.data(200);
    assert_fields(&changed, json!({ "asset_type": "video", "alt_text": "A loaf rises", "filename": "rising.mp4" }));
    assert_eq!(t.put(&path(&image), json!({ "asset_type": "icon" })).await.data(200)["asset_type"], "icon");
}

async fn a_video_cannot_replace_an_image(t: Tenant<'_>) {
    let video = uploaded(&t).await;
    let page = json!({ "title": "Acme", "avatar": video["id"] });
    let reply = t.post(&t.path("/link-in-bio"), page).await;
    assert_eq!(reply.invalid_fields(), ["avatar"]);
    assert!(reply.text().contains("is a video"), "{}", reply.text());
}
