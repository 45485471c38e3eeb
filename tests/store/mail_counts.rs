//! How many emails a workspace may cause per day.

use crier_store::mail_counts::{self, MAX_PER_ADDRESS, MailDecision};

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    concurrent_exports_never_exceed_a_limit,
    a_limit_holds_for_a_utc_day,
    emails_about_problems_are_counted_apart,
    old_counts_are_purged,
];

fn mailboxes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{name}@example.com")).collect()
}

async fn take(s: &TestStore, workspace: i64, cap: Option<u64>, names: &[&str]) -> Vec<MailDecision> {
    let mailboxes = mailboxes(names);
    s.write(async |tx| mail_counts::take_reports(tx, workspace, cap, &mailboxes).await).await
}

async fn used(s: &TestStore, workspace: i64) -> i64 {
    mail_counts::reports(&mut s.conn().await, workspace, s.now()).await.unwrap()
}

async fn concurrent_exports_never_exceed_a_limit(s: TestStore) {
    let (capped, other) = (s.workspace().await, s.workspace().await);
    let store = s.store.clone();
    let count_allowed = async |workspace: i64, cap: Option<u64>| {
        let decisions = run_concurrently(10, |n| {
            let store = store.clone();
            async move {
                // The same addresses in a different order.
                let mut mailboxes = mailboxes(&["ann", "bob", "cid"]);
                mailboxes.rotate_left(n % 3);
                let mut tx = store.begin().await.unwrap();
                let decisions = mail_counts::take_reports(&mut tx, workspace, cap, &mailboxes).await.unwrap();
                tx.commit().await.unwrap();
                decisions
            }
        })
        .await;
        decisions.into_iter().flatten().filter(|decision| *decision == MailDecision::Allowed).count()
    };
    assert_eq!(count_allowed(capped, Some(20)).await, 20);
    assert_eq!(used(&s, capped).await, 20);
    assert_eq!(take(&s, capped, Some(20), &["dan"]).await, [MailDecision::WorkspaceLimit]);
    // If the plan has no limit, the limit per address applies.
    for _ in 0..3 {
        count_allowed(other, None).await;
    }
    assert_eq!(used(&s, other).await, 3 * MAX_PER_ADDRESS);
    assert_eq!(take(&s, other, None, &["ann", "dan"]).await, [MailDecision::AddressLimit, MailDecision::Allowed]);
    assert_eq!(take(&s, other, Some(0), &["eve"]).await, [MailDecision::WorkspaceLimit]);
}

async fn a_limit_holds_for_a_utc_day(s: TestStore) {
    let w = s.workspace().await;
    s.clock.advance(s.now().date_naive().and_hms_opt(23, 59, 59).unwrap().and_utc() - s.now());
    let [allowed, limit] = [MailDecision::Allowed, MailDecision::WorkspaceLimit];
    assert_eq!(take(&s, w, Some(2), &["ann", "bob", "cid"]).await, [allowed, allowed, limit]);
    assert_eq!(
        s.discard(async |tx| mail_counts::take_reports(tx, w, None, &mailboxes(&["dan"])).await).await,
        [allowed]
    );
    assert_eq!(used(&s, w).await, 2, "what is rolled back does not count");
    s.clock.advance(chrono::TimeDelta::seconds(1));
    assert_eq!(used(&s, w).await, 0);
    assert_eq!(take(&s, w, Some(2), &["ann"]).await, [allowed]);
}

async fn emails_about_problems_are_counted_apart(s: TestStore) {
    let w = s.create_world().await;
    let digest = async |mailbox: &str| s.write(async |tx| mail_counts::take_digest(tx, w.user, mailbox).await).await;
    for _ in 0..MAX_PER_ADDRESS {
        assert!(digest("ann@example.com").await);
    }
    assert!(!digest("ann@example.com").await);
    assert!(digest("bob@example.com").await);
    assert_eq!(take(&s, w.workspace, Some(1), &["ann"]).await, [MailDecision::Allowed]);
    assert!(!s.write(async |tx| mail_counts::take_digest(tx, 999, "ann@example.com").await).await, "no such user");
}

async fn old_counts_are_purged(s: TestStore) {
    let w = s.workspace().await;
    take(&s, w, None, &["ann", "bob"]).await;
    let day = s.now().date_naive();
    assert_eq!(s.write(async |tx| mail_counts::purge(tx, day, 10).await).await, 0);
    let next = day + chrono::Days::new(1);
    assert_eq!(s.write(async |tx| mail_counts::purge(tx, next, 2).await).await, 2);
    assert_eq!(s.write(async |tx| mail_counts::purge(tx, next, 2).await).await, 1);
}
