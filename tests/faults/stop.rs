//! SIGTERM: an orderly stop in the middle of work. Every process ends with status 0, and every post goes out once.

use serde_json::json;

use crate::support::process::Installation;

async fn stops_in_order(mut crier: Installation) {
    let handle = "sigterm";
    let (brand, account) = crier.sandbox(handle).await;
    let path = format!("/brands/{brand}/posts");
    let mut posts = Vec::new();
    for n in 0..30 {
        let body =
            json!({ "content": format!("post number {n:03} ends"), "schedule_type": "now", "accounts": [account] });
        posts.push(crier.write(&path, body).await["id"].as_i64().expect("an id"));
    }
    for name in crier.names() {
        assert_eq!(crier.terminate(name).await, Some(0), "{name}: {}", crier.log(name));
    }
    crier.start_all().await;
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    let page = crier.page(handle).await;
    for n in 0..30 {
        assert_eq!(page.matches(&format!("post number {n:03} ends")).count(), 1, "post number {n} on the page");
    }
}

#[tokio::test]
async fn embedded() {
    stops_in_order(Installation::embedded().await).await;
}

#[tokio::test]
async fn split() {
    stops_in_order(Installation::split().await).await;
}
