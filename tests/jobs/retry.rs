//! `publish_target` with transient failures and rate limits.

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{JobState, Lane};
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_platforms::CallError;
use crier_store::jobs::operate;

use crate::support::fake_platform::{PublishStep, rate_limited, transient};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    eight_attempts_are_made_with_documented_delays,
    a_success_clears_the_error,
    a_rate_limit_time_is_respected,
    a_rate_limit_pauses_only_its_account,
    a_rate_limit_on_the_last_attempt_pauses_the_account,
    a_configuration_error_uses_no_attempt,
    a_configuration_error_uses_attempts_after_a_week,
    a_daily_limit_delays_only_its_post_and_uses_no_attempt,
    a_daily_limit_uses_attempts_after_a_day_and_a_half,
);

const HOUR: i64 = 3_600;
const PAUSES: [i64; 7] = [10, 30, 120, 600, 1_800, 3_600, 7_200];

async fn eight_attempts_are_made_with_documented_delays(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes((0..8).map(|_| PublishStep::Reject(transient())));
    let (post, target) = w.publish_one().await;
    let mut notified = vec![w.notified_job()];
    for (number, pause) in (1..).zip(PAUSES) {
        assert!(w.engine.run(notified[0]).await);
        let (waiting, job) = (w.target(target).await, w.job_of(target).await);
        assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, number));
        assert_eq!((job.state, job.attempt, Some(job.run_at)), (JobState::Scheduled, number, waiting.next_attempt_at));
        assert!(waiting.error.unwrap().category.is_retryable());
        let milliseconds = (job.run_at - w.clock.now()).num_milliseconds();
        assert!((pause * 800..=pause * 1_200).contains(&milliseconds), "{milliseconds} ms after attempt {number}");
        // Not before that time.
        w.clock.advance(job.run_at - w.clock.now() - TimeDelta::microseconds(1));
        w.scheduler.tick().await.unwrap();
        assert_eq!(w.s.notifier.take(), Vec::<i64>::new());
        w.clock.advance(TimeDelta::microseconds(1));
        w.scheduler.tick().await.unwrap();
        notified = w.s.notifier.take();
        assert_eq!(notified.len(), 1);
    }
    w.engine.run(notified[0]).await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts, ended.next_attempt_at), (TargetStatus::Failed, 8, None));
    assert_eq!(ended.error.unwrap().category, Category::PlatformError, "it failed with the platform's last error");
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
    let outcomes: Vec<_> = w.attempts(post).await.iter().map(|a| (a.number, a.outcome)).collect();
    let mut expected: Vec<_> = (1..=7).map(|n| (n, AttemptOutcome::Retried)).collect();
    expected.push((8, AttemptOutcome::Failed));
    assert_eq!(outcomes, expected);
    assert_eq!(w.events().await, ["post.failed"]);
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile"), w.fake.posts().len()), (8, 0, 0));
}

async fn a_success_clears_the_error(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(transient())]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert!(ended.status == TargetStatus::Published && ended.error.is_none() && ended.attempts == 2);
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let markers: Vec<_> = w.fake.calls().into_iter().map(|call| call.marker).collect();
    assert!(!markers[0].is_empty() && markers[0] == markers[1], "one marker for all attempts");
}

async fn a_rate_limit_time_is_respected(w: TestWorker) {
    let until = w.later(77);
    w.fake.script_publishes([PublishStep::Reject(rate_limited(until))]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.next_attempt_at, Some(until));
    assert_eq!(w.job_of(target).await.run_at, until);
    w.advance(77);
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_rate_limit_pauses_only_its_account(w: TestWorker) {
    let other = w.another_account("other").await;
    w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(300)))]);
    let (_, limited) = w.publish_one().await;
    w.run_jobs().await;
    let mut same = Vec::new();
    for _ in 0..6 {
        same.push(w.publish_one().await.1);
    }
    let (_, other_targets) = w.publish(&[other.id]).await;
    w.run_jobs().await;
    assert_eq!(w.target(other_targets[0]).await.status, TargetStatus::Published, "another account continues");
    for target in &same {
        let job = w.job_of(*target).await;
        assert_eq!(
            (job.state, job.waiting, job.attempt),
            (JobState::Ready, true, 0),
            "it waits without using an attempt"
        );
        assert_eq!(w.target(*target).await.status, TargetStatus::Pending);
    }
    assert_eq!(w.fake.count("publish"), 2);
    w.clock.advance(TimeDelta::seconds(300) - TimeDelta::microseconds(1));
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 2, "not before its time");
    w.clock.advance(TimeDelta::microseconds(1));
    w.run_jobs().await;
    for target in same.iter().chain([&limited]) {
        assert_eq!(w.target(*target).await.status, TargetStatus::Published);
    }
    assert_eq!(w.count_rows("paused_lanes").await, 0);
}

async fn a_rate_limit_on_the_last_attempt_pauses_the_account(w: TestWorker) {
    let (_, target) = w.publish_one().await;
    w.set_attempts(w.job_of(target).await.id, 7).await;
    w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(300)))]);
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().category), (TargetStatus::Failed, Category::RateLimited));
    let lane = Lane::Account(w.account.id).to_string();
    assert!(operate::lane(&mut w.conn().await, &lane, w.later(299)).await.unwrap().paused_until.is_some());
}

/// A call that fails because of the operator's configuration.
fn misconfigured(w: &TestWorker) -> PublishStep {
    let failure = Failure::misconfigured("This API version is no longer supported. Set another one.");
    PublishStep::Reject(CallError::RateLimited { until: Some(w.later(6 * HOUR)), failure })
}

async fn a_configuration_error_uses_no_attempt(w: TestWorker) {
    let (post, target) = w.publish_one().await;
    for _ in 0..20 {
        w.fake.script_publishes([misconfigured(&w)]);
        w.run_jobs().await;
        let (waiting, job) = (w.target(target).await, w.job_of(target).await);
        assert_eq!((waiting.status, waiting.attempts, job.attempt), (TargetStatus::Publishing, 0, 0));
        assert_eq!(waiting.error.unwrap().code, "misconfigured");
        w.advance(6 * HOUR);
    }
    assert_eq!(w.attempts(post).await.len(), 0);
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts, ended.error), (TargetStatus::Published, 1, None));
}

async fn a_configuration_error_uses_attempts_after_a_week(w: TestWorker) {
    let (post, target) = w.publish_one().await;
    for _ in 0..7 * 4 {
        w.fake.script_publishes([misconfigured(&w)]);
        w.run_jobs().await;
        assert_eq!(w.target(target).await.attempts, 0);
        w.advance(6 * HOUR);
    }
    w.fake.script_publishes((0..8).map(|_| misconfigured(&w)));
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts), (TargetStatus::Failed, 8));
    assert_eq!(ended.error.unwrap().code, "misconfigured");
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
}

/// A call that exceeds a daily limit, such as one of videos.
fn over_daily_limit(w: &TestWorker) -> PublishStep {
    let failure = Failure::daily_limit("The daily limit of videos is reached.");
    PublishStep::Reject(CallError::RateLimited { until: Some(w.later(HOUR)), failure })
}

async fn a_daily_limit_delays_only_its_post_and_uses_no_attempt(w: TestWorker) {
    let (post, target) = w.publish_one().await;
    for _ in 0..30 {
        w.fake.script_publishes([over_daily_limit(&w)]);
        w.run_jobs().await;
        let (waiting, job) = (w.target(target).await, w.job_of(target).await);
        assert_eq!((waiting.status, waiting.attempts, job.attempt), (TargetStatus::Publishing, 0, 0));
        assert_eq!((waiting.next_attempt_at, job.run_at), (Some(w.later(HOUR)), w.later(HOUR)));
        assert_eq!(waiting.error.unwrap().code, "daily_limit");
        w.advance(HOUR / 2);
        // A post of the same account that is not limited.
        let (_, other) = w.publish_one().await;
        w.run_jobs().await;
        assert_eq!(w.target(other).await.status, TargetStatus::Published);
        w.advance(HOUR / 2);
    }
    assert_eq!((w.attempts(post).await.len(), w.count_rows("paused_lanes").await), (0, 0));
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts, ended.error), (TargetStatus::Published, 1, None));
}

async fn a_daily_limit_uses_attempts_after_a_day_and_a_half(w: TestWorker) {
    let (post, target) = w.publish_one().await;
    for _ in 0..36 {
        w.fake.script_publishes([over_daily_limit(&w)]);
        w.run_jobs().await;
        assert_eq!(w.target(target).await.attempts, 0);
        w.advance(HOUR);
    }
    w.fake.script_publishes((0..8).map(|_| over_daily_limit(&w)));
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts), (TargetStatus::Failed, 8));
    assert_eq!(ended.error.unwrap().code, "daily_limit");
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
}
