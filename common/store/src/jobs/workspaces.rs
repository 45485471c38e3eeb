//! The share of a workspace: how many of its jobs of one kind run concurrently, whatever their lanes.
//!
//! It works like a lane, with two differences. It is counted without a lock, because it is only for fairness: workers
//! that claim concurrently may exceed it by the jobs that they claim. And a freed place goes to the lane with the
//! fewest running jobs, so that accounts whose servers hang leave places for the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use crier_domain::job::JobKind;
use serde_json::json;

use super::super::db::{Conn, run};
use super::super::{Result, Workspace};
use super::sql_file;
use super::wake::FreePlaces;

/// The number of a workspace's lanes that are considered when places are freed: the lane of the freed place, and those
/// after it.
const MAX_LANES: usize = 64;

impl Workspace {
    pub(crate) fn new(kind: JobKind) -> Self {
        Self { kind, was_full: false, left: 0, lanes: BTreeSet::new(), start: String::new() }
    }

    /// Returns how many of its jobs may be woken while `running` run. Returns `None` if its lanes may wake their own
    /// jobs.
    fn places(&self, running: i64) -> Option<i64> {
        let room = room(self.kind, running);
        match (self.was_full, room > self.left) {
            (true, _) => Some(room),
            (false, true) => None,
            (false, false) => Some(room.min(self.left)),
        }
    }
}

/// Returns how many more jobs of a workspace may run.
pub(super) fn room(kind: JobKind, running: i64) -> i64 {
    kind.limits().workspace_cap.map_or(i64::MAX, |cap| (cap - running).max(0))
}

/// Returns how many jobs run in each of the workspaces.
pub(super) async fn running(conn: &mut Conn, names: &BTreeSet<&str>) -> Result<HashMap<String, i64>> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql_file!(conn, "running_by_workspace");
    let names = json!(names).to_string();
    let counted: Vec<(String, i64)> = run!(conn, c => sqlx::query_as(sql).bind(&names).fetch_all(c))?;
    Ok(counted.into_iter().collect())
}

/// Distributes the freed places of a workspace that was full over its lanes. Stores in `free` how many jobs each lane
/// wakes.
pub(super) async fn distribute_places(
    conn: &mut Conn,
    (name, workspace, running): (&str, &Workspace, i64),
    now: DateTime<Utc>,
    free: &mut BTreeMap<String, FreePlaces>,
) -> Result<()> {
    let Some(places) = workspace.places(running) else { return Ok(()) };
    free.retain(|lane, _| !workspace.lanes.contains(lane));
    let places = usize::try_from(places).unwrap_or(usize::MAX);
    if places == 0 {
        return Ok(());
    }
    let start = &workspace.start;
    let mut lanes = waiting_lanes(conn, name, start, now).await?;
    if lanes.len() < MAX_LANES && !start.is_empty() {
        // The first lanes follow the last one.
        lanes.extend(waiting_lanes(conn, name, "", now).await?);
        lanes.sort_by_key(|lane| lane.running);
    }
    let cap = workspace.kind.limits().lane_cap;
    let with_room = lanes.into_iter().filter(|lane| lane.has_room(cap));
    let mut remaining = places;
    for lane in with_room {
        if remaining == 0 {
            break;
        }
        remaining -= usize::from(free.insert(lane.lane, FreePlaces::one(workspace.kind)).is_none());
    }
    Ok(())
}

/// A lane in which jobs of a workspace wait.
#[derive(sqlx_macros::FromRow)]
struct WaitingLane {
    lane: String,
    running: i64,
    /// The reduced cap if the lane is narrowed.
    places: Option<i64>,
    paused: bool,
}

impl WaitingLane {
    fn has_room(&self, cap: Option<i64>) -> bool {
        !self.paused && self.places.or(cap).is_none_or(|places| self.running < places)
    }
}

/// Returns lanes in which jobs of a workspace wait, starting at `start`, at most [`MAX_LANES`], fewest running jobs
/// first.
async fn waiting_lanes(conn: &mut Conn, name: &str, start: &str, now: DateTime<Utc>) -> Result<Vec<WaitingLane>> {
    // Steps from one lane to the next in the index, so that a long queue in a lane costs no more than a short one.
    const SQL: &str = "
        WITH RECURSIVE lanes (lane, n) AS (
            SELECT (
                SELECT lane
                FROM jobs
                WHERE workspace_lane = $1 AND state = 'ready' AND waiting AND lane >= $2
                ORDER BY lane
                LIMIT 1
            ), 1
            UNION ALL
            SELECT (
                SELECT j.lane
                FROM jobs j
                WHERE j.workspace_lane = $1 AND j.state = 'ready' AND j.waiting AND j.lane > lanes.lane
                ORDER BY j.lane
                LIMIT 1
            ), n + 1
            FROM lanes
            WHERE lanes.lane IS NOT NULL AND n < $4
        )
        SELECT
            lane,
            (SELECT count(*) FROM jobs j WHERE j.lane = lanes.lane AND j.state = 'running') AS running,
            (SELECT places FROM narrow_lanes w WHERE w.lane = lanes.lane) AS places,
            lane IN (SELECT lane FROM paused_lanes WHERE paused_until > $3) AS paused
        FROM lanes
        WHERE lane IS NOT NULL
        ORDER BY running, random()";
    let limit = i64::try_from(MAX_LANES).unwrap_or(i64::MAX);
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(name).bind(start).bind(now).bind(limit).fetch_all(c))?)
}
