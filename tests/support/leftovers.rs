//! Jobs that a test with a worker must not leave behind, unless it says so with `leaves_jobs()`. The check runs when
//! the [`TestStore`](super::store::TestStore) is dropped, so that no test can omit it.
//!
//! Scheduled and ready jobs are allowed, because most tests end before the jobs that they caused have run. The faults
//! are jobs that are:
//!
//! - running: the run was lost, and its lease would have to expire
//! - dead, or failed by a panic or an internal error, whatever the state of the subject
//! - waiting in a lane that is not paused and has no running or ready job: only the scheduler's sweep would wake them

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

const FAULTS: &str = "
    SELECT coalesce(string_agg(j.id || ' ' || j.kind || ' ' || j.state || coalesce(': ' || j.last_error, ''), ', '), '')
    FROM jobs j
    WHERE j.state IN ('running', 'dead')
        OR j.last_error IN ('panicked', 'internal error')
        OR j.state = 'ready' AND j.waiting
            AND NOT EXISTS (SELECT 1 FROM paused_lanes p WHERE p.lane = j.lane)
            AND NOT EXISTS (
                SELECT 1 FROM jobs o
                WHERE (o.lane = j.lane OR o.workspace_lane = j.workspace_lane)
                    AND (o.state = 'running' OR o.state = 'ready' AND NOT o.waiting)
            )";

/// Returns a description of the faults in the database at `place`, or an empty string if there are none.
pub fn faults(place: &str) -> String {
    let place = place.to_owned();
    // On another thread, because the test's runtime may be shutting down and must not be blocked.
    let found = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(find_faults(&place))
    });
    found.join().expect("no panic").expect("the jobs of the test can be read")
}

async fn find_faults(place: &str) -> Result<String, sqlx::Error> {
    let sql = AssertSqlSafe(FAULTS);
    if place.starts_with("postgres") {
        return sqlx::query_scalar(sql).fetch_one(&mut PgConnection::connect(place).await?).await;
    }
    let mut file = SqliteConnection::connect(&format!("sqlite://{place}?mode=ro")).await?;
    sqlx::query_scalar(sql).fetch_one(&mut file).await
}
