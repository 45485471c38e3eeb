//! Pending webhook deliveries, to endpoints in this process.

use std::time::Instant;

use crier_domain::job::JobKind;

use super::super::BenchError;
use super::super::database::run_maintenance;
use super::super::figure::Throughput;
use super::super::roles;
use super::super::webhooks::receiver::Receiver;
use super::super::webhooks::tenant::Tenant;
use super::processes::Processes;
use super::{Bench, Point};

const KIND: JobKind = JobKind::DeliverWebhook;

/// Returns the number of deliveries, and the time from the start of the workers to the last arrival.
pub async fn drain(bench: &Bench, point: Point) -> Result<Throughput, BenchError> {
    let (receiver, environment) = (Receiver::start().await?, bench.create_environment().await?);
    let tenant = Tenant::create(environment.api(), "good", &receiver.urls(point.lanes)).await?;
    let messages = (bench.args.pending / point.lanes).max(1);
    tenant.emit(environment.api(), 0..messages).await?;
    run_maintenance(environment.api().db()).await?;
    let mut processes = Processes::prepare(bench, &environment, KIND, point.workers).await?;
    let began = Instant::now();
    processes.start().await?;
    let count = usize::try_from(messages * point.lanes).unwrap_or(usize::MAX);
    let took = receiver.arrivals.wait(count).await? - began;
    roles::wait_until_settled(environment.api(), KIND).await?;
    processes.stop().await?;
    receiver.arrivals.check()?;
    Ok(Throughput { count, took })
}
