//! Reads and changes rows of a test's database for which the store has no function.

use std::fmt::Display;

use crier_domain::job::JobKind;
use serde_json::Value;

use super::TestStore;

impl TestStore {
    /// Returns the number of rows of a table, or of those with a condition (`jobs WHERE waiting`).
    pub async fn count_rows(&self, rows: impl Display) -> i64 {
        self.number(format!("SELECT count(*) FROM {rows}")).await
    }

    /// Returns the sum of a column of these rows, or 0 if there are none.
    pub async fn sum(&self, column: &str, rows: impl Display) -> i64 {
        self.number(format!("SELECT CAST(coalesce(sum({column}), 0) AS bigint) FROM {rows}")).await
    }

    /// Returns the id of the newest job of this kind for a subject.
    pub async fn newest_job(&self, kind: JobKind, subject: i64) -> i64 {
        self.number(format!("SELECT max(id) FROM jobs WHERE kind = '{kind}' AND subject_id = {subject}")).await
    }

    /// Sets the number of attempts that a job has used.
    pub async fn set_attempts(&self, job: i64, attempts: i32) {
        self.sql(format!("UPDATE jobs SET attempt = {attempts} WHERE id = {job}")).await;
    }

    /// Sets the number of crashes of a job.
    pub async fn set_crashes(&self, job: i64, crashes: i32) {
        self.sql(format!("UPDATE jobs SET crashes = {crashes} WHERE id = {job}")).await;
    }

    /// Takes a running job from its worker, as if another worker had claimed it.
    pub async fn take_over(&self, job: i64) {
        self.sql(format!("UPDATE jobs SET fence = fence + 1 WHERE id = {job}")).await;
    }

    /// Makes all jobs due by the clock of the test. An operator's command uses the system's clock.
    pub async fn make_jobs_due(&self) {
        let due = self.later(-20).to_rfc3339();
        self.sql(format!("UPDATE jobs SET run_at = '{due}', dispatched_at = '{due}'")).await;
    }

    /// Cancels the unfinished deliveries to webhook endpoints, so that no worker attempts them.
    pub async fn cancel_deliveries(&self) {
        self.sql("UPDATE jobs SET state = 'cancelled' WHERE kind = 'deliver_webhook' AND state <> 'done'").await;
    }

    /// Returns the id of the newest delivery to a webhook endpoint.
    pub async fn newest_delivery(&self) -> i64 {
        self.number("SELECT max(id) FROM webhook_deliveries").await
    }

    /// Returns the payloads of the emitted events, oldest first.
    pub async fn event_payloads(&self) -> Vec<Value> {
        let sql = "SELECT string_agg(payload, '\n') FROM (SELECT payload FROM events ORDER BY id) e";
        let all = self.value::<Option<String>>(sql).await.unwrap_or_default();
        all.lines().map(|payload| serde_json::from_str(payload).expect("JSON")).collect()
    }
}
