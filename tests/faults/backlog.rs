//! Thousands of jobs that are due at the same time. Each runs once, the notifier and the worker's memory stay within
//! their limits, and other kinds of jobs continue meanwhile.

use std::time::{Duration, Instant};

use crier_queue::redis::CAPACITY;

use crate::support::client::until;
use crate::support::process::Installation;
use crate::support::servers::RedisServer;
use crate::support::sites::Sites;
use crate::support::size::sized;

/// The maximum time to publish a post while the machine is busy.
const MAX_PUBLISH_TIME: Duration = Duration::from_secs(5);
/// The maximum memory of the worker, in MiB. An idle worker uses a tenth of it.
const MAX_MEMORY_MIB: u64 = 200;
const NOT_DONE: &str = "jobs WHERE kind = 'noop' AND state <> 'done'";
/// The jobs that ended after the post was published. The test itself may be slow to find that out.
const ENDED_LATER: &str = "jobs WHERE kind = 'noop' AND (finished_at IS NULL OR finished_at > \
    (SELECT min(finished_at) FROM jobs WHERE kind = 'publish_target'))";
const DONE_ONCE: &str = "jobs WHERE kind = 'noop' AND state = 'done' AND attempt = 1 AND fence = 1";

/// Asserts that the worker finishes `count` jobs, and publishes a post long before that.
async fn assert_backlog_is_processed(crier: &mut Installation, sites: &Sites, count: i64, sample: impl AsyncFn()) {
    let brand = crier.brand().await;
    let account = crier.connect(brand, sites, 1).await[0];
    until("a part of them", || async { (crier.count_rows(NOT_DONE).await < count).then_some(()) }).await;
    let started = Instant::now();
    let post = crier.post(brand, account, "in the middle").await;
    crier.all_published(brand, &[post]).await;
    let took = started.elapsed();
    assert!(took < MAX_PUBLISH_TIME || crier.count_rows(ENDED_LATER).await > 0, "the post waited for all of them");
    let worker = crier.of("worker");
    until("the end of all jobs", || async {
        sample().await;
        assert!(crier.memory(&worker) < MAX_MEMORY_MIB, "{} MiB", crier.memory(&worker));
        (crier.count_rows(NOT_DONE).await == 0).then_some(())
    })
    .await;
    assert_eq!(crier.count_rows(DONE_ONCE).await, count);
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

/// More jobs than the notifier has capacity for; it fills up while the worker is stopped.
#[tokio::test]
async fn a_backlog_is_processed_split() {
    let redis = RedisServer::start();
    let mut crier = Installation::split_with(&[("CRIER_REDIS_URL", &redis.url())]).await;
    assert_eq!(crier.terminate("crier-worker").await, Some(0));
    let (capacity, excess) = (CAPACITY, 1_000);
    crier
        .execute(&format!(
            "INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at) \
             SELECT 'noop', n, 'scheduled', t, 5, t, t \
             FROM generate_series(1, {capacity} + {excess}) n, (SELECT now() + interval '1 second' AS t) due"
        ))
        .await;
    let is_within_bounds = async || {
        // One script counts both keys, because ids move from one to the other.
        let count = "return redis.call('ZCARD', KEYS[1]) + redis.call('LLEN', KEYS[2])";
        let keys = ["crier:queue:noop:scheduled", "crier:queue:noop:active"];
        let notified: usize = redis.command(&["EVAL", count, "2", keys[0], keys[1]]).await;
        assert!(notified <= capacity, "{notified}");
        notified
    };
    until("a full notifier", || async { (is_within_bounds().await == capacity).then_some(()) }).await;
    assert_eq!(crier.count_rows("jobs WHERE state = 'scheduled'").await, excess, "they wait for room");
    crier.start_all().await;
    let count = i64::try_from(capacity).expect("few") + excess;
    assert_backlog_is_processed(&mut crier, &Sites::start(), count, async || {
        is_within_bounds().await;
    })
    .await;
}
