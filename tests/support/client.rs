//! A client of a running Crier: requests, retries and polling.

use std::time::{Duration, Instant};

use crier_http::{HttpClient, HttpResponse};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::sites::Sites;

/// The time limit for any condition, more than twice the longest expected wait.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest pause between two checks.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Polls other processes until there is a value.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, check: impl FnMut() -> F) -> T {
    poll(what, Duration::from_millis(20), check).await
}

/// Polls this process or its database until there is a value.
pub async fn until_soon<T, F: Future<Output = Option<T>>>(what: &str, check: impl FnMut() -> F) -> T {
    poll(what, Duration::from_millis(5), check).await
}

/// Pauses for a tenth of the time waited so far, so that tests that wait for long use little processor time.
async fn poll<T, F: Future<Output = Option<T>>>(what: &str, min_pause: Duration, mut check: impl FnMut() -> F) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(began.elapsed() < CONDITION_TIMEOUT, "not within {CONDITION_TIMEOUT:?}: {what}");
        tokio::time::sleep((began.elapsed() / 10).clamp(min_pause, MAX_PAUSE)).await;
    }
}

/// Polls a synchronous condition.
pub async fn until_true(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || std::future::ready(check().then_some(()))).await;
}

/// A client: Crier's URL and an API key.
#[derive(Clone)]
pub struct Client {
    pub http: HttpClient,
    pub url: String,
    pub key: String,
}

impl Client {
    /// Sends one request. Returns `None` if there is no response.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>, idempotency: &str) -> Option<(u16, Value)> {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self
            .http
            .request(method, &format!("{}/api/public/v1{path}", self.url))
            .bearer_auth(&self.key)
            .header("Idempotency-Key", idempotency);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = self.http.send(request).await.ok()?;
        Some((response.status.as_u16(), serde_json::from_slice(&response.body).unwrap_or(Value::Null)))
    }

    /// Sends a write and retries it with the same key until there is a final response, as a client does after a lost
    /// connection. Returns `data`.
    pub async fn write(&self, path: &str, body: Value) -> Value {
        let key = fresh_key();
        let (status, response) = until(path, || async {
            let response = self.call("POST", path, Some(body.clone()), &key).await?;
            (response.0 != 503 && response.0 != 409).then_some(response)
        })
        .await;
        assert!((200..300).contains(&status), "{path}: {status} {response}");
        response["data"].clone()
    }

    /// Uploads an image. Returns its id, or the error response.
    pub async fn upload(&self, brand: i64, image: &[u8]) -> Result<i64, HttpResponse> {
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n";
        self.upload_form(brand, head, image).await
    }

    /// Uploads a video. Returns its id, or the error response.
    pub async fn upload_video(&self, brand: i64, video: &[u8]) -> Result<i64, HttpResponse> {
        let head = "--b\r\nContent-Disposition: form-data; name=\"asset_type\"\r\n\r\nvideo\r\n\
            --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\n\r\n";
        self.upload_form(brand, head, video).await
    }

    async fn upload_form(&self, brand: i64, head: &str, file: &[u8]) -> Result<i64, HttpResponse> {
        let url = format!("{}/api/public/v1/brands/{brand}/media", self.url);
        let request = self.http.request(reqwest::Method::POST, &url).bearer_auth(&self.key);
        let request = request
            .header("Idempotency-Key", fresh_key())
            .header("Content-Type", "multipart/form-data; boundary=b")
            .body([head.as_bytes(), file, b"\r\n--b--\r\n"].concat());
        let response = self.http.send(request).await.expect("a response");
        if response.status != 201 {
            return Err(response);
        }
        Ok(id(&serde_json::from_slice::<Value>(&response.body).expect("JSON")["data"]))
    }

    pub async fn read(&self, path: &str) -> Option<Value> {
        let (status, response) = self.call("GET", path, None, "-").await?;
        (status == 200).then_some(response)
    }

    /// Opens a page like a browser with this cookie.
    pub async fn visit(&self, path: &str, cookie: &str) -> HttpResponse {
        let request = self.http.request(reqwest::Method::GET, &format!("{}{path}", self.url)).header("Cookie", cookie);
        self.http.send(request).await.expect("a page")
    }

    /// Submits a form like a browser.
    pub async fn submit(&self, path: &str, form: &[(&str, &str)], cookie: &str) -> HttpResponse {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.http.request(reqwest::Method::POST, &format!("{}{path}", self.url));
        let request =
            request.header("Content-Type", "application/x-www-form-urlencoded").header("Cookie", cookie).body(body);
        self.http.send(request).await.expect("a page")
    }

    pub async fn brand(&self) -> i64 {
        id(&self.write("/brands", json!({ "name": "Faults" })).await)
    }

    /// Creates a brand with a sandbox account, and returns both ids.
    pub async fn sandbox(&self, handle: &str) -> (i64, i64) {
        let brand = self.brand().await;
        let path = format!("/brands/{brand}/social-accounts");
        let body = json!({ "platform": "sandbox", "credentials": { "handle": handle } });
        (brand, id(&self.write(&path, body).await[0]))
    }

    /// Connects `count` WordPress sites; returns the account ids.
    pub async fn connect(&self, brand: i64, sites: &Sites, count: usize) -> Vec<i64> {
        let path = &format!("/brands/{brand}/social-accounts");
        let connect = |n| async move {
            let credentials =
                json!({ "site_url": sites.url(n), "username": "ada", "application_password": "abcd EFGH 1234" });
            id(&self.write(path, json!({ "platform": "wordpress", "credentials": credentials })).await[0])
        };
        stream::iter(0..count).map(connect).buffered(4).collect().await
    }

    /// Registers a webhook for the results of posts.
    pub async fn listen(&self, url: &str) {
        self.listen_for(url, &["post.published", "post.failed"]).await;
    }

    /// Registers a webhook for these events.
    pub async fn listen_for(&self, url: &str, events: &[&str]) {
        self.write("/webhooks", json!({ "url": url, "events": events })).await;
    }

    /// Starts an import into the library; returns the id of its job.
    pub async fn import(&self, brand: i64, url: &str) -> i64 {
        id(&self.write(&format!("/brands/{brand}/media/from-url"), json!({ "url": url })).await)
    }

    /// Waits until an import has finished, and returns its job.
    pub async fn wait_for_import(&self, brand: i64, job: i64) -> Value {
        until(&format!("the end of import {job}"), || async {
            let response = self.read(&format!("/brands/{brand}/jobs/{job}")).await?;
            let ended = !["pending", "processing"].contains(&response["data"]["status"].as_str()?);
            ended.then(|| response["data"].clone())
        })
        .await
    }

    /// Creates a post that is published immediately.
    pub async fn post(&self, brand: i64, account: i64, text: &str) -> i64 {
        let body = json!({ "content": text, "schedule_type": "now", "accounts": [account] });
        id(&self.write(&format!("/brands/{brand}/posts"), body).await)
    }

    /// Creates a scheduled post.
    pub async fn schedule(&self, brand: i64, account: i64, text: &str, at: chrono::DateTime<chrono::Utc>) -> i64 {
        let body = json!({ "content": text, "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
        id(&self.write(&format!("/brands/{brand}/posts"), body).await)
    }

    /// Creates a post for each text, several concurrently, on the accounts in turn.
    pub async fn post_all(&self, brand: i64, accounts: &[i64], texts: &[String]) -> Vec<i64> {
        let posts = texts.iter().zip(accounts.iter().cycle());
        stream::iter(posts).map(|(text, account)| self.post(brand, *account, text)).buffered(8).collect().await
    }

    /// Waits until a post has its final status, and returns its first target.
    pub async fn wait_for_post(&self, brand: i64, post: i64) -> Value {
        until(&format!("the end of post {post}"), || async {
            let response = self.read(&format!("/brands/{brand}/posts/{post}")).await?;
            let ended = !["publishing", "scheduled"].contains(&response["data"]["status"].as_str()?);
            ended.then(|| response["data"]["targets"][0].clone())
        })
        .await
    }

    /// Waits until all posts are published, and returns the first target of each.
    pub async fn all_published(&self, brand: i64, posts: &[i64]) -> Vec<Value> {
        let mut targets = Vec::new();
        for post in posts {
            let target = self.wait_for_post(brand, *post).await;
            assert_eq!(target["status"], "published", "post {post}: {target}");
            targets.push(target);
        }
        targets
    }

    /// Returns the HTML of all pages of a handle's timeline in the sandbox.
    pub async fn page(&self, handle: &str) -> String {
        let mut path = format!("/sandbox/{handle}");
        let mut all = String::new();
        loop {
            let url = format!("{}{path}", self.url);
            let page = until("the sandbox's page", || async {
                let response = self.http.send(self.http.request(reqwest::Method::GET, &url)).await.ok()?;
                String::from_utf8(response.body.to_vec()).ok()
            });
            let page = page.await;
            let older = page.split("<a href=\"").find(|link| link.contains(">Older posts<"));
            let next = older.and_then(|link| link.split('"').next()).map(str::to_owned);
            all.push_str(&page);
            match next {
                Some(next) => path = next,
                None => return all,
            }
        }
    }
}

pub fn fresh_key() -> String {
    format!("{:016x}", crier_base::random::u64())
}

pub fn id(record: &Value) -> i64 {
    record["id"].as_i64().expect("an id")
}

/// Returns `count` distinct texts that can be searched for.
pub fn texts(about: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{about} number {n:03} ends")).collect()
}
