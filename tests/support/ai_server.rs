//! A scripted OpenAI-compatible server. Bodies and errors follow OpenAI's API reference.

#![allow(dead_code, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use crier_api::ai::{Ai, PROVIDER_TIMEOUT};
use crier_config::AiConfig;
use crier_http::{Guard, HttpClient};
use crier_platforms::Clients;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::app::TestApp;
use super::store::TestStore;

/// The provider's API key in the test configuration.
pub const KEY: &str = "sk-test-hunter2";
/// A timeout longer than any test waits.
const NEVER: Duration = Duration::from_secs(120);

/// The response to one request.
pub enum AiStep {
    Respond(ResponseTemplate),
    /// Signals that the request has arrived, and responds when the test releases it.
    Hold(Arc<ResponseGate>, ResponseTemplate),
}

/// Blocks a request until the test releases it.
pub struct ResponseGate {
    arrived: Semaphore,
    go: Mutex<mpsc::Receiver<()>>,
    let_go: mpsc::Sender<()>,
}

impl ResponseGate {
    pub fn new() -> Arc<Self> {
        let (let_go, go) = mpsc::channel();
        Arc::new(Self { arrived: Semaphore::new(0), go: Mutex::new(go), let_go })
    }

    /// Waits until a request has arrived.
    pub async fn wait_for_request(&self) {
        self.arrived.acquire().await.expect("it is never closed").forget();
    }

    /// Releases one request.
    pub fn let_go(&self) {
        self.let_go.send(()).expect("the receiver is alive");
    }
}

#[derive(Clone, Default)]
struct ResponseQueue(Arc<Mutex<VecDeque<AiStep>>>);

impl Respond for ResponseQueue {
    fn respond(&self, _request: &Request) -> ResponseTemplate {
        let next = self.0.lock().expect("no panic").pop_front();
        match next {
            Some(AiStep::Respond(response)) => response,
            Some(AiStep::Hold(hold, response)) => {
                hold.arrived.add_permits(1);
                // Blocking is safe: the server runs on its own thread.
                let _ = hold.go.lock().expect("no panic").recv_timeout(NEVER);
                response
            }
            None => error(500, Value::Null, "no response is queued"),
        }
    }
}

/// A mock AI provider.
pub struct AiServer {
    server: MockServer,
    script: ResponseQueue,
}

impl AiServer {
    pub async fn start() -> Self {
        let (server, script) = (MockServer::start().await, ResponseQueue::default());
        for endpoint in ["/v1/chat/completions", "/v1/images/generations"] {
            Mock::given(method("POST")).and(path(endpoint)).respond_with(script.clone()).mount(&server).await;
        }
        Self { server, script }
    }

    pub fn url(&self) -> String {
        format!("{}/v1", self.server.uri())
    }

    /// Queues responses, in order.
    pub fn queue_responses(&self, responses: impl IntoIterator<Item = ResponseTemplate>) {
        self.script.0.lock().expect("no panic").extend(responses.into_iter().map(AiStep::Respond));
    }

    pub fn queue_held_response(&self, hold: &Arc<ResponseGate>, response: ResponseTemplate) {
        self.script.0.lock().expect("no panic").push_back(AiStep::Hold(hold.clone(), response));
    }

    /// Drops the queued responses.
    pub fn clear_responses(&self) {
        self.script.0.lock().expect("no panic").clear();
    }

    /// Sets the response for a path that has no other response.
    pub async fn set_response(&self, at: &str, response: ResponseTemplate) {
        Mock::given(method("POST")).and(path(at)).respond_with(response).mount(&self.server).await;
    }

    /// Returns the paths of all requests.
    pub async fn paths(&self) -> Vec<String> {
        let requests = self.server.received_requests().await.expect("requests are kept");
        requests.iter().map(|request| request.url.path().to_owned()).collect()
    }

    /// Serves a file and returns its URL.
    pub async fn serve_file(&self, at: &str, bytes: Vec<u8>) -> String {
        let response = ResponseTemplate::new(200).set_body_bytes(bytes);
        Mock::given(method("GET")).and(path(at)).respond_with(response).mount(&self.server).await;
        format!("{}{at}", self.server.uri())
    }

    /// Returns the bodies of all requests.
    pub async fn request_bodies(&self) -> Vec<Value> {
        let requests = self.server.received_requests().await.expect("requests are kept");
        requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap_or(Value::Null)).collect()
    }

    /// Returns the path and key of the first request.
    pub async fn first(&self) -> (String, String) {
        let requests = self.server.received_requests().await.expect("requests are kept");
        let key = requests[0].headers["authorization"].to_str().expect("text").to_owned();
        (requests[0].url.path().to_owned(), key)
    }

    /// Returns the product's client for this server.
    pub fn ai(&self, timeout: Duration) -> Ai {
        ai_at(&self.url(), timeout)
    }
}

pub fn ai_at(url: &str, timeout: Duration) -> Ai {
    let guard = Guard::new(Vec::new());
    let clients = Clients {
        trusted: HttpClient::trusted(timeout, 1 << 20),
        guarded: HttpClient::guarded(guard.clone(), timeout, 1 << 20),
        addresses: Arc::new(guard),
    };
    let config = AiConfig {
        base_url: Some(url.to_owned()),
        api_key: Some(KEY.to_owned().into()),
        text_model: Some("writer".to_owned()),
        image_model: Some("painter".to_owned()),
    };
    Ai::new(&config, &clients, 1 << 20, timeout)
}

/// A running API with a mock AI provider.
pub struct AiApp {
    app: TestApp,
    pub ai: AiServer,
}

impl Deref for AiApp {
    type Target = TestApp;
    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl AiApp {
    pub async fn start(store: TestStore) -> Self {
        Self::with_timeout(store, PROVIDER_TIMEOUT).await
    }

    pub async fn with_timeout(store: TestStore, timeout: Duration) -> Self {
        let ai = AiServer::start().await;
        Self { app: TestApp::start_with(store, ai.ai(timeout)).await, ai }
    }

    /// Returns the credits that a workspace has used or reserved, over all months.
    pub async fn used(&self, workspace: i64) -> i64 {
        self.sum("used", format!("ai_usage WHERE workspace_id = {workspace}")).await
    }

    /// Returns the number of open reservations.
    pub async fn held(&self) -> i64 {
        self.count_rows("ai_reservations").await
    }
}

/// Returns a completion with this content.
pub fn chat(content: &str) -> ResponseTemplate {
    choice(
        json!({ "index": 0, "message": { "role": "assistant", "content": content, "refusal": null }, "logprobs": null, "finish_reason": "stop" }),
    )
}

pub fn choice(choice: Value) -> ResponseTemplate {
    completion(json!([choice]))
}

pub fn completion(choices: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({
        "id": "chatcmpl-B9MBs8", "object": "chat.completion", "created": 1_741_569_952, "model": "writer-2026-01-01",
        "choices": choices,
        "usage": { "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29 },
    }))
}

/// Returns a completion with these captions.
pub fn captions(list: &[&str]) -> ResponseTemplate {
    chat(&json!({ "captions": list }).to_string())
}

pub fn error(status: u16, code: impl Into<Value>, message: &str) -> ResponseTemplate {
    error_about(status, code, message, Value::Null)
}

pub fn error_about(status: u16, code: impl Into<Value>, message: &str, param: Value) -> ResponseTemplate {
    let code: Value = code.into();
    ResponseTemplate::new(status).set_body_json(
        json!({ "error": { "message": message, "type": "invalid_request_error", "param": param, "code": code } }),
    )
}

pub fn image_response(bytes: &[u8]) -> ResponseTemplate {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    ResponseTemplate::new(200).set_body_json(json!({ "created": 1_713_833_628, "data": [{ "b64_json": text }] }))
}

pub fn image_url_response(url: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "created": 1_713_833_628, "data": [{ "url": url }] }))
}
