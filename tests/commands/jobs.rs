//! `crier jobs …`. The program uses the real clock, which is months ahead of the tests' clock: what a test creates is
//! old for the program.

use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_store::{jobs, posts};
use serde_json::{Value, json};

use crate::support::client::until_soon;
use crate::support::command::{command, crier};
use crate::support::fake_platform::{PublishStep, rate_limited};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::request::assert_fields;

worker_on_both![
    lists_are_filtered_and_show_every_field,
    invalid_arguments_are_rejected_with_a_hint,
    all_dead_jobs_of_a_kind_are_retried,
    a_job_that_cannot_be_retried_does_not_block_others,
    ids_are_changed_individually_or_rejected_with_a_reason,
    pending_jobs_are_cancelled_by_filter,
    kinds_are_listed_with_counts_and_pause_state,
    a_publish_job_is_shown_with_details,
    a_delivery_job_is_shown_with_details,
    an_interrupted_retry_keeps_jobs_consistent,
];

/// Creates dead publish jobs with failed targets: `(post, target, job)`.
async fn create_dead_jobs(w: &TestWorker, count: usize) -> Vec<(i64, i64, i64)> {
    let mut created = Vec::new();
    for _ in 0..count {
        let (post, target) = w.publish_one().await;
        let job = w.job_of(target).await.id;
        w.end_post(post, "failed", &["failed"]).await;
        w.kill_job(job, 8, "broken").await;
        created.push((post, target, job));
    }
    w.s.notifier.take();
    created
}

/// Asserts that retried jobs have pending targets and dead jobs have failed ones; returns the number of retried jobs.
async fn count_retried(w: &TestWorker, created: &[(i64, i64, i64)]) -> usize {
    let mut retried = 0;
    for (post, target, job) in created {
        let (job, target, post) = (w.show(*job).await, w.target(*target).await, w.post_status(*post).await);
        let expected = match job.state {
            JobState::Dead => (TargetStatus::Failed, PostStatus::Failed),
            _ => (TargetStatus::Pending, PostStatus::Publishing),
        };
        assert_eq!((target.status, post), expected, "job {} is {}", job.id, job.state);
        retried += usize::from(job.state == JobState::Ready);
    }
    retried
}

fn ids(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

async fn lists_are_filtered_and_show_every_field(w: TestWorker) {
    w.leaves_jobs();
    let dead = create_dead_jobs(&w, 2).await;
    let delivery = w.job_at(JobKind::DeliverWebhook, 9, Some("endpoint:7"), w.later(60)).await;
    let list = |args: &[&str]| ids(&crier(&w, &[&["jobs", "list", "--json"], args].concat()).json());
    assert_eq!(list(&[]), [delivery, dead[1].2, dead[0].2]);
    assert_eq!(list(&["--limit", "1"]), [delivery]);
    assert_eq!(list(&["--state", "dead"]), [dead[1].2, dead[0].2]);
    assert_eq!(list(&["--kind", "deliver_webhook", "--state", "scheduled"]), [delivery]);
    assert_eq!(list(&["--lane", "endpoint:7"]), [delivery]);
    assert_eq!(list(&["--lane", "endpoint:7", "--state", "ready"]), [0; 0]);
    assert_eq!(list(&["--older-than", "7d"]), [delivery, dead[1].2, dead[0].2]);
    assert_eq!(list(&["--older-than", "3000d", "--state", "dead"]), [0; 0]);
    let row = &crier(&w, &["jobs", "list", "--state", "dead", "--limit", "1", "--json"]).json()[0];
    let at = w.now().to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
    assert_eq!(
        *row,
        json!({ "id": dead[1].2, "kind": "publish_target", "subject_id": dead[1].1, "lane": format!("account:{}", w.account.id),
            "state": "dead", "waiting": false, "run_at": at, "attempt": 8, "max_attempts": 8, "crashes": 0,
            "lease_until": null, "trace": "request-1", "last_error": "broken", "created_at": at, "finished_at": at })
    );
    let table = crier(&w, &["jobs", "list"]);
    let headers: Vec<&str> = table.expect_stdout().lines().next().unwrap().split_whitespace().collect();
    assert_eq!(headers.join(" "), "ID KIND STATE LANE ATTEMPT AGE DUE LAST_ERROR");
    assert_eq!(table.expect_stdout().lines().count(), 4);
    w.sql(format!("UPDATE jobs SET last_error = '{0}', lane = '{0}' WHERE state = 'dead'", "much longer ".repeat(20)))
        .await;
    let table = crier(&w, &["jobs", "list"]);
    // Both columns are whole, because the output is a pipe.
    assert_eq!(table.expect_stdout().matches("much longer").count(), 2 * 2 * 20, "{table:?}");
}

async fn invalid_arguments_are_rejected_with_a_hint(w: TestWorker) {
    let kinds = "".parse::<JobKind>().unwrap_err().known;
    for (args, expected_text) in [
        (&["list", "--kind", "publish"][..], kinds.as_str()),
        (&["list", "--state", "lost"], "scheduled, ready, running, done, dead, cancelled"),
        (&["list", "--older-than", "5"], "an integer with a unit"),
        (&["pause", "everything"], &kinds),
        (&["retry"], "<IDS>"),
        (&["retry", "--dead"], "--kind"),
        (&["retry", "1", "--dead", "--kind", "noop"], "cannot be used with"),
        (&["retry", "1", "--kind", "noop"], "cannot be used with"),
        (&["cancel"], "--kind <KIND>"),
        (&["cancel", "--state", "ready"], "--kind <KIND>"),
        (&["cancel", "1", "--lane", "account:1"], "cannot be used with"),
        (&["cancel", "--kind", "noop", "--state", "running"], "a job that is running cannot be canceled"),
    ] {
        let output = crier(&w, &[&["jobs"], args].concat());
        assert!(output.expect_failure(2).contains(expected_text), "{args:?}: {}", output.err);
    }
    assert!(crier(&w, &["jobs", "show", "99"]).expect_failure(1).contains("there is no job 99"));
    assert!(crier(&w, &["jobs", "resume", "noop"]).expect_failure(1).contains("noop is not paused"));
}

async fn all_dead_jobs_of_a_kind_are_retried(w: TestWorker) {
    // More jobs than one batch.
    let dead = create_dead_jobs(&w, 60).await;
    let output = crier(&w, &["jobs", "retry", "--dead", "--kind", "deliver_webhook"]);
    assert_eq!(output.expect_stdout(), "Retried: 0.\n");
    let output = crier(&w, &["jobs", "retry", "--dead", "--kind", "publish_target", "--lane", "account:0"]);
    assert_eq!(output.expect_stdout(), "Retried: 0.\n");
    let output = crier(&w, &["jobs", "retry", "--dead", "--kind", "publish_target", "--older-than", "3000d"]);
    assert_eq!(output.expect_stdout(), "Retried: 0.\n");
    let output = crier(&w, &["jobs", "retry", "--dead", "--kind", "publish_target", "--older-than", "1h"]);
    assert_eq!((output.expect_stdout(), output.err.as_str()), ("Retried: 60.\n", ""));
    assert_eq!(count_retried(&w, &dead).await, 60);
    // The jobs run like new ones. A command makes them ready, by a clock that the test's clock passes here, and the
    // scheduler notifies the workers.
    w.clock.advance(Clock::system().now() - w.now() + TimeDelta::days(1));
    w.make_jobs_due().await;
    w.run_jobs().await;
    for (post, _, job) in dead {
        assert_eq!((w.post_status(post).await, w.state(job).await), (PostStatus::Published, JobState::Done));
    }
}

async fn a_job_that_cannot_be_retried_does_not_block_others(w: TestWorker) {
    w.leaves_jobs();
    let dead = create_dead_jobs(&w, 6).await;
    // The post of one job is deleted, the target of another has a new job, and the target row of a third cannot be
    // read.
    w.write(async |tx| posts::delete(tx, dead[1].0).await).await;
    let other = w.enqueue(dead[2].1, w.account.id, w.later(60)).await;
    w.sql(format!("UPDATE post_targets SET platform = 'nonsense' WHERE id = {}", dead[4].1)).await;
    let output = crier(&w, &["jobs", "retry", "--dead", "--kind", "publish_target"]);
    assert!(output.expect_failure(1).contains("1 jobs could not be changed"), "{output:?}");
    assert!(output.out.contains("Retried: 3.\n"), "{output:?}");
    for reason in ["nothing left to do", "has another job", "the database rejected the change"] {
        let is_counted = |line: &str| line.starts_with("Skipped: 1, because ") && line.contains(reason);
        assert!(output.out.lines().any(is_counted), "{output:?}");
    }
    w.sql("UPDATE post_targets SET platform = 'sandbox'").await;
    assert_eq!(w.state(other).await, JobState::Scheduled);
    let with_posts = [dead[0], dead[2], dead[3], dead[4], dead[5]];
    assert_eq!(count_retried(&w, &with_posts).await, 3);
    assert_eq!(w.state(dead[1].2).await, JobState::Dead);
}

async fn ids_are_changed_individually_or_rejected_with_a_reason(w: TestWorker) {
    w.leaves_jobs();
    let dead = create_dead_jobs(&w, 2).await;
    let (job, without_post) = (dead[0].2.to_string(), dead[1].2.to_string());
    w.write(async |tx| posts::delete(tx, dead[1].0).await).await;
    let output = crier(&w, &["jobs", "retry", &without_post, "999", &job]);
    assert_eq!(output.out, format!("Job {job} (publish_target) is ready to run again.\n"));
    let line = format!("job {without_post} was not changed: its subject has nothing left to do; there is no job 999; ");
    assert!(output.expect_failure(1).contains(&line), "{output:?}");
    assert_eq!(count_retried(&w, &dead[..1]).await, 1);
    assert!(crier(&w, &["jobs", "retry", &job]).expect_failure(1).contains("is ready: it runs automatically"));
    assert!(
        crier(&w, &["jobs", "cancel", &without_post])
            .expect_failure(1)
            .contains("is dead: only jobs that have not started")
    );
    let noop = w.enqueue_job(JobKind::Noop, 1, None).await.to_string();
    let held = w.claim(&[noop.parse().unwrap()], "w").await.remove(0);
    assert!(crier(&w, &["jobs", "cancel", &noop]).expect_failure(1).contains("running jobs continue"));
    assert!(crier(&w, &["jobs", "retry", &noop]).expect_failure(1).contains("running jobs continue"));
    assert!(w.settle(&held, Outcome::Done).await);
    assert!(crier(&w, &["jobs", "retry", &noop]).expect_failure(1).contains("is done: only dead and canceled"));
    assert_eq!(crier(&w, &["jobs", "cancel", &job]).expect_stdout(), format!("Canceled job {job} (publish_target).\n"));
    let target = w.target(dead[0].1).await;
    assert_eq!((target.status, target.error.unwrap().code.as_str()), (TargetStatus::Failed, "cancelled"));
}

async fn pending_jobs_are_cancelled_by_filter(w: TestWorker) {
    w.leaves_jobs();
    let (one, other) = (w.account.id, w.another_account("other").await.id);
    let (_, due_now) = w.publish(&[one, other]).await;
    let (post, later) = w.schedule(w.later(3_600)).await;
    let running = w.job_of(due_now[0]).await;
    w.claim(&[running.id], "w").await;
    let lane = format!("account:{one}");
    let args = ["jobs", "cancel", "--kind", "publish_target", "--lane", &lane];
    let output = crier(&w, &args);
    assert_eq!(output.expect_stdout(), "Not canceled, because they are running: 1.\nCanceled: 1.\n");
    assert_eq!(w.job_of(later).await.state, JobState::Cancelled);
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    assert_eq!(w.job_of(due_now[0]).await.state, JobState::Running);
    assert_eq!(w.job_of(due_now[1]).await.state, JobState::Ready, "another lane's");
    let output = crier(&w, &["jobs", "cancel", "--kind", "publish_target", "--state", "scheduled"]);
    assert!(output.expect_stdout().ends_with("Canceled: 0.\n"));
    let output = crier(&w, &["jobs", "cancel", "--older-than", "1d", "--state", "ready"]);
    assert!(output.expect_stdout().ends_with("Canceled: 1.\n"), "{output:?}");
    assert_eq!(w.job_of(due_now[1]).await.state, JobState::Cancelled);
}

async fn kinds_are_listed_with_counts_and_pause_state(w: TestWorker) {
    w.leaves_jobs();
    create_dead_jobs(&w, 2).await;
    let due = w.now();
    w.enqueue_job(JobKind::Noop, 1, None).await;
    w.job_at(JobKind::Noop, 2, None, w.later(60)).await;
    assert!(crier(&w, &["jobs", "pause", "noop"]).expect_stdout().starts_with("Paused noop"));
    let kinds = crier(&w, &["jobs", "kinds", "--json"]).json();
    let row = |kind: &str| kinds.as_array().unwrap().iter().find(|row| row["id"] == kind).unwrap().clone();
    let at = due.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
    assert_eq!(
        row("noop"),
        json!({ "id": "noop", "scheduled": 1, "ready": 1, "waiting": 0, "running": 0, "dead": 0, "paused": true, "oldest_ready": at })
    );
    assert_eq!(
        row("publish_target"),
        json!({ "id": "publish_target", "scheduled": 0, "ready": 0, "waiting": 0, "running": 0, "dead": 2, "paused": false, "oldest_ready": null })
    );
    assert_eq!(kinds.as_array().unwrap().len(), JobKind::ALL.len());
    assert!(w.claim(&[w.newest_id("jobs WHERE state = 'ready'").await], "w").await.is_empty());
    assert_eq!(crier(&w, &["jobs", "resume", "noop"]).expect_stdout(), "Resumed noop.\n");
}

async fn a_publish_job_is_shown_with_details(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(3_600)))]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    let job = w.job_of(target).await;
    let (id, account) = (job.id.to_string(), w.account.id);
    let shown = crier(&w, &["jobs", "show", &id, "--json"]).json();
    assert_eq!(shown["state"], "scheduled");
    assert_eq!(shown["subject"], format!("target {target} of post {post} on account {account} (sandbox), publishing"));
    assert_fields(&shown["lane"], json!({ "name": format!("account:{account}"), "running": 0, "cap": 4 }));
    assert_eq!(shown["trace"], "request-1");
    assert_fields(&shown["attempts"][0], json!({ "outcome": "retried", "error": shown["last_error"] }));
    let text = crier(&w, &["jobs", "show", &id]);
    assert!(text.expect_stdout().contains(&format!("subject          target {target} of post {post}")), "{}", text.out);
    assert!(text.expect_stdout().contains("trace            request-1"), "{}", text.out);
    assert!(text.expect_stdout().contains("retried"), "{}", text.out);
    assert!(!text.expect_stdout().contains("Fresh bread"), "a user's text must not be shown: {}", text.out);
    w.sql(format!("DELETE FROM posts WHERE id = {post}")).await;
    assert_eq!(crier(&w, &["jobs", "show", &id, "--json"]).json()["subject"], "deleted");
}

async fn a_delivery_job_is_shown_with_details(w: TestWorker) {
    // No server listens there.
    let webhook = w.listen_at("http://127.0.0.1:9/hook").await;
    w.publish_one().await;
    w.run_jobs().await;
    let job = w.newest_id("jobs WHERE kind = 'deliver_webhook'").await;
    let shown = crier(&w, &["jobs", "show", &job.to_string(), "--json"]).json();
    let words = shown["subject"].as_str().unwrap();
    assert!(words.contains(&format!("(post.published) to endpoint {}, retrying", webhook.id)), "{words}");
    assert_eq!(shown["lane"]["name"], format!("endpoint:{}", webhook.id));
    assert_eq!((&shown["attempts"][0]["number"], &shown["attempts"][0]["outcome"]), (&json!(1), &json!("connect")));
    assert!(shown["attempts"][0]["error"].is_string());
}

/// Interrupts the command with Ctrl-C.
async fn an_interrupted_retry_keeps_jobs_consistent(w: TestWorker) {
    let dead = create_dead_jobs(&w, 400).await;
    let dir = tempfile::tempdir().unwrap();
    let mut retry = command(&w, &["jobs", "retry", "--dead", "--kind", "publish_target"])
        .env("CRIER_DATA_DIR", dir.path())
        .current_dir(dir.path())
        .spawn()
        .unwrap();
    until_soon("the first batch", || async { (w.count_rows("jobs WHERE state = 'ready'").await > 0).then_some(()) })
        .await;
    std::process::Command::new("kill").args(["-INT", &retry.id().to_string()]).status().unwrap();
    retry.wait().unwrap();
    let retried = count_retried(&w, &dead).await;
    assert_eq!(retried % 50, 0, "in whole batches");
    // The same command can retry the remaining jobs.
    crier(&w, &["jobs", "retry", "--dead", "--kind", "publish_target"]).expect_stdout();
    assert_eq!(count_retried(&w, &dead).await, 400);
    assert!(
        jobs::is_running(&mut w.conn().await, JobKind::PublishTarget, dead[0].1).await.is_ok_and(|running| !running)
    );
}
