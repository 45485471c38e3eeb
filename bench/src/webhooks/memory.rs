//! Memory of the process with many pending deliveries. It includes the record of arrivals, about 20 bytes per delivery.

use crier_domain::job::JobKind;

use super::super::memory;
use super::receiver::Receiver;
use super::tenant::Tenant;
use super::{Bench, Figures, deliveries};

const ENDPOINTS: u32 = 10;

pub async fn run(bench: &Bench) -> Figures {
    let (receiver, environment) = (Receiver::start().await?, bench.create_environment().await?);
    let messages = bench.args.pending / ENDPOINTS;
    let count = deliveries(messages, ENDPOINTS);
    let roles = bench.roles(&environment)?;
    let tenant = Tenant::create(environment.api(), "good", &receiver.urls(ENDPOINTS)).await?;
    let fill = async |store| tenant.emit(&store, 0..messages).await;
    let done = async || receiver.arrivals.wait(count).await.map(drop);
    let name = format!("{count} deliveries pending");
    let figures = memory::measure_memory(&environment, JobKind::DeliverWebhook, roles, name, fill, done).await?;
    receiver.arrivals.check()?;
    Ok(figures)
}
