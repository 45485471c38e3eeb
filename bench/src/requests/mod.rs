//! `crier-bench requests`: measures how many posts the API creates, and how long a request takes.
//!
//! The API and its store are the real ones, reached over TCP by keep-alive connections; no worker runs. The clients have
//! their own thread, but share the machine's CPUs. A few and then many connections send each request after the response
//! to the last one. At half load, requests start at half the rate of the few connections, whether the API keeps up or
//! not. Each point has a new database with one workspace.
//!
//! **To add a kind of request:** add its word to [`RequestMeasurement`], its body in [`PostRequest::of`], and its
//! figures in `tests/bench/requests.rs`.

use super::figure::{self, Figure, Throughput};
use super::service::Service;
use super::{BenchError, Figures, Suite};
use crate::args::{BenchOptions, BenchRequests, RequestMeasurement};

mod client;

use client::{Clients, PostRequest, Window};

type Bench = super::Bench<BenchRequests>;

const NAME: &str = "requests";
const FEW_CONNECTIONS: usize = 16;
const MANY_CONNECTIONS: usize = 64;

impl Suite for BenchRequests {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let mut rates = Vec::new();
        let rates_of = async |kind| {
            let (of_few, few) = at_full_load(bench, kind, FEW_CONNECTIONS).await?;
            let (of_many, many) = at_full_load(bench, kind, MANY_CONNECTIONS).await?;
            rates.push(Rates { kind, few, many });
            Ok([of_few, of_many].concat())
        };
        figures.extend(measure_kinds(bench, rates_of).await?);
        figures.extend(ratios(&rates));
        for of_kind in &rates {
            figures.extend(at_half_load(bench, of_kind).await?);
        }
        Ok(figures)
    }
}

/// How many posts of a kind were created, from a few connections and from many.
struct Rates {
    kind: RequestMeasurement,
    few: Throughput,
    many: Throughput,
}

/// Measures the selected kinds in order.
async fn measure_kinds(bench: &Bench, mut measure: impl AsyncFnMut(RequestMeasurement) -> Figures) -> Figures {
    let mut figures = Vec::new();
    let only = &bench.args.only;
    for kind in RequestMeasurement::ALL.iter().filter(|kind| only.is_empty() || only.contains(kind)) {
        figures.extend(measure(*kind).await?);
    }
    Ok(figures)
}

/// Measures connections that send each request after the response to the last one.
async fn at_full_load(
    bench: &Bench,
    kind: RequestMeasurement,
    connections: usize,
) -> Result<(Vec<Figure>, Throughput), BenchError> {
    let point = format!("{kind}, {connections} connections");
    bench.show_progress(format_args!("requests: {point}"));
    let service = Service::start(bench, None).await?;
    let clients = Clients::connect(service.address, connections).await?;
    let created = clients.send_continuously(&PostRequest::of(kind, &service), bench.window()).await?;
    service.stop().await;
    let rate = created.rate;
    let name = format!("{point}, created");
    let mut figures = vec![Figure::rate(NAME, name, "posts/s", rate.count, rate.took)];
    figures.extend(Figure::median_and_p99(NAME, &point, created.times));
    Ok((figures, rate))
}

/// Measures requests that start at half the rate of the few connections.
async fn at_half_load(bench: &Bench, rates: &Rates) -> Figures {
    let point = format!("{}, at half load", rates.kind);
    bench.show_progress(format_args!("requests: {point}"));
    let service = Service::start(bench, None).await?;
    let clients = Clients::connect(service.address, MANY_CONNECTIONS).await?;
    let interval = rates.few.time_per_item() * 2;
    let times = clients.send_at_rate(&PostRequest::of(rates.kind, &service), interval, bench.window()).await?;
    service.stop().await;
    Ok(Figure::median_and_p99(NAME, &point, times))
}

/// Compares the two kinds, if both were measured.
fn ratios(rates: &[Rates]) -> Vec<Figure> {
    let [draft, scheduled] = rates else { return Vec::new() };
    [(FEW_CONNECTIONS, scheduled.few, draft.few), (MANY_CONNECTIONS, scheduled.many, draft.many)]
        .map(|(connections, of, to)| {
            let name = format!("{} / {}, {connections} connections", scheduled.kind, draft.kind);
            Figure::ratio_of_rates(NAME, name, of, to)
        })
        .to_vec()
}

impl Bench {
    fn window(&self) -> Window {
        Window::of(self.args.warm_up, self.args.seconds)
    }
}
