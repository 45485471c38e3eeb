//! Clients of an API: each has one connection, and one request at a time on it.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::{CommandError, refused};
use super::arrivals::name_of;

/// A message that was accepted.
#[derive(Debug)]
pub struct Sent {
    pub message: u32,
    pub at: Instant,
    pub answered: Instant,
}

/// How many clients send, and how often they begin one together; at once, where that is zero.
#[derive(Clone, Copy)]
pub struct Rate {
    pub clients: u32,
    pub every: Duration,
}

/// Makes a brand for each of the messages, over connections that are there when it begins.
pub async fn send(
    runtime: &Handle,
    address: SocketAddr,
    key: &SecretString,
    messages: Range<u32>,
    rate: Rate,
) -> Result<Vec<Sent>, CommandError> {
    let clients = rate.clients.min(messages.end - messages.start);
    let begin = Arc::new(Barrier::new(usize::try_from(clients).unwrap_or(usize::MAX)));
    let next = Arc::new(AtomicU32::new(messages.start));
    // So that no answer of an earlier run is repeated.
    let run = crier_common::random::u64();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (begin, next, key, messages) = (begin.clone(), next.clone(), key.clone(), messages.clone());
        let client = async move {
            let mut connection = Connection::open(address).await?;
            begin.wait().await;
            let (began, mut sent) = (Instant::now(), Vec::new());
            loop {
                let message = next.fetch_add(1, Ordering::Relaxed);
                if message >= messages.end {
                    return Ok::<_, CommandError>(sent);
                }
                let due = began + rate.every * (message - messages.start);
                tokio::time::sleep_until(due.into()).await;
                sent.push(connection.make_brand(&key, run, message).await?);
            }
        };
        tasks.spawn_on(client, runtime);
    }
    let mut sent = Vec::with_capacity(messages.len());
    while let Some(done) = tasks.join_next().await {
        sent.extend(done.map_err(|error| CommandError::Refused(format!("a client: {error}")))??);
    }
    Ok(sent)
}

pub struct Connection {
    requests: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Self, CommandError> {
        let failed = |error: &dyn std::fmt::Display| CommandError::Refused(format!("a client, at {address}: {error}"));
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // Ends when `requests` is dropped; what goes wrong is told to the request.
        tokio::spawn(connection);
        Ok(Self { requests, address })
    }

    async fn make_brand(&mut self, key: &SecretString, run: u64, message: u32) -> Result<Sent, CommandError> {
        let request = Request::post("/api/public/v1/brands")
            .header(AUTHORIZATION, format!("Bearer {}", key.expose_secret()))
            .header("Idempotency-Key", format!("{run:016x}-{message}"));
        let body = json!({ "name": name_of(message) });
        let at = Instant::now();
        let (status, answer) = self.exchange(request, &body).await?;
        if status == StatusCode::CREATED {
            return Ok(Sent { message, at, answered: Instant::now() });
        }
        refused(format!("the API answered {status}: {}", String::from_utf8_lossy(&answer)))
    }

    /// One request that is answered with 200, and its answer.
    pub async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Result<Value, CommandError> {
        let (status, answer) = self.exchange(Request::builder().method(method).uri(path), body).await?;
        match serde_json::from_slice(&answer) {
            Ok(answer) if status == StatusCode::OK => Ok(answer),
            _ => refused(format!("{path} answered {status}: {}", String::from_utf8_lossy(&answer))),
        }
    }

    async fn exchange(
        &mut self,
        request: http::request::Builder,
        body: &Value,
    ) -> Result<(StatusCode, Bytes), CommandError> {
        let failed = |error: &dyn std::fmt::Display| CommandError::Refused(format!("a request: {error}"));
        let request = request.header(HOST, self.address.to_string()).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(body.to_string())).map_err(|error| failed(&error))?;
        self.requests.ready().await.map_err(|error| failed(&error))?;
        let response = self.requests.send_request(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let answer = response.into_body().collect().await.map_err(|error| failed(&error))?;
        Ok((status, answer.to_bytes()))
    }
}
