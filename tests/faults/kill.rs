//! `kill -9` of any process at any moment: every post that was accepted is published, and published once.

use std::time::Duration;

use serde_json::json;

use crate::support::process::Installation;

const POSTS: usize = 60;

/// Posts while one process after another is killed, at moments that differ from round to round.
async fn every_post_goes_out_once(mut crier: Installation, rounds: u64) {
    let handle = "kill9";
    let (brand, account) = crier.sandbox(handle).await;
    let path = format!("/brands/{brand}/posts");
    let mut posts = Vec::new();
    for round in 0..rounds {
        let batch: Vec<usize> = (posts.len()..posts.len() + POSTS / usize::try_from(rounds).expect("few")).collect();
        // Half of them are accepted before the kill, the rest while it happens and after.
        let (before, after) = batch.split_at(batch.len() / 2);
        for n in before {
            let body =
                json!({ "content": format!("post number {n:03} ends"), "schedule_type": "now", "accounts": [account] });
            posts.push(crier.write(&path, body).await["id"].as_i64().expect("an id"));
        }
        let names = crier.names();
        let victim = names[usize::try_from(round).expect("few") % names.len()];
        // The moment of the kill is the fault itself: it falls into claims, calls and settles alike.
        tokio::time::sleep(Duration::from_millis(7 * (round + 1))).await;
        crier.kill(victim);
        crier.start_all().await;
        for n in after {
            let body =
                json!({ "content": format!("post number {n:03} ends"), "schedule_type": "now", "accounts": [account] });
            posts.push(crier.write(&path, body).await["id"].as_i64().expect("an id"));
        }
    }
    for post in &posts {
        let status = crier
            .until("a post's end", || async {
                let answer = crier.read(&format!("{path}/{post}/status")).await?;
                let status = answer["data"]["status"].as_str()?.to_owned();
                (status != "publishing" && status != "scheduled").then_some(status)
            })
            .await;
        assert_eq!(status, "published", "post {post}");
    }
    let page = crier.page(handle).await;
    for n in 0..posts.len() {
        assert_eq!(page.matches(&format!("post number {n:03} ends")).count(), 1, "post number {n} on the page");
    }
}

#[tokio::test]
async fn embedded() {
    every_post_goes_out_once(Installation::embedded().await, 3).await;
}

#[tokio::test]
async fn split() {
    every_post_goes_out_once(Installation::split().await, 6).await;
}
