//! Clients that create brands. Each has one connection, and sends one request at a time.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::{BenchError, fail};
use super::arrivals::name_of;
use super::tenant;

/// A message that was accepted.
#[derive(Debug)]
pub struct SentMessage {
    pub message: u32,
    pub sent_at: Instant,
    pub responded_at: Instant,
}

/// The number of clients, and the interval between the requests of all clients. Zero: no pauses.
#[derive(Clone, Copy)]
pub struct Rate {
    pub clients: u32,
    pub interval: Duration,
}

/// Creates a brand for each message, over connections that are opened before the first request. Each key is of another
/// tenant, and serves the next [`tenant::MESSAGES`] messages; message 0 has the first key.
pub async fn send(
    runtime: &Handle,
    address: SocketAddr,
    keys: &[SecretString],
    messages: Range<u32>,
    rate: Rate,
) -> Result<Vec<SentMessage>, BenchError> {
    let clients = rate.clients.min(messages.end - messages.start);
    let begin = Arc::new(Barrier::new(usize::try_from(clients).unwrap_or(usize::MAX)));
    let next = Arc::new(AtomicU32::new(messages.start));
    let keys: Arc<[SecretString]> = keys.into();
    // Makes idempotency keys unique, so that no response of an earlier run is replayed.
    let run = crier_base::random::u64();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (begin, next, keys, messages) = (begin.clone(), next.clone(), keys.clone(), messages.clone());
        let client = async move {
            let mut connection = Connection::open(address).await?;
            begin.wait().await;
            let (began, mut sent) = (Instant::now(), Vec::new());
            loop {
                let message = next.fetch_add(1, Ordering::Relaxed);
                if message >= messages.end {
                    return Ok::<_, BenchError>(sent);
                }
                let due = began + rate.interval * (message - messages.start);
                tokio::time::sleep_until(due.into()).await;
                let key = &keys[(message / tenant::MESSAGES) as usize % keys.len()];
                sent.push(create_brand(&mut connection, key, run, message).await?);
            }
        };
        tasks.spawn_on(client, runtime);
    }
    let mut sent = Vec::with_capacity(messages.len());
    while let Some(done) = tasks.join_next().await {
        sent.extend(done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??);
    }
    Ok(sent)
}

async fn create_brand(
    connection: &mut Connection,
    key: &SecretString,
    run: u64,
    message: u32,
) -> Result<SentMessage, BenchError> {
    let request = Request::post("/api/public/v1/brands")
        .header(AUTHORIZATION, format!("Bearer {}", key.expose_secret()))
        .header("Idempotency-Key", format!("{run:016x}-{message}"));
    let body = json!({ "name": name_of(message) });
    let sent_at = Instant::now();
    let (status, response) = connection.send_json(request, &body).await?;
    if status == StatusCode::CREATED {
        return Ok(SentMessage { message, sent_at, responded_at: Instant::now() });
    }
    fail(format!("the API answered {status}: {}", String::from_utf8_lossy(&response)))
}
