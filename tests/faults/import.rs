//! `kill -9` of a worker that imports images: every accepted import completes, with one asset, and the storage contains
//! no file without a row.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::support::client::until_true;
use crate::support::images;
use crate::support::process::{Installation, on_both_forms};
use crate::support::source::{SourceResponse, cut_off, ok};

on_both_forms!(every_import_ends_once);

const BRANDS: usize = 3;
/// The number of imports per brand for each of the two kills. The lane of a brand runs four concurrently.
const IMPORTS_PER_BRAND: usize = 4;

/// Returns a different image for each path.
fn image_response(path: &str) -> Vec<u8> {
    let number: u32 = path.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    ok(&images::png(300 + number, 200))
}

async fn every_import_ends_once(mut crier: Installation) {
    let source = crate::support::source::Source::start().await;
    crier.listen_for("http://127.0.0.1:1/", &["media.completed", "media.failed"]).await;
    let mut brands = Vec::new();
    for _ in 0..BRANDS {
        brands.push(crier.brand().await);
    }
    // Every second import is in the middle of its download; the others are finished or nearly finished.
    source.rule(|path| match path.len() % 2 {
        0 => SourceResponse::Stall(cut_off(&image_response(path))),
        _ => SourceResponse::Send(image_response(path)),
    });
    let mut imports = Vec::new();
    for number in 0..BRANDS * IMPORTS_PER_BRAND {
        let brand = brands[number % BRANDS];
        let path = format!("/{}{number:03}.png", if number < 6 { "a" } else { "bc" });
        imports.push((brand, crier.import(brand, &source.url(&path)).await));
    }
    until_true("every import under way", || source.paths().len() == BRANDS * IMPORTS_PER_BRAND).await;
    let worker = crier.of("worker");
    crier.kill(&worker);
    source.rule(|path| SourceResponse::Send(image_response(path)));
    crier.start_all().await;
    // This waits in real time: the second kill hits whatever step each import has reached.
    for number in BRANDS * IMPORTS_PER_BRAND..2 * BRANDS * IMPORTS_PER_BRAND {
        let brand = brands[number % BRANDS];
        imports.push((brand, crier.import(brand, &source.url(&format!("/d{number:03}.png"))).await));
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    crier.kill(&worker);
    crier.start_all().await;

    let mut assets = BTreeSet::new();
    for (brand, job) in &imports {
        let ended = crier.wait_for_import(*brand, *job).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        assets.insert(ended["media"]["id"].as_i64().unwrap());
    }
    let all = i64::try_from(imports.len()).unwrap();
    assert_eq!((assets.len(), crier.count_rows("media").await), (imports.len(), all));
    let reported = "SELECT count(DISTINCT CAST(payload AS text)) FROM events WHERE name = 'media.completed'";
    assert_eq!((crier.number(reported).await, crier.count_rows("events").await), (all, all));
    assert_eq!(crier.count_rows("jobs WHERE kind = 'import_media' AND state <> 'done'").await, 0);
    assert_files_have_rows(&crier).await;
    crier.assert_all_run();
}

/// Asserts that every file has a row: the clean-up would never find a file without one.
pub async fn assert_files_have_rows(crier: &Installation) {
    let rows: String =
        crier.value("SELECT string_agg(key || coalesce(' ' || thumbnail_key, ''), ' ') FROM files").await;
    let known: BTreeSet<&str> = rows.split(' ').collect();
    let stored = names(&crier.files().join("media"));
    for name in &stored {
        // The name of a partially written file ends in `#` and a number.
        assert!(known.contains(name.split('#').next().unwrap()), "{name}");
    }
    let shown: String = crier
        .value("SELECT string_agg(key || coalesce(' ' || thumbnail_key, ''), ' ') FROM files WHERE state = 'stored'")
        .await;
    assert!(shown.split(' ').all(|name| stored.contains(name)), "every asset's file is there");
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let names = entries.flat_map(|entry| match entry.file_type().unwrap().is_dir() {
        true => names(&entry.path()),
        false => [entry.file_name().into_string().unwrap()].into(),
    });
    names.collect()
}
