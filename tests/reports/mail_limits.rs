//! What bounds the mails of a workspace's reports: its plan, each address, and recipients who unsubscribe.

use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::console::ConsoleUser;
use crate::support::mail_server::MailServer;
use crate::support::reports::{Settings, TestInstallation, create, newest_delivery, tenant_in};
use crate::support::store::{TestStore, on_both};

on_both!(
    the_plan_limits_the_report_emails_of_a_day,
    an_address_gets_24_report_emails_a_day,
    an_unsubscription_holds_in_the_whole_workspace,
);

const PLAN_LIMIT: &str = "The plan allows 3 report emails per day (UTC). Choose fewer recipients or a larger plan.";
const ADDRESS_LIMIT: &str = "An address receives at most 24 report emails per day (UTC) from a workspace. Run the \
                             schedule less often.";

async fn start(s: TestStore, server: &MailServer, report_mails_per_day: Option<u64>) -> TestInstallation {
    let settings = Settings { mailer: Some(server.mailer()), report_mails_per_day, ..Settings::default() };
    TestInstallation::start_with(s, settings).await
}

/// A report that is mailed to these recipients every minute.
async fn every_minute(t: &Tenant<'_>, recipients: &[&str]) -> String {
    let report = create(t, "Busy", json!([{ "type": "note", "options": { "text": "x" } }])).await;
    let schedule = json!({ "frequency": "cron", "cron": "* * * * *", "recipients": recipients, "format": "csv" });
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    report
}

async fn next_minute(r: &TestInstallation) {
    r.advance(60);
    r.fire().await;
}

/// Returns the code and the message of each mail that the newest export did not send, and how many it sent.
async fn outcome(t: &Tenant<'_>, report: &str) -> (usize, Vec<(String, String)>) {
    let newest = newest_delivery(t, report).await;
    assert_eq!(newest["status"], "sent", "the file is there");
    let mails = newest["mail"].as_array().unwrap();
    let sent = mails.iter().filter(|mail| mail["status"] == "sent").count();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let error = |mail: &Value| (text(&mail["error"]["code"]), text(&mail["error"]["message"]));
    (sent, mails.iter().filter(|mail| mail["status"] == "failed").map(error).collect())
}

fn limit(message: &str) -> (String, String) {
    ("mail_limit_reached".to_owned(), message.to_owned())
}

async fn the_plan_limits_the_report_emails_of_a_day(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, Some(3)).await;
    let t = tenant_in(&r.app, "UTC").await;
    let report = every_minute(&t, &["ann@example.com", "bob@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (1, vec![limit(PLAN_LIMIT)]));
    assert_eq!(t.get(&t.path("/usage")).await.data(200)["report_mails_per_day"]["used"], 3);
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&report).await;
    let sentence = format!("1 email was not sent. {PLAN_LIMIT}");
    assert_eq!(page.text.matches(&sentence).count(), 2, "at the file and at the schedule: {}", page.text);
    person.get(&t.path("/settings/plan")).await.expect(200, "Report emails").expect(200, "3, no limit today (UTC)");
    // A new report of the same day has nothing left; another workspace has all of its own.
    t.delete(&report).await.expect(204);
    let report = every_minute(&t, &["cid@example.com", "dan@example.com"]).await;
    let other = tenant_in(&r.app, "UTC").await;
    let others = every_minute(&other, &["ann@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (0, vec![limit(PLAN_LIMIT), limit(PLAN_LIMIT)]));
    assert_eq!(outcome(&other, &others).await, (1, vec![]));
    person.get(&report).await.expect(200, "2 emails were not sent.");
    assert_eq!(server.mails().len(), 4);
    r.advance(86_400);
    r.fire().await;
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
}

async fn an_address_gets_24_report_emails_a_day(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, None).await;
    let t = tenant_in(&r.app, "UTC").await;
    let report = every_minute(&t, &["ann@example.com", "ann+1@example.com"]).await;
    for _ in 0..12 {
        next_minute(&r).await;
    }
    assert_eq!(outcome(&t, &report).await, (2, vec![]));
    let second = every_minute(&t, &["Ann+2@EXAMPLE.com", "bob@example.com"]).await;
    next_minute(&r).await;
    assert_eq!(outcome(&t, &report).await, (0, vec![limit(ADDRESS_LIMIT), limit(ADDRESS_LIMIT)]));
    assert_eq!(outcome(&t, &second).await, (1, vec![limit(ADDRESS_LIMIT)]));
    assert_eq!(server.mails().len(), 25);
}

/// Returns the path that the last mail to this address has for unsubscribing.
fn unsubscribe_path(r: &TestInstallation, server: &MailServer, to: &str) -> String {
    let mails = server.mails();
    let mail = mails.iter().rev().find(|mail| mail.contains(&format!("\nTo: {to}\n"))).expect("a mail");
    let head = mail.split("\n\n").next().unwrap().replace("\n ", "");
    let (_, rest) = head.split_once("List-Unsubscribe: <").expect("a header");
    rest.split('>').next().unwrap().strip_prefix(&r.url).unwrap().to_owned()
}

async fn post(r: &TestInstallation, path: &str, body: &'static str) -> String {
    let reply = r.visit("POST", &format!("{}{path}", r.url)).raw(body).send().await;
    reply.assert_status(200);
    String::from_utf8(reply.body.clone()).unwrap()
}

async fn page(r: &TestInstallation, path: &str) -> String {
    String::from_utf8(r.page(path).await.body.clone()).unwrap()
}

async fn an_unsubscription_holds_in_the_whole_workspace(s: TestStore) {
    let server = MailServer::start().await;
    let r = start(s, &server, None).await;
    let t = tenant_in(&r.app, "UTC").await;
    let first = every_minute(&t, &["Ann+work@example.com"]).await;
    let second = every_minute(&t, &["ann@example.com", "bob@example.com"]).await;
    let other = tenant_in(&r.app, "UTC").await;
    let others = every_minute(&other, &["ann@example.com"]).await;
    next_minute(&r).await;
    let path = unsubscribe_path(&r, &server, "Ann+work@example.com");
    let asked = page(&r, &path).await;
    assert!(asked.contains("Unsubscribe from report emails?") && asked.contains("Busy") && asked.contains("Acme"));
    // As a mail program sends it, and once more.
    for _ in 0..2 {
        assert!(post(&r, &path, "List-Unsubscribe=One-Click").await.contains("receives no more report emails"));
    }
    assert!(page(&r, &path).await.contains("<button>Subscribe again</button>"));
    // The sender cannot undo it: not with a new schedule, and not by deleting the one with the link.
    t.delete(&first).await.expect(204);
    let third = every_minute(&t, &["ann@example.com"]).await;
    next_minute(&r).await;
    let stopped =
        vec![("unsubscribed".to_owned(), "The recipient unsubscribed from this workspace's reports.".to_owned())];
    assert_eq!(outcome(&t, &second).await, (1, stopped.clone()));
    assert_eq!(outcome(&t, &third).await, (0, stopped));
    assert_eq!(outcome(&other, &others).await, (1, vec![]), "another workspace's reports");
    // The recipient can.
    assert!(post(&r, &path, "resubscribe=true").await.contains("Subscribed again"));
    assert!(page(&r, &path).await.contains("<button>Unsubscribe</button>"));
    next_minute(&r).await;
    assert_eq!(outcome(&t, &third).await, (1, vec![]));
    r.sql("DELETE FROM brands").await;
    assert!(page(&r, &path).await.contains("Unsubscribe from report emails?"), "the workspace is there");
}
