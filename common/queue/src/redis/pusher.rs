//! The pusher: moves the ids of one process to Redis.
//!
//! Redis holds a bounded number of ids. Further ids wait here, in order, and follow as workers fetch ids. If this
//! process ends meanwhile, the scheduler notifies again for their jobs.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crier_domain::job::{JobKind, JobNotification};
use crier_telemetry::logs::Repeat;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

use super::{CAPACITY, Queues, reconnect_pauses, storage};

/// The maximum number of ids per push.
const MAX_BATCH: usize = 500;
/// The maximum number of ids of a kind that wait in this process. The scheduler notifies again for further ids.
const MAX_PENDING: usize = 20_000;
/// The interval at which Redis is queried for free capacity while ids wait.
const CAPACITY_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of the checks that Redis accepts writes, while no ids wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of ids of each kind that this process has notified and not yet pushed.
#[derive(Debug, Default)]
pub struct Unpushed(Mutex<HashMap<JobKind, usize>>);

impl Unpushed {
    pub fn of(&self, kind: JobKind) -> usize {
        self.change(|counts| counts.get(&kind).copied().unwrap_or(0))
    }

    pub fn add(&self, kind: JobKind) {
        self.change(|counts| *counts.entry(kind).or_default() += 1);
    }

    pub fn subtract(&self, kind: JobKind, ids: usize) {
        self.change(|counts| {
            let count = counts.entry(kind).or_default();
            *count = count.saturating_sub(ids);
        });
    }

    /// No code panics while it holds the lock, so a poisoned lock is safe to use.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<JobKind, usize>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Pushes ids to Redis. If there are no ids, it checks that Redis accepts writes, so that readiness is known: a server
/// whose memory is full still responds, and no job starts.
pub struct Pusher {
    queues: Queues,
    receiver: mpsc::Receiver<JobNotification>,
    up: Arc<AtomicBool>,
    unpushed: Arc<Unpushed>,
    pending: HashMap<JobKind, VecDeque<i64>>,
}

impl Pusher {
    pub fn new(
        queues: Queues,
        receiver: mpsc::Receiver<JobNotification>,
        up: Arc<AtomicBool>,
        unpushed: Arc<Unpushed>,
    ) -> Self {
        Self { queues, receiver, up, unpushed, pending: HashMap::new() }
    }

    /// Runs until the notifier is dropped.
    pub async fn run(mut self) {
        let (mut pauses, mut repeat, mut has_failed) = (reconnect_pauses(), Repeat::default(), false);
        let server = self.queues.client.get_connection_info().addr().to_string();
        loop {
            match self.queues.connect_writable().await {
                Ok(connection) => {
                    // The end of a failure that was logged.
                    if has_failed {
                        tracing::info!("connected to the queue (Redis)");
                    } else {
                        tracing::debug!("connected to the queue (Redis)");
                    }
                    self.up.store(true, Ordering::Relaxed);
                    pauses.reset();
                    let error = self.push_until_failure(connection).await;
                    self.up.store(false, Ordering::Relaxed);
                    match error {
                        Some(error) => {
                            tracing::warn!(%error, "the queue (Redis) failed; jobs wait in the database");
                        }
                        None => return,
                    }
                    repeat = Repeat::default();
                }
                Err(error) if repeat.is_due() => {
                    tracing::warn!(
                        "Redis at {server} cannot be used (CRIER_REDIS_URL): {error}; jobs wait in the database"
                    );
                }
                Err(_) => {}
            }
            has_failed = true;
            // Ids that arrive meanwhile are dropped: the scheduler notifies again when Redis is reachable.
            for (kind, ids) in self.pending.drain() {
                self.unpushed.subtract(kind, ids.len());
            }
            while let Ok(notification) = self.receiver.try_recv() {
                self.unpushed.subtract(notification.kind, 1);
            }
            if self.receiver.is_closed() {
                return;
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }

    /// Pushes until Redis fails; returns `None` when the notifier was dropped.
    async fn push_until_failure(&mut self, mut connection: MultiplexedConnection) -> Option<RedisError> {
        let mut batch = Vec::new();
        loop {
            let wait = if self.pending.is_empty() { CHECK_INTERVAL } else { CAPACITY_INTERVAL };
            match tokio::time::timeout(wait, self.receiver.recv_many(&mut batch, MAX_BATCH)).await {
                Ok(0) => return None,
                Ok(_) => batch.drain(..).for_each(|notification| self.add(notification)),
                Err(_) => {}
            }
            let pushed = match self.pending.is_empty() {
                true => storage::check_writable(&mut connection, &self.queues.prefix).await,
                false => self.push_pending(&mut connection).await,
            };
            if let Err(error) = pushed {
                return Some(error);
            }
        }
    }

    fn add(&mut self, notification: JobNotification) {
        let ids = self.pending.entry(notification.kind).or_default();
        match ids.len() < MAX_PENDING {
            true => ids.push_back(notification.id),
            false => self.unpushed.subtract(notification.kind, 1),
        }
    }

    /// Pushes as many ids of each kind as Redis has capacity for.
    async fn push_pending(&mut self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let kinds: Vec<JobKind> = self.pending.keys().copied().collect();
        for kind in kinds {
            match self.push_kind(connection, kind).await {
                Err(error) if storage::is_wrong_type(&error) => {
                    tracing::warn!(%kind, "a key of the queue (Redis) has the wrong type; deleting the keys of the kind");
                    storage::delete_all(connection, &self.queues.config(kind, 1)).await;
                }
                other => other?,
            }
        }
        self.pending.retain(|_, ids| !ids.is_empty());
        Ok(())
    }

    async fn push_kind(&mut self, connection: &mut MultiplexedConnection, kind: JobKind) -> Result<(), RedisError> {
        let Some(pending) = self.pending.get_mut(&kind) else { return Ok(()) };
        let config = self.queues.config(kind, 1);
        let mut waiting = storage::count(connection, std::slice::from_ref(&config)).await?.into_iter().sum();
        while !pending.is_empty() && waiting < CAPACITY {
            let count = pending.len().min(MAX_BATCH).min(CAPACITY - waiting);
            // They stay pending until the push has succeeded: an id that is pushed twice costs a claim, a lost one
            // costs seconds.
            let ids = pending.iter().take(count).copied().collect();
            waiting = storage::push(connection, &config, &self.queues.channel(kind), ids).await?;
            pending.drain(..count);
            self.unpushed.subtract(kind, count);
        }
        Ok(())
    }
}
