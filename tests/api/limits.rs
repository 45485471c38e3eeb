//! Rate limits: per key if the request has a valid one, otherwise per address.

use std::sync::atomic::{AtomicI64, Ordering};

use chrono::TimeDelta;
use crier_api::limits::redis::RedisLimiter;
use crier_api::limits::{Limiter, RateLimitSubject};
use crier_base::clock::Clock;
use secrecy::SecretString;

use crate::support::app::{TestApp, on_one_app};
use crate::support::client::until;
use crate::support::servers::{self, RedisServer};
use crate::support::store::start_time;

on_one_app!(
    the_rate_limit_of_a_key_depends_on_its_plan,
    requests_without_a_key_are_limited_by_address,
    replays_count_against_the_rate_limit
);

async fn the_rate_limit_of_a_key_depends_on_its_plan(app: TestApp) {
    let (free, other) = (app.tenant("free").await, app.tenant("free").await);
    for left in (0..60).rev() {
        let reply = free.get("/brands").await;
        reply.expect(200);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("60"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
    }
    let rejected = free.get("/brands").await;
    rejected.expect_error(429, "rate_limited");
    assert_eq!((rejected.header("retry-after"), rejected.header("x-ratelimit-remaining")), (Some("1"), Some("0")));
    let reset = (app.now() + TimeDelta::minutes(1)).timestamp().to_string();
    assert_eq!(rejected.header("x-ratelimit-reset"), Some(reset.as_str()));
    other.get("/brands").await.expect(200);
    app.clock.advance(TimeDelta::seconds(1));
    free.get("/brands").await.expect(200);
    free.get("/brands").await.expect_error(429, "rate_limited");
}

async fn requests_without_a_key_are_limited_by_address(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    for _ in 0..60 {
        app.request("GET", "/brands").send().await.expect_error(401, "unauthorized");
    }
    let rejected = app.request("GET", "/brands").key("svc_live_nope").send().await;
    rejected.expect_error(429, "rate_limited");
    assert_eq!(rejected.header("retry-after"), Some("1"));
    // A valid key has its own allowance.
    app.request("GET", "/nope").send().await.expect_error(404, "not_found");
    owner.get("/brands").await.expect(200);
}

async fn replays_count_against_the_rate_limit(app: TestApp) {
    let owner = app.tenant("free").await;
    let delete =
        async || app.request("DELETE", &owner.path("/posts/1")).key(&owner.key).idempotency_key("k").send().await;
    let left = async || delete().await.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap();
    let (first, second) = (left().await, left().await);
    assert_eq!(first - second, 1);
}

/// Returns the limiters of two replicas. Each has its own state, and both use the same Redis.
fn replicas(url: &str) -> [RedisLimiter; 2] {
    let url = SecretString::from(url);
    [(); 2].map(|()| RedisLimiter::new(&url, Clock::manual(start_time())).expect("a URL"))
}

/// Returns a key, from 10 on, that both replicas count in Redis. On a busy machine, the first response of Redis may be
/// too late; then the next key is used.
async fn shared_key(one: &RedisLimiter, two: &RedisLimiter) -> RateLimitSubject {
    let keys = AtomicI64::new(10);
    until("a key that both count in Redis", || async {
        let key = RateLimitSubject::Key(keys.fetch_add(1, Ordering::SeqCst));
        (one.take(key, 1).await.allowed && !two.take(key, 1).await.allowed).then_some(key)
    })
    .await
}

#[tokio::test]
async fn replicas_share_a_rate_limit_through_redis() {
    let [one, two] = replicas(&servers::redis().await);
    let keys = AtomicI64::new(1);
    // On a busy machine, a replica may count locally for a while. The allowance is too small to be refilled meanwhile.
    let (first, second, rejected) = until("a key that both count in Redis", || async {
        let key = RateLimitSubject::Key(keys.fetch_add(1, Ordering::SeqCst));
        let all = (one.take(key, 2).await, two.take(key, 2).await, one.take(key, 2).await);
        (!all.2.allowed).then_some(all)
    })
    .await;
    for (decision, left) in [(first, 1), (second, 0)] {
        assert_eq!((decision.allowed, decision.limit, decision.remaining), (true, 2, left));
    }
    assert!((1..=30).contains(&rejected.retry_after), "{rejected:?}");
    assert!(two.take(RateLimitSubject::Key(keys.into_inner()), 2).await.allowed);
}

#[tokio::test]
async fn concurrent_requests_never_exceed_a_shared_limit() {
    let [one, two] = replicas(&servers::redis().await);
    shared_key(&one, &two).await;
    let keys = AtomicI64::new(1_000);
    // On a busy machine, a replica may count locally for a while. Then more requests pass, and the next key is used.
    let (passed, mut left) = until("a key that both count in Redis", || async {
        let key = RateLimitSubject::Key(keys.fetch_add(1, Ordering::SeqCst));
        let takes = (0..16).map(|n| if n % 2 == 0 { one.take(key, 3) } else { two.take(key, 3) });
        let allowed = futures::future::join_all(takes).await.into_iter().filter(|decision| decision.allowed);
        let left: Vec<u32> = allowed.map(|decision| decision.remaining).collect();
        assert!(left.len() >= 3, "no request within the allowance is rejected");
        (left.len() == 3).then_some((left.len(), left))
    })
    .await;
    left.sort_unstable();
    assert_eq!((passed, left), (3, vec![0, 1, 2]));
}

#[tokio::test]
async fn replicas_count_locally_during_a_redis_outage() {
    let mut server = RedisServer::start();
    let [one, two] = replicas(&server.url());
    shared_key(&one, &two).await;
    server.stop();
    // Not the shared key, which a replica may have counted locally on a busy machine.
    let key = RateLimitSubject::Key(1_000_000);
    for limiter in [&one, &two] {
        assert!(limiter.take(key, 1).await.allowed);
        assert!(!limiter.take(key, 1).await.allowed);
    }
}
