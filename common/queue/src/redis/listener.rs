//! Runs the apalis worker of one kind over Redis, and replaces it when it ends.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis_core::backend::ext::BackendExt;
use apalis_core::error::WorkerError;
use apalis_core::task::task_id::TaskId;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_redis::{Config, RedisStorage};
use crier_domain::job::JobKind;
use futures::future::BoxFuture;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Queues, RESPONSE_TIMEOUT, reconnect_pauses, storage, wakeups};
use crate::Handler;

/// The maximum number of ids that a worker fetches in one batch. Well below the concurrency, so that a busy worker does
/// not hold ids that an idle one could run.
const MAX_BATCH: usize = 16;
/// The interval at which the expiry of a worker's metadata is renewed, and the expiry.
const RENEW_INTERVAL: Duration = Duration::from_secs(60);
const EXPIRY_SECONDS: i64 = 3_600;
/// A worker that lasted longer is replaced after the first pause. Workers that fail immediately are replaced after
/// growing pauses.
const STABLE_AFTER: Duration = Duration::from_secs(2);

pub struct Listener {
    pub queues: Queues,
    pub kind: JobKind,
    pub concurrency: usize,
    pub handler: Handler,
    /// Shared by a worker and its replacement, which waits for the runs that the replaced worker has started.
    pub slots: Arc<Semaphore>,
    pub wakeups: watch::Receiver<()>,
}

impl Listener {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut pauses = reconnect_pauses();
        while !stop.is_cancelled() {
            if let Ok(connection) = self.queues.connect().await {
                let began = Instant::now();
                self.run_worker(connection, stop.clone()).await;
                if began.elapsed() > STABLE_AFTER {
                    pauses.reset();
                }
            }
            stop.clone().run_until_cancelled_owned(sleep(pauses.next_pause())).await;
        }
    }

    /// Runs one worker until it ends. Then returns the ids that it fetched and did not pass on to the queue.
    async fn run_worker(&self, mut connection: MultiplexedConnection, stop: CancellationToken) {
        let config = self.queues.config(self.kind, (self.concurrency / 8).clamp(1, MAX_BATCH));
        // A new name each time, because apalis-redis rejects a name that was used recently.
        let name = format!("{}-{:016x}", self.kind, crier_base::random::u64());
        let (received, mut tasks) = mpsc::unbounded_channel();
        let deleted = delete_received(&mut tasks, connection.clone(), &config, &name);
        tokio::select! {
            ended = self.work(connection.clone(), config.clone(), name.clone(), received, stop.clone()) => {
                match ended {
                    Ok(()) => tracing::debug!(kind = %self.kind, "a worker ended; starting another"),
                    Err(error) => {
                        tracing::debug!(kind = %self.kind, %error, "a worker ended; starting another");
                        if storage::is_wrong_type(&error) {
                            tracing::warn!(kind = %self.kind, "a key of the queue (Redis) has the wrong type; \
                                 deleting the keys of the kind");
                            storage::delete_all(&mut connection, &config).await;
                        }
                    }
                }
            }
            error = deleted => tracing::debug!(kind = %self.kind, %error, "the queue (Redis) failed; reconnecting"),
            () = stop.cancelled_owned() => {}
        }
        let returned = self.return_ids(&mut tasks, &mut connection, &config, &name);
        if !matches!(timeout(RESPONSE_TIMEOUT, returned).await, Ok(Ok(()))) {
            tracing::debug!(kind = %self.kind, "ids could not be returned to the queue (Redis); the dispatcher \
                 notifies again");
        }
    }

    fn work(
        &self,
        connection: MultiplexedConnection,
        config: Config,
        name: String,
        received: mpsc::UnboundedSender<Vec<u8>>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), WorkerError>> {
        let (handler, slots) = (self.handler.clone(), self.slots.clone());
        let storage = RedisStorage::<i64, _>::new(connection).with_config(config);
        let worker = WorkerBuilder::new(WorkerContext::new(&name))
            .backend(storage.poll_with_stream(wakeups::stream(self.wakeups.clone())))
            .concurrency(self.concurrency)
            .build(move |id: i64, task: TaskId| {
                let (run, received, stop) = (handler(id), received.clone(), stop.clone());
                let slot = stop.clone().run_until_cancelled_owned(slots.clone().acquire_owned());
                async move {
                    // An id that arrives during the stop is returned to the queue.
                    let Some(Ok(slot)) = slot.await else { return };
                    // From here on, the row in the database is the only record.
                    let _ = received.send(task.to_string().into_bytes());
                    let run = tokio::spawn(async move {
                        run.await;
                        drop(slot);
                    });
                    let _ended = stop.run_until_cancelled_owned(run).await;
                }
            });
        Box::pin(worker.run())
    }

    async fn return_ids(
        &self,
        tasks: &mut mpsc::UnboundedReceiver<Vec<u8>>,
        connection: &mut MultiplexedConnection,
        config: &Config,
        name: &str,
    ) -> Result<(), RedisError> {
        let received: Vec<Vec<u8>> = std::iter::from_fn(|| tasks.try_recv().ok()).collect();
        storage::delete(connection, config, &storage::in_flight_set(config, name), &received).await?;
        let ids = storage::delete_worker(connection, config, name).await?;
        if !ids.is_empty() {
            storage::push(connection, config, &self.queues.channel(self.kind), ids).await?;
        }
        Ok(())
    }
}

/// Deletes the entries of tasks that the worker passed to the engine, until an error.
async fn delete_received(
    tasks: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    mut connection: MultiplexedConnection,
    config: &Config,
    name: &str,
) -> RedisError {
    let in_flight = storage::in_flight_set(config, name);
    let mut renewal = tokio::time::interval(RENEW_INTERVAL);
    let mut batch = Vec::new();
    loop {
        let result = tokio::select! {
            _count = tasks.recv_many(&mut batch, 500), if !tasks.is_closed() => {
                storage::delete(&mut connection, config, &in_flight, &batch).await
            }
            _tick = renewal.tick() => storage::expire_worker(&mut connection, config, name, EXPIRY_SECONDS).await,
        };
        if let Err(error) = result {
            return error;
        }
        batch.clear();
    }
}
