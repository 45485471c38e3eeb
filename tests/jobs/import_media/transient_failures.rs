//! Transient failures: retried after pauses, five attempts in total.

use std::time::Duration;

use crier_worker::jobs::IMPORT_TIMEOUT;

use super::*;
use crate::support::client::until_true;
use crate::support::fake_platform::Gate;
use crate::support::images;
use crate::support::jobs::worker_on_both;
use crate::support::source::{SourceResponse, chunked, cut_off, ok, status};

worker_on_both!(
    transient_failures_are_retried,
    a_slow_server_is_retried,
    five_attempts_are_made_with_documented_delays,
    an_unavailable_storage_is_retried,
    a_low_disk_downloads_nothing,
    a_swept_file_is_fetched_again,
    an_import_reserves_the_announced_space,
    an_import_without_space_waits_and_uses_no_attempt,
    an_import_without_space_uses_attempts_after_six_hours,
    an_import_that_finds_no_space_midway_uses_an_attempt,
);

/// Asserts that the first attempt fails with this code, and the second succeeds.
async fn assert_second_attempt_succeeds(w: &TestWorker, id: i64, code: Code, fix: impl FnOnce()) {
    let (before, events) = (assets(w).await.len(), emitted_events(w).await.len());
    run(w).await;
    assert_eq!(import_status(w, id).await, (Status::Pending, Some(code)));
    assert_eq!(job_status(w, id).await, (JobState::Scheduled, 1));
    assert_eq!(
        (assets(w).await.len(), emitted_events(w).await.len()),
        (before, events),
        "a failed attempt emits no event"
    );
    fix();
    run(w).await;
    assert_eq!(job_status(w, id).await, (JobState::Scheduled, 1), "not before its time");
    run_next_attempt(w, id).await;
    assert_eq!((import_status(w, id).await, job_status(w, id).await), ((Status::Completed, None), (JobState::Done, 2)));
    assert_eq!((assets(w).await.len(), emitted_events(w).await.len()), (before + 1, events + 1));
    assert_no_leftovers(w).await;
}

async fn transient_failures_are_retried(w: TestWorker) {
    listen(&w).await;
    for (size, bad) in (50..).zip([
        status("500 Oops"),
        status("502 Bad Gateway"),
        status("503 Busy"),
        cut_off(&images::png(64, 64)),
        b"hello".to_vec(),
        Vec::new(),
    ]) {
        let source =
            Source::with_responses([SourceResponse::Send(bad), SourceResponse::Send(ok(&images::png(size, size)))])
                .await;
        let id = import_from(&w, &source).await;
        assert_second_attempt_succeeds(&w, id, Code::HttpError, || {}).await;
    }
    // Nothing listens on this port.
    let id = import(&w, "http://127.0.0.1:1/a.png").await;
    run(&w).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::HttpError)));
}

async fn a_slow_server_is_retried(mut w: TestWorker) {
    listen(&w).await;
    w.set_import_timeout(Duration::from_secs(2));
    let source = Source::with_responses([
        SourceResponse::Stall(cut_off(&images::png(9, 9))),
        SourceResponse::Send(ok(&images::png(9, 9))),
    ])
    .await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::Timeout)));
    w.set_import_timeout(IMPORT_TIMEOUT);
    run_next_attempt(&w, id).await;
    assert_eq!((job_status(&w, id).await, emitted_events(&w).await.len()), ((JobState::Done, 2), 1));
    assert_completed_once(&w, id).await;
}

async fn five_attempts_are_made_with_documented_delays(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(status("503 Busy")).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    for (attempts, pause) in (1..).zip([5, 30, 120, 600]) {
        assert_eq!(
            (import_status(&w, id).await, job_status(&w, id).await),
            ((Status::Pending, Some(Code::HttpError)), (JobState::Scheduled, attempts))
        );
        let milliseconds = (job(&w, id).await.run_at - w.now()).num_milliseconds();
        assert!((pause * 800..=pause * 1_200).contains(&milliseconds), "{milliseconds} ms after attempt {attempts}");
        run_next_attempt(&w, id).await;
    }
    assert_failed(&w, id, Code::HttpError, 5).await;
    assert_eq!((job_status(&w, id).await, source.paths().len()), ((JobState::Done, 5), 5));
    assert_no_leftovers(&w).await;
}

async fn an_unavailable_storage_is_retried(w: TestWorker) {
    listen(&w).await;
    w.set_storage_unavailable(true);
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    assert_second_attempt_succeeds(&w, id, Code::InternalError, || w.set_storage_unavailable(false)).await;
}

/// The file was stored, but the result was stored so late that the sweep treated the file as abandoned.
async fn a_swept_file_is_fetched_again(w: TestWorker) {
    listen(&w).await;
    let source = Source::with(ok(&images::png(9, 9))).await;
    let id = import_from(&w, &source).await;
    let claimed = w.claim(&w.s.notifier.take(), "a worker").await.remove(0);
    let result = w.run_claimed(&claimed).await;
    w.sql("UPDATE files SET state = 'doomed'").await;
    w.set_storage_usage(w.world.workspace, 0, 0).await;
    assert!(w.settle_result(&claimed, &result).await);
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::InternalError)));
    run_next_attempt(&w, id).await;
    assert_eq!(source.paths().len(), 2);
    assert_completed_once(&w, id).await;
}

/// The temporary file would use the space that is left.
async fn a_low_disk_downloads_nothing(w: TestWorker) {
    let source = Source::with(ok(&images::png(64, 64))).await;
    let id = import_from(&w, &source).await;
    w.media().disk().set_low(true);
    run(&w).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::InternalError)));
    assert!(source.request_heads().is_empty(), "{:?}", source.request_heads());
    w.media().disk().set_low(false);
    run_next_attempt(&w, id).await;
    assert_completed_once(&w, id).await;
}

async fn an_import_reserves_the_announced_space(w: TestWorker) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20);
    let gate = Gate::new();
    let source = Source::with_responses([SourceResponse::CloseAfterGate(gate.clone(), head.into_bytes())]).await;
    import_from(&w, &source).await;
    let spools = w.media().spools();
    tokio::join!(run(&w), async {
        until_true("the space is reserved", || spools.held() == 20 << 20).await;
        gate.let_through();
    });
    assert_eq!(spools.held(), 0);
}

async fn an_import_without_space_waits_and_uses_no_attempt(w: TestWorker) {
    listen(&w).await;
    let others = w.media().spools().open(w.world.workspace, 256 << 20).await.expect("all of its half");
    // Without an announced size, the space is needed when the first bytes arrive.
    let source = Source::with(chunked(&images::png(64, 64))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    for _ in 0..6 {
        assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::InternalError)));
        assert_eq!(job_status(&w, id).await, (JobState::Scheduled, 0));
        run_next_attempt(&w, id).await;
    }
    assert!(emitted_events(&w).await.is_empty());
    drop(others);
    run_next_attempt(&w, id).await;
    assert_completed_once(&w, id).await;
}

async fn an_import_without_space_uses_attempts_after_six_hours(w: TestWorker) {
    w.leaves_jobs();
    listen(&w).await;
    let others = w.media().spools().open(w.world.workspace, 256 << 20).await.expect("all of its half");
    let source = Source::with(chunked(&images::png(64, 64))).await;
    let id = import_from(&w, &source).await;
    w.advance(6 * 3_600);
    run(&w).await;
    for attempt in 1..5 {
        assert_eq!(job_status(&w, id).await, (JobState::Scheduled, attempt));
        run_next_attempt(&w, id).await;
    }
    assert_failed(&w, id, Code::InternalError, 5).await;
    drop(others);
}

/// A wait without attempts would download the first part again and again.
async fn an_import_that_finds_no_space_midway_uses_an_attempt(w: TestWorker) {
    listen(&w).await;
    let others = w.media().spools().open(w.world.workspace, 255 << 20).await.expect("most of its half");
    let source = Source::with(chunked(&images::noise(1_000))).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::InternalError)));
    assert_eq!(job_status(&w, id).await, (JobState::Scheduled, 1));
    drop(others);
    run_next_attempt(&w, id).await;
    assert_completed_once(&w, id).await;
}
