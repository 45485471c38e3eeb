//! Videos that a worker sends to a platform in parts (X), over HTTP, when the worker is killed with `kill -9`: in the
//! middle of a part, which the platform has stopped reading, and in each call between the last part and the publishing
//! call. Another process continues. Invariant: every post exists once, and its video is whole.

use serde_json::json;

use super::platforms::{authorize, connect};
use crate::support::client::{id, texts};
use crate::support::process::{Installation, on_both_forms};
use crate::support::shopify::SECRET;
use crate::support::stalling_proxy::StallingProxy;
use crate::support::twitter_videos::TwitterVideos;
use crate::support::videos::{VideoSpec, mp4};

on_both_forms!(split => a_kill_in_the_middle_of_a_transfer_publishes_every_video_once);

/// More than a part, which has 4 MiB, and less than two.
const SIZE: usize = 6 << 20;
/// The calls that get no response: the last part, the end of the upload, and the question for its state.
const CALLS_AFTER_PARTS: [&str; 3] = ["append?1", "finalize", "upload"];

async fn start_installation(split: bool, proxy: &StallingProxy) -> Installation {
    let keys = [
        ("CRIER_TWITTER_CLIENT_ID", "id"),
        ("CRIER_TWITTER_CLIENT_SECRET", SECRET),
        ("CRIER_TWITTER_BASE_URL", proxy.url.as_str()),
        ("CRIER_TWITTER_AUTH_URL", proxy.url.as_str()),
        ("CRIER_PUBLIC_URL", "https://crier.example"),
        // No call ends before the kill.
        ("CRIER_PLATFORM_TIMEOUT", "60s"),
    ];
    Installation::start_as(split, &keys).await
}

async fn post(crier: &Installation, brand: i64, account: i64, video: i64, text: &str) -> i64 {
    let body = json!({ "content": text, "media": [video], "schedule_type": "now", "accounts": [account] });
    id(&crier.write(&format!("/brands/{brand}/posts"), body).await)
}

async fn a_kill_in_the_middle_of_a_transfer_publishes_every_video_once(split: bool) {
    let (x, server) = TwitterVideos::start().await;
    x.oauth.add_client("id", SECRET);
    let proxy = StallingProxy::start(&server.uri());
    let mut crier = start_installation(split, &proxy).await;
    let brand = crier.brand().await;
    let url = authorize(&crier, brand, "twitter").await;
    let account = connect(&crier, brand, &url, |at| x.oauth.agree(at), None).await;
    let bytes = mp4(VideoSpec { data: SIZE, ..VideoSpec::default() });
    let video = crier.upload_video(brand, &bytes).await.expect("it is stored");

    let texts = texts("video", 1 + CALLS_AFTER_PARTS.len());
    let (in_a_part, after_parts) = texts.split_first().expect("texts");
    // X has the first part of this video, and stops reading the second one.
    proxy.stall("/append", 1);
    let mut posts = vec![post(&crier, brand, account, video, in_a_part).await];
    proxy.wait_for_stall().await;
    // One post hangs at each of these calls, which have taken effect.
    x.hangs.at(&CALLS_AFTER_PARTS);
    for text in after_parts {
        posts.push(post(&crier, brand, account, video, text).await);
    }
    x.hangs.wait_for(3).await;
    assert!(x.state().tweets.is_empty(), "nothing is published before the kill");
    let worker = crier.of("worker");
    crier.kill(&worker);
    crier.start_all().await;
    crier.all_published(brand, &posts).await;

    let state = x.state();
    let mut published: Vec<&str> = state.tweets.iter().filter_map(|tweet| tweet["text"].as_str()).collect();
    published.sort_unstable();
    assert_eq!(published, texts, "each once");
    let mut used: Vec<&str> = state.tweets.iter().filter_map(|tweet| tweet["media"]["media_ids"][0].as_str()).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!((used.len(), state.uploads.len()), (texts.len(), texts.len()), "no upload began again");
    assert!(state.uploads.iter().all(|upload| upload.bytes() == bytes), "every video is whole");
    let sent = |part: &str| state.calls.iter().filter(|call| call.ends_with(part)).count();
    assert_eq!(sent("/append?0"), texts.len(), "no part is sent again after its response");
    assert_eq!(sent("/append?1"), texts.len() + 1, "only the part without a response is sent again");
    drop(state);
    crier.assert_all_run();
}
