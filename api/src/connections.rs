//! Limits the number of client connections, and closes idle ones to make room.
//!
//! Every connection takes a file descriptor, and a process without free descriptors can reach neither its database nor
//! a platform. So client connections have their own limit. Near the limit, a new connection replaces idle ones: first
//! those that never made a request, then the longest idle ones. A connection with a request in progress is never closed
//! for another. If all connections are busy, new ones wait in the listener's backlog.
//!
//! A client that reads a response too slowly is disconnected, regardless of the pattern of its reads, because the
//! response holds memory or a file.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crier_endpoints::runner::body_reader::{MinRate, TimeBudget};
use crier_telemetry::metrics;
use salvo::conn::ConnCtrl;
use salvo::fuse::{ArcConnObserver, ConnObserver, FuseAction, FuseConfig, FuseInfo, FusePolicy};
use tokio_util::sync::CancellationToken;

/// The divisor for the share of the limit that is kept free by closing idle connections.
const HEADROOM_SHARE: usize = 16;
/// The minimum interval between log messages about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of one server. Clones share them.
#[derive(Clone)]
pub struct Connections(Arc<Inner>);

struct Inner {
    /// The number of connections at which idle ones are closed for new ones.
    eviction_threshold: usize,
    headroom: usize,
    timeouts: FuseConfig,
    stop: CancellationToken,
    started: Instant,
    open: Mutex<HashMap<SocketAddr, Arc<Connection>>>,
    /// The time of the last log message about closed connections, in milliseconds since `started`. 0 if there was none.
    logged: AtomicU64,
}

struct Connection {
    control: ConnCtrl,
    /// The time when bytes were last received or sent, in milliseconds since the server started.
    active_at: AtomicU64,
    /// Requests in progress.
    requests: AtomicUsize,
    has_served: AtomicBool,
    /// Large responses that are being sent.
    sending: AtomicUsize,
    /// Bytes sent since the last rate check.
    sent: AtomicU64,
    /// The client's time budget at the last rate check. `None` if no large response was being sent.
    budget: Mutex<Option<TimeBudget>>,
}

impl Connections {
    /// Allows at most `max` connections, each with these timeouts. After `stop`, clients are asked not to use them
    /// again.
    pub fn new(max: usize, timeouts: FuseConfig, stop: CancellationToken) -> Self {
        let headroom = (max / HEADROOM_SHARE).max(1);
        Self(Arc::new(Inner {
            eviction_threshold: max.saturating_sub(headroom).max(1),
            headroom,
            timeouts,
            stop,
            started: Instant::now(),
            open: Mutex::default(),
            logged: AtomicU64::new(0),
        }))
    }

    /// Marks a connection as busy until the guard is dropped.
    pub fn begin_request(&self, client: SocketAddr) -> Option<BusyGuard> {
        let connection = self.0.open().get(&client)?.clone();
        connection.requests.fetch_add(1, Ordering::Relaxed);
        Some(BusyGuard(connection))
    }

    /// Marks a large response as being sent until the guard is dropped.
    pub fn begin_sending(&self, client: SocketAddr) -> Option<SendingGuard> {
        let connection = self.0.open().get(&client)?.clone();
        connection.sending.fetch_add(1, Ordering::Relaxed);
        Some(SendingGuard(connection))
    }

    /// Closes a connection immediately.
    pub fn abort(&self, client: SocketAddr) {
        if let Some(connection) = self.0.open().get(&client) {
            connection.control.abort();
        }
    }

    /// Closes connections whose clients read a large response too slowly. `elapsed`: the time since the last call.
    pub fn close_slow(&self, elapsed: Duration, rate: MinRate) {
        let open = self.0.open();
        let closed = open.values().filter(|connection| connection.is_too_slow(elapsed, rate));
        let closed = closed.inspect(|connection| connection.control.abort()).count();
        drop(open);
        metrics::http_responses_cut("slow", closed);
    }

    /// Returns whether clients should use other connections for their next requests.
    pub fn are_closing(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Closes every connection after the request in progress. salvo does this itself, except for connections that never
    /// sent a byte: it would wait for them.
    pub fn close_gracefully(&self) {
        self.0.open().values().for_each(|connection| connection.control.graceful_shutdown());
    }

    /// Closes idle connections if there are too many.
    fn make_room(&self) {
        let open = self.0.open();
        if open.len() < self.0.eviction_threshold {
            return;
        }
        let mut idle: Vec<&Arc<Connection>> = open.values().filter(|connection| connection.is_idle()).collect();
        // Close several together: scanning all connections for each new one would cost more than the connections
        // themselves.
        let count = self.0.headroom.min(idle.len());
        if count == 0 {
            return;
        }
        idle.select_nth_unstable_by_key(count - 1, |connection| connection.eviction_order());
        idle[..count].iter().for_each(|connection| connection.control.abort());
        drop(open);
        metrics::http_connections_evicted(count);
        self.log_eviction();
    }

    fn log_eviction(&self) {
        let (now, logged) = (self.0.now().max(1), self.0.logged.load(Ordering::Relaxed));
        let is_time = logged == 0 || now.saturating_sub(logged) >= millis(LOG_INTERVAL);
        let first = || self.0.logged.compare_exchange(logged, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_time && first() {
            tracing::warn!("CRIER_MAX_CONNECTIONS reached: closing idle connections to accept new ones");
        }
    }
}

#[salvo::async_trait]
impl FusePolicy for Connections {
    async fn decide(&self, _: &FuseInfo) -> FuseAction {
        self.make_room();
        FuseAction::Accept(self.0.timeouts)
    }

    fn observe(&self, info: &FuseInfo, control: &ConnCtrl) -> Option<ArcConnObserver> {
        let client = info.remote_addr.clone().into_std()?;
        let connection = Arc::new(Connection {
            control: control.clone(),
            active_at: AtomicU64::new(self.0.now()),
            requests: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            sending: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            budget: Mutex::default(),
        });
        let mut open = self.0.open();
        open.insert(client, connection.clone());
        metrics::http_connections(open.len());
        drop(open);
        Some(Arc::new(Observer { all: self.clone(), client, connection }))
    }
}

impl Inner {
    /// The map is consistent after every statement, so a poisoned lock is safe to use.
    fn open(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.control.is_aborted()
    }

    fn is_too_slow(&self, elapsed: Duration, rate: MinRate) -> bool {
        let sent = self.sent.swap(0, Ordering::Relaxed);
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sending.load(Ordering::Relaxed) == 0 {
            *budget = None;
            return false;
        }
        let Some(budget) = budget.as_mut() else {
            // The response may have begun at any time since the last check, so its budget begins here.
            *budget = Some(TimeBudget::new(rate));
            return false;
        };
        budget.record(elapsed, usize::try_from(sent).unwrap_or(usize::MAX));
        budget.is_exhausted()
    }

    /// Returns the sort key for eviction. The lowest is closed first.
    fn eviction_order(&self) -> (bool, u64) {
        (self.has_served.load(Ordering::Relaxed), self.active_at.load(Ordering::Relaxed))
    }
}

/// A request in progress.
pub struct BusyGuard(Arc<Connection>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.has_served.store(true, Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A large response that is being sent.
pub struct SendingGuard(Arc<Connection>);

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lives as long as the connection's stream.
struct Observer {
    all: Connections,
    client: SocketAddr,
    connection: Arc<Connection>,
}

impl Observer {
    fn mark_active(&self) {
        self.connection.active_at.store(self.all.0.now(), Ordering::Relaxed);
    }
}

impl ConnObserver for Observer {
    fn on_read(&self, _: usize) {
        self.mark_active();
    }

    fn on_write(&self, bytes: usize) {
        self.connection.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.mark_active();
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let mut open = self.all.0.open();
        // The client may have connected again from the same port.
        if open.get(&self.client).is_some_and(|connection| Arc::ptr_eq(connection, &self.connection)) {
            open.remove(&self.client);
        }
        metrics::http_connections(open.len());
    }
}
