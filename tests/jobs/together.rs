//! Runs of `publish_target` that begin together share the transaction before their calls.

use crier_domain::job::JobState;
use crier_domain::post::{PostStatus, TargetStatus};
use crier_store::posts;
use futures::future::join_all;

use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    runs_that_begin_together_publish_once_each,
    targets_of_one_post_begin_together,
    a_failing_run_does_not_affect_others,
    a_locked_post_does_not_delay_others,
);

async fn runs_that_begin_together_publish_once_each(w: TestWorker) {
    let mut targets = Vec::new();
    for number in 0..10 {
        let account = w.another_account(&format!("account-{number}")).await.id;
        for _ in 0..4 {
            targets.push(w.publish(&[account]).await);
        }
    }
    let started = join_all(w.s.notifier.take().into_iter().map(|id| w.engine.run(id))).await;
    assert_eq!(started, [true; 40]);
    assert_eq!((w.fake.posts().len(), w.fake.count("reconcile")), (40, 0));
    for (post, target) in targets {
        let ended = w.target(target[0]).await;
        assert_eq!((ended.status, ended.attempts), (TargetStatus::Published, 1));
        assert_eq!(w.post_status(post).await, PostStatus::Published);
    }
}

async fn targets_of_one_post_begin_together(w: TestWorker) {
    let mut accounts = vec![w.account.id];
    for number in 0..5 {
        accounts.push(w.another_account(&format!("account-{number}")).await.id);
    }
    let (post, targets) = w.publish(&accounts).await;
    // Resets the status, so that the first run changes it for all.
    w.change_post(post, |post| post.status = PostStatus::Scheduled).await;
    let started = join_all(w.s.notifier.take().into_iter().map(|id| w.engine.run(id))).await;
    assert_eq!(started, [true; 6]);
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((w.fake.posts().len(), targets.len()), (6, 6));
}

/// The second run panics while it is prepared: in the shared transaction, and again alone.
async fn a_failing_run_does_not_affect_others(w: TestWorker) {
    let other = w.another_account("other").await.id;
    let (_, fine) = w.publish_one().await;
    let (_, failing) = w.publish(&[other]).await;
    let ids = w.s.notifier.take();
    w.fake.panic_at_marker();
    join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    let states = [w.target(fine).await.status, w.target(failing[0]).await.status];
    assert!(states.contains(&TargetStatus::Published), "{states:?}");
    w.run_until_idle().await;
    assert_eq!((w.fake.posts().len(), w.fake.count("reconcile")), (2, 0), "each once, and no outcome was unknown");
}

async fn a_locked_post_does_not_delay_others(w: TestWorker) {
    let other = w.another_account("other").await.id;
    let (locked, target) = w.publish_one().await;
    let (_, free) = w.publish(&[other]).await;
    let ids = w.s.notifier.take();
    // On SQLite the lock blocks all writers, so nothing runs until it is released.
    let mut tx = w.begin().await.unwrap();
    posts::lock(&mut tx, locked).await.unwrap();
    if !w.is_postgres() {
        tx.rollback().await.unwrap();
        join_all(ids.iter().map(|id| w.engine.run(*id))).await;
        assert_eq!(w.fake.posts().len(), 2);
        return;
    }
    let locked_run = w.engine.run(ids[0]);
    tokio::pin!(locked_run);
    tokio::select! {
        _ = &mut locked_run => panic!("its post is locked"),
        started = w.engine.run(ids[1]) => assert!(started),
    }
    assert_eq!(w.target(free[0]).await.status, TargetStatus::Published);
    assert_eq!(
        (w.target(target).await.status, w.job_of(target).await.state),
        (TargetStatus::Pending, JobState::Running)
    );
    tx.rollback().await.unwrap();
    assert!(locked_run.await);
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}
