//! A job: one piece of asynchronous work, a row in `jobs`.
//!
//! ```text
//!              run_at reached              claimed
//!  scheduled ───────────────> ready ───────────────> running ──> done
//!      ▲ │                    ▲ │ ▲                    │ │ └────> dead       (no attempts left, final error, poison)
//!      │ │ cancelled          │ │ └── lease expired ───┘ │
//!      │ └─────────> cancelled <┘                        │
//!      └────────────────────── retry ────────────────────┘
//! ```
//! `fence` increases by one at each claim. A settle must name the fence of its claim, so a worker that was frozen
//! beyond its lease changes nothing when it resumes. A ready job over its lane's cap is `waiting`: it occupies no
//! worker slot and is not polled; a job that leaves the lane wakes the next one.
//!
//! [`crier_jobs`] explains how to add a kind.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

mod kinds;

pub use kinds::{JobKind, KindLimits};

crier_base::text_enum! {
    pub enum JobState {
        Scheduled = "scheduled",
        Ready = "ready",
        Running = "running",
        Done = "done",
        Dead = "dead",
        Cancelled = "cancelled",
    }
}

/// A crash counts against every job that ran in the process. After its third crash a job is dead, with the reason
/// `poison`.
pub const MAX_CRASHES: i32 = 3;

/// How long a claim is valid without a heartbeat.
pub const LEASE: TimeDelta = TimeDelta::seconds(30);

/// A job to enqueue.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub kind: JobKind,
    pub subject_id: i64,
    pub lane: Option<String>,
    /// The workspace whose limit the job counts against.
    pub workspace_id: Option<i64>,
    pub run_at: DateTime<Utc>,
    /// The id of the request that caused the job, so that one log search finds everything that belongs to the request.
    pub trace: Option<String>,
}

impl NewJob {
    /// Creates a job that runs at `run_at`, or immediately if that is not in the future.
    pub fn new(kind: JobKind, subject_id: i64, run_at: DateTime<Utc>) -> Self {
        Self { kind, subject_id, lane: None, workspace_id: None, run_at, trace: None }
    }

    pub fn lane(mut self, lane: Lane) -> Self {
        self.lane = Some(lane.to_string());
        self
    }

    pub fn workspace(mut self, workspace_id: i64) -> Self {
        self.workspace_id = Some(workspace_id);
        self
    }

    /// Puts the job into the lane of a user-supplied host.
    pub fn lane_of_host(mut self, host: &str) -> Self {
        self.lane = Some(format!("host:{host}"));
        self
    }

    pub fn trace(mut self, trace: Option<String>) -> Self {
        self.trace = trace;
        self
    }
}

/// Returns the lane that counts the running jobs of one kind and workspace; `None` if the kind has no workspace cap.
pub fn workspace_lane(kind: JobKind, workspace_id: Option<i64>) -> Option<String> {
    kind.limits().workspace_cap?;
    Some(format!("workspace:{}:{kind}", workspace_id?))
}

/// A shared resource with limited concurrency: an account, an endpoint, a brand, the mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Account(i64),
    Endpoint(i64),
    /// Deliveries that a person requests (a test, a manual retry): not delayed by the endpoint's queue.
    ManualDelivery(i64),
    Brand(i64),
    /// The renewal of an account's tokens.
    Refresh(i64),
    /// The recurring posts of a brand.
    Recurring(i64),
    /// The exports of a brand's reports.
    Reports(i64),
    MailServer,
    /// Emails with a file, which may wait for memory: a person who waits for a link to sign in does not wait for them.
    MailFiles,
    /// The posts of a feed that publishes.
    Feed(i64),
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Account(id) => write!(f, "account:{id}"),
            Self::Endpoint(id) => write!(f, "endpoint:{id}"),
            Self::ManualDelivery(id) => write!(f, "endpoint:{id}:asked"),
            Self::Brand(id) => write!(f, "brand:{id}"),
            Self::Refresh(id) => write!(f, "refresh:{id}"),
            Self::Recurring(id) => write!(f, "recurring:{id}"),
            Self::Reports(id) => write!(f, "reports:{id}"),
            Self::MailServer => f.write_str("mail_server"),
            Self::MailFiles => f.write_str("mail_server:files"),
            Self::Feed(id) => write!(f, "feed:{id}"),
        }
    }
}

/// A job that this process has claimed.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct ClaimedJob {
    pub id: i64,
    pub kind: JobKind,
    pub subject_id: i64,
    pub lane: Option<String>,
    pub workspace_lane: Option<String>,
    pub attempt: i32,
    pub max_attempts: i32,
    pub crashes: i32,
    pub fence: i64,
    /// The worker that claimed the job. If a power failure undoes a claim, the next claim gets the same fence, and this
    /// field distinguishes the two.
    pub worker: String,
    pub run_at: DateTime<Utc>,
    pub trace: Option<String>,
}

impl ClaimedJob {
    /// Returns whether one more crash makes the job dead. Such a job runs alone, because other jobs in the process may
    /// have caused its crashes.
    pub fn is_suspect(&self) -> bool {
        self.crashes >= MAX_CRASHES - 1
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Run again at this time. The text is the error, or empty if there was none.
    RetryAt(DateTime<Utc>, String),
    /// Do not retry. The text is the reason, for the operator.
    Abort(String),
    /// The subject was deleted or no longer needs the job.
    Cancelled(String),
}

/// The maximum number of attempts that operators are shown. A client can retry a job's subject any number of times.
pub const MAX_SHOWN_ATTEMPTS: i64 = 100;

/// One attempt at a job's subject, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct JobAttempt {
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub outcome: String,
    pub error: Option<String>,
}

/// The id of a job to send through the notifier after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobNotification {
    pub kind: JobKind,
    pub id: i64,
}

/// Sends the ids of ready jobs to the workers, after each commit that made jobs ready. It never blocks. It may fail or
/// lose an id: the row is authoritative, and the scheduler sends the id again.
pub trait JobNotifier: Send + Sync {
    fn notify(&self, notifications: &[JobNotification]);
}

/// A notifier that does nothing. Commands use it: the scheduler sends the notifications for their jobs.
#[derive(Debug, Default)]
pub struct NoopNotifier;

impl JobNotifier for NoopNotifier {
    fn notify(&self, _notifications: &[JobNotification]) {}
}
