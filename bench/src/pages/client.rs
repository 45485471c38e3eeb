//! Visitors. Each has one connection, and sends one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH, USER_AGENT};
use http::request::Builder;
use http::{HeaderValue, Request, Response, StatusCode};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::external_runtime::ExternalRuntime;
use super::super::{BenchError, fail};

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const BOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

/// The requests of visitors: the paths in order, repeated.
#[derive(Clone)]
pub struct VisitRequest {
    pub paths: Arc<[String]>,
    /// The ETag of the page that the visitor already has.
    pub known_etag: Option<HeaderValue>,
    /// Whether the visitor is a bot, whose visits are not counted.
    pub is_bot: bool,
}

impl VisitRequest {
    pub fn of(path: &str) -> Self {
        Self { paths: Arc::new([path.to_owned()]), known_etag: None, is_bot: false }
    }

    fn request(&self, number: usize) -> Builder {
        let path = &self.paths[number % self.paths.len()];
        let agent = if self.is_bot { BOT } else { BROWSER };
        let request = Request::get(path).header(USER_AGENT, agent).header(ACCEPT_ENCODING, "gzip, deflate, br");
        match &self.known_etag {
            Some(tag) => request.header(IF_NONE_MATCH, tag),
            None => request,
        }
    }

    fn status(&self) -> StatusCode {
        if self.known_etag.is_some() { StatusCode::NOT_MODIFIED } else { StatusCode::OK }
    }
}

/// The time of all visits together, and of each.
pub struct VisitTimes {
    pub took: Duration,
    pub times: Vec<Duration>,
}

/// Makes one visit.
pub async fn request_page(
    connection: &mut Connection,
    visit: &VisitRequest,
    number: usize,
) -> Result<Response<Bytes>, BenchError> {
    let response = connection.send_for_response(visit.request(number), Vec::new()).await?;
    match response.status() {
        status if status == visit.status() => Ok(response),
        status => fail(format!("a visit was answered {status}: {}", String::from_utf8_lossy(response.body()))),
    }
}

/// Makes visits from concurrent clients.
pub async fn visit_concurrently(
    address: SocketAddr,
    visit: &VisitRequest,
    requests: u32,
    clients: u32,
) -> Result<VisitTimes, BenchError> {
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let (external, begin) = (ExternalRuntime::start()?, Arc::new(Barrier::new(count(clients))));
    let (next, last) = (Arc::<AtomicUsize>::default(), count(requests));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (begin, next, visit) = (begin.clone(), next.clone(), visit.clone());
        let client = async move {
            let mut connection = Connection::open(address).await?;
            begin.wait().await;
            let (began, mut times) = (Instant::now(), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= last {
                    return Ok::<_, BenchError>((began.elapsed(), times));
                }
                let sent_at = Instant::now();
                request_page(&mut connection, &visit, number).await?;
                times.push(sent_at.elapsed());
            }
        };
        tasks.spawn_on(client, &external.runtime);
    }
    let mut visits = VisitTimes { took: Duration::ZERO, times: Vec::new() };
    while let Some(done) = tasks.join_next().await {
        let (took, times) = done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??;
        visits.took = visits.took.max(took);
        visits.times.extend(times);
    }
    Ok(visits)
}
