//! The effect of a bad endpoint on the good endpoint of another user. The same low rate is measured without and with the
//! bad endpoint, in several rounds, because the load of a machine changes within minutes.

use std::time::Duration;

use super::super::figure::{Figure, median, percentile};
use super::super::{BenchError, fail};
use super::bad::{BadEndpoint, Fault};
use super::latency::{MESSAGES_PER_SECOND, send_at_low_rate};
use super::receiver::Receiver;
use super::service::Service;
use super::tenant::Tenant;
use super::{Bench, Figures};

const NAME: &str = "isolation";
/// Warm-up messages before those that are measured.
const WARM_UP_MESSAGES: u32 = MESSAGES_PER_SECOND;

/// The times from the requests to the deliveries, and the maximum number of requests that the bad endpoint held.
struct Round {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
    held: usize,
}

pub async fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    for fault in Fault::ALL {
        let mut rounds = Vec::new();
        for number in 1..=bench.args.rounds {
            bench.show_progress(format_args!("isolation: {fault}, {number} of {}", bench.args.rounds));
            rounds.push(round(bench, *fault).await?);
        }
        figures.extend(medians(*fault, &rounds));
    }
    Ok(figures)
}

async fn round(bench: &Bench, fault: Fault) -> Result<Round, BenchError> {
    let receiver = Receiver::start().await?;
    let messages = (MESSAGES_PER_SECOND * bench.args.seconds / bench.args.rounds).max(1);
    let (from, to) = (WARM_UP_MESSAGES, WARM_UP_MESSAGES + messages);
    let service = Service::start(bench, &receiver, 1, to + messages).await?;
    let Some(environment) = service.environment() else { return fail("a peer has no second user") };
    // Warm up.
    send_at_low_rate(&service, &receiver, 0..from).await?;
    let (_, alone) = send_at_low_rate(&service, &receiver, from..to).await?;

    let bad = BadEndpoint::start(&receiver.external, fault).await?;
    let bad_tenant = Tenant::create(environment.api(), "bad", std::slice::from_ref(&bad.url)).await?;
    bad_tenant.emit(environment.api(), 0..bench.args.pending / 10).await?;
    tokio::time::sleep(fault.takes_effect_after().min(Duration::from_secs(bench.args.warm_up.into()))).await;
    bad.reset_max_concurrent();
    let (_, beside) = send_at_low_rate(&service, &receiver, to..to + messages).await?;
    let held = bad.max_concurrent();
    // Close it before stopping the worker, which would otherwise wait for its responses.
    drop(bad);
    service.stop().await;
    receiver.arrivals.check()?;
    Ok(Round { alone: alone.times, beside: beside.times, held })
}

/// Returns the medians of the rounds.
fn medians(fault: Fault, rounds: &[Round]) -> Vec<Figure> {
    let of = |times: fn(&Round) -> &Vec<Duration>, percent| {
        median(rounds.iter().map(|round| percentile(times(round).clone(), percent)).collect())
    };
    let (alone, beside) = (|percent| of(|round| &round.alone, percent), |percent| of(|round| &round.beside, percent));
    let name = |what: &str| format!("{fault}, {what}");
    let mut figures = vec![
        Figure::time(NAME, name("alone before it, p50"), alone(50)),
        Figure::time(NAME, name("alone before it, p99"), alone(99)),
        Figure::time(NAME, name("p50"), beside(50)),
        Figure::time(NAME, name("p99"), beside(99)),
        Figure::ratio(NAME, name("ratio of p50"), beside(50), alone(50)),
        Figure::ratio(NAME, name("ratio of p99"), beside(99), alone(99)),
    ];
    // An endpoint that refuses connections holds no requests.
    if fault != Fault::Refuses {
        let held = rounds.iter().map(|round| round.held).max().unwrap_or_default();
        figures.push(Figure::count(NAME, name("requests it held at most"), "connections", held));
    }
    figures
}
