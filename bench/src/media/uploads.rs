//! The time from the first byte of an upload to its response. By then the image is checked, its thumbnail is created, and
//! both are on disk.

use bytes::Bytes;

use super::super::Figures;
use super::super::figure::Figure;
use super::super::service::Service;
use super::client::{self, RequestKind};
use super::{Bench, photo};

const NAME: &str = "uploads";
const CLIENTS: [u32; 3] = [1, 4, 16];

pub async fn run(bench: &Bench) -> Figures {
    let (megapixels, images) = (bench.args.megapixels, bench.args.images);
    let photo = photo::jpeg(megapixels, 24, 88)?;
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "a photograph", Some(photo.len() as u64)));
    for clients in CLIENTS {
        bench.show_progress(format_args!("{NAME}, {clients} at once"));
        let service = Service::start(bench, bench.args.peer).await?;
        let uploads = client::send(&service, RequestKind::Upload, &photo, 0..images, clients).await?;
        service.stop().await;
        figures.extend(figures_of(&photo, clients, uploads));
    }
    Ok(figures)
}

fn figures_of(photo: &Bytes, clients: u32, uploads: client::RequestTimes) -> Vec<Figure> {
    let name = |what: &str| format!("{clients} at once, {what}");
    let mut figures = vec![
        Figure::rate(NAME, name("images"), "images/s", uploads.times.len(), uploads.took),
        Figure::rate(NAME, name("bytes"), "kB/s", uploads.times.len() * photo.len() / 1_000, uploads.took),
    ];
    figures.extend(Figure::spread(NAME, &format!("{clients} at once"), uploads.times));
    figures
}
