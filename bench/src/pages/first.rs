//! The latency of the first visit of a page, which reads, renders and compresses it, and of the first visit after two
//! seconds, which checks whether the page has changed.

use std::time::Duration;

use super::super::Figures;
use super::super::connection::Connection;
use super::super::figure::Figure;
use super::super::service::Service;
use super::client::{self, VisitRequest};
use super::{Bench, site};

const NAME: &str = "first";
/// Slightly longer than a cached page is served without a check.
const CACHE_TTL: Duration = Duration::from_millis(2_100);

pub async fn run(bench: &Bench) -> Figures {
    let service = Service::start(bench, None).await?;
    let mut connection = Connection::open(service.address).await?;
    let slugs: Vec<String> = (0..bench.args.pages).map(|n| format!("{}-{n}", site::SLUG)).collect();
    for slug in &slugs {
        site::create(&mut connection, &service, slug).await?;
    }
    let paths = slugs.iter().map(|slug| format!("/@{slug}")).collect();
    let visit = VisitRequest { paths, ..VisitRequest::of(site::PAGE) };
    let mut figures = Vec::new();
    for what in ["of all", "after two seconds"] {
        let visits = client::visit_concurrently(service.address, &visit, bench.args.pages, 1).await?;
        figures.extend(Figure::spread(NAME, what, visits.times));
        tokio::time::sleep(CACHE_TTL).await;
    }
    service.stop().await;
    Ok(figures)
}
