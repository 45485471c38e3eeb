//! Messages through the API, from clients without pauses, until the last delivery. One tenant at a time sends them.

use std::time::Duration;

use super::super::figure::Figure;
use super::client::{Rate, SentMessage};
use super::receiver::Receiver;
use super::service::Service;
use super::{Bench, Figures, deliveries, format_count};

const NAME: &str = "throughput";
const CLIENTS: [u32; 3] = [1, 32, 100];

pub async fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    for endpoints in &bench.args.endpoints {
        for clients in CLIENTS {
            figures.extend(measure(bench, *endpoints, clients).await?);
        }
    }
    Ok(figures)
}

async fn measure(bench: &Bench, endpoints: u32, clients: u32) -> Figures {
    let messages = bench.messages(endpoints);
    let point = format!("{}, {}", format_count(endpoints, "endpoint"), format_count(clients, "client"));
    bench.show_progress(format_args!("throughput: {messages} messages, {point}"));
    let receiver = Receiver::start().await?;
    let service = Service::start(bench, &receiver, endpoints, messages).await?;
    let sent = service.send(&receiver, 0..messages, Rate { clients, interval: Duration::ZERO }).await?;
    let count = deliveries(messages, endpoints);
    receiver.arrivals.wait(count).await?;
    service.wait_until_settled().await?;
    service.stop().await;
    let delivered = receiver.arrivals.timing_of(&sent, endpoints)?;
    let mut figures = vec![
        Figure::rate(NAME, format!("{point}, accepted"), "messages/s", sent.len(), time_to_last_response(&sent)),
        Figure::rate(NAME, format!("{point}, delivered"), "deliveries/s", count, delivered.took),
    ];
    figures.extend(Figure::spread(NAME, &format!("{point}, end to end"), delivered.times));
    Ok(figures)
}

/// Returns the time from the first request to the last response.
fn time_to_last_response(sent: &[SentMessage]) -> Duration {
    let first = sent.iter().map(|one| one.sent_at).min();
    let last = sent.iter().map(|one| one.responded_at).max();
    first.zip(last).map(|(first, last)| last - first).unwrap_or_default()
}
