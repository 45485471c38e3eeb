//! The disk for files, or the disk for temporary files, is full. Invariant: an upload is rejected completely and can be
//! repeated, and an import is retried. No partial file remains, and no storage usage is counted.

use crier_http::HttpResponse;
use serde_json::{Value, json};

use crate::support::client::{fresh_key, id, until};
use crate::support::images;
use crate::support::process::Installation;
use crate::support::source::{Source, SourceResponse, ok};

/// The maximum size of a file while the disk is full, in bytes.
const MAX_FILE_SIZE: u32 = 200_000;

/// Returns an image that does not fit on the disk, and is kept in memory until it is stored.
fn image_above_limit() -> Vec<u8> {
    let large = images::noise(350);
    assert!((MAX_FILE_SIZE as usize..500_000).contains(&large.len()), "{}", large.len());
    large
}

/// Returns an image that is kept in a temporary file until it is processed.
fn image_in_temporary_file() -> Vec<u8> {
    let larger = images::noise(600);
    assert!(larger.len() > 600_000, "{}", larger.len());
    larger
}

fn assert_service_unavailable(response: &HttpResponse) {
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((response.status.as_u16(), &body["error"]["code"]), (503, &"service_unavailable".into()), "{body}");
    assert!(response.headers.contains_key("retry-after"));
    assert!(!body["error"]["message"].as_str().unwrap().contains("os error"), "{body}");
}

/// Asserts the number of images, and that only their files count as storage usage.
async fn assert_stored_images(crier: &Installation, images: i64) {
    assert_eq!(crier.count_rows("media").await, images);
    let stored = crier.sum("size_bytes", "files WHERE state = 'stored'").await;
    assert_eq!(crier.sum("bytes", "storage_usage").await, stored);
    assert_eq!(crier.count_rows("files WHERE state = 'reserved'").await, 0);
}

#[tokio::test]
async fn a_full_disk_rejects_uploads_and_delays_imports() {
    let crier = Installation::split().await;
    let brand = crier.brand().await;
    for process in ["crier-api", "crier-worker"] {
        crier.limit_files(process, Some(MAX_FILE_SIZE));
    }
    for image in [image_above_limit(), image_in_temporary_file()] {
        assert_service_unavailable(&crier.upload(brand, &image).await.unwrap_err());
        assert_stored_images(&crier, 0).await;
        assert_eq!(crier.readiness("crier-api").await.unwrap().0, 200, "everything else works");
    }
    crier.upload(brand, &images::png(9, 9)).await.expect("there is room for a small one");
    assert_stored_images(&crier, 1).await;

    let source = Source::start().await;
    source.rule(|path| {
        SourceResponse::Send(ok(&if path == "/large.png" { image_above_limit() } else { image_in_temporary_file() }))
    });
    let mut imports = Vec::new();
    for name in ["large", "larger"] {
        imports.push(crier.import(brand, &source.url(&format!("/{name}.png"))).await);
    }
    for import in &imports {
        let path = format!("/brands/{brand}/jobs/{import}");
        let retried = until("a try", || async {
            let import = crier.read(&path).await?["data"].clone();
            (import["status"] == "pending" && !import["error"].is_null()).then_some(import)
        })
        .await;
        assert_eq!(retried["error"]["code"], "internal_error", "{retried}");
    }
    assert_stored_images(&crier, 1).await;

    for process in ["crier-api", "crier-worker"] {
        crier.limit_files(process, None);
    }
    for import in imports {
        let ended = crier.wait_for_import(brand, import).await;
        assert_eq!(ended["status"], "completed", "{ended}");
    }
    for image in [image_above_limit(), image_in_temporary_file()] {
        crier.upload(brand, &image).await.expect("it is taken");
    }
    assert_stored_images(&crier, 5).await;
}

/// A reserve that is larger than any disk, in MiB.
const TOO_LARGE_RESERVE: [(&str, &str); 1] = [("CRIER_DISK_RESERVE_MIB", "1073741824")];

/// If there is less free space than the reserve, new images and posts are rejected; publishing and deletions work.
#[tokio::test]
async fn the_reserve_of_the_disk_is_kept_for_publishing_and_deletions() {
    let mut crier = Installation::embedded().await;
    let (brand, account) = crier.sandbox("reserve").await;
    let posts = format!("/brands/{brand}/posts");
    let draft = |text: &str| json!({ "content": text, "accounts": [account] });
    let published = id(&crier.write(&posts, draft("Published")).await);
    let deleted = id(&crier.write(&posts, draft("Deleted")).await);
    let name = crier.of("api");
    assert_eq!(crier.metric(&name, "crier_disk_low").await, Some(0.0));
    assert_eq!(crier.terminate(&name).await, Some(0));
    crier.start_one_with(&name, &TOO_LARGE_RESERVE).await;
    let reason = until("the reserve to be noticed", || async {
        let (status, body) = crier.readiness(&name).await?;
        assert_eq!((status, &body["status"]), (200, &"ready".into()), "{body}");
        body["degraded"]["disk"].as_str().map(str::to_owned)
    })
    .await;
    assert!(reason.contains("1073741824 MiB are reserved"), "{reason}");
    assert_eq!(crier.metric(&name, "crier_disk_low").await, Some(1.0));
    assert_service_unavailable(&crier.upload(brand, &images::png(9, 9)).await.unwrap_err());
    let (status, body) = crier.call("POST", &posts, Some(draft("New")), &fresh_key()).await.expect("a response");
    assert_eq!((status, &body["error"]["code"]), (503, &"service_unavailable".into()), "{body}");
    let now = json!({ "schedule_type": "now" });
    let (status, body) = crier.call("PUT", &format!("{posts}/{published}"), Some(now), &fresh_key()).await.unwrap();
    assert_eq!(status, 200, "{body}");
    assert_eq!(crier.wait_for_post(brand, published).await["status"], "published");
    let (status, _) = crier.call("DELETE", &format!("{posts}/{deleted}"), None, &fresh_key()).await.unwrap();
    assert_eq!(status, 204);
    let output = crier.try_command(&["doctor", "--json"], &TOO_LARGE_RESERVE);
    assert!(output.status == Some(1) && output.out.contains("CRIER_DISK_RESERVE_MIB"), "{output:?}");
}
