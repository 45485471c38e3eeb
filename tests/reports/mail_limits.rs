//! Limits on the report emails of a workspace: by its plan, per address, and for recipients who unsubscribe.

use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::console::ConsoleUser;
use crate::support::mail_server::MailServer;
use crate::support::reports::{Settings, TestInstallation, create, newest_delivery, tenant_in};
use crate::support::store::{TestStore, on_both};

on_both!(
    the_plan_limits_the_report_emails_per_day,
    an_address_receives_at_most_24_report_emails_per_day,
    an_unsubscription_applies_to_the_whole_workspace,
);

const PLAN_LIMIT: &str = "The plan allows 3 report emails per day (UTC). Choose fewer recipients, or ask the operator \
                          for a larger plan.";
const ADDRESS_LIMIT: &str = "An address receives at most 24 report emails per day (UTC) from a workspace. Run the \
                             schedule less often.";

async fn start(s: TestStore, server: &MailServer, report_mails_per_day: Option<u64>) -> TestInstallation {
    let settings = Settings { mailer: Some(server.mailer()), report_mails_per_day, ..Settings::default() };
    TestInstallation::start_with(s, settings).await
}

/// Creates a report that is emailed to these recipients every minute.
async fn schedule_every_minute(t: &Tenant<'_>, recipients: &[&str]) -> String {
    let report = create(t, "Busy", json!([{ "type": "note", "options": { "text": "x" } }])).await;
    let schedule = json!({ "frequency": "cron", "cron": "* * * * *", "recipients": recipients, "format": "csv" });
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    report
}

async fn next_minute(r: &TestInstallation) {
    r.advance(60);
    r.fire().await;
}

/// Returns the number of sent emails of the newest export, and the error code and message of each email that failed.
async fn outcome(t: &Tenant<'_>, report: &str) -> (usize, Vec<(String, String)>) {
    let newest = newest_delivery(t, report).await;
    assert_eq!(newest["status"], "sent", "the file is exported");
    let mails = newest["mail"].as_array().unwrap();
    let sent = mails.iter().filter(|mail| mail["status"] == "sent").count();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let error = |mail: &Value| (text(&mail["error"]["code"]), text(&mail["error"]["message"]));
    (sent, mails.iter().filter(|mail| mail["status"] == "failed").map(error).collect())
}

fn limit_error(message: &str) -> (String, String) {
    ("mail_limit_reached".to_owned(), message.to_owned())
}

async fn the_plan_limits_the_report_emails_per_day(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, Some(3)).await;
    let t = tenant_in(&r.app, "UTC").await;
    let report = schedule_every_minute(&t, &["ann@example.com", "bob@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (1, vec![limit_error(PLAN_LIMIT)]));
    assert_eq!(t.get(&t.path("/usage")).await.data(200)["report_mails_per_day"]["used"], 3);
    let user = ConsoleUser::sign_in(&t).await;
    let page = user.get(&report).await;
    let sentence = format!("1 email was not sent. {PLAN_LIMIT}");
    assert_eq!(page.text.matches(&sentence).count(), 2, "at the file and at the schedule: {}", page.text);
    user.get(&t.path("/settings/plan")).await.expect(200, "Report emails").expect(200, "3 today (UTC), no limit");
    // A new report on the same day has no emails left, but another workspace has its own limit.
    t.delete(&report).await.expect(204);
    let report = schedule_every_minute(&t, &["cid@example.com", "dan@example.com"]).await;
    let other = tenant_in(&r.app, "UTC").await;
    let others = schedule_every_minute(&other, &["ann@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (0, vec![limit_error(PLAN_LIMIT), limit_error(PLAN_LIMIT)]));
    assert_eq!(outcome(&other, &others).await, (1, vec![]));
    user.get(&report).await.expect(200, "2 emails were not sent.");
    assert_eq!(server.mails().len(), 4);
    r.advance(86_400);
    r.fire().await;
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
}

async fn an_address_receives_at_most_24_report_emails_per_day(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, None).await;
    let t = tenant_in(&r.app, "UTC").await;
    let report = schedule_every_minute(&t, &["ann@example.com", "ann+1@example.com"]).await;
    for _ in 0..12 {
        next_minute(&r).await;
    }
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
    let second = schedule_every_minute(&t, &["Ann+2@EXAMPLE.com", "bob@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (0, vec![limit_error(ADDRESS_LIMIT), limit_error(ADDRESS_LIMIT)]));
    assert_eq!(outcome(&t, &second).await, (1, vec![limit_error(ADDRESS_LIMIT)]));
    assert_eq!(server.mails().len(), 25);
}

/// Returns the path of the unsubscribe URL in the last email to this address.
fn unsubscribe_path(r: &TestInstallation, server: &MailServer, to: &str) -> String {
    let mails = server.mails();
    let mail = mails.iter().rev().find(|mail| mail.contains(&format!("\nTo: {to}\n"))).expect("a mail");
    let head = mail.split("\n\n").next().unwrap().replace("\n ", "");
    let (_, rest) = head.split_once("List-Unsubscribe: <").expect("a header");
    rest.split('>').next().unwrap().strip_prefix(&r.url).unwrap().to_owned()
}

async fn post(r: &TestInstallation, path: &str, body: &str) -> String {
    let reply = r.visit("POST", &format!("{}{path}", r.url)).raw(body).send().await;
    reply.assert_status(200);
    String::from_utf8(reply.body.clone()).unwrap()
}

async fn page(r: &TestInstallation, path: &str) -> String {
    String::from_utf8(r.page(path).await.body.clone()).unwrap()
}

async fn an_unsubscription_applies_to_the_whole_workspace(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, None).await;
    let t = tenant_in(&r.app, "UTC").await;
    let first = schedule_every_minute(&t, &["Ann+work@example.com"]).await;
    let second = schedule_every_minute(&t, &["ann@example.com", "bob@example.com"]).await;
    let other = tenant_in(&r.app, "UTC").await;
    let others = schedule_every_minute(&other, &["ann@example.com"]).await;
    next_minute(&r).await;
    let path = unsubscribe_path(&r, &server, "Ann+work@example.com");
    let confirmation = page(&r, &path).await;
    assert!(
        confirmation.contains("Unsubscribe from report emails?")
            && confirmation.contains("Busy")
            && confirmation.contains("Acme")
    );
    // As an email program sends it, twice.
    for _ in 0..2 {
        assert!(post(&r, &path, "List-Unsubscribe=One-Click").await.contains("receives no more report emails"));
    }
    // A large body is not read.
    let large = format!("resubscribe=true&x={}", "a".repeat(17_000));
    assert!(post(&r, &path, &large).await.contains("receives no more report emails"));
    assert!(page(&r, &path).await.contains("<button>Subscribe again</button>"));
    // The sender cannot undo this, neither with a new schedule nor by deleting the report with the link.
    t.delete(&first).await.expect(204);
    let third = schedule_every_minute(&t, &["ann@example.com"]).await;
    next_minute(&r).await;
    let unsubscribed =
        vec![("unsubscribed".to_owned(), "The recipient unsubscribed from this workspace's reports.".to_owned())];
    assert_eq!(outcome(&t, &second).await, (1, unsubscribed.clone()));
    assert_eq!(outcome(&t, &third).await, (0, unsubscribed));
    assert_eq!(outcome(&other, &others).await, (1, vec![]), "another workspace's reports");
    // The recipient can undo it.
    assert!(post(&r, &path, "resubscribe=true").await.contains("Subscribed again"));
    assert!(page(&r, &path).await.contains("<button>Unsubscribe</button>"));
    next_minute(&r).await;
    assert_eq!(outcome(&t, &third).await, (1, vec![]));
    r.delete_brand(t.brand).await;
    assert!(page(&r, &path).await.contains("Unsubscribe from report emails?"), "the workspace exists");
}
