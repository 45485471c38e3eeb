//! Posts after publishing has begun: allowed changes, and retries.

use crier_domain::job::JobState;
use serde_json::{Value, json};

use crate::support::app::{Tenant, on_both_apps};

on_both_apps!("unlimited" =>
    a_publishing_post_cannot_be_edited,
    a_post_with_a_running_job_cannot_be_edited,
    a_post_shows_the_error_of_its_first_failed_target,
    deleting_a_post_does_not_stop_running_jobs,
    publishing_now_retries_only_failed_targets,
);

/// Creates a post on two accounts with these statuses, as if a worker had set them. Returns its path and targets.
async fn create_post_with_statuses(t: &Tenant<'_>, post: &str, targets: [&str; 2]) -> (String, [i64; 2]) {
    let accounts = [t.account("one").await, t.account("two").await];
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": accounts });
    let created = t.post(&t.path("/posts"), body).await.data(201);
    let ids = [0, 1].map(|i| created["targets"][i]["id"].as_i64().unwrap());
    t.app.end_post(created["id"].as_i64().unwrap(), post, &targets).await;
    (t.path(&format!("/posts/{}", created["id"])), ids)
}

async fn a_publishing_post_cannot_be_edited(t: Tenant<'_>) {
    for (status, targets) in [("publishing", ["publishing", "pending"]), ("published", ["published", "published"])] {
        let (path, _) = create_post_with_statuses(&t, status, targets).await;
        t.put(&path, json!({ "content": "y" })).await.expect_error(409, "post_not_editable");
        for schedule in ["now", "draft"] {
            t.put(&path, json!({ "schedule_type": schedule })).await.expect_error(409, "post_not_editable");
        }
        t.put(&path, json!({ "accounts": null })).await.invalid_fields();
        t.put(&path, json!({ "content": "x" })).await.expect(200);
        assert_eq!(t.get(&path).await.data(200)["status"], status);
    }
}

async fn a_post_with_a_running_job_cannot_be_edited(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let at = (t.app.now() + chrono::TimeDelta::hours(1)).to_rfc3339();
    let body = json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    let path = t.path(&format!("/posts/{}", t.post(&t.path("/posts"), body).await.data(201)["id"]));
    t.app.set_job_state("jobs", JobState::Running).await;
    for body in [json!({ "schedule_type": "draft" }), json!({ "content": "y" })] {
        t.put(&path, body).await.expect_error(409, "post_not_editable");
    }
    assert_eq!(t.app.count_rows("jobs WHERE state = 'running'").await, 1);
}

async fn publishing_now_retries_only_failed_targets(t: Tenant<'_>) {
    let (path, [done, failed]) = create_post_with_statuses(&t, "partially_published", ["published", "failed"]).await;
    t.put(&path, json!({ "content": "y" })).await.expect_error(409, "post_not_editable");
    let account = t.get(&path).await.data(200)["targets"][1]["account_id"].clone();
    let overrides = json!([{ "account_id": account, "content": "better" }]);
    let again = t.put(&path, json!({ "schedule_type": "now", "overrides": overrides })).await.data(200);
    assert_eq!(again["status"], "publishing");
    let statuses: Vec<&Value> = again["targets"].as_array().unwrap().iter().map(|t| &t["status"]).collect();
    assert_eq!(statuses, ["published", "pending"]);
    assert_eq!(again["targets"][1]["content"], "better");
    let jobs = async |id: i64| {
        t.app.count_rows(format!("jobs WHERE subject_id = {id} AND kind = 'publish_target' AND state = 'ready'")).await
    };
    assert_eq!((jobs(done).await, jobs(failed).await), (0, 1));
    assert_eq!(t.app.used_posts(t.workspace).await, 1);
}

async fn a_post_shows_the_error_of_its_first_failed_target(t: Tenant<'_>) {
    let (path, _) = create_post_with_statuses(&t, "failed", ["failed", "failed"]).await;
    let shown = t.get(&path).await.data(200);
    assert_eq!((&shown["error"]["code"], &shown["error"]["retryable"]), (&json!("platform_rejected"), &json!(false)));
    assert_eq!(t.get(&t.path("/posts")).await.data(200)[0]["error"], shown["error"]);
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.data(200)["error"], Value::Null);
}

async fn deleting_a_post_does_not_stop_running_jobs(t: Tenant<'_>) {
    let (path, [flying, waiting]) = create_post_with_statuses(&t, "publishing", ["publishing", "pending"]).await;
    t.app.set_job_state(format!("jobs WHERE subject_id = {flying}"), JobState::Running).await;
    t.delete(&path).await.expect(204);
    t.get(&path).await.expect_error(404, "not_found");
    assert_eq!(t.app.count_rows(format!("post_targets WHERE id IN ({flying}, {waiting})")).await, 1);
    assert_eq!(t.app.count_rows("jobs WHERE state = 'running'").await, 1);
}
