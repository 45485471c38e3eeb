//! Due posts, published on the sandbox.

use std::time::{Duration, Instant};

use crier_domain::job::JobKind;

use super::super::BenchError;
use super::super::database::run_maintenance;
use super::super::due_posts::DuePosts;
use super::super::figure::Throughput;
use super::super::roles;
use super::processes::Processes;
use super::{Bench, Point};

const KIND: JobKind = JobKind::PublishTarget;
/// The interval at which the remaining jobs are counted. Long enough that the counting does not slow the workers.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the number of posts, and the time from the start of the workers until no job was left.
pub async fn drain(bench: &Bench, point: Point) -> Result<Throughput, BenchError> {
    let environment = bench.create_environment().await?;
    let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let due = DuePosts { posts: size(bench.args.posts), accounts: size(point.lanes), in_workspace: true };
    due.write(&environment).await?;
    run_maintenance(environment.api().db()).await?;
    let mut processes = Processes::prepare(bench, &environment, KIND, point.workers).await?;
    let began = Instant::now();
    processes.start().await?;
    roles::wait_until_settled_polling(environment.api(), KIND, COUNT_INTERVAL).await?;
    let took = began.elapsed();
    processes.stop().await?;
    Ok(Throughput { count: due.posts, took })
}
