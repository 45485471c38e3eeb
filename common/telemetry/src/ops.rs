//! The ops server: `/healthz`, `/readyz` and `/metrics`. Each process has one, on its own address.
//!
//! It is separate from the API, so that it responds while the API is busy, and is available in processes without an
//! API. It requires no key, because the default address is only reachable from the same machine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::metrics;

/// Maximum time to receive the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for a request and its response, so that slow readers do not hold a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections; others wait in the accept queue.
const MAX_CONNECTIONS: usize = 64;
/// Interval of the upkeep of histograms, which a scrape also does.
const UPKEEP: Duration = Duration::from_secs(5);

/// Whether the process can work, by part (`database`, `queue`). Clones share the state.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    draining: bool,
    /// For each part, why it is missing; `None` if it is ready.
    parts: BTreeMap<&'static str, Option<String>>,
    /// The degraded parts, with the reason.
    degraded: BTreeMap<&'static str, String>,
}

impl Readiness {
    /// Creates the state with the required parts. Each is missing until [`Readiness::ready`] is called.
    pub fn new(parts: impl IntoIterator<Item = &'static str>) -> Self {
        let parts = parts.into_iter().map(|part| (part, Some("not reached yet".to_owned()))).collect();
        Self(Arc::new(Mutex::new(State { draining: false, parts, degraded: BTreeMap::new() })))
    }

    /// Marks a part as ready.
    pub fn ready(&self, part: &'static str) {
        self.lock().parts.insert(part, None);
    }

    /// Marks a part as missing. `why` is public, so it must not contain a password.
    pub fn missing(&self, part: &'static str, why: impl Into<String>) {
        self.lock().parts.insert(part, Some(why.into()));
    }

    /// Marks a part as degraded, for the reason `why`, which is public; `None` if it works completely. The process
    /// stays ready.
    pub fn set_degraded(&self, part: &'static str, why: Option<String>) {
        let mut state = self.lock();
        match why {
            Some(why) => state.degraded.insert(part, why),
            None => state.degraded.remove(part),
        };
    }

    /// Marks the process as draining. This cannot be undone.
    pub fn drain(&self) {
        self.lock().draining = true;
    }

    pub fn is_ready(&self) -> bool {
        let state = self.lock();
        !state.draining && state.parts.values().all(Option::is_none)
    }

    fn body(&self) -> (StatusCode, String) {
        let state = self.lock();
        let missing: BTreeMap<_, _> =
            state.parts.iter().filter_map(|(part, why)| Some((part, why.as_ref()?))).collect();
        let (status, word) = match (state.draining, missing.is_empty()) {
            (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            (false, true) => (StatusCode::OK, "ready"),
        };
        let mut body = json!({ "status": word, "draining": state.draining, "missing": missing });
        if !state.degraded.is_empty() {
            body["degraded"] = json!(state.degraded);
        }
        (status, body.to_string())
    }

    /// The state is consistent after every statement, so a poisoned lock is safe to use.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server, bound to its address.
#[derive(Debug)]
pub struct Ops {
    listener: TcpListener,
    readiness: Readiness,
}

impl Ops {
    pub fn new(listener: TcpListener, readiness: Readiness) -> Self {
        Self { listener, readiness }
    }

    /// Returns the bound address, with the actual port if 0 was configured.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled. Cancel it last, so that monitoring continues while the process drains.
    pub async fn serve(self, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut upkeep = interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let accept = async {
                // The semaphore is never closed.
                let slot = Arc::clone(&slots).acquire_owned().await.ok();
                (self.listener.accept().await, slot)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                _ = upkeep.tick() => metrics::upkeep(),
                (accepted, slot) = accept => match accepted {
                    Ok((stream, _)) => {
                        let readiness = self.readiness.clone();
                        tokio::spawn(async move {
                            // An error means that the client disconnected or was too slow.
                            let _ = timeout(CONNECTION_TIMEOUT, connection(stream, readiness)).await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the ops server failed to accept a connection");
                        // Most likely there are no file descriptors, so an immediate retry would be a busy loop.
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }
}

/// Serves one request, then closes the connection: scrapes are rare, and clients must not hold connections.
async fn connection(stream: TcpStream, readiness: Readiness) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let response = respond(&request, &readiness);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 * 1024)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn respond<B>(request: &Request<B>, readiness: &Readiness) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let (status, content_type, body) = match request.uri().path() {
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is supported\n".to_owned())
        }
        "/healthz" => (StatusCode::OK, TEXT, "alive\n".to_owned()),
        "/readyz" => {
            let (status, body) = readiness.body();
            (status, "application/json", body)
        }
        "/metrics" => (StatusCode::OK, metrics::CONTENT_TYPE, metrics::render()),
        _ => (StatusCode::NOT_FOUND, TEXT, "the paths are /healthz, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests connect to the server")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Server {
        addr: SocketAddr,
        readiness: Readiness,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    async fn start() -> Server {
        let readiness = Readiness::new(["database", "queue"]);
        let ops = Ops::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), readiness.clone());
        let (addr, stop) = (ops.local_addr().unwrap(), CancellationToken::new());
        Server { addr, readiness, task: tokio::spawn(ops.serve(stop.clone())), stop }
    }

    /// Sends a request; returns the whole response, head and body.
    async fn send(addr: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn readyz_reports_missing_parts_and_draining() {
        let Server { addr, readiness, stop, task } = start().await;
        assert!(send(addr, "GET /healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
        readiness.ready("database");
        let response = send(addr, "GET /readyz").await;
        assert!(
            response.starts_with("HTTP/1.1 503 ") && response.contains("content-type: application/json"),
            "{response}"
        );
        assert!(
            response.ends_with(r#"{"status":"not_ready","draining":false,"missing":{"queue":"not reached yet"}}"#),
            "{response}"
        );
        readiness.ready("queue");
        assert!(readiness.is_ready());
        let response = send(addr, "GET /readyz").await;
        assert!(
            response.starts_with("HTTP/1.1 200 ")
                && response.ends_with(r#"{"status":"ready","draining":false,"missing":{}}"#),
            "{response}"
        );
        readiness.missing("queue", "connection refused");
        assert!(send(addr, "GET /readyz").await.contains("connection refused"));
        readiness.ready("queue");
        readiness.drain();
        let response = send(addr, "GET /readyz").await;
        assert!(response.starts_with("HTTP/1.1 503 ") && response.contains(r#""status":"draining""#), "{response}");
        assert!(send(addr, "GET /healthz").await.starts_with("HTTP/1.1 200 "), "alive while it drains");
        stop.cancel();
        task.await.unwrap();
        assert!(TcpStream::connect(addr).await.is_err());
    }

    #[tokio::test]
    async fn only_health_and_metrics_paths_are_served() {
        let Server { addr, .. } = start().await;
        let response = send(addr, "GET /metrics?x=1").await;
        assert!(
            response.starts_with("HTTP/1.1 200 ") && response.contains("content-type: text/plain; version=0.0.4"),
            "{response}"
        );
        assert!(send(addr, "GET /").await.starts_with("HTTP/1.1 404 "));
        assert!(send(addr, "POST /metrics").await.starts_with("HTTP/1.1 405 "));
        assert!(send(addr, "HEAD /healthz").await.ends_with("\r\n\r\n"), "no body to HEAD");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_clients_cannot_block_the_server() {
        let Server { addr, .. } = start().await;
        let mut slow = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
            slow.push(stream);
        }
        assert!(send(addr, "GET /healthz").await.starts_with("HTTP/1.1 200 "), "waits until the slow ones are closed");
        let mut rest = Vec::new();
        slow[0].read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "the slow one got a response");
    }
}
