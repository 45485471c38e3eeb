//! `crier bench webhooks`: what becomes of webhooks between a client's request and the endpoint.
//!
//! API, worker, scheduler, store and bell are the real ones. The clients and the endpoints are on one thread of their own
//! ([`super::outside`]), speak HTTP/1.1 over kept connections and do next to nothing, but they share the machine's processors. A
//! delivery that is lost, or comes twice, is an error. In `throughput` and `latency` a peer can stand in Crier's place.
//!
//! **To add a measurement:** its word in [`WebhookMeasurement`], a file here with a `run(&Bench)` that gives [`Figures`], one
//! arm in [`Suite::measure`], and its figures in `tests/bench.rs`.

use crier_common::domain::job::Kind;

use super::crew::{self, Crew};
use super::place::Place;
use super::{CommandError, Figures, Suite, api, figure, refused};
use crate::cli::{BenchOptions, BenchWebhooks, WebhookMeasurement};

mod arrivals;
mod backlog;
mod bad;
mod client;
mod isolation;
mod latency;
mod memory;
mod receiver;
mod service;
mod tenant;
mod throughput;

type Bench = super::Bench<BenchWebhooks>;

impl Suite for BenchWebhooks {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        if let Some(peer) = bench.args.peer {
            return of_a_peer(bench, peer).await;
        }
        let mut figures = figure::of_the_machine(&*bench.fresh().await?).await?;
        let measure = async |measurement| match measurement {
            WebhookMeasurement::Memory => memory::run(bench).await,
            WebhookMeasurement::Throughput => throughput::run(bench).await,
            WebhookMeasurement::Backlog => backlog::run(bench).await,
            WebhookMeasurement::Latency => latency::run(bench).await,
            WebhookMeasurement::Isolation => isolation::run(bench).await,
        };
        figures.extend(bench.each(WebhookMeasurement::ALL, &bench.args.only, measure).await?);
        Ok(figures)
    }
}

/// The measurements that need nothing of Crier but what a peer has as well.
async fn of_a_peer(bench: &Bench, peer: std::net::SocketAddr) -> Figures {
    const ALL: &[WebhookMeasurement] = &[WebhookMeasurement::Throughput, WebhookMeasurement::Latency];
    let mut figures = api::about_peer(peer).await?;
    let measure = async |measurement| match measurement {
        WebhookMeasurement::Throughput => throughput::run(bench).await,
        WebhookMeasurement::Latency => latency::run(bench).await,
        other => refused(format!("{other} cannot be measured of a peer; choose throughput, latency or both")),
    };
    let only = if bench.args.only.is_empty() { ALL } else { &bench.args.only };
    figures.extend(bench.each(WebhookMeasurement::ALL, only, measure).await?);
    Ok(figures)
}

impl Bench {
    /// A worker for webhooks, and a scheduler.
    fn crew(&self, place: &Place) -> Result<Crew, CommandError> {
        Crew::start(place, crew::job(&self.config, place, Kind::DeliverWebhook)?, self.slots())
    }

    /// How many messages make the configured number of deliveries to so many endpoints.
    fn messages(&self, endpoints: u32) -> u32 {
        (self.args.messages / endpoints).max(1)
    }
}

/// What a number is of, for a figure's name.
fn some(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// How many deliveries so many messages to so many endpoints are.
fn deliveries(messages: u32, endpoints: u32) -> usize {
    usize::try_from(u64::from(messages) * u64::from(endpoints)).unwrap_or(usize::MAX)
}
