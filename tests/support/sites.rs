//! Scripted WordPress sites, which accept a post, hold it, or reject it for a while. They do not deduplicate posts, so
//! that tests can detect duplicates. They run on their own thread, so that a test that blocks does not delay them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use crier_base::clock::Clock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The behavior for a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostBehavior {
    Accept,
    /// Accepts the post after 200 ms, so that some requests are always in flight.
    AcceptSlowly,
    /// Accepts the post, and responds when released.
    AcceptAndHold,
    /// Accepts the post and responds when released. Does not accept it if the client disconnects first.
    Hold,
    /// Never accepts the post, and never responds.
    Lose,
    /// Rejects the post, with a `Retry-After` of this many seconds.
    RejectWithRetryAfter(u32),
}

/// The recorded text of an uploaded image.
pub const IMAGE: &str = "(an image)";

const SLOWLY: Duration = Duration::from_millis(200);

/// A post on a site, or a request to create one.
#[derive(Clone, Debug)]
pub struct RecordedPost {
    pub text: String,
    pub at: DateTime<Utc>,
    site: String,
    slug: String,
}

type Rule = Box<dyn Fn(&str, usize) -> PostBehavior + Send>;

struct State {
    rule: Rule,
    calls: Vec<RecordedPost>,
    posts: Vec<RecordedPost>,
    held: Vec<String>,
}

struct Shared {
    state: Mutex<State>,
    released: watch::Sender<u64>,
}

pub struct Sites {
    base: String,
    shared: Arc<Shared>,
    /// Ends the thread when dropped.
    _open: watch::Sender<()>,
}

impl Sites {
    /// Starts sites that accept every post.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let state = State {
            rule: Box::new(|_, _| PostBehavior::Accept),
            calls: Vec::new(),
            posts: Vec::new(),
            held: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), released: watch::Sender::new(0) });
        let (open, mut closed) = watch::channel(());
        let serving = shared.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! { () = serve(listener, serving) => {}, _ = closed.changed() => {} }
            });
        });
        Self { base, shared, _open: open }
    }

    /// Returns the URL of a site.
    pub fn url(&self, n: usize) -> String {
        format!("{}/s{n}", self.base)
    }

    /// Sets the behavior, by the text of the post and the number of its request, from 1.
    pub fn set_behavior(&self, rule: impl Fn(&str, usize) -> PostBehavior + Send + 'static) {
        self.state().rule = Box::new(rule);
    }

    /// Accepts every post again and responds to held requests.
    pub fn release(&self) {
        self.set_behavior(|_, _| PostBehavior::Accept);
        self.shared.released.send_modify(|n| *n += 1);
    }

    /// Returns the posts on all sites.
    pub fn posts(&self) -> Vec<RecordedPost> {
        self.state().posts.clone()
    }

    /// Returns the number of posts with this text.
    pub fn count(&self, text: &str) -> usize {
        self.state().posts.iter().filter(|sent| sent.text.contains(text)).count()
    }

    /// Returns every request to create a post with this text.
    pub fn calls(&self, text: &str) -> Vec<RecordedPost> {
        self.state().calls.iter().filter(|sent| sent.text.contains(text)).cloned().collect()
    }

    /// Returns the number of requests with this text that wait for a response.
    pub fn held(&self, text: &str) -> usize {
        self.state().held.iter().filter(|held| held.contains(text)).count()
    }

    /// Asserts that each text was posted exactly once.
    pub fn assert_each_once(&self, texts: &[String]) {
        for text in texts {
            assert_eq!(self.count(text), 1, "{text}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move { respond(stream, &shared).await });
    }
}

/// Handles one request per connection. Returns `None` if the client disconnected.
async fn respond(mut stream: TcpStream, shared: &Shared) -> Option<()> {
    let (method, path, body) = request(&mut stream).await?;
    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
    let (site, route) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let (status, more, body) = match (method.as_str(), route) {
        ("POST", "wp-json/wp/v2/posts") => publish(&mut stream, shared, site, &body).await?,
        ("GET", "wp-json/wp/v2/posts") => {
            let slug = query.split('&').find_map(|pair| pair.strip_prefix("slug=")).unwrap_or_default();
            let state = shared.state();
            let found: Vec<Value> =
                state.posts.iter().filter(|p| p.site == site && p.slug == slug).map(record).collect();
            (200, String::new(), Value::from(found))
        }
        // An uploaded image is handled like a post with this text.
        ("POST", "wp-json/wp/v2/media") => {
            publish(&mut stream, shared, site, &json!({ "title": IMAGE, "slug": IMAGE })).await?
        }
        ("GET", "wp-json/wp/v2/media" | "wp-json/wp/v2/comments") => (200, String::new(), json!([])),
        ("GET", "wp-json/wp/v2/users/me") => {
            (200, String::new(), json!({ "id": 1, "capabilities": { "publish_posts": true } }))
        }
        _ => {
            let link = format!("Link: </{site}/wp-json/>; rel=\"https://api.w.org/\"\r\n");
            (200, link, json!({ "name": site }))
        }
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{more}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

async fn publish(stream: &mut TcpStream, shared: &Shared, site: &str, body: &Value) -> Option<(u16, String, Value)> {
    let word = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let text = format!("{} {}", word("title"), word("content"));
    let sent =
        RecordedPost { text: text.clone(), at: Clock::system().now(), site: site.to_owned(), slug: word("slug") };
    let mut released = shared.released.subscribe();
    released.mark_unchanged();
    let then = {
        let mut state = shared.state();
        state.calls.push(sent.clone());
        let times = state.calls.iter().filter(|call| call.text == text).count();
        let then = (state.rule)(&text, times);
        if matches!(then, PostBehavior::Accept | PostBehavior::AcceptAndHold) {
            state.posts.push(sent.clone());
        }
        if matches!(then, PostBehavior::Hold | PostBehavior::AcceptAndHold | PostBehavior::Lose) {
            state.held.push(text.clone());
        }
        then
    };
    if let PostBehavior::RejectWithRetryAfter(seconds) = then {
        let rejection = json!({ "code": "too_many", "message": "Too many requests.", "data": { "status": 429 } });
        return Some((429, format!("Retry-After: {seconds}\r\n"), rejection));
    }
    if then != PostBehavior::Accept {
        let has_response = tokio::select! {
            _ = wait_for_disconnect(stream) => false,
            () = tokio::time::sleep(SLOWLY), if then == PostBehavior::AcceptSlowly => true,
            changed = released.changed(), if matches!(then, PostBehavior::Hold | PostBehavior::AcceptAndHold) => changed.is_ok(),
        };
        let mut state = shared.state();
        if let Some(at) = state.held.iter().position(|held| *held == text) {
            state.held.swap_remove(at);
        }
        if !has_response {
            return None;
        }
        if matches!(then, PostBehavior::Hold | PostBehavior::AcceptSlowly) {
            state.posts.push(RecordedPost { at: Clock::system().now(), ..sent.clone() });
        }
    }
    Some((201, String::new(), record(&sent)))
}

fn record(post: &RecordedPost) -> Value {
    json!({ "id": 1, "link": format!("https://{}.example/{}/", post.site, post.slug), "slug": post.slug })
}

/// Waits until the client disconnects.
async fn wait_for_disconnect(stream: &mut TcpStream) {
    while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
}

/// Reads the method, the path and the body of a request.
async fn request(stream: &mut TcpStream) -> Option<(String, String, Value)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let (head, body) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 4..]);
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                let mut words = head.split(' ');
                let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
                return Some((method, path, serde_json::from_slice(body).unwrap_or(Value::Null)));
            }
        }
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
}
