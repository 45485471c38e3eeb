//! `import_posts`: imports of posts from files. Invariant: no row becomes two posts, whatever crashes.

use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState, Lane, NewJob};
use crier_domain::post_import::{DateFormat, PostImport, PostImportError, PostImportStatus as Status};
use crier_store::jobs::{self, operate};
use crier_store::post_imports::{self, NewPostImport};

use crate::support::images;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};
use crate::support::source::{Source, SourceResponse, ok};

worker_on_both!(
    rows_become_posts_once,
    a_crash_in_the_middle_repeats_no_row,
    a_row_with_a_known_name_is_skipped,
    problems_name_the_row_and_the_column,
    an_account_is_found_by_id_among_many,
    a_dry_run_writes_nothing,
    the_plan_s_limit_ends_the_import,
    a_crash_at_the_plan_s_limit_loses_no_row,
    the_plan_s_storage_ends_the_import,
    posts_wait_for_their_files,
    a_late_file_is_not_awaited_again,
    an_unreadable_file_fails_the_import,
    a_heading_is_stored_without_control_characters,
    a_former_member_imports_nothing,
    a_canceled_import_can_be_continued,
    a_member_cancels_an_import_during_its_run,
    old_imports_are_deleted,
);

/// Starts an import as the API does.
async fn start(w: &TestWorker, dry_run: bool, bytes: &[u8]) -> i64 {
    w.write(async |tx| {
        let new = NewPostImport {
            user_id: w.world.user,
            dry_run,
            filename: Some("posts.csv"),
            timezone: "UTC",
            date_format: DateFormat::Iso,
            accounts: &[],
        };
        let id = post_imports::insert(tx, w.world.brand, &new, bytes).await?;
        let job = NewJob::new(JobKind::ImportPosts, id, tx.now).lane(Lane::Brand(w.world.brand));
        jobs::enqueue(tx, &job.workspace(w.world.workspace)).await?;
        Ok(id)
    })
    .await
}

async fn find(w: &TestWorker, id: i64) -> PostImport {
    post_imports::find(&mut w.conn().await, w.world.brand, id).await.unwrap().expect("the import exists")
}

async fn errors(w: &TestWorker, id: i64) -> Vec<PostImportError> {
    post_imports::errors(&mut w.conn().await, id).await.unwrap()
}

/// Returns a file with drafts.
fn drafts(count: usize) -> String {
    std::iter::once("content\n".to_owned()).chain((0..count).map(|n| format!("Draft {n}\n"))).collect()
}

/// Asserts that the import is completed, that this number of posts exists, each with its own text, and that its file is
/// deleted.
async fn assert_imported(w: &TestWorker, id: i64, posts: i32) {
    let import = find(w, id).await;
    assert_eq!((import.status, import.error.as_deref()), (Status::Completed, None));
    assert_eq!((import.rows_imported, import.rows_done), (posts, import.rows_total));
    assert_eq!(w.count_rows("posts").await, i64::from(posts));
    assert_eq!(w.number("SELECT count(DISTINCT content) FROM posts").await, i64::from(posts));
    assert_eq!(w.count_rows("post_import_files").await, 0);
}

async fn rows_become_posts_once(w: TestWorker) {
    let id = start(&w, false, drafts(45).as_bytes()).await;
    w.run_jobs().await;
    assert_imported(&w, id, 45).await;
    assert_eq!(w.count_rows(format!("posts WHERE author_id = {} AND status = 'draft'", w.world.user)).await, 45);
}

/// The worker dies after it has imported 500 of 600 rows, and before its job is settled.
async fn a_crash_in_the_middle_repeats_no_row(w: TestWorker) {
    let id = start(&w, false, drafts(600).as_bytes()).await;
    let job = w.claim(&w.s.notifier.take(), "gone").await.remove(0);
    assert!(w.run_claimed(&job).await.is_ok());
    assert_eq!((find(&w, id).await.rows_done, w.count_rows("posts").await), (500, 500));
    w.run_jobs().await;
    assert_eq!(w.state(job.id).await, JobState::Running, "its lease still holds");
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_imported(&w, id, 600).await;
}

async fn a_row_with_a_known_name_is_skipped(w: TestWorker) {
    let file = "content,external_ref\nOne,a\nTwo,b\nThree,\n";
    start(&w, false, file.as_bytes()).await;
    w.run_jobs().await;
    let id = start(&w, false, file.as_bytes()).await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.rows_imported, import.rows_skipped, import.rows_valid), (1, 2, 3));
    assert_eq!(w.count_rows("posts").await, 4);
    assert_eq!(w.count_rows("posts WHERE external_ref = 'a'").await, 1);
    // The name of a deleted post is free again.
    w.sql("UPDATE posts SET deleted_at = created_at WHERE external_ref = 'a'").await;
    let id = start(&w, false, b"content,external_ref\nOne,a\n").await;
    w.run_jobs().await;
    assert_eq!(find(&w, id).await.rows_imported, 1);
}

/// Names are compared with those of the newest 1,000 accounts.
async fn an_account_is_found_by_id_among_many(w: TestWorker) {
    w.copy_accounts(w.world.brand, 1_000).await;
    let file = format!("content,accounts\nRye,{0}\nRolls,{0}\n", w.account.id);
    let id = start(&w, false, file.as_bytes()).await;
    w.run_jobs().await;
    assert_imported(&w, id, 2).await;
    assert_eq!(w.count_rows(format!("post_targets WHERE account_id = {}", w.account.id)).await, 2);
}

async fn problems_name_the_row_and_the_column(w: TestWorker) {
    let (account, at) = (w.account.id, w.later(86_400).to_rfc3339());
    let file = format!(
        "Text,When,Posting time,Accounts\n\
         Good,,{at},{account}\n\
         Past,,2020-01-01 09:00,{account}\n\
         No account,,{at},\n\
         Unknown,,,Nobody\n\
         ,x,,\n"
    );
    let id = start(&w, false, file.as_bytes()).await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_total, import.rows_imported), (Status::Completed, 5, 1));
    let places: Vec<(i32, String)> = errors(&w, id).await.into_iter().map(|e| (e.row_number, e.column_name)).collect();
    for place in [(1, "When"), (3, "Posting time"), (4, "Accounts"), (5, "Accounts"), (6, "Text")] {
        assert!(places.iter().any(|(row, column)| (*row, column.as_str()) == place), "{place:?}: {places:?}");
    }
}

async fn a_dry_run_writes_nothing(w: TestWorker) {
    let id =
        start(&w, true, b"content,media_urls\nBread,https://8.8.8.8/a.png\n,https://8.8.8.8/a.png\n,ftp://x\n").await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_valid, import.rows_imported), (Status::Completed, 2, 0));
    assert_eq!((w.count_rows("posts").await, w.count_rows("media_jobs").await), (0, 0));
    assert_eq!(w.count_rows("post_import_files").await, 1, "the posts can be imported");
}

async fn the_plan_s_limit_ends_the_import(w: TestWorker) {
    // The plan has 1,000 posts per month.
    w.set_used_posts(w.world.workspace, 998).await;
    let at = w.later(86_400).to_rfc3339();
    let rows: String = (0..5).map(|n| format!("Post {n},{at},{}\n", w.account.id)).collect();
    let id = start(&w, false, format!("content,scheduled_at,accounts\n{rows}").as_bytes()).await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_imported), (Status::Failed, 2));
    let error = import.error.unwrap();
    assert!(error.contains("1000 posts per month") && error.contains("Row 4"), "{error}");
    assert_eq!((w.count_rows("posts").await, w.used_posts(w.world.workspace).await), (2, 1_000));
}

/// The worker dies after the row for which the plan had no post left. The plan has posts again when the next run begins.
async fn a_crash_at_the_plan_s_limit_loses_no_row(w: TestWorker) {
    w.set_used_posts(w.world.workspace, 999).await;
    let at = w.later(86_400).to_rfc3339();
    let rows: String = (0..3).map(|n| format!("Post {n},{at},{}\n", w.account.id)).collect();
    let id = start(&w, false, format!("content,scheduled_at,accounts\n{rows}").as_bytes()).await;
    let job = w.claim(&w.s.notifier.take(), "gone").await.remove(0);
    assert!(w.run_claimed(&job).await.is_ok());
    assert_eq!(w.count_rows("posts").await, 1);
    w.set_used_posts(w.world.workspace, 0).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_imported(&w, id, 3).await;
}

async fn the_plan_s_storage_ends_the_import(w: TestWorker) {
    let plan = 20_480_i64 << 20;
    w.set_storage_usage(w.world.workspace, plan / 2, plan / 2).await;
    let id = start(&w, false, drafts(2).as_bytes()).await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, w.count_rows("posts").await), (Status::Failed, 0));
    let error = import.error.unwrap();
    assert!(error.contains("20480 MiB") && error.contains("Row 2"), "{error}");
    // A dry run writes nothing.
    let id = start(&w, true, drafts(2).as_bytes()).await;
    w.run_jobs().await;
    assert_eq!(find(&w, id).await.rows_valid, 2);
}

async fn posts_wait_for_their_files(w: TestWorker) {
    let source = Source::start().await;
    source.set_responses([SourceResponse::Send(ok(&images::png(9, 9)))]);
    let loaf = source.url("/loaf.png");
    let file = format!("content,media_urls\nOne,{loaf}\nTwo,{loaf}\nBad,ftp://a\n");
    let id = start(&w, false, file.as_bytes()).await;
    w.cancel_deliveries().await;
    w.run_until_idle().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_imported), (Status::Completed, 2));
    assert_eq!(source.paths().len(), 1, "a file is downloaded once");
    assert_eq!(w.number("SELECT count(DISTINCT media_id) FROM post_media").await, 1);
    assert_eq!(w.count_rows("post_media").await, 2);
    assert_eq!(
        errors(&w, id).await.into_iter().map(|e| (e.row_number, e.column_name)).collect::<Vec<_>>(),
        [(4, "media_urls".to_owned())]
    );
    assert!(w.show(w.newest_job_of(JobKind::ImportPosts, id).await).await.attempt <= 1, "waiting uses no attempts");
}

/// The operator has paused the downloads. The first run skips a row whose file is late, and so does the second run.
async fn a_late_file_is_not_awaited_again(w: TestWorker) {
    w.leaves_jobs();
    w.write(async |tx| operate::pause_kind(tx, JobKind::ImportMedia).await).await;
    let loaf = "Bread,https://8.8.8.8/loaf.png\n";
    let file = format!("content,media_urls\n{loaf}{}{loaf}", "Draft,\n".repeat(500));
    let id = start(&w, false, file.as_bytes()).await;
    w.run_jobs().await;
    assert_eq!(find(&w, id).await.rows_done, 0);
    w.advance(TimeDelta::days(1).num_seconds());
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_done, import.rows_imported), (Status::Completed, 502, 500));
    let found: Vec<(i32, bool)> =
        errors(&w, id).await.iter().map(|e| (e.row_number, e.message.contains("within a day"))).collect();
    assert_eq!(found, [(2, true), (503, true)]);
}

async fn an_unreadable_file_fails_the_import(w: TestWorker) {
    for bytes in [&b"name\nAnn\n"[..], b"", b"PK\x03\x04 not a workbook"] {
        let id = start(&w, true, bytes).await;
        w.run_jobs().await;
        let import = find(&w, id).await;
        assert_eq!(import.status, Status::Failed);
        assert!(import.error.is_some_and(|error| error.ends_with('.')));
    }
}

/// Postgres stores no NUL character.
async fn a_heading_is_stored_without_control_characters(w: TestWorker) {
    let id = start(&w, true, br#"[{"content": "Bread", "si\u0000ze": "1"}]"#).await;
    w.run_jobs().await;
    assert_eq!(find(&w, id).await.status, Status::Completed);
    assert_eq!(errors(&w, id).await[0].column_name, "size");
}

async fn a_former_member_imports_nothing(w: TestWorker) {
    let id = start(&w, false, drafts(2).as_bytes()).await;
    w.remove_member(w.world.brand, w.world.user).await;
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, w.count_rows("posts").await), (Status::Failed, 0));
}

async fn a_canceled_import_can_be_continued(w: TestWorker) {
    let id = start(&w, false, drafts(2).as_bytes()).await;
    w.write(async |tx| crier_jobs::on_cancelled(tx, JobKind::ImportPosts, id).await).await;
    assert_eq!(find(&w, id).await.status, Status::Failed);
    assert!(w.write(async |tx| crier_jobs::on_retry(tx, JobKind::ImportPosts, id).await).await);
    w.run_jobs().await;
    assert_imported(&w, id, 2).await;
}

/// Cancels an import as the API does.
async fn cancel(w: &TestWorker, id: i64) {
    w.write(async |tx| {
        let import = post_imports::lock(tx, id).await?.expect("the import exists");
        crier_jobs::import_posts::cancel(tx, &import).await
    })
    .await;
}

/// The posts that exist remain. The run that is in progress creates no more.
async fn a_member_cancels_an_import_during_its_run(w: TestWorker) {
    let id = start(&w, false, drafts(600).as_bytes()).await;
    let job = w.claim(&w.s.notifier.take(), "first").await.remove(0);
    assert!(w.run_claimed(&job).await.is_ok());
    assert_eq!(w.count_rows("posts").await, 500);
    cancel(&w, id).await;
    assert_eq!(w.state(job.id).await, JobState::Running, "its worker ends it");
    assert!(w.run_claimed(&job).await.is_err(), "the next transaction finds the import ended");
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    let import = find(&w, id).await;
    assert_eq!((import.status, import.rows_imported), (Status::Failed, 500));
    assert_eq!(import.error.as_deref(), Some("A member canceled this import. The posts that were imported remain."));
    assert_eq!((w.count_rows("posts").await, w.count_rows("post_import_files").await), (500, 0));
    assert_eq!(w.state(job.id).await, JobState::Cancelled);
    // The operator cannot continue it.
    assert!(!w.write(async |tx| crier_jobs::on_retry(tx, JobKind::ImportPosts, id).await).await);
}

async fn old_imports_are_deleted(w: TestWorker) {
    start(&w, true, drafts(2).as_bytes()).await;
    w.run_jobs().await;
    w.advance(30 * 86_400 - 60);
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(w.count_rows("post_imports").await, 1);
    w.advance(120);
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(w.count_rows("post_imports").await + w.count_rows("post_import_files").await, 0);
}
