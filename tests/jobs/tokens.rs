//! `refresh_token`: tokens are refreshed before they expire, and members are warned and notified.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, Renewal, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::notice::NoticeFrequency;
use crier_domain::post::TargetStatus;
use crier_platforms::{CallError, RefreshedTokens};
use crier_scheduler::tasks::{self, tokens};
use crier_store::account_tokens::{self, StoredTokens};
use crier_store::accounts::{self, NewAccount};
use crier_store::notices;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::client::until_true;
use crate::support::fake_platform::{Gate, rate_limited, reauth, secrets, transient};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::mail_server::MailServer;
use crate::support::store::new_account;

worker_on_both!(
    a_token_is_refreshed_at_four_fifths_of_its_lifetime,
    an_omitted_refresh_expiry_keeps_the_stored_one,
    a_publish_waits_for_the_refresh,
    a_transient_failure_is_retried_until_it_succeeds,
    a_rate_limit_delays_the_refresh,
    a_rejected_refresh_expires_the_account_and_notifies_the_members,
    a_reconnect_during_a_refresh_wins,
    a_job_enqueued_before_a_reconnect_does_nothing,
    a_refresh_by_a_publish_reschedules_the_next_one,
    members_are_warned_three_times,
    rejected_credentials_in_a_publish_notify_the_members,
);

const ROTATING: Renewal = Renewal { renewable: true, rotates: true, refresh_expires_at: None };
const HOUR: TimeDelta = TimeDelta::hours(1);

/// Reconnects the account with a token of this lifetime.
async fn reconnect(w: &TestWorker, renewal: Renewal, lifetime: TimeDelta) -> SocialAccount {
    let new = NewAccount {
        token_expires_at: Some(w.now() + lifetime),
        renewal: Some(renewal),
        limits: None,
        application: Some("app".to_owned()),
        ..new_account("demo", "token-0")
    };
    let workspace = w.world.workspace;
    w.write(async |tx| accounts::save(tx, workspace, &new).await).await
}

fn refreshed(w: &TestWorker, token: &str, lifetime: TimeDelta) -> Result<RefreshedTokens, CallError> {
    let token_expires_at = Some(w.now() + lifetime);
    Ok(RefreshedTokens { secrets: Some(secrets(token)), token_expires_at, refresh_expires_at: None })
}

/// Runs the due refreshes, and sends the emails that are due then.
async fn run_due_refreshes(w: &TestWorker) {
    tokens::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
    tasks::notices::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

/// Starts a mail server. The user gets emails about problems immediately.
async fn start_mails(w: &mut TestWorker) -> MailServer {
    let mails = MailServer::start().await;
    w.set_mailer(mails.mailer());
    w.write(async |tx| notices::set_frequency(tx, w.world.user, NoticeFrequency::Immediately).await).await;
    mails
}

/// Runs the due refreshes. The platform returns this result to the first one.
async fn refresh_with(w: &TestWorker, result: Result<RefreshedTokens, CallError>) {
    w.fake.script_refreshes([result]);
    run_due_refreshes(w).await;
}

async fn stored_tokens(w: &TestWorker) -> StoredTokens {
    account_tokens::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap()
}

/// Advances the clock to the next refresh, which is due after 75% to 85% of one hour. Returns its time.
async fn advance_to_refresh(w: &TestWorker) -> DateTime<Utc> {
    let at = stored_tokens(w).await.check_at.unwrap();
    let early = at - w.now();
    assert!((HOUR * 3 / 4..=HOUR * 17 / 20).contains(&early), "{early}");
    w.clock.advance(early);
    at
}

/// Reconnects the account with a token of one hour, and advances the clock to its refresh.
async fn reconnect_until_refresh(w: &TestWorker) {
    reconnect(w, ROTATING, HOUR).await;
    advance_to_refresh(w).await;
}

/// Starts an endpoint that receives the events of expired and expiring accounts.
async fn create_endpoint(w: &TestWorker) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    w.listen_for(&server.uri(), &[EventName::AccountExpired, EventName::AccountExpiring]).await;
    server
}

async fn a_token_is_refreshed_at_four_fifths_of_its_lifetime(w: TestWorker) {
    reconnect(&w, ROTATING, HOUR).await;
    run_due_refreshes(&w).await;
    assert_eq!(w.fake.count("refresh"), 0);
    advance_to_refresh(&w).await;
    refresh_with(&w, refreshed(&w, "token-1", HOUR)).await;
    assert_eq!((w.fake.count("refresh"), w.stored_token().await.as_str()), (1, "token-1"));
    let account = w.stored_account().await;
    assert_eq!((account.status, account.token_expires_at), (AccountStatus::Active, Some(w.now() + HOUR)));
    // The new token is refreshed on the same schedule.
    run_due_refreshes(&w).await;
    assert_eq!(w.fake.count("refresh"), 1);
    advance_to_refresh(&w).await;
    refresh_with(&w, refreshed(&w, "token-2", HOUR)).await;
    assert_eq!((w.fake.count("refresh"), w.stored_token().await.as_str()), (2, "token-2"));
}

async fn an_omitted_refresh_expiry_keeps_the_stored_one(w: TestWorker) {
    reconnect(&w, ROTATING, HOUR).await;
    let expires_at = w.now() + TimeDelta::days(60);
    advance_to_refresh(&w).await;
    let new_tokens =
        RefreshedTokens { refresh_expires_at: Some(expires_at), ..refreshed(&w, "token-1", HOUR).unwrap() };
    refresh_with(&w, Ok(new_tokens)).await;
    assert_eq!(stored_tokens(&w).await.renewal.refresh_expires_at, Some(expires_at));
    // If the platform omits the expiry, the stored one is kept.
    advance_to_refresh(&w).await;
    refresh_with(&w, refreshed(&w, "token-2", HOUR)).await;
    assert_eq!(stored_tokens(&w).await.renewal.refresh_expires_at, Some(expires_at));
}

async fn a_publish_waits_for_the_refresh(w: TestWorker) {
    reconnect_until_refresh(&w).await;
    w.fake.accept_only_token("token-1");
    w.fake.script_refreshes([refreshed(&w, "token-1", HOUR)]);
    let gate = Gate::new();
    w.fake.hold_refresh(gate.clone());
    tokens::run(&w.scheduler).await.unwrap();
    let renewal = w.notified_job();
    let (_, target) = w.publish_one().await;
    let publish = w.notified_job_of_target(target).await;
    let publishing = async {
        gate.wait_until_entered().await;
        let release = async {
            // The platform rejected the token of the publish, and the refresh lease is taken.
            until_true("the publish was rejected", || w.fake.count("publish") == 1).await;
            gate.let_through();
        };
        futures::future::join(w.engine.run(publish), release).await;
    };
    futures::future::join(w.engine.run(renewal), publishing).await;
    assert_eq!((w.fake.count("refresh"), w.fake.count("publish"), w.stored_token().await.as_str()), (1, 2, "token-1"));
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_transient_failure_is_retried_until_it_succeeds(w: TestWorker) {
    reconnect_until_refresh(&w).await;
    for attempts in 1..=20 {
        refresh_with(&w, Err(transient())).await;
        assert_eq!(w.fake.count("refresh"), attempts);
        let next = stored_tokens(&w).await.check_at.unwrap() - w.now();
        assert!(next >= TimeDelta::seconds(48) && next <= TimeDelta::minutes(72), "{next}");
        w.clock.advance(next);
    }
    assert_eq!(w.stored_account().await.status, AccountStatus::Active);
    assert!(w.stored_account().await.token_expires_at.unwrap() < w.now(), "the token has expired");
    refresh_with(&w, refreshed(&w, "token-1", HOUR)).await;
    assert_eq!(w.stored_token().await, "token-1");
}

async fn a_rate_limit_delays_the_refresh(w: TestWorker) {
    reconnect_until_refresh(&w).await;
    let until = w.now() + TimeDelta::minutes(7);
    refresh_with(&w, Err(rate_limited(until))).await;
    assert_eq!(stored_tokens(&w).await.check_at, Some(until));
}

async fn a_rejected_refresh_expires_the_account_and_notifies_the_members(mut w: TestWorker) {
    let mails = start_mails(&mut w).await;
    let _receiver = create_endpoint(&w).await;
    reconnect_until_refresh(&w).await;
    refresh_with(&w, Err(reauth())).await;
    let account = w.stored_account().await;
    assert_eq!(account.status, AccountStatus::Expired);
    assert_eq!(account.last_error.as_ref().unwrap().message, "The fake rejects the token.");
    let [mail] = &mails.mails()[..] else { panic!("one mail: {:?}", mails.mails()) };
    for expected in ["To: ann@example.com", "Sandbox", "The fake rejects the token.", "/accounts/connect/sandbox"] {
        assert!(mail.contains(expected), "{expected}: {mail}");
    }
    let [event] = &w.event_data("account.expired").await[..] else { panic!("one event") };
    assert_eq!((&event["social_account_id"], &event["platform"]), (&account.id.into(), &"sandbox".into()));
    assert_eq!(event["error"]["code"], "account_expired");
    // Nothing more happens until the account is reconnected.
    w.clock.advance(TimeDelta::days(3));
    run_due_refreshes(&w).await;
    assert_eq!((w.fake.count("refresh"), mails.mails().len()), (1, 1));
    reconnect_until_refresh(&w).await;
    refresh_with(&w, Err(reauth())).await;
    assert_eq!((mails.mails().len(), w.event_data("account.expired").await.len()), (2, 2));
}

async fn a_reconnect_during_a_refresh_wins(w: TestWorker) {
    reconnect_until_refresh(&w).await;
    for response in [refreshed(&w, "stale", HOUR), Err(reauth())] {
        w.fake.script_refreshes([response]);
        let gate = Gate::new();
        w.fake.hold_refresh(gate.clone());
        let meanwhile = async {
            gate.wait_until_entered().await;
            reconnect(&w, ROTATING, HOUR).await;
            gate.let_through();
        };
        futures::future::join(run_due_refreshes(&w), meanwhile).await;
        assert_eq!(
            (w.stored_token().await.as_str(), w.stored_account().await.status),
            ("token-0", AccountStatus::Active)
        );
        advance_to_refresh(&w).await;
    }
}

async fn a_job_enqueued_before_a_reconnect_does_nothing(w: TestWorker) {
    reconnect_until_refresh(&w).await;
    tokens::run(&w.scheduler).await.unwrap();
    reconnect(&w, ROTATING, HOUR).await;
    let next = stored_tokens(&w).await.check_at;
    w.run_jobs().await;
    assert_eq!((w.fake.count("refresh"), stored_tokens(&w).await.check_at), (0, next));
}

async fn a_refresh_by_a_publish_reschedules_the_next_one(w: TestWorker) {
    reconnect(&w, ROTATING, HOUR).await;
    w.fake.accept_only_token("token-1");
    w.clock.advance(HOUR / 2);
    w.fake.script_refreshes([refreshed(&w, "token-1", HOUR)]);
    w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.fake.count("refresh"), w.stored_token().await.as_str()), (1, "token-1"));
    advance_to_refresh(&w).await;
}

async fn members_are_warned_three_times(mut w: TestWorker) {
    let mails = start_mails(&mut w).await;
    let _receiver = create_endpoint(&w).await;
    reconnect(&w, Renewal::default(), TimeDelta::days(60)).await;
    let expires_at = w.stored_account().await.token_expires_at.unwrap();
    for (warnings, before) in [(1, TimeDelta::days(14)), (2, TimeDelta::days(3))] {
        w.clock.advance(expires_at - before - w.now() - TimeDelta::seconds(1));
        run_due_refreshes(&w).await;
        assert_eq!(mails.mails().len(), warnings - 1);
        w.clock.advance(TimeDelta::seconds(1));
        run_due_refreshes(&w).await;
        run_due_refreshes(&w).await;
        assert_eq!((mails.mails().len(), w.event_data("account.expiring").await.len()), (warnings, warnings));
    }
    w.clock.advance(expires_at - w.now());
    run_due_refreshes(&w).await;
    w.clock.advance(TimeDelta::days(30));
    run_due_refreshes(&w).await;
    let sent = mails.mails();
    assert_eq!(sent.len(), 3);
    let end = expires_at.format("%Y-%m-%d %H:%M UTC");
    for (mail, verb) in sent.iter().zip(["ends", "ends", "ended"]) {
        assert!(mail.contains(&format!("The access {verb} at {end}.")), "{mail}");
        assert!(
            mail.contains("Accounts whose access ends soon.") && mail.contains("/accounts/connect/sandbox"),
            "{mail}"
        );
    }
    let event = &w.event_data("account.expiring").await[0];
    assert_eq!(event["expires_at"], expires_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true));
    assert_eq!((w.fake.count("refresh"), w.stored_account().await.status), (0, AccountStatus::Active));
}

async fn rejected_credentials_in_a_publish_notify_the_members(mut w: TestWorker) {
    let mails = start_mails(&mut w).await;
    let _receiver = create_endpoint(&w).await;
    w.fake.script_publishes([crate::support::fake_platform::PublishStep::Reject(reauth())]);
    w.publish_one().await;
    w.run_jobs().await;
    run_due_refreshes(&w).await;
    assert_eq!(w.stored_account().await.status, AccountStatus::Expired);
    assert_eq!((mails.mails().len(), w.event_data("account.expired").await.len()), (1, 1));
    // A second failed post does not report the account again.
    w.publish_one().await;
    w.run_jobs().await;
    w.clock.advance(HOUR);
    run_due_refreshes(&w).await;
    let reported: Vec<_> =
        mails.mails().iter().map(|mail| mail.contains("Accounts whose platform rejects the credentials.")).collect();
    assert_eq!((reported, w.event_data("account.expired").await.len()), (vec![true, false], 1));
}
