//! Thousands of jobs due at once. Each runs once, to its end; the notifier and the worker's memory stay within their
//! limits, and other kinds of jobs continue meanwhile.

use std::time::{Duration, Instant};

use crier_queue::redis::CAPACITY;

use crate::support::client::until;
use crate::support::process::Installation;
use crate::support::servers::RedisServer;
use crate::support::sites::Sites;
use crate::support::size::sized;

/// The maximum duration of a post while the machine is busy.
const SOON: Duration = Duration::from_secs(5);
/// In MiB; an idle worker uses a tenth of it.
const MEMORY: u64 = 200;
const NOT_DONE: &str = "SELECT count(*) FROM jobs WHERE kind = 'noop' AND state <> 'done'";
const ONCE: &str = "SELECT count(*) FROM jobs WHERE kind = 'noop' AND state = 'done' AND attempt = 1 AND fence = 1";

/// Asserts that the worker finishes `count` jobs, and finishes a post long before that.
async fn assert_backlog_is_processed(crier: &mut Installation, sites: &Sites, count: i64, sample: impl AsyncFn()) {
    let brand = crier.brand().await;
    let account = crier.connect(brand, sites, 1).await[0];
    until("a part of them", || async { (crier.number(NOT_DONE).await < count).then_some(()) }).await;
    let asked = Instant::now();
    let post = crier.post(brand, account, "in the middle").await;
    crier.all_published(brand, &[post]).await;
    assert!(asked.elapsed() < SOON || crier.number(NOT_DONE).await > 0, "the post waited for all of them");
    let worker = crier.of("worker");
    until("the end of all jobs", || async {
        sample().await;
        assert!(crier.memory(&worker) < MEMORY, "{} MiB", crier.memory(&worker));
        (crier.number(NOT_DONE).await == 0).then_some(())
    })
    .await;
    assert_eq!(crier.number(ONCE).await, count);
    assert_eq!(sites.count("in the middle"), 1);
    crier.assert_all_run();
}

#[tokio::test]
async fn a_backlog_is_processed_embedded() {
    let mut crier = Installation::embedded().await;
    let jobs = sized(10_000, 2_000);
    crier
        .execute(&format!(
            "WITH RECURSIVE ids(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM ids WHERE n < {jobs}) \
             INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at) \
             SELECT 'noop', n, 'scheduled', t, 5, t, t \
             FROM ids, (SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now', '+2 seconds') AS t)",
        ))
        .await;
    assert_backlog_is_processed(&mut crier, &Sites::start(), jobs, async || {}).await;
}

/// More jobs than the capacity of the notifier, which fills while the worker is down.
#[tokio::test]
async fn split() {
    let redis = RedisServer::start();
    let mut crier = Installation::split_with(&[("CRIER_REDIS_URL", &redis.url())]).await;
    assert_eq!(crier.terminate("crier-worker").await, Some(0));
    let (room, over) = (CAPACITY, 1_000);
    crier
        .execute(&format!(
            "INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at) \
             SELECT 'noop', n, 'scheduled', t, 5, t, t \
             FROM generate_series(1, {room} + {over}) n, (SELECT now() + interval '1 second' AS t) due"
        ))
        .await;
    let is_within_bounds = async || {
        // Both at once: ids move from one key to the other.
        let count = "return redis.call('ZCARD', KEYS[1]) + redis.call('LLEN', KEYS[2])";
        let keys = ["crier:queue:noop:scheduled", "crier:queue:noop:active"];
        let notified: usize = redis.ask(&["EVAL", count, "2", keys[0], keys[1]]).await;
        assert!(notified <= room, "{notified}");
        notified
    };
    until("a full notifier", || async { (is_within_bounds().await == room).then_some(()) }).await;
    assert_eq!(crier.number("SELECT count(*) FROM jobs WHERE state = 'scheduled'").await, over, "they wait for room");
    crier.start_all().await;
    let count = i64::try_from(room).expect("few") + over;
    assert_backlog_is_processed(&mut crier, &Sites::start(), count, async || {
        is_within_bounds().await;
    })
    .await;
}
