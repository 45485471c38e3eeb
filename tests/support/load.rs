//! Constant load: clients that create and read posts without a break, on connections that they keep and on new ones. They
//! permit no fault: neither a lost connection nor an unexpected status.

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

/// Even numbers keep their connection; odd ones open a new one for each request.
const CLIENTS: usize = 4;
/// The interval at which each client creates a post.
const PACE: Duration = Duration::from_millis(150);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

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
    answers: AtomicUsize,
    posts: Mutex<Vec<(i64, String)>>,
    faults: Mutex<Vec<String>>,
}

/// What a load has done.
pub struct Done {
    pub posts: Vec<i64>,
    pub texts: Vec<String>,
}

impl Load {
    /// Starts clients of `client`, which post on the accounts in turn.
    pub fn start(client: &Client, brand: i64, accounts: &[i64]) -> Self {
        let shared = Arc::new(Shared {
            address: client.url.trim_start_matches("http://").to_owned(),
            key: client.key.clone(),
            brand,
            accounts: accounts.to_vec(),
            stop: CancellationToken::new(),
            answers: AtomicUsize::new(0),
            posts: Mutex::default(),
            faults: Mutex::default(),
        });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(run(shared.clone(), number));
        }
        Self { clients, shared }
    }

    /// Waits until more requests were answered: every client several times.
    pub async fn goes_on(&self) {
        let enough = self.shared.answers.load(Ordering::Relaxed) + CLIENTS * 8;
        let answered = || self.shared.answers.load(Ordering::Relaxed) >= enough || !self.faults().is_empty();
        until_true("more answers", answered).await;
        self.assert_no_faults();
    }

    /// Stops the clients after their current requests.
    pub async fn stop(mut self) -> Done {
        self.shared.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("no client panics");
        }
        self.assert_no_faults();
        let posts = self.shared.posts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(!posts.is_empty(), "the load made posts");
        let (posts, texts) = posts.into_iter().unzip();
        Done { posts, texts }
    }

    fn faults(&self) -> Vec<String> {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn assert_no_faults(&self) {
        assert!(self.faults().is_empty(), "requests failed: {:#?}", self.faults());
    }
}

/// Ends at the first fault, or when the load is stopped.
async fn run(shared: Arc<Shared>, number: usize) {
    let mut client = LoadClient { shared: shared.clone(), keeps: number.is_multiple_of(2), open: None };
    let mut pace = interval(PACE);
    for turn in 0.. {
        pace.tick().await;
        if shared.stop.is_cancelled() {
            return;
        }
        let text = format!("load {number} post {turn:04} ends");
        if let Err(fault) = client.create_and_read(&text, turn).await {
            shared.faults.lock().unwrap_or_else(PoisonError::into_inner).push(format!("client {number}: {fault}"));
            return;
        }
    }
}

/// One client; makes one request at a time.
struct LoadClient {
    shared: Arc<Shared>,
    keeps: bool,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl LoadClient {
    /// Creates a post, repeats the request as an impatient client does, and reads what is there.
    async fn create_and_read(&mut self, text: &str, turn: usize) -> Result<(), String> {
        let posts = format!("/brands/{}/posts", self.shared.brand);
        let account = self.shared.accounts[turn % self.shared.accounts.len()];
        let body = match turn.is_multiple_of(3) {
            true => {
                let at = Clock::system().now() + TimeDelta::seconds(2);
                json!({ "content": text, "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] })
            }
            false => json!({ "content": text, "schedule_type": "now", "accounts": [account] }),
        };
        let key = fresh_key();
        let made = id(&self.ask("POST", &posts, Some(&body), &key).await?["data"]);
        self.shared.posts.lock().unwrap_or_else(PoisonError::into_inner).push((made, text.to_owned()));
        let repeated = id(&self.ask("POST", &posts, Some(&body), &key).await?["data"]);
        if repeated != made {
            return Err(format!("post {made} was made again as {repeated}"));
        }
        self.ask("GET", &format!("{posts}/{made}"), None, "-").await?;
        self.ask("GET", &format!("{posts}?per_page=5"), None, "-").await.map(drop)
    }

    /// Sends a request; returns the body of a success.
    async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>, key: &str) -> Result<Value, String> {
        let answer = self.exchange(method, path, body, key).await.map_err(|lost| format!("{method} {path}: {lost}"))?;
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(answer.body());
        if !answer.status().is_success() {
            return Err(format!("{method} {path}: {} {text}", answer.status()));
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
        let answer = timeout(ANSWER_TIMEOUT, self.try_exchange(method, path, body, key)).await;
        answer.map_err(|_| format!("no answer within {ANSWER_TIMEOUT:?}"))?
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
            .header(CONNECTION, if self.keeps { "keep-alive" } else { "close" })
            .header("Idempotency-Key", key);
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(body)).expect("a request");
        sender.ready().await.map_err(failed("the connection was closed without a notice"))?;
        let answer = sender.send_request(request).await.map_err(failed("no answer"))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(failed("half an answer"))?.to_bytes();
        let ends = head.headers.get(CONNECTION).is_some_and(|value| value == "close");
        if self.keeps && !ends {
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
