//! A web server that returns a configured response for each path, and records the requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The response of a path.
#[derive(Clone)]
pub enum FeedResponse {
    /// Status, headers and body.
    Full(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Never responds.
    Never,
    /// Sends another response once the gate has a permit.
    Held(Arc<Semaphore>, Box<FeedResponse>),
}

impl FeedResponse {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Full(200, Vec::new(), body.into())
    }

    pub fn status(status: u16) -> Self {
        Self::Full(status, Vec::new(), Vec::new())
    }

    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::Full(status, vec![("Location", location.into())], Vec::new())
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Full(_, headers, _) = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

#[derive(Default)]
struct State {
    responses: HashMap<String, FeedResponse>,
    /// The raw head of each request.
    requests: Vec<String>,
}

#[derive(Clone)]
pub struct Server {
    pub base: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, serving.clone()));
            }
        });
        Self { base, state }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sets the response of a path; all other paths return 404.
    pub fn set_response(&self, path: &str, response: FeedResponse) {
        self.state.lock().unwrap().responses.insert(path.to_owned(), response);
    }

    /// Returns the heads of the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Returns the number of requests since the last call of `take_requests` or `paths`.
    pub fn request_count(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }

    /// Returns the paths requested since the last call.
    pub fn paths(&self) -> Vec<String> {
        self.take_requests().iter().map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

async fn respond(mut stream: TcpStream, state: Arc<Mutex<State>>) -> Option<()> {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    while !got.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        got.extend_from_slice(&buffer[..read]);
    }
    let head = String::from_utf8_lossy(&got).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    let mut response = {
        let mut state = state.lock().unwrap();
        state.requests.push(head);
        state.responses.get(&path).cloned().unwrap_or_else(|| FeedResponse::status(404))
    };
    while let FeedResponse::Held(gate, then) = response {
        gate.acquire().await.ok()?.forget();
        response = *then;
    }
    let FeedResponse::Full(status, headers, body) = response else { return std::future::pending().await };
    let mut out = format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        out += &format!("{name}: {value}\r\n");
    }
    stream.write_all((out + "\r\n").as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    stream.shutdown().await.ok()
}

/// Returns a feed with these articles: guid and title.
pub fn rss(items: &[(&str, &str)]) -> String {
    let items: String = items
        .iter()
        .map(|(guid, title)| {
            format!("<item><guid isPermaLink=\"false\">{guid}</guid><title>{title}</title><link>/{guid}</link></item>")
        })
        .collect();
    format!("<?xml version=\"1.0\"?><rss version=\"2.0\"><channel><title>Its own title</title>{items}</channel></rss>")
}

/// Returns a page that links to a feed.
pub fn page(href: &str) -> String {
    format!("<!doctype html><html><head><link rel=\"alternate\" type=\"application/rss+xml\" href=\"{href}\"></head>")
}
