//! A job that kills its process. Invariant: after the third time it is dead, and its subject is notified once. Jobs
//! that ran next to it run to their own end.

use crier_domain::failure::Category;
use crier_domain::job::JobState;
use crier_domain::post::{PostStatus, TargetStatus};

use super::crash::publish_to;
use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker, worker_on_both};
use crate::support::scripted::{JobBehavior, enqueue_noop, scripted_engine, start};

worker_on_both!(
    repeated_crashes_are_poison,
    republishing_a_poisoned_post_finds_the_published_one,
    a_poisoned_post_that_cannot_be_looked_up_has_an_unknown_outcome,
    jobs_next_to_a_crashing_job_are_unaffected,
    a_suspect_runs_alone,
    a_suspect_notified_repeatedly_waits_once,
    a_suspect_that_could_not_begin_still_runs_alone,
);

/// Kills a worker in the middle of a call, three times.
async fn kill_worker_three_times(w: &TestWorker, accepted: bool) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    for crash in 1..=3 {
        // The crash may come before or after the platform accepts the post; later look-ups return `Absent`.
        let gate = Gate::new();
        w.fake.script_publishes([if accepted {
            PublishStep::AcceptAndHang(gate.clone())
        } else {
            PublishStep::Hang(gate.clone())
        }]);
        if crash > 1 {
            w.fake.script_reconciles([Ok(crier_platforms::ReconcileResult::Absent)]);
        }
        let doomed = w.killable_worker().await;
        let id = w.job_of(target).await.id;
        w.s.notifier.take();
        doomed.start(id);
        gate.wait_until_entered().await;
        doomed.kill().await;
        assert_eq!(w.state(id).await, JobState::Running);
        w.advance(MAX_CALL_SECONDS + LEASE_EXPIRY_SECONDS);
        w.scheduler.tick().await.unwrap();
        assert_eq!(w.show(id).await.crashes, crash);
    }
    (post, target)
}

async fn repeated_crashes_are_poison(w: TestWorker) {
    w.leaves_jobs();
    let (post, target) = kill_worker_three_times(&w, false).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.last_error.as_deref(), job.attempt), (JobState::Dead, Some("poison"), 3));
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!(
        (ended.status, error.code.as_str(), error.category),
        (TargetStatus::Failed, "internal", Category::Internal)
    );
    assert_eq!((w.post_status(post).await, w.events().await), (PostStatus::Failed, vec!["post.failed".to_owned()]));
    w.run_until_idle().await;
    assert_eq!(w.fake.count("publish"), 3, "it is not run again");
}

async fn republishing_a_poisoned_post_finds_the_published_one(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = publish_to(&w, PublishStep::AcceptAndHang).await;
    w.set_crashes(w.job_of(target).await.id, 2).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.target(target).await.error.unwrap().code, "internal");
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_poisoned_post_that_cannot_be_looked_up_has_an_unknown_outcome(w: TestWorker) {
    w.leaves_jobs();
    let (_, target) = publish_to(&w, PublishStep::AcceptAndHang).await;
    w.sql("UPDATE post_targets SET platform = 'telegram'").await;
    w.set_crashes(w.job_of(target).await.id, 2).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.scheduler.tick().await.unwrap();
    let ended = w.target(target).await;
    assert!(ended.may_be_published(), "a retry would publish it twice: {ended:?}");
}

/// Invariant: of three jobs that ran in the processes that died, the one that killed them is dead. The posts of the
/// others are published once.
async fn jobs_next_to_a_crashing_job_are_unaffected(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let accounts = [w.account.id, w.another_account("b").await.id, w.another_account("c").await.id];
    let (post, targets) = w.publish(&accounts).await;
    let ids = w.s.notifier.take();
    for crash in 1..=3 {
        let gate = Gate::new();
        w.fake.script_publishes([
            PublishStep::Hang(gate.clone()),
            PublishStep::Hang(gate.clone()),
            PublishStep::Hang(gate.clone()),
        ]);
        let doomed = w.killable_worker().await;
        doomed.start(ids[0]);
        gate.wait_until_entered().await;
        doomed.start(ids[1]);
        doomed.start(ids[2]);
        if crash < 3 {
            // A job with two crashes runs alone: no job runs next to it the third time.
            gate.wait_until_entered().await;
            gate.wait_until_entered().await;
        }
        doomed.kill().await;
        w.fake.clear_script();
        w.advance(MAX_CALL_SECONDS + LEASE_EXPIRY_SECONDS);
        w.scheduler.tick().await.unwrap();
        w.s.notifier.take();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(w.show(*id).await.crashes, if i == 0 { crash } else { crash.min(2) });
        }
    }
    let killer = w.show(ids[0]).await;
    assert_eq!((killer.state, killer.last_error.as_deref()), (JobState::Dead, Some("poison")));
    let failed = w.target(targets[0]).await;
    assert_eq!((failed.status, failed.error.unwrap().code.as_str()), (TargetStatus::Failed, "internal"));
    w.run_until_idle().await;
    for target in &targets[1..] {
        assert_eq!(w.target(*target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.post_status(post).await, w.fake.posts().len()), (PostStatus::PartiallyPublished, 2));
    let mut events = w.events().await;
    events.sort();
    assert_eq!(events, ["post.failed", "post.published", "post.published"]);
    assert_eq!(w.fake.count("publish"), 3 + 3 + 1 + 2);
}

async fn a_suspect_runs_alone(w: TestWorker) {
    let (first, alone, after) = (Gate::new(), Gate::new(), Gate::new());
    let behaviors = [
        (1, JobBehavior::Wait(first.clone())),
        (2, JobBehavior::Wait(alone.clone())),
        (3, JobBehavior::Wait(after.clone())),
    ];
    let engine = scripted_engine(&w, behaviors);
    let ids = [enqueue_noop(&w, 1).await, enqueue_noop(&w, 2).await, enqueue_noop(&w, 3).await];
    w.set_crashes(ids[1], 2).await;
    let mut runs = vec![start(&engine, ids[0])];
    first.wait_until_entered().await;
    runs.push(start(&engine, ids[1]));
    // The second job was claimed, recognized as a suspect, and released: a crash of the first one would not count
    // against it.
    w.poll_until(async || w.number(format!("SELECT fence FROM jobs WHERE id = {}", ids[1])).await == 1).await;
    w.poll_until(async || w.state(ids[1]).await == JobState::Ready).await;
    assert_eq!(w.show(ids[1]).await.attempt, 0);
    first.let_through();
    alone.wait_until_entered().await;
    assert_eq!(engine.held(), [ids[1]]);
    runs.push(start(&engine, ids[2]));
    tokio::task::yield_now().await;
    assert_eq!(w.state(ids[2]).await, JobState::Ready, "no job is claimed next to it");
    alone.let_through();
    after.wait_until_entered().await;
    after.let_through();
    for run in runs {
        assert!(run.await.unwrap());
    }
}

async fn a_suspect_notified_repeatedly_waits_once(w: TestWorker) {
    let (first, alone) = (Gate::new(), Gate::new());
    let engine = scripted_engine(&w, [(1, JobBehavior::Wait(first.clone())), (2, JobBehavior::Wait(alone.clone()))]);
    let ids = [enqueue_noop(&w, 1).await, enqueue_noop(&w, 2).await];
    w.set_crashes(ids[1], 2).await;
    let run = start(&engine, ids[0]);
    first.wait_until_entered().await;
    let waiting = start(&engine, ids[1]);
    w.poll_until(async || w.number(format!("SELECT fence FROM jobs WHERE id = {}", ids[1])).await == 1).await;
    w.poll_until(async || w.state(ids[1]).await == JobState::Ready).await;
    let again = [start(&engine, ids[1]), start(&engine, ids[1])];
    first.let_through();
    run.await.unwrap();
    alone.wait_until_entered().await;
    alone.let_through();
    assert!(waiting.await.unwrap());
    for again in again {
        assert!(!again.await.unwrap());
    }
    assert_eq!(w.state(ids[1]).await, JobState::Done);
}

async fn a_suspect_that_could_not_begin_still_runs_alone(w: TestWorker) {
    let (first, alone, other) = (Gate::new(), Gate::new(), Gate::new());
    let behaviors = [
        (1, JobBehavior::Wait(first.clone())),
        (2, JobBehavior::Wait(alone.clone())),
        (3, JobBehavior::Wait(other.clone())),
    ];
    let engine = scripted_engine(&w, behaviors);
    let ids = [enqueue_noop(&w, 1).await, enqueue_noop(&w, 2).await, enqueue_noop(&w, 3).await];
    w.set_crashes(ids[1], 2).await;
    let is_released_after = async |fence: i64| {
        w.poll_until(async || w.number(format!("SELECT fence FROM jobs WHERE id = {}", ids[1])).await == fence).await;
        w.poll_until(async || w.state(ids[1]).await == JobState::Ready).await;
    };
    let run = start(&engine, ids[0]);
    first.wait_until_entered().await;
    let waiting = start(&engine, ids[1]);
    is_released_after(1).await;
    w.sql("INSERT INTO paused_kinds (kind) VALUES ('noop')").await;
    first.let_through();
    run.await.unwrap();
    assert!(!waiting.await.unwrap(), "its kind is paused");
    w.sql("DELETE FROM paused_kinds").await;

    let run = start(&engine, ids[2]);
    other.wait_until_entered().await;
    let waiting = start(&engine, ids[1]);
    is_released_after(2).await;
    other.let_through();
    run.await.unwrap();
    alone.wait_until_entered().await;
    assert_eq!(engine.held(), [ids[1]]);
    alone.let_through();
    assert!(waiting.await.unwrap());
}
