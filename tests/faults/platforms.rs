//! One platform of each kind: one with containers that are created first (Instagram), one that accepts posts and
//! publishes them later (TikTok), and one whose refresh tokens are replaced at each use (Shopify). Workers are killed
//! in the middle of their calls, and some calls never get a response. Invariant: nothing is published twice, and no
//! token is lost.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use url::Url;
use wiremock::MockServer;

use crate::support::client::{id, texts};
use crate::support::containers::{ContainerServer, INSTAGRAM};
use crate::support::images;
use crate::support::person::button;
use crate::support::process::{Installation, on_both_forms};
use crate::support::shopify::{SECRET, SHOP, Shopify, blog_id};
use crate::support::tiktok::Tiktok;

on_both_forms!(split =>
    containers_are_published_once,
    an_accepted_post_is_never_sent_again,
    rotating_tokens_survive_a_kill,
);

/// Starts an installation with an application at the platform; the platform can fetch its images.
async fn start_installation(split: bool, platform: &str, server: &MockServer) -> Installation {
    let (url, name) = (server.uri(), |end: &str| format!("CRIER_{platform}_{end}"));
    let names = ["CLIENT_ID", "CLIENT_SECRET", "BASE_URL", "AUTH_URL"].map(name);
    let mut keys: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(["id", SECRET, &url, &url]).collect();
    keys.push(("CRIER_PUBLIC_URL", "https://crier.example"));
    Installation::start_as(split, &keys).await
}

/// Connects an account as a user does in a browser; returns the account's id. `grant_access` returns the URL to which
/// the platform redirects the browser.
pub(super) async fn connect(
    crier: &Installation,
    brand: i64,
    url: &str,
    grant_access: impl Fn(&Url) -> Url,
    choice: Option<&str>,
) -> i64 {
    let path = |url: &str| url.trim_start_matches("https://crier.example").to_owned();
    let first = crier.submit(&path(url), &[], "").await;
    let cookie = first.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = String::from_utf8(first.body.to_vec()).unwrap();
    let callback = grant_access(&button(&page));
    let response = crier.visit(&path(callback.as_str()), &cookie).await;
    assert_eq!(response.status, 303, "{}", String::from_utf8_lossy(&response.body));
    if let Some(choice) = choice {
        let next = response.headers["location"].to_str().unwrap();
        assert_eq!(crier.submit(next, &[("choice", choice)], &cookie).await.status, 303);
    }
    let accounts = crier.read(&format!("/brands/{brand}/social-accounts")).await.unwrap();
    id(&accounts["data"][0])
}

pub(super) async fn authorize(crier: &Installation, brand: i64, platform: &str) -> String {
    let authorization =
        crier.write(&format!("/brands/{brand}/social-accounts/authorize"), json!({ "platform": platform })).await;
    authorization["authorization_url"].as_str().unwrap().to_owned()
}

/// Creates a post with an image, and publishes it.
async fn post_image(crier: &Installation, brand: i64, account: i64, text: &str, options: Value) -> i64 {
    let media = crier.upload(brand, &images::png(400, 400)).await.unwrap();
    let body = json!({
        "content": text, "schedule_type": "now", "accounts": [account], "media": [media],
        "overrides": [{ "account_id": account, "options": options }],
    });
    id(&crier.write(&format!("/brands/{brand}/posts"), body).await)
}

async fn containers_are_published_once(split: bool) {
    let (server, mock) = ContainerServer::start(INSTAGRAM, "2099-01-01T00:00:00+0000").await;
    server.oauth.add_client("id", SECRET);
    let mut crier = start_installation(split, "INSTAGRAM", &mock).await;
    let brand = crier.brand().await;
    let url = authorize(&crier, brand, "instagram").await;
    let account = connect(&crier, brand, &url, |at| server.oauth.agree(at), None).await;
    let texts = [texts("killed", 4), texts("lost", 4)].concat();
    let mut posts = Vec::new();
    for (round, batch) in texts.chunks(4).enumerate() {
        // One post hangs at each of these calls; every call has taken effect.
        server.hangs.at(&["GET content_publishing_limit", "POST media", "GET {}", "POST media_publish"]);
        for text in batch {
            posts.push(post_image(&crier, brand, account, text, json!({})).await);
        }
        server.hangs.wait_for(4).await;
        if round == 0 {
            let worker = crier.of("worker");
            crier.kill(&worker);
            crier.start_all().await;
        }
        // In the second round the worker lives, and the calls time out.
        crier.all_published(brand, &posts).await;
    }
    let mut published = server.published();
    published.sort();
    assert_eq!(published, texts, "each once");
    assert_eq!(server.count("POST media_publish"), texts.len(), "the call is never made twice");
    crier.assert_all_run();
}

async fn an_accepted_post_is_never_sent_again(split: bool) {
    let (tiktok, mock) = Tiktok::start().await;
    let mut crier = start_installation(split, "TIKTOK", &mock).await;
    let brand = crier.brand().await;
    let url = authorize(&crier, brand, "tiktok").await;
    let account = connect(&crier, brand, &url, |at| tiktok.oauth.agree(at), None).await;
    let options = json!({ "visibility": "public" });
    tiktok.is_working.store(true, Ordering::SeqCst);
    // The worker dies while the platform processes one post, and in the middle of the call of another.
    tiktok.hangs.at(&["status"]);
    let accepted = post_image(&crier, brand, account, "accepted", options.clone()).await;
    tiktok.hangs.wait_for(1).await;
    tiktok.hangs.at(&["init"]);
    let lost = post_image(&crier, brand, account, "lost", options).await;
    tiktok.hangs.wait_for(1).await;
    let worker = crier.of("worker");
    crier.kill(&worker);
    tiktok.is_working.store(false, Ordering::SeqCst);
    crier.start_all().await;
    crier.all_published(brand, &[accepted]).await;
    let target = crier.wait_for_post(brand, lost).await;
    assert_eq!((&target["status"], &target["error"]["category"]), (&"failed".into(), &"outcome_unknown".into()));
    assert_eq!(tiktok.posts.lock().unwrap().len(), 2, "neither is sent again");
    crier.assert_all_run();
}

async fn connect_shop(crier: &Installation, shopify: &Shopify) -> (i64, i64) {
    let brand = crier.brand().await;
    let args = ["account", "connect", "shopify", "--brand", &brand.to_string(), "--shop", SHOP];
    let printed = crier.command(&args);
    let url = printed.split_whitespace().find(|word| word.contains("/connect/")).expect("an address");
    (brand, connect(crier, brand, url, |at| shopify.agree(at), Some(&blog_id(1))).await)
}

/// Returns the number of articles with this text in the shop.
fn count(shopify: &Shopify, text: &str) -> usize {
    shopify.articles().iter().filter(|article| article.to_string().contains(text)).count()
}

async fn rotating_tokens_survive_a_kill(split: bool) {
    let (shopify, mock) = Shopify::start(&["News", "Recipes"]).await;
    let mut crier = start_installation(split, "SHOPIFY", &mock).await;
    let (brand, account) = connect_shop(&crier, &shopify).await;
    // The shop has replaced the tokens when the worker dies, so the worker never receives the new ones.
    shopify.oauth.expire_tokens();
    shopify.hangs.at(&["refresh_token"]);
    let post = crier.post(brand, account, "after the kill").await;
    shopify.hangs.wait_for(1).await;
    let worker = crier.of("worker");
    crier.kill(&worker);
    crier.start_all().await;
    crier.all_published(brand, &[post]).await;
    assert_eq!((count(&shopify, "after the kill"), shopify.oauth.refreshes()), (1, 2));
    // The stored tokens are the newest.
    shopify.oauth.expire_tokens();
    let next = crier.post(brand, account, "the next time").await;
    crier.all_published(brand, &[next]).await;
    assert_eq!((count(&shopify, "the next time"), shopify.oauth.refreshes()), (1, 3));
    crier.assert_all_run();
}

#[tokio::test]
async fn two_workers_renew_a_token_once() {
    let (shopify, mock) = Shopify::start(&["News", "Recipes"]).await;
    let mut crier = start_installation(true, "SHOPIFY", &mock).await;
    let (brand, account) = connect_shop(&crier, &shopify).await;
    crier.start_one("crier-worker#2").await;
    for round in 1..=3 {
        crier.command(&["jobs", "pause", "publish_target"]);
        let texts = texts(&format!("round {round}"), 8);
        let posts = crier.post_all(brand, &[account], &texts).await;
        shopify.oauth.expire_tokens();
        crier.command(&["jobs", "resume", "publish_target"]);
        crier.all_published(brand, &posts).await;
        assert_eq!(shopify.oauth.refreshes(), round, "once for all posts of both workers");
        assert!(texts.iter().all(|text| count(&shopify, text) == 1), "each once");
    }
    crier.assert_all_run();
}
