//! Sites that accept connections and never respond do not block others, and a failed run leaves no call open.

use std::sync::Arc;
use std::time::Duration;

use crier_config::Concurrency;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::JobKind;
use crier_domain::post::TargetStatus;
use crier_platforms::CallError;
use crier_queue::memory::MemoryNotifier;
use crier_store::Store;
use crier_store::jobs::dispatch;
use tokio_util::sync::CancellationToken;

use crate::support::client::until;
use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::cipher;

worker_on_both!(hanging_sites_release_their_slots, a_run_failing_after_a_rejection_leaves_no_open_call);

/// The sites of two accounts hang, with more posts than this worker has slots: the post of a third account is still
/// published.
async fn hanging_sites_release_their_slots(w: TestWorker) {
    w.leaves_jobs();
    let gate = Gate::new();
    w.fake.script_publishes((0..8).map(|_| PublishStep::Hang(gate.clone())));
    let notifier = Arc::new(MemoryNotifier::default());
    let store = Store::new(w.db().clone(), w.clock.clone(), cipher(), notifier.clone());
    let stop = CancellationToken::new();
    let engine = w.engine_for(store.clone(), &[JobKind::PublishTarget]);
    let worker =
        tokio::spawn(crier_worker::run(engine.clone(), notifier, Concurrency::each(4), Duration::ZERO, stop.clone()));
    let notify = async || {
        let mut tx = store.begin().await.unwrap();
        dispatch::renotify_stale(&mut tx, JobKind::PublishTarget, w.later(1), 100).await.unwrap();
        tx.commit().await.unwrap();
    };
    let other = w.another_account("hangs-too").await;
    for _ in 0..4 {
        w.publish(&[w.account.id, other.id]).await;
    }
    until("all hang", || async {
        notify().await;
        (engine.held().len() == 8).then_some(())
    })
    .await;
    let third = w.another_account("responds").await;
    let (_, targets) = w.publish(&[third.id]).await;
    until("the third is published", || async {
        notify().await;
        (w.target(targets[0]).await.status == TargetStatus::Published).then_some(())
    })
    .await;
    stop.cancel();
    worker.await.unwrap();
}

/// The platform rejected the call, and the database fails before the run has refreshed the token. The outcome is known,
/// so the next run calls again, although this platform cannot be reconciled.
async fn a_run_failing_after_a_rejection_leaves_no_open_call(w: TestWorker) {
    w.fake.disable_reconcile();
    let rejected = Failure::of(Category::AuthExpired, "The token is not valid.");
    w.fake.script_publishes([PublishStep::Reject(CallError::AuthExpired(rejected))]);
    let (_, target) = w.publish_one().await;
    reject_account_updates(&w).await;
    assert!(w.engine.run(w.notified_job()).await);
    let after = w.target(target).await;
    assert_eq!((after.status, after.call_started_at, after.attempts), (TargetStatus::Publishing, None, 1));
    w.sql(if w.is_postgres() { "DROP TRIGGER reject ON social_accounts" } else { "DROP TRIGGER reject" }).await;
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn reject_account_updates(w: &TestWorker) {
    w.sql(match w.is_postgres() {
        true => {
            "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'rejected'; END $$;
             CREATE TRIGGER reject BEFORE UPDATE ON social_accounts FOR EACH ROW EXECUTE FUNCTION reject()"
        }
        false => "CREATE TRIGGER reject BEFORE UPDATE ON social_accounts BEGIN SELECT RAISE(ABORT, 'rejected'); END",
    })
    .await;
}
