//! Deliveries that are enqueued before the worker starts, from its start to the last arrival. They fit into the notifier,
//! because any excess would wait for the scheduler.

use std::time::Instant;

use crier_domain::job::JobKind;
use crier_queue::memory::CAPACITY;

use super::super::figure::Figure;
use super::super::roles;
use super::receiver::Receiver;
use super::tenant::Tenant;
use super::{Bench, Figures, deliveries, format_count};

const NAME: &str = "backlog";

pub async fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    for endpoints in &bench.args.endpoints {
        figures.push(measure(bench, *endpoints).await?);
    }
    Ok(figures)
}

async fn measure(bench: &Bench, endpoints: u32) -> Result<Figure, super::BenchError> {
    let max_messages = u32::try_from(CAPACITY).unwrap_or(u32::MAX) / endpoints;
    let messages = bench.messages(endpoints).min(max_messages);
    let (point, count) = (format_count(endpoints, "endpoint"), deliveries(messages, endpoints));
    bench.show_progress(format_args!("backlog: {count} deliveries to {point}"));
    let (receiver, environment) = (Receiver::start().await?, bench.create_environment().await?);
    environment.notifier().buffer(JobKind::DeliverWebhook);
    let tenant = Tenant::create(environment.api(), "good", &receiver.urls(endpoints)).await?;
    tenant.emit(environment.api(), 0..messages).await?;
    let began = Instant::now();
    let roles = bench.roles(&environment)?;
    let took = receiver.arrivals.wait(count).await? - began;
    roles::wait_until_settled(environment.api(), JobKind::DeliverWebhook).await?;
    roles.stop().await;
    receiver.arrivals.check()?;
    Ok(Figure::rate(NAME, point, "deliveries/s", count, took))
}
