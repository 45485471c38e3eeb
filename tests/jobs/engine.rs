//! The engine: drain, hand-back, batches, and what goes wrong beside what goes well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use crier_common::domain::job::{Claimed, Kind, LEASE, Outcome, State};
use crier_common::domain::post::TargetStatus;
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Result, StoreError, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::heartbeat;
use crier_worker::jobs::{Ending, Job, Registry};

use crate::support::fake_platform::{Gate, Say};
use crate::support::jobs::{CALL_OVER, LEASE_OVER, TestWorker, worker_on_both};

worker_on_both!(
    what_runs_is_finished_by_a_drain,
    a_claim_under_way_when_the_drain_begins_is_handed_back,
    what_waits_when_the_grace_is_over_is_handed_back,
    a_call_when_the_grace_is_over_is_left_to_its_lease,
    jobs_that_come_together_end_together,
    one_bad_end_spoils_no_other,
    an_end_that_is_refused_for_good_is_left_to_the_rescue,
    an_end_that_panics_stops_nothing,
    a_kind_that_is_not_taken_is_handed_back,
    a_suspect_runs_alone,
    a_suspect_that_is_rung_often_waits_once,
    the_heartbeat_renews_what_runs,
    a_frozen_run_that_ends_leaves_its_successor_held,
);

/// What one job of the scripted kind does, by its subject.
#[derive(Clone)]
enum Act {
    End(Outcome),
    /// Waits at the gate, in a call or not.
    Wait(Arc<Gate>),
    WaitInCall(Arc<Gate>),
    /// At the first gate by its first run, at the second by any other.
    WaitTwice(Arc<Gate>, Arc<Gate>),
    /// Its end fails so often, then is done.
    Refuse(Arc<AtomicUsize>, Refusal),
}

#[derive(Clone, Copy)]
enum Refusal {
    Passing,
    Final,
    Panic,
}

/// A kind that does what the test says; it stands in for the no-op.
struct Scripted(Vec<(i64, Act)>);

#[async_trait]
impl Job for Scripted {
    fn kind(&self) -> Kind {
        Kind::Noop
    }

    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>> {
        let act = self.0.iter().find(|(subject, _)| *subject == run.job.subject_id).map(|(_, act)| act.clone());
        Ok(match act {
            None => Box::new(Outcome::Done),
            Some(Act::End(outcome)) => Box::new(outcome),
            Some(Act::Wait(gate)) => {
                gate.pass().await;
                Box::new(Outcome::Done)
            }
            Some(Act::WaitInCall(gate)) => {
                run.call(gate.pass()).await;
                Box::new(Outcome::Done)
            }
            Some(Act::WaitTwice(first, second)) => {
                let gate = if run.job.attempt == 1 { first } else { second };
                gate.pass().await;
                Box::new(Outcome::Done)
            }
            Some(Act::Refuse(times, how)) => Box::new(Refused(times, how)),
        })
    }
}

struct Refused(Arc<AtomicUsize>, Refusal);

#[async_trait]
impl Ending for Refused {
    async fn write(&self, _tx: &mut Tx, _job: &Claimed) -> Result<Outcome> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (left, self.1) {
            (Err(_), _) => Ok(Outcome::Done),
            (Ok(_), Refusal::Passing) => Err(StoreError::Database(sqlx::Error::PoolTimedOut)),
            (Ok(_), Refusal::Final) => Err(StoreError::Decode("the test refuses this end".into())),
            (Ok(_), Refusal::Panic) => panic!("this end panics, as the test wants"),
        }
    }
}

fn scripted(w: &TestWorker, acts: impl IntoIterator<Item = (i64, Act)>) -> Engine {
    Engine::new(w.store.clone(), Registry::of([Arc::new(Scripted(acts.into_iter().collect())) as Arc<dyn Job>]), 64)
}

async fn noop(w: &TestWorker, subject: i64) -> i64 {
    let id = w.job(Kind::Noop, subject, None).await;
    w.s.bell.take();
    id
}

fn start(engine: &Engine, id: i64) -> tokio::task::JoinHandle<bool> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.run(id).await })
}

async fn what_runs_is_finished_by_a_drain(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::Wait(gate.clone()))]);
    let (first, second) = (noop(&w, 1).await, noop(&w, 2).await);
    let run = start(&engine, first);
    gate.entered().await;
    engine.drain();
    assert!(!engine.run(second).await, "nothing new is claimed");
    gate.let_through();
    engine.idle().await;
    assert!(run.await.unwrap());
    assert_eq!((w.state(first).await, w.state(second).await), (State::Done, State::Ready));
    assert_eq!(w.show(second).await.attempt, 0);
}

async fn a_claim_under_way_when_the_drain_begins_is_handed_back(w: TestWorker) {
    let engine = scripted(&w, []);
    let id = noop(&w, 1).await;
    // The claim waits for the database; the drain must wait for the claim.
    let mut tx = w.begin().await.unwrap();
    if w.is_postgres() {
        crate::support::store::lock_table(&mut tx, "jobs").await;
    }
    let run = start(&engine, id);
    tokio::task::yield_now().await;
    engine.drain();
    tx.rollback().await.unwrap();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt, job.crashes), (State::Ready, 0, 0));
    // Whoever comes next has it at once.
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.bell.take(), [id]);
}

async fn what_waits_when_the_grace_is_over_is_handed_back(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::Wait(gate.clone()))]);
    let id = noop(&w, 1).await;
    let run = start(&engine, id);
    gate.entered().await;
    engine.drain();
    engine.abort();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt, job.crashes, job.lease_until), (State::Ready, 0, 0, None));
    assert!(engine.held().is_empty());
}

async fn a_call_when_the_grace_is_over_is_left_to_its_lease(w: TestWorker) {
    let gate = Gate::new();
    let engine = scripted(&w, [(1, Act::WaitInCall(gate.clone()))]);
    let id = noop(&w, 1).await;
    let run = start(&engine, id);
    gate.entered().await;
    engine.drain();
    engine.abort();
    engine.idle().await;
    run.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt), (State::Running, 1));
    assert_eq!(job.lease_until, Some(w.clock.now() + LEASE));
    w.advance(LEASE_OVER);
    w.scheduler.tick().await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.crashes), (State::Ready, 1));
}

async fn jobs_that_come_together_end_together(w: TestWorker) {
    let engine = scripted(&w, [(7, Act::End(Outcome::Abort("no".into())))]);
    let mut ids = Vec::new();
    for subject in 0..60 {
        ids.push(noop(&w, subject).await);
    }
    let ran = futures::future::join_all(ids.iter().chain(&ids).map(|id| engine.run(*id))).await;
    assert_eq!(ran.iter().filter(|ran| **ran).count(), 60, "each once, however often it was rung");
    for (subject, id) in ids.iter().enumerate() {
        assert_eq!(w.state(*id).await, if subject == 7 { State::Dead } else { State::Done });
    }
}

/// Runs three jobs whose ends meet in one batch; the middle one's fails so often.
async fn three_with_a_bad_one(w: &TestWorker, times: usize, how: Refusal) -> [State; 3] {
    let left = Arc::new(AtomicUsize::new(times));
    let engine = scripted(w, [(2, Act::Refuse(left, how))]);
    let ids = [noop(w, 1).await, noop(w, 2).await, noop(w, 3).await];
    futures::future::join_all(ids.iter().map(|id| engine.run(*id))).await;
    let mut states = [State::Ready; 3];
    for (state, id) in states.iter_mut().zip(ids) {
        *state = w.state(id).await;
    }
    assert!(engine.held().is_empty());
    // The engine still works.
    let next = noop(w, 4).await;
    assert!(engine.run(next).await);
    assert_eq!(w.state(next).await, State::Done);
    states
}

async fn one_bad_end_spoils_no_other(w: TestWorker) {
    // The second time is alone; the database is back for the third.
    assert_eq!(three_with_a_bad_one(&w, 2, Refusal::Passing).await, [State::Done; 3]);
}

async fn an_end_that_is_refused_for_good_is_left_to_the_rescue(w: TestWorker) {
    let states = three_with_a_bad_one(&w, 1_000, Refusal::Final).await;
    assert_eq!(states, [State::Done, State::Running, State::Done]);
    w.advance(LEASE_OVER);
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.number("SELECT count(*) FROM jobs WHERE state = 'ready' AND crashes = 1").await, 1);
}

async fn an_end_that_panics_stops_nothing(w: TestWorker) {
    assert_eq!(three_with_a_bad_one(&w, 2, Refusal::Panic).await, [State::Done; 3]);
}

async fn a_kind_that_is_not_taken_is_handed_back(w: TestWorker) {
    let engine = w.engine_for(w.store.clone(), &[Kind::Noop, Kind::DeliverWebhook]);
    assert_eq!(engine.kinds(), [Kind::DeliverWebhook, Kind::Noop]);
    let (_, target) = w.publish_one().await;
    engine.run(w.rung()).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt), (State::Ready, 0));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_suspect_runs_alone(w: TestWorker) {
    let (first, alone, after) = (Gate::new(), Gate::new(), Gate::new());
    let acts = [(1, Act::Wait(first.clone())), (2, Act::Wait(alone.clone())), (3, Act::Wait(after.clone()))];
    let engine = scripted(&w, acts);
    let ids = [noop(&w, 1).await, noop(&w, 2).await, noop(&w, 3).await];
    w.sql(format!("UPDATE jobs SET crashes = 2 WHERE id = {}", ids[1])).await;
    let mut runs = vec![start(&engine, ids[0])];
    first.entered().await;
    runs.push(start(&engine, ids[1]));
    // It was claimed, found to be a suspect, and given back: a crash of the first would not count against it.
    w.until(async || w.number(format!("SELECT fence FROM jobs WHERE id = {}", ids[1])).await == 1).await;
    w.until(async || w.state(ids[1]).await == State::Ready).await;
    assert_eq!(w.show(ids[1]).await.attempt, 0);
    first.let_through();
    alone.entered().await;
    assert_eq!(engine.held(), [ids[1]]);
    runs.push(start(&engine, ids[2]));
    tokio::task::yield_now().await;
    assert_eq!(w.state(ids[2]).await, State::Ready, "nobody is claimed beside it");
    alone.let_through();
    after.entered().await;
    after.let_through();
    for run in runs {
        assert!(run.await.unwrap());
    }
}

async fn a_suspect_that_is_rung_often_waits_once(w: TestWorker) {
    let (first, alone) = (Gate::new(), Gate::new());
    let engine = scripted(&w, [(1, Act::Wait(first.clone())), (2, Act::Wait(alone.clone()))]);
    let ids = [noop(&w, 1).await, noop(&w, 2).await];
    w.sql(format!("UPDATE jobs SET crashes = 2 WHERE id = {}", ids[1])).await;
    let run = start(&engine, ids[0]);
    first.entered().await;
    let waits = start(&engine, ids[1]);
    w.until(async || w.number(format!("SELECT fence FROM jobs WHERE id = {}", ids[1])).await == 1).await;
    w.until(async || w.state(ids[1]).await == State::Ready).await;
    let again = [start(&engine, ids[1]), start(&engine, ids[1])];
    first.let_through();
    run.await.unwrap();
    alone.entered().await;
    alone.let_through();
    assert!(waits.await.unwrap());
    for again in again {
        assert!(!again.await.unwrap());
    }
    assert_eq!(w.state(ids[1]).await, State::Done);
}

async fn the_heartbeat_renews_what_runs(w: TestWorker) {
    let gate = Gate::new();
    w.fake.says([Say::Wait(gate.clone())]);
    let (_, target) = w.publish_one().await;
    let run = start(&w.engine, w.rung());
    gate.entered().await;
    for _ in 0..5 {
        w.advance(20);
        assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 1);
        w.run_jobs().await;
    }
    assert_eq!(w.job_of(target).await.crashes, 0);
    // While draining, too.
    w.engine.drain();
    w.advance(20);
    assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 1);
    gate.let_through();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!(heartbeat::beat(&w.engine, &w.store).await.unwrap(), 0, "nothing is held any more");
}

async fn a_frozen_run_that_ends_leaves_its_successor_held(w: TestWorker) {
    let (frozen, second) = (Gate::new(), Gate::new());
    let engine = scripted(&w, [(1, Act::WaitTwice(frozen.clone(), second.clone()))]);
    let id = noop(&w, 1).await;
    let run = start(&engine, id);
    frozen.entered().await;
    w.advance(LEASE_OVER + CALL_OVER);
    w.scheduler.tick().await.unwrap();
    let again = start(&engine, id);
    second.entered().await;
    frozen.let_through();
    run.await.unwrap();
    assert_eq!(engine.held(), [id], "the run that was rescued goes on");
    let renewed = w.write(async |tx| rows::heartbeat(tx, &engine.held(), engine.worker()).await).await;
    assert_eq!((renewed, w.state(id).await), (1, State::Running));
    second.let_through();
    again.await.unwrap();
    assert_eq!((w.state(id).await, w.show(id).await.crashes), (State::Done, 1));
}
