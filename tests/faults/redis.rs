//! Redis is emptied, frozen, and stopped. It only carries notifications: every accepted post is published once in any
//! case, and no request waits for Redis.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_base::clock::Clock;
use serde_json::Value;

use crate::support::client::{texts, until};
use crate::support::process::Installation;
use crate::support::servers::RedisServer;
use crate::support::sites::Sites;

/// Runs FLUSHALL while there are notified jobs and scheduled jobs, and no worker runs.
#[tokio::test]
async fn a_flushed_redis_loses_no_jobs() {
    let redis = RedisServer::start();
    let mut crier = Installation::split_with(&[("CRIER_REDIS_URL", &redis.url())]).await;
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 6).await;
    assert_eq!(crier.terminate("crier-worker").await, Some(0));
    let (ready, due) = (texts("ready", 30), texts("scheduled", 20));
    let mut posts = crier.post_all(brand, &accounts, &ready).await;
    let mut last = Clock::system().now();
    for (text, account) in due.iter().zip(accounts.iter().cycle()) {
        last = Clock::system().now() + TimeDelta::seconds(5);
        posts.push(crier.schedule(brand, *account, text, last).await);
    }
    let notified = async || redis.command::<u64>(&["ZCARD", "crier:queue:publish_target:scheduled"]).await;
    until("a notification for each ready job", || async { (notified().await >= 30).then_some(()) }).await;
    let () = redis.command(&["FLUSHALL"]).await;
    // The jobs that become due are notified, and these notifications are lost as well.
    until("the others are notified", || async {
        (Clock::system().now() > last && notified().await >= 20).then_some(())
    })
    .await;
    let () = redis.command(&["FLUSHALL"]).await;
    assert_eq!(sites.posts().len(), 0);
    crier.start_all().await;
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    sites.assert_each_once(&[ready, due].concat());
    crier.assert_all_run();
}

/// Waits until the worker and the scheduler report this readiness status; the API does not need Redis.
async fn wait_for_readiness(crier: &Installation, status: u16) {
    for name in ["crier-worker", "crier-scheduler"] {
        until(&format!("{name} says {status}"), || async {
            let (current, body) = crier.readiness(name).await?;
            (current == status && (status == 200 || body["missing"]["queue"] != Value::Null)).then_some(())
        })
        .await;
    }
    assert_eq!(crier.readiness("crier-api").await.map(|(status, _)| status), Some(200));
}

/// Asserts that the log of each process has few lines: it reports the outage every ten seconds.
fn assert_few_lines(crier: &Installation, outages: Duration) {
    let max = 40 + usize::try_from(outages.as_secs() / 5).expect("few");
    for name in crier.names() {
        let log = crier.log(name);
        assert!(log.contains("Redis at "), "{name} reports the outage: {log}");
        assert!(log.lines().count() < max, "{name}: {log}");
    }
}

/// Creates posts, and asserts that each is accepted without delay.
async fn post_all_without_delay(
    crier: &Installation,
    brand: i64,
    accounts: &[i64],
    texts: &[String],
    posts: &mut Vec<i64>,
) {
    for (text, account) in texts.iter().zip(accounts.iter().cycle()) {
        let started = Instant::now();
        posts.push(crier.post(brand, *account, text).await);
        // A request waits for Redis for at most a tenth of a second; the rest allows for a busy machine.
        assert!(started.elapsed() < Duration::from_secs(15), "{text}: accepted after {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_frozen_or_stopped_redis_loses_no_jobs() {
    let mut redis = RedisServer::start();
    let mut crier = Installation::split_with(&[("CRIER_REDIS_URL", &redis.url())]).await;
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = &crier.connect(brand, &sites, 6).await;
    let (mut posts, texts) = (Vec::new(), texts("post", 60));

    let began = Instant::now();
    redis.freeze();
    post_all_without_delay(&crier, brand, accounts, &texts[..10], &mut posts).await;
    wait_for_readiness(&crier, 503).await;
    post_all_without_delay(&crier, brand, accounts, &texts[10..20], &mut posts).await;
    redis.thaw();
    wait_for_readiness(&crier, 200).await;
    crier.all_published(brand, &posts).await;

    redis.stop();
    let stopped_at = Instant::now();
    post_all_without_delay(&crier, brand, accounts, &texts[20..30], &mut posts).await;
    wait_for_readiness(&crier, 503).await;
    for text in &texts[30..] {
        post_all_without_delay(&crier, brand, accounts, std::slice::from_ref(text), &mut posts).await;
        // The outage must last longer than any pause between reconnects.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(stopped_at.elapsed() >= Duration::from_secs(30));
    crier.until_dependency("redis", false).await;
    crier.assert_all_run();
    redis.restart();
    wait_for_readiness(&crier, 200).await;
    crier.until_dependency("redis", true).await;
    assert_few_lines(&crier, began.elapsed());
    crier.all_published(brand, &posts).await;
    sites.assert_each_once(&texts);
    crier.assert_all_run();
}
