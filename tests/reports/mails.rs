//! The emails of scheduled reports: recipients, content, failures, and unsubscribing.

use crier_domain::analytics::PostMetrics;
use crier_store::report_deliveries;
use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::mail_server::{MailServer, SmtpReply, SmtpStep};
use crate::support::reports::{
    Settings, TestInstallation, create, delivery, followers, newest_delivery, post_metrics, publish, tenant_in,
};
use crate::support::store::{TestStore, on_both, on_one};

on_both!(
    without_a_mail_server_the_file_is_exported,
    a_deferred_email_is_retried_with_the_same_message_id,
    a_recipient_can_unsubscribe,
    a_deferred_email_is_not_sent_after_the_recipient_unsubscribed,
    a_failed_export_sends_no_email,
    emails_of_a_deleted_report_are_not_sent,
    a_rejected_recipient_does_not_affect_the_others,
    each_recipient_receives_one_email_with_the_file,
);
on_one!(a_large_file_is_linked_without_an_api_key, hostile_names_stay_in_the_body,);

const PUBLIC_URL: &str = "https://crier.example";

async fn start(s: TestStore, server: &MailServer) -> TestInstallation {
    let settings = Settings { mailer: Some(server.mailer()), public_url: Some(PUBLIC_URL), ..Settings::default() };
    TestInstallation::start_with(s, settings).await
}

/// Creates a weekly report to these recipients. The date is 2026-06-09.
async fn weekly<'a>(r: &'a TestInstallation, name: &str, recipients: &[&str]) -> (Tenant<'a>, String) {
    let t = tenant_in(&r.app, "UTC").await;
    let report = create(&t, name, json!([{ "type": "summary" }])).await;
    let schedule = json!({ "frequency": "weekly", "recipients": recipients, "format": "csv" });
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    (t, report)
}

/// Advances the clock by a week, and runs the due schedule.
async fn next_week(r: &TestInstallation) {
    r.advance(7 * 86_400);
    r.fire().await;
}

/// Returns `recipient: status, code` of each email.
async fn mails(t: &Tenant<'_>, report: &str) -> Vec<String> {
    let newest = newest_delivery(t, report).await;
    let line = |mail: &Value| {
        let code = mail["error"]["code"].as_str().map(|code| format!(", {code}")).unwrap_or_default();
        format!("{}: {}{code}", mail["recipient"].as_str().unwrap(), mail["status"].as_str().unwrap())
    };
    newest["mail"].as_array().unwrap().iter().map(line).collect()
}

/// Returns a header of a received email, unfolded.
fn header(mail: &str, name: &str) -> Option<String> {
    let head = mail.split("\n\n").next().unwrap().replace("\n ", " ").replace("\n\t", " ");
    head.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
}

/// Returns an email without its soft line breaks, and with some quoted-printable characters decoded.
fn decoded(mail: &str) -> String {
    mail.replace("=\n", "").replace("=3D", "=").replace("=E2=80=93", "–")
}

/// Returns the first URL in an email that begins with `begin`.
fn find_url(mail: &str, begin: &str) -> String {
    let text = decoded(mail);
    let at = text.find(begin).unwrap_or_else(|| panic!("no {begin} in {text}"));
    text[at..].chars().take_while(|c| !c.is_whitespace() && !"\"<>".contains(*c)).collect()
}

async fn each_recipient_receives_one_email_with_the_file(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) = weekly(&r, "Wochenbericht", &["ann@example.com", "bob@example.com"]).await;
    let account = t.account("demo").await;
    publish(&t, account, "x", "2026-06-02T10:00:00Z", post_metrics(100, 10)).await;
    for n in 0..3 {
        publish(
            &t,
            account,
            "x",
            &format!("2026-06-1{n}T10:00:00Z"),
            PostMetrics { likes: Some(4_115), ..post_metrics(200, 0) },
        )
        .await;
    }
    followers(&t, account, "2026-06-10T00:00:00Z", 1_234_567).await;
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["ann@example.com: sent", "bob@example.com: sent"]);
    let sent = server.mails();
    assert_eq!(sent.len(), 2);
    let mail = &sent[0];
    assert_eq!(header(mail, "To").as_deref(), Some("ann@example.com"));
    assert_ne!(header(mail, "Message-ID"), header(&sent[1], "Message-ID"));
    let unsubscribe = header(mail, "List-Unsubscribe").unwrap();
    assert!(unsubscribe.starts_with(&format!("<{PUBLIC_URL}/reports/unsubscribe/")), "{unsubscribe}");
    assert_eq!(header(mail, "List-Unsubscribe-Post").as_deref(), Some("List-Unsubscribe=One-Click"));
    let text = decoded(mail);
    for part in [
        "8–14 June 2026",
        "Posts: 3 (+200% from the previous period)",
        "Engagements: 12,345",
        "Followers: 1,234,567\n",
        "The report is attached as a CSV file.",
        "<!doctype html>",
        "Content-Type: text/csv",
        "=\"Wochenbericht - Bakery - 2026-06-08 to 2026-06-14.csv\"",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    r.fire().await;
    assert_eq!(server.mails().len(), 2, "no second email");
}

async fn a_large_file_is_linked_without_an_api_key(s: TestStore) {
    let server = MailServer::start().await;
    let settings = Settings { mailer: Some(server.mailer()), max_attachment: Some(10), ..Settings::default() };
    let r = TestInstallation::start_with(s, settings).await;
    let (t, report) = weekly(&r, "R", &["ann@example.com"]).await;
    next_week(&r).await;
    let mail = &server.mails()[0];
    assert!(!mail.contains("Content-Disposition: attachment"), "{mail}");
    let url = find_url(mail, &format!("{}/reports/files/", r.url));
    let path = url.strip_prefix(&r.url).unwrap();
    let reply = r.page(path).await;
    reply.assert_status(200);
    assert!(reply.header("content-disposition").unwrap().starts_with("attachment; filename=\"R - Bakery - "));
    assert!(reply.body.starts_with(b"widget,title,"));
    // A token of another kind, a truncated token, and an invalid token.
    let other = find_url(mail, &format!("{}/reports/unsubscribe/", r.url)).replace("unsubscribe", "files");
    for wrong in [other.strip_prefix(&r.url).unwrap(), &path[..path.len() - 2], "/reports/files/x"] {
        r.page(wrong).await.assert_status(404);
    }
    r.advance(14 * 86_400 - 1);
    r.page(path).await.assert_status(200);
    r.advance(1);
    r.page(path).await.assert_status(410);
    t.delete(&report).await.expect(204);
}

async fn without_a_mail_server_the_file_is_exported(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, report) = weekly(&r, "R", &["ann@example.com"]).await;
    next_week(&r).await;
    assert_eq!(newest_delivery(&t, &report).await["status"], "sent");
    assert_eq!(mails(&t, &report).await, ["ann@example.com: failed, mail_not_configured"]);
}

async fn a_rejected_recipient_does_not_affect_the_others(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    r.leaves_jobs();
    let (t, report) = weekly(&r, "R", &["gone@example.com", "ann@example.com"]).await;
    server.then(SmtpStep::Recipient, SmtpReply::Say("550 5.1.1 No such user"));
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["gone@example.com: failed, mail_refused", "ann@example.com: sent"]);
    // The workspace's schedules send no more emails to this address.
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["gone@example.com: failed, mail_refused", "ann@example.com: sent"]);
    assert_eq!(server.mails().len(), 2);
    assert_eq!(server.received_lines().iter().filter(|line| line.line.contains("gone@")).count(), 1);
    // Entering the address again allows emails to it.
    let again = json!({ "frequency": "weekly", "recipients": ["Gone@example.com"] });
    t.post(&format!("{report}/schedules"), again).await.expect(201);
    next_week(&r).await;
    assert_eq!(server.mails().len(), 5);
}

async fn a_deferred_email_is_retried_with_the_same_message_id(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) = weekly(&r, "R", &["ann@example.com"]).await;
    server.then(SmtpStep::Recipient, SmtpReply::Say("451 4.7.1 Greylisted"));
    // The second connection accepts the email, and is lost before the worker receives the reply.
    server.then(SmtpStep::End, SmtpReply::HangUp);
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["ann@example.com: pending"]);
    let id = r.newest_mail().await.message_id;
    for _ in 0..3 {
        r.advance(3_600);
        r.run_jobs().await;
    }
    assert_eq!(mails(&t, &report).await, ["ann@example.com: sent"]);
    assert!(server.mails().iter().all(|mail| header(mail, "Message-ID").as_ref() == Some(&id)));
    assert_eq!(r.count_rows("mails").await, 1);
}

async fn a_recipient_can_unsubscribe(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) = weekly(&r, "R <b>", &["Ann@example.com", "bob@example.com"]).await;
    next_week(&r).await;
    let path = header(&server.mails()[0], "List-Unsubscribe").unwrap();
    let path = path.trim_matches(['<', '>']).strip_prefix(PUBLIC_URL).unwrap();
    // Email scanners open every URL, so opening the page alone does not unsubscribe.
    let confirmation = r.page(path).await;
    let text = String::from_utf8(confirmation.body.clone()).unwrap();
    assert!(text.contains("<button>Unsubscribe</button>") && text.contains("R &#60;b&#62;"), "{text}");
    assert_eq!(confirmation.header("cache-control"), Some("no-cache"));
    assert_eq!(r.count_rows("report_mail_stops").await, 0);
    for _ in 0..2 {
        let done = r.visit("POST", &format!("{}{path}", r.url)).raw("List-Unsubscribe=One-Click").send().await;
        done.assert_status(200);
    }
    assert_eq!(r.count_rows("report_mail_stops").await, 1);
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["Ann@example.com: failed, unsubscribed", "bob@example.com: sent"]);
    assert_eq!(server.mails().len(), 3);
    r.page("/reports/unsubscribe/AAAA").await.assert_status(404);
    t.delete(&report).await.expect(204);
    // The unsubscription outlasts the report.
    r.page(path).await.assert_status(200);
}

async fn a_deferred_email_is_not_sent_after_the_recipient_unsubscribed(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) = weekly(&r, "R", &["ann@example.com"]).await;
    server.then(SmtpStep::Recipient, SmtpReply::Say("451 4.7.1 Greylisted"));
    next_week(&r).await;
    assert_eq!(mails(&t, &report).await, ["ann@example.com: pending"]);
    r.app.write(async |tx| report_deliveries::unsubscribe(tx, t.workspace, "ann@example.com").await).await;
    r.advance(3_600);
    r.run_jobs().await;
    assert_eq!(mails(&t, &report).await, ["ann@example.com: failed, unsubscribed"]);
    assert!(server.mails().is_empty());
    assert_eq!(r.count_rows("jobs WHERE kind = 'send_mail' AND state = 'cancelled'").await, 1);
}

async fn a_failed_export_sends_no_email(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let t = r.app.tenant("business").await;
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    let schedule = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    r.set_storage_usage(t.workspace, 9_000_000_000_000, 0).await;
    r.advance(86_400);
    r.fire().await;
    assert_eq!(newest_delivery(&t, &report).await["status"], "failed");
    assert_eq!(mails(&t, &report).await, ["ann@example.com: failed, report_failed"]);
    assert!(server.mails().is_empty());
}

async fn emails_of_a_deleted_report_are_not_sent(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) = weekly(&r, "R", &["ann@example.com"]).await;
    server.then(SmtpStep::Recipient, SmtpReply::Say("451 4.7.1 Greylisted"));
    next_week(&r).await;
    t.delete(&report).await.expect(204);
    r.advance(3_600);
    r.run_jobs().await;
    assert!(server.mails().is_empty());
    assert_eq!(r.count_rows("mails").await, 0);
}

async fn hostile_names_stay_in_the_body(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server).await;
    let (t, report) =
        weekly(&r, "A\r\nBcc: eve@example.com\r\n\r\n<script>alert(1)</script>", &["ann@example.com"]).await;
    next_week(&r).await;
    let created = newest_delivery(&t, &report).await;
    assert_eq!(delivery(&t, created["id"].as_i64().unwrap()).await["mail"][0]["status"], "sent");
    let mail = decoded(&server.mails()[0]);
    assert_eq!(header(&mail, "Bcc"), None);
    let html = &mail[mail.find("<!doctype html>").unwrap()..];
    assert!(html.contains("&#60;script&#62;") && !html.contains("<script>"), "{html}");
}
