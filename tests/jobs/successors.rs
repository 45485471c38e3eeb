//! Successors: a job that waits for a lane is claimed by the worker whose job leaves the lane.

use std::sync::Arc;

use crier_domain::job::{JobKind, JobState, Lane, MAX_CRASHES, NewJob};
use crier_domain::post::TargetStatus;
use crier_store::jobs::{self, lanes, operate};
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::scripted::start;
use crate::support::store::TestStore;

worker_on_both!(
    a_queue_in_a_lane_needs_no_further_notification,
    a_successor_is_claimed_by_the_worker_whose_job_has_left,
    a_draining_worker_only_wakes,
    a_suspect_is_only_woken,
    a_job_of_a_paused_kind_is_only_woken,
    a_job_of_another_kind_is_only_woken,
    a_narrowed_lane_starts_no_more_jobs_than_it_has_places,
    a_paused_lane_starts_no_job,
    a_place_taken_by_another_job_wakes_no_job,
);

/// The number of places in an account's lane.
const PLACES: usize = 4;

/// A full lane of one account: four runs that wait at a gate, and posts that wait for the lane.
struct FullLane {
    gate: Arc<Gate>,
    runs: Vec<JoinHandle<bool>>,
    /// The waiting jobs, in their order. `targets` has the target of each.
    waiting: Vec<i64>,
    targets: Vec<i64>,
}

impl FullLane {
    async fn new(w: &TestWorker, waiting: usize) -> Self {
        let gate = Gate::new();
        w.fake.script_publishes((0..PLACES).map(|_| PublishStep::Wait(gate.clone())));
        for _ in 0..PLACES {
            w.publish_one().await;
        }
        let mut runs = Vec::new();
        for id in w.s.notifier.take() {
            runs.push(start(&w.engine, id));
            gate.wait_until_entered().await;
        }
        let mut targets = Vec::new();
        for _ in 0..waiting {
            targets.push(w.publish_one().await.1);
            w.advance(1);
        }
        let waiting = w.s.notifier.take();
        let started = join_all(waiting.iter().map(|id| w.engine.run(*id))).await;
        assert!(!started.contains(&true), "the lane is full");
        for id in &waiting {
            assert!(w.show(*id).await.waiting);
        }
        Self { gate, runs, waiting, targets }
    }

    /// Lets all runs through, and waits for them and their successors.
    async fn finish(self, w: &TestWorker) {
        for _ in &self.runs {
            self.gate.let_through();
        }
        for run in join_all(self.runs).await {
            assert!(run.unwrap());
        }
        w.wait_for_successors(&w.engine, &[]).await;
    }
}

async fn a_queue_in_a_lane_needs_no_further_notification(w: TestWorker) {
    let lane = FullLane::new(&w, 10).await;
    let (waiting, targets) = (lane.waiting.clone(), lane.targets.clone());
    lane.finish(&w).await;
    assert!(w.s.notifier.take().is_empty());
    for id in waiting {
        let job = w.show(id).await;
        assert_eq!((job.state, job.attempt, job.crashes, job.waiting), (JobState::Done, 1, 0, false));
    }
    for target in targets {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.fake.posts().len(), w.fake.count("reconcile")), (PLACES + 10, 0), "each once");
    assert!(w.engine.held().is_empty());
}

async fn a_successor_is_claimed_by_the_worker_whose_job_has_left(w: TestWorker) {
    let mut lane = FullLane::new(&w, 2).await;
    let next = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(next.clone())]);
    lane.gate.let_through();
    next.wait_until_entered().await;
    let (first, second) = (w.show(lane.waiting[0]).await, w.show(lane.waiting[1]).await);
    assert_eq!((first.state, first.attempt), (JobState::Running, 1));
    assert_eq!(first.lease_until, Some(w.later(30)));
    assert_eq!(w.count_rows(format!("jobs WHERE id = {} AND worker = '{}'", first.id, w.engine.worker())).await, 1);
    assert_eq!((second.state, second.waiting), (JobState::Ready, true), "one job left, and one follows");
    assert!(w.engine.held().contains(&first.id), "the heartbeat renews its lease");
    next.let_through();
    for _ in 1..PLACES {
        lane.gate.let_through();
    }
    join_all(std::mem::take(&mut lane.runs)).await;
    w.wait_for_successors(&w.engine, &[]).await;
    assert_eq!(w.fake.posts().len(), PLACES + 2);
}

/// Lets one run leave the lane. Returns the first of the waiting jobs after that.
async fn let_one_leave(w: &TestWorker, mut lane: FullLane) -> (operate::JobRow, FullLane) {
    lane.gate.let_through();
    // The gate lets any one of the runs through.
    let (_, _, rest) = futures::future::select_all(std::mem::take(&mut lane.runs)).await;
    lane.runs = rest;
    (w.show(lane.waiting[0]).await, lane)
}

async fn a_draining_worker_only_wakes(w: TestWorker) {
    let lane = FullLane::new(&w, 1).await;
    w.engine.drain();
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, false, 0));
    assert_eq!(w.s.notifier.take(), [job.id], "for another worker");
    lane.finish(&w).await;
}

async fn a_suspect_is_only_woken(w: TestWorker) {
    let lane = FullLane::new(&w, 1).await;
    w.set_crashes(lane.waiting[0], MAX_CRASHES - 1).await;
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, false, 0), "it must run alone");
    assert_eq!(w.s.notifier.take(), [job.id]);
    lane.finish(&w).await;
}

async fn a_job_of_a_paused_kind_is_only_woken(w: TestWorker) {
    let lane = FullLane::new(&w, 1).await;
    w.write(async |tx| operate::pause_kind(tx, JobKind::PublishTarget).await).await;
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, false, 0));
    lane.finish(&w).await;
}

/// An account's inbox uses the same lane, and its jobs may have another cap.
async fn a_job_of_another_kind_is_only_woken(w: TestWorker) {
    let lane = FullLane::new(&w, 0).await;
    let other = NewJob::new(JobKind::SyncInbox, 1, w.now()).lane(Lane::Account(w.account.id));
    let other = w.write(async |tx| jobs::enqueue(tx, &other).await).await.unwrap();
    w.s.notifier.take();
    w.sql(format!("UPDATE jobs SET waiting = TRUE WHERE id = {other}")).await;
    let (job, lane) = let_one_leave(&w, FullLane { waiting: vec![other], ..lane }).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, false, 0));
    assert_eq!(w.s.notifier.take(), [other]);
    lane.finish(&w).await;
}

async fn a_narrowed_lane_starts_no_more_jobs_than_it_has_places(w: TestWorker) {
    let lane = FullLane::new(&w, 2).await;
    let name = Lane::Account(w.account.id).to_string();
    w.write(async |tx| lanes::narrow_lane(tx, &name, 3).await).await;
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0), "all three places are taken");
    let next = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(next.clone()), PublishStep::Wait(next.clone())]);
    let (_, lane) = let_one_leave(&w, lane).await;
    next.wait_until_entered().await;
    assert_eq!(w.count_rows("jobs WHERE state = 'running'").await, 3);
    next.let_through();
    next.let_through();
    lane.finish(&w).await;
    w.run_jobs().await;
    assert_eq!(w.fake.posts().len(), PLACES + 2);
}

async fn a_paused_lane_starts_no_job(w: TestWorker) {
    let lane = FullLane::new(&w, 1).await;
    let name = Lane::Account(w.account.id).to_string();
    let until = w.later(60);
    w.write(async |tx| lanes::pause_lane(tx, &name, until).await).await;
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, true, 0));
    lane.finish(&w).await;
    w.run_until_idle().await;
    assert_eq!(w.fake.posts().len(), PLACES + 1);
}

/// Executes `action` in the transaction that changes a job so that `condition` holds, as if a concurrent worker did it.
async fn on_change(w: &TestWorker, condition: &str, action: &str) {
    if w.is_postgres() {
        w.sql(format!(
            "CREATE FUNCTION beside() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN NULL; END $$"
        ))
        .await;
        w.sql(format!(
            "CREATE TRIGGER beside AFTER UPDATE ON jobs FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION beside()"
        ))
        .await;
    } else {
        w.sql(format!("CREATE TRIGGER beside AFTER UPDATE ON jobs WHEN {condition} BEGIN {action}; END")).await;
    }
}

/// Only on Postgres: on SQLite no other transaction can free a place between a claim and its commit.
#[tokio::test]
async fn a_claim_starts_its_waiting_job_if_a_place_became_free() {
    let w = TestWorker::over(TestStore::postgres().await).await;
    let name = Lane::Account(w.account.id).to_string();
    w.write(async |tx| lanes::narrow_lane(tx, &name, 0).await).await;
    on_change(&w, "NEW.waiting", "DELETE FROM narrow_lanes").await;
    let (_, target) = w.publish_one().await;
    let job = w.s.notifier.take()[0];
    assert!(!w.engine.run(job).await, "the lane was full");
    w.wait_for_successors(&w.engine, &[]).await;
    assert!(w.s.notifier.take().is_empty(), "it needs no notification");
    assert_eq!(w.show(job).await.attempt, 1);
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_place_taken_by_another_job_wakes_no_job(w: TestWorker) {
    let lane = FullLane::new(&w, 1).await;
    let other = NewJob::new(JobKind::SyncInbox, 1, w.now()).lane(Lane::Account(w.account.id));
    let other = w.write(async |tx| jobs::enqueue(tx, &other).await).await.unwrap();
    w.s.notifier.take();
    let take = format!("UPDATE jobs SET state = 'running' WHERE id = {other} AND state = 'ready'");
    on_change(&w, "NEW.state = 'done'", &take).await;
    let (job, lane) = let_one_leave(&w, lane).await;
    assert_eq!((job.state, job.waiting, job.attempt), (JobState::Ready, true, 0));
    assert!(w.s.notifier.take().is_empty());
    assert_eq!(w.count_rows("lane_holds").await, 1, "a job has left, so waiting for the lane does not count as late");
    w.set_job_state(format!("jobs WHERE id = {other}"), JobState::Cancelled).await;
    lane.finish(&w).await;
    assert_eq!(w.fake.posts().len(), PLACES + 1, "the next job that leaves wakes it");
}
