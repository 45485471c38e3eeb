//! The scheduler: what is due, what nobody heard, what is over.

use chrono::TimeDelta;
use crier_common::domain::job::{Kind, State};
use crier_common::domain::post::TargetStatus;
use crier_common::store::{idempotency, posts};
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::{clean_up, dispatch, measure, rescue};

use crate::support::jobs::{LEASE_OVER, TestWorker, worker_on_both};
use crate::support::store::at_once;

worker_on_both!(
    a_scheduled_post_goes_out_at_its_time,
    missed_ticks_are_made_up_for,
    schedulers_at_once_ring_for_a_job_once,
    the_next_due_job_is_looked_for_in_time,
    no_more_is_made_ready_than_the_bell_takes,
    a_kind_that_nobody_hears_holds_up_no_other,
    a_bell_that_is_away_holds_nothing_up,
    a_full_bell_is_not_looked_at_all_the_time,
    one_job_that_cannot_be_rescued_holds_up_no_other,
    a_crash_on_the_last_try_is_told,
    what_is_over_is_cleared_up_and_nothing_else,
    clearing_up_goes_on_while_there_is_more,
    counting_reads_alone,
);

async fn a_scheduled_post_goes_out_at_its_time(w: TestWorker) {
    let at = w.later(3_600);
    let (_, target) = w.schedule(at).await;
    w.clock.advance(TimeDelta::seconds(3_600) - TimeDelta::microseconds(1));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Pending);
    w.clock.advance(TimeDelta::microseconds(1));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.published_at, Some(at));
}

async fn missed_ticks_are_made_up_for(w: TestWorker) {
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

fn another(w: &TestWorker, store: crier_common::store::Store) -> Scheduler {
    Scheduler { store, transport: w.bell.clone() }
}

async fn schedulers_at_once_ring_for_a_job_once(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..300 {
        ids.push(w.job_at(Kind::Noop, subject, None, w.later(10)).await);
    }
    w.advance(10);
    let schedulers: Vec<_> = (0..4).map(|_| another(&w, w.store.clone())).collect();
    at_once(16, |i| {
        let scheduler = schedulers[i % 4].clone();
        async move { scheduler.tick().await.unwrap() }
    })
    .await;
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, ids);
}

async fn the_next_due_job_is_looked_for_in_time(w: TestWorker) {
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None, "nothing is to come");
    w.job_at(Kind::Noop, 1, None, w.later(60)).await;
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None, "a tick comes before it");
    w.clock.advance(TimeDelta::milliseconds(59_900));
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), Some(std::time::Duration::from_millis(100)));
}

fn room(of: impl Fn(Kind) -> usize) -> Option<Vec<(Kind, usize)>> {
    Some(Kind::ALL.iter().map(|kind| (*kind, of(*kind))).collect())
}

async fn no_more_is_made_ready_than_the_bell_takes(w: TestWorker) {
    for subject in 0..50 {
        w.job_at(Kind::Noop, subject, None, w.later(1)).await;
    }
    w.advance(1);
    w.bell.set(room(|_| 20));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 20);
    assert_eq!(w.number("SELECT count(*) FROM jobs WHERE state = 'scheduled'").await, 30);
    w.bell.set(room(|_| 0));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 0);
    w.advance(10);
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 0, "nor is anything rung for again");
    w.bell.set(room(|_| 1_000));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 30);
    w.bell.set(room(|_| 7));
    w.advance(10);
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 7);
}

async fn a_kind_that_nobody_hears_holds_up_no_other(w: TestWorker) {
    let lost = w.job_at(Kind::DeliverWebhook, 1, None, w.later(1)).await;
    let unheard = w.job(Kind::DeliverWebhook, 2, None).await;
    let heard = w.job(Kind::Noop, 1, None).await;
    let due = w.job_at(Kind::Noop, 2, None, w.later(2)).await;
    w.s.bell.take();
    w.advance(10);
    w.bell.set(room(|kind| if kind == Kind::DeliverWebhook { 0 } else { 100 }));
    w.scheduler.tick().await.unwrap();
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, [heard, due]);
    assert_eq!((w.state(lost).await, w.state(unheard).await), (State::Scheduled, State::Ready));
    w.bell.set(room(|_| 100));
    w.scheduler.tick().await.unwrap();
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, [lost, unheard]);
}

async fn a_bell_that_is_away_holds_nothing_up(w: TestWorker) {
    let id = w.job_at(Kind::Noop, 1, None, w.later(1)).await;
    w.advance(1);
    w.bell.set(None);
    w.scheduler.tick().await.unwrap();
    assert_eq!((w.state(id).await, w.s.bell.take()), (State::Ready, vec![id]));
    w.advance(10);
    w.scheduler.tick().await.unwrap();
    assert!(w.s.bell.take().is_empty(), "it is rung for again once the bell is back");
    w.bell.set(room(|_| 10));
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.bell.take(), [id]);
}

async fn a_full_bell_is_not_looked_at_all_the_time(w: TestWorker) {
    w.job_at(Kind::Noop, 1, None, w.later(1)).await;
    w.advance(2);
    w.bell.set(room(|_| 0));
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None);
}

async fn one_job_that_cannot_be_rescued_holds_up_no_other(w: TestWorker) {
    let (_, stuck) = w.publish_one().await;
    let (_, fine) = w.publish_one().await;
    let ids = w.s.bell.take();
    w.claim(&ids, "gone").await;
    w.sql(format!("UPDATE jobs SET crashes = 2 WHERE id = {}", ids[0])).await;
    // Its subject cannot be told: what is stored of it cannot be read.
    w.sql(format!("UPDATE post_targets SET marker = '[]' WHERE id = {stuck}")).await;
    w.advance(LEASE_OVER);
    rescue::run(&w.scheduler).await.unwrap_err();
    assert_eq!((w.state(ids[0]).await, w.state(ids[1]).await), (State::Running, State::Ready));
    w.engine.run(ids[1]).await;
    assert_eq!(w.target(fine).await.status, TargetStatus::Published);
    w.sql(format!("UPDATE post_targets SET marker = NULL WHERE id = {stuck}")).await;
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!((w.state(ids[0]).await, w.target(stuck).await.status), (State::Dead, TargetStatus::Failed));
}

async fn a_crash_on_the_last_try_is_told(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (_, target) = w.publish_one().await;
    w.sql("UPDATE jobs SET attempt = 7").await;
    w.claim(&w.s.bell.take(), "gone").await;
    w.advance(LEASE_OVER);
    w.scheduler.tick().await.unwrap();
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.last_error.as_deref()), (State::Dead, Some("attempts")));
    assert_eq!(w.target(target).await.error.unwrap().code, "internal");
    assert_eq!(w.events().await, ["post.failed"]);
}

async fn what_is_over_is_cleared_up_and_nothing_else(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (kept, kept_target) = w.publish_one().await;
    let (deleted, _) = w.publish_one().await;
    let in_flight = w.publish_one().await;
    let ids = w.s.bell.take();
    w.engine.run(ids[0]).await;
    w.engine.run(ids[1]).await;
    w.claim(&[ids[2]], "busy").await;
    w.write(async |tx| posts::delete(tx, deleted).await).await;
    w.write(async |tx| posts::delete(tx, in_flight.0).await).await;
    let dead = w.job(Kind::Noop, 1, None).await;
    w.sql(format!("UPDATE jobs SET state = 'dead', finished_at = created_at WHERE id = {dead}")).await;
    let key = w.key(w.world.user).await;
    let slot = idempotency::Slot { api_key_id: key, key: "k".to_owned(), fingerprint: vec![1] };
    w.write(async |tx| idempotency::hold(tx, &slot).await).await;
    let count = async |sql: &str| w.number(format!("SELECT count(*) FROM {sql}")).await;

    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("posts").await, 2, "the deleted one goes, the one in flight stays");
    assert_eq!((count("jobs").await, count("idempotency_keys").await), (6, 1));
    w.clock.advance(TimeDelta::hours(24));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!((count("jobs").await, count("idempotency_keys").await), (6, 0));
    w.clock.advance(TimeDelta::days(6));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("jobs WHERE state = 'done'").await, 0);
    assert_eq!((count("jobs").await, w.state(dead).await), (4, State::Dead));
    w.clock.advance(TimeDelta::days(23));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("jobs").await, 3, "what has not ended stays for ever");
    assert_eq!(w.target(kept_target).await.status, TargetStatus::Published);
    assert_eq!(w.attempts(kept).await.len(), 1, "what tells a user what happened stays");
    w.clock.advance(TimeDelta::days(1_000));
    clean_up::run(&w.scheduler).await.unwrap();
    assert_eq!(count("events").await, 2, "and so do events and their deliveries");
}

/// A worker can end thousands of jobs a second: what is over is cleared up as fast, not some at each tick.
async fn clearing_up_goes_on_while_there_is_more(w: TestWorker) {
    let at = w.now().to_rfc3339();
    let numbers = match w.s.is_postgres() {
        true => "SELECT n FROM generate_series(1, 12000) n",
        false => "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 12000) SELECT n FROM c",
    };
    w.sql(format!(
        "INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at, finished_at) \
         SELECT 'noop', n, 'done', '{at}', 5, '{at}', '{at}', '{at}' FROM ({numbers}) numbers"
    ))
    .await;
    let kept = w.job(Kind::Noop, 1, None).await;
    w.clock.advance(TimeDelta::days(8));
    while let Some(wait) = clean_up::run(&w.scheduler).await.unwrap() {
        assert_eq!(wait, std::time::Duration::ZERO);
    }
    assert_eq!((w.number("SELECT count(*) FROM jobs").await, w.state(kept).await), (1, State::Ready));
}

async fn counting_reads_alone(w: TestWorker) {
    let id = w.job(Kind::Noop, 1, None).await;
    measure::run(&w.scheduler).await.unwrap();
    assert_eq!(w.state(id).await, State::Ready);
}
