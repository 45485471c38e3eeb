//! Repeated requests of a cached page, and the same from visitors who already have it. All visits are counted.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::ETAG;
use http::{Method, Response};
use serde_json::Value;

use super::super::connection::Connection;
use super::super::figure::Figure;
use super::super::service::Service;
use super::super::{BenchError, Figures, Result, cpu, io};
use super::client::{self, VisitRequest, VisitTimes};
use super::{Bench, site};

const CLIENTS: [u32; 2] = [1, 32];
/// Warm-up visits before those that are measured.
const WARM_UP_VISITS: u32 = 2_000;

pub async fn run(bench: &Bench, name: &'static str, is_returning: bool) -> Figures {
    let service = Service::start(bench, bench.args.peer).await?;
    let mut connection = Connection::open(service.address).await?;
    if bench.args.peer.is_none() {
        site::create(&mut connection, &service, site::SLUG).await?;
    }
    let mut visit = VisitRequest::of(site::PAGE);
    let page = client::request_page(&mut connection, &visit, 0).await?;
    write_response_file(bench, &page)?;
    if is_returning {
        visit.known_etag = page.headers().get(ETAG).cloned();
    }
    let mut figures = Vec::new();
    if !is_returning {
        figures.extend(Figure::size(name, "the page, compressed", u64::try_from(page.body().len()).ok()));
    }
    for clients in CLIENTS {
        bench.show_progress(format_args!("{name}, {clients} at once"));
        client::visit_concurrently(service.address, &visit, WARM_UP_VISITS.min(bench.args.requests), clients).await?;
        let cpu_before = server_cpu_time(bench, &mut connection).await?;
        let visits = client::visit_concurrently(service.address, &visit, bench.args.requests, clients).await?;
        let cpu_after = server_cpu_time(bench, &mut connection).await?;
        let cpu_used = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
        figures.extend(figures_of(name, clients, visits, cpu_used));
    }
    service.stop().await;
    Ok(figures)
}

fn figures_of(name: &'static str, clients: u32, visits: VisitTimes, cpu_used: Option<Duration>) -> Vec<Figure> {
    let count = visits.times.len();
    let mut figures =
        vec![Figure::rate(name, format!("{clients} at once, requests"), "requests/s", count, visits.took)];
    if let Some(cpu_used) = cpu_used {
        let each = cpu_used / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        figures.push(Figure::time(name, format!("{clients} at once, the server's processor, each"), each));
    }
    figures.extend(Figure::spread(name, &format!("{clients} at once"), visits.times));
    figures
}

/// Returns the CPU time of the server. A peer reports its own.
async fn server_cpu_time(
    bench: &Bench,
    connection: &mut Connection,
) -> std::result::Result<Option<Duration>, BenchError> {
    if bench.args.peer.is_none() {
        return Ok(cpu::process_cpu_time());
    }
    let response = connection.request_json(Method::GET, "/cpu", &Value::Null).await?;
    Ok(response["ns"].as_u64().map(Duration::from_nanos))
}

/// Writes the response to the file from which a peer reads it.
fn write_response_file(bench: &Bench, page: &Response<Bytes>) -> Result {
    let Some(file) = &bench.args.page_to else { return Ok(()) };
    let mut head = String::new();
    for (name, value) in page.headers() {
        let _ = writeln!(head, "{name}: {}", value.to_str().unwrap_or_default());
    }
    let message = [head.as_bytes(), b"\n", page.body()].concat();
    std::fs::write(file, message).map_err(|error| io("--page-to", error))
}
