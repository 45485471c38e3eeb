//! Emails about problems of accounts and of webhooks, which may belong to several brands or to none.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use crier_domain::event::EventName;
use crier_domain::notice::NoticeFrequency;
use crier_domain::webhook::Webhook;
use crier_store::{accounts, events, notices, webhooks};
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::notices_digest::{decode, links_to_pages, tick, waiting, with_mail};
use crate::support::fake_platform::{PublishStep, reauth};
use crate::support::jobs::TestWorker;
use crate::support::mail_server::MailServer;
use crate::support::store::{TestStore, new_account, on_both, on_one};

on_both!(
    problems_of_all_kinds_are_one_email,
    an_expired_account_is_reported_once_to_each_person,
    a_reconnected_account_is_omitted,
    a_disabled_webhook_is_reported_to_its_owner,
    five_days_without_success_are_reported,
    concurrent_attempts_are_one_problem,
    a_webhook_that_its_owner_deactivated_is_no_problem,
    a_webhook_that_fails_again_is_reported_again,
    who_wants_no_emails_gets_none_about_accounts_and_webhooks,
);
on_one!(untrusted_text_stays_on_one_line,);

/// Starts an endpoint that responds to everything with this status.
async fn receiver(status: u16) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(status)).mount(&server).await;
    server
}

async fn emit_event(w: &TestWorker) {
    let data = json!({ "post_id": 1 });
    w.write(async |tx| events::emit(tx, w.world.brand, EventName::PostPublished, &data, None).await).await;
}

/// Creates a worker with a mail server, and an endpoint that has one pending delivery and responds with this status.
async fn with_failing_endpoint(s: TestStore, status: u16) -> (TestWorker, MailServer, MockServer, Webhook) {
    let (w, mails) = with_mail(s).await;
    let receiver = receiver(status).await;
    let webhook = w.listen_at(&receiver.uri()).await;
    emit_event(&w).await;
    (w, mails, receiver, webhook)
}

async fn is_active(w: &TestWorker, webhook: &Webhook) -> bool {
    webhooks::find(&mut w.conn().await, w.world.user, webhook.id).await.unwrap().unwrap().is_active
}

/// Stores that the platform rejects the credentials of the account.
async fn expire(w: &TestWorker) {
    let (id, version) = (w.account.id, w.stored_account().await.credentials_version);
    let reason = "It was revoked.";
    assert!(w.write(async |tx| crier_jobs::accounts::expire(tx, id, version, reason, None).await).await);
}

/// Lets an hour pass, and returns the emails that were sent so far.
async fn mails_after_an_hour(w: &TestWorker, mails: &MailServer) -> Vec<String> {
    w.clock.advance(TimeDelta::hours(1));
    tick(w).await;
    mails.mails().iter().map(|mail| decode(mail)).collect()
}

fn format_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

async fn problems_of_all_kinds_are_one_email(s: TestStore) {
    let (w, server, receiver, webhook) = with_failing_endpoint(s, 410).await;
    w.fake.script_publishes([PublishStep::Reject(reauth())]);
    let (post, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!((server.mails().len(), waiting(&w).await), (0, 3));
    let [mail] = &mails_after_an_hour(&w, &server).await[..] else { panic!("one email: {:?}", server.mails()) };
    assert!(mail.contains("Subject: Crier: 3 problems need your attention"), "{mail}");
    let brand = format!("https://crier.example/brands/{}", w.world.brand);
    let (account, webhook) = (w.account.id, webhook.id);
    let expected = [
        "Accounts whose platform rejects the credentials.".to_owned(),
        format!(
            "  Demo on Sandbox (Bakery)\n  The fake rejects the token.\n  \
             {brand}/accounts/connect/sandbox?account={account}\n"
        ),
        "Webhooks that Crier disabled.".to_owned(),
        format!("  {}\n  the endpoint returned 410 Gone\n", receiver.uri()),
        format!("{brand}/developers/webhooks/{webhook}\n"),
        "Posts that could not be published on an account:".to_owned(),
        format!("{brand}/posts/{post}\n"),
    ];
    let places: Vec<_> =
        expected.iter().map(|text| mail.find(text).unwrap_or_else(|| panic!("{text}: {mail}"))).collect();
    assert!(places.is_sorted(), "{mail}");
    assert_eq!(links_to_pages(mail), 4, "{mail}");
    w.clock.advance(TimeDelta::days(2));
    tick(&w).await;
    assert_eq!((server.mails().len(), waiting(&w).await), (1, 0));
}

async fn an_expired_account_is_reported_once_to_each_person(s: TestStore) {
    let (w, server) = with_mail(s).await;
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    let editor = w.user(w.world.workspace, "editor@x.example").await;
    w.member(other, editor, Role::Editor).await;
    let writer = w.user(w.world.workspace, "writer@x.example").await;
    w.member(other, writer, Role::Contributor).await;
    w.user(w.world.workspace, "stranger@x.example").await;
    expire(&w).await;
    expire(&w).await;
    assert_eq!(waiting(&w).await, 2);
    // The email leads to a brand of which the user is still a member.
    w.remove_member(w.world.brand, w.world.user).await;
    let mails = mails_after_an_hour(&w, &server).await;
    assert_eq!(mails.len(), 2, "{mails:?}");
    for email in ["ann@example.com", "editor@x.example"] {
        let mail = mails.iter().find(|mail| mail.contains(&format!("To: {email}\n"))).unwrap();
        assert!(mail.contains("1 problem needs") && mail.contains("It was revoked."), "{mail}");
        assert!(mail.contains(&format!("/brands/{other}/accounts/connect/sandbox")), "{mail}");
    }
}

async fn a_reconnected_account_is_omitted(s: TestStore) {
    let (w, server) = with_mail(s).await;
    expire(&w).await;
    let reconnected = new_account(&w.account.external_id, "token-1");
    w.write(async |tx| accounts::save(tx, w.world.workspace, &reconnected).await).await;
    assert_eq!(mails_after_an_hour(&w, &server).await, [""; 0]);
    expire(&w).await;
    assert_eq!(mails_after_an_hour(&w, &server).await.len(), 1, "it expired again");
}

async fn a_disabled_webhook_is_reported_to_its_owner(s: TestStore) {
    let (w, server, receiver, webhook) = with_failing_endpoint(s, 410).await;
    let admin = w.user(w.world.workspace, "admin@x.example").await;
    w.member(w.world.brand, admin, Role::Admin).await;
    emit_event(&w).await;
    w.run_jobs().await;
    assert!(!is_active(&w, &webhook).await);
    let at = format_time(w.now());
    // The owner of an endpoint can act on it with any role.
    w.member(w.world.brand, admin, Role::Owner).await;
    w.member(w.world.brand, w.world.user, Role::Contributor).await;
    let [mail] = &mails_after_an_hour(&w, &server).await[..] else { panic!("one email: {:?}", server.mails()) };
    let expected = format!(
        "  {}\n  the endpoint returned 410 Gone\n  Failing since {at}.\n  \
         Deliveries that did not arrive: 2, the first from {at}.\n  \
         https://crier.example/brands/{}/developers/webhooks/{}\n",
        receiver.uri(),
        w.world.brand,
        webhook.id,
    );
    assert!(mail.contains(&expected), "{expected} in {mail}");
    assert!(mail.contains("\nTo: ann@example.com\n") && !mail.contains("whsec"), "{mail}");
}

async fn five_days_without_success_are_reported(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 500).await;
    let created_at = w.now();
    // The first attempt is late: what did not arrive starts at the delivery, not at its failure.
    w.advance(90);
    w.run_jobs().await;
    let first_attempt_at = w.now();
    while w.now() - first_attempt_at < TimeDelta::days(5) - TimeDelta::hours(12) {
        w.clock.advance(TimeDelta::hours(11));
        w.run_jobs().await;
        assert!(is_active(&w, &webhook).await && waiting(&w).await == 0, "not yet");
    }
    w.clock.advance(first_attempt_at + TimeDelta::days(5) - w.now());
    emit_event(&w).await;
    emit_event(&w).await;
    w.run_jobs().await;
    assert!(!is_active(&w, &webhook).await);
    let [mail] = &mails_after_an_hour(&w, &server).await[..] else { panic!("one email: {:?}", server.mails()) };
    for expected in [
        "  no delivery succeeded for 5 days\n".to_owned(),
        format!("  Failing since {}.\n", format_time(first_attempt_at)),
        format!("did not arrive: 3, the first from {}.\n", format_time(created_at)),
    ] {
        assert!(mail.contains(&expected), "{expected} in {mail}");
    }
}

async fn concurrent_attempts_are_one_problem(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    emit_event(&w).await;
    let claimed = w.claim(&w.s.notifier.take(), "w").await;
    let mut results = Vec::new();
    for job in &claimed {
        results.push(w.run_claimed(job).await);
    }
    // Both attempts were in flight when the first one received 410.
    for (job, result) in claimed.iter().zip(&results) {
        assert!(w.settle_result(job, result).await);
    }
    assert_eq!((claimed.len(), w.count_rows("webhook_attempts").await, waiting(&w).await), (2, 2, 1));
    assert_eq!((mails_after_an_hour(&w, &server).await.len(), is_active(&w, &webhook).await), (1, false));
}

async fn a_webhook_that_its_owner_deactivated_is_no_problem(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    let result = w.run_claimed(&claimed).await;
    // The owner deactivates the endpoint first.
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    assert!(w.settle_result(&claimed, &result).await);
    assert_eq!(waiting(&w).await, 0);
    assert_eq!(mails_after_an_hour(&w, &server).await, [""; 0]);
}

async fn a_webhook_that_fails_again_is_reported_again(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    w.run_jobs().await;
    let enabled = Webhook { disabled_reason: None, ..webhook.clone() };
    w.write(async |tx| webhooks::update(tx, &enabled).await).await;
    assert_eq!(mails_after_an_hour(&w, &server).await, [""; 0], "the owner enabled it before the email");
    for sent in 1..=2 {
        w.write(async |tx| webhooks::update(tx, &enabled).await).await;
        w.advance(60);
        emit_event(&w).await;
        w.run_jobs().await;
        let mails = mails_after_an_hour(&w, &server).await;
        assert_eq!(mails.len(), sent);
        // The earlier deliveries belong to the earlier outages.
        assert!(mails[sent - 1].contains("did not arrive: 1,"), "{}", mails[sent - 1]);
    }
}

async fn who_wants_no_emails_gets_none_about_accounts_and_webhooks(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    w.write(async |tx| notices::set_frequency(tx, w.world.user, NoticeFrequency::Never).await).await;
    w.run_jobs().await;
    expire(&w).await;
    assert!(!is_active(&w, &webhook).await);
    assert_eq!(waiting(&w).await, 0);
    assert_eq!(mails_after_an_hour(&w, &server).await, [""; 0]);
}

async fn untrusted_text_stays_on_one_line(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    let description = Some("orders\r\nBcc: eve@example.com\r\n\r\n{{ name }} <b>".to_owned());
    w.write(async |tx| webhooks::update(tx, &Webhook { description, ..webhook.clone() }).await).await;
    w.run_jobs().await;
    let [mail] = &mails_after_an_hour(&w, &server).await[..] else { panic!("one email: {:?}", server.mails()) };
    assert!(mail.contains("\n  orders  Bcc: eve@example.com    {{ name }} <b>\n"), "{mail}");
    assert!(server.received_lines().iter().all(|received| !received.line.contains("eve")));
}
