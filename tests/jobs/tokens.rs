//! `refresh_token`: tokens are renewed before they end, owners are warned and notified.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, Renewal, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::post::TargetStatus;
use crier_platforms::{CallError, RefreshedTokens};
use crier_scheduler::tasks::tokens;
use crier_store::account_tokens::{self, StoredTokens};
use crier_store::accounts::{self, NewAccount};
use secrecy::ExposeSecret;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::client::until_true;
use crate::support::fake_platform::{Gate, rate_limited, reauth, secrets, transient};
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::mail_server::MailServer;
use crate::support::store::new_account;

worker_on_both!(
    a_token_is_renewed_at_four_fifths_of_its_life,
    an_empty_refresh_token_does_not_replace_one,
    a_publish_waits_for_the_renewal,
    a_passing_failure_is_tried_again_until_it_passes,
    a_rate_limit_is_waited_for,
    a_refused_renewal_expires_the_account_and_tells_its_owner,
    a_connect_meanwhile_wins,
    a_late_job_does_nothing,
    a_publish_that_renews_moves_the_renewal,
    owners_are_warned_three_times,
    a_refusal_in_a_publish_tells_the_owner,
);

const ROTATING: Renewal = Renewal { renewable: true, rotates: true, refresh_expires_at: None };
const HOUR: TimeDelta = TimeDelta::hours(1);

/// Connects the account again, with a token that lives so long.
async fn connected(w: &TestWorker, renewal: Renewal, life: TimeDelta) -> SocialAccount {
    let new = NewAccount {
        token_expires_at: Some(w.now() + life),
        renewal: Some(renewal),
        limits: None,
        application: Some("app".to_owned()),
        ..new_account("demo", "token-0")
    };
    let workspace = w.world.workspace;
    w.write(async |tx| accounts::save(tx, workspace, &new).await).await
}

fn renewed(w: &TestWorker, token: &str, life: TimeDelta) -> Result<RefreshedTokens, CallError> {
    let token_expires_at = Some(w.now() + life);
    Ok(RefreshedTokens { secrets: Some(secrets(token)), token_expires_at, refresh_expires_at: None })
}

async fn look(w: &TestWorker) {
    tokens::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

async fn kept(w: &TestWorker) -> StoredTokens {
    account_tokens::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap()
}

async fn account(w: &TestWorker) -> SocialAccount {
    accounts::find_any(&mut w.conn().await, w.account.id).await.unwrap().unwrap()
}

async fn token(w: &TestWorker) -> String {
    let found = accounts::with_secrets(&mut w.conn().await, w.cipher(), w.account.id).await.unwrap().unwrap();
    let fields: serde_json::Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    fields["token"].as_str().unwrap().to_owned()
}

/// Moves the clock to the next look, which is between these shares of an hour's life.
async fn move_to_renewal(w: &TestWorker) -> DateTime<Utc> {
    let at = kept(w).await.check_at.unwrap();
    let early = at - w.now();
    assert!((HOUR * 3 / 4..=HOUR * 17 / 20).contains(&early), "{early}");
    w.clock.advance(early);
    at
}

/// Starts an endpoint that receives the events of accounts that end.
async fn listens(w: &TestWorker) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    w.listen_for(&server.uri(), &[EventName::AccountExpired, EventName::AccountExpiring]).await;
    server
}

/// Events with this name, as JSON.
async fn events(w: &TestWorker, name: &str) -> Vec<serde_json::Value> {
    let sql = format!("SELECT count(*) FROM events WHERE name = '{name}'");
    let mut found = Vec::new();
    for offset in 0..w.number(sql).await {
        let one = format!("SELECT payload FROM events WHERE name = '{name}' ORDER BY id LIMIT 1 OFFSET {offset}");
        let text: String = match w.is_postgres() {
            true => w.value(one.replace("payload", "payload::text")).await,
            false => w.value(one).await,
        };
        found.push(serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"].clone());
    }
    found
}

async fn a_token_is_renewed_at_four_fifths_of_its_life(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    look(&w).await;
    assert_eq!(w.fake.count("refresh"), 0);
    move_to_renewal(&w).await;
    w.fake.script_refreshes([renewed(&w, "token-1", HOUR)]);
    look(&w).await;
    assert_eq!((w.fake.count("refresh"), token(&w).await.as_str()), (1, "token-1"));
    let account = account(&w).await;
    assert_eq!((account.status, account.token_expires_at), (AccountStatus::Active, Some(w.now() + HOUR)));
    // And so on.
    look(&w).await;
    assert_eq!(w.fake.count("refresh"), 1);
    move_to_renewal(&w).await;
    w.fake.script_refreshes([renewed(&w, "token-2", HOUR)]);
    look(&w).await;
    assert_eq!((w.fake.count("refresh"), token(&w).await.as_str()), (2, "token-2"));
}

async fn an_empty_refresh_token_does_not_replace_one(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    let end = w.now() + TimeDelta::days(60);
    move_to_renewal(&w).await;
    let times = RefreshedTokens { refresh_expires_at: Some(end), ..renewed(&w, "token-1", HOUR).unwrap() };
    w.fake.script_refreshes([Ok(times)]);
    look(&w).await;
    assert_eq!(kept(&w).await.renewal.refresh_expires_at, Some(end));
    // A platform that says nothing of the end leaves it as it was.
    move_to_renewal(&w).await;
    w.fake.script_refreshes([renewed(&w, "token-2", HOUR)]);
    look(&w).await;
    assert_eq!(kept(&w).await.renewal.refresh_expires_at, Some(end));
}

async fn a_publish_waits_for_the_renewal(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    w.fake.accept_only_token("token-1");
    w.fake.script_refreshes([renewed(&w, "token-1", HOUR)]);
    let gate = Gate::new();
    w.fake.hold_refresh(gate.clone());
    tokens::run(&w.scheduler).await.unwrap();
    let renewal = w.notified_job();
    let (_, target) = w.publish_one().await;
    let publish = w.notified_job_of_target(target).await;
    let publishing = async {
        gate.wait_until_entered().await;
        let release = async {
            // The publish has found its token refused, and the lease taken.
            until_true("the publish was refused", || w.fake.count("publish") == 1).await;
            gate.let_through();
        };
        futures::future::join(w.engine.run(publish), release).await;
    };
    futures::future::join(w.engine.run(renewal), publishing).await;
    assert_eq!((w.fake.count("refresh"), w.fake.count("publish"), token(&w).await.as_str()), (1, 2, "token-1"));
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn a_passing_failure_is_tried_again_until_it_passes(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    for tries in 1..=20 {
        w.fake.script_refreshes([Err(transient())]);
        look(&w).await;
        assert_eq!(w.fake.count("refresh"), tries);
        let next = kept(&w).await.check_at.unwrap() - w.now();
        assert!(next >= TimeDelta::seconds(48) && next <= TimeDelta::minutes(72), "{next}");
        w.clock.advance(next);
    }
    assert_eq!(account(&w).await.status, AccountStatus::Active);
    assert!(account(&w).await.token_expires_at.unwrap() < w.now(), "the end has passed");
    w.fake.script_refreshes([renewed(&w, "token-1", HOUR)]);
    look(&w).await;
    assert_eq!(token(&w).await, "token-1");
}

async fn a_rate_limit_is_waited_for(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    let until = w.now() + TimeDelta::minutes(7);
    w.fake.script_refreshes([Err(rate_limited(until))]);
    look(&w).await;
    assert_eq!(kept(&w).await.check_at, Some(until));
}

async fn a_refused_renewal_expires_the_account_and_tells_its_owner(mut w: TestWorker) {
    let mails = MailServer::start().await;
    w.set_mailer(mails.mailer());
    let _receiver = listens(&w).await;
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    w.fake.script_refreshes([Err(reauth())]);
    look(&w).await;
    let account = account(&w).await;
    assert_eq!(account.status, AccountStatus::Expired);
    assert_eq!(account.last_error.as_ref().unwrap().message, "The fake refuses the token.");
    let [mail] = &mails.mails()[..] else { panic!("one mail: {:?}", mails.mails()) };
    for wanted in ["To: ann@example.com", "Sandbox", "The fake refuses the token.", "social-accounts"] {
        assert!(mail.contains(wanted), "{wanted}: {mail}");
    }
    let [event] = &events(&w, "account.expired").await[..] else { panic!("one event") };
    assert_eq!((&event["social_account_id"], &event["platform"]), (&account.id.into(), &"sandbox".into()));
    assert_eq!(event["error"]["code"], "account_expired");
    // Nothing more is done with it until it is connected again.
    w.clock.advance(TimeDelta::days(3));
    look(&w).await;
    assert_eq!((w.fake.count("refresh"), mails.mails().len()), (1, 1));
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    w.fake.script_refreshes([Err(reauth())]);
    look(&w).await;
    assert_eq!((mails.mails().len(), events(&w, "account.expired").await.len()), (2, 2));
}

async fn a_connect_meanwhile_wins(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    for answer in [renewed(&w, "stale", HOUR), Err(reauth())] {
        w.fake.script_refreshes([answer]);
        let gate = Gate::new();
        w.fake.hold_refresh(gate.clone());
        let meanwhile = async {
            gate.wait_until_entered().await;
            connected(&w, ROTATING, HOUR).await;
            gate.let_through();
        };
        futures::future::join(look(&w), meanwhile).await;
        assert_eq!((token(&w).await.as_str(), account(&w).await.status), ("token-0", AccountStatus::Active));
        move_to_renewal(&w).await;
    }
}

async fn a_late_job_does_nothing(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    move_to_renewal(&w).await;
    tokens::run(&w.scheduler).await.unwrap();
    connected(&w, ROTATING, HOUR).await;
    let next = kept(&w).await.check_at;
    w.run_jobs().await;
    assert_eq!((w.fake.count("refresh"), kept(&w).await.check_at), (0, next));
}

async fn a_publish_that_renews_moves_the_renewal(w: TestWorker) {
    connected(&w, ROTATING, HOUR).await;
    w.fake.accept_only_token("token-1");
    w.clock.advance(HOUR / 2);
    w.fake.script_refreshes([renewed(&w, "token-1", HOUR)]);
    w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((w.fake.count("refresh"), token(&w).await.as_str()), (1, "token-1"));
    move_to_renewal(&w).await;
}

async fn owners_are_warned_three_times(mut w: TestWorker) {
    let mails = MailServer::start().await;
    w.set_mailer(mails.mailer());
    let _receiver = listens(&w).await;
    connected(&w, Renewal::default(), TimeDelta::days(60)).await;
    let end = account(&w).await.token_expires_at.unwrap();
    for (warnings, before) in [(1, TimeDelta::days(14)), (2, TimeDelta::days(3))] {
        w.clock.advance(end - before - w.now() - TimeDelta::seconds(1));
        look(&w).await;
        assert_eq!(mails.mails().len(), warnings - 1);
        w.clock.advance(TimeDelta::seconds(1));
        look(&w).await;
        look(&w).await;
        assert_eq!((mails.mails().len(), events(&w, "account.expiring").await.len()), (warnings, warnings));
    }
    w.clock.advance(end - w.now());
    look(&w).await;
    w.clock.advance(TimeDelta::days(30));
    look(&w).await;
    let sent = mails.mails();
    assert_eq!(sent.len(), 3);
    assert!(sent[0].contains(&end.format("%Y-%m-%d %H:%M UTC").to_string()), "{}", sent[0]);
    let event = &events(&w, "account.expiring").await[0];
    assert_eq!(event["expires_at"], end.to_rfc3339_opts(chrono::SecondsFormat::Secs, true));
    assert_eq!((w.fake.count("refresh"), account(&w).await.status), (0, AccountStatus::Active));
}

async fn a_refusal_in_a_publish_tells_the_owner(mut w: TestWorker) {
    let mails = MailServer::start().await;
    w.set_mailer(mails.mailer());
    let _receiver = listens(&w).await;
    w.fake.script_publishes([crate::support::fake_platform::PublishStep::Refuse(reauth())]);
    w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(account(&w).await.status, AccountStatus::Expired);
    assert_eq!((mails.mails().len(), events(&w, "account.expired").await.len()), (1, 1));
    // A second post that fails for it says nothing new.
    w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((mails.mails().len(), events(&w, "account.expired").await.len()), (1, 1));
}
