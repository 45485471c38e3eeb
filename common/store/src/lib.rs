//! The store: everything that Crier persists, in Postgres or SQLite.
//!
//! One file per table. A function takes the connection first and the tenant second, so that a query without a tenant is
//! easy to spot; a look-up returns `Option`. Writes go through a [`Tx`]: rows, the jobs they cause and the stored
//! response commit together, and workers are notified only after the commit.
//!
//! **To add a table:** add the same file to `migrations/postgres` and `migrations/sqlite` (`migrations/README.md` has
//! the rules), a domain type, `store/<table>.rs`, and tests in `tests/store/`, which run on both engines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_base::clock::Clock;
use crier_base::secrets::Cipher;
use crier_domain::job::{ClaimedJob, JobKind, JobNotification, JobNotifier};
use crier_telemetry::metrics;
use db::execute;

pub mod account_holders;
pub mod account_tokens;
pub mod accounts;
pub mod adoptions;
pub mod ai_credits;
pub mod analytics;
pub mod applications;
pub mod articles;
pub mod authorizations;
pub mod avatars;
pub mod batch;
pub mod bio_pages;
pub mod brands;
pub mod calendar;
pub mod calls;
pub mod content_plans;
pub mod conversations;
pub mod cost;
pub mod db;
pub mod deletions;
pub mod deliveries;
pub mod error;
pub mod events;
pub mod feed_posts;
pub mod feeds;
pub mod files;
pub mod first_comments;
pub mod idempotency;
pub mod inbox_syncs;
pub mod invitations;
pub mod jobs;
pub mod keys;
pub mod leftovers;
pub mod mail_counts;
pub mod mails;
pub mod media;
pub mod media_jobs;
pub mod media_uploads;
pub mod misdated;
pub mod nearby_posts;
pub mod notices;
pub mod oauth;
pub mod operators;
mod packed;
mod pool;
pub mod post_imports;
pub mod post_media;
pub mod post_overview;
pub mod post_words;
pub mod posts;
pub mod queues;
pub mod recurring_occurrences;
pub mod recurring_posts;
pub mod report_deliveries;
pub mod report_metrics;
pub mod report_schedules;
pub mod reports;
pub mod sandbox;
mod search;
pub mod secret_keys;
pub mod server;
pub mod sessions;
pub mod snippets;
mod sql;
pub mod storage_marker;
pub mod targets;
mod transaction;
pub mod usage;
pub mod users;
mod wal;
pub mod webhooks;

pub use batch::{Batcher, WorkerCount};
pub use db::{Conn, Db};
pub use error::StoreError;
use jobs::wake::FreePlaces;
pub use jobs::wake::{ReservedRun, Successors};

pub type Result<T> = std::result::Result<T, StoreError>;

/// The database, with the clock, the cipher and the notifier, which every write needs.
#[derive(Clone)]
pub struct Store {
    db: Db,
    clock: Clock,
    cipher: Cipher,
    notifier: Arc<dyn JobNotifier>,
    successors: Option<Arc<dyn Successors>>,
    workers: WorkerCount,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("db", &self.db).finish_non_exhaustive()
    }
}

impl Store {
    pub fn new(db: Db, clock: Clock, cipher: Cipher, notifier: Arc<dyn JobNotifier>) -> Self {
        Self { db, clock, cipher, notifier, successors: None, workers: WorkerCount::default() }
    }

    /// Returns a copy whose transactions start waiting jobs directly in the places that other jobs leave in their
    /// lanes.
    pub fn with_successors(self, successors: Arc<dyn Successors>) -> Self {
        Self { successors: Some(successors), ..self }
    }

    /// Returns a copy with its own connections, for a thread with its own runtime ([`Db::new_connections`]).
    pub async fn new_connections(&self) -> Result<Self> {
        Ok(Self { db: self.db.new_connections().await?, ..self.clone() })
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn cipher(&self) -> &Cipher {
        &self.cipher
    }

    pub fn notifier(&self) -> &dyn JobNotifier {
        &*self.notifier
    }

    /// Returns the number of worker processes that share the database. The worker sets it.
    pub fn workers(&self) -> &WorkerCount {
        &self.workers
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Compares the clock with Postgres', whose time is used while they differ. Called before any write, and then
    /// regularly.
    pub async fn check_clock(&self) -> Result<()> {
        let mut conn = self.read().await?;
        let began = self.clock.elapsed();
        if let Some(at) = server::now(&mut conn).await? {
            self.clock.follow(at, began);
        }
        Ok(())
    }

    /// Returns a connection for reads.
    pub async fn read(&self) -> Result<Conn> {
        self.db.read().await
    }

    /// Begins a transaction, the unit of work.
    pub async fn begin(&self) -> Result<Tx> {
        Ok(self.tx(self.db.begin().await?, true))
    }

    /// Begins a transaction whose commit does not wait for the disk, for claims, lease renewals and repeated
    /// notifications. A power cut may undo it, which does no harm: a later durable commit that depends on it makes it
    /// durable too, and an undone claim is repeated under another worker name.
    pub async fn begin_async_commit(&self) -> Result<Tx> {
        Ok(self.tx(self.db.begin_async_commit().await?, false))
    }

    /// Begins a transaction of one statement, whose commit does not wait for the disk. On Postgres, it needs no `BEGIN`
    /// and `COMMIT`, and the statement itself disables the wait.
    pub async fn begin_single_async_commit(&self) -> Result<Tx> {
        let conn = if let Db::Pg(_) = &self.db { self.db.read().await? } else { self.db.begin_async_commit().await? };
        Ok(self.tx(conn, false))
    }

    fn tx(&self, conn: Conn, is_durable: bool) -> Tx {
        Tx {
            conn,
            store: self.clone(),
            is_durable,
            notifications: Vec::new(),
            enqueued: Vec::new(),
            lanes: Lanes::default(),
            after: Vec::new(),
            now: self.clock.now(),
            cipher: self.cipher.clone(),
        }
    }
}

/// A transaction that collects the jobs that it makes ready, and notifies workers after the commit. Dropping it without
/// a commit rolls it back.
pub struct Tx {
    conn: Conn,
    store: Store,
    /// Whether the commit waits for the disk.
    is_durable: bool,
    notifications: Vec<JobNotification>,
    enqueued: Vec<JobKind>,
    lanes: Lanes,
    after: Vec<After>,
    /// One timestamp for the whole transaction.
    pub now: DateTime<Utc>,
    pub cipher: Cipher,
}

/// A callback that runs after a commit.
type After = Box<dyn FnOnce() + Send + Sync>;

/// A point in a transaction to which it can return.
pub struct Savepoint {
    /// The numbers of entries in the transaction's lists.
    notifications: usize,
    enqueued: usize,
    after: usize,
    lanes: Lanes,
}

/// Lane changes of a transaction, processed after its commit.
#[derive(Clone, Default)]
pub(crate) struct Lanes {
    /// Freed places by lane.
    free: BTreeMap<String, FreePlaces>,
    /// Lanes in which jobs were set waiting because the lane was full, with the jobs' kind.
    full: BTreeMap<String, JobKind>,
    /// Workspaces whose jobs ended or were set waiting.
    workspaces: BTreeMap<String, Workspace>,
}

/// Changes of a transaction to one workspace's share.
#[derive(Clone)]
pub(crate) struct Workspace {
    kind: JobKind,
    /// Whether jobs were set waiting because the share was full.
    was_full: bool,
    /// The number of its jobs that ended.
    left: i64,
    /// The lanes of these jobs.
    lanes: BTreeSet<String>,
    /// A lane that a job left, or in which one was set waiting. Free places go to this lane and those after it.
    start: String,
}

impl Deref for Tx {
    type Target = Conn;
    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

impl Tx {
    /// Queues a notification for a job, which is sent after the commit.
    pub fn notify_later(&mut self, notification: JobNotification) {
        self.notifications.push(notification);
    }

    /// Runs `work` in this process after a successful commit, for example to drop a cache entry. It does not run if the
    /// process dies or the client disconnects first, so correctness must not depend on it.
    pub fn after_commit(&mut self, work: impl FnOnce() + Send + Sync + 'static) {
        self.after.push(Box::new(work));
    }

    /// Sets a savepoint. It must be released or rolled back to before another one is set.
    pub async fn set_savepoint(&mut self) -> Result<Savepoint> {
        execute!(self, "SAVEPOINT part")?;
        Ok(Savepoint {
            notifications: self.notifications.len(),
            enqueued: self.enqueued.len(),
            after: self.after.len(),
            lanes: self.lanes.clone(),
        })
    }

    /// Keeps everything since the savepoint.
    pub async fn release(&mut self, _: Savepoint) -> Result<()> {
        execute!(self, "RELEASE SAVEPOINT part")?;
        Ok(())
    }

    /// Undoes everything since the savepoint.
    pub async fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let Savepoint { notifications, enqueued, after, lanes } = savepoint;
        execute!(self, "ROLLBACK TO SAVEPOINT part")?;
        self.notifications.truncate(notifications);
        self.enqueued.truncate(enqueued);
        self.after.truncate(after);
        self.lanes = lanes;
        execute!(self, "RELEASE SAVEPOINT part")?;
        Ok(())
    }

    /// Counts the job in the metrics after the commit.
    pub(crate) fn count_enqueued(&mut self, kind: JobKind) {
        self.enqueued.push(kind);
    }

    /// Records that a job left its lane and its workspace's share. Waiting jobs are woken after the commit.
    pub fn leave_lanes(&mut self, job: &ClaimedJob) {
        let Some(lane) = &job.lane else { return };
        self.lanes.free.entry(lane.clone()).or_insert(FreePlaces::left_by(job.kind)).add(1, Some(job.kind));
        if let Some(name) = &job.workspace_lane {
            let workspace = self.workspace(name, job.kind);
            workspace.left += 1;
            workspace.lanes.insert(lane.clone());
            workspace.start.clone_from(lane);
        }
    }

    /// Records that a job of a lane was set waiting because its workspace's share was full.
    pub(crate) fn found_workspace_full(&mut self, name: &str, kind: JobKind, lane: Option<&str>) {
        let workspace = self.workspace(name, kind);
        workspace.was_full = true;
        workspace.start = lane.unwrap_or_default().to_owned();
    }

    fn workspace(&mut self, name: &str, kind: JobKind) -> &mut Workspace {
        self.lanes.workspaces.entry(name.to_owned()).or_insert_with(|| Workspace::new(kind))
    }

    /// Records that several places of a lane are free.
    pub fn free_places(&mut self, lane: &str, places: i64) {
        self.lanes.free.entry(lane.to_owned()).or_default().add(places, None);
    }

    /// Records that a job was set waiting because its lane was full.
    pub(crate) fn found_full(&mut self, lane: &str, kind: JobKind) {
        self.lanes.full.insert(lane.to_owned(), kind);
    }

    /// Commits, sends the notifications, and wakes jobs that wait for freed lanes.
    pub async fn commit(mut self) -> Result<()> {
        let (store, lanes) = (self.store.clone(), std::mem::take(&mut self.lanes));
        self.commit_without_waking().await?;
        if let Some(successors) = &store.successors {
            successors.committed();
        }
        if let Err(error) = jobs::wake::wake_lanes(&store, lanes).await {
            tracing::warn!(%error, "failed to wake jobs that wait for a lane; the scheduler wakes them");
        }
        Ok(())
    }

    /// Commits without waking lanes.
    pub(crate) async fn commit_without_waking(self) -> Result<()> {
        self.conn.commit().await?;
        if self.is_durable {
            self.store.db.sync().await?;
        }
        self.after.into_iter().for_each(|work| work());
        for kind in &self.enqueued {
            metrics::jobs_enqueued(kind.as_str(), 1);
        }
        if !self.notifications.is_empty() {
            self.store.notifier.notify(&self.notifications);
        }
        Ok(())
    }

    /// Rolls back immediately. Dropping the transaction rolls back in the background.
    pub async fn rollback(self) -> Result<()> {
        self.conn.rollback().await
    }
}

/// One page of a list, and the total number of rows.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub total: i64,
}

/// The page to list: `LIMIT per_page OFFSET (page - 1) * per_page`.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest {
    pub page: i64,
    pub per_page: i64,
}

impl PageRequest {
    pub fn offset(self) -> i64 {
        (self.page - 1).saturating_mul(self.per_page)
    }
}
