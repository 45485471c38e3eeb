//! Rate limits: per key if the request has a valid one, otherwise per address.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::TimeDelta;
use crier_common::clock::Clock;
use crier_common::limits::redis::RedisLimiter;
use crier_common::limits::{Limiter, Subject};
use secrecy::SecretString;

use crate::support::app::{TestApp, on_both_apps};
use crate::support::client::until;
use crate::support::servers::{self, RedisServer};
use crate::support::store::start;

on_both_apps!(a_key_has_its_plans_allowance, whoever_has_no_key_is_counted_by_address, replays_count_too);

async fn a_key_has_its_plans_allowance(app: TestApp) {
    let (free, other) = (app.tenant("free").await, app.tenant("free").await);
    for left in (0..60).rev() {
        let reply = free.get("/brands").await;
        reply.expect(200);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("60"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
    }
    let refused = free.get("/brands").await;
    refused.refused(429, "rate_limited");
    assert_eq!((refused.header("retry-after"), refused.header("x-ratelimit-remaining")), (Some("1"), Some("0")));
    let reset = (app.now() + TimeDelta::minutes(1)).timestamp().to_string();
    assert_eq!(refused.header("x-ratelimit-reset"), Some(reset.as_str()));
    other.get("/brands").await.expect(200);
    app.clock.advance(TimeDelta::seconds(1));
    free.get("/brands").await.expect(200);
    free.get("/brands").await.refused(429, "rate_limited");
}

async fn whoever_has_no_key_is_counted_by_address(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    for _ in 0..60 {
        app.request("GET", "/brands").send().await.refused(401, "unauthorized");
    }
    let refused = app.request("GET", "/brands").key("svc_live_nope").send().await;
    refused.refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // An unknown path returns 404 to every client, and a valid key has its own allowance.
    app.request("GET", "/nope").send().await.refused(404, "not_found");
    owner.get("/brands").await.expect(200);
}

async fn replays_count_too(app: TestApp) {
    let owner = app.tenant("free").await;
    let delete = async || app.request("DELETE", &owner.path("/posts/1")).key(&owner.key).idem("k").send().await;
    let left = async || delete().await.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap();
    let (first, second) = (left().await, left().await);
    assert_eq!(first - second, 1);
}

/// Two replicas of the API: each has its own state, and both use the same Redis.
fn replicas(url: &str) -> [RedisLimiter; 2] {
    let url = SecretString::from(url);
    [(); 2].map(|()| RedisLimiter::new(&url, Clock::manual(start())).expect("a URL"))
}

/// Returns a key, from 10 on, that both replicas count in Redis. On a busy machine Redis may respond too late at first;
/// then the next key is tried.
async fn shared_key(one: &RedisLimiter, two: &RedisLimiter) -> Subject {
    let keys = AtomicI64::new(10);
    until("a key that they count together", || async {
        let key = Subject::Key(keys.fetch_add(1, Ordering::SeqCst));
        (one.take(key, 1).await.allowed && !two.take(key, 1).await.allowed).then_some(key)
    })
    .await
}

#[tokio::test]
async fn replicas_share_an_allowance_through_redis() {
    let [one, two] = replicas(&servers::redis().await);
    shared_key(&one, &two).await;
    // An allowance so small that it is not refilled while the test runs.
    for (limiter, left) in [(&one, 1), (&two, 0)] {
        let decision = limiter.take(Subject::Key(1), 2).await;
        assert_eq!((decision.allowed, decision.limit, decision.remaining), (true, 2, left));
    }
    let refused = one.take(Subject::Key(1), 2).await;
    assert!(!refused.allowed && (1..=30).contains(&refused.retry_after), "{refused:?}");
    assert!(two.take(Subject::Key(2), 2).await.allowed);
}

#[tokio::test]
async fn of_many_at_once_at_two_replicas_so_many_pass_as_the_allowance_has() {
    let [one, two] = replicas(&servers::redis().await);
    shared_key(&one, &two).await;
    let keys = AtomicI64::new(1_000);
    // On a busy machine a replica may count locally for a while; then more requests pass, and the next key is tried.
    let (passed, mut left) = until("a key that they count together all along", || async {
        let key = Subject::Key(keys.fetch_add(1, Ordering::SeqCst));
        let takes = (0..16).map(|n| if n % 2 == 0 { one.take(key, 3) } else { two.take(key, 3) });
        let allowed = futures::future::join_all(takes).await.into_iter().filter(|decision| decision.allowed);
        let left: Vec<u32> = allowed.map(|decision| decision.remaining).collect();
        assert!(left.len() >= 3, "no request within the allowance is refused");
        (left.len() == 3).then_some((left.len(), left))
    })
    .await;
    left.sort_unstable();
    assert_eq!((passed, left), (3, vec![0, 1, 2]));
}

#[tokio::test]
async fn each_replica_counts_for_itself_while_redis_is_away() {
    let mut server = RedisServer::start();
    let [one, two] = replicas(&server.url());
    let key = shared_key(&one, &two).await;
    server.stop();
    for limiter in [&one, &two] {
        assert!(limiter.take(key, 1).await.allowed);
        assert!(!limiter.take(key, 1).await.allowed);
    }
}
