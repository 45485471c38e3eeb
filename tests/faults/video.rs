//! Posts with videos, which are handed over in steps, while processes are killed with `kill -9`: every post and its
//! video are published exactly once.

use std::time::Duration;

use serde_json::json;

use crate::support::client::{id, texts, until};
use crate::support::process::{Installation, on_both_forms};
use crate::support::videos::{VideoSpec, mp4};

on_both_forms!(repeated_kills_publish_every_video_once, a_kill_while_a_video_is_processed_publishes_it_once);

const POSTS_PER_ROUND: usize = 6;

async fn upload(crier: &Installation, brand: i64) -> i64 {
    let stored = crier.upload_video(brand, &mp4(VideoSpec::default())).await;
    stored.unwrap_or_else(|response| panic!("{}: {}", response.status, String::from_utf8_lossy(&response.body)))
}

/// Creates a post with a video that is published immediately.
async fn post(crier: &Installation, brand: i64, account: i64, video: i64, text: &str) -> i64 {
    let body = json!({ "content": text, "media": [video], "schedule_type": "now", "accounts": [account] });
    id(&crier.write(&format!("/brands/{brand}/posts"), body).await)
}

/// Asserts that the page shows each text once, each with a video.
async fn assert_shown_once(crier: &Installation, handle: &str, texts: &[String]) {
    let page = crier.page(handle).await;
    for text in texts {
        assert_eq!(page.matches(text.as_str()).count(), 1, "{text} on the page");
    }
    assert_eq!(page.matches("<video src=\"/media/").count(), texts.len(), "{page}");
}

/// Every second post waits for the platform. The kills hit different steps, the call, and the wait.
async fn repeated_kills_publish_every_video_once(mut crier: Installation) {
    let rounds = if crier.is_split() { 6 } else { 3 };
    let handle = "videos9";
    let (brand, account) = crier.sandbox(handle).await;
    let video = upload(&crier, brand).await;
    let names = texts("video", rounds * POSTS_PER_ROUND);
    let mut posts = Vec::new();
    for (round, batch) in names.chunks(POSTS_PER_ROUND).enumerate() {
        for (number, name) in batch.iter().enumerate() {
            let text = if number % 2 == 0 { name.clone() } else { format!("{name} [slow-video]") };
            posts.push(post(&crier, brand, account, video, &text).await);
        }
        let processes = crier.names();
        // This waits in real time: the kills hit different steps.
        tokio::time::sleep(Duration::from_millis(11) * (u32::try_from(round).expect("few") + 1)).await;
        crier.kill(processes[round % processes.len()]);
        crier.start_all().await;
    }
    crier.all_published(brand, &posts).await;
    assert_shown_once(&crier, handle, &names).await;
    crier.assert_all_run();
}

async fn a_kill_while_a_video_is_processed_publishes_it_once(mut crier: Installation) {
    const PROCESSING: &str = "post_targets WHERE error ->> 'message' = 'Sandbox is processing the video.'";
    let handle = "videos9";
    let (brand, account) = crier.sandbox(handle).await;
    let video = upload(&crier, brand).await;
    let names = texts("video", 3);
    let mut posts = Vec::new();
    for name in &names {
        posts.push(post(&crier, brand, account, video, &format!("{name} [slow-video]")).await);
        until("the platform processes a video", || async { (crier.count_rows(PROCESSING).await > 0).then_some(()) })
            .await;
        let worker = crier.of("worker");
        crier.kill(&worker);
        crier.start_all().await;
        let published = crier.all_published(brand, &posts[posts.len() - 1..]).await;
        assert_eq!(published[0]["attempts"], 1, "the wait uses no attempt: {}", published[0]);
    }
    assert_shown_once(&crier, handle, &names).await;
    crier.assert_all_run();
}
