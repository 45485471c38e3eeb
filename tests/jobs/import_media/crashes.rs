//! A worker killed at each point of an import. Invariant: the import is completed once, with one asset, and the dead
//! run leaves nothing in the storage.

use super::*;
use crate::support::fake_platform::Gate;
use crate::support::images;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, worker_on_both};
use crate::support::source::{SourceResponse, ok};

worker_on_both!(
    a_crash_before_the_start_is_recovered,
    a_crash_during_the_download_is_recovered,
    a_crash_before_the_file_row_is_recovered,
    a_crash_before_the_bytes_are_stored_is_recovered,
    a_crash_before_the_thumbnail_is_stored_is_recovered,
    a_crash_before_the_result_is_stored_is_recovered,
    different_bytes_in_the_next_run_are_kept_once,
);

/// Lets the dead run's lease expire, and asserts that the import completes.
async fn assert_recovers(w: &TestWorker, id: i64) {
    w.run_jobs().await;
    assert_eq!(job(w, id).await.state, JobState::Running, "its lease still holds");
    w.advance(LEASE_EXPIRY_SECONDS);
    run(w).await;
    assert_eq!((job_status(w, id).await, job(w, id).await.crashes), ((JobState::Done, 2), 1));
    assert_eq!(emitted_events(w).await.len(), 1);
    assert_completed_once(w, id).await;
}

async fn a_crash_before_the_start_is_recovered(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    w.claim(&w.s.notifier.take(), "gone").await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, None));
    assert_recovers(&w, id).await;
    assert_eq!(source.paths().len(), 1);
}

async fn a_crash_during_the_download_is_recovered(w: TestWorker) {
    listen(&w).await;
    let (gate, good) = (Gate::new(), ok(&images::png(9, 9)));
    let source =
        Source::with_responses([SourceResponse::SendAfterGate(gate.clone(), Vec::new()), SourceResponse::Send(good)])
            .await;
    let id = import_from(&w, &source).await;
    w.kill_at(&gate, w.notified_job()).await;
    assert_eq!(import_status(&w, id).await, (Status::Processing, None));
    assert_recovers(&w, id).await;
    assert_eq!(source.paths().len(), 2);
}

/// Writes to the brand's files, or all writes on SQLite, are blocked: the run has the image and cannot insert its row.
async fn a_crash_before_the_file_row_is_recovered(w: TestWorker) {
    listen(&w).await;
    let gate = Gate::new();
    let good = ok(&images::png(9, 9));
    let source =
        Source::with_responses([SourceResponse::SendAfterGate(gate.clone(), good.clone()), SourceResponse::Send(good)])
            .await;
    let id = import_from(&w, &source).await;
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    gate.wait_until_entered().await;
    let mut tx = w.begin().await.unwrap();
    if w.is_postgres() {
        crate::support::store::lock_table(&mut tx, "files").await;
    }
    gate.let_through();
    wait_for_lock(&w).await;
    doomed.kill().await;
    tx.rollback().await.unwrap();
    assert_eq!((import_status(&w, id).await, w.stored_files().len()), ((Status::Processing, None), 0));
    assert_recovers(&w, id).await;
}

/// Waits until a transaction waits for a lock. SQLite does not report this, so this returns immediately there.
async fn wait_for_lock(w: &TestWorker) {
    if w.is_postgres() {
        w.until_blocked(1).await;
    }
}

/// Leaves the state of a run that died after it inserted the row of its file, before its result was stored.
async fn crash_after_file_row(w: &TestWorker) -> (Source, i64) {
    listen(w).await;
    let png = images::png(9, 9);
    let source = Source::with(ok(&png)).await;
    let id = import_from(w, &source).await;
    let claimed = w.claim(&w.s.notifier.take(), "gone").await.remove(0);
    // The result is never stored.
    drop(w.run_claimed(&claimed).await.unwrap());
    assert_eq!((import_status(w, id).await, w.stored_files().len()), ((Status::Processing, None), 2));
    assert_eq!(w.count_rows("files WHERE state = 'reserved'").await, 1);
    (source, id)
}

fn delete_files(w: &TestWorker, which: impl Fn(&str) -> bool) {
    for name in w.stored_files().into_iter().filter(|name| which(name)) {
        std::fs::remove_file(w.files().join("media").join(&name[..2]).join(&name)).unwrap();
    }
}

async fn a_crash_before_the_bytes_are_stored_is_recovered(w: TestWorker) {
    let (_source, id) = crash_after_file_row(&w).await;
    delete_files(&w, |_| true);
    assert_recovers(&w, id).await;
}

async fn a_crash_before_the_thumbnail_is_stored_is_recovered(w: TestWorker) {
    let (_source, id) = crash_after_file_row(&w).await;
    delete_files(&w, |name| name.contains("thumb"));
    assert_eq!(w.stored_files().len(), 1);
    assert_recovers(&w, id).await;
}

async fn a_crash_before_the_result_is_stored_is_recovered(w: TestWorker) {
    let (source, id) = crash_after_file_row(&w).await;
    let before = w.stored_files();
    assert_recovers(&w, id).await;
    assert_eq!((w.stored_files(), source.paths().len()), (before, 2), "the same file");
}

async fn different_bytes_in_the_next_run_are_kept_once(w: TestWorker) {
    let (source, id) = crash_after_file_row(&w).await;
    source.set_responses([SourceResponse::Send(ok(&images::png(12, 12)))]);
    w.advance(LEASE_EXPIRY_SECONDS);
    run(&w).await;
    assert_eq!(
        (assets(&w).await[0].width, w.stored_files().len()),
        (12, 4),
        "the file of the dead run is still stored"
    );
    assert_completed_once(&w, id).await;
}
