//! Uploads of videos at the same time: memory of the process, and the time of a light request alone and during them. The
//! clients are in this process too, and all videos share their bytes.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::external_runtime::ExternalRuntime;
use super::super::figure::{self, Figure};
use super::super::service::Service;
use super::super::{BenchError, Figures, resident};
use super::Bench;
use super::video::Videos;
use super::video_client::{self, LightClient};

const NAME: &str = "videos";
/// The number of light requests that are measured alone.
const REQUESTS_ALONE: usize = 500;

pub async fn run(bench: &Bench) -> Figures {
    let videos = Videos::new(bench.args.videos, bench.args.video_mib);
    let service = Service::start(bench, None).await?;
    // Warm up, so that one-time allocations are not measured.
    video_client::upload(&service, &Videos::new(1, 1)).await?;
    let (external, client) = (ExternalRuntime::start()?, LightClient::of(&service));
    let alone = joined(external.runtime.spawn(client.clone().repeat(|sent| sent < REQUESTS_ALONE))).await?;
    let before = resident::now();
    resident::reset_peak();
    let uploaded = CancellationToken::new();
    let is_uploaded = uploaded.clone();
    let during = external.runtime.spawn(client.repeat(move |_| !is_uploaded.is_cancelled()));
    let uploads = video_client::upload(&service, &videos).await;
    let peak = resident::peak();
    uploaded.cancel();
    let during = joined(during).await?;
    let took = uploads?.took;
    service.stop().await;

    let count = videos.count;
    let kilobytes = usize::try_from(videos.size() * u64::from(count) / 1_000).unwrap_or(usize::MAX);
    let ratio = Figure::ratio(
        NAME,
        "a request, p99 during the uploads / alone",
        figure::percentile(during.clone(), 99),
        figure::percentile(alone.clone(), 99),
    );
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "a video", Some(videos.size())));
    figures.extend(Figure::size(NAME, "before", before));
    figures.extend(Figure::size(NAME, format!("{count} uploads together, peak"), peak));
    figures.push(Figure::time(NAME, format!("{count} uploads together, all answered after"), took));
    figures.push(Figure::rate(NAME, format!("{count} uploads together, bytes"), "kB/s", kilobytes, took));
    figures.extend(Figure::median_and_p99(NAME, "a request alone", alone));
    figures.extend(Figure::median_and_p99(NAME, "a request during the uploads", during));
    figures.push(ratio);
    Ok(figures)
}

/// Waits for a client.
async fn joined<T>(client: JoinHandle<Result<T, BenchError>>) -> Result<T, BenchError> {
    client.await.map_err(|error| BenchError::Failed(format!("a client: {error}")))?
}
