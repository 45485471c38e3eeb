//! Credits: for any sequence of requests, the usage equals the credits reserved and not refunded, and never exceeds the
//! plan's limit.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use crier_domain::ai::Operation;
use crier_store::ai_credits::{self, CreditRequest};
use crier_store::users;
use futures::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::size::sized;
use crate::support::store::{TestStore, World, on_both};

on_both!(
    a_reservation_is_settled_once,
    concurrent_reservations_never_exceed_the_cap,
    usage_is_counted_without_a_cap,
    the_month_ends_in_the_workspace_time_zone,
);

const CAP: u64 = 100;

fn credit_request(w: World, credits: u64) -> CreditRequest {
    CreditRequest {
        workspace_id: w.workspace,
        brand_id: w.brand,
        operation: Operation::Hashtags,
        credits,
        cap: Some(CAP),
    }
}

/// Counts the months whose usage is not the sum of their credits, or is out of bounds.
const INCONSISTENT_MONTHS: &str = "
    SELECT count(*)
    FROM ai_usage u
    WHERE u.used < 0
        OR u.used > 100
        OR u.used <> (
            SELECT coalesce(sum(b.credits), 0)
            FROM ai_brand_usage b
            WHERE b.workspace_id = u.workspace_id AND b.month = u.month
        ) + (
            SELECT coalesce(sum(r.credits), 0)
            FROM ai_reservations r
            WHERE r.workspace_id = u.workspace_id AND r.month = u.month
        )";

async fn reserve(s: &TestStore, request: &CreditRequest) -> Option<i64> {
    s.write(async |tx| ai_credits::reserve(tx, request).await).await
}

async fn used(s: &TestStore, w: World) -> i64 {
    ai_credits::used(&mut s.conn().await, w.workspace, s.now()).await.unwrap()
}

async fn a_reservation_is_settled_once(s: TestStore) {
    let (w, other) = (s.create_world().await, s.workspace().await);
    let id = reserve(&s, &credit_request(w, 40)).await.unwrap();
    assert!(!s.write(async |tx| ai_credits::consume(tx, other, id).await).await, "it is another workspace's");
    assert!(!s.write(async |tx| ai_credits::refund(tx, other, id).await).await);
    assert!(s.discard(async |tx| ai_credits::consume(tx, w.workspace, id).await).await);
    assert!(s.write(async |tx| ai_credits::consume(tx, w.workspace, id).await).await);
    assert!(!s.write(async |tx| ai_credits::consume(tx, w.workspace, id).await).await);
    assert!(!s.write(async |tx| ai_credits::refund(tx, w.workspace, id).await).await);
    assert_eq!((used(&s, w).await, s.number(INCONSISTENT_MONTHS).await), (40, 0));
    assert!(reserve(&s, &credit_request(w, 61)).await.is_none());
    let id = reserve(&s, &credit_request(w, 60)).await.unwrap();
    assert!(s.write(async |tx| ai_credits::refund(tx, w.workspace, id).await).await);
    assert!(!s.write(async |tx| ai_credits::refund(tx, w.workspace, id).await).await);
    assert_eq!((used(&s, w).await, s.number(INCONSISTENT_MONTHS).await), (40, 0));
    assert!(reserve(&s, &credit_request(w, 101)).await.is_none(), "more than the whole month has");
}

async fn concurrent_reservations_never_exceed_the_cap(s: TestStore) {
    let w = s.create_world().await;
    let one = async |n: usize| {
        let id = reserve(&s, &credit_request(w, 15)).await?;
        Some(match n % 3 {
            0 => s.write(async |tx| ai_credits::consume(tx, w.workspace, id).await).await,
            1 => !s.write(async |tx| ai_credits::refund(tx, w.workspace, id).await).await,
            _ => false,
        })
    };
    let outcomes = join_all((0..30).map(one)).await;
    assert_eq!(s.number(INCONSISTENT_MONTHS).await, 0);
    let paid = outcomes.iter().flatten().filter(|paid| **paid).count() as i64;
    let held = s.number("SELECT count(*) FROM ai_reservations").await;
    assert_eq!(used(&s, w).await, 15 * (paid + held));
    s.advance(60);
    let refunded = s.write(async |tx| ai_credits::refund_expired(tx, 100).await).await;
    assert_eq!((refunded as i64, used(&s, w).await, s.number(INCONSISTENT_MONTHS).await), (held, 15 * paid, 0));
}

async fn usage_is_counted_without_a_cap(s: TestStore) {
    let w = s.create_world().await;
    let unlimited = CreditRequest { cap: None, ..credit_request(w, 1_000_000) };
    for n in 1..=3 {
        assert!(reserve(&s, &unlimited).await.is_some());
        assert_eq!(used(&s, w).await, n * 1_000_000);
    }
}

async fn the_month_ends_in_the_workspace_time_zone(s: TestStore) {
    let w = s.create_world().await;
    let july = "2026-07-01T00:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    s.clock.advance(july - s.now());
    reserve(&s, &credit_request(w, 100)).await.expect("July has begun in Greenwich");
    s.write(async |tx| users::set_timezone(tx, w.workspace, "America/New_York").await).await;
    assert_eq!(used(&s, w).await, 0, "it is June there");
    s.clock.advance(TimeDelta::hours(4));
    assert_eq!(used(&s, w).await, 100);
}

/// One step. The numbers select workspaces and open reservations.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(usize, u64),
    Consume(usize),
    /// A consume whose transaction is rolled back.
    ConsumeAndRollBack(usize),
    Refund(usize),
    /// The scheduler refunds abandoned reservations after this many seconds.
    RefundExpired(i64),
    /// Advances the clock, also into other months.
    AdvanceDays(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..2, 1_u64..70).prop_map(|(w, credits)| Step::Reserve(w, credits)),
        3 => any::<usize>().prop_map(Step::Consume),
        1 => any::<usize>().prop_map(Step::ConsumeAndRollBack),
        3 => any::<usize>().prop_map(Step::Refund),
        2 => (0_i64..90).prop_map(Step::RefundExpired),
        1 => (1_i64..25).prop_map(Step::AdvanceDays),
    ]
}

/// The expected state: the credits of each workspace and month, and the open reservations.
#[derive(Default)]
struct Model {
    used: BTreeMap<(i64, String), u64>,
    open: Vec<(i64, i64, String, u64, chrono::DateTime<chrono::Utc>)>,
}

async fn run_steps(s: TestStore, steps: &[Step]) {
    let user = s.workspace().await;
    let worlds = [s.create_world().await, World { workspace: user, user: 0, brand: 77 }];
    let mut model = Model::default();
    for step in steps {
        let pick_open = |n: usize, open: &[_]| (!open.is_empty()).then(|| n % open.len().max(1));
        match *step {
            Step::Reserve(at, credits) => {
                let (w, month) = (worlds[at], s.now().format("%Y-%m").to_string());
                let used = model.used.entry((w.workspace, month.clone())).or_default();
                let id = reserve(&s, &credit_request(w, credits)).await;
                assert_eq!(id.is_some(), *used + credits <= CAP, "{step:?}: {used} are used");
                if let Some(id) = id {
                    *used += credits;
                    model.open.push((id, w.workspace, month, credits, s.later(60)));
                }
            }
            Step::Consume(n) => {
                let Some(n) = pick_open(n, &model.open) else { continue };
                let (id, workspace, ..) = model.open.remove(n);
                assert!(s.write(async |tx| ai_credits::consume(tx, workspace, id).await).await);
            }
            Step::ConsumeAndRollBack(n) => {
                let Some(n) = pick_open(n, &model.open) else { continue };
                let (id, workspace, ..) = &model.open[n];
                assert!(s.discard(async |tx| ai_credits::consume(tx, *workspace, *id).await).await);
            }
            Step::Refund(n) => {
                let Some(n) = pick_open(n, &model.open) else { continue };
                let (id, workspace, month, credits, _) = model.open.remove(n);
                assert!(s.write(async |tx| ai_credits::refund(tx, workspace, id).await).await);
                *model.used.get_mut(&(workspace, month)).unwrap() -= credits;
            }
            Step::RefundExpired(seconds) => {
                s.advance(seconds);
                let now = s.now();
                let (expired, open): (Vec<_>, Vec<_>) = model.open.drain(..).partition(|one| one.4 <= now);
                model.open = open;
                for (_, workspace, month, credits, _) in &expired {
                    *model.used.get_mut(&(*workspace, month.clone())).unwrap() -= credits;
                }
                let refunded = s.write(async |tx| ai_credits::refund_expired(tx, 100).await).await;
                assert_eq!(refunded, expired.len());
            }
            Step::AdvanceDays(days) => s.clock.advance(TimeDelta::days(days)),
        }
        assert_eq!(s.number(INCONSISTENT_MONTHS).await, 0, "{step:?}");
        let month = s.now().format("%Y-%m").to_string();
        for w in worlds {
            let expected = model.used.get(&(w.workspace, month.clone())).copied().unwrap_or(0);
            assert_eq!(used(&s, w).await, i64::try_from(expected).unwrap(), "{step:?}");
        }
    }
}

fn explore<F: Future<Output = TestStore>>(cases: u32, open: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let check_steps = |steps: Vec<Step>| {
        runtime.block_on(async { run_steps(open().await, &steps).await });
        Ok(())
    };
    TestRunner::new(config).run(&prop::collection::vec(step(), 1..40), check_steps).unwrap();
}

#[test]
fn usage_equals_the_sum_of_reservations_on_sqlite() {
    explore(sized(40, 10), TestStore::sqlite);
}

#[test]
fn usage_equals_the_sum_of_reservations_on_postgres() {
    explore(sized(15, 4), TestStore::postgres);
}
