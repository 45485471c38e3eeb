//! Interruptions: by the operator, a deleted brand, a concurrent run, or a stopping worker.

use chrono::TimeDelta;
use crier_worker::jobs::RunError;

use super::*;
use crate::support::command::crier;
use crate::support::fake_platform::Gate;
use crate::support::images;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, worker_on_both};
use crate::support::source::{SourceResponse, ok, status};
use crate::support::store::TestStore;

worker_on_both!(
    a_cancelled_import_fails_and_can_be_retried,
    the_import_of_a_dead_job_fails_and_can_be_retried,
    an_unreadable_import_fails_and_is_reported,
    a_finished_import_is_not_run_again,
    an_import_that_crashes_its_process_fails,
    deleting_a_brand_deletes_its_imports,
    only_one_of_two_concurrent_runs_counts,
    a_stopping_worker_releases_the_import,
    the_file_of_a_deleted_import_is_discarded,
    a_run_with_a_lost_lease_fetches_nothing,
    only_failed_imports_can_be_retried,
    finished_imports_are_deleted_after_thirty_days,
);

async fn retry(w: &TestWorker, id: i64) {
    let job = job(w, id).await.id;
    let output = crier(w, &["jobs", "retry", &job.to_string()]);
    assert_eq!(output.expect_stdout(), format!("Job {job} (import_media) is ready to run again.\n"));
    assert_eq!(import_status(w, id).await, (Status::Pending, None));
    w.make_jobs_due().await;
    run(w).await;
}

async fn a_cancelled_import_fails_and_can_be_retried(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(status("503 Busy")).await;
    let (untried, tried) = (import_from(&w, &source).await, import_from(&w, &source).await);
    w.engine.run(job(&w, tried).await.id).await;
    for (id, attempts, code) in [(untried, 0, Code::InternalError), (tried, 1, Code::HttpError)] {
        let number = job(&w, id).await.id.to_string();
        let shown = crier(&w, &["jobs", "show", &number]);
        assert!(
            shown.expect_stdout().contains(&format!("import {id} into brand {}, pending", w.world.brand)),
            "{shown:?}"
        );
        assert!(crier(&w, &["jobs", "cancel", &number]).expect_stdout().starts_with("Canceled job"));
        assert_failed(&w, id, code, attempts).await;
        let message = find_import(&w, id).await.error.unwrap().message;
        assert!(message.contains("The operator canceled"), "{message}");
    }
    source.set_responses([SourceResponse::Send(ok(&images::png(9, 9)))]);
    w.s.notifier.take();
    retry(&w, tried).await;
    assert_completed_once(&w, tried).await;
    assert_eq!(find_import(&w, untried).await.status, Status::Failed);
}

async fn the_import_of_a_dead_job_fails_and_can_be_retried(w: TestWorker) {
    listen(&w).await;
    w.set_storage_unavailable(true);
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    for _ in 0..4 {
        run_next_attempt(&w, id).await;
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 5), "internal errors end in a dead job for the operator");
    assert_failed(&w, id, Code::InternalError, 5).await;
    let message = find_import(&w, id).await.error.unwrap().message;
    assert!(!message.contains("media") && !message.contains("torage"), "the internal cause is not exposed: {message}");
    w.set_storage_unavailable(false);
    retry(&w, id).await;
    assert_eq!(emitted_events(&w).await.last().unwrap().0, "media.completed");
    assert_completed_once(&w, id).await;
}

/// A newer version of Crier stored an error code that this version does not know.
async fn an_unreadable_import_fails_and_is_reported(w: TestWorker) {
    w.leaves_jobs();
    listen(&w).await;
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    w.sql("UPDATE media_jobs SET error = '{\"code\":\"newer\",\"message\":\"A new error.\"}'").await;
    run(&w).await;
    for _ in 0..4 {
        assert_eq!(job(&w, id).await.state, JobState::Scheduled);
        run_next_attempt(&w, id).await;
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 5));
    assert_failed(&w, id, Code::InternalError, 5).await;
    assert!(source.paths().is_empty());
}

async fn a_finished_import_is_not_run_again(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    let job_id = job(&w, id).await.id;
    // An inconsistent state.
    w.set_job_state(format!("jobs WHERE id = {job_id}"), JobState::Dead).await;
    assert!(crier(&w, &["jobs", "retry", &job_id.to_string()]).expect_failure(1).contains("nothing left to do"));
    w.set_job_state(format!("jobs WHERE id = {job_id}"), JobState::Ready).await;
    w.engine.run(job_id).await;
    assert_eq!((job(&w, id).await.state, source.paths().len()), (JobState::Cancelled, 1));
    assert_eq!(emitted_events(&w).await.len(), 1);
    assert_completed_once(&w, id).await;
}

async fn an_import_that_crashes_its_process_fails(w: TestWorker) {
    w.leaves_jobs();
    listen(&w).await;
    let source = Source::with_responses([SourceResponse::Stall(Vec::new())]).await;
    let id = import_from(&w, &source).await;
    let job_id = w.notified_job();
    for crash in 1..=3 {
        assert_eq!(w.claim(&[job_id], "gone").await.len(), 1);
        w.advance(LEASE_EXPIRY_SECONDS);
        w.scheduler.tick().await.unwrap();
        assert_eq!(job(&w, id).await.crashes, crash);
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 3));
    assert_failed(&w, id, Code::InternalError, 3).await;
}

async fn deleting_a_brand_deletes_its_imports(w: TestWorker) {
    listen(&w).await;
    let gate = Gate::new();
    let source = Source::with_responses([SourceResponse::SendAfterGate(gate.clone(), ok(&images::png(9, 9)))]).await;
    let id = import_from(&w, &source).await;
    let job_id = w.notified_job();
    let running = w.start_until(&gate, job_id).await;
    w.delete_brand(w.world.brand).await;
    gate.let_through();
    running.await.unwrap();
    let import = media_jobs::find_any(&mut w.conn().await, id).await.unwrap();
    assert!(import.is_none() && emitted_events(&w).await.is_empty());
    assert_eq!(w.state(job_id).await, JobState::Cancelled);
    sweep(&w).await;
    assert_eq!((w.stored_files(), w.count_rows("files").await), (Vec::new(), 0));
    assert_eq!(files::usage(&mut w.conn().await, w.world.workspace).await.unwrap().files, 0);
}

/// A worker freezes after the download, and another run finishes first.
async fn only_one_of_two_concurrent_runs_counts(w: TestWorker) {
    listen(&w).await;
    let (first, second) = (images::png(9, 9), images::png(12, 12));
    let source = Source::with_responses([SourceResponse::Send(ok(&first)), SourceResponse::Send(ok(&second))]).await;
    let id = import_from(&w, &source).await;
    let job_id = w.notified_job();
    let frozen = w.claim(&[job_id], "frozen").await.remove(0);
    let result = w.run_claimed(&frozen).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_eq!(find_import(&w, id).await.status, Status::Completed);
    // The worker resumes: its lease is lost, so its result is discarded.
    let (tx, outcome) = w.write_result(&frozen, &result).await;
    assert!(matches!(outcome, crier_domain::job::Outcome::Cancelled(_)), "{outcome:?}");
    tx.rollback().await.unwrap();
    let late = w.run_claimed(&frozen).await;
    assert!(!w.settle_result(&frozen, &late).await);
    assert_eq!((assets(&w).await[0].width, source.paths().len(), emitted_events(&w).await.len()), (12, 2, 1));
    assert_completed_once(&w, id).await;
}

/// The grace period ends during a download. Nothing was stored, so no attempt is used.
async fn a_stopping_worker_releases_the_import(w: TestWorker) {
    let gate = Gate::new();
    let good = ok(&images::png(9, 9));
    let source =
        Source::with_responses([SourceResponse::SendAfterGate(gate.clone(), good.clone()), SourceResponse::Send(good)])
            .await;
    let id = import_from(&w, &source).await;
    let stopping = w.engine_for(w.store.clone(), JobKind::ALL);
    let (engine, job_id) = (stopping.clone(), w.notified_job());
    let running = tokio::spawn(async move { engine.run(job_id).await });
    gate.wait_until_entered().await;
    stopping.drain();
    stopping.abort();
    running.await.unwrap();
    assert_eq!(job_status(&w, id).await, (JobState::Ready, 0));
    w.run_jobs().await;
    assert_eq!((job_status(&w, id).await, job(&w, id).await.crashes), ((JobState::Done, 1), 0));
    assert_completed_once(&w, id).await;
}

/// The storage usage of the file is released immediately, not by the sweep.
async fn the_file_of_a_deleted_import_is_discarded(w: TestWorker) {
    w.leaves_jobs();
    import_from(&w, &Source::with(ok(&images::png(9, 9))).await).await;
    let job = w.claim(&[w.notified_job()], "worker").await.remove(0);
    let result = w.run_claimed(&job).await;
    let file = w.newest_id("files WHERE state = 'reserved'").await;
    assert_eq!(result.as_ref().unwrap().order(), file, "several files are locked in a fixed order");
    w.sql("DELETE FROM media_jobs").await;
    let (tx, outcome) = w.write_result(&job, &result).await;
    tx.commit().await.unwrap();
    assert!(matches!(outcome, crier_domain::job::Outcome::Cancelled(_)), "{outcome:?}");
    assert_eq!(w.count_rows("files WHERE state = 'doomed'").await, 1);
    assert_eq!(files::usage(&mut w.conn().await, w.world.workspace).await.unwrap().files, 0);
}

async fn a_run_with_a_lost_lease_fetches_nothing(w: TestWorker) {
    w.leaves_jobs();
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    let job = w.claim(&[w.notified_job()], "frozen").await.remove(0);
    w.take_over(job.id).await;
    assert!(matches!(w.run_claimed(&job).await, Err(RunError::Ended(_))), "its lease is lost");
    assert_eq!((source.paths().len(), import_status(&w, id).await), (0, (Status::Pending, None)));
}

async fn only_failed_imports_can_be_retried(w: TestWorker) {
    let id = import_from(&w, &Source::with(ok(&images::png(9, 9))).await).await;
    let retry_failed = async |id| w.write(async |tx| crier_media::import::retry_failed(tx, id).await).await;
    assert!(!retry_failed(id).await, "it is pending");
    run(&w).await;
    assert!(!retry_failed(id).await && !retry_failed(id + 1).await, "one is completed, and the other does not exist");
    assert_eq!(import_status(&w, id).await, (Status::Completed, None));
}

/// Advances the clock by the retention of finished imports, and runs the cleanup.
async fn after_thirty_days(w: &TestWorker) {
    w.clock.advance(TimeDelta::days(30));
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
}

async fn finished_imports_are_deleted_after_thirty_days(w: TestWorker) {
    let good = Source::with(ok(&images::png(9, 9))).await;
    let bad = Source::with(status("404 Not Found")).await;
    let (completed, failed) = (import_from(&w, &good).await, import_from(&w, &bad).await);
    run(&w).await;
    let exists = async |id| media_jobs::find(&mut w.conn().await, w.world.brand, id).await.unwrap().is_some();
    w.clock.advance(TimeDelta::days(29));
    let (later, waiting) = (import_from(&w, &bad).await, import_from(&w, &bad).await);
    w.engine.run(job(&w, later).await.id).await;
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert!(exists(completed).await && exists(failed).await, "a day is left");
    w.clock.advance(TimeDelta::days(1));
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert!(!exists(completed).await && !exists(failed).await);
    assert!(exists(later).await && exists(waiting).await, "one finished a day ago, and the other has not finished");
    assert_eq!((assets(&w).await.len(), w.stored_files().len()), (1, 2), "imported files are kept");
    after_thirty_days(&w).await;
    assert!(!exists(later).await && exists(waiting).await);
}

/// The operator's command locks the row just before the purge.
#[tokio::test]
async fn a_retried_import_is_not_deleted() {
    // SQLite has one writer, so the two cannot overlap.
    let w = TestWorker::over(TestStore::postgres().await).await;
    let id = import_from(&w, &Source::with(status("404 Not Found")).await).await;
    run(&w).await;
    let mut tx = w.begin().await.unwrap();
    assert!(crier_media::import::retry_failed(&mut tx, id).await.unwrap());
    let commit = async {
        w.until_blocked(1).await;
        tx.commit().await.unwrap();
    };
    tokio::join!(after_thirty_days(&w), commit);
    assert_eq!(import_status(&w, id).await, (Status::Pending, None));
}
