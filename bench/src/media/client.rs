//! Clients that send images. Each has one connection, and sends one request at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Builder;
use http::{Request, StatusCode};
use secrecy::ExposeSecret as _;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::external_runtime::ExternalRuntime;
use super::super::service::Service;
use super::super::{BenchError, fail};
use super::photo;

const BOUNDARY: &str = "a-boundary-that-no-image-contains";

/// The request to send for each image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Upload,
    /// Only peers implement it.
    Thumbnail,
}

/// The time of all requests together, and of each.
pub struct RequestTimes {
    pub took: Duration,
    pub times: Vec<Duration>,
}

/// Sends images from concurrent clients. Each image is a different file.
pub async fn send(
    service: &Service,
    request_kind: RequestKind,
    photo: &Bytes,
    numbers: Range<u32>,
    clients: u32,
) -> Result<RequestTimes, BenchError> {
    let external = ExternalRuntime::start()?;
    let begin = Arc::new(Barrier::new(usize::try_from(clients).unwrap_or(usize::MAX)));
    let next = Arc::new(AtomicU32::new(numbers.start));
    let (head, run) = (head(service, request_kind), crier_base::random::u64());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (begin, next, photo, head, last) = (begin.clone(), next.clone(), photo.clone(), head.clone(), numbers.end);
        let address = service.address;
        let client = async move {
            let mut connection = Connection::open(address).await?;
            begin.wait().await;
            let (began, mut times) = (Instant::now(), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= last {
                    return Ok::<_, BenchError>((began.elapsed(), times));
                }
                let body = body(request_kind, photo::another(&photo, number));
                let sent_at = Instant::now();
                send_image(&mut connection, head(format!("{run:016x}-{number}")), body).await?;
                times.push(sent_at.elapsed());
            }
        };
        tasks.spawn_on(client, &external.runtime);
    }
    let mut uploads = RequestTimes { took: Duration::ZERO, times: Vec::new() };
    while let Some(done) = tasks.join_next().await {
        let (took, times) = done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??;
        uploads.took = uploads.took.max(took);
        uploads.times.extend(times);
    }
    Ok(uploads)
}

/// Returns a function that builds a request's head from its `Idempotency-Key`.
fn head(service: &Service, request_kind: RequestKind) -> Arc<dyn Fn(String) -> Builder + Send + Sync> {
    let path = match request_kind {
        RequestKind::Upload => format!("/api/public/v1/brands/{}/media", service.brand),
        RequestKind::Thumbnail => "/thumbnail".to_owned(),
    };
    let content_type = match request_kind {
        RequestKind::Upload => format!("multipart/form-data; boundary={BOUNDARY}"),
        RequestKind::Thumbnail => "image/jpeg".to_owned(),
    };
    let key = format!("Bearer {}", service.key.expose_secret());
    Arc::new(move |idempotency| {
        Request::post(&path)
            .header(AUTHORIZATION, &key)
            .header("Idempotency-Key", idempotency)
            .header(CONTENT_TYPE, &content_type)
    })
}

/// Returns the body in chunks, so that all requests share the image.
fn body(request_kind: RequestKind, image: [Bytes; 3]) -> Vec<Bytes> {
    match request_kind {
        RequestKind::Thumbnail => image.into(),
        RequestKind::Upload => {
            let head = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"photo.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n"
            );
            let end = format!("\r\n--{BOUNDARY}--\r\n");
            std::iter::once(head.into()).chain(image).chain([end.into()]).collect()
        }
    }
}

async fn send_image(connection: &mut Connection, head: Builder, body: Vec<Bytes>) -> Result<(), BenchError> {
    let (status, response) = connection.send(head, body).await?;
    match status {
        StatusCode::CREATED | StatusCode::OK => Ok(()),
        _ => fail(format!("an image upload returned {status}: {}", String::from_utf8_lossy(&response))),
    }
}
