//! Wakes jobs that wait for a lane, when others leave it.
//!
//! A woken job is ready: a worker receives its id and claims it. A worker that settles jobs does both in one step: it
//! starts the jobs that wait for the same lanes, in the places that became free ([`Successors`]), so that a long queue
//! in a lane needs neither notifications nor claims.

use std::collections::{BTreeMap, HashMap};

use crier_domain::job::{ClaimedJob, JobKind, LEASE, MAX_CRASHES};
use serde_json::json;

use super::super::db::{Conn, run};
use super::super::{Lanes, Result, Store, Tx, Workspace};
use super::lanes::load_lanes;
use super::{NotifyRow, holds, kinds_with_caps, notify_in_order, sql_file, workspaces};

/// Runs jobs in the places that others leave in their lanes.
pub trait Successors: Send + Sync {
    /// Returns the name of the worker that claims them.
    fn worker(&self) -> &str;

    /// Called after the commit of a transaction, before waiting jobs are woken.
    fn committed(&self);

    /// Reserves the resources of one more run of this kind. If it returns `None`, the job is only woken, for any
    /// worker.
    fn reserve(&self, kind: JobKind) -> Option<Box<dyn ReservedRun>>;
}

/// The resources of a run whose job is being claimed.
pub trait ReservedRun: Send {
    /// Starts the run of a claimed job, and returns immediately.
    fn start(self: Box<Self>, job: ClaimedJob);
}

/// Places of a lane that became free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreePlaces {
    count: i64,
    /// The kind of the jobs that left them, if all have the same kind.
    kind: Option<JobKind>,
}

impl FreePlaces {
    /// Returns zero places of a lane that jobs of this kind leave.
    pub fn left_by(kind: JobKind) -> Self {
        Self { count: 0, kind: Some(kind) }
    }

    pub fn one(kind: JobKind) -> Self {
        Self { count: 1, kind: Some(kind) }
    }

    pub fn add(&mut self, count: i64, kind: Option<JobKind>) {
        self.count = self.count.saturating_add(count);
        self.kind = self.kind.filter(|own| Some(*own) == kind);
    }
}

/// A lane with free places, and how many of its waiting jobs to wake.
#[derive(Clone, Copy)]
pub(super) struct FreeLane<'a> {
    pub lane: &'a str,
    /// The number of jobs to wake.
    pub places: i64,
    /// The number of them to start immediately, and the kind that they must have.
    pub starts: Option<(JobKind, usize)>,
}

impl FreeLane<'_> {
    fn row(&self) -> serde_json::Value {
        let (kind, starts) = self.starts.unzip();
        json!([self.lane, self.places, starts.unwrap_or_default(), kind])
    }
}

/// Wakes as many jobs as places were freed in each lane. It runs after the commit that freed them, so that a lane's
/// lock is never held while waiting for the disk.
///
/// A claim that set jobs waiting and a settle each look after their own commit, so of two concurrent ones at least one
/// sees the other's change. If the process dies in between, the sweep wakes the jobs.
pub(crate) async fn wake_lanes(store: &Store, lanes: Lanes) -> Result<()> {
    let Lanes { mut free, full, workspaces } = lanes;
    if free.is_empty() && full.is_empty() && workspaces.is_empty() {
        // No job left a lane or was set waiting.
        return Ok(());
    }
    let mut conn = store.read().await?;
    if !full.is_empty() {
        let lanes = full.keys().map(String::as_str).collect();
        for lane in load_lanes(&mut conn, &lanes, store.now()).await? {
            let Some(kind) = full.get(&lane.lane) else { continue };
            let room = lane.room(kind.limits().lane_cap.unwrap_or(i64::MAX));
            if room > 0 {
                free.insert(lane.lane, FreePlaces { count: room, kind: Some(*kind) });
            }
        }
    }
    let waited_for = waited_for(&mut conn, &free, &workspaces).await?;
    free.retain(|lane, _| waited_for.contains_key(lane));
    for (name, workspace) in &workspaces {
        if let Some(running) = waited_for.get(name) {
            workspaces::distribute_places(&mut conn, (name, workspace, *running), store.now(), &mut free).await?;
        }
    }
    drop(conn);
    if free.is_empty() {
        return Ok(());
    }
    let mut reserved = Reservations::of(store, &free);
    let lanes: Vec<_> = free.iter().map(|(lane, places)| reserved.lane(lane, *places)).collect();
    let mut tx = store.begin_single_async_commit().await?;
    let started = wake(&mut tx, &lanes, reserved.worker).await?;
    tx.commit_without_waking().await?;
    reserved.start(started);
    Ok(())
}

/// The runs that are reserved for jobs in freed places.
struct Reservations<'a> {
    worker: &'a str,
    by_lane: BTreeMap<&'a str, ReservedRuns>,
}

/// The runs of a lane, all of one kind.
struct ReservedRuns {
    kind: JobKind,
    runs: Vec<Box<dyn ReservedRun>>,
}

impl<'a> Reservations<'a> {
    fn of(store: &'a Store, free: &'a BTreeMap<String, FreePlaces>) -> Self {
        let successors = store.successors.as_deref();
        let reserve = |(lane, places): (&'a String, &FreePlaces)| {
            let (successors, kind) = (successors?, places.kind?);
            let runs: Vec<_> = (0..places.count).map_while(|_| successors.reserve(kind)).collect();
            (!runs.is_empty()).then_some((lane.as_str(), ReservedRuns { kind, runs }))
        };
        let worker = successors.map_or("", |successors| successors.worker());
        Self { worker, by_lane: free.iter().filter_map(reserve).collect() }
    }

    fn lane<'b>(&self, lane: &'b str, places: FreePlaces) -> FreeLane<'b> {
        let starts = self.by_lane.get(lane).map(|reserved| (reserved.kind, reserved.runs.len()));
        FreeLane { lane, places: places.count, starts }
    }

    fn start(&mut self, jobs: Vec<ClaimedJob>) {
        for job in jobs {
            let reserved = self.by_lane.get_mut(job.lane.as_deref().unwrap_or_default());
            if let Some(run) = reserved.and_then(|reserved| reserved.runs.pop()) {
                run.start(job);
            }
        }
    }
}

/// Returns the lanes' names, sorted.
fn names(lanes: &BTreeMap<String, FreePlaces>) -> String {
    json!(lanes.keys().collect::<Vec<_>>()).to_string()
}

/// Returns the lanes and workspaces for which jobs wait, usually none. A workspace has the number of its running jobs,
/// a lane has 0.
async fn waited_for(
    conn: &mut Conn,
    lanes: &BTreeMap<String, FreePlaces>,
    workspaces: &BTreeMap<String, Workspace>,
) -> Result<HashMap<String, i64>> {
    if lanes.is_empty() && workspaces.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql_file!(conn, "waited_for");
    let workspaces = json!(workspaces.keys().collect::<Vec<_>>()).to_string();
    let found: Vec<(String, i64)> =
        run!(conn, c => sqlx::query_as(sql).bind(names(lanes)).bind(&workspaces).fetch_all(c))?;
    Ok(found.into_iter().collect())
}

/// A job that was woken, or started for this worker.
#[derive(sqlx_macros::FromRow)]
struct WokenRow {
    #[sqlx(flatten)]
    job: ClaimedJob,
    started: bool,
}

/// Wakes jobs that wait for lanes, unless a lane is paused or has no place for the job. Starts some of them for
/// `worker`, with a lease and the next fence. A job that may have caused crashes is only woken. Returns the started
/// jobs.
pub(super) async fn wake(tx: &mut Tx, lanes: &[FreeLane<'_>], worker: &str) -> Result<Vec<ClaimedJob>> {
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let (sql, now) = (sql_file!(tx, "wake_lanes"), tx.now);
    let rows = json!(lanes.iter().map(FreeLane::row).collect::<Vec<_>>()).to_string();
    let woken: Vec<WokenRow> = run!(tx, c => sqlx::query_as(sql).bind(&rows).bind(now).bind(kinds_with_caps())
        .bind(now + LEASE).bind(worker).bind(MAX_CRASHES - 1).bind(now - holds::MAX_GAP).fetch_all(c))?;
    let (mut started, ready): (Vec<_>, Vec<_>) = woken.into_iter().partition(|row| row.started);
    // `RETURNING` has no defined order.
    started.sort_by_key(|row| (row.job.run_at, row.job.id));
    let notify = |WokenRow { job, .. }| NotifyRow { kind: job.kind, id: job.id, run_at: job.run_at };
    notify_in_order(tx, ready.into_iter().map(notify).collect());
    Ok(started.into_iter().map(|row| row.job).collect())
}
