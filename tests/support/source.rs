//! A web server from which images are imported. Its responses are raw bytes, which need not be valid HTTP.

#![allow(dead_code, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fake_platform::Gate;

/// The response to a request. The connection is closed afterwards.
#[derive(Clone)]
pub enum SourceResponse {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes once the test opens the gate.
    SendAfterGate(Arc<Gate>, Vec<u8>),
    /// Sends these bytes and never closes the connection.
    Stall(Vec<u8>),
    /// Sends these bytes, and closes the connection once the test opens the gate.
    CloseAfterGate(Arc<Gate>, Vec<u8>),
    /// Sends half of these bytes, and then one byte every 100 ms.
    Drip(Vec<u8>),
}

/// Selects the response by path.
type Rule = Box<dyn Fn(&str) -> SourceResponse + Send>;

#[derive(Default)]
struct State {
    /// Used in order. The last response is repeated.
    responses: Mutex<VecDeque<SourceResponse>>,
    /// Takes precedence over `responses`.
    rule: Mutex<Option<Rule>>,
    received: Mutex<Vec<String>>,
}

impl State {
    fn next(&self) -> Option<SourceResponse> {
        let mut responses = self.responses.lock().expect("no panic");
        if responses.len() > 1 { responses.pop_front() } else { responses.front().cloned() }
    }
}

pub struct Source {
    port: u16,
    state: Arc<State>,
}

impl Source {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (port, state) = (listener.local_addr().expect("an address").port(), Arc::<State>::default());
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone()));
            }
        });
        Self { port, state }
    }

    /// Starts a server with these responses.
    pub async fn with_responses(responses: impl IntoIterator<Item = SourceResponse>) -> Self {
        let this = Self::start().await;
        this.set_responses(responses);
        this
    }

    /// Starts a server that always sends this response.
    pub async fn with(response: Vec<u8>) -> Self {
        Self::with_responses([SourceResponse::Send(response)]).await
    }

    /// Replaces the responses.
    pub fn set_responses(&self, responses: impl IntoIterator<Item = SourceResponse>) {
        *self.state.responses.lock().expect("no panic") = responses.into_iter().collect();
    }

    /// Sets the response of each path.
    pub fn rule(&self, rule: impl Fn(&str) -> SourceResponse + Send + 'static) {
        *self.state.rule.lock().expect("no panic") = Some(Box::new(rule));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the heads of the requests, in order.
    pub fn request_heads(&self) -> Vec<String> {
        self.state.received.lock().expect("no panic").clone()
    }

    /// Returns the requested paths.
    pub fn paths(&self) -> Vec<String> {
        self.request_heads().iter().map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            // Not HTTP, or disconnected.
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    state.received.lock().expect("no panic").push(head);
    let ruled = state.rule.lock().expect("no panic").as_ref().map(|rule| rule(&path));
    match ruled.or_else(|| state.next()) {
        Some(SourceResponse::Send(bytes)) => drop(stream.write_all(&bytes).await),
        Some(SourceResponse::SendAfterGate(gate, bytes)) => {
            gate.enter().await;
            let _ = stream.write_all(&bytes).await;
        }
        Some(SourceResponse::Stall(bytes)) => {
            let _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
        Some(SourceResponse::CloseAfterGate(gate, bytes)) => {
            let _ = stream.write_all(&bytes).await;
            gate.enter().await;
        }
        Some(SourceResponse::Drip(bytes)) => {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            let mut sent = stream.write_all(first).await;
            for byte in rest {
                if sent.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                sent = stream.write_all(&[*byte]).await;
            }
        }
        None => {}
    }
    let _ = stream.shutdown().await;
}

/// Returns a complete response with a body.
pub fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn ok(body: &[u8]) -> Vec<u8> {
    response("200 OK", "Content-Type: image/png\r\n", body)
}

pub fn status(status: &str) -> Vec<u8> {
    response(status, "", b"no")
}

pub fn redirect(to: &str) -> Vec<u8> {
    response("302 Found", &format!("Location: {to}\r\n"), b"")
}

/// Returns a chunked response, which has no content length.
pub fn chunked(body: &[u8]) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".to_vec();
    for chunk in body.chunks(64 << 10) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Returns a response with a gzip-compressed body.
pub fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(body).expect("it is packed");
    response("200 OK", "Content-Encoding: gzip\r\n", &packed.finish().expect("it is packed"))
}

/// Returns a response that announces more bytes than it contains.
pub fn cut_off(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), &body[..body.len() / 2]].concat()
}
