//! `collect_analytics`: when figures are due, and what is stored of the platform's answers.

use chrono::{DateTime, TimeDelta, Utc};
use crier_config::PlatformConfig;
use crier_domain::account::AccountStatus;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::job::JobKind;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Published, RefreshedTokens};
use crier_scheduler::tasks;
use crier_store::analytics::{self, TargetSnapshot};

use crate::support::fake_platform::{auth_expired, rate_limited, reauth, secrets, transient};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::{TestStore, on_both};

worker_on_both!(
    a_post_is_looked_at_on_its_schedule,
    figures_of_the_early_platform_are_read_immediately,
    accounts_are_looked_at_once_a_day_in_their_zone,
    a_limit_puts_the_rest_off,
    a_passing_failure_is_tried_again,
    an_expired_token_is_renewed_once,
    a_refusal_expires_the_account,
    a_post_that_is_gone_is_looked_at_no_more,
    a_published_post_is_found_by_several_schedulers_once,
    a_refused_metric_is_set_aside_for_a_day,
    a_figure_that_is_given_no_more_stays_as_it_was_last_seen,
    a_post_that_is_named_later_gets_its_id_and_figures,
);

on_both!(figures_that_are_switched_off_are_not_read);

fn likes(n: i64) -> PostMetrics {
    PostMetrics { likes: Some(n), ..PostMetrics::default() }
}

/// Runs the scheduler's task and what it enqueued.
async fn look(w: &TestWorker) {
    tasks::analytics::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

async fn snapshots(w: &TestWorker, post: i64) -> Vec<TargetSnapshot> {
    analytics::of_post(&mut w.conn().await, post, DateTime::<Utc>::UNIX_EPOCH).await.unwrap()
}

async fn figures_at(w: &TestWorker) -> DateTime<Utc> {
    w.value("SELECT figures_at FROM social_accounts").await
}

/// Publishes a post, and lets the account's own figures be collected.
async fn published(w: &TestWorker) -> i64 {
    w.fake.enable_metrics();
    let (post, _) = w.publish_one().await;
    w.run_jobs().await;
    look(w).await;
    post
}

async fn a_post_is_looked_at_on_its_schedule(w: TestWorker) {
    let post = published(&w).await;
    assert!(snapshots(&w, post).await.is_empty(), "nothing is due yet");
    let mut hours = 0;
    for (n, at) in [(1, 1), (2, 6), (3, 24)] {
        w.fake.set_post_metrics([Some(likes(n))]);
        w.clock.advance(TimeDelta::hours(at - hours) - TimeDelta::minutes(1));
        look(&w).await;
        assert_eq!(snapshots(&w, post).await.len() as i64, n - 1, "not before {at} hours");
        w.clock.advance(TimeDelta::minutes(1));
        hours = at;
        look(&w).await;
        let seen = snapshots(&w, post).await;
        assert_eq!((seen.len() as i64, seen.last().unwrap().figures), (n, likes(n)));
    }
    // A figure that falls is stored as it is.
    w.fake.set_post_metrics([Some(likes(2))]);
    w.clock.advance(TimeDelta::days(2));
    look(&w).await;
    assert_eq!(snapshots(&w, post).await.last().unwrap().figures, likes(2));
}

async fn figures_of_the_early_platform_are_read_immediately(mut w: TestWorker) {
    w.scheduler.early_metrics_platform = Some(Platform::Sandbox);
    w.fake.set_post_metrics([Some(likes(3))]);
    let post = published(&w).await;
    let seen = snapshots(&w, post).await;
    assert_eq!((seen.len(), seen[0].figures), (1, likes(3)));
    // Then the schedule is that of every platform.
    w.fake.set_post_metrics([Some(likes(4))]);
    w.clock.advance(TimeDelta::minutes(59));
    look(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1);
    w.clock.advance(TimeDelta::minutes(1));
    look(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 2);
}

async fn a_post_that_is_named_later_gets_its_id_and_figures(w: TestWorker) {
    const IDS: &str = "SELECT count(*) FROM post_targets WHERE external_id = 'late' AND url = 'https://late.example/1'";
    let post = published(&w).await;
    w.sql("UPDATE post_targets SET external_id = NULL, url = NULL").await;
    w.fake.set_post_metrics([Some(likes(3))]);
    w.fake.assign_ids_later(None);
    w.clock.advance(TimeDelta::hours(1));
    look(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_figures"), w.number(IDS).await), (1, 0, 0));
    // A failure loses nothing.
    w.fake.assign_ids_later(Some(Published::new("late", Some("https://late.example/1".to_owned()))));
    w.fake.fail_metrics([transient()]);
    w.clock.advance(TimeDelta::hours(5));
    look(&w).await;
    assert_eq!((w.fake.count("find_id"), w.number(IDS).await), (2, 0));
    w.clock.advance(TimeDelta::minutes(15));
    look(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_figures"), w.number(IDS).await), (3, 1, 1));
    assert_eq!(snapshots(&w, post).await.last().unwrap().figures, likes(3));
    // From now on it is a post like any other.
    w.clock.advance(TimeDelta::days(1));
    look(&w).await;
    assert_eq!((w.fake.count("find_id"), w.fake.count("post_figures")), (3, 2));
    // A post that never gets an id is not asked for after a week.
    w.sql("UPDATE post_targets SET external_id = NULL").await;
    w.fake.assign_ids_later(None);
    w.clock.advance(TimeDelta::days(7));
    look(&w).await;
    assert_eq!(w.fake.count("find_id"), 3);
    assert_eq!(w.number("SELECT count(*) FROM target_analytics WHERE next_at IS NOT NULL").await, 0);
}

async fn accounts_are_looked_at_once_a_day_in_their_zone(w: TestWorker) {
    w.sql("UPDATE brands SET timezone = 'Asia/Kathmandu'").await;
    w.fake.enable_metrics();
    look(&w).await;
    look(&w).await;
    assert_eq!(w.fake.count("account_figures"), 1);
    // Midnight in Kathmandu is 18:15 UTC; accounts are spread over the hour after it.
    let next = figures_at(&w).await;
    let midnight = next - TimeDelta::seconds(w.account.id);
    assert_eq!(midnight.format("%H:%M:%S").to_string(), "18:15:00");
    w.clock.advance(next - w.now());
    look(&w).await;
    assert_eq!(w.fake.count("account_figures"), 2);
    let seen = analytics::of_accounts(&mut w.conn().await, &[w.account.id], (DateTime::UNIX_EPOCH, w.later(1))).await;
    let expected = AccountMetrics { followers: Some(7), ..AccountMetrics::default() };
    assert!(seen.unwrap().iter().all(|snapshot| snapshot.figures == expected));
}

async fn a_limit_puts_the_rest_off(w: TestWorker) {
    let post = published(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    let until = w.later(1_800);
    w.fake.fail_metrics([rate_limited(until)]);
    look(&w).await;
    assert_eq!((snapshots(&w, post).await.len(), figures_at(&w).await), (0, until));
    w.clock.advance(TimeDelta::minutes(30));
    w.fake.set_post_metrics([Some(likes(1))]);
    look(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1, "put off, not dropped");
}

async fn a_passing_failure_is_tried_again(w: TestWorker) {
    let post = published(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([transient(), CallError::network("away")]);
    for _ in 0..2 {
        look(&w).await;
        assert_eq!(figures_at(&w).await, w.now() + TimeDelta::minutes(15));
        w.clock.advance(TimeDelta::minutes(15));
    }
    w.fake.set_post_metrics([Some(likes(1))]);
    look(&w).await;
    assert_eq!(snapshots(&w, post).await.len(), 1);
    assert_eq!(w.number("SELECT count(*) FROM jobs WHERE state = 'dead'").await, 0);
}

async fn an_expired_token_is_renewed_once(w: TestWorker) {
    let post = published(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([auth_expired()]);
    let renewed = RefreshedTokens { secrets: Some(secrets("new")), token_expires_at: None, refresh_expires_at: None };
    w.fake.script_refreshes([Ok(renewed)]);
    w.fake.set_post_metrics([Some(likes(1))]);
    look(&w).await;
    assert_eq!((snapshots(&w, post).await.len(), w.fake.count("refresh")), (1, 1));
    assert_eq!(w.account_status().await, AccountStatus::Active);
    // Refused again with the new token.
    w.clock.advance(TimeDelta::hours(5));
    w.fake.fail_metrics([auth_expired(), auth_expired()]);
    look(&w).await;
    assert_eq!((w.account_status().await, w.fake.count("refresh")), (AccountStatus::Expired, 2));
}

async fn a_refusal_expires_the_account(w: TestWorker) {
    published(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.fail_metrics([reauth()]);
    look(&w).await;
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    let asked = w.fake.count("post_figures");
    w.clock.advance(TimeDelta::days(2));
    look(&w).await;
    assert_eq!(w.fake.count("post_figures"), asked, "an expired account is not asked for");
}

async fn a_post_that_is_gone_is_looked_at_no_more(w: TestWorker) {
    let post = published(&w).await;
    w.clock.advance(TimeDelta::hours(1));
    w.fake.set_post_metrics([None]);
    look(&w).await;
    assert!(snapshots(&w, post).await.is_empty());
    assert!(w.value::<bool>("SELECT is_gone FROM target_analytics").await);
    let asked = w.fake.count("post_figures");
    w.clock.advance(TimeDelta::days(30));
    look(&w).await;
    assert_eq!(w.fake.count("post_figures"), asked);
}

async fn a_published_post_is_found_by_several_schedulers_once(w: TestWorker) {
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
    assert_eq!(w.number("SELECT count(*) FROM target_analytics").await, 3);
    let enqueued = format!("SELECT count(*) FROM jobs WHERE kind = '{}'", JobKind::CollectAnalytics);
    assert_eq!(w.number(enqueued).await, 1);
}

async fn figures_that_are_switched_off_are_not_read(s: TestStore) {
    let off = PlatformConfig { analytics: Some(false), ..PlatformConfig::default() };
    let mut w = TestWorker::with_settings(s, Platform::Sandbox, off).await;
    published(&w).await;
    w.clock.advance(TimeDelta::hours(3));
    look(&w).await;
    let enqueued = format!("SELECT count(*) FROM jobs WHERE kind = '{}'", JobKind::CollectAnalytics);
    assert_eq!(w.number(&enqueued).await, 0);
    assert!(figures_at(&w).await > w.now(), "it is late by nothing");
    // A scheduler that was started before the switch enqueues one job, and the next hours none.
    w.scheduler.figures = vec![Platform::Sandbox];
    w.clock.advance(TimeDelta::hours(3));
    look(&w).await;
    assert_eq!((w.number(&enqueued).await, w.fake.count("account_figures")), (1, 0));
    assert_eq!(figures_at(&w).await, w.now() + TimeDelta::hours(2));
}

async fn a_figure_that_is_given_no_more_stays_as_it_was_last_seen(w: TestWorker) {
    let post = published(&w).await;
    let clicks = PostMetrics { clicks: Some(3), ..likes(1) };
    for (hours, figures) in [(1, clicks), (5, likes(0))] {
        w.fake.set_post_metrics([Some(figures)]);
        w.clock.advance(TimeDelta::hours(hours));
        look(&w).await;
        assert_eq!(snapshots(&w, post).await.last().unwrap().figures, figures);
    }
    let newest: (i64, i64) =
        (w.number("SELECT likes FROM target_analytics").await, w.number("SELECT clicks FROM target_analytics").await);
    assert_eq!(newest, (0, 3));
}

async fn a_refused_metric_is_set_aside_for_a_day(w: TestWorker) {
    published(&w).await;
    w.fake.reject_metric("views");
    let aside = async || analytics::set_aside(&mut w.conn().await, w.account.id, w.now()).await.unwrap();
    for (hours, refused) in [(1, 1), (5, 1), (18, 1), (48, 2)] {
        w.clock.advance(TimeDelta::hours(hours));
        look(&w).await;
        assert_eq!(w.fake.count("refused_metric"), refused, "after {hours} hours");
        assert_eq!(aside().await.into_iter().collect::<Vec<_>>(), ["views"]);
    }
    w.clock.advance(TimeDelta::hours(24));
    assert!(aside().await.is_empty(), "its time is over");
}
