//! `crier bench media`: what becomes of pictures that are uploaded.
//!
//! The API, its store and its storage (a directory) are the real ones, reached over TCP; the clients are on a thread of their
//! own and do next to nothing, but share the machine's processors. Every upload is another picture, so that none is stored
//! already. In `uploads` and `thumbnails` a peer can stand in Crier's place.
//!
//! **To add a measurement:** its word in [`MediaMeasurement`], a file here with a `run(&Bench)` that gives [`Figures`], one arm
//! in [`Suite::measure`], and its figures in `tests/bench.rs`.

use super::{CommandError, Figures, Suite, api, figure, refused};
use crate::cli::{BenchMedia, BenchOptions, MediaMeasurement};

mod client;
mod memory;
mod photo;
mod thumbnails;
mod uploads;

type Bench = super::Bench<BenchMedia>;

impl Suite for BenchMedia {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = match bench.args.peer {
            Some(peer) => api::about_peer(peer).await?,
            None => figure::of_the_machine(&*bench.fresh().await?).await?,
        };
        let measure = async |measurement| match measurement {
            MediaMeasurement::Memory => memory::run(bench).await,
            MediaMeasurement::Uploads => uploads::run(bench).await,
            MediaMeasurement::Thumbnails => thumbnails::run(bench).await,
        };
        const OF_A_PEER: &[MediaMeasurement] = &[MediaMeasurement::Uploads, MediaMeasurement::Thumbnails];
        let only = match bench.args.peer {
            Some(_) if bench.args.only.is_empty() => OF_A_PEER,
            Some(_) if bench.args.only.contains(&MediaMeasurement::Memory) => {
                return refused("memory cannot be measured of a peer; choose uploads, thumbnails or both");
            }
            _ => &bench.args.only,
        };
        figures.extend(bench.each(MediaMeasurement::ALL, only, measure).await?);
        Ok(figures)
    }
}
