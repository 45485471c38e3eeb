//! Reads and changes rows of a test's database for which the store has no function.

use std::fmt::Display;

use crier_domain::job::{JobKind, JobState};
use crier_domain::mail::Mail;
use crier_store::jobs::operate::JobRow;
use crier_store::{analytics, brands, files, mails, usage, users};
use serde_json::{Value, json};

use super::{TestStore, start_time};

impl TestStore {
    /// Returns the number of rows of a table, or of those with a condition (`jobs WHERE waiting`).
    pub async fn count_rows(&self, rows: impl Display) -> i64 {
        self.number(format!("SELECT count(*) FROM {rows}")).await
    }

    /// Returns the sum of a column of these rows, or 0 if there are none.
    pub async fn sum(&self, column: &str, rows: impl Display) -> i64 {
        self.number(format!("SELECT CAST(coalesce(sum({column}), 0) AS bigint) FROM {rows}")).await
    }

    /// Returns the largest id of these rows (see `count_rows`).
    pub async fn newest_id(&self, rows: impl Display) -> i64 {
        self.number(format!("SELECT max(id) FROM {rows}")).await
    }

    pub async fn newest_job(&self) -> JobRow {
        self.show(self.newest_id("jobs").await).await
    }

    /// Returns the id of the newest job of this kind for a subject.
    pub async fn newest_job_of(&self, kind: JobKind, subject: i64) -> i64 {
        self.number(format!("SELECT max(id) FROM jobs WHERE kind = '{kind}' AND subject_id = {subject}")).await
    }

    /// Copies the newest row of a table this many times. `changed` lists columns, each with an expression of `n`.
    pub async fn copy_newest_row(&self, table: &str, copies: i64, changed: &[(&str, &str)]) {
        let columns = match self.is_postgres() {
            true => format!(
                "SELECT string_agg(column_name, ',') FROM information_schema.columns \
                 WHERE table_name = '{table}' AND table_schema = 'public' AND column_name <> 'id' \
                 AND is_generated = 'NEVER'"
            ),
            false => format!("SELECT group_concat(name, ',') FROM pragma_table_info('{table}') WHERE name <> 'id'"),
        };
        let columns: String = self.value(columns).await;
        let expression = |column: &str| {
            let own = changed.iter().find(|(name, _)| *name == column);
            own.map_or_else(|| format!("\"{column}\""), |(_, expression)| (*expression).to_owned())
        };
        let values: Vec<String> = columns.split(',').map(expression).collect();
        let names: Vec<String> = columns.split(',').map(|column| format!("\"{column}\"")).collect();
        self.sql(format!(
            "
            INSERT INTO {table} ({})
            SELECT {}
            FROM (
                WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {copies})
                SELECT n FROM c
            ) numbers, (SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1) row",
            names.join(","),
            values.join(",")
        ))
        .await;
    }

    /// Copies the newest account this many times, and adds the copies to a brand.
    pub async fn copy_accounts(&self, brand: i64, copies: i64) {
        self.copy_newest_row("social_accounts", copies, &[("external_id", "'x' || n")]).await;
        self.sql(format!(
            "INSERT INTO brand_accounts (brand_id, account_id, created_at) \
             SELECT {brand}, id, created_at FROM social_accounts WHERE external_id LIKE 'x%'"
        ))
        .await;
    }

    /// Ends a job after its last attempt.
    pub async fn kill_job(&self, job: i64, attempts: i32, error: &str) {
        self.sql(format!(
            "UPDATE jobs SET state = 'dead', attempt = {attempts}, last_error = '{error}', finished_at = created_at \
             WHERE id = {job}"
        ))
        .await;
    }

    /// Sets the state of jobs (see `count_rows`), as a worker or an operator does.
    pub async fn set_job_state(&self, jobs: impl Display, state: JobState) {
        let ended = matches!(state, JobState::Done | JobState::Dead | JobState::Cancelled);
        let finished = if ended { "created_at" } else { "NULL" };
        let set = format!("state = '{state}', finished_at = {finished}");
        self.sql(format!("UPDATE jobs SET {set} WHERE id IN (SELECT id FROM {jobs})")).await;
    }

    pub async fn delete_jobs(&self) {
        self.sql("DELETE FROM jobs").await;
    }

    pub async fn delete_brand(&self, brand: i64) {
        self.sql(format!("DELETE FROM brands WHERE id = {brand}")).await;
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
        self.newest_id("webhook_deliveries").await
    }

    /// Sets the status of a delivery to a webhook endpoint.
    pub async fn set_delivery_status(&self, delivery: i64, status: &str) {
        self.sql(format!("UPDATE webhook_deliveries SET status = '{status}' WHERE id = {delivery}")).await;
    }

    /// Returns the newest email.
    pub async fn newest_mail(&self) -> Mail {
        let found = mails::find(&mut self.conn().await, self.newest_id("mails").await).await;
        found.expect("a look-up").expect("the email is there")
    }

    /// Returns the payloads of the emitted events, oldest first.
    pub async fn event_payloads(&self) -> Vec<Value> {
        let sql = "SELECT string_agg(payload, '\n') FROM (SELECT payload FROM events ORDER BY id) e";
        let all = self.value::<Option<String>>(sql).await.unwrap_or_default();
        all.lines().map(|payload| serde_json::from_str(payload).expect("JSON")).collect()
    }

    /// Returns the data of the emitted events with this name, oldest first.
    pub async fn event_data(&self, name: &str) -> Vec<Value> {
        let all = self.event_payloads().await.into_iter();
        all.filter(|payload| payload["event"] == name).map(|mut payload| payload["data"].take()).collect()
    }

    pub async fn email(&self, user: i64) -> String {
        self.value(format!("SELECT email FROM users WHERE id = {user}")).await
    }

    pub async fn set_plan(&self, workspace: i64, plan: &str) {
        self.write(async |tx| users::set_plan(tx, workspace, plan).await).await;
    }

    /// Sets the time zone of a brand, an IANA name.
    pub async fn set_time_zone(&self, brand: i64, zone: &str) {
        self.write(async |tx| brands::set_timezone(tx, brand, zone).await).await;
    }

    /// Expires the credentials of an account.
    pub async fn expire_account(&self, account: i64) {
        self.sql(format!("UPDATE social_accounts SET status = 'expired' WHERE id = {account}")).await;
    }

    /// Returns the number of posts that count against this month's cap.
    pub async fn used_posts(&self, workspace: i64) -> i64 {
        usage::posts(&mut self.conn().await, workspace, self.clock.now()).await.expect("the usage can be read")
    }

    /// Sets the number of posts that count against this month's cap.
    pub async fn set_used_posts(&self, workspace: i64, posts: i64) {
        self.set_monthly_usage("usage", "posts", workspace, posts).await;
    }

    /// Sets the number of AI credits that are used this month.
    pub async fn set_used_credits(&self, workspace: i64, credits: i64) {
        self.set_monthly_usage("ai_usage", "used", workspace, credits).await;
    }

    async fn set_monthly_usage(&self, table: &str, column: &str, workspace: i64, used: i64) {
        let month = self.clock.now().format("%Y-%m").to_string();
        self.sql(format!(
            "INSERT INTO {table} (workspace_id, month, {column}) VALUES ({workspace}, '{month}', {used}) \
             ON CONFLICT (workspace_id, month) DO UPDATE SET {column} = excluded.{column}"
        ))
        .await;
    }

    /// Sets the storage that a workspace uses, in bytes of files and of texts.
    pub async fn set_storage_usage(&self, workspace: i64, files: i64, texts: i64) {
        self.sql(format!(
            "INSERT INTO storage_usage (workspace_id, bytes, texts) VALUES ({workspace}, {files}, {texts}) \
             ON CONFLICT (workspace_id) DO UPDATE SET bytes = excluded.bytes, texts = excluded.texts"
        ))
        .await;
    }

    /// Returns the storage that is counted for the files of all workspaces, in bytes.
    pub async fn counted_bytes(&self) -> i64 {
        files::totals(&mut self.conn().await).await.expect("the totals can be read").bytes
    }

    /// Returns the total size of the files that are not marked for deletion, in bytes.
    pub async fn file_bytes(&self) -> i64 {
        self.sum("size_bytes", "files WHERE state <> 'doomed'").await
    }

    /// Ends the jobs of a post, as a worker does. Its targets get these statuses, by position.
    pub async fn end_post(&self, post: i64, status: &str, targets: &[&str]) {
        let error = r#"{"code":"platform_rejected","message":"No.","category":"platform_rejected"}"#;
        for (position, target) in targets.iter().enumerate() {
            let error = if *target == "failed" { format!("'{error}'") } else { "NULL".to_owned() };
            self.sql(format!(
                "UPDATE post_targets SET status = '{target}', error = {error} \
                 WHERE post_id = {post} AND position = {position}"
            ))
            .await;
        }
        self.sql(format!("UPDATE posts SET status = '{status}' WHERE id = {post}")).await;
        let targets = format!("SELECT id FROM post_targets WHERE post_id = {post}");
        let done = "UPDATE jobs SET state = 'done', finished_at = created_at WHERE kind = 'publish_target'";
        self.sql(format!("{done} AND subject_id IN ({targets})")).await;
    }

    /// Fails a post with one target at its second attempt, with an error of this category.
    pub async fn fail_post(&self, post: i64, category: &str, message: &str) {
        self.end_post(post, "failed", &["failed"]).await;
        let error = json!({ "code": "x", "message": message, "category": category });
        self.sql(format!("UPDATE post_targets SET attempts = 2, error = '{error}' WHERE post_id = {post}")).await;
    }

    /// Marks parts of a thread as published on the account at this position, with these ids, as a worker does.
    pub async fn publish_parts(&self, post: i64, position: i32, ids: &[&str]) {
        let part = |id: &&str| {
            let url = format!("https://a.example/{id}");
            json!({ "external_id": id, "url": url, "published_at": start_time() })
        };
        let parts = Value::from_iter(ids.iter().map(part));
        let set = format!("published_parts = '{parts}', external_id = '{}'", ids[0]);
        self.sql(format!("UPDATE post_targets SET {set} WHERE post_id = {post} AND position = {position}")).await;
    }

    /// Adds published posts to those whose metrics are collected, also old ones.
    pub async fn add_published(&self) {
        // Posts published before `seen_until` are not collected.
        self.sql("UPDATE analytics_progress SET seen_until = '2020-01-01T00:00:00+00:00'").await;
        self.write(async |tx| analytics::add_published(tx, None, 1_000).await).await;
    }

    /// Fails deliveries of webhooks, as a worker does after the last attempt.
    pub async fn fail_deliveries(&self, deliveries: &[i64]) {
        let list = deliveries.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let failed = "status = 'failed', attempts = 8, response_code = 500, next_attempt_at = NULL";
        self.sql(format!("UPDATE webhook_deliveries SET {failed} WHERE id IN ({list})")).await;
        let done = "UPDATE jobs SET state = 'done', finished_at = created_at WHERE kind = 'deliver_webhook'";
        self.sql(format!("{done} AND subject_id IN ({list})")).await;
    }
}
