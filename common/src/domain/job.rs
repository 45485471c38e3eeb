//! A job: one piece of asynchronous work, a row in `jobs`.
//!
//! ```text
//!              run_at comes                claimed
//!  scheduled ───────────────> ready ───────────────> running ──> done
//!      ▲ │                    ▲ │ ▲                    │ │ └────> dead       (no attempts left, final error, poison)
//!      │ │ cancelled          │ │ └── lease expired ───┘ │
//!      │ └─────────> cancelled <┘                        │
//!      └────────────────────── retry ────────────────────┘
//! ```
//! `fence` rises by one at each claim; a settle names the fence it holds, so that a worker which was frozen past its lease
//! changes nothing when it wakes. A ready job over its lane's cap is `waiting`: it takes no worker's slot and is not
//! polled; whoever leaves the lane wakes the next.
//!
//! **To add a kind:** its line in [`Kind`] and in [`Kind::rules`], its word in `store::jobs`' `known!`, its arms in
//! `subjects`, `worker/src/jobs/<kind>.rs`, one line in the worker's registry, and a test.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

crate::text_enum! {
    pub enum Kind {
        PublishTarget = "publish_target",
        DeliverWebhook = "deliver_webhook",
        SendMail = "send_mail",
        FetchFeed = "fetch_feed",
        ImportMedia = "import_media",
        /// Does nothing; `crier bench jobs` measures the engine with it.
        Noop = "noop",
    }
}

crate::text_enum! {
    pub enum State {
        Scheduled = "scheduled",
        Ready = "ready",
        Running = "running",
        Done = "done",
        Dead = "dead",
        Cancelled = "cancelled",
    }
}

/// What is fixed for a kind.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How many runs at most; a crash counts as one.
    pub max_attempts: i32,
    /// How many jobs of one lane may run at once; `None`: no cap.
    pub lane_cap: Option<i64>,
    /// How many jobs of one workspace may run at once, whatever their lanes; `None`: no cap. It is there for fairness, not
    /// for correctness: workers that claim at the same time may go over it by what they claim.
    pub workspace_cap: Option<i64>,
}

impl Kind {
    pub const fn rules(self) -> Rules {
        match self {
            Self::PublishTarget => Rules { max_attempts: 8, lane_cap: Some(4), workspace_cap: Some(256) },
            // The delivery's own `max_attempts` decides; a replay raises it. An endpoint that fails has fewer places.
            Self::DeliverWebhook => Rules { max_attempts: 1_000, lane_cap: Some(128), workspace_cap: Some(512) },
            Self::SendMail => Rules { max_attempts: 8, lane_cap: Some(8), workspace_cap: None },
            // A failed fetch is no failed job: these are for crashes and a database that is away. The lane is a host: it is
            // not asked by more at once, and one that is slow holds up no other.
            Self::FetchFeed => Rules { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(128) },
            // The lane is the brand: one that imports a whole catalogue leaves room for the others. A download keeps its slot,
            // since what it has taken in fills memory and disk.
            Self::ImportMedia => Rules { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(16) },
            Self::Noop => Rules { max_attempts: 5, lane_cap: None, workspace_cap: None },
        }
    }
}

/// A crash counts against every job that ran in the process; after the third the job is dead, reason `poison`.
pub const MAX_CRASHES: i32 = 3;

/// How long a claim holds without a heartbeat.
pub const LEASE: TimeDelta = TimeDelta::seconds(30);

/// A job as it is enqueued.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub kind: Kind,
    pub subject_id: i64,
    pub lane: Option<String>,
    /// Whose share of the kind's places it takes.
    pub workspace_id: Option<i64>,
    /// Higher goes first.
    pub priority: i32,
    pub run_at: DateTime<Utc>,
    /// The request's id, so that one search finds the whole story.
    pub trace: Option<String>,
}

impl NewJob {
    /// A job to be run at `run_at`; at once where that is not in the future.
    pub fn new(kind: Kind, subject_id: i64, run_at: DateTime<Utc>) -> Self {
        Self { kind, subject_id, lane: None, workspace_id: None, priority: 0, run_at, trace: None }
    }

    pub fn lane(mut self, lane: Lane) -> Self {
        self.lane = Some(lane.to_string());
        self
    }

    pub fn workspace(mut self, workspace_id: i64) -> Self {
        self.workspace_id = Some(workspace_id);
        self
    }

    /// In the lane of a host that users named.
    pub fn lane_of_host(mut self, host: &str) -> Self {
        self.lane = Some(format!("host:{host}"));
        self
    }

    pub fn trace(mut self, trace: Option<String>) -> Self {
        self.trace = trace;
        self
    }
}

/// The name under which running jobs of one kind and workspace are counted; `None` where the kind has no such cap.
pub fn workspace_lane(kind: Kind, workspace_id: Option<i64>) -> Option<String> {
    kind.rules().workspace_cap?;
    Some(format!("workspace:{}:{kind}", workspace_id?))
}

/// What jobs share that must not be overrun: an account, an endpoint, a brand, the mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Account(i64),
    Endpoint(i64),
    /// What a person asks for at an endpoint: made at once, whatever waits there.
    AskedOf(i64),
    Brand(i64),
    MailServer,
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Account(id) => write!(f, "account:{id}"),
            Self::Endpoint(id) => write!(f, "endpoint:{id}"),
            Self::AskedOf(id) => write!(f, "endpoint:{id}:asked"),
            Self::Brand(id) => write!(f, "brand:{id}"),
            Self::MailServer => f.write_str("mail_server"),
        }
    }
}

/// A job that this process holds.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Claimed {
    pub id: i64,
    pub kind: Kind,
    pub subject_id: i64,
    pub lane: Option<String>,
    pub workspace_lane: Option<String>,
    pub attempt: i32,
    pub max_attempts: i32,
    pub crashes: i32,
    pub fence: i64,
    /// Who claimed it. A claim that a power cut undid leaves its fence to the next one: the two are told apart by this.
    pub worker: String,
    pub run_at: DateTime<Utc>,
    pub trace: Option<String>,
}

impl Claimed {
    /// One crash more and it is dead. Its neighbours may have caused the others: it is run alone now.
    pub fn is_suspect(&self) -> bool {
        self.crashes >= MAX_CRASHES - 1
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Again at this time.
    RetryAt(DateTime<Utc>, String),
    /// Never again; why, for the operator.
    Abort(String),
    /// The subject is gone or no longer wants it.
    Cancelled(String),
}

/// One try at what a job acts on, as an operator is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Try {
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub outcome: String,
    pub error: Option<String>,
}

/// One id to be put on the bell after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub kind: Kind,
    pub id: i64,
}

/// Wakes workers. Rung after each commit that made jobs ready; it may fail or lose an id, since the row is the record and
/// the dispatcher rings again. Never blocks.
pub trait Bell: Send + Sync {
    fn ring(&self, rings: &[Ring]);
}

/// A bell that nobody hears: for commands, whose jobs the dispatcher finds.
#[derive(Debug, Default)]
pub struct Silent;

impl Bell for Silent {
    fn ring(&self, _rings: &[Ring]) {}
}
