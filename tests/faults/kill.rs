//! `kill -9` of any process at any moment: every accepted post is published, and published once.

use std::time::Duration;

use crate::support::client::{texts, until_true};
use crate::support::process::{Installation, on_both_forms};
use crate::support::receiver::Receiver;
use crate::support::sites::{PostBehavior, Sites};

on_both_forms!(repeated_kills_publish_every_post_once);
on_both_forms!(CONFIG => a_kill_during_a_hundred_calls_publishes_once);

const POSTS: usize = 60;

/// Creates posts while one process after another is killed, at a different time in each round.
async fn repeated_kills_publish_every_post_once(mut crier: Installation) {
    let rounds = if crier.is_split() { 6 } else { 3 };
    let handle = "kill9";
    let (brand, account) = crier.sandbox(handle).await;
    let texts = texts("post", POSTS);
    let mut posts = Vec::new();
    for (round, batch) in texts.chunks(POSTS / rounds).enumerate() {
        // Half of them are accepted before the kill, the rest during it and after.
        let (before, after) = batch.split_at(batch.len() / 2);
        for text in before {
            posts.push(crier.post(brand, account, text).await);
        }
        let names = crier.names();
        // This waits in real time: the kill hits claims, calls and settles.
        tokio::time::sleep(Duration::from_millis(7) * (u32::try_from(round).expect("few") + 1)).await;
        crier.kill(names[round % names.len()]);
        crier.start_all().await;
        for text in after {
            posts.push(crier.post(brand, account, text).await);
        }
    }
    crier.all_published(brand, &posts).await;
    let page = crier.page(handle).await;
    for text in &texts {
        assert_eq!(page.matches(text).count(), 1, "{text} on the page");
    }
}

/// Kills a worker in the middle of a hundred calls, when the sites have accepted half of the posts. Every post is
/// published, exists on its site once, and is reported by one event.
async fn a_kill_during_a_hundred_calls_publishes_once(mut crier: Installation) {
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = crier.brand().await;
    // An account runs at most four jobs concurrently.
    let accounts = crier.connect(brand, &sites, 26).await;
    crier.listen(&receiver.url()).await;
    sites.set_behavior(|text, _| match ["0 ends", "2 ends", "4 ends", "6 ends", "8 ends"] {
        _ if text.contains("sibling") => PostBehavior::Accept,
        even if even.iter().any(|end| text.contains(end)) => PostBehavior::AcceptAndHold,
        _ => PostBehavior::Lose,
    });
    // The jobs are released together, however slowly the machine accepts the posts.
    crier.command(&["jobs", "pause", "publish_target"]);
    let in_flight = texts("post", 100);
    let mut posts = crier.post_all(brand, &accounts[..25], &in_flight).await;
    crier.command(&["jobs", "resume", "publish_target"]);
    until_true("a hundred calls", || sites.held("post") == 100).await;
    assert_eq!(sites.posts().len(), 50);
    let worker = crier.of("worker");
    let others = texts("sibling", 20);
    if !crier.is_split() {
        crier.kill(&worker);
        crier.start_all().await;
        sites.release();
        posts.extend(crier.post_all(brand, &accounts[25..], &others).await);
    } else {
        crier.start_one("crier-worker#2").await;
        crier.kill(&worker);
        sites.release();
        // The other worker continues, and takes over the jobs of the dead one when its leases have expired.
        posts.extend(crier.post_all(brand, &accounts[25..], &others).await);
        crier.all_published(brand, &posts[100..]).await;
    }
    crier.all_published(brand, &posts).await;
    sites.assert_each_once(&[in_flight, others].concat());
    assert_eq!(sites.posts().len(), 120);
    receiver.assert_received_once("post.published", &posts).await;
    assert_eq!(crier.count_rows("events").await, 120);
    crier.assert_all_run();
}

/// Long enough to start a hundred calls, and short enough for "not found" to be trusted when the leases expire.
const CONFIG: [(&str, &str); 2] = [("CRIER_WORKER_CONCURRENCY", "128"), ("CRIER_PLATFORM_TIMEOUT", "18s")];
