//! The notifier over Redis: one apalis-redis storage per kind.
//!
//! Notifying never waits: ids go to the [`pusher`], which stores them and wakes the workers. They are dropped while
//! Redis is unreachable. A [`listener`] runs an apalis worker, which fetches an id when it is woken and has a free
//! slot. A connection that breaks or hangs is re-established, with a backoff that grows to two seconds.
//!
//! apalis-redis stores the ids, hands each to one worker, and returns the ids of a dead worker to the others. Its
//! locks, events, results, schedules and retries are switched off or not used, because the row in the database replaces
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apalis_redis::Config;
use async_trait::async_trait;
use crier_base::backoff::{Pauses, exponential};
use crier_domain::job::{JobKind, JobNotification, JobNotifier};
use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::listener::Listener;
use self::pusher::{Pusher, Unpushed};
use self::wakeups::Wakeups;
use super::{Handler, KindCapacity, Transport};

mod listener;
mod pusher;
mod storage;
mod wakeups;

pub use storage::unregister;

/// The maximum number of ids of a kind in Redis. Further jobs wait in the database. Several processes may exceed it by
/// the ids that they push concurrently. apalis-redis passes all due ids to one Lua call, which fails with about 8,000.
pub const CAPACITY: usize = 2_000;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of ids that wait for the pusher. The scheduler notifies again for further ids.
const BUFFER: usize = 20_000;

/// The notifier over Redis. Its tasks end when `stop` is cancelled.
pub struct RedisNotifier {
    queues: Queues,
    sender: mpsc::Sender<JobNotification>,
    unpushed: Arc<Unpushed>,
    up: Arc<AtomicBool>,
    wakeups: Arc<Wakeups>,
    /// The connection for queries, some of which run several times per second. Reused as long as it works.
    connection: Mutex<Option<MultiplexedConnection>>,
    stop: CancellationToken,
}

/// The location of the ids: a server, and the prefix of all keys and channels.
#[derive(Clone)]
struct Queues {
    client: Client,
    prefix: String,
}

impl Queues {
    /// Returns the configuration of a kind's storage. `batch_size` is the number of ids that are fetched together.
    fn config(&self, kind: JobKind, batch_size: usize) -> Config {
        Config::default()
            .queue(format!("{}:queue:{kind}", self.prefix))
            .batch_size(batch_size)
            .lock_tasks(false)
            .emit_events(false)
            .persist_results(false)
            // The ids of a worker that has been dead for 30 s go to the others. The scheduler notifies again earlier.
            .heartbeat_interval(Duration::from_secs(10))
            .missed_heartbeats(3)
    }

    /// Returns the channel whose messages wake the workers of a kind.
    fn channel(&self, kind: JobKind) -> String {
        format!("{}:wake:{kind}", self.prefix)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Like [`Self::connect`], but fails if Redis does not accept writes.
    async fn connect_writable(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connect().await?;
        storage::check_writable(&mut connection, &self.prefix).await?;
        Ok(connection)
    }
}

/// Returns the pauses between attempts to reach Redis.
fn reconnect_pauses() -> Pauses {
    Pauses::new(exponential(Duration::from_millis(50), Duration::from_secs(2)))
}

impl RedisNotifier {
    /// Starts the pusher. Redis does not have to be reachable yet. `prefix` is `crier`, except in tests that share a
    /// server.
    pub fn start(url: &SecretString, prefix: &str, stop: CancellationToken) -> Result<Self, RedisError> {
        let queues = Queues { client: Client::open(url.expose_secret())?, prefix: prefix.to_owned() };
        let (sender, receiver) = mpsc::channel(BUFFER);
        let up = Arc::new(AtomicBool::new(false));
        let unpushed = Arc::<Unpushed>::default();
        let pusher = Pusher::new(queues.clone(), receiver, up.clone(), unpushed.clone());
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! { () = pusher.run() => {}, () = stopped.cancelled() => {} }
        });
        let wakeups = Arc::new(Wakeups::new(queues.clone(), stop.clone()));
        Ok(Self { queues, sender, unpushed, up, wakeups, connection: Mutex::default(), stop })
    }

    /// Runs a query on the shared connection; `None` if Redis did not respond.
    async fn query<T>(
        &self,
        query: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Option<T> {
        let mut cached = self.connection.lock().await;
        let mut connection = match cached.take() {
            Some(connection) => connection,
            None => self.queues.connect().await.ok()?,
        };
        let response = query(&mut connection).await.ok()?;
        *cached = Some(connection);
        Some(response)
    }
}

impl JobNotifier for RedisNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        for notification in notifications {
            self.unpushed.add(notification.kind);
            if self.sender.try_send(*notification).is_err() {
                self.unpushed.subtract(notification.kind, 1);
                break;
            }
        }
    }
}

#[async_trait]
impl Transport for RedisNotifier {
    fn listen(
        &self,
        kind: JobKind,
        concurrency: usize,
        handler: Handler,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let wakeups = Wakeups::subscribe(&self.wakeups, kind);
        let (queues, slots) = (self.queues.clone(), Arc::new(Semaphore::new(concurrency)));
        let listener = Listener { queues, kind, concurrency, handler, slots, wakeups };
        let stopped_by_either = self.stop.child_token();
        let stopped = stopped_by_either.clone();
        Box::pin(async move {
            tokio::join!(listener.run(stopped_by_either), async move {
                let ended = stopped.clone().cancelled_owned();
                tokio::select! { () = stop.cancelled_owned() => stopped.cancel(), () = ended => {} }
            });
        })
    }

    fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    async fn capacity(&self) -> Option<Vec<KindCapacity>> {
        // Read before the query, so that an id that is pushed meanwhile is counted twice rather than missed.
        let unpushed: Vec<usize> = JobKind::ALL.iter().map(|kind| self.unpushed.of(*kind)).collect();
        let configs: Vec<Config> = JobKind::ALL.iter().map(|kind| self.queues.config(*kind, 1)).collect();
        let counts = self.query(async |connection| storage::count(connection, &configs).await).await?;
        let waiting = counts.into_iter().zip(unpushed).map(|(pushed, unpushed)| pushed + unpushed);
        let of = |(kind, waiting): (&JobKind, usize)| KindCapacity {
            kind: *kind,
            waiting,
            free: CAPACITY.saturating_sub(waiting),
        };
        Some(JobKind::ALL.iter().zip(waiting).map(of).collect())
    }

    async fn listening_processes(&self) -> Option<u32> {
        // Each process subscribes to the channels of all kinds.
        let channel = self.queues.channel(JobKind::Noop);
        let count = async |connection: &mut MultiplexedConnection| {
            redis::cmd("PUBSUB").arg("NUMSUB").arg(&channel).query_async::<(String, u32)>(connection).await
        };
        self.query(count).await.map(|(_channel, count)| count)
    }
}
