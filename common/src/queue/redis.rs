//! The notifier over Redis: a list per kind.
//!
//! Notifying never waits: ids go to a task that pushes them in one pipeline, and are dropped while Redis is
//! unreachable. A listener waits with `BLPOP` on its own connection, so it receives an id as soon as it is pushed,
//! without polling; it pops no more ids than it has free places, so that no worker keeps what another could run. A
//! connection that breaks or hangs is re-established, with a backoff that grows to two seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{CAPACITY, Notification, Transport};
use crate::domain::job::{JobKind, JobNotification, JobNotifier};

const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(2);
/// The server's timeout of a blocking pop. The client waits a little longer, then considers the server hung.
const WAIT: Duration = Duration::from_secs(5);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Ids that wait for the pusher; further ids are left to the dispatcher.
const BUFFER: usize = 8_192;
/// How many ids a listener pops at once: enough to batch a claim.
const MAX_POP: usize = 100;

/// The notifier over Redis. Its tasks end when `stop` is cancelled.
pub struct RedisNotifier {
    client: Client,
    sender: mpsc::Sender<JobNotification>,
    up: Arc<AtomicBool>,
    prefix: String,
    asking: Mutex<Option<MultiplexedConnection>>,
    stop: CancellationToken,
}

fn key(prefix: &str, kind: JobKind) -> String {
    format!("{prefix}:bell:{kind}")
}

async fn connect(client: &Client, answer: Duration) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(answer));
    client.get_multiplexed_async_connection_with_config(&config).await
}

impl RedisNotifier {
    /// Starts the pusher. Redis need not be reachable yet. `prefix` is `crier`, except in tests that share a server.
    pub fn start(url: &SecretString, prefix: &str, stop: CancellationToken) -> Result<Self, RedisError> {
        let client = Client::open(url.expose_secret())?;
        let (sender, receiver) = mpsc::channel(BUFFER);
        let up = Arc::new(AtomicBool::new(false));
        let pusher = Pusher { client: client.clone(), receiver, up: up.clone(), prefix: prefix.to_owned() };
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! { () = pusher.run() => {}, () = stopped.cancelled() => {} }
        });
        Ok(Self { client, sender, up, prefix: prefix.to_owned(), asking: Mutex::default(), stop })
    }
}

impl JobNotifier for RedisNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        for notification in notifications {
            if self.sender.try_send(*notification).is_err() {
                break;
            }
        }
    }
}

#[async_trait]
impl Transport for RedisNotifier {
    fn listen(&self, kind: JobKind, places: Arc<Semaphore>) -> mpsc::Receiver<Notification> {
        let (sender, receiver) = mpsc::channel(MAX_POP);
        let listener = Listener { client: self.client.clone(), key: key(&self.prefix, kind), places, sender };
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! { () = listener.run() => {}, () = stop.cancelled() => {} }
        });
        receiver
    }

    fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    async fn free_capacity(&self) -> Option<Vec<(JobKind, usize)>> {
        // Called several times a second, so the connection is reused as long as it works.
        let mut cached = self.asking.lock().await;
        let mut connection = match cached.take() {
            Some(connection) => connection,
            None => connect(&self.client, ANSWER).await.ok()?,
        };
        let mut pipe = redis::pipe();
        for kind in JobKind::ALL {
            pipe.llen(key(&self.prefix, *kind));
        }
        let lengths: Vec<usize> = pipe.query_async(&mut connection).await.ok()?;
        *cached = Some(connection);
        Some(JobKind::ALL.iter().copied().zip(lengths.into_iter().map(|n| CAPACITY.saturating_sub(n))).collect())
    }
}

/// Pushes ids to Redis, and pings when there are no ids, so that readiness is known.
struct Pusher {
    client: Client,
    receiver: mpsc::Receiver<JobNotification>,
    up: Arc<AtomicBool>,
    prefix: String,
}

impl Pusher {
    async fn run(mut self) {
        let mut pause = Backoff::default();
        loop {
            match connect(&self.client, ANSWER).await {
                Ok(connection) => {
                    tracing::info!("connected to the queue (Redis)");
                    self.up.store(true, Ordering::Relaxed);
                    pause = Backoff::default();
                    let error = self.push(connection).await;
                    self.up.store(false, Ordering::Relaxed);
                    match error {
                        Some(error) => {
                            tracing::warn!(%error, "the queue (Redis) is unreachable; jobs wait in the database")
                        }
                        None => return,
                    }
                }
                Err(error) if pause.is_first() => {
                    tracing::warn!(%error, "the queue (CRIER_REDIS_URL) is not reachable yet; jobs wait in the database");
                }
                Err(_) => {}
            }
            // Ids that arrive meanwhile are dropped: the dispatcher notifies again once Redis is back.
            while self.receiver.try_recv().is_ok() {}
            if self.receiver.is_closed() {
                return;
            }
            pause.wait().await;
        }
    }

    /// Pushes until the connection fails; returns `None` when the notifier was dropped.
    async fn push(&mut self, mut connection: MultiplexedConnection) -> Option<RedisError> {
        let mut batch = Vec::new();
        loop {
            let first = tokio::time::timeout(Duration::from_secs(1), self.receiver.recv_many(&mut batch, 1_000)).await;
            if first == Ok(0) {
                return None;
            }
            let mut pipe = redis::pipe();
            if batch.is_empty() {
                pipe.cmd("PING").ignore();
            }
            for kind in JobKind::ALL {
                let ids: Vec<i64> = batch.iter().filter(|r| r.kind == *kind).map(|r| r.id).collect();
                if !ids.is_empty() {
                    let key = key(&self.prefix, *kind);
                    let last_index = isize::try_from(CAPACITY).unwrap_or(isize::MAX) - 1;
                    pipe.rpush(&key, ids).ignore().ltrim(&key, 0, last_index).ignore();
                }
            }
            batch.clear();
            if let Err(error) = pipe.query_async::<()>(&mut connection).await {
                return Some(error);
            }
        }
    }
}

/// Forwards ids of one kind until the receiver is dropped or the places are closed.
struct Listener {
    client: Client,
    key: String,
    places: Arc<Semaphore>,
    sender: mpsc::Sender<Notification>,
}

impl Listener {
    async fn run(self) {
        let mut pause = Backoff::default();
        while !self.sender.is_closed() && !self.places.is_closed() {
            if let Ok(mut connection) = connect(&self.client, WAIT + ANSWER).await {
                pause = Backoff::default();
                if let Err(error) = self.pop(connection.clone()).await {
                    tracing::debug!(%error, key = self.key, "listening to the queue (Redis) failed; reconnecting");
                    // The key does not contain a list; until it is deleted, no id of this kind is received.
                    if error.code() == Some("WRONGTYPE") {
                        tracing::warn!(key = self.key, "the queue (Redis) key is not a list, and is deleted");
                        let _ = redis::cmd("DEL").arg(&self.key).query_async::<()>(&mut connection).await;
                    }
                }
            }
            pause.wait().await;
        }
    }

    async fn pop(&self, mut connection: MultiplexedConnection) -> Result<(), RedisError> {
        // The place first, then the id, so that a popped id is always handed on.
        while !self.sender.is_closed() {
            let Ok(place) = self.places.clone().acquire_owned().await else { break };
            let mut first = redis::cmd("BLPOP");
            first.arg(&self.key).arg(WAIT.as_secs());
            let Some((_, id)) = first.query_async::<Option<(String, i64)>>(&mut connection).await? else { continue };
            self.forward(id, place, &mut connection).await?;
            let more = self.places.available_permits().min(MAX_POP);
            let Ok(mut places) = self.places.clone().try_acquire_many_owned(u32::try_from(more).unwrap_or(0)) else {
                continue;
            };
            if more == 0 {
                continue;
            }
            let mut others = redis::cmd("LPOP");
            others.arg(&self.key).arg(more);
            for id in others.query_async::<Option<Vec<i64>>>(&mut connection).await?.unwrap_or_default() {
                if let Some(place) = places.split(1) {
                    self.forward(id, place, &mut connection).await?;
                }
            }
        }
        Ok(())
    }

    async fn forward(
        &self,
        id: i64,
        place: OwnedSemaphorePermit,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        if self.sender.send(Notification { id, place: Some(place) }).await.is_err() {
            // This worker stopped while it waited: return the id to the queue for the others.
            return redis::cmd("LPUSH").arg(&self.key).arg(id).query_async(connection).await;
        }
        Ok(())
    }
}

/// A backoff that grows: 50 ms, 100 ms, … 2 s.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn is_first(&self) -> bool {
        self.0 == 0
    }

    async fn wait(&mut self) {
        let length = Duration::from_millis(50 << self.0.min(6)).min(MAX_BACKOFF);
        self.0 += 1;
        tokio::time::sleep(length).await;
    }
}
