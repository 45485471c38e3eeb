//! SQLite: no statement of the queue reads all jobs.

use std::path::Path;

use crier_store::db::Engine;
use sqlx::AssertSqlSafe;

use crate::support::store::TestStore;

/// Returns the names by which a statement reads the tables that may be large.
fn large_tables(sql: &str) -> Vec<&str> {
    let words: Vec<&str> = sql.split([' ', '\n', ',', '(', ')']).filter(|word| !word.is_empty()).collect();
    let tables = words.windows(2).filter(|pair| matches!(pair[0], "jobs" | "lane_holds"));
    // An alias is one letter; other words that follow are keywords.
    tables.map(|pair| if pair[1].len() == 1 { pair[1] } else { pair[0] }).collect()
}

/// Whether a step reads a whole table or one of its indexes. The sweep steps through that of waiting jobs.
fn is_scan(step: &str, table: &str) -> bool {
    let Some(("", how)) = step.split_once(&format!("SCAN {table}")) else { return false };
    how.is_empty() || how.starts_with(' ') && how != " USING INDEX jobs_lane_waiting"
}

#[tokio::test]
async fn no_statement_of_the_queue_scans_the_jobs() {
    let s = TestStore::sqlite().await;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("common/store/src/jobs/sql/sqlite");
    let mut conn = s.read().await.unwrap();
    let mut explained = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
        for sql in code.join("\n").split(';').filter(|sql| !sql.trim().is_empty()) {
            let Engine::Sqlite(conn) = conn.engine() else { panic!("this is for SQLite") };
            let query = sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")));
            let plan: Vec<(i64, i64, i64, String)> = query.fetch_all(conn).await.unwrap();
            let tables = large_tables(sql);
            let scans = |step: &str| tables.iter().any(|table| is_scan(step, table));
            let found: Vec<_> = plan.iter().filter(|row| scans(&row.3)).collect();
            assert!(found.is_empty(), "{}: {found:?} in {plan:#?}", file.display());
            explained += 1;
        }
    }
    assert!(explained > 15, "the statements are not there any more: {explained}");
}
