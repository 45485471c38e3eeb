//! SIGSTOP: a worker that is frozen past its lease in the middle of its calls, and continues after another worker has
//! taken over. Every post is published and reported once, and the results of the frozen worker are discarded.

use crate::support::client::{texts, until, until_true};
use crate::support::process::Installation;
use crate::support::receiver::Receiver;
use crate::support::sites::{PostBehavior, Sites};

const LOST_LEASES: &str = "crier_jobs_finished_total{kind=\"publish_target\",outcome=\"lost_lease\"}";

#[tokio::test]
async fn a_worker_frozen_past_its_lease_publishes_once() {
    let mut crier = Installation::split_with(&[("CRIER_PLATFORM_TIMEOUT", "18s")]).await;
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 4).await;
    crier.listen(&receiver.url()).await;
    // Two posts are accepted before the freeze, others during it. One is never accepted, so another worker has to send
    // it again.
    sites.set_behavior(|text, times| match times {
        1 if text.contains("number 000") || text.contains("number 001") => PostBehavior::AcceptAndHold,
        1 if text.contains("number 002") || text.contains("number 003") => PostBehavior::Hold,
        1 => PostBehavior::Lose,
        _ => PostBehavior::Accept,
    });
    let texts = texts("post", 6);
    let posts = crier.post_all(brand, &accounts, &texts).await;
    until_true("all calls", || sites.held("post") == 6).await;
    crier.freeze("crier-worker");
    sites.release();
    crier.start_one("crier-worker#2").await;
    crier.all_published(brand, &posts).await;
    sites.assert_each_once(&texts);

    crier.thaw("crier-worker");
    until("the sleeper's six ends", || async {
        (crier.metric("crier-worker", LOST_LEASES).await? >= 6.0).then_some(())
    })
    .await;
    assert_eq!(crier.metric("crier-worker", LOST_LEASES).await, Some(6.0));
    crier.until_ready("crier-worker").await;
    // The worker works normally again.
    assert_eq!(crier.terminate("crier-worker#2").await, Some(0));
    let late = crier.post(brand, accounts[0], "after all of that").await;
    crier.all_published(brand, &[late]).await;
    crier.all_published(brand, &posts).await;
    sites.assert_each_once(&texts);
    receiver.assert_received_once("post.published", &[posts, vec![late]].concat()).await;
    assert_eq!(crier.count_rows("events").await, 7);
    crier.assert_all_run();
}
