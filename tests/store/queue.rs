//! The notifiers: ids arrive, excess ids are dropped, and notifying never blocks, whatever Redis does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crier_common::domain::job::{Bell, Kind, Ring, Silent};
use crier_common::queue::memory::MemoryBell;
use crier_common::queue::redis::RedisBell;
use crier_common::queue::{CAPACITY, Transport};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::bell::{Ears, ears, ears_with};
use crate::support::servers::{self, RedisServer};

fn rings(kind: Kind, ids: impl IntoIterator<Item = i64>) -> Vec<Ring> {
    ids.into_iter().map(|id| Ring { kind, id }).collect()
}

/// Returns the next id, with a generous timeout.
async fn next(ids: &mut Ears) -> Option<i64> {
    tokio::time::timeout(Duration::from_secs(10), ids.recv()).await.ok().flatten()
}

async fn nothing(ids: &mut Ears) {
    assert!(tokio::time::timeout(Duration::from_millis(100), ids.recv()).await.is_err(), "an unexpected id arrived");
}

/// Polls until the condition holds.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < Duration::from_secs(15), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Notifies until an id arrives: notifications sent while Redis is unavailable may be lost.
async fn heard_again(bell: &dyn Transport, ids: &mut Ears, from: i64) {
    let mut id = from;
    until("no notification arrives any more", async || {
        bell.ring(&rings(Kind::Noop, [id]));
        id += 1;
        let new = async {
            // Earlier notifications may arrive first.
            while ids.recv().await.expect("it listens") < from {}
        };
        tokio::time::timeout(Duration::from_millis(100), new).await.is_ok()
    })
    .await;
}

/// Returns the remaining capacity of the fullest kind.
async fn room(bell: &dyn Transport) -> Option<usize> {
    let room = bell.room().await?;
    assert_eq!(room.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), Kind::ALL);
    room.into_iter().map(|(_, room)| room).min()
}

async fn room_of(bell: &dyn Transport, kind: Kind) -> Option<usize> {
    bell.room().await?.into_iter().find(|(k, _)| *k == kind).map(|(_, room)| room)
}

fn redis(url: String, prefix: &str) -> (Arc<RedisBell>, DropGuard) {
    let stop = CancellationToken::new();
    let bell = RedisBell::start(&SecretString::from(url), prefix, stop.clone()).unwrap();
    (Arc::new(bell), stop.drop_guard())
}

async fn is_up(bell: &RedisBell) {
    until("Redis is not reached", async || bell.is_up()).await;
}

#[tokio::test]
async fn memory_hands_ids_to_the_listener_of_their_kind() {
    let bell = MemoryBell::default();
    assert_eq!(room(&bell).await, Some(0), "no listener: nothing is promoted");
    bell.ring(&rings(Kind::Noop, [1]));
    let (mut noop, mut publish) = (ears(&bell, Kind::Noop), ears(&bell, Kind::PublishTarget));
    assert!(bell.is_up());
    bell.ring(&rings(Kind::Noop, [2, 3]));
    bell.ring(&rings(Kind::PublishTarget, [4]));
    assert_eq!((next(&mut noop).await, next(&mut noop).await), (Some(2), Some(3)));
    assert_eq!(next(&mut publish).await, Some(4));
    nothing(&mut noop).await;
    // The latest listener receives the ids.
    let mut second = ears(&bell, Kind::Noop);
    bell.ring(&rings(Kind::Noop, [5]));
    assert_eq!(next(&mut second).await, Some(5));
    assert_eq!(next(&mut noop).await, None);
    Silent.ring(&rings(Kind::Noop, [6]));
}

#[tokio::test]
async fn memory_is_bounded_and_never_blocks() {
    let bell = MemoryBell::default();
    let mut ids = ears(&bell, Kind::Noop);
    let _other = ears(&bell, Kind::PublishTarget);
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(CAPACITY));
    bell.ring(&rings(Kind::Noop, 0..CAPACITY as i64 + 500));
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(0));
    assert_eq!(room_of(&bell, Kind::PublishTarget).await, Some(CAPACITY), "each kind has its own capacity");
    assert_eq!(next(&mut ids).await, Some(0), "the oldest are kept");
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(1));
    bell.ring(&rings(Kind::PublishTarget, [1]));
    bell.ring(&rings(Kind::Noop, [-1]));
    let mut last = 0;
    while let Ok(id) = ids.try_recv() {
        last = id;
    }
    assert_eq!(last, -1);
    // A dropped listener is ignored.
    drop(ids);
    bell.ring(&rings(Kind::Noop, [1]));
}

#[tokio::test]
async fn redis_hands_each_id_to_one_listener() {
    let url = servers::redis().await;
    let (bell, _stop) = redis(url.clone(), "t");
    // Another process that only listens, and one that notifies under another prefix.
    let (other, _stop_other) = redis(url.clone(), "t");
    let (foreign, _stop_foreign) = redis(url, "foreign");
    let mut listeners = [ears(&*bell, Kind::Noop), ears(&*other, Kind::Noop)];
    let mut publish = ears(&*bell, Kind::PublishTarget);
    is_up(&bell).await;
    is_up(&foreign).await;
    foreign.ring(&rings(Kind::Noop, [999]));
    bell.ring(&rings(Kind::Noop, 0..50));
    bell.ring(&rings(Kind::PublishTarget, [77]));
    assert_eq!(next(&mut publish).await, Some(77));
    let mut received = Vec::new();
    while received.len() < 50 {
        let [one, two] = &mut listeners;
        let id = tokio::select! { id = next(one) => id, id = next(two) => id };
        received.push(id.expect("all ids arrive"));
    }
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<_>>());
    nothing(&mut publish).await;
}

#[tokio::test]
async fn redis_keeps_what_was_rung_while_nobody_listened_up_to_a_bound() {
    let (bell, _stop) = redis(servers::redis().await, "t");
    is_up(&bell).await;
    assert_eq!(room(&*bell).await, Some(CAPACITY));
    // More than the capacity, in small steps, so that all of it is sent.
    let mut rung = 0_i64;
    while rung < CAPACITY as i64 + 2_000 {
        bell.ring(&rings(Kind::Noop, rung..rung + 1_000));
        rung += 1_000;
        until("it is not pushed", async || {
            room(&*bell).await.unwrap() <= CAPACITY.saturating_sub(usize::try_from(rung).unwrap())
        })
        .await;
    }
    assert_eq!(room_of(&*bell, Kind::Noop).await, Some(0));
    assert_eq!(room_of(&*bell, Kind::PublishTarget).await, Some(CAPACITY));
    let mut ids = ears(&*bell, Kind::Noop);
    for id in 0..100 {
        assert_eq!(next(&mut ids).await, Some(id), "the oldest first");
    }
    assert!(room(&*bell).await.unwrap() >= 100);
}

#[tokio::test]
async fn redis_that_restarts_is_found_again() {
    let mut server = RedisServer::start();
    let (bell, _stop) = redis(server.url(), "t");
    let mut ids = ears(&*bell, Kind::Noop);
    is_up(&bell).await;
    heard_again(&*bell, &mut ids, 0).await;
    server.stop();
    until("the outage is not detected", async || !bell.is_up()).await;
    assert_eq!(bell.room().await, None);
    let begun = Instant::now();
    bell.ring(&rings(Kind::Noop, 0..100_000));
    assert!(begun.elapsed() < Duration::from_secs(1), "notifying blocks");
    server.restart();
    is_up(&bell).await;
    heard_again(&*bell, &mut ids, 1_000_000).await;
    until("the capacity is unknown", async || bell.room().await.is_some()).await;
}

#[tokio::test]
async fn redis_may_come_after_those_who_need_it() {
    let mut server = RedisServer::start();
    server.stop();
    let (bell, _stop) = redis(server.url(), "t");
    let mut ids = ears(&*bell, Kind::Noop);
    bell.ring(&rings(Kind::Noop, [1]));
    assert!(!bell.is_up());
    assert_eq!(bell.room().await, None);
    server.restart();
    is_up(&bell).await;
    heard_again(&*bell, &mut ids, 2).await;
}

/// Each listener holds the slots of its ids: another slot is free only when one is returned.
#[tokio::test]
async fn redis_hands_over_no_more_than_there_are_places_for() {
    let (bell, _stop) = redis(servers::redis().await, "t");
    is_up(&bell).await;
    bell.ring(&rings(Kind::Noop, 0..50));
    let places = Arc::new(Semaphore::new(3));
    let mut ids = ears_with(&*bell, Kind::Noop, &places);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.extend(ids.recv_and_hold().await);
    }
    until("the others stay in Redis", async || room(&*bell).await == Some(CAPACITY - 47)).await;
    assert!(ids.try_recv().is_err());
    held.pop();
    held.extend(ids.recv_and_hold().await);
    assert_eq!(held.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(room(&*bell).await, Some(CAPACITY - 46));
    // A stopping worker returns the ids that reach it afterwards.
    drop(ids);
    drop(held);
    let mut others = ears(&*bell, Kind::Noop);
    let mut received = Vec::new();
    while received.len() < 46 {
        received.extend(next(&mut others).await);
    }
    received.sort_unstable();
    assert_eq!(received, (4..50).collect::<Vec<_>>());
}

/// A server that accepts connections and never responds, like a frozen one.
#[tokio::test]
async fn redis_that_is_frozen_holds_nobody_up() {
    let frozen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (bell, _stop) = redis(format!("redis://{}/0", frozen.local_addr().unwrap()), "t");
    let _ids = ears(&*bell, Kind::Noop);
    let begun = Instant::now();
    bell.ring(&rings(Kind::Noop, 0..100_000));
    assert!(begun.elapsed() < Duration::from_secs(1), "notifying blocks");
    let room =
        tokio::time::timeout(Duration::from_secs(8), bell.room()).await.expect("reading the capacity never returns");
    assert_eq!(room, None);
    assert!(!bell.is_up());
}

/// Invalid entries that an operator added to the list are skipped.
#[tokio::test]
async fn redis_passes_over_what_is_no_id() {
    let url = servers::redis().await;
    let mut hand = ::redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let key = "t:bell:noop";
    let _: i64 = ::redis::cmd("RPUSH").arg(key).arg("no id").arg("7").query_async(&mut hand).await.unwrap();
    let (bell, _stop) = redis(url, "t");
    let mut ids = ears(&*bell, Kind::Noop);
    assert_eq!(next(&mut ids).await, Some(7));
    // Emptied meanwhile: the next notification still arrives.
    let _: () = ::redis::cmd("FLUSHDB").query_async(&mut hand).await.unwrap();
    is_up(&bell).await;
    heard_again(&*bell, &mut ids, 100).await;
}

#[tokio::test]
async fn a_stopped_bell_ends_its_listeners() {
    let (bell, stop) = redis(servers::redis().await, "t");
    let mut ids = ears(&*bell, Kind::Noop);
    is_up(&bell).await;
    drop(stop);
    assert_eq!(next(&mut ids).await, None);
    bell.ring(&rings(Kind::Noop, 0..100_000));
}
