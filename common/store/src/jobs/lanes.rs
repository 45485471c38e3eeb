//! Lanes: how many jobs of one account, endpoint or brand run concurrently.
//!
//! A claim counts the running jobs of a lane under the lane's lock. A job for which there is no place is set waiting,
//! and the next job that leaves the lane wakes it ([`super::wake`]). A lane can be paused, and its cap can be reduced.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use crier_domain::job::JobKind;
use serde_json::json;

use super::super::db::{Conn, execute, run};
use super::super::{Result, Tx};
use super::{holds, sql_file};

/// The load of a lane.
#[derive(sqlx_macros::FromRow)]
pub(super) struct LaneLoad {
    pub lane: String,
    pub running: i64,
    paused: bool,
    /// The reduced cap if the lane is narrowed.
    places: Option<i64>,
}

impl LaneLoad {
    /// Returns how many places are free, given the `cap` of its kind. Returns 0 if the lane is paused.
    pub fn room(&self, cap: i64) -> i64 {
        if self.paused { 0 } else { self.places.unwrap_or(cap) - self.running }
    }
}

/// Returns the load of lanes.
pub(super) async fn load_lanes(conn: &mut Conn, lanes: &BTreeSet<&str>, now: DateTime<Utc>) -> Result<Vec<LaneLoad>> {
    let sql = sql_file!(conn, "load_lanes");
    let lanes = json!(lanes).to_string();
    Ok(run!(conn, c => sqlx::query_as(sql).bind(lanes).bind(now).fetch_all(c))?)
}

/// Pauses a lane until the time that its platform requested. Keeps a longer pause.
pub async fn pause_lane(tx: &mut Tx, lane: &str, until: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        INSERT INTO paused_lanes (lane, paused_until)
        VALUES ($1, $2)
        ON CONFLICT (lane)
        DO UPDATE SET paused_until = CASE
                WHEN paused_lanes.paused_until > excluded.paused_until THEN paused_lanes.paused_until
                ELSE excluded.paused_until
            END";
    execute!(tx, SQL, lane, until)?;
    holds::held_until(tx, lane, until).await
}

/// Reduces the places of a lane below the cap of its kind, until the lane is widened. Running jobs continue.
pub async fn narrow_lane(tx: &mut Tx, lane: &str, places: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO narrow_lanes (lane, places)
        VALUES ($1, $2)
        ON CONFLICT (lane)
        DO UPDATE SET places = excluded.places";
    execute!(tx, SQL, lane, places)?;
    Ok(())
}

/// Ends the reduction and the pause of a lane of this kind, and wakes jobs that wait for it.
pub async fn widen_lane(tx: &mut Tx, kind: JobKind, lane: &str) -> Result<()> {
    execute!(tx, "DELETE FROM narrow_lanes WHERE lane = $1", lane)?;
    execute!(tx, "DELETE FROM paused_lanes WHERE lane = $1", lane)?;
    tx.free_places(lane, kind.limits().lane_cap.unwrap_or(i64::MAX));
    Ok(())
}
