//! `collect_analytics`: when metrics are due, and what is stored of the platform's responses.

use chrono::{DateTime, TimeDelta, Utc};
use crier_config::PlatformConfig;
use crier_domain::account::AccountStatus;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::JobKind;
use crier_domain::platform::Platform;
use crier_domain::post::{PostStatus, TargetStatus};
use crier_platforms::{CallError, Published, RefreshedTokens};
use crier_scheduler::tasks;
use crier_store::analytics::{self, TargetSnapshot};

use crate::support::fake_platform::{auth_expired, rate_limited, reauth, secrets, transient};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::{TestStore, on_both};

worker_on_both!(
    post_metrics_are_collected_on_schedule,
    metrics_of_the_early_platform_are_collected_immediately,
    account_metrics_are_collected_daily_in_the_brand_s_time_zone,
    a_rate_limit_postpones_the_rest,
    metrics_that_the_operator_must_enable_delay_no_posts,
    a_transient_failure_is_retried,
    an_expired_token_is_refreshed_once,
    rejected_credentials_expire_the_account,
    metrics_of_a_deleted_post_are_not_collected_again,
    concurrent_schedulers_enqueue_a_published_post_once,
    a_rejected_metric_is_set_aside_for_a_day,
    an_omitted_metric_keeps_its_last_value,
    a_post_with_a_late_id_gets_its_id_and_metrics,
    a_later_rejection_is_the_error_of_its_target,
);

on_both!(disabled_metrics_are_not_collected);

fn likes(n: i64) -> PostMetrics {
    PostMetrics { likes: Some(n), ..PostMetrics::default() }
}

/// Runs the scheduler's task and the jobs that it enqueues.
async fn collect(w: &TestWorker) {
    tasks::analytics::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

async fn snapshots(w: &TestWorker, post: i64) -> Vec<TargetSnapshot> {
    analytics::of_post(&mut w.conn().await, post, DateTime::<Utc>::UNIX_EPOCH).await.unwrap()
}

async fn account_due_at(w: &TestWorker) -> DateTime<Utc> {
    w.value("SELECT metrics_at FROM social_accounts").await
}

/// Publishes a post, and collects the metrics of its account.
async fn publish_post(w: &TestWorker) -> i64 {
    w.fake.enable_metrics();
    let (post, _) = w.publish_one().await;
    w.run_jobs().await;
    collect(w).await;
    post
}

async fn post_metrics_are_collected_on_schedule(w: TestWorker) {
    let post = publish_post(&w).await;
    assert!(snapshots(&w, post).await.is_empty(), "nothing is due yet");
    let mut hours = 0;
    for (n, at) in [(1, 1), (2, 6), (3, 24)] {
        w.fake.set_post_metrics([Some(likes(n))]);
        w.clock.advance(TimeDelta::hours(at - hours) - TimeDelta::minutes(1));
        collect(&w).await;
        assert_eq!(snapshots(&w, post).await.len() as i64, n - 1, "not before {at} hours");
        w.clock.advance(TimeDelta::minutes(1));
        hours = at;
        collect(&w).await;
        let seen = snapshots(&w, post).await;
        assert_eq!((seen.len() as i64, seen.last().unwrap().metrics), (n, likes(n)));
    }
    // A decrease is stored too.
    w.fake.set_post_metrics([Some(likes(2))]);
    w.clock.advance(TimeDelta::days(2));
    collect(&w).await;
    assert_eq!(snapshots(&w, post).await.last().unwrap().metrics, likes(2));
}

async fn metrics_of_the_early_platform_are_collected_immediately(mut w: TestWorker) {
    w.scheduler.early_metrics_platform = Some(Platform::Sandbox);
    w.fake.set_post_metrics([Some(likes(3))]);
    let post = publish_post(&w).await;
    let seen = snapshots(&w, post).await;
    assert_eq!((seen.len(), seen[0].metrics), (1, likes(3)));
    // After that, the usual schedule applies.
    w.fake.set_post_metrics([Some(likes(4))]);
    w.clock.advance(TimeDelta::minutes(59));
    collect(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1);
    w.clock.advance(TimeDelta::minutes(1));
    collect(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 2);
}

async fn a_post_with_a_late_id_gets_its_id_and_metrics(w: TestWorker) {
    const IDS: &str = "post_targets WHERE external_id = 'late' AND url = 'https://late.example/1'";
    let post = publish_post(&w).await;
    w.sql("UPDATE post_targets SET external_id = NULL, url = NULL").await;
    w.fake.set_post_metrics([Some(likes(3))]);
    w.fake.assign_ids_later(None);
    w.clock.advance(TimeDelta::hours(1));
    collect(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_metrics"), w.count_rows(IDS).await), (1, 0, 0));
    // After a failure, the search for the id is retried.
    w.fake.assign_ids_later(Some(Published::new("late", Some("https://late.example/1".to_owned()))));
    w.fake.fail_metrics([transient()]);
    w.clock.advance(TimeDelta::hours(5));
    collect(&w).await;
    assert_eq!((w.fake.count("find_id"), w.count_rows(IDS).await), (2, 0));
    w.clock.advance(TimeDelta::minutes(15));
    collect(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_metrics"), w.count_rows(IDS).await), (3, 1, 1));
    assert_eq!(snapshots(&w, post).await.last().unwrap().metrics, likes(3));
    // Once the id is known, it is not searched for again.
    w.clock.advance(TimeDelta::days(1));
    collect(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_metrics")), (3, 2));
    // After a week without an id, the search ends.
    w.sql("UPDATE post_targets SET external_id = NULL").await;
    w.fake.assign_ids_later(None);
    w.clock.advance(TimeDelta::days(7));
    collect(&w).await;
    assert_eq!(w.fake.count("find_id"), 3);
    assert_eq!(w.count_rows("target_analytics WHERE next_at IS NOT NULL").await, 0);
}

async fn account_metrics_are_collected_daily_in_the_brand_s_time_zone(w: TestWorker) {
    w.set_time_zone(w.world.brand, "Asia/Kathmandu").await;
    w.fake.enable_metrics();
    collect(&w).await;
    collect(&w).await;
    assert_eq!(w.fake.count("account_metrics"), 1);
    // Midnight in Kathmandu is 18:15 UTC; accounts are spread over the following hour.
    let next = account_due_at(&w).await;
    let midnight = next - TimeDelta::seconds(w.account.id);
    assert_eq!(midnight.format("%H:%M:%S").to_string(), "18:15:00");
    w.clock.advance(next - w.now());
    collect(&w).await;
    assert_eq!(w.fake.count("account_metrics"), 2);
    let seen = analytics::of_accounts(&mut w.conn().await, &[w.account.id], (DateTime::UNIX_EPOCH, w.later(1))).await;
    let expected = AccountMetrics { followers: Some(7), ..AccountMetrics::default() };
    assert!(seen.unwrap().iter().all(|snapshot| snapshot.metrics == expected));
}

async fn a_rate_limit_postpones_the_rest(w: TestWorker) {
    let post = publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    let until = w.later(1_800);
    w.fake.fail_metrics([rate_limited(until)]);
    collect(&w).await;
    assert_eq!((snapshots(&w, post).await.len(), account_due_at(&w).await), (0, until));
    w.clock.advance(TimeDelta::minutes(30));
    w.fake.set_post_metrics([Some(likes(1))]);
    collect(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1, "postponed, not dropped");
}

async fn metrics_that_the_operator_must_enable_delay_no_posts(w: TestWorker) {
    publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    let until = w.later(6 * 3_600);
    let failure = Failure::misconfigured("The API for metrics is not enabled. Enable it.");
    w.fake.fail_metrics([CallError::RateLimited { until: Some(until), failure }]);
    collect(&w).await;
    assert_eq!((account_due_at(&w).await, w.count_rows("paused_lanes").await), (until, 0));
}

async fn a_transient_failure_is_retried(w: TestWorker) {
    let post = publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([transient(), CallError::network("The platform is unavailable.")]);
    for _ in 0..2 {
        collect(&w).await;
        assert_eq!(account_due_at(&w).await, w.now() + TimeDelta::minutes(15));
        w.clock.advance(TimeDelta::minutes(15));
    }
    w.fake.set_post_metrics([Some(likes(1))]);
    collect(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1);
    assert_eq!(w.count_rows("jobs WHERE state = 'dead'").await, 0);
}

async fn an_expired_token_is_refreshed_once(w: TestWorker) {
    let post = publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([auth_expired()]);
    let refreshed = RefreshedTokens { secrets: Some(secrets("new")), token_expires_at: None, refresh_expires_at: None };
    w.fake.script_refreshes([Ok(refreshed)]);
    w.fake.set_post_metrics([Some(likes(1))]);
    collect(&w).await;
    assert_eq!((snapshots(&w, post).await.len(), w.fake.count("refresh")), (1, 1));
    assert_eq!(w.account_status().await, AccountStatus::Active);
    // The platform rejects the new token as well.
    w.clock.advance(TimeDelta::hours(5));
    w.fake.fail_metrics([auth_expired(), auth_expired()]);
    collect(&w).await;
    assert_eq!((w.account_status().await, w.fake.count("refresh")), (AccountStatus::Expired, 2));
}

async fn rejected_credentials_expire_the_account(w: TestWorker) {
    publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([reauth()]);
    collect(&w).await;
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    let calls = w.fake.count("post_metrics");
    w.clock.advance(TimeDelta::days(2));
    collect(&w).await;
    assert_eq!(w.fake.count("post_metrics"), calls, "nothing is requested for an expired account");
}

async fn metrics_of_a_deleted_post_are_not_collected_again(w: TestWorker) {
    let post = publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.set_post_metrics([None]);
    collect(&w).await;
    assert!(snapshots(&w, post).await.is_empty());
    assert!(w.value::<bool>("SELECT is_gone FROM target_analytics").await);
    let calls = w.fake.count("post_metrics");
    w.clock.advance(TimeDelta::days(30));
    collect(&w).await;
    assert_eq!(w.fake.count("post_metrics"), calls);
}

async fn concurrent_schedulers_enqueue_a_published_post_once(w: TestWorker) {
    w.fake.enable_metrics();
    for _ in 0..3 {
        w.publish_one().await;
    }
    w.run_jobs().await;
    for _ in 0..2 {
        let (one, two) = tokio::join!(tasks::analytics::run(&w.scheduler), tasks::analytics::run(&w.scheduler));
        one.unwrap();
        two.unwrap();
    }
    assert_eq!(w.count_rows("target_analytics").await, 3);
    assert_eq!(w.count_rows(format!("jobs WHERE kind = '{}'", JobKind::CollectAnalytics)).await, 1);
}

async fn disabled_metrics_are_not_collected(s: TestStore) {
    let off = PlatformConfig { analytics: Some(false), ..PlatformConfig::default() };
    let mut w = TestWorker::with_settings(s, Platform::Sandbox, off).await;
    publish_post(&w).await;
    w.clock.advance(TimeDelta::hours(3));
    collect(&w).await;
    let enqueued = format!("jobs WHERE kind = '{}'", JobKind::CollectAnalytics);
    assert_eq!(w.count_rows(&enqueued).await, 0);
    assert!(account_due_at(&w).await > w.now(), "the account is not overdue");
    // A scheduler with the earlier configuration enqueues one job, and then none for two hours.
    w.scheduler.metrics_platforms = vec![Platform::Sandbox];
    w.clock.advance(TimeDelta::hours(3));
    collect(&w).await;
    assert_eq!((w.count_rows(&enqueued).await, w.fake.count("account_metrics")), (1, 0));
    assert_eq!(account_due_at(&w).await, w.now() + TimeDelta::hours(2));
}

async fn an_omitted_metric_keeps_its_last_value(w: TestWorker) {
    let post = publish_post(&w).await;
    let clicks = PostMetrics { clicks: Some(3), ..likes(1) };
    for (hours, metrics) in [(1, clicks), (5, likes(0))] {
        w.fake.set_post_metrics([Some(metrics)]);
        w.clock.advance(TimeDelta::hours(hours));
        collect(&w).await;
        assert_eq!(snapshots(&w, post).await.last().unwrap().metrics, metrics);
    }
    let newest: (i64, i64) =
        (w.number("SELECT likes FROM target_analytics").await, w.number("SELECT clicks FROM target_analytics").await);
    assert_eq!(newest, (0, 3));
}

async fn a_rejected_metric_is_set_aside_for_a_day(w: TestWorker) {
    publish_post(&w).await;
    w.fake.reject_metric("views");
    let set_aside = async || analytics::set_aside(&mut w.conn().await, w.account.id, w.now()).await.unwrap();
    for (hours, rejected) in [(1, 1), (5, 1), (18, 1), (48, 2)] {
        w.clock.advance(TimeDelta::hours(hours));
        collect(&w).await;
        assert_eq!(w.fake.count("rejected_metric"), rejected, "after {hours} hours");
        assert_eq!(set_aside().await.into_iter().collect::<Vec<_>>(), ["views"]);
    }
    w.clock.advance(TimeDelta::hours(24));
    assert!(set_aside().await.is_empty(), "the day is over");
}

async fn a_later_rejection_is_the_error_of_its_target(w: TestWorker) {
    w.fake.enable_metrics();
    let [(first, rejected), (_, shown)] = [w.publish_one().await, w.publish_one().await];
    w.run_jobs().await;
    collect(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    collect(&w).await;
    assert_eq!((w.fake.count("later_rejections"), w.target(rejected).await.error), (1, None));
    let failure = Failure::with_code(Category::PlatformRejected, "rejected_later", "It is a duplicate.");
    w.fake.reject_later([Some(failure.clone()), None]);
    w.clock.advance(TimeDelta::hours(5));
    collect(&w).await;
    let targets = [w.target(rejected).await, w.target(shown).await];
    let errors = targets.clone().map(|target| target.error);
    assert!(errors.contains(&Some(failure.clone())) && errors.contains(&None), "{errors:?}");
    assert!(targets.iter().all(|target| target.status == TargetStatus::Published), "{targets:?}");
    assert_eq!(w.post_status(first).await, PostStatus::Published);
    // The first error stays, and old posts are not checked.
    w.fake.reject_later([]);
    for days in [1, 2, 4, 23, 7] {
        w.clock.advance(TimeDelta::days(days));
        collect(&w).await;
    }
    assert_eq!(w.fake.count("later_rejections"), 4);
    let errors = [w.target(rejected).await.error, w.target(shown).await.error];
    assert!(errors.contains(&Some(failure)), "{errors:?}");
}
