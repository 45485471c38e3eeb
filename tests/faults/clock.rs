//! A clock that is set by an hour in either direction, one that is 40 days ahead for seconds or for longer, and a
//! scheduler that was down. Invariant: what is due by the clock is published once; nothing is published early; a running
//! job does not take effect twice; nothing is lost.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_domain::job::{JobKind, JobState, NoopNotifier};
use crier_domain::post::TargetStatus;
use crier_scheduler::tasks::misdated;
use crier_store::jobs::{dispatch, engine};
use crier_store::{Store, accounts, server};
use crier_worker::heartbeat;
use serde_json::json;

use crate::support::app::{Tenant, on_both_apps};
use crate::support::fake_platform::{Gate, PublishStep, rate_limited, transient};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};
use crate::support::scripted::start;
use crate::support::store::{TestStore, cipher, on_both};

worker_on_both!(
    missed_ticks_are_caught_up,
    posts_are_published_at_their_wall_clock_time,
    a_run_during_a_forward_clock_jump_completes_once,
    a_run_during_a_backward_clock_jump_completes_once,
    a_dead_worker_s_job_is_rescued_after_clock_jumps,
    lane_pauses_end_by_the_clock,
    a_jump_ahead_that_lasts_seconds_has_no_effect,
    times_of_a_clock_that_was_ahead_are_pulled_back,
    a_ready_job_of_a_clock_that_was_ahead_is_notified_again,
    scheduled_posts_are_not_pulled_back,
);
on_both!(
    a_step_that_the_database_does_not_share_is_not_used,
    a_process_that_starts_with_a_wrong_clock_uses_the_database_s_time,
);
on_both_apps!("pro" => idempotent_responses_survive_clock_jumps);

const HOUR: TimeDelta = TimeDelta::hours(1);
const FORTY_DAYS: TimeDelta = TimeDelta::days(40);

/// Sets the clock ahead, and lets the minute pass after which its time is used.
async fn jump_ahead(w: &TestWorker, by: TimeDelta) {
    let before = w.now();
    w.clock.set(by);
    assert_eq!(w.now(), before, "not yet");
    w.advance(60);
    assert_eq!(w.now(), before + by + TimeDelta::minutes(1));
}

async fn missed_ticks_are_caught_up(w: TestWorker) {
    let mut targets = Vec::new();
    for minutes in 1..=20 {
        targets.push(w.schedule(w.later(minutes * 60)).await.1);
    }
    // Nothing ran for an hour.
    w.advance(3_600);
    w.run_jobs().await;
    for target in targets {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    let texts = w.fake.calls();
    assert_eq!(texts.len(), 20, "each once");
}

/// Invariant: each post is called once, and not before the clock has passed its time.
async fn posts_are_published_at_their_wall_clock_time(w: TestWorker) {
    let mut posts: Vec<(DateTime<Utc>, i64)> = Vec::new();
    for minutes in [30, 50, 70, 90, 150] {
        let at = w.later(minutes * 60);
        posts.push((at, w.schedule(at).await.1));
    }
    let due = async || {
        let mut out = 0;
        for (at, target) in &posts {
            let published = w.target(*target).await.status == TargetStatus::Published;
            assert!(!published || w.target(*target).await.published_at.unwrap() >= *at, "early");
            out += usize::from(published);
        }
        assert_eq!(w.fake.posts().len(), out, "once each");
        out
    };
    // Forward past two of them, back before all of them, and forward again.
    jump_ahead(&w, HOUR).await;
    w.run_jobs().await;
    assert_eq!(due().await, 2);
    w.clock.set(-HOUR);
    w.run_jobs().await;
    assert_eq!(due().await, 2);
    w.advance(75 * 60);
    w.run_jobs().await;
    assert_eq!(due().await, 3);
    w.clock.set(-HOUR);
    w.run_until_idle().await;
    assert_eq!(due().await, 5);
    assert_eq!(w.fake.count("publish"), 5);
}

/// A post in the middle of its call, whose worker is alive.
struct InCall {
    w: TestWorker,
    gate: std::sync::Arc<Gate>,
    target: i64,
    run: tokio::task::JoinHandle<bool>,
}

async fn in_call(w: TestWorker) -> InCall {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (_, target) = w.publish_one().await;
    w.scheduler.tick().await.unwrap();
    let run = start(&w.engine, w.notified_job());
    gate.wait_until_entered().await;
    InCall { w, gate, target, run }
}

impl InCall {
    /// Simulates time: the scheduler ticks each second, a heartbeat comes every eight. Another process runs the
    /// notified jobs.
    async fn lives_on(&self, seconds: i64) {
        let other = self.w.engine_for(self.w.open_second_store().await, JobKind::ALL);
        for second in 1..=seconds {
            self.w.scheduler.tick().await.unwrap();
            for id in self.w.s.notifier.take() {
                other.run(id).await;
            }
            self.w.advance(1);
            if second % 8 == 0 {
                misdated::run(&self.w.scheduler).await.unwrap();
                heartbeat::renew_leases(&self.w.engine, &self.w.store).await.unwrap();
            }
        }
    }

    async fn ends_once(self) {
        let Self { w, gate, target, run } = self;
        gate.let_through();
        assert!(run.await.unwrap());
        let job = w.job_of(target).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0));
        assert_eq!((w.target(target).await.status, w.target(target).await.attempts), (TargetStatus::Published, 1));
        assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (1, 1));
    }
}

/// All leases seem expired at the same time, but their holders are alive.
async fn a_run_during_a_forward_clock_jump_completes_once(w: TestWorker) {
    let running = in_call(w).await;
    running.w.clock.set(HOUR);
    running.lives_on(100).await;
    running.ends_once().await;
}

async fn a_run_during_a_backward_clock_jump_completes_once(w: TestWorker) {
    let running = in_call(w).await;
    running.w.clock.set(-HOUR);
    running.lives_on(100).await;
    running.w.clock.set(HOUR);
    running.lives_on(100).await;
    running.ends_once().await;
}

/// Invariant: another worker runs the job of a dead one at most a lease after the clock was set, in either direction.
async fn a_dead_worker_s_job_is_rescued_after_clock_jumps(w: TestWorker) {
    for step in [HOUR, -HOUR] {
        let (_, target) = w.publish_one().await;
        w.scheduler.tick().await.unwrap();
        w.claim(&[w.notified_job()], "gone").await;
        if step > TimeDelta::zero() {
            jump_ahead(&w, step).await;
        } else {
            w.clock.set(step);
        }
        w.scheduler.tick().await.unwrap();
        misdated::run(&w.scheduler).await.unwrap();
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
        assert_eq!((w.target(target).await.status, w.job_of(target).await.crashes), (TargetStatus::Published, 1));
    }
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (2, 2));
}

/// Invariant: after a retry pause or a rate limit the platform is called once, when the clock is past the time, and not
/// before.
async fn lane_pauses_end_by_the_clock(w: TestWorker) {
    let until = w.later(1_800);
    w.fake.script_publishes([PublishStep::Reject(rate_limited(until)), PublishStep::Reject(transient())]);
    let (_, limited) = w.publish_one().await;
    w.run_jobs().await;
    let other = w.another_account("b").await.id;
    let (_, retried) = w.publish(&[other]).await;
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 2);
    w.clock.set(-HOUR);
    // A minute would be enough for the retry, but the clock went back: neither post is due, nor is the paused lane's
    // other post.
    w.advance(60);
    let (_, behind) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 2, "nothing goes out early");
    jump_ahead(&w, HOUR).await;
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 3, "the retry");
    jump_ahead(&w, HOUR).await;
    w.run_jobs().await;
    for target in [limited, retried[0], behind] {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (5, 3));
}

/// Invariant: nothing becomes due, no lease is longer than others, and no job is taken from a live worker.
async fn a_jump_ahead_that_lasts_seconds_has_no_effect(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone()), PublishStep::Reject(transient())]);
    let (_, running) = w.publish_one().await;
    w.scheduler.tick().await.unwrap();
    let run = start(&w.engine, w.notified_job());
    gate.wait_until_entered().await;
    let other = w.another_account("b").await.id;
    let (soon, later) = (w.later(30), w.later(3_600));
    let (_, next) = w.schedule(soon).await;
    let (_, last) = w.schedule(later).await;
    w.clock.set(FORTY_DAYS);
    // A job that is claimed, and one whose attempt ends, while the clock is wrong.
    let (_, retried) = w.publish(&[other]).await;
    w.run_jobs().await;
    w.advance(2);
    heartbeat::renew_leases(&w.engine, &w.store).await.unwrap();
    w.run_jobs().await;
    let lease = w.job_of(running).await.lease_until.unwrap();
    assert!(lease <= w.later(30), "{lease}");
    let retry = w.job_of(retried[0]).await;
    assert!(retry.state == JobState::Scheduled && retry.run_at < w.later(3_600), "{}", retry.run_at);
    w.advance(2);
    w.clock.set(-FORTY_DAYS);
    gate.let_through();
    assert!(run.await.unwrap());
    assert_eq!(w.fake.count("publish"), 2, "nothing was due");
    w.run_until_idle().await;
    for target in [running, retried[0], next, last] {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!(w.target(next).await.published_at.unwrap().timestamp(), soon.timestamp());
    assert_eq!(w.target(last).await.published_at.unwrap().timestamp(), later.timestamp());
    assert_eq!(w.job_of(running).await.crashes, 0);
}

/// The clock was wrong for longer than a minute, or at the start of the process.
async fn times_of_a_clock_that_was_ahead_are_pulled_back(w: TestWorker) {
    w.clock.set(FORTY_DAYS);
    w.clock.restart();
    let until = w.later(1_800);
    w.fake.script_publishes([PublishStep::Reject(rate_limited(until)), PublishStep::Reject(transient())]);
    let (_, limited) = w.publish_one().await;
    w.run_jobs().await;
    let other = w.another_account("b").await.id;
    let (_, retried) = w.publish(&[other]).await;
    w.run_jobs().await;
    let third = w.another_account("c").await.id;
    let (_, left) = w.publish(&[third]).await;
    w.claim(&[w.notified_job()], "gone").await;
    w.sql(format!("UPDATE social_accounts SET refreshing_until = '{}'", w.later(60).to_rfc3339())).await;
    assert_eq!(w.fake.count("publish"), 2);
    w.clock.set(-FORTY_DAYS);
    w.clock.restart();
    misdated::run(&w.scheduler).await.unwrap();
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    for target in [limited, retried[0], left[0]] {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (5, 3));
    let refreshed = w.write(async |tx| accounts::begin_refresh(tx, third, TimeDelta::minutes(1)).await).await;
    assert!(refreshed.is_some(), "its lease ends in 40 days");
}

async fn a_ready_job_of_a_clock_that_was_ahead_is_notified_again(w: TestWorker) {
    w.clock.set(FORTY_DAYS);
    w.clock.restart();
    let (_, target) = w.publish_one().await;
    // The process ends before the notification.
    w.s.notifier.take();
    w.clock.set(-FORTY_DAYS);
    w.clock.restart();
    misdated::run(&w.scheduler).await.unwrap();
    w.advance(11);
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn scheduled_posts_are_not_pulled_back(w: TestWorker) {
    let at = w.now() + FORTY_DAYS;
    let (_, target) = w.schedule(at).await;
    // One was moved when its job had started.
    let (post, moved) = w.schedule(w.now()).await;
    w.scheduler.tick().await.unwrap();
    let id = w.notified_job();
    w.change_post(post, |p| p.scheduled_at = Some(at)).await;
    w.engine.run(id).await;
    misdated::run(&w.scheduler).await.unwrap();
    for target in [target, moved] {
        assert_eq!(w.job_of(target).await.run_at, at);
    }
    w.run_until_idle().await;
    for target in [target, moved] {
        assert_eq!(w.target(target).await.published_at.map(|at| at.timestamp()), Some(at.timestamp()));
    }
}

/// The time of Postgres; on SQLite, whose processes share one clock, that of the test.
async fn database_time(s: &TestStore) -> DateTime<Utc> {
    server::now(&mut s.read().await.unwrap()).await.unwrap().unwrap_or_else(|| s.now())
}

/// A process on a machine with its own clock.
fn process_with(s: &TestStore, clock: &Clock) -> Store {
    Store::new(s.db().clone(), clock.clone(), cipher(), Arc::new(NoopNotifier))
}

/// On SQLite, a step back is used immediately, and a jump ahead after a minute.
async fn a_step_that_the_database_does_not_share_is_not_used(s: TestStore) {
    for step in [FORTY_DAYS, TimeDelta::seconds(25), TimeDelta::seconds(-25), -FORTY_DAYS] {
        let clock = Clock::manual(database_time(&s).await);
        let (store, before) = (process_with(&s, &clock), clock.now());
        store.check_clock().await.unwrap();
        clock.set(step);
        clock.advance(TimeDelta::minutes(2));
        clock.now();
        clock.advance(TimeDelta::minutes(2));
        let without = before + TimeDelta::minutes(4);
        let expected = if s.is_postgres() { without } else { without + step };
        // The database's clock is read only to a part of a second.
        assert!((clock.now() - expected).abs() < TimeDelta::seconds(5), "{step}: {} {expected}", clock.now());
    }
}

/// A process that starts while its clock is wrong uses Postgres' time, and its own on SQLite.
async fn a_process_that_starts_with_a_wrong_clock_uses_the_database_s_time(s: TestStore) {
    for ahead in [FORTY_DAYS, TimeDelta::seconds(25), TimeDelta::seconds(-25), -FORTY_DAYS] {
        let right = database_time(&s).await;
        let clock = Clock::manual(right + ahead);
        process_with(&s, &clock).check_clock().await.unwrap();
        let expected = if s.is_postgres() { right } else { right + ahead };
        assert!((clock.now() - expected).abs() < TimeDelta::seconds(10), "{ahead}: {}", clock.now());
    }
}

/// Invariant: a scheduler takes no job from a worker that renews its leases, even if the clocks of their machines
/// differ. Otherwise each job that takes longer than seconds would be taken three times, and then be dead.
#[tokio::test]
async fn a_lease_of_a_machine_whose_clock_differs_is_valid() {
    // All processes on SQLite share one clock.
    let s = TestStore::postgres().await;
    for (subject, seconds) in (1..).zip([-3_600, -25, 25, 3_600]) {
        let right = database_time(&s).await;
        let clocks = [Clock::manual(right + TimeDelta::seconds(seconds)), Clock::manual(right)];
        let [worker, scheduler] = clocks.each_ref().map(|clock| process_with(&s, clock));
        for store in [&worker, &scheduler] {
            store.check_clock().await.unwrap();
        }
        let id = s.enqueue_job(JobKind::Noop, subject, None).await;
        let mut tx = worker.begin_single_async_commit().await.unwrap();
        assert_eq!(engine::claim(&mut tx, &[id], "worker").await.unwrap().len(), 1);
        tx.commit().await.unwrap();
        // The interval of the heartbeats.
        for clock in &clocks {
            clock.advance(TimeDelta::seconds(8));
        }
        let mut tx = scheduler.begin().await.unwrap();
        assert!(dispatch::rescue(&mut tx, 10).await.unwrap().is_empty(), "{seconds} s");
        tx.commit().await.unwrap();
        let lease = s.show(id).await.lease_until.unwrap();
        assert!(lease - right < TimeDelta::seconds(60), "{seconds} s: a dead worker's job would wait until {lease}");
    }
}

/// Invariant: a request that is repeated within a day gets the first response, and is executed once.
async fn idempotent_responses_survive_clock_jumps(t: Tenant<'_>) {
    let body = json!({ "name": "Bakery Two" });
    let key = t.app.fresh_key();
    let send = async || t.request("POST", "/brands").idempotency_key(&key).json(&body).send().await;
    let first = send().await.expect(201);
    for step in [HOUR, -HOUR, -HOUR, HOUR] {
        t.app.clock.set(step);
        t.app.clock.restart();
        let mut again = send().await;
        if again.status == 429 {
            // After a step back a client's rate limit may seem exhausted; a minute restores it.
            t.app.advance(60);
            again = send().await;
        }
        assert_eq!(again.expect(201), first);
        assert!(again.replayed());
    }
    assert_eq!(t.app.count_rows("brands").await, 2);
}
