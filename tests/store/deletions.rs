//! The deletion of a brand or a workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_store::files::{self, NewFile};
use crier_store::{deletions, events, media_uploads, targets, users};
use serde_json::{Map, json};

use super::schema::schema;
use crate::support::store::{TestStore, World, on_both};

on_both![
    a_deleted_workspace_leaves_nothing,
    a_deleted_brand_leaves_nothing,
    a_run_in_progress_stores_its_result_first,
    a_dead_worker_does_not_delay_a_deletion,
    an_interrupted_deletion_continues,
];

/// Tables in which rows remain: those of files until the sweep has deleted their bytes, and jobs, which have only IDs.
const REMAINING: [&str; 4] = ["files", "jobs", "media_upload_pieces", "media_uploads"];

/// Tables without rows of a workspace.
const OF_INSTALLATION: [&str; 10] = [
    "analytics_progress",
    "first_key",
    "lane_holds",
    "narrow_lanes",
    "oauth_clients",
    "operator_changes",
    "paused_kinds",
    "paused_lanes",
    "secret_key_checks",
    "storage_marker",
];

/// Returns the rows of each table, except for those that remain, as text.
async fn rows(s: &TestStore) -> BTreeMap<String, String> {
    let mut tables = BTreeMap::new();
    for (table, columns) in schema(s).await {
        if REMAINING.contains(&table.as_str()) {
            continue;
        }
        let sql = if s.is_postgres() {
            format!("SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM {table} r")
        } else {
            let line: Vec<_> = columns.iter().map(|(column, _)| format!("quote(\"{column}\")")).collect();
            let line = line.join(" || ',' || ");
            format!("SELECT group_concat(line, ' ') FROM (SELECT {line} AS line FROM {table} ORDER BY 1) AS lines")
        };
        let text: Option<String> = s.value(sql).await;
        tables.insert(table, text.unwrap_or_default());
    }
    tables
}

fn assert_same(after: &BTreeMap<String, String>, before: &BTreeMap<String, String>) {
    for (table, rows) in before {
        assert_eq!(&after[table], rows, "{table}");
    }
}

/// The rows of a brand that the tests use.
struct Filled {
    account: i64,
    target: i64,
    /// The job that publishes the target.
    job: i64,
}

/// Adds rows of a brand to all tables.
async fn fill_brand(s: &TestStore, w: World) -> Filled {
    let account = s.account(w, &format!("x{}", w.brand), "t").await.id;
    let (post, targets) = s.post(w, &[account]).await;
    let job = s.enqueue_job(JobKind::PublishTarget, targets[0], None).await;
    let new = NewFile {
        workspace_id: w.workspace,
        brand_id: w.brand,
        key: format!("file-{}", w.brand),
        thumbnail_key: None,
        sha256: [1; 32],
        mime_type: "image/png",
        size_bytes: 1_000,
        width: 1,
        height: 1,
        video: None,
    };
    let file = s
        .write(async |tx| {
            let file = files::reserve(tx, &new, None).await?.expect("there is space").id;
            files::mark_stored(tx, file).await?;
            events::emit(tx, w.brand, EventName::PostPublished, &json!({}), None).await?;
            Ok(file)
        })
        .await;
    let numbers = [("{account}", account), ("{post}", post), ("{target}", targets[0]), ("{file}", file)];
    insert(s, w, include_str!("deletions/brand.sql"), &numbers).await;
    Filled { account, target: targets[0], job }
}

/// Adds rows of a workspace and its user to all tables that have no brand.
async fn fill_workspace(s: &TestStore, w: World) {
    s.webhook(w.user, &[EventName::PostPublished]).await;
    let key = s.key(w.user).await;
    insert(s, w, include_str!("deletions/workspace.sql"), &[("{key}", key)]).await;
}

async fn insert(s: &TestStore, w: World, sql: &str, numbers: &[(&str, i64)]) {
    // A text of this size counts as stored text.
    let sql = sql.replace("{long}", &"x".repeat(6_000)).replace("{at}", "'2026-01-01T00:00:00+00:00'");
    let of_world = [("{workspace}", w.workspace), ("{user}", w.user), ("{brand}", w.brand)];
    let numbers = of_world.iter().chain(numbers);
    s.sql(numbers.fold(sql, |sql, (name, number)| sql.replace(name, &number.to_string()))).await;
}

async fn close(s: &TestStore, brand: i64) {
    s.write(async |tx| deletions::close_brand(tx, brand).await).await;
}

/// Deletes what can be deleted in pieces. Returns the number of posts and conversations that are left.
async fn delete_pieces(s: &TestStore, brand: i64) -> i64 {
    while s.write(async |tx| deletions::delete_some(tx, brand).await).await > 0 {}
    deletions::count_busy(&mut s.conn().await, brand).await.unwrap()
}

/// Deletes a closed brand, as the command does, and then its files, as the scheduler does.
async fn delete_closed(s: &TestStore, brand: i64) {
    assert_eq!(delete_pieces(s, brand).await, 0);
    let next = s.write(async |tx| deletions::delete_events(tx, &[brand], 0).await).await;
    assert_eq!(next, None, "it could wait for events of other brands");
    s.write(async |tx| deletions::delete_brand(tx, brand).await).await;
    let before = s.later(-3_600);
    s.write(async |tx| files::mark_abandoned_for_deletion(tx, before, 100).await).await;
    s.write(async |tx| media_uploads::mark_expired(tx, 100).await).await;
    for table in ["files", "media_uploads"] {
        assert_eq!(s.count_rows(format!("{table} WHERE brand_id IS NULL AND state = 'doomed'")).await, 1, "{table}");
        assert_eq!(s.count_rows(format!("{table} WHERE state = 'doomed'")).await, 1, "{table} of another brand");
    }
}

async fn a_deleted_workspace_leaves_nothing(s: TestStore) {
    let other = s.create_world().await;
    fill_workspace(&s, other).await;
    fill_brand(&s, other).await;
    let before = rows(&s).await;
    let w = s.world_of("bob@example.com").await;
    fill_workspace(&s, w).await;
    let filled = fill_brand(&s, w).await;
    let both = rows(&s).await;
    for (table, rows) in before.iter().filter(|(table, _)| !OF_INSTALLATION.contains(&table.as_str())) {
        assert_ne!(&both[table], rows, "{table}: add rows to tests/store/deletions");
    }

    s.write(async |tx| deletions::close_workspace(tx, w.workspace).await).await;
    assert_eq!(s.count_rows(format!("api_keys WHERE user_id = {}", w.user)).await, 0);
    assert_eq!(deletions::brands(&mut s.conn().await, w.workspace).await.unwrap(), [w.brand]);
    delete_closed(&s, w.brand).await;
    assert_eq!(s.state(filled.job).await, JobState::Cancelled);
    assert!(s.write(async |tx| users::delete(tx, "bob@example.com").await).await);
    s.write(async |tx| deletions::delete_workspace(tx, w.workspace).await).await;
    assert_same(&rows(&s).await, &before);
}

async fn a_deleted_brand_leaves_nothing(s: TestStore) {
    let w = s.create_world().await;
    fill_workspace(&s, w).await;
    let kept = fill_brand(&s, w).await;
    let before = rows(&s).await;
    let other = World { brand: s.brand(w.workspace, w.user).await, ..w };
    fill_brand(&s, other).await;
    let contents = deletions::brand_contents(&mut s.conn().await, other.brand).await.unwrap().unwrap();
    assert_eq!((contents.posts, contents.accounts, contents.users, contents.files), (1, 1, 1, 1));
    let contents = deletions::workspace_contents(&mut s.conn().await, w.workspace).await.unwrap().unwrap();
    assert_eq!((contents.brands, contents.posts, contents.accounts, contents.users, contents.files), (2, 2, 2, 1, 2));

    close(&s, other.brand).await;
    delete_closed(&s, other.brand).await;
    assert_same(&rows(&s).await, &before);
    assert_eq!(s.state(kept.job).await, JobState::Ready);
    assert!(deletions::brand_contents(&mut s.conn().await, other.brand).await.unwrap().is_none());
}

async fn a_run_in_progress_stores_its_result_first(s: TestStore) {
    let w = s.create_world().await;
    fill_workspace(&s, w).await;
    let Filled { account, target, job } = fill_brand(&s, w).await;
    let run = s.claim(&[job], "worker").await.remove(0);
    close(&s, w.brand).await;
    assert_eq!(s.count_rows(format!("social_accounts WHERE id = {account}")).await, 0);
    assert_eq!(delete_pieces(&s, w.brand).await, 1);
    // The target stays for the result. A run that has not begun its call does not make it.
    assert!(targets::find(&mut s.conn().await, target).await.unwrap().is_some());
    assert!(!s.write(async |tx| targets::mark_call(tx, target, &Map::new()).await).await);
    assert!(s.settle(&run, Outcome::Done).await);
    delete_closed(&s, w.brand).await;
    assert_eq!(s.count_rows("post_targets").await, 0);
}

async fn a_dead_worker_does_not_delay_a_deletion(s: TestStore) {
    let w = s.create_world().await;
    fill_workspace(&s, w).await;
    let filled = fill_brand(&s, w).await;
    s.claim(&[filled.job], "worker").await;
    close(&s, w.brand).await;
    assert_eq!(delete_pieces(&s, w.brand).await, 1);
    s.advance(31);
    assert_eq!(delete_pieces(&s, w.brand).await, 0);
}

async fn an_interrupted_deletion_continues(s: TestStore) {
    let w = s.create_world().await;
    fill_workspace(&s, w).await;
    fill_brand(&s, w).await;
    s.copy_newest_row("posts", 250, &[]).await;
    close(&s, w.brand).await;
    assert_eq!(s.write(async |tx| deletions::delete_some(tx, w.brand).await).await, 200);
    assert!(deletions::brand_contents(&mut s.conn().await, w.brand).await.unwrap().is_some());
    close(&s, w.brand).await;
    delete_closed(&s, w.brand).await;
    assert_eq!(s.count_rows("posts").await, 0);
}

/// The statistics say that a brand has one word.
#[tokio::test]
async fn outdated_statistics_do_not_delay_a_deletion() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    for sql in [
        "ALTER TABLE post_words SET (autovacuum_enabled = false)".to_owned(),
        "INSERT INTO post_words (brand_id, word, post_id) SELECT 1000 + n, 'word', 1 FROM generate_series(1, 500) n"
            .to_owned(),
        "ANALYZE post_words".to_owned(),
        format!(
            "INSERT INTO post_words (brand_id, word, post_id)
            SELECT {}, 'word' || n, 1
            FROM generate_series(1, 100000) n",
            w.brand
        ),
    ] {
        s.sql(sql).await;
    }
    let left = tokio::time::timeout(Duration::from_secs(30), delete_pieces(&s, w.brand)).await;
    assert_eq!(left, Ok(0), "a piece takes too long");
    assert_eq!(s.count_rows("post_words").await, 500);
}
