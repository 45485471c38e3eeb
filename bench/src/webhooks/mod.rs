//! `crier-bench webhooks`: measures webhooks from a client's request to the endpoint.
//!
//! API, worker, scheduler, store and notifier are the real ones. The clients and the endpoints have their own thread
//! ([`super::external_runtime`]), use HTTP/1.1 with keep-alive and do almost nothing, but share the machine's CPUs. A lost
//! or duplicate delivery is an error. In `throughput` and `latency` a peer can replace Crier.
//!
//! A message through the API is a created brand. After [`tenant::MESSAGES`] brands, the clients continue with another
//! tenant, which has its own webhooks with the same URLs.
//!
//! **To add a measurement:** add its word to [`WebhookMeasurement`], a file here with a `run(&Bench)` that returns
//! [`Figures`], an arm in [`Suite::measure`], and its figures in `tests/bench/webhooks.rs`.

use crier_domain::job::JobKind;

use super::environment::BenchEnvironment;
use super::figure::Figure;
use super::roles::{self, BenchRoles};
use super::{BenchError, Figures, Suite, api, fail, figure};
use crate::args::{BenchOptions, BenchWebhooks, WebhookMeasurement};

mod arrivals;
mod backlog;
mod bad;
mod client;
mod isolation;
mod latency;
mod memory;
pub mod receiver;
mod service;
pub mod tenant;
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
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let message = format!("a brand created through the API; a new workspace after every {}", tenant::MESSAGES);
        figures.push(Figure::word("machine", "message", message));
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

/// Runs the measurements that a peer supports.
async fn of_a_peer(bench: &Bench, peer: std::net::SocketAddr) -> Figures {
    const ALL: &[WebhookMeasurement] = &[WebhookMeasurement::Throughput, WebhookMeasurement::Latency];
    let mut figures = api::about_peer(peer).await?;
    let measure = async |measurement| match measurement {
        WebhookMeasurement::Throughput => throughput::run(bench).await,
        WebhookMeasurement::Latency => latency::run(bench).await,
        other => fail(format!("{other} cannot be measured of a peer; choose throughput, latency or both")),
    };
    let only = if bench.args.only.is_empty() { ALL } else { &bench.args.only };
    figures.extend(bench.each(WebhookMeasurement::ALL, only, measure).await?);
    Ok(figures)
}

impl Bench {
    /// Starts a worker for webhooks, and a scheduler.
    fn roles(&self, environment: &BenchEnvironment) -> Result<BenchRoles, BenchError> {
        let kind = JobKind::DeliverWebhook;
        BenchRoles::start(environment, kind, roles::job(&self.config, environment, kind)?, self.slots())
    }

    /// Returns how many messages cause the configured number of deliveries to this many endpoints.
    fn messages(&self, endpoints: u32) -> u32 {
        (self.args.messages / endpoints).max(1)
    }
}

/// Formats a count with its unit, for a figure's name.
pub fn format_count(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the number of deliveries for this many messages to this many endpoints.
fn deliveries(messages: u32, endpoints: u32) -> usize {
    usize::try_from(u64::from(messages) * u64::from(endpoints)).unwrap_or(usize::MAX)
}
