//! SQLite: no statement reads all rows of a table that may be large.

use std::path::Path;

use crier_store::Conn;
use crier_store::db::Engine;
use sqlx::AssertSqlSafe;

use crate::architecture::sources;
use crate::support::store::TestStore;

/// The tables that may be large. `posts` is not among them: some lists scan it in the order of ids and stop at a limit,
/// which a plan does not show.
const LARGE_TABLES: &[&str] = &[
    "account_metrics",
    "articles",
    "content_plan_items",
    "conversation_tags",
    "conversation_words",
    "conversations",
    "events",
    "idempotency_keys",
    "jobs",
    "lane_holds",
    "mails",
    "media",
    "messages",
    "notices",
    "oauth_codes",
    "oauth_tokens",
    "post_labels",
    "post_media",
    "post_targets",
    "post_words",
    "publish_calls",
    "recurring_occurrences",
    "recurring_posts",
    "report_deliveries",
    "report_recipients",
    "target_analytics",
    "target_attempts",
    "target_metrics",
    "webhook_attempts",
    "webhook_deliveries",
];

/// Returns the names by which a statement reads large tables.
fn large_tables(sql: &str) -> Vec<&str> {
    let words: Vec<&str> = sql.split([' ', '\n', ',', '(', ')']).filter(|word| !word.is_empty()).collect();
    let mut names = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if LARGE_TABLES.contains(word) {
            // An alias is one letter; other words that follow are keywords.
            let alias = words[i + 1..].iter().find(|next| **next != "AS").filter(|next| next.len() == 1);
            names.push(*alias.unwrap_or(word));
        }
    }
    names
}

/// Whether a step reads a whole table or one of its indexes, also to create an index for this statement only. The sweep
/// steps through that of waiting jobs.
fn is_scan(step: &str, table: &str) -> bool {
    if step.starts_with(&format!("SEARCH {table} USING AUTOMATIC ")) {
        return true;
    }
    let Some(("", how)) = step.split_once(&format!("SCAN {table}")) else { return false };
    how.is_empty() || how.starts_with(' ') && how != " USING INDEX jobs_lane_waiting"
}

/// Fails if a statement scans a large table. Returns `false` if SQLite cannot read the statement.
async fn check(conn: &mut Conn, sql: &str, place: &str) -> bool {
    let Engine::Sqlite(conn) = conn.engine() else { panic!("this is for SQLite") };
    let query = sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")));
    let plan: Result<Vec<(i64, i64, i64, String)>, sqlx::Error> = query.fetch_all(conn).await;
    let Ok(plan) = plan else { return false };
    let tables = large_tables(sql);
    let scans = |step: &str| tables.iter().any(|table| is_scan(step, table));
    let found: Vec<_> = plan.iter().filter(|row| scans(&row.3)).collect();
    assert!(found.is_empty(), "{place}: {found:?} in {plan:#?}\n{sql}");
    true
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
            let place = file.display().to_string();
            assert!(check(&mut conn, sql, &place).await, "{place}: SQLite cannot read this statement:\n{sql}");
            explained += 1;
        }
    }
    assert!(explained > 15, "the statements are not there any more: {explained}");
}

/// Returns the name of the constant whose text follows this code, as other statements contain it: `{NAME}`.
fn constant(code: &str) -> Option<String> {
    let name = code.trim_end().strip_suffix(": &str =")?.rsplit(' ').next()?;
    Some(format!("{{{name}}}"))
}

/// Returns the statements in the string literals of a source, with the list of `list_sql!` and the text of constants.
/// Leaves out constants that are parts of other statements.
fn statements(source: &str) -> Vec<String> {
    const KEYWORDS: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];
    // `locking_sql!` and `list_sql!` leave locks out on SQLite.
    let source = source.replace("{LOCK}", "");
    // The code and the literals; no statement contains a quotation mark.
    let pieces: Vec<&str> = source.split('"').collect();
    let constants: Vec<(String, &str)> =
        pieces.windows(2).filter_map(|pair| Some((constant(pair[0])?, pair[1]))).collect();
    let mut found = Vec::new();
    for (i, piece) in pieces.iter().enumerate().skip(1) {
        let code = pieces[i - 1];
        let keyword = piece.split_whitespace().next().unwrap_or_default();
        if !KEYWORDS.contains(&keyword) || constant(code).is_some_and(|name| source.contains(&name)) {
            continue;
        }
        let mut sql = (*piece).to_owned();
        if code.rsplit_once("list_sql!(").is_some_and(|(_, arguments)| !arguments.contains(';')) {
            sql = format!("{sql} IN (SELECT value FROM json_each($1)) {}", pieces[i + 2]);
        }
        for (name, text) in &constants {
            sql = sql.replace(name, text);
        }
        found.extend(sql.split(';').filter(|sql| !sql.trim().is_empty()).map(str::to_owned));
    }
    found
}

/// Skips statements that only Postgres can read, and those whose text depends on an argument.
#[tokio::test]
async fn no_statement_in_the_code_of_the_store_scans_a_large_table() {
    let s = TestStore::sqlite().await;
    let mut conn = s.read().await.unwrap();
    let mut explained = 0;
    for (file, source) in sources("common/store/src") {
        // The benchmarks count all jobs.
        if file.ends_with("/bench.rs") {
            continue;
        }
        for sql in statements(&source) {
            explained += i32::from(check(&mut conn, &sql, &file).await);
        }
    }
    assert!(explained > 400, "the statements are not found any more: {explained}");
}
