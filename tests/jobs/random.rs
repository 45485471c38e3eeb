//! One post on three accounts, with platform responses and worker crashes in any order: the platform never has a
//! duplicate, and the final result matches the platform.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use crier_domain::failure::Category;
use crier_domain::job::JobKind;
use crier_domain::post::{PostStatus, TargetStatus};
use crier_worker::engine::Run;
use crier_worker::jobs::RunError;
use futures::FutureExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::fake_platform::{Gate, PublishStep, auth_expired, permanent, rate_limited, transient, unknown};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker};
use crate::support::size::sized;
use crate::support::store::TestStore;

/// The next event for one of the notified jobs, or for all of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Publish,
    Transient,
    Permanent,
    RateLimited,
    AuthExpired,
    /// The connection is lost. The flag says whether the platform accepted the post.
    ConnectionLost(bool),
    Panic,
    /// The worker dies in the transaction before the call.
    CrashBeforeCall,
    /// The worker dies during the call. The flag says whether the platform accepted the post.
    CrashDuringCall(bool),
    /// The worker dies during the call, and the platform accepts the post this many seconds later.
    CrashThenAccept(i64),
    /// The worker dies after the response, before it is stored.
    CrashAfterResponse,
    /// The worker freezes after the response, and stores it after its lease has expired.
    Freeze,
    /// Advances the clock, in seconds.
    Wait(i64),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Publish),
        2 => Just(Step::Transient),
        1 => Just(Step::Permanent),
        1 => Just(Step::RateLimited),
        1 => Just(Step::AuthExpired),
        3 => any::<bool>().prop_map(Step::ConnectionLost),
        1 => Just(Step::Panic),
        2 => Just(Step::CrashBeforeCall),
        4 => any::<bool>().prop_map(Step::CrashDuringCall),
        3 => (1_i64..MAX_CALL_SECONDS).prop_map(Step::CrashThenAccept),
        2 => Just(Step::CrashAfterResponse),
        2 => Just(Step::Freeze),
        4 => (1_i64..120).prop_map(Step::Wait),
    ]
}

/// A scenario: whether the platform can be reconciled, and the steps, each with an index into the notified jobs.
fn scenario() -> impl Strategy<Value = (bool, Vec<(usize, Step)>)> {
    (prop::bool::weighted(0.7), prop::collection::vec((0_usize..3, step()), 1..25))
}

fn explore<F: Future<Output = TestStore>>(cases: u32, open: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 300, failure_persistence: None, ..Config::default() };
    let check = |scenario: (bool, Vec<(usize, Step)>)| {
        runtime.block_on(async { run_scenario(TestWorker::over(open().await).await, scenario.0, &scenario.1).await });
        Ok(())
    };
    TestRunner::new(config).run(&scenario(), check).unwrap();
}

#[test]
fn no_scenario_publishes_twice_on_sqlite() {
    explore(sized(60, 15), TestStore::sqlite);
}

#[test]
fn no_scenario_publishes_twice_on_postgres() {
    explore(sized(25, 5), TestStore::postgres);
}

async fn run_scenario(w: TestWorker, can_reconcile: bool, steps: &[(usize, Step)]) {
    w.leaves_jobs();
    if !can_reconcile {
        w.fake.disable_reconcile();
    }
    w.listen_at("http://127.0.0.1:1/").await;
    let accounts = [w.account.id, w.another_account("b").await.id, w.another_account("c").await.id];
    let (post, targets) = w.publish(&accounts).await;
    let mut notified = w.s.notifier.take();
    for (index, step) in steps {
        w.scheduler.tick().await.unwrap();
        notified.extend(w.s.notifier.take());
        // Deliveries of events are not part of this test.
        let mut publish_jobs = Vec::new();
        for id in notified {
            if w.show(id).await.kind == JobKind::PublishTarget && !publish_jobs.contains(&id) {
                publish_jobs.push(id);
            }
        }
        notified = publish_jobs;
        if let Step::Wait(seconds) = step {
            w.advance(*seconds);
        } else if !notified.is_empty() {
            let id = notified.remove(index % notified.len());
            execute(&w, id, *step).await;
        }
    }
    w.fake.clear_script();
    w.s.notifier.take();
    w.run_until_idle().await;
    // Posts that the platform accepts late exist by now.
    w.advance(MAX_CALL_SECONDS);
    assert_matches_platform(&w, post, &targets, can_reconcile).await;
}

pub(super) async fn execute(w: &TestWorker, id: i64, step: Step) {
    w.fake.clear_script();
    let gate = Gate::new();
    match step {
        Step::Publish | Step::Wait(_) => {}
        Step::Transient => w.fake.script_publishes([PublishStep::Reject(transient())]),
        Step::Permanent => w.fake.script_publishes([PublishStep::Reject(permanent())]),
        Step::RateLimited => w.fake.script_publishes([PublishStep::Reject(rate_limited(w.later(90)))]),
        Step::AuthExpired => w.fake.script_publishes([PublishStep::Reject(auth_expired())]),
        Step::ConnectionLost(true) => w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]),
        Step::ConnectionLost(false) => w.fake.script_publishes([PublishStep::Reject(unknown())]),
        Step::Panic => w.fake.script_publishes([PublishStep::Panic]),
        Step::CrashBeforeCall => w.fake.panic_at_marker(),
        Step::CrashDuringCall(true) => w.fake.script_publishes([PublishStep::AcceptAndHang(gate.clone())]),
        Step::CrashDuringCall(false) => w.fake.script_publishes([PublishStep::Hang(gate.clone())]),
        Step::CrashThenAccept(seconds) => w.fake.script_publishes([PublishStep::AcceptLater(gate.clone(), seconds)]),
        Step::CrashAfterResponse | Step::Freeze => {}
    }
    if !matches!(
        step,
        Step::CrashBeforeCall
            | Step::CrashDuringCall(_)
            | Step::CrashThenAccept(_)
            | Step::CrashAfterResponse
            | Step::Freeze
    ) {
        w.engine.run(id).await;
        return;
    }
    let Some(claimed) = w.claim(&[id], "doomed").await.pop() else { return };
    let (handler, run) = (w.handler(JobKind::PublishTarget), Run::new(claimed.clone()));
    let ended = tokio::select! {
        ended = AssertUnwindSafe(handler.run(&run)).catch_unwind() => ended.ok(),
        // The run is dropped here: its transaction is rolled back, and its call is aborted.
        () = gate.wait_until_entered() => None,
    };
    let (Step::Freeze, Some(result @ (Ok(_) | Err(RunError::Ended(_))))) = (step, ended) else { return };
    w.advance(LEASE_EXPIRY_SECONDS);
    w.scheduler.tick().await.unwrap();
    assert!(!w.settle_result(&claimed, &result).await, "its lease is lost");
}

async fn assert_matches_platform(w: &TestWorker, post: i64, targets: &[i64], can_reconcile: bool) {
    let mut platform_posts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for posted in w.fake.posts() {
        platform_posts.entry(posted.marker).or_default().push(posted.id);
    }
    assert!(platform_posts.values().all(|ids| ids.len() == 1), "two posts with one marker: {platform_posts:?}");
    let (mut published, mut statuses) = (0, Vec::new());
    for target in targets {
        let target = w.target(*target).await;
        let marker = target.marker.as_ref().and_then(|marker| marker.get("key")?.as_str()).unwrap_or_default();
        let on_platform = platform_posts.get(marker).map(|ids| ids[0].clone());
        statuses.push(target.status);
        match (target.status, target.error.as_ref().map(|error| error.category)) {
            (TargetStatus::Published, None) => {
                published += 1;
                assert_eq!(target.external_id, on_platform, "the stored id matches the platform");
            }
            // With these categories, the post may exist.
            (TargetStatus::Failed, Some(Category::OutcomeUnknown | Category::Internal)) => {}
            (TargetStatus::Failed, Some(category)) => {
                assert_eq!(on_platform, None, "{category} was reported, but the post exists");
            }
            other => panic!("{other:?} is not final"),
        }
        // If the platform can be reconciled, the outcome stays unknown only if no attempt is left.
        if can_reconcile && target.error.as_ref().is_some_and(|error| error.category == Category::OutcomeUnknown) {
            assert!(target.attempts >= 8, "failed after {} attempts", target.attempts);
        }
        let about = |end| format!("payload LIKE '%\"social_account_id\":{}{end}%'", target.account_id);
        let reported = format!("events WHERE {} OR {}", about(','), about('}'));
        assert_eq!(w.count_rows(reported).await, 1, "one event for each target");
    }
    let events = w.events().await;
    assert_eq!(events.iter().filter(|name| *name == "post.published").count(), published);
    assert_eq!(Some(w.post_status(post).await), PostStatus::of_targets(&statuses));
    let open = "jobs WHERE kind = 'publish_target' AND state NOT IN ('done', 'dead', 'cancelled')";
    assert_eq!(w.count_rows(open).await, 0, "nothing is left to do");
}
