//! The share of a workspace: how many of its jobs of one kind run at once, whatever their lanes.
//!
//! It works as a lane does, with two differences. It is counted without a lock, since it is there for fairness: workers
//! that claim at the same time may go over it by what they claim. And a place that comes free goes to the lane of which
//! the fewest jobs run, so that accounts whose sites hang leave room for those whose sites do not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::db::{Conn, run};
use super::super::{Result, Workspace};
use crate::domain::job::Kind;

/// How many lanes of a workspace are looked at when a place comes free.
const MAX_LANES: i64 = 500;

impl Workspace {
    pub(in crate::store) fn new(kind: Kind) -> Self {
        Self { kind, was_full: false, left: 0, lanes: BTreeSet::new() }
    }

    /// How many of its jobs may be woken, where so many run; `None` where its lanes may wake what waits for them.
    fn places(&self, running: i64) -> Option<i64> {
        let room = room(self.kind, running);
        match (self.was_full, room > self.left) {
            (true, _) => Some(room),
            (false, true) => None,
            (false, false) => Some(room.min(self.left)),
        }
    }
}

/// How many more jobs of a workspace may run.
pub(super) fn room(kind: Kind, running: i64) -> i64 {
    kind.rules().workspace_cap.map_or(i64::MAX, |cap| (cap - running).max(0))
}

/// How many jobs run in each of the workspaces.
pub(super) async fn running(conn: &mut Conn, names: &BTreeSet<&str>) -> Result<HashMap<String, i64>> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = conn.spelt(
        r"
        SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
        FROM json_array_elements_text($1::json)",
        r"
        SELECT value, (SELECT count(*) FROM jobs WHERE workspace_lane = value AND state = 'running')
        FROM json_each($1)",
    );
    let names = json!(names).to_string();
    let counted: Vec<(String, i64)> = run!(conn, c => sqlx::query_as(sql).bind(&names).fetch_all(c))?;
    Ok(counted.into_iter().collect())
}

/// Where a workspace was full, gives the places that came free to its lanes: `free` is how many jobs each lane wakes.
pub(super) async fn share_out(
    conn: &mut Conn,
    (name, workspace, running): (&str, &Workspace, i64),
    now: DateTime<Utc>,
    free: &mut BTreeMap<String, i64>,
) -> Result<()> {
    let Some(places) = workspace.places(running) else { return Ok(()) };
    free.retain(|lane, _| !workspace.lanes.contains(lane));
    let places = usize::try_from(places).unwrap_or(usize::MAX);
    if places == 0 {
        return Ok(());
    }
    // Behind the lane that was left, so that all have their turn where there are very many.
    let start = workspace.lanes.last().map_or("", String::as_str);
    let mut lanes = lanes_with_room(conn, name, workspace.kind, start, now).await?;
    if lanes.len() < places && !start.is_empty() {
        lanes = lanes_with_room(conn, name, workspace.kind, "", now).await?;
    }
    free.extend(lanes.into_iter().take(places).map(|lane| (lane, 1)));
    Ok(())
}

/// Lanes of a workspace in which jobs wait although there is room, the one of which the fewest run first.
async fn lanes_with_room(
    conn: &mut Conn,
    name: &str,
    kind: Kind,
    start: &str,
    now: DateTime<Utc>,
) -> Result<Vec<String>> {
    // From one lane to the next in the index, so that a long queue in one costs no more than a short one.
    const SQL: &str = r"
        WITH RECURSIVE lanes (lane, n) AS (
            SELECT (
                SELECT lane
                FROM jobs
                WHERE workspace_lane = $1 AND state = 'ready' AND waiting AND lane > $2
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
            (SELECT places FROM narrow_lanes w WHERE w.lane = lanes.lane) AS places
        FROM lanes
        WHERE lane IS NOT NULL AND lane NOT IN (SELECT lane FROM paused_lanes WHERE paused_until > $3)
        ORDER BY running, random()";
    let lanes: Vec<(String, i64, Option<i64>)> =
        run!(conn, c => sqlx::query_as(SQL).bind(name).bind(start).bind(now).bind(MAX_LANES).fetch_all(c))?;
    let has_room =
        |running: i64, places: Option<i64>| places.or(kind.rules().lane_cap).is_none_or(|places| running < places);
    Ok(lanes.into_iter().filter(|(_, running, places)| has_room(*running, *places)).map(|(lane, ..)| lane).collect())
}
