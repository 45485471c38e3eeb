//! Outside events: the operator, a deleted brand, a duplicate run, a stop.

use chrono::TimeDelta;
use crier_worker::engine::Run;

use super::*;
use crate::support::command::crier;
use crate::support::fake_platform::Gate;
use crate::support::jobs::{LEASE_OVER, worker_on_both};
use crate::support::picture;
use crate::support::source::{SourceResponse, ok, status};

worker_on_both!(
    a_cancelled_import_has_failed_and_may_be_run_again,
    a_dead_job_s_import_has_failed_and_may_be_run_again,
    an_import_that_cannot_be_read_is_given_up_and_told,
    an_import_that_ended_is_not_run_again,
    an_import_that_crashes_its_process_is_given_up,
    a_brand_that_is_deleted_takes_its_imports_along,
    of_two_runs_one_counts,
    a_worker_that_stops_hands_the_import_back,
    what_was_brought_for_an_import_that_is_gone_is_given_up,
    a_run_whose_lease_was_lost_fetches_nothing,
    only_an_import_that_failed_is_revived,
    ended_imports_are_forgotten_after_thirty_days,
    an_import_that_is_revived_just_now_is_not_forgotten,
);

async fn retry(w: &TestWorker, id: i64) {
    let job = job(w, id).await.id;
    let output = crier(w, &["jobs", "retry", &job.to_string()]);
    assert_eq!(output.done(), format!("Job {job} (import_media) is ready again.\n"));
    assert_eq!(import_status(w, id).await, (Status::Pending, None));
    // The command has no notifier, and its own clock.
    let due =
        format!("UPDATE jobs SET run_at = '{0}', dispatched_at = '{0}' WHERE id = {job}", w.later(-20).to_rfc3339());
    w.sql(due).await;
    run(w).await;
}

async fn a_cancelled_import_has_failed_and_may_be_run_again(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(status("503 Busy")).await;
    let (fresh, tried) = (import_from(&w, &source).await, import_from(&w, &source).await);
    w.engine.run(job(&w, tried).await.id).await;
    for (id, attempts, code) in [(fresh, 0, Code::InternalError), (tried, 1, Code::HttpError)] {
        let number = job(&w, id).await.id.to_string();
        let shown = crier(&w, &["jobs", "show", &number]);
        assert!(shown.done().contains(&format!("import {id} into brand {}, pending", w.world.brand)), "{shown:?}");
        assert!(crier(&w, &["jobs", "cancel", &number]).done().starts_with("Cancelled job"));
        has_failed(&w, id, code, attempts).await;
        let message = found(&w, id).await.error.unwrap().message;
        assert!(message.contains("The operator cancelled"), "{message}");
    }
    source.set_responses([SourceResponse::This(ok(&picture::png(9, 9)))]);
    w.s.notifier.take();
    retry(&w, tried).await;
    is_kept_once(&w, tried).await;
    assert_eq!(found(&w, fresh).await.status, Status::Failed);
}

async fn a_dead_job_s_import_has_failed_and_may_be_run_again(w: TestWorker) {
    listen(&w).await;
    w.set_storage_away(true);
    let source = Source::with(ok(&picture::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    for _ in 0..4 {
        next_try(&w, id).await;
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 5), "internal errors end in a dead job for the operator");
    has_failed(&w, id, Code::InternalError, 5).await;
    let message = found(&w, id).await.error.unwrap().message;
    assert!(!message.contains("media") && !message.contains("torage"), "no internal cause: {message}");
    w.set_storage_away(false);
    retry(&w, id).await;
    assert_eq!(emitted_events(&w).await.last().unwrap().0, "media.completed");
    is_kept_once(&w, id).await;
}

/// A newer version has another error code.
async fn an_import_that_cannot_be_read_is_given_up_and_told(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(ok(&picture::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    w.sql("UPDATE media_jobs SET error = '{\"code\":\"newer\",\"message\":\"What is new.\"}'").await;
    run(&w).await;
    for _ in 0..4 {
        assert_eq!(job(&w, id).await.state, JobState::Scheduled);
        next_try(&w, id).await;
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 5));
    has_failed(&w, id, Code::InternalError, 5).await;
    assert!(source.paths().is_empty());
}

async fn an_import_that_ended_is_not_run_again(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(ok(&picture::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    let job_id = job(&w, id).await.id;
    // Simulates an inconsistent state.
    w.sql(format!("UPDATE jobs SET state = 'dead' WHERE id = {job_id}")).await;
    assert!(crier(&w, &["jobs", "retry", &job_id.to_string()]).refused(1).contains("nothing left to do"));
    w.sql(format!("UPDATE jobs SET state = 'ready', finished_at = NULL WHERE id = {job_id}")).await;
    w.engine.run(job_id).await;
    assert_eq!((job(&w, id).await.state, source.paths().len()), (JobState::Cancelled, 1));
    assert_eq!(emitted_events(&w).await.len(), 1);
    is_kept_once(&w, id).await;
}

async fn an_import_that_crashes_its_process_is_given_up(w: TestWorker) {
    listen(&w).await;
    let source = Source::saying([SourceResponse::Stall(Vec::new())]).await;
    let id = import_from(&w, &source).await;
    let job_id = w.notified_job();
    for crash in 1..=3 {
        assert_eq!(w.claim(&[job_id], "gone").await.len(), 1);
        w.advance(LEASE_OVER);
        w.scheduler.tick().await.unwrap();
        assert_eq!(job(&w, id).await.crashes, crash);
    }
    assert_eq!(job_status(&w, id).await, (JobState::Dead, 3));
    has_failed(&w, id, Code::InternalError, 3).await;
}

async fn a_brand_that_is_deleted_takes_its_imports_along(w: TestWorker) {
    listen(&w).await;
    let gate = Gate::new();
    let source = Source::saying([SourceResponse::After(gate.clone(), ok(&picture::png(9, 9)))]).await;
    let id = import_from(&w, &source).await;
    let (engine, job_id) = (w.engine.clone(), w.notified_job());
    let running = tokio::spawn(async move { engine.run(job_id).await });
    gate.entered().await;
    w.sql(format!("DELETE FROM brands WHERE id = {}", w.world.brand)).await;
    gate.let_through();
    running.await.unwrap();
    let gone = media_jobs::find_any(&mut w.conn().await, id).await.unwrap();
    assert!(gone.is_none() && emitted_events(&w).await.is_empty());
    assert_eq!(w.state(job_id).await, JobState::Cancelled);
    sweep(&w).await;
    assert_eq!((stored(&w), w.number("SELECT count(*) FROM files").await), (Vec::new(), 0));
    assert_eq!(files::used(&mut w.conn().await, w.world.workspace).await.unwrap(), 0);
}

/// A worker was frozen with the picture; another run was faster.
async fn of_two_runs_one_counts(w: TestWorker) {
    listen(&w).await;
    let (first, second) = (picture::png(9, 9), picture::png(12, 12));
    let source = Source::saying([SourceResponse::This(ok(&first)), SourceResponse::This(ok(&second))]).await;
    let id = import_from(&w, &source).await;
    let job_id = w.notified_job();
    let frozen = w.claim(&[job_id], "frozen").await.remove(0);
    let handler = w.handler(JobKind::ImportMedia);
    let ending = handler.run(&Run::new(frozen.clone())).await.unwrap();
    w.advance(LEASE_OVER);
    w.run_jobs().await;
    assert_eq!(found(&w, id).await.status, Status::Completed);
    // It wakes: its lease is lost, so its result is discarded.
    let mut tx = w.begin().await.unwrap();
    let outcome = ending.write(&mut tx, &frozen).await.unwrap();
    assert!(matches!(outcome, crier_common::domain::job::Outcome::Cancelled(_)), "{outcome:?}");
    tx.rollback().await.unwrap();
    let late = handler.run(&Run::new(frozen.clone())).await.unwrap();
    let outcome = w.write(async |tx| late.write(tx, &frozen).await).await;
    assert!(!w.settle(&frozen, outcome).await);
    assert_eq!((assets(&w).await[0].width, source.paths().len(), emitted_events(&w).await.len()), (12, 2, 1));
    is_kept_once(&w, id).await;
}

/// The grace period ends during a download: nothing happened, so no attempt is used up.
async fn a_worker_that_stops_hands_the_import_back(w: TestWorker) {
    let gate = Gate::new();
    let good = ok(&picture::png(9, 9));
    let source = Source::saying([SourceResponse::After(gate.clone(), good.clone()), SourceResponse::This(good)]).await;
    let id = import_from(&w, &source).await;
    let stopping = w.engine_for(w.store.clone(), JobKind::ALL);
    let (engine, job_id) = (stopping.clone(), w.notified_job());
    let running = tokio::spawn(async move { engine.run(job_id).await });
    gate.entered().await;
    stopping.drain();
    stopping.abort();
    running.await.unwrap();
    assert_eq!(job_status(&w, id).await, (JobState::Ready, 0));
    w.run_jobs().await;
    assert_eq!((job_status(&w, id).await, job(&w, id).await.crashes), ((JobState::Done, 1), 0));
    is_kept_once(&w, id).await;
}

/// Its storage usage is released at once, not by the sweep.
async fn what_was_brought_for_an_import_that_is_gone_is_given_up(w: TestWorker) {
    import_from(&w, &Source::with(ok(&picture::png(9, 9))).await).await;
    let job = w.claim(&[w.notified_job()], "worker").await.remove(0);
    let ending = w.handler(JobKind::ImportMedia).run(&Run::new(job.clone())).await.unwrap();
    let file = w.number("SELECT id FROM files WHERE state = 'reserved'").await;
    assert_eq!(ending.order(), file, "several files are locked in a fixed order");
    w.sql("DELETE FROM media_jobs").await;
    let outcome = w.write(async |tx| ending.write(tx, &job).await).await;
    assert!(matches!(outcome, crier_common::domain::job::Outcome::Cancelled(_)), "{outcome:?}");
    assert_eq!(w.number("SELECT count(*) FROM files WHERE state = 'doomed'").await, 1);
    assert_eq!(files::used(&mut w.conn().await, w.world.workspace).await.unwrap(), 0);
}

async fn a_run_whose_lease_was_lost_fetches_nothing(w: TestWorker) {
    let source = Source::with(ok(&picture::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    let job = w.claim(&[w.notified_job()], "frozen").await.remove(0);
    w.sql("UPDATE jobs SET fence = fence + 1").await;
    w.handler(JobKind::ImportMedia).run(&Run::new(job)).await.unwrap();
    assert_eq!((source.paths().len(), import_status(&w, id).await), (0, (Status::Pending, None)));
}

async fn only_an_import_that_failed_is_revived(w: TestWorker) {
    let id = import_from(&w, &Source::with(ok(&picture::png(9, 9))).await).await;
    let revive = async |id| w.write(async |tx| crier_common::media::import::retry_failed(tx, id).await).await;
    assert!(!revive(id).await, "it is pending");
    run(&w).await;
    assert!(!revive(id).await && !revive(id + 1).await, "it is completed, and there is no such import");
    assert_eq!(import_status(&w, id).await, (Status::Completed, None));
}

/// Advances the clock by the retention of ended imports, and cleans up.
async fn after_thirty_days(w: &TestWorker) {
    w.clock.advance(TimeDelta::days(30));
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
}

async fn ended_imports_are_forgotten_after_thirty_days(w: TestWorker) {
    let good = Source::with(ok(&picture::png(9, 9))).await;
    let bad = Source::with(status("404 Not Found")).await;
    let (completed, failed) = (import_from(&w, &good).await, import_from(&w, &bad).await);
    run(&w).await;
    let there = async |id| media_jobs::find(&mut w.conn().await, w.world.brand, id).await.unwrap().is_some();
    w.clock.advance(TimeDelta::days(29));
    let (later, waiting) = (import_from(&w, &bad).await, import_from(&w, &bad).await);
    w.engine.run(job(&w, later).await.id).await;
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert!(there(completed).await && there(failed).await, "a day is left");
    w.clock.advance(TimeDelta::days(1));
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert!(!there(completed).await && !there(failed).await);
    assert!(there(later).await && there(waiting).await, "it ended a day ago, or has not ended");
    assert_eq!((assets(&w).await.len(), stored(&w).len()), (1, 2), "imported files are kept");
    after_thirty_days(&w).await;
    assert!(!there(later).await && there(waiting).await);
}

/// The operator's command locks the row first, just before it would be purged.
async fn an_import_that_is_revived_just_now_is_not_forgotten(w: TestWorker) {
    if !w.is_postgres() {
        // One writer: the two cannot overlap.
        return;
    }
    let id = import_from(&w, &Source::with(status("404 Not Found")).await).await;
    run(&w).await;
    let mut tx = w.begin().await.unwrap();
    assert!(crier_common::media::import::retry_failed(&mut tx, id).await.unwrap());
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let revived = async {
        w.until(async || w.number(waits).await > 0).await;
        tx.commit().await.unwrap();
    };
    tokio::join!(after_thirty_days(&w), revived);
    assert_eq!(import_status(&w, id).await, (Status::Pending, None));
}
