//! A scripted server for tests, and a resolver with scripted results.

#![allow(clippy::unwrap_used, reason = "a test's own server")]

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::resolver::Lookup;

/// A listening server and its number of accepted connections.
pub struct TestServer {
    pub port: u16,
    accepted: Arc<AtomicUsize>,
}

impl TestServer {
    /// Runs `handle` on each connection.
    pub async fn run<F>(handle: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, accepted) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handle(stream));
            }
        });
        Self { port, accepted }
    }

    /// Reads one request from each connection, writes `response`, and closes the connection.
    pub async fn responding(response: impl Into<Vec<u8>>) -> Self {
        let response: Arc<[u8]> = response.into().into();
        Self::run(move |mut stream| {
            let response = response.clone();
            async move {
                read_request(&mut stream).await;
                let _ = stream.write_all(&response).await;
            }
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Reads a request to the end of its body and returns it as received.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(n @ 1..) => got.extend_from_slice(&buffer[..n]),
            _ => return text,
        }
    }
}

/// A lookup that returns the results in order, and then always the last one. `None` means that the name is unknown.
pub struct ScriptedLookup(Mutex<VecDeque<Option<Vec<IpAddr>>>>);

impl ScriptedLookup {
    /// Parses one result per word: addresses separated by `,`, or `-` for an unknown name.
    pub fn of(results: &str) -> Arc<Self> {
        let parse = |result: &str| (result != "-").then(|| result.split(',').map(|ip| ip.parse().unwrap()).collect());
        Arc::new(Self(Mutex::new(results.split_whitespace().map(parse).collect())))
    }
}

#[async_trait]
impl Lookup for ScriptedLookup {
    async fn lookup(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        let mut results = self.0.lock().unwrap();
        let result = if results.len() > 1 { results.pop_front().unwrap() } else { results[0].clone() };
        result.ok_or_else(|| io::Error::other("unknown name"))
    }
}

/// A lookup that never returns.
pub struct PendingLookup;

#[async_trait]
impl Lookup for PendingLookup {
    async fn lookup(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        std::future::pending().await
    }
}
