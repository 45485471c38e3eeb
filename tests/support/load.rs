//! Constant load: clients that create and read posts without a pause, some with a connection for all requests and some
//! with a new connection for each. Every lost connection and every unexpected status is a fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use crier_base::clock::Clock;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::client::{Client, fresh_key, id, until_true};

/// The number of clients. Those with an even number keep their connection; the others open one for each request.
const CLIENTS: usize = 4;
/// The interval at which each client creates a post.
const POST_INTERVAL: Duration = Duration::from_millis(150);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A running load.
pub struct Load {
    clients: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    address: String,
    key: String,
    brand: i64,
    accounts: Vec<i64>,
    stop: CancellationToken,
    responses: AtomicUsize,
    posts: Mutex<Vec<(i64, String)>>,
    faults: Mutex<Vec<String>>,
}

/// The posts that a load created.
pub struct LoadResult {
    pub posts: Vec<i64>,
    pub texts: Vec<String>,
}

impl Load {
    /// Starts clients that use the URL and the key of `client`, and post on the accounts in turn.
    pub fn start(client: &Client, brand: i64, accounts: &[i64]) -> Self {
        let shared = Arc::new(Shared {
            address: client.url.trim_start_matches("http://").to_owned(),
            key: client.key.clone(),
            brand,
            accounts: accounts.to_vec(),
            stop: CancellationToken::new(),
            responses: AtomicUsize::new(0),
            posts: Mutex::default(),
            faults: Mutex::default(),
        });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(run(shared.clone(), number));
        }
        Self { clients, shared }
    }

    /// Waits until more requests have a response: on average, eight per client.
    pub async fn goes_on(&self) {
        let enough = self.shared.responses.load(Ordering::Relaxed) + CLIENTS * 8;
        let has_enough = || self.shared.responses.load(Ordering::Relaxed) >= enough || !self.faults().is_empty();
        until_true("more responses", has_enough).await;
        self.assert_no_faults();
    }

    /// Stops the clients after their current requests.
    pub async fn stop(mut self) -> LoadResult {
        self.shared.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("no client panics");
        }
        self.assert_no_faults();
        let posts = self.shared.posts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(!posts.is_empty(), "the load created posts");
        let (posts, texts) = posts.into_iter().unzip();
        LoadResult { posts, texts }
    }

    fn faults(&self) -> Vec<String> {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn assert_no_faults(&self) {
        assert!(self.faults().is_empty(), "requests failed: {:#?}", self.faults());
    }
}

/// Runs one client until its first fault, or until the load is stopped.
async fn run(shared: Arc<Shared>, number: usize) {
    let mut client = LoadClient { shared: shared.clone(), keep_alive: number.is_multiple_of(2), open: None };
    let mut ticks = interval(POST_INTERVAL);
    for round in 0.. {
        ticks.tick().await;
        if shared.stop.is_cancelled() {
            return;
        }
        let text = format!("load {number} post {round:04} ends");
        if let Err(fault) = client.create_and_read(&text, round).await {
            shared.faults.lock().unwrap_or_else(PoisonError::into_inner).push(format!("client {number}: {fault}"));
            return;
        }
    }
}

/// One client, which sends one request at a time.
struct LoadClient {
    shared: Arc<Shared>,
    keep_alive: bool,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl LoadClient {
    /// Creates a post, repeats the request like an impatient client, and reads the post and a list.
    async fn create_and_read(&mut self, text: &str, round: usize) -> Result<(), String> {
        let posts = format!("/brands/{}/posts", self.shared.brand);
        let account = self.shared.accounts[round % self.shared.accounts.len()];
        let body = match round.is_multiple_of(3) {
            true => {
                // Still in the future when the request arrives, also on a busy machine.
                let at = Clock::system().now() + TimeDelta::seconds(8);
                json!({ "content": text, "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] })
            }
            false => json!({ "content": text, "schedule_type": "now", "accounts": [account] }),
        };
        let key = fresh_key();
        let created = id(&self.send("POST", &posts, Some(&body), &key).await?["data"]);
        self.shared.posts.lock().unwrap_or_else(PoisonError::into_inner).push((created, text.to_owned()));
        let repeated = id(&self.send("POST", &posts, Some(&body), &key).await?["data"]);
        if repeated != created {
            return Err(format!("post {created} was created again as {repeated}"));
        }
        self.send("GET", &format!("{posts}/{created}"), None, "-").await?;
        self.send("GET", &format!("{posts}?per_page=5"), None, "-").await.map(drop)
    }

    /// Sends a request. Returns the body of a successful response.
    async fn send(&mut self, method: &str, path: &str, body: Option<&Value>, key: &str) -> Result<Value, String> {
        let response =
            self.exchange(method, path, body, key).await.map_err(|lost| format!("{method} {path}: {lost}"))?;
        self.shared.responses.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(response.body());
        if !response.status().is_success() {
            return Err(format!("{method} {path}: {} {text}", response.status()));
        }
        serde_json::from_str(&text).map_err(|error| format!("{method} {path}: {error}: {text}"))
    }

    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: &str,
    ) -> Result<Response<Bytes>, String> {
        let response = timeout(RESPONSE_TIMEOUT, self.try_exchange(method, path, body, key)).await;
        response.map_err(|_| format!("no response within {RESPONSE_TIMEOUT:?}"))?
    }

    async fn try_exchange(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: &str,
    ) -> Result<Response<Bytes>, String> {
        let failed = |what: &'static str| move |error: hyper::Error| format!("{what}: {error:?}");
        let mut sender = match self.open.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/public/v1{path}"))
            .header(HOST, &self.shared.address)
            .header(AUTHORIZATION, format!("Bearer {}", self.shared.key))
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, if self.keep_alive { "keep-alive" } else { "close" })
            .header("Idempotency-Key", key);
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(body)).expect("a request");
        sender.ready().await.map_err(failed("the connection was closed without a notice"))?;
        let response = sender.send_request(request).await.map_err(failed("no response"))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(failed("half a response"))?.to_bytes();
        let ends = head.headers.get(CONNECTION).is_some_and(|value| value == "close");
        if self.keep_alive && !ends {
            self.open = Some(sender);
        }
        Ok(Response::from_parts(head, body))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream =
            TcpStream::connect(&self.shared.address).await.map_err(|error| format!("not connected: {error}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // Ends when the sender is dropped; requests return its errors.
        tokio::spawn(connection);
        Ok(sender)
    }
}
