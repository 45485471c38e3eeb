//! Messages at a rate that leaves all roles idle most of the time.

use std::ops::Range;
use std::time::Duration;

use super::super::BenchError;
use super::super::figure::Figure;
use super::arrivals::DeliveryTiming;
use super::client::{Rate, SentMessage};
use super::receiver::Receiver;
use super::service::Service;
use super::{Bench, Figures};

const NAME: &str = "latency";
/// Messages per second.
pub const MESSAGES_PER_SECOND: u32 = 20;
/// Enough that a slow response does not delay the next message.
const CLIENTS: u32 = 16;

pub async fn run(bench: &Bench) -> Figures {
    let receiver = Receiver::start().await?;
    let messages = MESSAGES_PER_SECOND * bench.args.seconds;
    let service = Service::start(bench, &receiver, 1, messages).await?;
    let (sent, delivered) = send_at_low_rate(&service, &receiver, 0..messages).await?;
    service.wait_until_settled().await?;
    service.stop().await;
    receiver.arrivals.check()?;
    let response_times = sent.iter().map(|one| one.responded_at - one.sent_at).collect();
    let mut figures = Figure::spread(NAME, "request to answer", response_times);
    figures.extend(Figure::spread(NAME, "request to delivery", delivered.times));
    Ok(figures)
}

/// Sends messages to a service with one endpoint, and waits for the last delivery. All earlier messages must be
/// delivered already.
pub async fn send_at_low_rate(
    service: &Service,
    receiver: &Receiver,
    messages: Range<u32>,
) -> Result<(Vec<SentMessage>, DeliveryTiming), BenchError> {
    let rate = Rate { clients: CLIENTS, interval: Duration::from_secs(1) / MESSAGES_PER_SECOND };
    let end = messages.end;
    let sent = service.send(receiver, messages, rate).await?;
    receiver.arrivals.wait(usize::try_from(end).unwrap_or(usize::MAX)).await?;
    let delivered = receiver.arrivals.timing_of(&sent, 1)?;
    Ok((sent, delivered))
}
