//! Emails to users: the notice that an endpoint was disabled.

use chrono::TimeDelta;
use crier_domain::event::EventName;
use crier_domain::webhook::Webhook;
use crier_store::{events, webhooks};
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::jobs::TestWorker;
use crate::support::mail_server::MailServer;
use crate::support::store::{TestStore, on_both, on_one};

on_both!(
    a_410_response_sends_one_notice,
    five_days_without_success_send_one_notice,
    concurrent_attempts_send_one_notice,
    an_inactive_endpoint_sends_no_notice,
    a_reenabled_endpoint_that_fails_sends_a_new_notice,
    a_user_receives_at_most_24_notices_per_day,
);
on_one!(without_a_mail_server_no_notice_is_stored, untrusted_response_text_stays_on_one_line,);

/// Starts an endpoint that responds to everything with this status.
async fn receiver(status: u16) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(status)).mount(&server).await;
    server
}

async fn emit_event(w: &TestWorker) {
    let data = json!({ "post_id": 1 });
    w.write(async |tx| events::emit(tx, w.world.brand, EventName::PostPublished, &data, Some("request-1")).await).await;
}

/// Creates a worker with a mail server, and an endpoint that has one pending delivery and responds with this status.
async fn with_failing_endpoint(s: TestStore, status: u16) -> (TestWorker, MailServer, MockServer, Webhook) {
    let mails = MailServer::start().await;
    let w = TestWorker::with_mailer(s, mails.mailer()).await;
    let receiver = receiver(status).await;
    let webhook = w.listen_at(&receiver.uri()).await;
    emit_event(&w).await;
    (w, mails, receiver, webhook)
}

async fn is_active(w: &TestWorker, webhook: &Webhook) -> bool {
    webhooks::find(&mut w.conn().await, w.world.user, webhook.id).await.unwrap().unwrap().is_active
}

/// Returns the text of the only email.
fn text(server: &MailServer) -> String {
    let [mail] = &server.mails()[..] else { panic!("one mail: {:?}", server.mails()) };
    mail.split_once("\n\n").unwrap().1.to_owned()
}

fn format_time(time: chrono::DateTime<chrono::Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

async fn a_410_response_sends_one_notice(s: TestStore) {
    let (w, server, receiver, webhook) = with_failing_endpoint(s, 410).await;
    emit_event(&w).await;
    w.run_jobs().await;
    assert!(!is_active(&w, &webhook).await);
    let now = w.now();
    let expected = format!(
        "Hello Ann,\n\nCrier has disabled one of your webhook endpoints. Until you enable it\n\
         again, it receives no events and nothing is delivered to it.\n\n\
         Endpoint       {id}\nURL            {url}\nReason         the endpoint returned 410 Gone\nFailing since  {at}\nDisabled at    {at}\n\
         Last attempt   the endpoint returned 410\n\n\
         Crier attempts each delivery up to 8 times within a day.\nDeliveries that did not arrive: 2.\n\n\
         When the endpoint works again, activate it in the console under Developers,\nWebhooks, or with the API:\n\n  PUT /webhooks/{id}\n  {{\"is_active\": true}}\n\n\
         Then retry the deliveries that did not arrive:\n\n  POST /webhooks/{id}/recover\n  {{\"since\": \"{since}\"}}\n\n\
         You receive this email because you own the endpoint.",
        id = webhook.id,
        url = receiver.uri(),
        at = format_time(now),
        since = now.format("%FT%TZ"),
    );
    assert_eq!(text(&server).trim_end(), expected);
    let mail = &server.mails()[0];
    assert!(mail.contains(&format!("\nSubject: Crier disabled your webhook endpoint {}\n", webhook.id)), "{mail}");
    assert!(mail.contains("\nTo: ann@example.com\n") && !mail.contains("whsec"), "{mail}");
    assert_eq!(w.count_rows("jobs WHERE kind = 'send_mail' AND state = 'done' AND trace = 'request-1'").await, 1);
    w.run_until_idle().await;
    assert_eq!((server.mails().len(), w.count_rows("mails").await), (1, 1));
}

async fn five_days_without_success_send_one_notice(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 500).await;
    let created_at = w.now();
    // The first attempt is late: recovery starts at the delivery, not at its failure.
    w.advance(90);
    w.run_jobs().await;
    let first_attempt_at = w.now();
    while w.now() - first_attempt_at < TimeDelta::days(5) - TimeDelta::hours(12) {
        w.clock.advance(TimeDelta::hours(11));
        w.run_jobs().await;
        assert!(is_active(&w, &webhook).await && server.mails().is_empty(), "not yet");
    }
    w.clock.advance(first_attempt_at + TimeDelta::days(5) - w.now());
    emit_event(&w).await;
    emit_event(&w).await;
    w.run_jobs().await;
    assert!(!is_active(&w, &webhook).await);
    let text = text(&server);
    for expected in [
        "Reason         no delivery succeeded for 5 days\n",
        &format!("Failing since  {}\n", format_time(first_attempt_at)),
        &format!("Disabled at    {}\n", format_time(w.now())),
        "Last attempt   the endpoint returned 500\n",
        "did not arrive: 3.\n",
        &format!("\"since\": \"{}\"", created_at.format("%FT%TZ")),
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    w.run_until_idle().await;
    assert_eq!(server.mails().len(), 1);
}

async fn concurrent_attempts_send_one_notice(s: TestStore) {
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
    assert_eq!((claimed.len(), w.count_rows("webhook_attempts").await), (2, 2));
    assert_eq!(w.count_rows("mails").await, 1);
    w.run_jobs().await;
    assert_eq!((server.mails().len(), is_active(&w, &webhook).await), (1, false));
}

async fn an_inactive_endpoint_sends_no_notice(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    let result = w.run_claimed(&claimed).await;
    // The owner disables the endpoint first.
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    assert!(w.settle_result(&claimed, &result).await);
    w.run_jobs().await;
    assert_eq!((server.mails().len(), w.count_rows("mails").await), (0, 0));
}

async fn without_a_mail_server_no_notice_is_stored(s: TestStore) {
    let w = TestWorker::over(s).await;
    let receiver = receiver(410).await;
    let webhook = w.listen_at(&receiver.uri()).await;
    emit_event(&w).await;
    w.run_jobs().await;
    assert!(!is_active(&w, &webhook).await);
    assert_eq!(w.count_rows("mails").await, 0);
    assert_eq!(w.count_rows("jobs WHERE kind = 'send_mail'").await, 0);
}

async fn untrusted_response_text_stays_on_one_line(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    let description = Some("orders\r\nBcc: eve@example.com\r\n\r\n{{ name }} <b>".to_owned());
    w.write(async |tx| webhooks::update(tx, &Webhook { description, ..webhook.clone() }).await).await;
    w.run_jobs().await;
    let line = "\nDescription    orders  Bcc: eve@example.com    {{ name }} <b>\nReason";
    assert!(text(&server).contains(line), "{}", text(&server));
    assert!(server.received_lines().iter().all(|received| !received.line.contains("eve")));
}

async fn a_reenabled_endpoint_that_fails_sends_a_new_notice(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    w.run_jobs().await;
    w.write(async |tx| webhooks::update(tx, &Webhook { disabled_reason: None, ..webhook.clone() }).await).await;
    w.advance(60);
    emit_event(&w).await;
    w.run_jobs().await;
    let mails = server.mails();
    assert_eq!(mails.len(), 2);
    assert!(
        mails[1].contains("did not arrive: 1."),
        "the earlier delivery belongs to the earlier outage: {}",
        mails[1]
    );
    let id = |mail: &str| mail.lines().find(|line| line.starts_with("Message-ID")).unwrap().to_owned();
    assert_ne!(id(&mails[0]), id(&mails[1]));
}

async fn a_user_receives_at_most_24_notices_per_day(s: TestStore) {
    let (w, server, _receiver, webhook) = with_failing_endpoint(s, 410).await;
    let enabled = Webhook { disabled_reason: None, ..webhook.clone() };
    let fail = async || {
        w.write(async |tx| webhooks::update(tx, &enabled).await).await;
        emit_event(&w).await;
        w.run_jobs().await;
        assert!(!is_active(&w, &webhook).await);
        server.mails().len()
    };
    for _ in 0..24 {
        fail().await;
    }
    assert_eq!(server.mails().len(), 24);
    assert_eq!(fail().await, 24);
    w.clock.advance(TimeDelta::days(1));
    assert_eq!(fail().await, 25);
}
