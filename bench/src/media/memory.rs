//! Memory of the process during concurrent uploads of large files. The clients are in this process too, and share one
//! file.

use super::super::figure::Figure;
use super::super::service::Service;
use super::super::{Figures, resident};
use super::client::{self, RequestKind};
use super::{Bench, photo};

const NAME: &str = "memory";

pub async fn run(bench: &Bench) -> Figures {
    let clients = bench.args.concurrency;
    let large = photo::jpeg(bench.args.large, 64, 96)?;
    let service = Service::start(bench, bench.args.peer).await?;
    // Warm up, so that one-time allocations are not measured.
    client::send(&service, RequestKind::Upload, &photo::jpeg(1, 24, 88)?, 0..1, 1).await?;
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "a file", Some(large.len() as u64)));
    figures.extend(Figure::size(NAME, "before", resident::now()));
    resident::reset_peak();
    let uploads = client::send(&service, RequestKind::Upload, &large, 0..clients, clients).await?;
    figures.extend(Figure::size(NAME, format!("{clients} uploads at once, peak"), resident::peak()));
    figures.push(Figure::time(NAME, format!("{clients} uploads at once, all answered after"), uploads.took));
    service.stop().await;
    Ok(figures)
}
