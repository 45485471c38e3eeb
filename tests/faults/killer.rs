//! A job that kills its process whenever it runs. It is dead after the third time, and its post fails with an event.
//! The posts of jobs that died with it are published once.

use std::time::Duration;

use serde_json::Value;

use crate::support::client::{texts, until, until_true};
use crate::support::process::{Installation, on_both_forms};
use crate::support::receiver::Receiver;
use crate::support::sites::{PostBehavior, Sites};

on_both_forms!(CONFIG => a_job_that_kills_three_workers_is_poison);

const KILLER: &str = "the killer";
const UNFINISHED: &str = "jobs WHERE state IN ('scheduled', 'ready', 'running')";

async fn a_job_that_kills_three_workers_is_poison(mut crier: Installation) {
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 5).await;
    crier.listen(&receiver.url()).await;
    sites.set_behavior(|text, times| match times {
        _ if text.contains(KILLER) => PostBehavior::Lose,
        1 if !text.contains("round 3") => PostBehavior::AcceptAndHold,
        _ => PostBehavior::Accept,
    });
    let killer = crier.post(brand, accounts[0], KILLER).await;
    let (mut siblings, mut posts) = (Vec::new(), Vec::new());
    let worker = crier.of("worker");
    for round in 1..=3 {
        until_true("the killer's call", || sites.calls(KILLER).len() == round).await;
        let round_text = format!("round {round}");
        let batch = texts(&round_text, 4);
        posts.extend(crier.post_all(brand, &accounts[1..], &batch).await);
        siblings.extend(batch);
        if round < 3 {
            until_true("its siblings' calls", || sites.held(&round_text) == 4).await;
        } else {
            // The third time it runs alone. Only time shows that no other call comes: in these two seconds, all
            // siblings would have been called.
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(sites.calls(&round_text).len(), 0, "it runs alone");
        }
        assert_eq!(sites.held(KILLER), 1, "it is in the middle of its call");
        crier.kill(&worker);
        crier.start_all().await;
    }
    let target = crier.wait_for_post(brand, killer).await;
    assert_eq!((&target["status"], &target["error"]["category"]), (&"failed".into(), &"internal".into()), "{target}");
    crier.all_published(brand, &posts).await;
    sites.assert_each_once(&siblings);
    assert_eq!((sites.calls(KILLER).len(), sites.count(KILLER)), (3, 0));
    let dead: Value =
        serde_json::from_str(&crier.command(&["jobs", "list", "--state", "dead", "--json"])).expect("JSON");
    assert_eq!(dead.as_array().map(Vec::len), Some(1), "{dead}");
    assert_eq!((&dead[0]["kind"], &dead[0]["last_error"]), (&"publish_target".into(), &"poison".into()));
    receiver.assert_received_once("post.failed", &[killer]).await;
    receiver.assert_received_once("post.published", &posts).await;
    assert_eq!(crier.count_rows("events").await, 13);
    // The dead job is not run again.
    until("the end of all jobs", || async { (crier.count_rows(UNFINISHED).await == 0).then_some(()) }).await;
    assert_eq!(sites.calls(KILLER).len(), 3);
    crier.assert_all_run();
}

/// "Not found" is trusted when twice this time has passed since the call, which is before the lease of a dead worker
/// expires.
const CONFIG: [(&str, &str); 1] = [("CRIER_PLATFORM_TIMEOUT", "14s")];
