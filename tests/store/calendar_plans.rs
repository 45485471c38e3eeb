//! The statements of the calendar find their rows by an index, among 100,000 posts of the same brand. The tables have no
//! planner statistics. [`super::reading_plans`] explains the measurement.

use chrono::TimeDelta;
use crier_store::calendar::{self, CalendarQuery};

use super::reading_plans::{LargeTables, OTHER_ROWS};
use crate::support::store::{TestStore, on_both};

on_both![calendar_statements_read_few_of_100_000_posts];

/// The maximum number of posts in a view of the calendar, and one more.
const LIMIT: i64 = 1_001;

/// Creates a post per hour, from years ago to years ahead: with and without a time, one of forty scheduled.
async fn fill_posts(tables: &LargeTables) {
    let at = tables.time_expression(&format!("(n - {}) * 3600", OTHER_ROWS / 2));
    tables
        .sql(format!(
            "
            INSERT INTO posts (
                brand_id, status, content, schedule_type, scheduled_at, media, counted, created_at, updated_at
            )
            SELECT {brand},
                CASE WHEN n % 40 = 0 THEN 'scheduled' WHEN n % 4 = 1 THEN 'draft' ELSE 'published' END,
                'x', 'now', CASE WHEN n % 2 = 0 THEN {at} END, '[]', TRUE, {at}, {at}
            FROM {numbers}",
            brand = tables.own.brand,
            numbers = tables.numbers(OTHER_ROWS),
        ))
        .await;
}

async fn calendar_statements_read_few_of_100_000_posts(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    fill_posts(&tables).await;
    let (brand_id, now) = (tables.own.brand, tables.s.now());
    let mut measurement = tables.measure().await;
    let weeks = TimeDelta::weeks(3);
    let month = CalendarQuery { brand_id, from: now - weeks, to: now + weeks, status: None, account_id: None };
    let of_account = CalendarQuery { account_id: Some(tables.account), ..month };
    let all_time = CalendarQuery { from: now - TimeDelta::days(36_500), to: now + TimeDelta::days(36_500), ..month };
    for (what, query) in [("a month", month), ("a month of an account", of_account), ("all time", all_time)] {
        measurement.check(what, async |tx| calendar::between(tx, &query, LIMIT).await).await;
    }
    measurement.check("the next posts", async |tx| calendar::upcoming(tx, brand_id, 5).await).await;
    measurement.finish();
}
