//! The lateness of a post: time during which Crier itself held it back does not count.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState, Lane, NewJob, Outcome};
use crier_domain::post::TargetStatus;
use crier_store::jobs::{self, holds};

use crate::support::fake_platform::{PublishStep, rate_limited};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    waiting_for_a_long_rate_limit_is_never_missed,
    a_pause_counts_to_its_end_during_downtime,
    a_post_late_after_a_pause_is_missed,
    a_post_late_before_a_pause_is_missed,
    waiting_in_a_full_lane_does_not_count_as_late,
    downtime_counts_as_late_despite_a_full_lane,
    overlapping_holds_are_counted_once,
    old_lane_holds_are_deleted,
);

const HOUR: i64 = 3_600;

async fn missed(w: &TestWorker, target: i64) -> bool {
    w.target(target).await.error.is_some_and(|error| error.category == Category::Missed)
}

/// Creates a post whose platform requests a pause of `hours` hours, and one that waits behind it.
async fn publish_behind_rate_limit(w: &TestWorker, hours: i64) -> [i64; 2] {
    w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(hours * HOUR)))]);
    let first = w.publish_one().await.1;
    let second = w.publish_one().await.1;
    w.run_jobs().await;
    assert_eq!((w.fake.count("publish"), w.job_of(second).await.waiting), (1, true));
    [first, second]
}

async fn waiting_for_a_long_rate_limit_is_never_missed(w: TestWorker) {
    let mut targets = publish_behind_rate_limit(&w, 30).await.to_vec();
    // Another post becomes due while they wait, and a second pause begins before all of them are published.
    w.advance(20 * HOUR);
    targets.push(w.publish_one().await.1);
    w.advance(10 * HOUR);
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(rate_limited(w.later(48 * HOUR)))]);
    w.run_until_idle().await;
    for target in targets {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert!(w.now() - crate::support::store::start_time() >= TimeDelta::hours(78));
}

async fn a_pause_counts_to_its_end_during_downtime(w: TestWorker) {
    let [_, second] = publish_behind_rate_limit(&w, 30).await;
    w.advance(53 * HOUR);
    w.run_until_idle().await;
    assert_eq!(w.target(second).await.status, TargetStatus::Published);
}

async fn a_post_late_after_a_pause_is_missed(w: TestWorker) {
    let [first, second] = publish_behind_rate_limit(&w, 30).await;
    w.advance(54 * HOUR + 1);
    w.run_until_idle().await;
    assert!(missed(&w, first).await && missed(&w, second).await);
    assert_eq!(w.fake.count("publish"), 1);
}

async fn a_post_late_before_a_pause_is_missed(w: TestWorker) {
    let late = w.publish_one().await.1;
    w.s.notifier.take();
    // Nothing runs for a day; then another post of the account is rate limited.
    w.advance(24 * HOUR + 1);
    w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(30 * HOUR)))]);
    w.publish_one().await;
    w.engine.run(w.notified_job()).await;
    w.run_until_idle().await;
    assert!(missed(&w, late).await);
}

/// Creates jobs that fill the account's lane, and a post behind them. Returns the jobs and the post's target.
async fn publish_behind_full_lane(w: &TestWorker) -> (Vec<i64>, i64) {
    let mut queue = Vec::new();
    for subject in 0..130 {
        let job =
            NewJob::new(JobKind::PublishTarget, 1_000_000 + subject, w.clock.now()).lane(Lane::Account(w.account.id));
        queue.extend(w.write(async |tx| jobs::enqueue(tx, &job).await).await);
    }
    w.advance(1);
    let last = w.publish_one().await.1;
    w.s.notifier.take();
    (queue, last)
}

async fn waiting_in_a_full_lane_does_not_count_as_late(w: TestWorker) {
    let (queue, last) = publish_behind_full_lane(&w).await;
    let mut ready = queue;
    ready.push(w.job_of(last).await.id);
    let mut running = w.claim(&ready, "w").await;
    // One job finishes every 14 minutes and wakes the next.
    while w.now() - crate::support::store::start_time() < TimeDelta::hours(26) {
        w.advance(14 * 60);
        let job = running.remove(0);
        assert!(w.settle(&job, Outcome::Done).await);
        running.extend(w.claim(&w.s.notifier.take(), "w").await);
        assert_eq!(running.len(), 4);
    }
    // Then the other jobs are canceled, and the post runs.
    for job in running {
        assert!(w.settle(&job, Outcome::Done).await);
    }
    w.set_job_state("jobs WHERE subject_id >= 1000000", JobState::Cancelled).await;
    w.run_until_idle().await;
    assert_eq!(w.target(last).await.status, TargetStatus::Published);
}

async fn downtime_counts_as_late_despite_a_full_lane(w: TestWorker) {
    let (queue, last) = publish_behind_full_lane(&w).await;
    let mut ready = queue;
    ready.push(w.job_of(last).await.id);
    let running = w.claim(&ready, "gone").await;
    assert_eq!((running.len(), w.job_of(last).await.waiting), (4, true));
    // The workers die, and others start a day later.
    w.advance(24 * HOUR + 1);
    w.set_job_state("jobs WHERE subject_id >= 1000000 AND state = 'ready'", JobState::Cancelled).await;
    w.run_until_idle().await;
    assert!(missed(&w, last).await);
    assert_eq!((w.job_of(last).await.state, w.fake.count("publish")), (JobState::Done, 0));
}

/// Stores that a lane was held between these times, in hours from now.
async fn hold(w: &TestWorker, lane: &str, (since, until): (i64, i64)) {
    let at = |hours: i64| w.later(hours * HOUR).to_rfc3339();
    w.sql(format!("INSERT INTO lane_holds VALUES ('{lane}', '{}', '{}')", at(since), at(until))).await;
}

async fn overlapping_holds_are_counted_once(w: TestWorker) {
    w.leaves_jobs();
    let id = w.enqueue_job(JobKind::PublishTarget, 1, Some("account:1")).await;
    let job = w.claim(&[id], "w").await.remove(0);
    for hours in [(-9, -5), (-2, 3), (1, 4), (2, 3), (10, 12), (19, 30)] {
        hold(&w, "account:1", hours).await;
    }
    hold(&w, "account:2", (4, 10)).await;
    for (hours, expected) in [(0, 0), (2, 0), (4, 0), (7, 3), (11, 6), (12, 6), (19, 13), (25, 13), (31, 14)] {
        let late = w.write(async |tx| {
            tx.now += TimeDelta::hours(hours);
            holds::lateness(tx, &job).await
        });
        assert_eq!(late.await, TimeDelta::hours(expected), "after {hours} hours");
    }
}

async fn old_lane_holds_are_deleted(w: TestWorker) {
    for days in [31, 29] {
        hold(&w, &format!("account:{days}"), (-40 * 24, -days * 24)).await;
    }
    crier_scheduler::tasks::clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(w.value::<String>("SELECT lane FROM lane_holds").await, "account:29");
}
