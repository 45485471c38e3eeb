//! Postgres: the statements of the queue find their rows by an index, on a table of 100,000 (30,000) jobs without
//! planner statistics, whatever state most of them are in.
//!
//! The tests measure what was read, not what `EXPLAIN` predicts: Postgres counts the scans of each table and index, and
//! the entries read. Each function runs often enough for Postgres to use a generic plan.

use chrono::TimeDelta;
use crier_domain::job::{JobKind, JobState, NewJob, Outcome};
use crier_store::db::Engine;
use crier_store::jobs::operate::{self, JobQuery};
use crier_store::jobs::{self, dispatch, engine};
use crier_store::{Result, Tx, idempotency, misdated, posts};

use crate::support::size::sized;
use crate::support::store::TestStore;

/// After five runs Postgres may switch to a generic plan, which ignores the bound values.
pub(super) const RUNS: usize = 8;

/// Returns the number of rows of a table, which is more than a run may read.
pub(super) fn row_count() -> i64 {
    sized(100_000, 30_000)
}

/// What a transaction has read so far, by the name of the table or index.
struct Reads {
    table_scans: Vec<(String, i64)>,
    index_entries: Vec<(String, i64)>,
}

/// Returns what was read between two measurements, without the names of which nothing was read.
fn difference(after: &[(String, i64)], before: &[(String, i64)]) -> Vec<(String, i64)> {
    let read = after.iter().zip(before).map(|(after, before)| (after.0.clone(), after.1 - before.1));
    read.filter(|read| read.1 > 0).collect()
}

async fn reads(tx: &mut Tx) -> Reads {
    const SQL: &str = "
        SELECT c.relname::text, c.relkind = 'r', pg_stat_get_xact_numscans(c.oid),
            pg_stat_get_xact_tuples_returned(c.oid)
        FROM pg_class c
        LEFT JOIN pg_index i ON i.indexrelid = c.oid
        WHERE coalesce(i.indrelid, c.oid) IN (
            'jobs'::regclass, 'posts'::regclass, 'idempotency_keys'::regclass, 'webhook_deliveries'::regclass,
            'events'::regclass, 'post_targets'::regclass, 'lane_holds'::regclass, 'social_accounts'::regclass,
            'brand_accounts'::regclass
        )
        ORDER BY 1";
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    let rows: Vec<(String, bool, i64, i64)> = sqlx::query_as(SQL).fetch_all(conn).await.unwrap();
    let (tables, indexes): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.1);
    Reads {
        table_scans: tables.into_iter().map(|row| (row.0, row.2)).collect(),
        index_entries: indexes.into_iter().map(|row| (row.0, row.3)).collect(),
    }
}

/// Runs a function [`RUNS`] times. Each run may read at most `max_entries` index entries, and must not scan a whole
/// table.
pub(super) async fn assert_bounded<T>(
    tx: &mut Tx,
    what: &str,
    max_entries: i64,
    mut work: impl AsyncFnMut(&mut Tx) -> Result<T>,
) {
    for run in 1..=RUNS {
        let before = reads(tx).await;
        work(tx).await.unwrap();
        let after = reads(tx).await;
        let scanned = difference(&after.table_scans, &before.table_scans);
        assert!(scanned.is_empty(), "{what}, run {run}: whole tables are read: {scanned:?}");
        let read = difference(&after.index_entries, &before.index_entries);
        assert!(
            read.iter().map(|read| read.1).sum::<i64>() <= max_entries,
            "{what}, run {run}: too much is read: {read:?}"
        );
    }
}

/// Creates a table in which most jobs are in one state, and a few hundred in each other state. It is never analyzed.
async fn create_jobs(main_state: &str) -> TestStore {
    let s = TestStore::postgres().await;
    s.sql("ALTER TABLE jobs SET (autovacuum_enabled = false)").await;
    let now = s.now().to_rfc3339();
    let states = ["scheduled", "ready", "waiting", "running", "done", "dead"];
    for (block, state) in (0_i64..).zip(states) {
        let rows = if state == main_state { row_count() } else { 400 };
        let (state, waiting) = if state == "waiting" { ("ready", true) } else { (state, false) };
        let lease =
            if state == "running" { format!("'{now}'::timestamptz + interval '30 s'") } else { "NULL".to_owned() };
        let ended = if matches!(state, "done" | "dead") { format!("'{now}'") } else { "NULL".to_owned() };
        s.sql(format!(
            "
            INSERT INTO jobs (
                kind, subject_id, lane, state, run_at, max_attempts, waiting, lease_until, worker, dispatched_at,
                created_at, finished_at
            )
            SELECT 'publish_target', {block} * 1000000 + n, 'account:{block}' || (n % 1000), '{state}',
                '{now}'::timestamptz + n * interval '1 ms', 8, {waiting}, {lease}, 'w', '{now}', '{now}', {ended}
            FROM generate_series(1, {rows}) n"
        ))
        .await;
    }
    s.advance(120);
    s
}

pub(super) async fn job_ids(s: &TestStore, state: &str) -> Vec<i64> {
    let list: String = s
        .value(format!(
            "
            SELECT string_agg(id::text, ',')
            FROM (
                SELECT id
                FROM jobs
                WHERE state = '{state}' AND NOT waiting
                ORDER BY id DESC
                LIMIT 100
            ) j"
        ))
        .await;
    list.split(',').map(|id| id.parse().unwrap()).collect()
}

async fn assert_all_queries_are_bounded(main_state: &str) {
    let s = create_jobs(main_state).await;
    let (ready, running) = (job_ids(&s, "ready").await, job_ids(&s, "running").await);
    let mut tx = s.begin().await.unwrap();
    let tx = &mut tx;
    // Twice the rows for the look-up and the write, and the dead entries of earlier runs at the start of the index.
    let max_entries = 20_000;
    assert_bounded(tx, "heartbeat", max_entries, async |tx| engine::heartbeat(tx, &running, "w").await).await;
    assert_bounded(tx, "claim", max_entries, async |tx| engine::claim(tx, &ready, "w").await).await;
    assert_bounded(tx, "next_due", max_entries, async |tx| dispatch::next_due(tx).await).await;
    assert_bounded(tx, "oldest_unclaimed", max_entries, async |tx| dispatch::oldest_unclaimed(tx).await).await;
    // A thousand lanes, each with four jobs and a hold, and the dead index entries of the jobs that earlier runs woke:
    // 7,000 entries, then 12,000 more in each run.
    assert_bounded(tx, "sweep_lanes", 100_000, async |tx| dispatch::sweep_lanes(tx).await).await;
    assert_bounded(tx, "promote_due", max_entries, async |tx| {
        dispatch::promote_due(tx, JobKind::PublishTarget, 1_000).await
    })
    .await;
    assert_bounded(tx, "correct_future_times", max_entries, async |tx| misdated::correct_future_times(tx).await).await;
    let before = tx.now - TimeDelta::seconds(10);
    assert_bounded(tx, "renotify_stale", max_entries, async |tx| {
        dispatch::renotify_stale(tx, JobKind::PublishTarget, before, 1_000).await
    })
    .await;
    let mut subject = 50_000_000;
    assert_bounded(tx, "enqueue", max_entries, async |tx| {
        subject += 1;
        jobs::enqueue(tx, &NewJob::new(JobKind::PublishTarget, subject, tx.now)).await
    })
    .await;
    assert_bounded(tx, "cancel_subject", max_entries, async |tx| {
        jobs::cancel_subject(tx, JobKind::PublishTarget, subject).await
    })
    .await;
    let job = NewJob::new(JobKind::PublishTarget, subject, tx.now);
    assert_bounded(tx, "run_now", max_entries, async |tx| jobs::run_now(tx, &job).await).await;
    let id = jobs::enqueue(tx, &NewJob::new(JobKind::Noop, 1, tx.now)).await.unwrap().unwrap();
    let held = engine::claim(tx, &[id], "w").await.unwrap().remove(0);
    assert_bounded(tx, "settle", max_entries, async |tx| engine::settle(tx, &[(&held, Outcome::Done)]).await).await;
    assert_bounded(tx, "rescue", max_entries, async |tx| dispatch::rescue(tx, 100).await).await;
    let now = tx.now;
    assert_bounded(tx, "purge", max_entries, async |tx| dispatch::purge(tx, JobState::Done, now, 500).await).await;
}

#[tokio::test]
async fn no_query_scans_many_scheduled_jobs() {
    assert_all_queries_are_bounded("scheduled").await;
}

#[tokio::test]
async fn no_query_scans_many_ready_jobs() {
    assert_all_queries_are_bounded("ready").await;
}

#[tokio::test]
async fn no_query_scans_many_waiting_jobs() {
    assert_all_queries_are_bounded("waiting").await;
}

#[tokio::test]
async fn no_query_scans_many_running_jobs() {
    assert_all_queries_are_bounded("running").await;
}

#[tokio::test]
async fn no_query_scans_many_finished_jobs() {
    assert_all_queries_are_bounded("done").await;
}

/// Purging deleted posts looks up only their own jobs, and stored responses are found by age.
#[tokio::test]
async fn clean_up_reads_few_of_many_scheduled_jobs() {
    let s = create_jobs("scheduled").await;
    let w = s.create_world().await;
    let key = s.key(w.user).await;
    let now = s.now().to_rfc3339();
    for sql in [
        format!(
            "
            INSERT INTO posts (
                brand_id, status, content, schedule_type, media, counted, deleted_at, created_at, updated_at
            )
            SELECT {}, 'published', 'x', 'now', '[]', TRUE, CASE WHEN n <= 1000 THEN '{now}'::timestamptz END,
                '{now}', '{now}'
            FROM generate_series(1, 20000) n",
            w.brand
        ),
        format!(
            "
            INSERT INTO post_targets (
                post_id, account_id, platform, position, status, options, created_at, updated_at
            )
            SELECT id, 1, 'sandbox', 0, 'published', '{{}}', '{now}', '{now}'
            FROM posts"
        ),
        format!(
            "
            INSERT INTO idempotency_keys (api_key_id, key, fingerprint, created_at)
            SELECT {key}, n::text, 'x', '{now}'
            FROM generate_series(1, 20000) n"
        ),
    ] {
        s.sql(sql).await;
    }
    let mut tx = s.begin().await.unwrap();
    assert_bounded(&mut tx, "deleted posts", 5_000, async |tx| posts::purge(tx, 100).await).await;
    let purge = async |tx: &mut Tx| idempotency::purge(tx, 100).await;
    assert_bounded(&mut tx, "responses, of which none is old", 100, purge).await;
    s.advance(86_400);
    let mut tx = s.begin().await.unwrap();
    assert_bounded(&mut tx, "old responses", 5_000, purge).await;
}

#[tokio::test]
async fn jit_is_disabled() {
    assert_eq!(TestStore::postgres().await.value::<String>("SHOW jit").await, "off");
}

/// An operator's query finds its rows among many other jobs.
#[tokio::test]
async fn a_selective_list_reads_few_rows() {
    let s = create_jobs("done").await;
    let mut tx = s.begin().await.unwrap();
    let all = JobQuery::default();
    let (kind, lane) = (Some(JobKind::PublishTarget), Some("account:17".to_owned()));
    for state in [JobState::Scheduled, JobState::Ready, JobState::Running, JobState::Dead, JobState::Cancelled] {
        let filter = JobQuery { state: Some(state), ..all.clone() };
        let of_kind = JobQuery { kind, ..filter.clone() };
        let in_lane = JobQuery { lane: lane.clone(), ..of_kind.clone() };
        for (what, filter) in [("state", filter), ("kind and state", of_kind), ("lane, kind and state", in_lane)] {
            let what = format!("{what}: {state}");
            assert_bounded(&mut tx, &what, 10_000, async |tx| operate::list(tx, &filter, 100).await).await;
            assert_bounded(&mut tx, &what, 10_000, async |tx| operate::count(tx, &filter).await).await;
        }
        let filter = JobQuery { kind, state: Some(state), ..all.clone() };
        if !matches!(state, JobState::Ready | JobState::Running) {
            assert_bounded(&mut tx, "next", 10_000, async |tx| operate::next(tx, &filter, 7, 50).await).await;
        }
    }
    let in_lane = JobQuery { lane, ..all.clone() };
    assert_bounded(&mut tx, "lane", 10_000, async |tx| operate::list(tx, &in_lane, 100).await).await;
    assert_bounded(&mut tx, "all", 10_000, async |tx| operate::list(tx, &all, 100).await).await;
    assert_bounded(&mut tx, "overview", 20_000, async |tx| operate::overview(tx).await).await;
}
