//! A thread of three parts, with platform responses and worker crashes in any order: each part exists at most once and
//! in order, and a retry continues where the thread stopped.

use crier_domain::failure::Category;
use crier_domain::post::{PostStatus, TargetStatus};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::random::{Step, execute, step};
use crate::support::jobs::{MAX_CALL_SECONDS, TestWorker};
use crate::support::size::sized;
use crate::support::store::TestStore;

const TEXTS: [&str; 3] = ["Fresh bread", "second part", "third part"];

/// A scenario: whether the platform publishes a whole thread in one call, whether it can be reconciled, and the steps.
fn scenario() -> impl Strategy<Value = (bool, bool, Vec<Step>)> {
    (any::<bool>(), prop::bool::weighted(0.8), prop::collection::vec(step(), 1..30))
}

fn explore<F: Future<Output = TestStore>>(cases: u32, open: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 300, failure_persistence: None, ..Config::default() };
    let check = |(is_atomic, can_reconcile, steps): (bool, bool, Vec<Step>)| {
        runtime.block_on(async {
            run_scenario(TestWorker::over(open().await).await, is_atomic, can_reconcile, &steps).await;
        });
        Ok(())
    };
    TestRunner::new(config).run(&scenario(), check).unwrap();
}

#[test]
fn no_scenario_publishes_a_part_twice_on_sqlite() {
    explore(sized(60, 15), TestStore::sqlite);
}

#[test]
fn no_scenario_publishes_a_part_twice_on_postgres() {
    explore(sized(25, 5), TestStore::postgres);
}

async fn run_scenario(w: TestWorker, is_atomic: bool, can_reconcile: bool, steps: &[Step]) {
    w.leaves_jobs();
    if is_atomic {
        w.fake.publish_whole_threads();
    }
    if !can_reconcile {
        w.fake.disable_reconcile();
    }
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_thread(&TEXTS[1..]).await;
    w.s.notifier.take();
    for step in steps {
        w.scheduler.tick().await.unwrap();
        w.s.notifier.take();
        match step {
            Step::Wait(seconds) => w.advance(*seconds),
            step => {
                let job = w.job_of(target).await.id;
                execute(&w, job, *step).await;
            }
        }
    }
    w.fake.clear_script();
    w.run_until_idle().await;
    w.advance(MAX_CALL_SECONDS);
    assert_matches_platform(&w, target, is_atomic).await;

    let ended = w.target(target).await;
    // If the platform cannot tell, a person decides whether a call of unknown outcome is repeated.
    let is_unknown = ended.may_be_published() || ended.call_started_at.is_some();
    if ended.error.is_none() || is_unknown && !can_reconcile {
        return;
    }
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_matches_platform(&w, target, is_atomic).await;
    assert_eq!(w.post_status(post).await, PostStatus::Published, "{:?}", w.target(target).await.error);
    assert_eq!(w.fake.posts().len(), TEXTS.len());
}

/// Asserts that the parts on the platform are a chain without duplicates, and those that are stored.
async fn assert_matches_platform(w: &TestWorker, target: i64, is_atomic: bool) {
    let (posts, target) = (w.fake.posts(), w.target(target).await);
    assert!(posts.len() <= TEXTS.len(), "{posts:?}");
    for (i, posted) in posts.iter().enumerate() {
        let parent = i.checked_sub(1).map(|before| posts[before].id.clone());
        assert_eq!((posted.text.as_str(), &posted.parent), (TEXTS[i], &parent));
    }
    assert!(!is_atomic || posts.is_empty() || posts.len() == TEXTS.len(), "all parts or none: {posts:?}");
    let stored: Vec<&str> = target.published_parts.iter().map(|part| part.external_id.as_str()).collect();
    let ids: Vec<&str> = posts.iter().map(|posted| posted.id.as_str()).collect();
    match (target.status, target.error.map(|error| error.category)) {
        (TargetStatus::Published, None) => assert_eq!((stored.as_slice(), ids.len()), (ids.as_slice(), TEXTS.len())),
        // With these categories, the next part may exist.
        (TargetStatus::Failed, Some(Category::OutcomeUnknown | Category::Internal)) => {
            assert!(ids.starts_with(&stored), "{stored:?} of {ids:?}");
        }
        (TargetStatus::Failed, Some(_)) => assert_eq!(stored, ids),
        other => panic!("{other:?} is not final"),
    }
    assert_eq!(target.external_id.as_deref().unwrap_or_default(), stored.first().copied().unwrap_or_default());
}
