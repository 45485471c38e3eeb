//! `crier backup`, `restore` and `resume`: what was scheduled is published once, and only after the operator resumes
//! publishing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use crier_base::clock::Clock;
use serde_json::{Value, json};

use crate::support::client::until;
use crate::support::images;
use crate::support::process::Installation;
use crate::support::videos::mp4_ending_with;

/// Moves the scheduled post and its job into the past.
async fn make_overdue(crier: &Installation, by: TimeDelta) {
    let due = (Clock::system().now() - by).to_rfc3339();
    crier.execute(&format!("UPDATE posts SET scheduled_at = '{due}' WHERE status = 'scheduled'")).await;
    let sql = format!("UPDATE jobs SET run_at = '{due}' WHERE kind = 'publish_target' AND state = 'scheduled'");
    crier.execute(&sql).await;
}

/// Returns an installation with a published post, a scheduled one and an image, after a backup; and the brand and the
/// scheduled post.
async fn create_backup() -> (Installation, i64, i64) {
    let crier = Installation::embedded().await;
    let (brand, account) = crier.sandbox("demo").await;
    let published = crier.post(brand, account, "before the backup").await;
    crier.wait_for_post(brand, published).await;
    crier.upload(brand, &images::png(9, 9)).await.expect("it is taken");
    let scheduled = crier.schedule(brand, account, "scheduled", Clock::system().now() + TimeDelta::hours(1)).await;
    let output = crier.try_command(&["backup", "monday.tar"], &[]);
    output.expect_stdout();
    assert!(output.err.contains("Wrote the database and 2 files to monday.tar."), "{output:?}");
    assert!(output.err.contains("The backup contains the secret key"), "{output:?}");
    (crier, brand, scheduled)
}

fn list_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(list_files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

impl Installation {
    /// Deletes the data directory, and restores the backup.
    async fn lose_and_restore(&mut self) {
        self.terminate("crier").await;
        std::fs::remove_dir_all(self.files().parent().expect("the data directory")).expect("it is gone");
        let output = self.command(&["restore", "monday.tar"]);
        assert!(
            output.contains("Publishing, comments, deletions, replies and emails are held")
                && output.contains("crier resume"),
            "{output}"
        );
        self.start_all().await;
    }

    /// Returns the file at a URL of Crier.
    async fn download(&self, url: &Value) -> Vec<u8> {
        let path = url.as_str().expect("a URL").trim_start_matches(&self.url);
        let response = self.visit(path, "").await;
        assert_eq!(response.status, 200, "{path}");
        response.body.to_vec()
    }
}

#[tokio::test]
async fn scheduled_posts_are_published_once_after_a_restore() {
    let (mut crier, brand, scheduled) = create_backup().await;
    let files = list_files(&crier.files());
    assert_eq!(files.len(), 3, "{files:?}");
    crier.lose_and_restore().await;
    assert!(crier.page("demo").await.contains("before the backup"));
    assert_eq!(list_files(&crier.files()), files, "the image, its thumbnail and the id of the storage");

    // The operator must choose what happens to overdue posts: without `--overdue`, the command fails.
    make_overdue(&crier, TimeDelta::days(3)).await;
    let output = crier.try_command(&["resume"], &[]);
    assert!(
        output.expect_failure(1).contains("Posts: 1; comments, deletions, replies and emails: 0. They are overdue"),
        "{output:?}"
    );
    assert!(output.out.contains("scheduled"), "{output:?}");
    assert!(!crier.page("demo").await.contains("scheduled"), "it is held");

    let output = crier.command(&["resume", "--overdue", "publish"]);
    assert!(output.contains("Posts: 1; comments, deletions, replies and emails: 0. They start now."), "{output}");
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
    let rejected = crier.try_command(&["resume"], &[]);
    assert!(rejected.expect_failure(1).contains("nothing is held"), "{rejected:?}");
}

#[tokio::test]
async fn posts_due_later_are_published_automatically_after_resume() {
    let (mut crier, brand, scheduled) = create_backup().await;
    crier.lose_and_restore().await;
    crier.command(&["resume"]);
    make_overdue(&crier, TimeDelta::minutes(1)).await;
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
}

#[tokio::test]
async fn overdue_posts_can_be_cancelled() {
    let (mut crier, brand, scheduled) = create_backup().await;
    crier.lose_and_restore().await;
    make_overdue(&crier, TimeDelta::minutes(1)).await;
    crier.command(&["resume", "--overdue", "cancel"]);
    let path = format!("/brands/{brand}/posts/{scheduled}");
    let post =
        until("it failed", || async { crier.read(&path).await.filter(|post| post["data"]["status"] == "failed") })
            .await;
    assert_eq!(post["data"]["targets"][0]["status"], "failed", "{post}");
}

#[tokio::test]
async fn videos_are_restored_with_their_cover_images() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/programs/cover");
    let mut crier = Installation::embedded_with(&[("CRIER_MEDIA_FFMPEG", program.to_str().unwrap())]).await;
    let brand = crier.brand().await;
    let video = mp4_ending_with(&images::jpeg(16, 9));
    let id = crier.upload_video(brand, &video).await.expect("it is accepted");
    let path = format!("/brands/{brand}/media/{id}");
    let asset = crier.read(&path).await.expect("the asset");
    let cover = crier.download(&asset["data"]["cover_url"]).await;
    assert!(cover.starts_with(b"\xff\xd8"), "a JPEG");

    let output = crier.try_command(&["backup", "monday.tar"], &[]);
    assert!(output.err.contains("Wrote the database and 2 files to monday.tar."), "{output:?}");
    crier.lose_and_restore().await;
    assert_eq!(crier.read(&path).await, Some(asset.clone()));
    assert!(crier.download(&asset["data"]["url"]).await == video);
    assert!(crier.download(&asset["data"]["cover_url"]).await == cover);
}

/// Receivers ignore deliveries whose IDs they know. They know those of deliveries after the backup, too.
async fn assert_deliveries_have_new_ids(has_deliveries: bool) {
    let mut crier = Installation::embedded().await;
    let hook = json!({ "url": "http://127.0.0.1:1/", "events": ["post.failed"] });
    let path = format!("/webhooks/{}/test", crier.write("/webhooks", hook).await["id"]);
    let sample = json!({ "event": "post.failed" });
    if has_deliveries {
        crier.write(&path, sample.clone()).await;
    }
    crier.command(&["backup", "monday.tar"]);
    crier.write(&path, sample.clone()).await;
    let newest = ["events", "webhook_deliveries"].map(|table| format!("SELECT max(id) FROM {table}"));
    let mut known = Vec::new();
    for sql in &newest {
        known.push(crier.number(sql).await);
    }
    crier.lose_and_restore().await;
    crier.write(&path, sample).await;
    for (sql, known) in newest.iter().zip(known) {
        assert!(crier.number(sql).await > known, "{sql}");
    }
}

#[tokio::test]
async fn deliveries_after_a_restore_have_new_ids() {
    assert_deliveries_have_new_ids(true).await;
}

#[tokio::test]
async fn the_first_delivery_after_a_restore_has_a_new_id() {
    assert_deliveries_have_new_ids(false).await;
}

/// A job that ran when the backup was made belongs to a process that does not exist in the restored installation.
#[tokio::test]
async fn running_jobs_of_a_backup_are_recovered_before_resume() {
    let (mut crier, brand, scheduled) = create_backup().await;
    crier.lose_and_restore().await;
    crier.terminate("crier").await;
    make_overdue(&crier, TimeDelta::minutes(1)).await;
    let now = Clock::system().now();
    let sql = format!(
        "
        UPDATE jobs
        SET state = 'running', attempt = 1, fence = 1, worker = 'gone', lease_until = '{}'
        WHERE kind = 'publish_target' AND state = 'scheduled'",
        (now - TimeDelta::minutes(1)).to_rfc3339()
    );
    crier.execute(&sql).await;
    let output = crier.try_command(&["resume", "--overdue", "publish"], &[]);
    assert!(
        output.expect_failure(1).contains("1 posts, comments, deletions, replies and emails were in progress"),
        "{output:?}"
    );

    crier.start_all().await;
    until("it was taken over", || async {
        let output = crier.try_command(&["resume"], &[]);
        output.err.contains("Posts: 1; comments, deletions, replies and emails: 0. They are overdue").then_some(())
    })
    .await;
    assert!(!crier.page("demo").await.contains("scheduled"), "it is held");
    crier.command(&["resume", "--overdue", "publish"]);
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
}

/// An upload may be larger than the library, and is useless without the client. The last of these files seems to have been
/// stored after the database was copied: it has no row.
#[tokio::test]
async fn unfinished_files_are_not_restored() {
    let (mut crier, ..) = create_backup().await;
    let stored = list_files(&crier.files());
    let used = crier.sum("bytes", "storage_usage").await;
    let now = Clock::system().now();
    let (created, expires) = (now.to_rfc3339(), (now + TimeDelta::hours(20)).to_rfc3339());
    crier
        .execute(&format!(
            "
            INSERT INTO media_uploads (
                workspace_id, brand_id, state, size_bytes, reserved, received, pieces, created_at, expires_at,
                asset_type, filename, metadata
            )
            SELECT workspace_id, id, 'open', 5000, 5000, 3000, 1, '{created}', '{expires}', 'video', '', ''
            FROM brands
            LIMIT 1"
        ))
        .await;
    crier.execute("UPDATE storage_usage SET bytes = bytes + 5000").await;
    crier
        .execute(
            "INSERT INTO media_upload_pieces (upload_id, key, number) SELECT id, 'xypiece.piece', 0 FROM media_uploads",
        )
        .await;
    let folder = crier.files().join("media/xy");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["xypiece.piece", "xywriting.mp4#1", "xylater.mp4"] {
        std::fs::write(folder.join(name), "bytes").unwrap();
    }
    // Not a file of the library. The directory may be that of a disk, with files of others that Crier cannot read.
    std::fs::write(crier.files().join("notes.txt"), "of the operator").unwrap();
    let output = crier.try_command(&["backup", "tuesday.tar"], &[]);
    output.expect_stdout();
    assert!(output.err.contains("Wrote the database and 3 files to tuesday.tar."), "{output:?}");
    let (data, files) = (crier.files().parent().unwrap().to_owned(), crier.files());
    let directory = data.parent().unwrap();
    std::fs::rename(directory.join("tuesday.tar"), directory.join("monday.tar")).unwrap();
    crier.lose_and_restore().await;
    assert_eq!(list_files(&files), stored);
    assert_eq!(crier.count_rows("media_uploads WHERE state = 'open'").await, 0);
    assert_eq!(crier.sum("bytes", "storage_usage").await, used);
}

#[tokio::test]
async fn files_of_killed_commands_are_removed() {
    let (mut crier, ..) = create_backup().await;
    let data = crier.files().parent().unwrap().to_owned();
    let (remaining, in_use) = (data.join("crier-backup-killed.db"), data.join("crier-backup-running.db"));
    std::fs::write(&remaining, "half a copy").unwrap();
    let running = std::fs::File::create(&in_use).unwrap();
    running.lock().unwrap();
    crier.command(&["backup", "tuesday.tar"]);
    assert!(!remaining.exists() && in_use.exists(), "only what nothing uses");
    drop(running);

    crier.terminate("crier").await;
    std::fs::remove_dir_all(&data).unwrap();
    let remaining = data.join("crier-restore-killed");
    std::fs::create_dir_all(remaining.join("files")).unwrap();
    std::fs::write(remaining.join("files/image.png"), "half an image").unwrap();
    crier.command(&["restore", "tuesday.tar"]);
    assert!(!remaining.exists());
    crier.start_all().await;
}

/// The lock is that of a command that writes a backup.
#[tokio::test]
async fn two_backups_are_not_written_to_one_file() {
    let (crier, ..) = create_backup().await;
    let directory = crier.files().parent().unwrap().parent().unwrap().to_owned();
    let (part, file) = (directory.join("tuesday.tar.part"), directory.join("tuesday.tar"));
    std::fs::write(&part, "the first half").unwrap();
    let running = std::fs::File::open(&part).unwrap();
    running.lock().unwrap();
    let rejected = crier.try_command(&["backup", "tuesday.tar"], &[]);
    let reason =
        "another `crier backup` is writing tuesday.tar.part; wait until it has finished, or choose another name";
    assert!(rejected.expect_failure(1).contains(reason), "{rejected:?}");
    assert!(std::fs::read(&part).unwrap() == b"the first half" && !file.exists());

    // That of a command that was killed is overwritten. Others could read it, but they cannot read the backup.
    drop(running);
    std::fs::write(&part, vec![b'x'; 20 << 20]).unwrap();
    std::fs::set_permissions(&part, Permissions::from_mode(0o644)).unwrap();
    crier.command(&["backup", "tuesday.tar"]);
    let written = file.metadata().unwrap();
    assert!(!part.exists() && written.len() < 20 << 20);
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_damaged_backup_leaves_no_files() {
    let (mut crier, ..) = create_backup().await;
    let rejected = crier.try_command(&["restore", "monday.tar"], &[]);
    assert!(rejected.expect_failure(2).contains("is in use by process"), "{rejected:?}");
    crier.terminate("crier").await;
    let rejected = crier.try_command(&["restore", "monday.tar"], &[]);
    assert!(
        rejected.expect_failure(1).contains("already exists, and a backup can only be restored to an empty directory"),
        "{rejected:?}"
    );
    let rejected = crier.try_command(&["backup", "monday.tar"], &[]);
    assert!(rejected.expect_failure(1).contains("monday.tar already exists"), "{rejected:?}");
    let rejected = crier.try_command(&["backup", "no/such/monday.tar"], &[]);
    assert!(rejected.expect_failure(1).contains("no/such/monday.tar.part cannot be written; name a"), "{rejected:?}");

    let data = crier.files().parent().unwrap().to_owned();
    let file = data.parent().unwrap().join("monday.tar");
    let backup = std::fs::read(&file).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    for length in [0, 700, backup.len() / 2, backup.len() - 2_000] {
        std::fs::write(&file, &backup[..length]).unwrap();
        let rejected = crier.try_command(&["restore", "monday.tar"], &[]);
        assert!(rejected.expect_failure(1).contains("monday.tar cannot be restored: it "), "{rejected:?}");
        let remaining: Vec<_> = data.read_dir().unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(remaining, ["crier.lock"], "cut at {length}");
    }
    std::fs::write(&file, b"\x1f\x8b\x08\x00 as gzip begins").unwrap();
    let rejected = crier.try_command(&["restore", "monday.tar"], &[]);
    assert!(rejected.expect_failure(1).contains("(if it is compressed, decompress it first)"), "{rejected:?}");
    let rejected = crier.try_command(&["restore", "nowhere.tar"], &[]);
    assert!(rejected.expect_failure(1).contains("the backup nowhere.tar cannot be read; name a file"), "{rejected:?}");
    std::fs::write(&file, &backup).unwrap();
    let bucket = [
        ("CRIER_STORAGE_URL", "s3://bucket"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let rejected = crier.try_command(&["restore", "monday.tar"], &bucket);
    let reason = "contains the files of the media library, and CRIER_STORAGE_URL is a bucket; restore it without";
    assert!(rejected.expect_failure(1).contains(reason), "{rejected:?}");
    crier.command(&["restore", "monday.tar"]);
    crier.start_all().await;
}

#[tokio::test]
async fn postgres_is_backed_up_with_its_own_tools() {
    let crier = Installation::split().await;
    let rejected = crier.try_command(&["backup", "all.tar"], &[]);
    assert!(rejected.expect_failure(1).contains("pg_dump"), "{rejected:?}");
}
