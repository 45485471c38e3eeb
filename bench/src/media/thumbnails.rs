//! Checks of whole images and their thumbnails, without uploads, on all cores.

use std::time::Instant;

use crier_media::images;
use tokio::task::JoinSet;

use super::super::figure::Figure;
use super::super::service::Service;
use super::super::{BenchError, Figures};
use super::client::{self, RequestKind};
use super::{Bench, photo};

const NAME: &str = "thumbnails";

pub async fn run(bench: &Bench) -> Figures {
    let photo = photo::jpeg(bench.args.megapixels, 24, 88)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = usize::try_from(bench.args.images).unwrap_or(usize::MAX);
    let name = format!("of {}-megapixel JPEGs", bench.args.megapixels);
    if bench.args.peer.is_some() {
        let (service, clients) = (Service::start(bench, bench.args.peer).await?, u32::try_from(cores).unwrap_or(1));
        let requests = client::send(&service, RequestKind::Thumbnail, &photo, 0..bench.args.images, clients).await?;
        return Ok(vec![Figure::rate(NAME, name, "images/s", count, requests.took)]);
    }
    let limits = *bench.create_environment().await?.library().limits();
    let began = Instant::now();
    let mut threads = JoinSet::new();
    for thread in 0..cores {
        let photo = photo.clone();
        let share = count / cores + usize::from(thread < count % cores);
        threads.spawn_blocking(move || (0..share).try_for_each(|_| images::examine(photo.clone(), &limits).map(drop)));
    }
    while let Some(done) = threads.join_next().await {
        let done = done.map_err(|error| BenchError::Failed(format!("a thread: {error}")))?;
        done.map_err(|error| BenchError::Failed(error.to_string()))?;
    }
    Ok(vec![Figure::rate(NAME, name, "images/s", count, began.elapsed())])
}
