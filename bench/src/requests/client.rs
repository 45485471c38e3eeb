//! Clients that create posts. Each has one connection, and sends one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{Months, SecondsFormat};
use crier_base::clock::Clock;
use crier_base::random;
use futures::future::try_join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::external_runtime::ExternalRuntime;
use super::super::figure::Throughput;
use super::super::service::Service;
use super::super::{BenchError, Result, fail, io};
use crate::args::RequestMeasurement;

/// The post that is created with each request.
#[derive(Clone)]
pub struct PostRequest {
    path: String,
    key: SecretString,
    body: Bytes,
}

impl PostRequest {
    pub fn of(kind: RequestMeasurement, service: &Service) -> Self {
        let mut body = json!({ "content": "Fresh bread from seven o'clock, as every morning." });
        if kind == RequestMeasurement::Scheduled {
            let next_year = Clock::system().now() + Months::new(12);
            body["schedule_type"] = json!("scheduled");
            body["scheduled_at"] = json!(next_year.to_rfc3339_opts(SecondsFormat::Secs, true));
            body["accounts"] = json!([service.account]);
        }
        let path = format!("/api/public/v1/brands/{}/posts", service.brand);
        Self { path, key: service.key.clone(), body: body.to_string().into() }
    }

    async fn send(&self, connection: &mut Connection) -> Result {
        let request = Request::post(&self.path)
            .header(AUTHORIZATION, format!("Bearer {}", self.key.expose_secret()))
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", format!("{:016x}", random::u64()));
        match connection.send(request, vec![self.body.clone()]).await? {
            (StatusCode::CREATED, _) => Ok(()),
            (status, response) => fail(format!("the API answered {status}: {}", String::from_utf8_lossy(&response))),
        }
    }
}

/// How long requests are sent before they count, and how long they count.
#[derive(Clone, Copy)]
pub struct Window {
    warm_up: Duration,
    length: Duration,
}

impl Window {
    pub fn of(warm_up_seconds: u32, seconds: u32) -> Self {
        let duration = |seconds: u32| Duration::from_secs(seconds.into());
        Self { warm_up: duration(warm_up_seconds), length: duration(seconds) }
    }
}

/// The posts whose requests started before the end of the window and had a response after its start.
pub struct Created {
    pub rate: Throughput,
    pub times: Vec<Duration>,
}

pub struct Clients {
    external: ExternalRuntime,
    connections: Vec<Connection>,
}

impl Clients {
    pub async fn connect(address: SocketAddr, connections: usize) -> std::result::Result<Self, BenchError> {
        let external = ExternalRuntime::start()?;
        let opening = try_join_all((0..connections).map(move |_| Connection::open(address)));
        // On the clients' thread, where the tasks of the connections stay.
        let connections = external.runtime.spawn(opening).await.map_err(client_failed)??;
        Ok(Self { external, connections })
    }

    /// Sends the next request of each client after the response to its last one.
    pub async fn send_continuously(
        self,
        post: &PostRequest,
        window: Window,
    ) -> std::result::Result<Created, BenchError> {
        let from = Instant::now() + window.warm_up;
        let until = from + window.length;
        let client = |connection, post| send_until(connection, post, from, until);
        let times = self.run_clients(post, client).await?;
        // Includes the time until the last response.
        let rate = Throughput { count: times.len(), took: from.elapsed() };
        Ok(Created { rate, times })
    }

    /// Starts a request at each interval, without waiting for earlier responses. Returns the time from each intended start
    /// to the response. If all clients wait for responses, a request waits for a client, which counts.
    pub async fn send_at_rate(
        self,
        post: &PostRequest,
        interval: Duration,
        window: Window,
    ) -> std::result::Result<Vec<Duration>, BenchError> {
        let (start_times, starts) = mpsc::unbounded_channel();
        let began = Instant::now();
        let (from, until) = (began + window.warm_up, began + window.warm_up + window.length);
        // A thread sleeps more exactly than a runtime, whose timers have milliseconds. It also ends with the clients.
        std::thread::Builder::new()
            .name("request-starts".to_owned())
            .spawn(move || schedule_starts(&start_times, began, interval, until))
            .map_err(|error| io("the thread that begins requests", error))?;
        let starts = Arc::new(Mutex::new(starts));
        let client = |connection, post| send_at_starts(connection, post, starts.clone(), from);
        self.run_clients(post, client).await
    }

    /// Runs a client on each connection, and returns the times of all clients.
    async fn run_clients<F>(
        self,
        post: &PostRequest,
        client: impl Fn(Connection, PostRequest) -> F,
    ) -> std::result::Result<Vec<Duration>, BenchError>
    where
        F: Future<Output = std::result::Result<Vec<Duration>, BenchError>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for connection in self.connections {
            tasks.spawn_on(client(connection, post.clone()), &self.external.runtime);
        }
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done.map_err(client_failed)??);
        }
        Ok(times)
    }
}

fn client_failed(error: tokio::task::JoinError) -> BenchError {
    BenchError::Failed(format!("a client: {error}"))
}

async fn send_until(
    mut connection: Connection,
    post: PostRequest,
    from: Instant,
    until: Instant,
) -> std::result::Result<Vec<Duration>, BenchError> {
    let mut times = Vec::new();
    let mut sent_at = Instant::now();
    while sent_at < until {
        post.send(&mut connection).await?;
        let responded_at = Instant::now();
        if responded_at >= from {
            times.push(responded_at - sent_at);
        }
        sent_at = responded_at;
    }
    Ok(times)
}

/// Sends a request at each start that no other client takes.
async fn send_at_starts(
    mut connection: Connection,
    post: PostRequest,
    starts: Arc<Mutex<mpsc::UnboundedReceiver<Instant>>>,
    from: Instant,
) -> std::result::Result<Vec<Duration>, BenchError> {
    let mut times = Vec::new();
    loop {
        let Some(start) = starts.lock().await.recv().await else { return Ok(times) };
        post.send(&mut connection).await?;
        if start >= from {
            times.push(start.elapsed());
        }
    }
}

fn schedule_starts(start_times: &mpsc::UnboundedSender<Instant>, began: Instant, interval: Duration, until: Instant) {
    let mut next = began;
    while next < until {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if start_times.send(next).is_err() {
            return;
        }
        next += interval;
    }
}
