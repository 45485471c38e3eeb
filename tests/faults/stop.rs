//! SIGTERM: an orderly stop in the middle of work. Every process exits with status 0, and every post is published once.

use std::time::Duration;

use serde_json::json;

use crate::support::client::{texts, until_true};
use crate::support::images;
use crate::support::process::{Installation, on_both_forms};
use crate::support::sites::{IMAGE, PostBehavior, Sites};

on_both_forms!(a_stop_is_graceful);
on_both_forms!(LONG_GRACE => a_drain_may_outlast_the_lease);
on_both_forms!(NO_GRACE => a_stop_releases_uploading_jobs);

async fn a_stop_is_graceful(mut crier: Installation) {
    let handle = "sigterm";
    let (brand, account) = crier.sandbox(handle).await;
    let texts = texts("post", 30);
    let mut posts = Vec::new();
    for text in &texts {
        posts.push(crier.post(brand, account, text).await);
    }
    for name in crier.names() {
        assert_eq!(crier.terminate(name).await, Some(0), "{name}: {}", crier.log(name));
    }
    crier.start_all().await;
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    let page = crier.page(handle).await;
    for text in &texts {
        assert_eq!(page.matches(text).count(), 1, "{text} on the page");
    }
}

/// The grace period is longer than a lease: the worker waits for the running call and keeps its job, and no other
/// worker takes it.
async fn a_drain_may_outlast_the_lease(mut crier: Installation) {
    let sites = Sites::start();
    let brand = crier.brand().await;
    let account = crier.connect(brand, &sites, 1).await[0];
    sites.set_behavior(|_, _| PostBehavior::Hold);
    let post = crier.post(brand, account, "a long call").await;
    until_true("the call", || sites.held("a long call") == 1).await;
    let worker = crier.of("worker");
    if crier.is_split() {
        crier.start_one("crier-worker#2").await;
    }
    crier.signal(&worker, "TERM");
    // The lease is 30 s and the heartbeat uses real time. Without a heartbeat, the lease would have expired, and
    // another worker would have the job.
    tokio::time::sleep(Duration::from_secs(36)).await;
    assert_eq!((sites.held("a long call"), sites.calls("a long call").len()), (1, 1));
    sites.release();
    assert_eq!(crier.wait_for_exit(&worker).await, Some(0));
    crier.start_all().await;
    let target = &crier.all_published(brand, &[post]).await[0];
    assert_eq!(target["attempts"], 1, "{target}");
    assert_eq!((sites.count("a long call"), sites.calls("a long call").len()), (1, 1));
    crier.assert_all_run();
}

/// The grace period ends in the middle of an upload. The outcome is known, so the job is released as if it had not
/// started. Otherwise each stop would count as a crash, and after the third the job would be poison.
async fn a_stop_releases_uploading_jobs(mut crier: Installation) {
    let sites = Sites::start();
    let brand = crier.brand().await;
    let account = crier.connect(brand, &sites, 1).await[0];
    let image_id = crier.upload(brand, &images::png(8, 8)).await.expect("an image");
    let path = format!("/brands/{brand}/posts");
    let post =
        json!({ "content": "an image of bread", "schedule_type": "now", "accounts": [account], "media": [image_id] });
    sites.set_behavior(|_, _| PostBehavior::Hold);
    let post = crier.write(&path, post).await["id"].as_i64().expect("an id");
    let worker = crier.of("worker");
    for stop_count in 1..=3 {
        until_true("an upload", || sites.calls(IMAGE).len() == stop_count).await;
        assert_eq!(crier.terminate(&worker).await, Some(0), "{}", crier.log(&worker));
        crier.start_all().await;
    }
    sites.release();
    let target = &crier.all_published(brand, &[post]).await[0];
    assert_eq!(target["attempts"], 1, "{target}");
    assert_eq!((sites.count("bread"), sites.calls("bread").len()), (1, 1));
    assert_eq!(crier.sum("attempt * 10 + crashes", "jobs WHERE kind = 'publish_target'").await, 10);
}

/// No upload ends before the process does.
const NO_GRACE: [(&str, &str); 2] = [("CRIER_DRAIN", "0s"), ("CRIER_PLATFORM_TIMEOUT", "2m")];

const LONG_GRACE: [(&str, &str); 2] = [("CRIER_DRAIN", "2m"), ("CRIER_PLATFORM_TIMEOUT", "2m")];
