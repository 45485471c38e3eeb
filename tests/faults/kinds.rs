//! Workers that each handle one kind of job: while the worker of one kind is stopped, the others continue, and nothing
//! is lost.

use crate::support::client::texts;
use crate::support::process::Installation;
use crate::support::receiver::Receiver;
use crate::support::sites::Sites;

#[tokio::test]
async fn posts_do_not_wait_for_the_webhook_worker() {
    let mut crier = Installation::split_with(&[("CRIER_WORKER_KINDS", "publish_target")]).await;
    let webhooks = [("CRIER_WORKER_KINDS", "deliver_webhook")];
    crier.start_one_with("crier-worker#2", &webhooks).await;
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 3).await;
    crier.listen(&receiver.url()).await;
    let first = texts("first", 6);
    let mut posts = crier.post_all(brand, &accounts, &first).await;
    crier.all_published(brand, &posts).await;
    receiver.assert_received_once("post.published", &posts).await;

    assert_eq!(crier.terminate("crier-worker#2").await, Some(0));
    let second = texts("second", 12);
    let later = crier.post_all(brand, &accounts, &second).await;
    crier.all_published(brand, &later).await;
    let received = receiver.received().await;
    assert!(later.iter().all(|post| !received.contains_key(post)), "{received:?}");

    crier.start_one_with("crier-worker#2", &webhooks).await;
    posts.extend(later);
    receiver.assert_received_once("post.published", &posts).await;
    sites.assert_each_once(&[first, second].concat());
    crier.assert_all_run();
}
