//! `crier-bench cost`: the statements and transactions of requests and jobs.

use serde_json::Value;

use super::{end, start};
use crate::support::{databases, servers};

/// Statements and transactions of one operation: measurement, on Postgres, on SQLite.
type Cost = (&'static str, (f64, f64), (f64, f64));

/// These detect a change that adds a statement to a request or a job.
#[rustfmt::skip]
const COSTS: &[Cost] = &[
    ("brand",        (1.0, 0.0),  (1.0, 0.0)),
    ("posts",        (6.0, 0.0),  (6.0, 0.0)),
    ("create-brand", (6.0, 1.0),  (6.0, 1.0)),
    ("draft",        (5.0, 1.0),  (4.0, 1.0)),
    ("schedule",     (6.0, 1.0),  (5.0, 1.0)),
    ("publish",      (22.0, 4.0), (19.0, 5.0)),
    ("deliver",      (14.0, 2.0), (14.0, 3.0)),
];

fn check_costs(stdout: &str, expected: impl Fn(&Cost) -> (f64, f64)) {
    let figures: Vec<Value> = serde_json::from_str(stdout).expect("an array");
    let value = |measurement: &str, unit: &str| {
        let found = figures.iter().find(|f| f["measurement"] == measurement && f["unit"] == unit);
        found.unwrap_or_else(|| panic!("{measurement} has no {unit}"))["value"].as_f64().expect("a number")
    };
    for cost in COSTS {
        let counted = (value(cost.0, "statements"), value(cost.0, "transactions"));
        assert_eq!(counted, expected(cost), "{}", cost.0);
    }
    for (many, one) in [("publish-many", "publish"), ("deliver-many", "deliver")] {
        assert!(value(many, "statements") <= value(one, "statements"), "work that comes together is shared: {many}");
    }
}

const COST: &[&str] = &["cost", "--repeat", "5", "--concurrency", "20", "--json"];

#[tokio::test]
async fn embedded_requests_and_jobs_cost_what_they_should() {
    let dir = tempfile::tempdir().expect("a directory");
    let (done, stdout, stderr) = end(start(dir.path(), &[COST, &["--dir", "."]].concat(), &[])).await;
    assert!(done, "{stderr}");
    check_costs(&stdout, |cost| cost.2);
}

#[tokio::test]
async fn split_requests_and_jobs_cost_what_they_should() {
    let installation = databases::postgres().await;
    let redis = servers::redis().await;
    let env = [("CRIER_DATABASE_URL", installation.url.as_str()), ("CRIER_REDIS_URL", redis.as_str())];
    let dir = tempfile::tempdir().expect("a directory");
    let (done, stdout, stderr) = end(start(dir.path(), COST, &env)).await;
    assert!(done, "{stderr}");
    check_costs(&stdout, |cost| cost.1);
}
