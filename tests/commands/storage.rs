//! The marker of the storage: no process starts with another directory, such as the mount point of a missing disk.

use std::path::Path;

use serde_json::Value;

use crate::support::images;
use crate::support::process::{Installation, on_both_forms};

on_both_forms!(
    no_process_starts_without_the_disk_of_its_storage,
    an_empty_directory_is_not_marked_if_there_are_files,
    another_directory_can_be_adopted,
);

async fn stop_all(crier: &mut Installation) {
    for name in crier.names() {
        crier.terminate(name).await;
    }
}

/// Asserts that no process starts, and that none creates a file.
fn assert_rejected(crier: &Installation, why: &str) {
    for name in crier.names() {
        let output = crier.try_start(name);
        let error = output.expect_failure(2);
        assert!(error.contains(why) && error.contains("crier storage adopt"), "{name}: {error}");
        assert!(!crier.files().join("media").exists(), "{name}");
    }
}

async fn no_process_starts_without_the_disk_of_its_storage(mut crier: Installation) {
    let brand = crier.brand().await;
    crier.upload(brand, &images::png(9, 9)).await.expect("it is taken");
    stop_all(&mut crier).await;
    let (files, disk) = (crier.files(), crier.files().with_file_name("disk"));
    std::fs::rename(&files, &disk).unwrap();

    let why = "it contains no storage.id, so its disk may not be mounted";
    assert_rejected(&crier, why);
    assert!(!files.exists());
    std::fs::create_dir(&files).unwrap();
    assert_rejected(&crier, why);

    let output = crier.try_command(&["doctor", "--json"], &[]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let findings: Value = serde_json::from_str(&output.out).unwrap();
    let storage = findings.as_array().unwrap().iter().find(|finding| finding["id"] == "storage").unwrap();
    assert!(storage["status"] == "failure" && storage["detail"].as_str().unwrap().contains(why), "{storage}");
    if !crier.is_split() {
        let rejected = crier.try_command(&["backup", "empty.tar"], &[]);
        assert!(rejected.expect_failure(2).contains(why), "{rejected:?}");
    }
    assert!(!files.join("media").exists(), "the commands create nothing");

    std::fs::write(files.join("storage.id"), "that of another installation").unwrap();
    assert_rejected(&crier, "its storage.id belongs to another storage");
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::rename(&disk, &files).unwrap();
    crier.start_all().await;
}

/// The database knows no marker after files were in a bucket.
async fn an_empty_directory_is_not_marked_if_there_are_files(mut crier: Installation) {
    let brand = crier.brand().await;
    crier.upload(brand, &images::png(9, 9)).await.expect("it is taken");
    stop_all(&mut crier).await;
    crier.execute("DELETE FROM storage_marker").await;
    let (files, disk) = (crier.files(), crier.files().with_file_name("disk"));
    std::fs::rename(&files, &disk).unwrap();
    std::fs::create_dir(&files).unwrap();

    assert_rejected(&crier, "it contains no files, but the database lists some, so its disk may not be mounted");
    assert!(!files.join("storage.id").exists());
    std::fs::remove_dir(&files).unwrap();
    std::fs::rename(&disk, &files).unwrap();
    std::fs::remove_file(files.join("storage.id")).unwrap();
    crier.start_all().await;
    assert!(files.join("storage.id").exists(), "the directory with the files is marked");
}

async fn another_directory_can_be_adopted(mut crier: Installation) {
    stop_all(&mut crier).await;
    let files = crier.files();
    let id = |dir: &Path| std::fs::read_to_string(dir.join("storage.id")).unwrap();
    let before = id(&files);
    std::fs::remove_dir_all(&files).unwrap();
    assert_rejected(&crier, "it contains no storage.id");
    let output = crier.command(&["storage", "adopt"]);
    assert!(output.contains("The storage of this installation is ") && output.contains("files"), "{output}");
    assert_ne!(id(&files), before);
    crier.start_all().await;

    // A copy has the same marker, so moving the directory needs no command.
    stop_all(&mut crier).await;
    let (id_before, other) = (id(&files), files.with_file_name("other"));
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(files.join("storage.id"), other.join("storage.id")).unwrap();
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::rename(&other, &files).unwrap();
    crier.start_all().await;
    assert_eq!(id(&files), id_before);
}
