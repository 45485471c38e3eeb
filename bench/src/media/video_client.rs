//! Clients that upload videos, each over one connection, and one that sends light requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::external_runtime::ExternalRuntime;
use super::super::service::Service;
use super::super::{BenchError, fail};
use super::video::Videos;

const BOUNDARY: &str = "a-boundary-that-stands-in-no-video";
/// The pause between two light requests.
const PAUSE: Duration = Duration::from_millis(5);

/// The IDs of uploaded videos, and the time of all uploads together.
pub struct VideoUploads {
    pub ids: Vec<i64>,
    pub took: Duration,
}

/// Uploads the videos, all at the same time. Each is a different file.
pub async fn upload(service: &Service, videos: &Videos) -> Result<VideoUploads, BenchError> {
    let external = ExternalRuntime::start()?;
    let begin = Arc::new(Barrier::new(usize::try_from(videos.count).unwrap_or(usize::MAX)));
    let mut tasks = JoinSet::new();
    for _ in 0..videos.count {
        let seed = crier_base::random::u64();
        let request = Request::post(format!("/api/public/v1/brands/{}/media", service.brand))
            .header(AUTHORIZATION, format!("Bearer {}", service.key.expose_secret()))
            .header("Idempotency-Key", format!("{seed:016x}"))
            .header(CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}"));
        let (address, body, begin) = (service.address, form(videos.pieces(seed)), begin.clone());
        let client = async move {
            let mut connection = Connection::open(address).await?;
            begin.wait().await;
            let began = Instant::now();
            let (status, response) = connection.send(request, body).await?;
            Ok::<_, BenchError>((asset_id(status, &response)?, began.elapsed()))
        };
        tasks.spawn_on(client, &external.runtime);
    }
    let mut uploads = VideoUploads { ids: Vec::new(), took: Duration::ZERO };
    while let Some(done) = tasks.join_next().await {
        let (id, took) = done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??;
        uploads.ids.push(id);
        uploads.took = uploads.took.max(took);
    }
    Ok(uploads)
}

/// Returns the form with a video, in pieces. The type comes before the file, so that a large file is accepted.
fn form(video: Vec<Bytes>) -> Vec<Bytes> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"asset_type\"\r\n\r\nvideo\r\n\
         --{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"video.mp4\"\r\n\r\n"
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    std::iter::once(head.into()).chain(video).chain([end.into()]).collect()
}

fn asset_id(status: StatusCode, response: &Bytes) -> Result<i64, BenchError> {
    let asset: Value = serde_json::from_slice(response).unwrap_or_default();
    match asset["data"]["id"].as_i64() {
        Some(id) if status == StatusCode::CREATED => Ok(id),
        _ => fail(format!("a video was answered {status}: {}", String::from_utf8_lossy(response))),
    }
}

/// A client that sends a light request again and again.
#[derive(Clone)]
pub struct LightClient {
    address: SocketAddr,
    path: String,
    authorization: String,
}

impl LightClient {
    pub fn of(service: &Service) -> Self {
        Self {
            address: service.address,
            path: format!("/api/public/v1/brands/{}", service.brand),
            authorization: format!("Bearer {}", service.key.expose_secret()),
        }
    }

    /// Sends at least one request, and others while `goes_on` returns true for the number of requests so far. Returns the
    /// time of each.
    pub async fn repeat(self, goes_on: impl Fn(usize) -> bool + Send) -> Result<Vec<Duration>, BenchError> {
        let mut connection = Connection::open(self.address).await?;
        let mut times = Vec::new();
        while times.is_empty() || goes_on(times.len()) {
            let request = Request::get(&self.path).header(AUTHORIZATION, &self.authorization);
            let sent_at = Instant::now();
            let (status, response) = connection.send(request, Vec::new()).await?;
            if status != StatusCode::OK {
                return fail(format!("the API answered {status}: {}", String::from_utf8_lossy(&response)));
            }
            times.push(sent_at.elapsed());
            tokio::time::sleep(PAUSE).await;
        }
        Ok(times)
    }
}
