//! The disk for files, or the one for temporary files, is full. Invariant: an upload is rejected completely and can be
//! repeated; an import is retried; nothing partial is left, and no storage usage is counted; with free space there is
//! no trace of it.

use crier_http::HttpResponse;
use serde_json::Value;

use crate::support::client::until;
use crate::support::picture;
use crate::support::process::Installation;
use crate::support::source::{Source, SourceResponse, ok};

/// The maximum file size meanwhile, in bytes.
const SPACE: u32 = 200_000;

/// A picture that does not fit, and is kept in memory until it is stored.
fn large() -> Vec<u8> {
    let large = picture::noise(350);
    assert!((SPACE as usize..500_000).contains(&large.len()), "{}", large.len());
    large
}

/// A picture that is kept in a temporary file until it is processed.
fn larger() -> Vec<u8> {
    let larger = picture::noise(600);
    assert!(larger.len() > 600_000, "{}", larger.len());
    larger
}

fn is_away(answer: &HttpResponse) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status.as_u16(), &body["error"]["code"]), (503, &"service_unavailable".into()), "{body}");
    assert!(answer.headers.contains_key("retry-after"));
    assert!(!body["error"]["message"].as_str().unwrap().contains("os error"), "{body}");
}

/// Asserts the number of pictures, and that only their files count as storage usage.
async fn holds(crier: &Installation, pictures: i64) {
    assert_eq!(crier.number("SELECT count(*) FROM media").await, pictures);
    let bytes = "SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM storage_usage";
    let stored = "SELECT CAST(coalesce(sum(size_bytes), 0) AS bigint) FROM files WHERE state = 'stored'";
    assert_eq!(crier.number(bytes).await, crier.number(stored).await);
    assert_eq!(crier.number("SELECT count(*) FROM files WHERE state = 'reserved'").await, 0);
}

#[tokio::test]
async fn a_full_disk_rejects_uploads_and_delays_imports() {
    let crier = Installation::split().await;
    let brand = crier.brand().await;
    for process in ["crier-api", "crier-worker"] {
        crier.limit_files(process, Some(SPACE));
    }
    for refused in [large(), larger()] {
        is_away(&crier.upload(brand, &refused).await.unwrap_err());
        holds(&crier, 0).await;
        assert_eq!(crier.readiness("crier-api").await.unwrap().0, 200, "everything else works");
    }
    crier.upload(brand, &picture::png(9, 9)).await.expect("there is room for a small one");
    holds(&crier, 1).await;

    let source = Source::start().await;
    source.rule(|path| SourceResponse::Send(ok(&if path == "/large.png" { large() } else { larger() })));
    let mut imports = Vec::new();
    for name in ["large", "larger"] {
        imports.push(crier.import(brand, &source.url(&format!("/{name}.png"))).await);
    }
    for import in &imports {
        let path = format!("/brands/{brand}/jobs/{import}");
        let put_off = until("a try", || async {
            let import = crier.read(&path).await?["data"].clone();
            (import["status"] == "pending" && !import["error"].is_null()).then_some(import)
        })
        .await;
        assert_eq!(put_off["error"]["code"], "internal_error", "{put_off}");
    }
    holds(&crier, 1).await;

    for process in ["crier-api", "crier-worker"] {
        crier.limit_files(process, None);
    }
    for import in imports {
        let ended = crier.end_of_import(brand, import).await;
        assert_eq!(ended["status"], "completed", "{ended}");
    }
    for taken in [large(), larger()] {
        crier.upload(brand, &taken).await.expect("it is taken");
    }
    holds(&crier, 5).await;
}
