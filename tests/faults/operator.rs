//! The operator's commands while jobs run: paused jobs wait, cancelled jobs are reported, retried jobs run, and
//! everything is published once.

use serde_json::Value;

use crate::support::client::{id, texts, until};
use crate::support::process::{Installation, on_both_forms};
use crate::support::receiver::Receiver;
use crate::support::sites::{PostBehavior, Sites};

on_both_forms!(operator_commands_work_under_load);

const RUNNING_JOBS: &str = "jobs WHERE kind = 'publish_target' AND state = 'running'";

fn jobs(crier: &Installation, state: &str) -> Vec<Value> {
    let list = crier.command(&["jobs", "list", "--kind", "publish_target", "--state", state, "--json"]);
    serde_json::from_str(&list).expect("a list")
}

async fn operator_commands_work_under_load(mut crier: Installation) {
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 8).await;
    crier.listen(&receiver.url()).await;
    sites.set_behavior(|_, _| PostBehavior::AcceptSlowly);
    let (early, paused, late) = (texts("early", 30), texts("paused", 10), texts("late", 10));
    let mut posts = crier.post_all(brand, &accounts, &early).await;
    crier.command(&["jobs", "pause", "publish_target"]);
    let waiting = crier.post_all(brand, &accounts, &paused).await;
    until("what runs to end", || async { (crier.count_rows(RUNNING_JOBS).await == 0).then_some(()) }).await;

    // Two jobs are cancelled, and their posts are reported immediately: webhooks are not paused.
    let mut cancelled = Vec::new();
    for post in &waiting[..2] {
        let detail = crier.read(&format!("/brands/{brand}/posts/{post}")).await.expect("a post");
        let target = id(&detail["data"]["targets"][0]);
        let job = jobs(&crier, "ready").iter().find(|job| job["subject_id"] == target).map(id).expect("its job");
        crier.command(&["jobs", "cancel", &job.to_string()]);
        let target = crier.wait_for_post(brand, *post).await;
        assert_eq!((&target["status"], &target["error"]["code"]), (&"failed".into(), &"cancelled".into()), "{target}");
        cancelled.push(job);
    }
    receiver.assert_received_once("post.failed", &waiting[..2]).await;
    assert!(paused.iter().all(|text| sites.calls(text).is_empty()), "a paused kind was run");
    assert_eq!(jobs(&crier, "cancelled").len(), 2);

    // One of the two jobs is retried.
    crier.command(&["jobs", "retry", &cancelled[0].to_string()]);
    crier.command(&["jobs", "resume", "publish_target"]);
    posts.extend(crier.post_all(brand, &accounts, &late).await);
    posts.extend(&waiting[2..]);
    crier.all_published(brand, &posts).await;
    crier.all_published(brand, &waiting[..1]).await;
    receiver.assert_received_once("post.published", &posts).await;
    assert_eq!(crier.wait_for_post(brand, waiting[1]).await["status"], "failed");
    sites.assert_each_once(&[&early, &paused[..1], &paused[2..], &late].concat());
    assert_eq!(sites.calls(&paused[1]).len(), 0);
    assert_eq!(sites.posts().len(), 49);
    crier.assert_all_run();
}
