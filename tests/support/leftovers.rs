//! What a test with a worker must not leave behind: jobs that went wrong without the test saying so. Looked at when its
//! [`TestStore`](super::store::TestStore) is dropped, so that no test can forget it.
//!
//! Jobs that are scheduled or ready are no fault: a test ends when it has seen what it wants to see, and seldom runs what
//! that caused. These are:
//!
//! - running: the run was lost, and its lease would have to expire
//! - dead, or failed by a panic or an error of ours, whatever the subject's state says
//! - waiting in a lane in which nothing runs, is ready or is paused: nothing would wake the job but the scheduler's sweep

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

/// Returns the jobs of the database at `place` that went wrong; an empty text if there are none.
pub fn faults(place: &str) -> String {
    let place = place.to_owned();
    // The test's runtime may be shutting down, and cannot be blocked.
    let looked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(look(&place))
    });
    looked.join().expect("no panic").expect("the jobs of the test can be read")
}

async fn look(place: &str) -> Result<String, sqlx::Error> {
    let sql = AssertSqlSafe(FAULTS);
    if place.starts_with("postgres") {
        return sqlx::query_scalar(sql).fetch_one(&mut PgConnection::connect(place).await?).await;
    }
    let mut file = SqliteConnection::connect(&format!("sqlite://{place}?mode=ro")).await?;
    sqlx::query_scalar(sql).fetch_one(&mut file).await
}
