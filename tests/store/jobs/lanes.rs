//! Lanes: an account or an endpoint runs at most as many jobs concurrently as its cap; the others wait and are woken
//! one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crier_domain::job::{ClaimedJob, JobKind, JobState, LEASE, Lane, NewJob, Outcome};
use crier_store::jobs::{self, dispatch, engine, lanes, operate};

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    jobs_over_the_cap_wait_and_are_promoted_one_by_one,
    every_exit_from_a_lane_wakes_the_next_job,
    lanes_do_not_block_each_other,
    all_kinds_of_an_account_share_its_slots,
    kinds_without_a_cap_ignore_lanes,
    the_cap_holds_under_concurrent_claims,
    a_lane_never_exceeds_its_cap_and_drains,
    batches_across_lanes_do_not_deadlock,
    cancelling_a_promoted_job_wakes_the_next,
    a_paused_lane_runs_nothing_until_its_time,
    the_longest_pause_wins,
    the_sweep_finds_stranded_lanes_behind_full_ones,
    a_narrowed_lane_has_fewer_slots_until_widened,
    run_now_moves_a_waiting_job_to_another_lane,
];

const CAP: i64 = 4;

async fn enqueue_publish_jobs(s: &TestStore, lane: &str, subjects: std::ops::Range<i64>) -> Vec<i64> {
    let mut ids = Vec::new();
    for subject in subjects {
        ids.push(s.enqueue_job(JobKind::PublishTarget, subject, Some(lane)).await);
    }
    s.notifier.take();
    ids
}

async fn waiting(s: &TestStore) -> i64 {
    s.number("SELECT count(*) FROM jobs WHERE waiting AND state = 'ready'").await
}

async fn sweep(s: &TestStore) {
    s.write(async |tx| dispatch::sweep_lanes(tx).await).await;
}

fn ids_of(jobs: &[ClaimedJob]) -> Vec<i64> {
    jobs.iter().map(|job| job.id).collect()
}

async fn jobs_over_the_cap_wait_and_are_promoted_one_by_one(s: TestStore) {
    assert_eq!(JobKind::PublishTarget.limits().lane_cap, Some(CAP));
    let ids = enqueue_publish_jobs(&s, "account:1", 0..7).await;
    let held = s.claim(&ids, "w").await;
    assert_eq!(ids_of(&held), ids[..4], "first come, first run");
    assert_eq!(waiting(&s).await, 3);
    let row = s.show(ids[4]).await;
    assert!(row.waiting && row.state == JobState::Ready && row.attempt == 0);
    assert!(s.claim(&ids[4..], "w").await.is_empty(), "a waiting job is not claimed");
    assert_eq!(
        s.write(async |tx| dispatch::renotify_stale(tx, JobKind::PublishTarget, s.later(60), 10).await).await,
        0,
        "nor renotified"
    );

    assert!(s.settle(&held[0], Outcome::Done).await);
    assert_eq!(s.notifier.take(), [ids[4]]);
    assert_eq!(waiting(&s).await, 2);
    assert_eq!(ids_of(&s.claim(&ids[4..], "w").await), [ids[4]]);
    // Two settles in one transaction wake two jobs.
    s.write(async |tx| {
        engine::settle(tx, &[(&held[1], Outcome::Done)]).await?;
        engine::settle(tx, &[(&held[2], Outcome::Done)]).await
    })
    .await;
    assert_eq!(s.notifier.take(), ids[5..]);
    assert_eq!(waiting(&s).await, 0);
}

async fn every_exit_from_a_lane_wakes_the_next_job(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "account:1", 0..9).await;
    let held = s.claim(&ids, "w").await;
    assert!(s.settle(&held[0], Outcome::Abort("no".to_owned())).await);
    assert_eq!(s.notifier.take(), [ids[4]]);
    assert!(s.settle(&held[1], Outcome::RetryAt(s.later(90), "busy".to_owned())).await);
    assert_eq!(s.notifier.take(), [ids[5]]);
    assert!(s.settle(&held[2], Outcome::Cancelled("gone".to_owned())).await);
    assert_eq!(s.notifier.take(), [ids[6]]);
    s.write(async |tx| engine::release(tx, &held[3]).await).await;
    assert_eq!(s.notifier.take(), [ids[7]]);
    // Releasing a job that is not held frees no slot.
    s.write(async |tx| engine::release(tx, &held[3]).await).await;
    assert!(s.notifier.take().is_empty());
    let running = s.claim(&ids[4..8], "w").await;
    assert_eq!(running.len(), 4);
    s.advance(LEASE.num_seconds() + 1);
    assert_eq!(s.write(async |tx| dispatch::rescue(tx, 1).await).await.len(), 1);
    let notified = s.notifier.take();
    assert!(notified.contains(&ids[8]), "{notified:?}");
    assert_eq!(notified.len(), 2, "the rescued one itself, and the one that waited");
}

async fn lanes_do_not_block_each_other(s: TestStore) {
    let one = enqueue_publish_jobs(&s, "account:1", 0..6).await;
    let two = enqueue_publish_jobs(&s, "account:2", 6..8).await;
    let free = s.enqueue_job(JobKind::PublishTarget, 8, None).await;
    let all: Vec<i64> = one.iter().chain(&two).copied().chain([free]).collect();
    let held = s.claim(&all, "w").await;
    assert_eq!(held.len(), 4 + 2 + 1);
    assert!(ids_of(&held).ends_with(&[two[0], two[1], free]));
    let last = held.iter().find(|job| job.id == two[0]).unwrap();
    s.notifier.take();
    assert!(s.settle(last, Outcome::Done).await);
    assert!(s.notifier.take().is_empty(), "no job waits in the second lane");
    assert_eq!(waiting(&s).await, 2);
}

/// All kinds of a lane have the same cap, so that the oldest waiting job never blocks those behind it.
async fn all_kinds_of_an_account_share_its_slots(s: TestStore) {
    let posts = enqueue_publish_jobs(&s, "account:1", 0..4).await;
    let held = s.claim(&posts, "w").await;
    let metrics = s.enqueue_job(JobKind::CollectAnalytics, 1, Some("account:1")).await;
    let last = enqueue_publish_jobs(&s, "account:1", 4..5).await[0];
    assert!(s.claim(&[metrics, last], "w").await.is_empty());
    for (job, next) in held.iter().zip([metrics, last]) {
        assert!(s.settle(job, Outcome::Done).await);
        assert_eq!(s.notifier.take(), [next]);
    }
}

async fn kinds_without_a_cap_ignore_lanes(s: TestStore) {
    let mut ids = Vec::new();
    for subject in 0..30 {
        ids.push(s.enqueue_job(JobKind::Noop, subject, Some("brand:1")).await);
    }
    assert_eq!(s.claim(&ids, "w").await.len(), 30);
}

async fn the_cap_holds_under_concurrent_claims(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "account:1", 0..40).await;
    let claimed = run_concurrently(10, |worker| {
        let (store, some) = (s.store.clone(), ids[worker * 4..worker * 4 + 4].to_vec());
        async move {
            let mut tx = store.begin().await.unwrap();
            let mine = engine::claim(&mut tx, &some, "w").await.unwrap();
            tx.commit().await.unwrap();
            mine.len()
        }
    })
    .await;
    assert_eq!(claimed.iter().sum::<usize>(), 4);
    assert_eq!(waiting(&s).await, 36);
}

/// Many workers claim jobs of two lanes until all jobs are done. They use the notified ids, as in production.
async fn a_lane_never_exceeds_its_cap_and_drains(s: TestStore) {
    let mut ids = enqueue_publish_jobs(&s, "account:1", 0..60).await;
    ids.extend(enqueue_publish_jobs(&s, "account:2", 60..90).await);
    let running: Arc<[AtomicI64; 2]> = Arc::new([AtomicI64::new(0), AtomicI64::new(0)]);
    let notified = Arc::new(std::sync::Mutex::new(ids.clone()));
    let done = Arc::new(AtomicI64::new(0));
    run_concurrently(8, |worker| {
        let (store, notifier, notified) = (s.store.clone(), s.notifier.clone(), notified.clone());
        let (running, done) = (running.clone(), done.clone());
        async move {
            while done.load(Ordering::SeqCst) < 90 {
                let next: Vec<i64> = {
                    let mut notified = notified.lock().unwrap();
                    notified.extend(notifier.take());
                    let count = notified.len().min(3);
                    notified.drain(..count).collect()
                };
                if next.is_empty() {
                    tokio::task::yield_now().await;
                    continue;
                }
                let mut tx = store.begin().await.unwrap();
                let mine = engine::claim(&mut tx, &next, &worker.to_string()).await.unwrap();
                tx.commit().await.unwrap();
                for job in &mine {
                    let lane = &running[usize::from(job.lane.as_deref() == Some("account:2"))];
                    assert!(lane.fetch_add(1, Ordering::SeqCst) < CAP, "more than the cap at once");
                }
                for job in &mine {
                    tokio::task::yield_now().await;
                    // The counter decreases before the settle, because the slot is free as soon as the settle commits.
                    running[usize::from(job.lane.as_deref() == Some("account:2"))].fetch_sub(1, Ordering::SeqCst);
                    let mut tx = store.begin().await.unwrap();
                    assert!(engine::settle(&mut tx, &[(job, Outcome::Done)]).await.unwrap());
                    tx.commit().await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    })
    .await;
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE state = 'done' AND attempt = 1").await, 90);
}

/// Settles jobs of several lanes in one transaction, in a different order per worker, while a sweep and claims run.
async fn batches_across_lanes_do_not_deadlock(s: TestStore) {
    const LANES: usize = 6;
    let mut ids = Vec::new();
    for lane in 0..LANES {
        let first = i64::try_from(lane).unwrap() * 100;
        ids.push(enqueue_publish_jobs(&s, &format!("account:{lane}"), first..first + 6).await);
    }
    let all: Vec<i64> = ids.iter().flatten().copied().collect();
    let held = s.claim(&all, "w").await;
    assert_eq!(held.len(), LANES * 4);
    run_concurrently(6, |worker| {
        let (store, held, all) = (s.store.clone(), held.clone(), all.clone());
        async move {
            if worker == 4 {
                for _ in 0..5 {
                    let mut tx = store.begin().await.unwrap();
                    dispatch::sweep_lanes(&mut tx).await.unwrap();
                    tx.commit().await.unwrap();
                }
            } else if worker == 5 {
                for _ in 0..5 {
                    let mut tx = store.begin().await.unwrap();
                    engine::claim(&mut tx, &all, "other").await.unwrap();
                    tx.commit().await.unwrap();
                }
            } else {
                // Worker n settles the n-th job of every lane; odd workers start at the last lane.
                let mut mine: Vec<ClaimedJob> = held.chunks(4).map(|lane| lane[worker].clone()).collect();
                if worker % 2 == 1 {
                    mine.reverse();
                }
                let mut tx = store.begin().await.unwrap();
                for job in &mine {
                    assert!(engine::settle(&mut tx, &[(job, Outcome::Done)]).await.unwrap());
                    tokio::task::yield_now().await;
                }
                tx.commit().await.unwrap();
            }
        }
    })
    .await;
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE state = 'done'").await, 24);
    sweep(&s).await;
    assert_eq!(waiting(&s).await, 0);
}

async fn cancelling_a_promoted_job_wakes_the_next(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "account:1", 0..6).await;
    let held = s.claim(&ids, "w").await;
    for job in &held {
        assert!(s.settle(job, Outcome::Done).await);
    }
    assert_eq!(s.notifier.take(), ids[4..]);
    // Fills the lane again, so that three jobs wait; the woken job is cancelled before it runs.
    let more = enqueue_publish_jobs(&s, "account:1", 10..15).await;
    let held = s.claim(&[ids[4], ids[5], more[0], more[1], more[2], more[3], more[4]], "w").await;
    assert_eq!((held.len(), waiting(&s).await), (4, 3));
    assert!(s.settle(&held[0], Outcome::Done).await);
    let woken = s.notifier.take();
    assert_eq!(woken, [more[2]]);
    assert!(s.write(async |tx| operate::cancel(tx, woken[0]).await).await.is_some());
    assert_eq!(waiting(&s).await, 2, "only the sweep wakes them");
    sweep(&s).await;
    assert_eq!(s.notifier.take(), [more[3]], "as many as there is room for");
    sweep(&s).await;
    assert_eq!(s.claim(&more[3..], "w").await.len(), 1);
    // A waiting job can be cancelled, too.
    assert!(s.write(async |tx| operate::cancel(tx, more[4]).await).await.is_some());
    assert_eq!(waiting(&s).await, 0);
}

async fn a_paused_lane_runs_nothing_until_its_time(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "account:1", 0..3).await;
    let other = enqueue_publish_jobs(&s, "account:2", 10..11).await;
    let held = s.claim(&ids[..1], "w").await.remove(0);
    let until = s.later(60);
    s.write(async |tx| lanes::pause_lane(tx, "account:1", until).await).await;
    assert!(operate::lane(&mut s.conn().await, "account:1", s.now()).await.unwrap().paused_until.is_some());
    assert!(operate::lane(&mut s.conn().await, "account:2", s.now()).await.unwrap().paused_until.is_none());
    assert!(s.claim(&ids[1..], "w").await.is_empty());
    assert_eq!(s.claim(&other, "w").await.len(), 1);
    assert_eq!(waiting(&s).await, 2);
    assert!(s.settle(&held, Outcome::RetryAt(until, "limited".to_owned())).await);
    assert!(s.notifier.take().is_empty(), "a paused lane wakes no job");
    s.advance(59);
    sweep(&s).await;
    assert!(s.notifier.take().is_empty());
    s.advance(1);
    assert!(operate::lane(&mut s.conn().await, "account:1", s.now()).await.unwrap().paused_until.is_none());
    sweep(&s).await;
    assert_eq!(s.notifier.take(), ids[1..]);
    assert_eq!(s.claim(&ids[1..], "w").await.len(), 2);
    assert_eq!(s.number("SELECT count(*) FROM paused_lanes").await, 0);
}

async fn the_longest_pause_wins(s: TestStore) {
    for seconds in [30, 90, 60] {
        let until = s.later(seconds);
        s.write(async |tx| lanes::pause_lane(tx, "account:1", until).await).await;
    }
    let mut conn = s.conn().await;
    assert!(operate::lane(&mut conn, "account:1", s.later(89)).await.unwrap().paused_until.is_some());
    assert!(operate::lane(&mut conn, "account:1", s.later(90)).await.unwrap().paused_until.is_none());
}

/// No number of full lanes may hide a stranded lane.
async fn the_sweep_finds_stranded_lanes_behind_full_ones(s: TestStore) {
    let now = if s.is_postgres() { "now()" } else { "'2026-01-01T00:00:00+00:00'" };
    let job = |subject: i64, lane: i64, state: &str, waiting: &str| {
        format!("('publish_target', {subject}, 'account:{lane:05}', '{state}', {now}, 8, {waiting}, {now}, {now})")
    };
    let mut rows = Vec::new();
    for lane in 0..1_100 {
        rows.push(job(lane * 10, lane, "ready", "TRUE"));
        if lane != 1_099 {
            rows.extend((1..=CAP).map(|n| job(lane * 10 + n, lane, "running", "FALSE")));
        }
    }
    let columns = "kind, subject_id, lane, state, run_at, max_attempts, waiting, dispatched_at, created_at";
    s.sql(format!("INSERT INTO jobs ({columns}) VALUES {}", rows.join(", "))).await;
    sweep(&s).await;
    let stranded = s.number("SELECT id FROM jobs WHERE lane = 'account:01099'").await;
    assert_eq!(s.notifier.take(), [stranded]);
}

async fn a_narrowed_lane_has_fewer_slots_until_widened(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "account:1", 0..9).await;
    s.write(async |tx| lanes::narrow_lane(tx, "account:1", 3).await).await;
    s.write(async |tx| lanes::narrow_lane(tx, "account:1", 2).await).await;
    s.write(async |tx| lanes::pause_lane(tx, "account:1", s.later(60)).await).await;
    assert!(s.claim(&ids, "w").await.is_empty(), "it is paused as well");
    s.advance(60);
    sweep(&s).await;
    assert_eq!(s.notifier.take(), ids[..2], "as many as it has slots");
    let held = s.claim(&ids, "w").await;
    assert_eq!((ids_of(&held).as_slice(), waiting(&s).await), (&ids[..2], 7));
    sweep(&s).await;
    assert!(s.notifier.take().is_empty(), "it is full");
    let other = enqueue_publish_jobs(&s, "account:2", 20..26).await;
    assert_eq!(s.claim(&other, "w").await.len(), 4, "another lane keeps its cap");
    let lane = operate::lane(&mut s.conn().await, "account:1", s.now()).await.unwrap();
    assert_eq!((lane.running, lane.waiting, lane.places), (2, 7, Some(2)));
    s.write(async |tx| lanes::pause_lane(tx, "account:1", s.later(60)).await).await;
    s.write(async |tx| lanes::widen_lane(tx, JobKind::PublishTarget, "account:1").await).await;
    let woken = s.notifier.take();
    assert_eq!(woken, ids[2..4], "at once, pause or not; the cap is the kind's again");
    assert_eq!(ids_of(&s.claim(&woken, "w").await), woken);
}

async fn run_now_moves_a_waiting_job_to_another_lane(s: TestStore) {
    let ids = enqueue_publish_jobs(&s, "endpoint:1", 0..5).await;
    s.claim(&ids, "w").await;
    assert_eq!(waiting(&s).await, 1);
    let job = NewJob::new(JobKind::PublishTarget, 4, s.now()).lane(Lane::ManualDelivery(1));
    s.write(async |tx| jobs::run_now(tx, &job).await).await;
    assert_eq!(s.notifier.take(), [ids[4]]);
    assert_eq!(ids_of(&s.claim(&ids, "w").await), [ids[4]]);
    assert_eq!(s.show(ids[4]).await.lane.as_deref(), Some("endpoint:1:asked"));
}

/// On Postgres, a claim can set a job waiting between the statement of a settle and its commit.
#[tokio::test]
async fn a_job_set_waiting_during_a_settle_is_woken() {
    let s = TestStore::postgres().await;
    let ids = enqueue_publish_jobs(&s, "account:1", 0..5).await;
    let held = s.claim(&ids[..4], "w").await;
    let mut settles = Vec::new();
    for job in &held {
        let mut tx = s.begin().await.unwrap();
        assert!(engine::settle(&mut tx, &[(job, Outcome::Done)]).await.unwrap());
        settles.push(tx);
    }
    assert!(s.claim(&ids[4..], "w").await.is_empty(), "no settle is committed");
    assert_eq!((waiting(&s).await, s.notifier.take()), (1, vec![]));
    for tx in settles {
        tx.commit().await.unwrap();
    }
    assert_eq!(s.notifier.take(), ids[4..], "woken once, without a sweep");
}

/// On Postgres, a wake can wait for the lock of the lane while another wake wakes the same job.
#[tokio::test]
async fn a_job_that_another_wake_has_woken_can_be_claimed() {
    let s = TestStore::postgres().await;
    let ids = enqueue_publish_jobs(&s, "account:1", 0..1).await;
    s.sql("UPDATE jobs SET waiting = TRUE").await;
    let mut first = s.begin().await.unwrap();
    dispatch::sweep_lanes(&mut first).await.unwrap();
    let store = s.store.clone();
    let second = tokio::spawn(async move {
        let mut tx = store.begin().await.unwrap();
        dispatch::sweep_lanes(&mut tx).await.unwrap();
        tx
    });
    s.until_blocked(1).await;
    first.commit().await.unwrap();
    assert_eq!(s.notifier.take(), ids);
    let second = second.await.unwrap();
    let end = async {
        s.until_blocked(1).await;
        second.rollback().await.unwrap();
    };
    let (claimed, ()) = tokio::join!(s.claim(&ids, "w"), end);
    assert_eq!(ids_of(&claimed), ids, "it waits for the lane, and does not skip the job");
}
