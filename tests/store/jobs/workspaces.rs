//! Workspace caps: a workspace runs at most this many jobs of a kind, and free slots go to the lane with the fewest
//! running jobs.

use crier_domain::job::{JobKind, LEASE, NewJob, Outcome};
use crier_store::jobs::{self, dispatch, engine};

use crate::support::store::{TestStore, on_both};

on_both![
    a_workspace_never_exceeds_its_cap,
    a_free_slot_goes_to_the_least_busy_lane,
    the_sweep_promotes_only_up_to_the_cap,
    every_exit_from_a_workspace_wakes_the_next_job,
    a_workspace_below_its_cap_does_not_limit_its_lanes,
];

const HANGING: i64 = 1;
const OTHER: i64 = 2;

fn workspace_cap() -> i64 {
    JobKind::PublishTarget.limits().workspace_cap.unwrap()
}

/// Enqueues a publish job for an account of the workspace.
async fn enqueue_publish_job(s: &TestStore, workspace: i64, account: i64, subject: i64) -> i64 {
    let mut job = NewJob::new(JobKind::PublishTarget, subject, s.now()).workspace(workspace);
    job.lane = Some(format!("account:{account:05}"));
    s.write(async |tx| jobs::enqueue(tx, &job).await).await.expect("the subject has no other job")
}

/// Starts `count` publish jobs, two per account, that never end. Returns one of them.
async fn start_hanging_jobs(s: &TestStore, count: i64) -> i64 {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(enqueue_publish_job(s, HANGING, 1_000 + n / 2, 1_000 + n).await);
    }
    assert_eq!(s.claim(&ids, "w").await.len(), usize::try_from(count).unwrap());
    s.notifier.take();
    ids[0]
}

async fn waiting(s: &TestStore) -> i64 {
    s.number("SELECT count(*) FROM jobs WHERE waiting AND state = 'ready'").await
}

async fn sweep(s: &TestStore) -> Vec<i64> {
    s.write(async |tx| dispatch::sweep_lanes(tx).await).await;
    s.notifier.take()
}

async fn a_workspace_never_exceeds_its_cap(s: TestStore) {
    start_hanging_jobs(&s, workspace_cap() - 1).await;
    let ids = [
        enqueue_publish_job(&s, HANGING, 1, 1).await,
        enqueue_publish_job(&s, HANGING, 2, 2).await,
        enqueue_publish_job(&s, OTHER, 3, 3).await,
    ];
    let held = s.claim(&ids, "w").await;
    assert_eq!(
        held.iter().map(|job| job.id).collect::<Vec<_>>(),
        [ids[0], ids[2]],
        "the other workspace has its own slots"
    );
    assert_eq!(waiting(&s).await, 1);
    s.notifier.take();
    assert!(s.settle(&held[1], Outcome::Done).await);
    assert!(s.notifier.take().is_empty(), "the other workspace frees nothing here");
    assert!(s.settle(&held[0], Outcome::Done).await);
    assert_eq!(s.notifier.take(), [ids[1]]);
    assert_eq!(s.claim(&ids[1..2], "w").await.len(), 1);
}

async fn a_free_slot_goes_to_the_least_busy_lane(s: TestStore) {
    start_hanging_jobs(&s, workspace_cap() - 1).await;
    let last = enqueue_publish_job(&s, HANGING, 1_000, 1).await;
    let last = s.claim(&[last], "w").await.remove(0);
    // The accounts whose sites hang have more jobs, which were enqueued first.
    let mut more = Vec::new();
    for n in 0..40 {
        more.push(enqueue_publish_job(&s, HANGING, 1_000 + n, 5_000 + n).await);
    }
    s.advance(1);
    let least_busy = enqueue_publish_job(&s, HANGING, 9, 9).await;
    more.push(least_busy);
    assert!(s.claim(&more, "w").await.is_empty());
    s.notifier.take();
    assert!(s.settle(&last, Outcome::Done).await);
    assert_eq!(s.notifier.take(), [least_busy]);
    assert_eq!(waiting(&s).await, 40);
}

async fn the_sweep_promotes_only_up_to_the_cap(s: TestStore) {
    start_hanging_jobs(&s, workspace_cap()).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(enqueue_publish_job(&s, HANGING, 2_000 + n, 2_000 + n).await);
    }
    assert!(s.claim(&ids, "w").await.is_empty());
    s.notifier.take();
    assert!(sweep(&s).await.is_empty(), "it is full");
    // Three jobs have ended, and the process that should have woken others has died.
    let ended =
        "UPDATE jobs SET state = 'done' WHERE id IN (SELECT id FROM jobs WHERE state = 'running' ORDER BY id LIMIT 3)";
    s.sql(ended).await;
    assert_eq!(sweep(&s).await.len(), 3);
}

async fn every_exit_from_a_workspace_wakes_the_next_job(s: TestStore) {
    start_hanging_jobs(&s, workspace_cap() - 1).await;
    let first = enqueue_publish_job(&s, HANGING, 1, 1).await;
    let mut held = s.claim(&[first], "w").await.remove(0);
    for (n, exit) in (2..).zip(["retried", "released", "rescued"]) {
        let next = enqueue_publish_job(&s, HANGING, n, n).await;
        assert!(s.claim(&[next], "w").await.is_empty(), "{exit}");
        s.notifier.take();
        match exit {
            "retried" => assert!(s.settle(&held, Outcome::RetryAt(s.later(600), "again".into())).await),
            "released" => assert!(s.write(async |tx| jobs::engine::release(tx, &held).await).await),
            _ => {
                s.advance(LEASE.num_seconds() + 1);
                s.write(async |tx| dispatch::rescue_one(tx, held.id).await).await;
            }
        }
        let woken = s.notifier.take();
        assert!(woken.contains(&next), "{exit}: {woken:?}");
        held = s.claim(&[next], "w").await.remove(0);
    }
}

async fn a_workspace_below_its_cap_does_not_limit_its_lanes(s: TestStore) {
    start_hanging_jobs(&s, 10).await;
    let ids = [
        enqueue_publish_job(&s, HANGING, 1, 1).await,
        enqueue_publish_job(&s, HANGING, 1, 2).await,
        enqueue_publish_job(&s, HANGING, 1, 3).await,
        enqueue_publish_job(&s, HANGING, 1, 4).await,
        enqueue_publish_job(&s, HANGING, 1, 5).await,
    ];
    let held = s.claim(&ids, "w").await;
    assert_eq!((held.len(), waiting(&s).await), (4, 1), "the lane is full, the workspace is not");
    s.notifier.take();
    assert!(s.settle(&held[0], Outcome::Done).await);
    assert_eq!(s.notifier.take(), [ids[4]]);
}

/// On Postgres, a claim can set a job waiting between the statement of a settle and its commit.
#[tokio::test]
async fn a_job_set_waiting_during_a_settle_is_woken() {
    let s = TestStore::postgres().await;
    start_hanging_jobs(&s, workspace_cap() - 1).await;
    let last = enqueue_publish_job(&s, HANGING, 1, 1).await;
    let held = s.claim(&[last], "w").await.remove(0);
    let waiting_job = enqueue_publish_job(&s, HANGING, 2, 2).await;
    s.notifier.take();
    let mut settle = s.begin().await.unwrap();
    assert!(engine::settle(&mut settle, &[(&held, Outcome::Done)]).await.unwrap());
    assert!(s.claim(&[waiting_job], "w").await.is_empty(), "the settle is not committed");
    assert_eq!((waiting(&s).await, s.notifier.take()), (1, vec![]));
    settle.commit().await.unwrap();
    assert_eq!(s.notifier.take(), [waiting_job], "without a sweep");
}
