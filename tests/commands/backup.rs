//! `crier backup`, `restore` and `resume`: what was scheduled goes out once, and only after a person has seen it.

use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use crier_base::clock::Clock;

use crate::support::client::until;
use crate::support::picture;
use crate::support::process::Installation;

/// Makes the scheduled post due a minute ago.
async fn make_overdue(crier: &Installation, by: TimeDelta) {
    let due = (Clock::system().now() - by).to_rfc3339();
    crier.execute(&format!("UPDATE posts SET scheduled_at = '{due}' WHERE status = 'scheduled'")).await;
    let sql = format!("UPDATE jobs SET run_at = '{due}' WHERE kind = 'publish_target' AND state = 'scheduled'");
    crier.execute(&sql).await;
}

/// An installation with a published post, a scheduled one and a picture, and a backup of it.
async fn with_backup() -> (Installation, i64, i64) {
    let crier = Installation::embedded().await;
    let (brand, account) = crier.sandbox("demo").await;
    let published = crier.post(brand, account, "before the backup").await;
    crier.wait_for_post(brand, published).await;
    crier.upload(brand, &picture::png(9, 9)).await.expect("it is taken");
    let scheduled = crier.schedule(brand, account, "scheduled", Clock::system().now() + TimeDelta::hours(1)).await;
    let output = crier.try_command(&["backup", "monday.tar"], &[]);
    output.expect_stdout();
    assert!(output.err.contains("Wrote the database and 2 files to monday.tar."), "{output:?}");
    assert!(output.err.contains("The backup contains the secret key"), "{output:?}");
    (crier, brand, scheduled)
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_below(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

impl Installation {
    /// Loses the data directory, and restores the backup.
    async fn lose_and_restore(&mut self) {
        self.terminate("crier").await;
        std::fs::remove_dir_all(self.files().parent().expect("the data directory")).expect("it is gone");
        let said = self.command(&["restore", "monday.tar"]);
        assert!(said.contains("Publishing, replies and emails are held") && said.contains("crier resume"), "{said}");
        self.start_all().await;
    }
}

#[tokio::test]
async fn what_was_scheduled_goes_out_once_after_a_restore() {
    let (mut crier, brand, scheduled) = with_backup().await;
    let files = files_below(&crier.files());
    assert_eq!(files.len(), 2, "{files:?}");
    crier.lose_and_restore().await;
    assert!(crier.page("demo").await.contains("before the backup"));
    assert_eq!(files_below(&crier.files()), files, "the picture and its thumbnail");

    // Without a person's choice, it would be missed.
    make_overdue(&crier, TimeDelta::days(3)).await;
    let output = crier.try_command(&["resume"], &[]);
    assert!(output.refused(1).contains("Posts: 1, replies and emails: 0. They are overdue"), "{output:?}");
    assert!(output.out.contains("scheduled"), "{output:?}");
    assert!(!crier.page("demo").await.contains("scheduled"), "it is held");

    let said = crier.command(&["resume", "--overdue", "publish"]);
    assert!(said.contains("Posts: 1, replies and emails: 0. They are sent now."), "{said}");
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
    let refused = crier.try_command(&["resume"], &[]);
    assert!(refused.refused(1).contains("nothing is held"), "{refused:?}");
}

#[tokio::test]
async fn what_is_due_later_goes_out_by_itself_once_resumed() {
    let (mut crier, brand, scheduled) = with_backup().await;
    crier.lose_and_restore().await;
    crier.command(&["resume"]);
    make_overdue(&crier, TimeDelta::minutes(1)).await;
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
}

#[tokio::test]
async fn what_may_be_out_can_be_cancelled() {
    let (mut crier, brand, scheduled) = with_backup().await;
    crier.lose_and_restore().await;
    make_overdue(&crier, TimeDelta::minutes(1)).await;
    crier.command(&["resume", "--overdue", "cancel"]);
    let path = format!("/brands/{brand}/posts/{scheduled}");
    let post =
        until("it failed", || async { crier.read(&path).await.filter(|post| post["data"]["status"] == "failed") })
            .await;
    assert_eq!(post["data"]["targets"][0]["status"], "failed", "{post}");
}

/// What was being sent when the backup was made belongs to a process that is gone.
#[tokio::test]
async fn what_was_being_sent_is_taken_over_before_it_is_resumed() {
    let (mut crier, brand, scheduled) = with_backup().await;
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
    assert!(output.refused(1).contains("1 posts, replies and emails were being sent"), "{output:?}");

    crier.start_all().await;
    until("it was taken over", || async {
        let output = crier.try_command(&["resume"], &[]);
        output.err.contains("Posts: 1, replies and emails: 0. They are overdue").then_some(())
    })
    .await;
    assert!(!crier.page("demo").await.contains("scheduled"), "it is held");
    crier.command(&["resume", "--overdue", "publish"]);
    let status = crier.wait_for_post(brand, scheduled).await;
    assert_eq!(status["status"], "published", "{status}");
    assert_eq!(crier.page("demo").await.matches("scheduled").count(), 1);
}

#[tokio::test]
async fn what_killed_commands_left_is_removed() {
    let (mut crier, ..) = with_backup().await;
    let data = crier.files().parent().unwrap().to_owned();
    let (left, in_use) = (data.join("crier-backup-killed.db"), data.join("crier-backup-running.db"));
    std::fs::write(&left, "half a copy").unwrap();
    let running = std::fs::File::create(&in_use).unwrap();
    running.lock().unwrap();
    crier.command(&["backup", "tuesday.tar"]);
    assert!(!left.exists() && in_use.exists(), "only what nothing uses");
    drop(running);

    crier.terminate("crier").await;
    std::fs::remove_dir_all(&data).unwrap();
    let left = data.join("crier-restore-killed");
    std::fs::create_dir_all(left.join("files")).unwrap();
    std::fs::write(left.join("files/picture.png"), "half a picture").unwrap();
    crier.command(&["restore", "tuesday.tar"]);
    assert!(!left.exists());
    crier.start_all().await;
}

#[tokio::test]
async fn a_damaged_backup_leaves_nothing_behind() {
    let (mut crier, ..) = with_backup().await;
    let refused = crier.try_command(&["restore", "monday.tar"], &[]);
    assert!(refused.refused(2).contains("is in use by process"), "{refused:?}");
    crier.terminate("crier").await;
    let refused = crier.try_command(&["restore", "monday.tar"], &[]);
    assert!(
        refused.refused(1).contains("already exists, and a backup can only be restored to an empty directory"),
        "{refused:?}"
    );
    let refused = crier.try_command(&["backup", "monday.tar"], &[]);
    assert!(refused.refused(1).contains("monday.tar already exists"), "{refused:?}");

    let data = crier.files().parent().unwrap().to_owned();
    let file = data.parent().unwrap().join("monday.tar");
    let whole = std::fs::read(&file).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    for cut in [0, 700, whole.len() / 2, whole.len() - 2_000] {
        std::fs::write(&file, &whole[..cut]).unwrap();
        let refused = crier.try_command(&["restore", "monday.tar"], &[]);
        assert!(refused.refused(1).contains("monday.tar cannot be restored: it "), "{refused:?}");
        let left: Vec<_> = data.read_dir().unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["crier.lock"], "cut at {cut}");
    }
    std::fs::write(&file, &whole).unwrap();
    crier.command(&["restore", "monday.tar"]);
    crier.start_all().await;
}

#[tokio::test]
async fn postgres_has_its_own_tools() {
    let crier = Installation::split().await;
    let refused = crier.try_command(&["backup", "all.tar"], &[]);
    assert!(refused.refused(1).contains("pg_dump"), "{refused:?}");
}
