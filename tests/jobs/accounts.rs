//! `publish_target` and account credentials: tokens that expired, are rejected, or are refreshed concurrently.

use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::failure::Category;
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_platforms::{CallError, RefreshedTokens};
use crier_store::accounts;

use crate::support::fake_platform::{Gate, PublishStep, auth_expired, reauth, secrets, transient, unknown};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    an_expired_token_is_refreshed_once_and_stored_encrypted,
    a_second_auth_error_expires_the_account,
    a_rejected_refresh_expires_the_account,
    a_transient_refresh_failure_does_not_expire_the_account,
    unchanged_valid_credentials_are_retried_once,
    rejected_credentials_expire_the_account,
    concurrent_posts_refresh_the_token_once,
    a_refresh_of_a_dead_worker_is_taken_over,
    rejected_old_credentials_do_not_expire_the_account,
    tokens_from_old_credentials_are_not_stored,
    rejected_new_credentials_expire_the_account,
    an_expired_token_is_refreshed_before_reconciling,
    an_auth_error_while_reconciling_keeps_the_call_open,
    a_crash_in_the_second_call_uses_its_own_start_time,
);

async fn an_expired_token_is_refreshed_once_and_stored_encrypted(w: TestWorker) {
    w.fake.accept_only_token("token-1");
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    let calls: Vec<_> = w.fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls, ["publish", "refresh", "publish"]);
    assert_eq!(w.attempts(post).await.len(), 1, "one attempt");
    assert_eq!(w.stored_token().await, "token-1");
    let sealed: Vec<u8> = w.value("SELECT secrets FROM social_accounts").await;
    assert!(!sealed.windows(7).any(|part| part == b"token-1"), "the stored secrets are encrypted");
    assert_eq!(w.count_rows("social_accounts WHERE refreshing_until IS NOT NULL").await, 0);
}

async fn a_second_auth_error_expires_the_account(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::Reject(auth_expired()), PublishStep::Reject(auth_expired())]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.fake.count("publish"), w.fake.count("refresh")), (2, 1));
    assert_account_expired(&w, target).await;
}

async fn assert_account_expired(w: &TestWorker, target: i64) {
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    let found = w.target(target).await;
    let error = found.error.unwrap();
    assert_eq!((found.status, error.category), (TargetStatus::Failed, Category::AuthExpired));
    assert_eq!((error.code.as_str(), found.next_attempt_at), ("account_expired", None));
    assert_eq!(w.stored_account().await.last_error.unwrap().code, "account_expired");
    let payload = w.event_payloads().await[0].to_string();
    assert!(payload.contains("post.failed") && payload.contains("account_expired"), "{payload}");
}

async fn a_rejected_refresh_expires_the_account(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.accept_only_token("token-1");
    w.fake.script_refreshes([Err(reauth())]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.fake.count("publish"), w.fake.count("refresh")), (1, 1));
    assert_account_expired(&w, target).await;
}

async fn a_transient_refresh_failure_does_not_expire_the_account(w: TestWorker) {
    // An unknown outcome counts as transient too, because a refresh publishes nothing.
    w.fake.disable_reconcile();
    w.fake.accept_only_token("token-1");
    w.fake.script_refreshes([Err(transient()), Err(unknown()), Err(CallError::network("No connection."))]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.account_status().await, AccountStatus::Active);
    assert_eq!(w.target(target).await.status, TargetStatus::Publishing);
    w.run_until_idle().await;
    assert_eq!(w.account_status().await, AccountStatus::Active);
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    let outcomes: Vec<_> = w.attempts(post).await.iter().map(|a| a.outcome).collect();
    use AttemptOutcome::{Published, Retried};
    assert_eq!(outcomes, [Retried, Retried, Retried, Published]);
}

async fn unchanged_valid_credentials_are_retried_once(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(auth_expired())]);
    w.fake.script_refreshes([Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(
        (w.target(target).await.status, w.stored_token().await),
        (TargetStatus::Published, "token-0".to_owned())
    );
}

async fn rejected_credentials_expire_the_account(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::Reject(reauth())]);
    let (post, target) = w.publish_one().await;
    let (_, other) = w.publish_one().await;
    for id in w.s.notifier.take() {
        w.engine.run(id).await;
    }
    assert_eq!((w.fake.count("publish"), w.fake.count("refresh")), (1, 0), "the second post makes no call");
    assert_eq!(w.target(other).await.error.unwrap().code, "account_expired");
    assert_account_expired(&w, target).await;
    assert_eq!(w.post_status(post).await, PostStatus::Failed);
}

async fn concurrent_posts_refresh_the_token_once(w: TestWorker) {
    // All four posts of the account's lane find the token expired before the first of them has a new one.
    w.fake.accept_only_token("token-1");
    let mut targets = Vec::new();
    for _ in 0..4 {
        targets.push(w.publish_one().await.1);
    }
    let ids = w.s.notifier.take();
    futures::future::join_all(ids.iter().map(|id| w.engine.run(*id))).await;
    for target in targets {
        assert_eq!(w.target(target).await.status, TargetStatus::Published);
    }
    assert_eq!((w.fake.count("refresh"), w.account_status().await), (1, AccountStatus::Active));
}

async fn a_refresh_of_a_dead_worker_is_taken_over(w: TestWorker) {
    w.fake.accept_only_token("token-1");
    w.write(async |tx| accounts::begin_refresh(tx, w.account.id, TimeDelta::seconds(-1)).await).await;
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.count("refresh")), (TargetStatus::Published, 1));

    // While the refresh lease is held, no other run gets it.
    let begin_refresh = async |lease: i64| {
        w.write(async |tx| accounts::begin_refresh(tx, w.account.id, TimeDelta::seconds(lease)).await).await
    };
    let version = begin_refresh(60).await.expect("the refresh lease is free");
    assert_eq!(begin_refresh(60).await, None);
    w.advance(60);
    assert_eq!(begin_refresh(60).await, Some(version));
    w.write(async |tx| accounts::end_refresh(tx, w.account.id, version).await).await;
    assert_eq!(begin_refresh(60).await, Some(version));
}

/// Reconnects the account during a publish call; then the platform rejects the old token. Returns the target.
async fn reconnect_during_the_call(w: &TestWorker) -> i64 {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::WaitAndReject(gate.clone(), reauth())]);
    let (_, target) = w.publish_one().await;
    let run = w.start_until(&gate, w.notified_job()).await;
    w.s.account(w.world, "demo", "token-9").await;
    gate.let_through();
    run.await.unwrap();
    target
}

async fn rejected_old_credentials_do_not_expire_the_account(w: TestWorker) {
    let target = reconnect_during_the_call(&w).await;
    assert_eq!((w.account_status().await, w.stored_token().await), (AccountStatus::Active, "token-9".to_owned()));
    let waiting = w.target(target).await;
    assert_eq!(
        (waiting.status, waiting.error.unwrap().code.as_str()),
        (TargetStatus::Publishing, "credentials_replaced")
    );
    // The retry uses the new credentials.
    w.fake.accept_only_token("token-9");
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
    assert_eq!((w.fake.count("refresh"), w.events().await), (0, vec!["post.published".to_owned()]));
}

async fn rejected_new_credentials_expire_the_account(w: TestWorker) {
    let target = reconnect_during_the_call(&w).await;
    w.fake.script_publishes([PublishStep::Reject(reauth())]);
    w.run_jobs().await;
    assert_account_expired(&w, target).await;
}

async fn tokens_from_old_credentials_are_not_stored(w: TestWorker) {
    let gate = Gate::new();
    w.fake.hold_refresh(gate.clone());
    w.fake.script_refreshes([Ok(RefreshedTokens {
        secrets: Some(secrets("token-1")),
        token_expires_at: None,
        refresh_expires_at: None,
    })]);
    w.fake.accept_only_token("token-9");
    let (post, target) = w.publish_one().await;
    let run = w.start_until(&gate, w.notified_job()).await;
    w.s.account(w.world, "demo", "token-9").await;
    gate.let_through();
    run.await.unwrap();
    assert_eq!((w.account_status().await, w.stored_token().await), (AccountStatus::Active, "token-9".to_owned()));
    assert_eq!((w.target(target).await.status, w.attempts(post).await.len()), (TargetStatus::Published, 1));
    let calls: Vec<_> = w.fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls, ["publish", "refresh", "publish"]);
    assert_eq!(w.count_rows("social_accounts WHERE refreshing_until IS NOT NULL").await, 0);
}

/// Publishes with a worker that dies after the platform accepted the post.
async fn kill_after_acceptance(w: &TestWorker) -> i64 {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::AcceptAndHang(gate.clone())]);
    let (_, target) = w.publish_one().await;
    w.kill_at(&gate, w.notified_job()).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    target
}

async fn an_expired_token_is_refreshed_before_reconciling(w: TestWorker) {
    let target = kill_after_acceptance(&w).await;
    w.fake.accept_only_token("token-1");
    w.run_jobs().await;
    let calls: Vec<_> = w.fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls, ["publish", "reconcile", "refresh", "reconcile"]);
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
    assert_eq!(w.account_status().await, AccountStatus::Active);
}

async fn an_auth_error_while_reconciling_keeps_the_call_open(w: TestWorker) {
    let target = kill_after_acceptance(&w).await;
    w.fake.script_reconciles([Err(reauth())]);
    w.run_jobs().await;
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    let failed = w.target(target).await;
    assert!(failed.status == TargetStatus::Failed && failed.call_started_at.is_some());

    // The account is reconnected, and a user publishes again: the run reconciles first, and the platform has the post.
    w.s.account(w.world, "demo", "token-2").await;
    w.publish_again(failed.post_id).await;
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_crash_in_the_second_call_uses_its_own_start_time(w: TestWorker) {
    // The first call takes 20 seconds until the token is rejected. The worker dies during the second.
    let (first, second) = (Gate::new(), Gate::new());
    w.fake.script_publishes([
        PublishStep::WaitAndReject(first.clone(), auth_expired()),
        PublishStep::Hang(second.clone()),
    ]);
    let (_, target) = w.publish_one().await;
    let doomed = w.killable_worker().await;
    let started_at = w.clock.now();
    doomed.start(w.notified_job());
    first.wait_until_entered().await;
    w.advance(20);
    first.let_through();
    second.wait_until_entered().await;
    assert_eq!(w.target(target).await.call_started_at, Some(started_at + TimeDelta::seconds(20)));
    doomed.kill().await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    w.clock.advance(started_at + TimeDelta::seconds(MAX_CALL_SECONDS + 19) - w.clock.now());
    w.run_jobs().await;
    assert_eq!(w.fake.count("publish"), 2, "the second call may still be under way");
    w.run_until_idle().await;
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (3, 1));
}
