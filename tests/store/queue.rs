//! The notifiers: ids arrive, ids above the capacity are dropped, and notifying never blocks, whatever Redis does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crier_domain::job::{JobKind, JobNotification, JobNotifier, NoopNotifier};
use crier_queue::Transport;
use crier_queue::memory::{self, MemoryNotifier};
use crier_queue::redis::{CAPACITY, RedisNotifier};
use secrecy::SecretString;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::notifier::{TestListener, test_listener, test_listener_with_slots};
use crate::support::servers::{self, RedisServer};

fn notifications(kind: JobKind, ids: impl IntoIterator<Item = i64>) -> Vec<JobNotification> {
    ids.into_iter().map(|id| JobNotification { kind, id }).collect()
}

/// Returns the next id, with a generous timeout.
async fn next(ids: &mut TestListener) -> Option<i64> {
    tokio::time::timeout(Duration::from_secs(60), ids.recv()).await.ok().flatten()
}

async fn assert_nothing_arrives(ids: &mut TestListener) {
    assert!(tokio::time::timeout(Duration::from_millis(100), ids.recv()).await.is_err(), "an unexpected id arrived");
}

/// Polls until the condition holds.
async fn until(what: &str, mut is_done: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_done().await {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Notifies until an id arrives, because notifications that are sent while Redis is unavailable may be lost.
async fn wait_for_delivery(notifier: &dyn Transport, ids: &mut TestListener, from: i64) {
    let mut id = from;
    until("no notification arrives any more", async || {
        notifier.notify(&notifications(JobKind::Noop, [id]));
        id += 1;
        let new = async {
            // Earlier notifications may arrive first.
            while ids.recv().await.expect("it listens") < from {}
        };
        tokio::time::timeout(Duration::from_millis(100), new).await.is_ok()
    })
    .await;
}

/// Returns the free capacity of the fullest kind.
async fn free_capacity(notifier: &dyn Transport) -> Option<usize> {
    let kinds = notifier.capacity().await?;
    assert_eq!(kinds.iter().map(|of| of.kind).collect::<Vec<_>>(), JobKind::ALL);
    kinds.into_iter().map(|of| of.free).min()
}

async fn free_capacity_of(notifier: &dyn Transport, kind: JobKind) -> Option<usize> {
    notifier.capacity().await?.into_iter().find(|of| of.kind == kind).map(|of| of.free)
}

fn redis(url: String, prefix: &str) -> (Arc<RedisNotifier>, DropGuard) {
    let stop = CancellationToken::new();
    let notifier = RedisNotifier::start(&SecretString::from(url), prefix, stop.clone()).unwrap();
    (Arc::new(notifier), stop.drop_guard())
}

async fn wait_until_up(notifier: &RedisNotifier) {
    until("Redis is not reached", async || notifier.is_up()).await;
}

#[tokio::test]
async fn memory_sends_ids_to_the_listener_of_their_kind() {
    let notifier = MemoryNotifier::default();
    assert_eq!(free_capacity(&notifier).await, Some(0), "no listener: nothing is promoted");
    notifier.notify(&notifications(JobKind::Noop, [1]));
    let (mut noop, mut publish) =
        (test_listener(&notifier, JobKind::Noop), test_listener(&notifier, JobKind::PublishTarget));
    assert!(notifier.is_up());
    notifier.notify(&notifications(JobKind::Noop, [2, 3]));
    notifier.notify(&notifications(JobKind::PublishTarget, [4]));
    assert_eq!((next(&mut noop).await, next(&mut noop).await), (Some(2), Some(3)));
    assert_eq!(next(&mut publish).await, Some(4));
    assert_nothing_arrives(&mut noop).await;
    // The newest listener receives the ids.
    let mut second = test_listener(&notifier, JobKind::Noop);
    notifier.notify(&notifications(JobKind::Noop, [5]));
    assert_eq!(next(&mut second).await, Some(5));
    assert_eq!(next(&mut noop).await, None);
    NoopNotifier.notify(&notifications(JobKind::Noop, [6]));
}

#[tokio::test]
async fn memory_is_bounded_and_never_blocks() {
    let notifier = MemoryNotifier::default();
    let mut ids = test_listener(&notifier, JobKind::Noop);
    let _other = test_listener(&notifier, JobKind::PublishTarget);
    assert_eq!(free_capacity_of(&notifier, JobKind::Noop).await, Some(memory::CAPACITY));
    notifier.notify(&notifications(JobKind::Noop, 0..memory::CAPACITY as i64 + 500));
    assert_eq!(free_capacity_of(&notifier, JobKind::Noop).await, Some(0));
    assert_eq!(
        free_capacity_of(&notifier, JobKind::PublishTarget).await,
        Some(memory::CAPACITY),
        "each kind has its own capacity"
    );
    for id in 0..memory::CAPACITY as i64 {
        assert_eq!(next(&mut ids).await, Some(id), "the oldest are kept");
    }
    assert_nothing_arrives(&mut ids).await;
    assert_eq!(free_capacity_of(&notifier, JobKind::Noop).await, Some(memory::CAPACITY));
    notifier.notify(&notifications(JobKind::Noop, [-1]));
    assert_eq!(next(&mut ids).await, Some(-1));
    // A dropped listener is ignored.
    drop(ids);
    notifier.notify(&notifications(JobKind::Noop, [1]));
}

#[tokio::test]
async fn redis_sends_each_id_to_one_listener() {
    let url = servers::redis().await;
    let (notifier, _stop) = redis(url.clone(), "t");
    // Another process that only listens, and a process that notifies under another prefix.
    let (other, _stop_other) = redis(url.clone(), "t");
    let (foreign, _stop_foreign) = redis(url, "foreign");
    let mut listeners = [test_listener(&*notifier, JobKind::Noop), test_listener(&*other, JobKind::Noop)];
    let mut publish = test_listener(&*notifier, JobKind::PublishTarget);
    wait_until_up(&notifier).await;
    wait_until_up(&foreign).await;
    foreign.notify(&notifications(JobKind::Noop, [999]));
    notifier.notify(&notifications(JobKind::Noop, 0..50));
    notifier.notify(&notifications(JobKind::PublishTarget, [77]));
    assert_eq!(next(&mut publish).await, Some(77));
    let mut received = Vec::new();
    while received.len() < 50 {
        let [one, two] = &mut listeners;
        let id = tokio::select! { id = next(one) => id, id = next(two) => id };
        received.push(id.expect("all ids arrive"));
    }
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<_>>());
    assert_nothing_arrives(&mut publish).await;
}

#[tokio::test]
async fn redis_counts_the_processes_that_listen() {
    assert_eq!(MemoryNotifier::default().listening_processes().await, Some(1));
    let url = servers::redis().await;
    let ((one, _stop_one), (two, stop_two)) = (redis(url.clone(), "counted"), redis(url.clone(), "counted"));
    let (other, _stop_other) = redis(url, "elsewhere");
    assert_eq!(one.listening_processes().await, Some(0), "they only notify");
    let _ids = (test_listener(&*one, JobKind::Noop), test_listener(&*one, JobKind::PublishTarget));
    let _more = (test_listener(&*two, JobKind::PublishTarget), test_listener(&*other, JobKind::Noop));
    until("two processes listen", async || one.listening_processes().await == Some(2)).await;
    drop(stop_two);
    until("one process listens", async || one.listening_processes().await == Some(1)).await;
}

#[tokio::test]
async fn redis_holds_a_bounded_number_of_ids_and_the_rest_follows() {
    let (notifier, _stop) = redis(servers::redis().await, "t");
    wait_until_up(&notifier).await;
    assert_eq!(free_capacity(&*notifier).await, Some(CAPACITY));
    let all = CAPACITY as i64 * 2;
    notifier.notify(&notifications(JobKind::Noop, 0..all));
    until("it is not pushed", async || free_capacity_of(&*notifier, JobKind::Noop).await == Some(0)).await;
    // This id is pushed after the ids that wait in the process.
    notifier.notify(&notifications(JobKind::PublishTarget, [1]));
    until("it is not pushed", async || {
        free_capacity_of(&*notifier, JobKind::PublishTarget).await == Some(CAPACITY - 1)
    })
    .await;
    assert_eq!(free_capacity_of(&*notifier, JobKind::Noop).await, Some(0));
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    for id in 0..all {
        assert_eq!(next(&mut ids).await, Some(id), "the oldest first");
    }
    until("it is not counted", async || free_capacity_of(&*notifier, JobKind::Noop).await == Some(CAPACITY)).await;
}

/// Ids whose push fails count until they are pushed. If they counted longer, each failure would reduce the capacity.
#[tokio::test]
async fn the_ids_of_a_failed_push_are_pushed_later() {
    let url = servers::redis().await;
    let mut connection = servers::connect_redis(&url).await;
    let _: () = ::redis::cmd("SET").arg("t:queue:noop:data").arg("no hash").query_async(&mut connection).await.unwrap();
    let (notifier, _stop) = redis(url, "t");
    wait_until_up(&notifier).await;
    notifier.notify(&notifications(JobKind::Noop, 0..3));
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    for id in 0..3 {
        assert_eq!(next(&mut ids).await, Some(id));
    }
    until("capacity is lost", async || free_capacity_of(&*notifier, JobKind::Noop).await == Some(CAPACITY)).await;
}

/// apalis-redis keeps the entries of finished tasks; Crier deletes them.
#[tokio::test]
async fn redis_keeps_no_entries_of_received_ids() {
    let url = servers::redis().await;
    let (notifier, _stop) = redis(url.clone(), "t");
    wait_until_up(&notifier).await;
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    notifier.notify(&notifications(JobKind::Noop, 0..1_000));
    for id in 0..1_000 {
        assert_eq!(next(&mut ids).await, Some(id));
    }
    let mut connection = servers::connect_redis(&url).await;
    let keys =
        async || -> Vec<String> { ::redis::cmd("KEYS").arg("t:*").query_async(&mut connection.clone()).await.unwrap() };
    // The entry of the worker itself remains.
    until("its entries stay", async || keys().await.iter().all(|key| key.contains(":workers"))).await;
    drop(ids);
    until("the worker stays", async || keys().await.is_empty()).await;
    let _: () = ::redis::cmd("PING").query_async(&mut connection).await.unwrap();
}

/// A server whose memory is full responds, but passes on no ids.
#[tokio::test]
async fn a_redis_that_accepts_no_writes_is_not_up() {
    let server = RedisServer::start();
    let (notifier, _stop) = redis(server.url(), "t");
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    wait_until_up(&notifier).await;
    let () = server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    until("the full memory is not detected", async || !notifier.is_up()).await;
    // It stays down, although the server accepts connections: the check for writes fails again and again.
    let failed_checks = async || {
        let commands: String = server.command(&["INFO", "commandstats"]).await;
        let checks = commands.lines().find(|line| line.starts_with("cmdstat_lpushx:")).unwrap_or_default().to_owned();
        let rejected = checks.split(',').find_map(|field| field.strip_prefix("rejected_calls="));
        rejected.map_or(0, |number| number.trim().parse::<u64>().unwrap())
    };
    let before = failed_checks().await;
    until("the connection is not retried", async || {
        assert!(!notifier.is_up());
        failed_checks().await >= before + 3
    })
    .await;
    let () = server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    wait_until_up(&notifier).await;
    wait_for_delivery(&*notifier, &mut ids, 0).await;
}

#[tokio::test]
async fn a_restarted_redis_is_reconnected() {
    let mut server = RedisServer::start();
    let (notifier, _stop) = redis(server.url(), "t");
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    wait_until_up(&notifier).await;
    wait_for_delivery(&*notifier, &mut ids, 0).await;
    server.stop();
    until("the outage is not detected", async || !notifier.is_up()).await;
    assert_eq!(notifier.capacity().await, None);
    let started = Instant::now();
    notifier.notify(&notifications(JobKind::Noop, 0..100_000));
    assert!(started.elapsed() < Duration::from_secs(20), "notifying blocks");
    server.restart();
    wait_until_up(&notifier).await;
    wait_for_delivery(&*notifier, &mut ids, 1_000_000).await;
    until("the capacity is unknown", async || notifier.capacity().await.is_some()).await;
}

#[tokio::test]
async fn redis_may_start_after_its_clients() {
    let mut server = RedisServer::start();
    server.stop();
    let (notifier, _stop) = redis(server.url(), "t");
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    notifier.notify(&notifications(JobKind::Noop, [1]));
    assert!(!notifier.is_up());
    assert_eq!(notifier.capacity().await, None);
    server.restart();
    wait_until_up(&notifier).await;
    wait_for_delivery(&*notifier, &mut ids, 2).await;
}

/// A worker fetches ids only while it has a free slot.
#[tokio::test]
async fn redis_sends_no_more_ids_than_free_slots() {
    let (notifier, _stop) = redis(servers::redis().await, "t");
    wait_until_up(&notifier).await;
    notifier.notify(&notifications(JobKind::Noop, 0..50));
    let mut ids = test_listener_with_slots(&*notifier, JobKind::Noop, 3);
    for id in 0..3 {
        assert_eq!(next(&mut ids).await, Some(id));
    }
    until("the others stay in Redis", async || free_capacity(&*notifier).await == Some(CAPACITY - 47)).await;
    assert!(ids.try_recv().is_err());
    ids.give_back();
    assert_eq!(next(&mut ids).await, Some(3));
    assert_eq!(free_capacity(&*notifier).await, Some(CAPACITY - 46));
    // After a worker has stopped, others receive the remaining ids.
    drop(ids);
    let mut others = test_listener(&*notifier, JobKind::Noop);
    for id in 4..50 {
        assert_eq!(next(&mut others).await, Some(id));
    }
}

/// A worker that fetches several ids together and stops returns those that it has not passed on.
#[tokio::test]
async fn a_stopping_worker_returns_the_ids_that_it_fetched() {
    let (notifier, _stop) = redis(servers::redis().await, "t");
    wait_until_up(&notifier).await;
    // With 33 slots, it fetches 4 ids together.
    let mut ids = test_listener_with_slots(&*notifier, JobKind::Noop, 33);
    notifier.notify(&notifications(JobKind::Noop, 0..50));
    // An id may arrive twice if the stop prevents its deletion.
    let mut received = std::collections::BTreeSet::new();
    while received.len() < 33 {
        received.extend(next(&mut ids).await);
    }
    drop(ids);
    let mut others = test_listener(&*notifier, JobKind::Noop);
    while received.len() < 50 {
        received.extend(next(&mut others).await);
    }
    assert!(received.into_iter().eq(0..50));
}

/// A server that accepts connections and never responds, like a frozen one.
#[tokio::test]
async fn a_frozen_redis_blocks_no_caller() {
    let frozen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (notifier, _stop) = redis(format!("redis://{}/0", frozen.local_addr().unwrap()), "t");
    let _ids = test_listener(&*notifier, JobKind::Noop);
    let started = Instant::now();
    notifier.notify(&notifications(JobKind::Noop, 0..100_000));
    assert!(started.elapsed() < Duration::from_secs(20), "notifying blocks");
    let capacity = tokio::time::timeout(Duration::from_secs(60), notifier.capacity())
        .await
        .expect("reading the capacity never returns");
    assert_eq!(capacity, None);
    assert!(!notifier.is_up());
}

/// Invalid entries in the list are skipped.
#[tokio::test]
async fn redis_skips_invalid_ids() {
    let url = servers::redis().await;
    let mut connection = servers::connect_redis(&url).await;
    let key = "t:queue:noop:active";
    let _: i64 = ::redis::cmd("RPUSH").arg(key).arg("no id").arg("7").query_async(&mut connection).await.unwrap();
    let (notifier, _stop) = redis(url, "t");
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    wait_until_up(&notifier).await;
    wait_for_delivery(&*notifier, &mut ids, 100).await;
    // After Redis was emptied, the next notification still arrives.
    let _: () = ::redis::cmd("FLUSHDB").query_async(&mut connection).await.unwrap();
    wait_for_delivery(&*notifier, &mut ids, 1_000).await;
}

#[tokio::test]
async fn a_stopped_notifier_ends_its_listeners() {
    let (notifier, stop) = redis(servers::redis().await, "t");
    let mut ids = test_listener(&*notifier, JobKind::Noop);
    wait_until_up(&notifier).await;
    drop(stop);
    assert_eq!(next(&mut ids).await, None);
    notifier.notify(&notifications(JobKind::Noop, 0..100_000));
}
