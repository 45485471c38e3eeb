//! After any sequence of new, late, edited and deleted messages, crashes, failures and syncs, each message is stored
//! once per brand, counted once, and has one event. Deleted messages have no text and are not counted.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use crier_domain::job::JobKind;
use crier_scheduler::tasks;
use crier_store::{accounts, conversations, inbox_syncs};
use crier_worker::engine::Run;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::inbox::{start, sync};
use crate::support::fake_inbox::{COMMENTS, DMS, OVERLAP, message};
use crate::support::fake_platform::{permanent, rate_limited, transient};
use crate::support::inbox::all;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker};
use crate::support::size::sized;
use crate::support::store::TestStore;

/// The maximum number of messages in one check for deletions.
const CHECK_LIMIT: usize = 25;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes messages: their number, their thread, whether they are in the second stream, and the seconds until each
    /// is visible.
    Write(usize, u8, bool, i64),
    /// Changes the text of the first message.
    Edit,
    /// Deletes the message at this index.
    Delete(u8),
    /// Marks the conversation at this index as read in the first brand.
    Read(u8),
    Sync,
    /// Starts a sync whose worker dies after this number of polls.
    Crash(u16),
    /// Makes the next fetch of the first or second stream fail.
    Fail(bool),
    RateLimit,
    Wait(i64),
    /// Advances the clock until the next check for deletions is due.
    WaitAnHour,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_usize..9, 0_u8..3, any::<bool>(), 0_i64..50).prop_map(|(n, t, dm, late)| Step::Write(n, t, dm, late)),
        1 => Just(Step::Edit),
        2 => any::<u8>().prop_map(Step::Delete),
        1 => any::<u8>().prop_map(Step::Read),
        1 => Just(Step::WaitAnHour),
        3 => Just(Step::Sync),
        4 => (0_u16..60).prop_map(Step::Crash),
        1 => any::<bool>().prop_map(Step::Fail),
        1 => Just(Step::RateLimit),
        3 => (1_i64..90).prop_map(Step::Wait),
    ]
}

fn explore<F: Future<Output = TestStore>>(cases: u32, open: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let check = |steps: Vec<Step>| {
        runtime.block_on(async { run_scenario(TestWorker::over(open().await).await, &steps).await });
        Ok(())
    };
    TestRunner::new(config).run(&prop::collection::vec(step(), 1..20), check).unwrap();
}

#[test]
fn each_message_is_stored_once_on_sqlite() {
    explore(sized(25, 6), TestStore::sqlite);
}

#[test]
fn each_message_is_stored_once_on_postgres() {
    explore(sized(10, 3), TestStore::postgres);
}

/// Makes the account due, and returns its job if it can be claimed.
async fn claim(w: &TestWorker) -> Option<crier_domain::job::ClaimedJob> {
    w.write(async |tx| inbox_syncs::request(tx, w.account.id, w.world.workspace, TimeDelta::zero(), None).await).await;
    let ids = w.s.notifier.take();
    let mut claimed = w.claim(&ids, "doomed").await;
    claimed.retain(|job| job.kind == JobKind::SyncInbox);
    claimed.pop()
}

async fn run_scenario(w: TestWorker, steps: &[Step]) {
    start(&w).await;
    w.fake.inbox.enable_deletion_check(CHECK_LIMIT);
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    let (mut written, mut deleted, mut has_read) = (BTreeMap::new(), BTreeSet::new(), false);
    for step in steps {
        match *step {
            Step::Write(count, thread, dm, late) => {
                let stream = if dm { DMS } else { COMMENTS };
                for _ in 0..count {
                    let (id, now) = (format!("m{:03}", written.len()), w.now());
                    let text = format!("text of {id}");
                    w.fake.inbox.add(stream, message(stream, &id, &format!("t{thread}"), &text, now), w.later(late));
                    written.insert(id, (stream, thread, now));
                    w.clock.advance(TimeDelta::milliseconds(100));
                }
            }
            Step::Edit => {
                if let Some((id, (stream, thread, at))) = written.iter().next() {
                    // An edit is noticed only while the message is in the overlap.
                    if w.now() - *at < OVERLAP / 2 && !deleted.contains(id) {
                        let text = format!("changed at {}", w.now());
                        let edited = message(stream, id, &format!("t{thread}"), &text, *at);
                        w.fake.inbox.add(stream, edited, *at);
                    }
                }
            }
            Step::Delete(place) => {
                if let Some(id) = written.keys().nth(usize::from(place) % written.len().max(1)) {
                    w.fake.inbox.remove(id);
                    deleted.insert(id.clone());
                }
            }
            Step::Read(place) => {
                let all = all(&w, w.world.brand).await;
                if let Some(found) = all.get(usize::from(place) % all.len().max(1)) {
                    has_read = true;
                    w.write(async |tx| conversations::mark_read(tx, found.id).await).await;
                }
            }
            Step::Sync => sync(&w).await,
            Step::Crash(polls) => {
                if let Some(job) = claim(&w).await {
                    let (handler, run) = (w.handler(JobKind::SyncInbox), Run::new(job));
                    let mut running = Box::pin(handler.run(&run));
                    for _ in 0..polls {
                        if futures::poll!(&mut running).is_ready() {
                            break;
                        }
                        tokio::time::sleep(std::time::Duration::from_micros(200)).await;
                    }
                    drop(running);
                    w.advance(LEASE_EXPIRY_SECONDS);
                }
            }
            Step::Fail(dm) => {
                w.fake.inbox.fail_fetch(if dm { DMS } else { COMMENTS }, if dm { transient() } else { permanent() });
            }
            Step::RateLimit => w.fake.inbox.fail_fetch(COMMENTS, rate_limited(w.later(40))),
            Step::Wait(seconds) => w.advance(seconds),
            Step::WaitAnHour => w.advance(3_700),
        }
    }
    // Waits for pauses, leases and late messages, and uses up the remaining failures.
    let mut rounds = 3;
    while rounds > 0 {
        rounds -= usize::from(!w.fake.inbox.has_failures());
        w.advance(120);
        w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
        tasks::inbox::run(&w.scheduler).await.unwrap();
        sync(&w).await;
    }
    // Each message is checked for deletion.
    for _ in 0..2 * (written.len() / CHECK_LIMIT + 2) {
        w.advance(3_700);
        sync(&w).await;
    }
    let removed: Vec<String> = deleted.iter().map(|id| format!("'{id}'")).chain(["''".to_owned()]).collect();
    for brand in [w.world.brand, other] {
        let count = async |what: &str, condition: String| {
            w.number(format!("SELECT count({what}) FROM messages WHERE brand_id = {brand} AND {condition}")).await
        };
        let remaining = (written.len() - deleted.len()) as i64;
        assert_eq!(count("*", "deleted_at IS NULL".to_owned()).await, remaining);
        assert_eq!(count("DISTINCT external_id", "deleted_at IS NULL".to_owned()).await, remaining);
        let not_cleared = format!("(deleted_at IS NULL OR body <> '') AND external_id IN ({})", removed.join(", "));
        assert_eq!(count("*", not_cleared).await, 0);
        let unread: i64 = all(&w, brand).await.iter().map(|found| i64::from(found.unread_count)).sum();
        assert_eq!(unread, count("*", "is_unread AND deleted_at IS NULL".to_owned()).await);
        assert!(unread == remaining || (has_read && brand == w.world.brand));
    }
    assert_eq!(w.events().await.len() as i64, w.count_rows("messages").await);
}
