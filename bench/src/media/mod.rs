//! `crier-bench media`: measures uploads of images and videos, and posts with videos.
//!
//! The API, its store and its storage (a directory) are the real ones, reached over TCP. The clients have their own
//! thread and do almost nothing, but share the machine's CPUs. Each upload is a different file, so that none is stored
//! already. In `uploads` and `thumbnails` a peer can replace Crier.
//!
//! **To add a measurement:** add its word to [`MediaMeasurement`], a file here with a `run(&Bench)` that returns
//! [`Figures`], an arm in [`Suite::measure`], and its figures in `tests/bench/media.rs`.

use super::{BenchError, Figures, Suite, api, fail, figure};
use crate::args::{BenchMedia, BenchOptions, MediaMeasurement};

mod client;
mod fake_platform;
mod memory;
mod photo;
mod thumbnails;
mod uploads;
mod video;
mod video_client;
mod video_posts;
mod videos;

type Bench = super::Bench<BenchMedia>;

impl Suite for BenchMedia {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = match bench.args.peer {
            Some(peer) => api::about_peer(peer).await?,
            None => figure::machine_figures(&*bench.create_environment().await?).await?,
        };
        let measure = async |measurement| match measurement {
            MediaMeasurement::Memory => memory::run(bench).await,
            MediaMeasurement::Uploads => uploads::run(bench).await,
            MediaMeasurement::Thumbnails => thumbnails::run(bench).await,
            MediaMeasurement::Videos => videos::run(bench).await,
            MediaMeasurement::VideoPosts => video_posts::run(bench).await,
        };
        const OF_A_PEER: &[MediaMeasurement] = &[MediaMeasurement::Uploads, MediaMeasurement::Thumbnails];
        let only = match bench.args.peer {
            Some(_) if bench.args.only.is_empty() => OF_A_PEER,
            Some(_) if bench.args.only.iter().any(|one| !OF_A_PEER.contains(one)) => {
                return fail("a peer has only uploads and thumbnails; choose uploads, thumbnails or both");
            }
            _ => &bench.args.only,
        };
        figures.extend(bench.each(MediaMeasurement::ALL, only, measure).await?);
        Ok(figures)
    }
}
