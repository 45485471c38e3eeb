//! Postgres: a query plan that was made while the tables were small, and is cached, finds few rows by an index when
//! they are large.

use crier_domain::access::{KeyMode, Scopes};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, LEASE, Lane, NewJob, Outcome};
use crier_domain::post::{AttemptOutcome, PostStatus, TargetOverride, TargetStatus};
use crier_domain::webhook::DeliveryStatus;
use crier_store::db::Engine;
use crier_store::deliveries::{self, AttemptRow};
use crier_store::jobs::{self, dispatch, engine};
use crier_store::posts::NewPost;
use crier_store::targets::{NewAttempt, NewTarget, StartingCall, TargetOutcome, TargetUpdate};
use crier_store::{Result, Tx, accounts, events, idempotency, keys, posts, targets};
use serde_json::json;

use super::plans::{RUNS, assert_bounded, job_ids, row_count};
use crate::support::store::{TestStore, new_post};

/// Begins a transaction whose connection keeps its cached plans. The transaction is idle while other connections fill a
/// table, which may take longer than the idle timeout of transactions.
async fn begin_with_cached_plans(s: &TestStore) -> Tx {
    let mut tx = s.begin().await.unwrap();
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(conn).await.unwrap();
    tx
}

/// Emits an event of the brand; returns the new job and the new delivery of the endpoint.
async fn emit_delivery(tx: &mut Tx, brand: i64) -> (i64, i64) {
    events::emit(tx, brand, EventName::PostPublished, &json!({}), None).await.unwrap();
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    let newest = "SELECT id, subject_id FROM jobs ORDER BY id DESC LIMIT 1";
    sqlx::query_as(newest).fetch_one(conn).await.unwrap()
}

fn successful_attempt(tx: &Tx, delivery_id: i64) -> AttemptRow {
    AttemptRow {
        delivery_id,
        number: 1,
        started_at: tx.now,
        duration_ms: 1,
        outcome: "2xx",
        response_code: Some(200),
        error: None,
        response_body: None,
        status: DeliveryStatus::Succeeded,
        next_attempt_at: None,
    }
}

async fn record_attempt(tx: &mut Tx, delivery_id: i64) -> Result<()> {
    let attempt = successful_attempt(tx, delivery_id);
    deliveries::load_outgoing(tx, &[delivery_id]).await?;
    deliveries::lock_each(tx, &[delivery_id]).await?;
    deliveries::record(tx, &[attempt]).await.map(drop)
}

/// Reads the first deliveries and events, none of which is old.
async fn purge_deliveries(tx: &mut Tx) -> Result<()> {
    let before = tx.now - chrono::TimeDelta::days(90);
    deliveries::purge(tx, before, 0, 100).await?;
    events::purge(tx, before, 0, 100).await.map(drop)
}

/// Earlier deliveries of an endpoint do not slow down the next one, even with plans that were made when there were few.
#[tokio::test]
async fn queries_of_an_endpoint_with_many_deliveries_are_bounded() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &[EventName::PostPublished]).await.id;
    let tx = &mut begin_with_cached_plans(&s).await;
    for _ in 0..RUNS {
        let (job, delivery) = emit_delivery(tx, w.brand).await;
        let held = engine::claim(tx, &[job], "w").await.unwrap().remove(0);
        record_attempt(tx, delivery).await.unwrap();
        engine::settle(tx, &[(&held, Outcome::Done)]).await.unwrap();
        purge_deliveries(tx).await.unwrap();
    }
    let now = s.now().to_rfc3339();
    for sql in [
        format!(
            "
            INSERT INTO events (name, payload)
            SELECT 'post.published', '{{}}'
            FROM generate_series(1, {})",
            row_count()
        ),
        format!(
            "
            INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, created_at, updated_at)
            SELECT {webhook}, id, 'succeeded', 8, '{now}', '{now}'
            FROM events"
        ),
        format!(
            "
            INSERT INTO jobs (
                kind, subject_id, lane, state, run_at, max_attempts, dispatched_at, created_at, finished_at
            )
            SELECT 'deliver_webhook', id, 'endpoint:{webhook}', 'done', '{now}', 8, '{now}', '{now}', '{now}'
            FROM webhook_deliveries"
        ),
    ] {
        s.sql(sql).await;
    }
    for _ in 0..RUNS {
        let (job, delivery) = emit_delivery(tx, w.brand).await;
        assert_bounded(tx, "claim", 500, async |tx| engine::claim(tx, &[job], "w").await).await;
        assert_bounded(tx, "the attempt", 500, async |tx| record_attempt(tx, delivery).await).await;
    }
    assert_bounded(tx, "purge", 1_000, purge_deliveries).await;
    assert_bounded(tx, "emit", 500, async |tx| {
        events::emit(tx, w.brand, EventName::PostPublished, &json!({}), None).await
    })
    .await;
}

/// Starts and ends the runs of two targets of a post.
async fn publish_targets(tx: &mut Tx, post_id: i64, target_ids: &[i64]) -> Result<()> {
    let call = |id: &i64| StartingCall { target_id: *id, marker: serde_json::Map::new() };
    posts::lock_of_targets(tx, target_ids, false).await?;
    targets::start_calls(tx, &target_ids.iter().map(call).collect::<Vec<_>>(), &[post_id]).await?;
    posts::lock_each(tx, &[post_id]).await?;
    let end = TargetOutcome {
        status: TargetStatus::Published,
        external_id: Some("x1".to_owned()),
        url: None,
        error: None,
        next_attempt_at: None,
        published_at: Some(tx.now),
        call_open: false,
        published_parts: None,
    };
    let attempt = NewAttempt {
        number: 1,
        started_at: tx.now,
        outcome: AttemptOutcome::Published,
        status_code: None,
        error: None,
    };
    let ending = |id: &i64| TargetUpdate { target_id: *id, end: &end, attempt: Some(&attempt), ends_post: true };
    targets::end_each(tx, &target_ids.iter().map(ending).collect::<Vec<_>>()).await.map(drop)
}

/// Other posts do not slow down a publish job, even with plans that were made when there were few.
#[tokio::test]
async fn queries_of_a_publish_among_many_posts_are_bounded() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let tx = &mut begin_with_cached_plans(&s).await;
    for _ in 0..RUNS {
        let (post, targets) = s.post(w, &[1, 2]).await;
        publish_targets(tx, post, &targets).await.unwrap();
    }
    let now = s.now().to_rfc3339();
    for sql in [
        format!(
            "
            INSERT INTO posts (brand_id, status, content, schedule_type, media, counted, created_at, updated_at)
            SELECT {}, 'publishing', 'other', 'now', '[]', TRUE, '{now}', '{now}'
            FROM generate_series(1, {})",
            w.brand,
            row_count()
        ),
        format!(
            "
            INSERT INTO post_targets (
                post_id, account_id, platform, position, status, options, created_at, updated_at
            )
            SELECT id, 3, 'sandbox', 0, 'pending', '{{}}', '{now}', '{now}'
            FROM posts
            WHERE content = 'other'"
        ),
    ] {
        s.sql(sql).await;
    }
    let mut new = Vec::new();
    for _ in 0..RUNS {
        new.push(s.post(w, &[1, 2]).await);
    }
    let mut new = new.into_iter();
    assert_bounded(tx, "a publish", 500, async |tx| {
        let (post, targets) = new.next().unwrap();
        publish_targets(tx, post, &targets).await
    })
    .await;
}

/// A post is created among many accounts and posts without reading many of them, even with a plan that was made when
/// there were few.
#[tokio::test]
async fn a_new_post_reads_few_of_many_accounts() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let account = s.account(w, "one", "t").await.id;
    let post = new_post(w, PostStatus::Scheduled);
    let target = NewTarget { account_id: account, position: 0, target_override: TargetOverride::default() };
    let job = NewJob::new(JobKind::PublishTarget, 0, s.later(60)).workspace(w.workspace);
    let tx = &mut begin_with_cached_plans(&s).await;
    let created = async |tx: &mut Tx| {
        let found = accounts::summaries(tx, w.brand, &[account]).await?;
        let targets = &[(&target, found[0].platform)];
        let new = NewPost { post: &post, targets, job: Some(&job), counted_in: Some(w.workspace) };
        posts::create(tx, new).await.map(drop)
    };
    for _ in 0..RUNS {
        created(tx).await.unwrap();
    }
    let now = s.now().to_rfc3339();
    for sql in [
        format!(
            "
            INSERT INTO social_accounts (
                workspace_id, platform, external_id, name, kind, status, secrets, connected_at, created_at, updated_at
            )
            SELECT {}, 'sandbox', 'x' || n, 'Other', 'profile', 'active', '', '{now}', '{now}', '{now}'
            FROM generate_series(1, {}) n",
            w.workspace,
            row_count()
        ),
        format!(
            "
            INSERT INTO brand_accounts (brand_id, account_id, created_at)
            SELECT {}, id, '{now}'
            FROM social_accounts
            WHERE name = 'Other'",
            w.brand
        ),
    ] {
        s.sql(sql).await;
    }
    assert_bounded(tx, "a new post", 500, created).await;
}

/// A request finds its `Idempotency-Key` among many others, even with a plan that was made when there were few.
#[tokio::test]
async fn a_request_reads_few_of_many_idempotency_keys() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let key = s.write(async |tx| keys::create(tx, w.user, KeyMode::Live, &Scopes::all()).await).await;
    let fill = async |from: i64, to: i64| {
        s.sql(format!(
            "
            INSERT INTO idempotency_keys (api_key_id, key, fingerprint, response, method, path, created_at)
            SELECT k.id, n::text, sha256('x'), decode(repeat('00', 150), 'hex'), 'POST', '/api/public/v1/brands', now()
            FROM api_keys k, generate_series({from}, {to}) n"
        ))
        .await;
    };
    fill(1, 250).await;
    let tx = &mut begin_with_cached_plans(&s).await;
    let find = async |tx: &mut Tx| keys::authenticate(tx, &key, None, Some("new")).await;
    for _ in 0..RUNS {
        find(tx).await.unwrap().unwrap();
    }
    fill(251, row_count()).await;
    assert_bounded(tx, "authenticate", 100, find).await;
}

/// Expired responses are found by their age, even with a plan that was made when there were none.
#[tokio::test]
async fn a_purge_of_responses_reads_few_of_many() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let key = s.key(w.user).await;
    let tx = &mut begin_with_cached_plans(&s).await;
    let purge = async |tx: &mut Tx| idempotency::purge(tx, 100).await;
    for _ in 0..RUNS {
        purge(tx).await.unwrap();
    }
    let expired = (s.now() - idempotency::RETENTION).to_rfc3339();
    s.sql(format!(
        "
        INSERT INTO idempotency_keys (api_key_id, key, fingerprint, created_at)
        SELECT {key}, n::text, 'x', '{expired}'
        FROM generate_series(1, {}) n",
        row_count()
    ))
    .await;
    assert_bounded(tx, "old responses", 5_000, purge).await;
}

/// Sets a job waiting for the lane of an account, and wakes it.
async fn wake_lane(tx: &mut Tx, subject_id: i64) -> Result<()> {
    let job = NewJob::new(JobKind::PublishTarget, subject_id, tx.now);
    jobs::enqueue_in_lane(tx, &job, Lane::Account(1), &[subject_id]).await?;
    assert_eq!(dispatch::sweep_lanes(tx).await?, 1);
    Ok(())
}

/// Waking a lane finds the lane's hold among many others, even with plans that were made when there were few.
#[tokio::test]
async fn waking_a_lane_reads_few_of_many_holds() {
    let s = TestStore::postgres().await;
    let tx = &mut begin_with_cached_plans(&s).await;
    let mut subjects = 1..;
    for subject in subjects.by_ref().take(RUNS) {
        wake_lane(tx, subject).await.unwrap();
    }
    s.sql(format!(
        "
        INSERT INTO lane_holds (lane, held_since, held_until)
        SELECT 'account:' || n, now(), now()
        FROM generate_series(10, {}) n",
        row_count()
    ))
    .await;
    assert_bounded(tx, "a lane woken", 500, async |tx| wake_lane(tx, subjects.next().unwrap()).await).await;
}

/// Claims and settles a job with a lane and a workspace, and looks up the jobs that wait for them.
async fn settle_job(tx: &mut Tx, subject_id: i64) -> Result<()> {
    let job = NewJob::new(JobKind::PublishTarget, subject_id, tx.now).lane(Lane::Account(1)).workspace(1);
    let id = jobs::enqueue(tx, &job).await?.unwrap();
    let held = engine::claim(tx, &[id], "w").await?.remove(0);
    assert!(engine::settle(tx, &[(&held, Outcome::Done)]).await?);
    let Engine::Pg(conn) = tx.engine() else { panic!("this is for Postgres") };
    let waited_for = include_str!("../../common/store/src/jobs/sql/postgres/waited_for.sql");
    let (lane, workspace) = (json!([held.lane]).to_string(), json!([held.workspace_lane]).to_string());
    let found = sqlx::query(waited_for).bind(lane).bind(workspace).fetch_all(conn).await.unwrap();
    assert!(found.is_empty());
    Ok(())
}

/// A settled job is not compared with all jobs of other lanes, even with plans that were made when there were few.
#[tokio::test]
async fn settling_reads_few_jobs_of_other_lanes() {
    let s = TestStore::postgres().await;
    let tx = &mut begin_with_cached_plans(&s).await;
    let mut subjects = 1..;
    for subject in subjects.by_ref().take(RUNS) {
        settle_job(tx, subject).await.unwrap();
    }
    let now = s.now().to_rfc3339();
    for (block, state, waiting, lease) in [(1, "ready", "TRUE", "NULL"), (2, "running", "FALSE", "'2099-01-01'")] {
        s.sql(format!(
            "
            INSERT INTO jobs (
                kind, subject_id, lane, workspace_lane, state, run_at, max_attempts, waiting, lease_until,
                dispatched_at, created_at
            )
            SELECT 'publish_target', {block} * 1000000 + n, 'account:' || (n % 1000 + 10),
                'publish_target:' || (n % 1000 + 10), '{state}', '{now}', 8, {waiting}, {lease}, '{now}', '{now}'
            FROM generate_series(1, {}) n",
            row_count()
        ))
        .await;
    }
    assert_bounded(tx, "a job settled", 500, async |tx| settle_job(tx, subjects.next().unwrap()).await).await;
}

/// Plans that were made while the table was small stay cached, and must not become slow as it grows.
#[tokio::test]
async fn a_plan_cached_on_an_empty_table_stays_fast() {
    let s = TestStore::postgres().await;
    s.sql("ALTER TABLE jobs SET (autovacuum_enabled = false)").await;
    let mut kept = begin_with_cached_plans(&s).await;
    for subject in 0..4 {
        jobs::enqueue(&mut kept, &NewJob::new(JobKind::Noop, subject, s.now())).await.unwrap();
    }
    for run in 1..=RUNS {
        // Each run claims and settles one job, as long as there are any.
        let id = i64::try_from(run).unwrap();
        for job in engine::claim(&mut kept, &[id], "w").await.unwrap() {
            let again = Outcome::RetryAt(s.now(), "again".to_owned());
            engine::settle(&mut kept, &[(&job, again)]).await.unwrap();
        }
        dispatch::promote_due(&mut kept, JobKind::Noop, 100).await.unwrap();
        dispatch::renotify_stale(&mut kept, JobKind::Noop, s.now(), 1_000).await.unwrap();
        engine::heartbeat(&mut kept, &[1, 2, 3], "w").await.unwrap();
        dispatch::rescue(&mut kept, 100).await.unwrap();
        dispatch::purge(&mut kept, JobState::Done, s.now(), 1_000).await.unwrap();
        targets::target_summaries(&mut kept, &[1, 2]).await.unwrap();
    }
    let now = s.now().to_rfc3339();
    // Other connections insert the rows, while the connection above keeps its cached plans.
    for (block, state) in [(1, "scheduled"), (2, "ready"), (3, "done")] {
        let ended = if state == "done" { format!("'{now}'") } else { "NULL".to_owned() };
        s.sql(format!(
            "
            INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at, finished_at)
            SELECT 'noop', {block} * 1000000 + n, '{state}', '{now}', 5, '{now}', '{now}', {ended}
            FROM generate_series(1, {}) n",
            row_count()
        ))
        .await;
    }
    let ready = job_ids(&s, "ready").await;
    let before = s.now() + LEASE;
    let max_entries = 20_000;
    assert_bounded(&mut kept, "claim", max_entries, async |tx| engine::claim(tx, &ready, "w").await).await;
    assert_bounded(&mut kept, "heartbeat", max_entries, async |tx| engine::heartbeat(tx, &ready, "w").await).await;
    assert_bounded(&mut kept, "promote_due", max_entries, async |tx| {
        dispatch::promote_due(tx, JobKind::Noop, 1_000).await
    })
    .await;
    assert_bounded(&mut kept, "renotify_stale", max_entries, async |tx| {
        dispatch::renotify_stale(tx, JobKind::Noop, before, 1_000).await
    })
    .await;
    assert_bounded(&mut kept, "rescue", max_entries, async |tx| dispatch::rescue(tx, 100).await).await;
    assert_bounded(&mut kept, "purge", max_entries, async |tx| dispatch::purge(tx, JobState::Done, before, 500).await)
        .await;
}
