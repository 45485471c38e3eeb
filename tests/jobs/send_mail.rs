//! `send_mail`: the effects of the mail server's replies, over every kind of connection that works without a trusted
//! certificate.

use crier_domain::job::{JobKind, JobState};
use crier_domain::mail::{Mail, MailStatus};
use crier_store::mails::{self, NewMail};

use crate::support::command::crier;
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker};
use crate::support::mail_server::{MailServer, SmtpReply, SmtpStep, mailer, mailer_with_short_timeout};
use crate::support::store::{TestStore, on_both, on_one};

on_both!(
    an_email_arrives_unchanged,
    an_unreachable_server_is_retried_for_a_day,
    a_crash_after_acceptance_resends_with_the_same_id,
    emails_with_files_do_not_delay_others,
    an_operator_can_retry_a_dead_email,
);
on_one!(
    email_content_never_becomes_a_header_or_command,
    a_temporary_smtp_error_is_retried,
    a_permanent_smtp_error_fails_immediately,
    an_invalid_address_fails_immediately,
    a_rejected_login_is_retried,
    a_silent_server_times_out,
    an_accepted_email_is_sent_despite_later_errors,
    a_worker_without_a_mail_server_reports_it,
    plaintext_login_is_allowed_on_localhost,
    plaintext_login_is_not_allowed_on_remote_servers,
    required_tls_must_be_offered,
    an_untrusted_certificate_is_rejected,
);

const RECIPIENT: &str = "ann@example.com";

async fn enqueue(w: &TestWorker, new: &NewMail<'_>) -> i64 {
    w.write(async |tx| mails::enqueue_mail(tx, w.world.user, new, None).await).await
}

/// Enqueues a short email. Its number is part of its message ID.
async fn enqueue_short(w: &TestWorker, number: usize, recipient: &str) -> i64 {
    let message_id = &format!("<mail-{number}@example.com>");
    let new = NewMail { recipient, subject: "Hello", body_text: "Hello\n", message_id, ..NewMail::default() };
    enqueue(w, &new).await
}

async fn enqueue_one(w: &TestWorker) -> i64 {
    enqueue_short(w, 1, RECIPIENT).await
}

async fn find_mail(w: &TestWorker, id: i64) -> Mail {
    mails::find(&mut w.conn().await, id).await.unwrap().unwrap()
}

/// Starts a mail server and a worker with an email to send.
async fn with_email(s: TestStore) -> (MailServer, TestWorker, i64) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    let id = enqueue_one(&w).await;
    (server, w, id)
}

/// Starts a mail server, and a worker that uses it by this URL, with an email to send.
async fn with_email_to(s: TestStore, url: &str) -> (MailServer, TestWorker, i64) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, mailer(&server.url(url))).await;
    let id = enqueue_one(&w).await;
    (server, w, id)
}

/// Returns the state, attempts and last error of the email's job.
async fn job(w: &TestWorker, mail: i64) -> (JobState, i32, Option<String>) {
    let row = w.show(w.newest_job_of(JobKind::SendMail, mail).await).await;
    (row.state, row.attempt, row.last_error)
}

/// Returns the values of a header of an email.
fn header<'a>(mail: &'a str, name: &str) -> Vec<&'a str> {
    let head = mail.split("\n\n").next().unwrap();
    head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
}

/// Runs the due jobs, asserts that the only attempt failed, and returns the stored error.
async fn assert_one_failed_attempt(w: &TestWorker, id: i64) -> String {
    w.run_jobs().await;
    let (state, attempts, error) = job(w, id).await;
    assert_eq!((state, attempts), (JobState::Scheduled, 1), "{error:?}");
    let mail = find_mail(w, id).await;
    assert_eq!((mail.status, &mail.error), (MailStatus::Pending, &error));
    error.unwrap()
}

async fn an_email_arrives_unchanged(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    let long = "x".repeat(2_000);
    let body = format!("Grüße\n.\n.dots\n{long}\n");
    let new = NewMail {
        recipient: RECIPIENT,
        subject: "Grüße ☃",
        body_text: &body,
        message_id: "<mail-1@example.com>",
        ..NewMail::default()
    };
    let id = enqueue(&w, &new).await;
    w.run_jobs().await;
    assert_eq!(job(&w, id).await, (JobState::Done, 1, None));
    assert_eq!((find_mail(&w, id).await.status, find_mail(&w, id).await.sent_at), (MailStatus::Sent, Some(w.now())));
    let [mail] = &server.mails()[..] else { panic!("one mail: {:?}", server.mails()) };
    assert_eq!(header(mail, "To"), [RECIPIENT]);
    assert_eq!(header(mail, "From"), ["=?utf-8?b?Q3JpZXIgZsO8ciBBbm4=?= <crier@example.com>"]);
    assert_eq!(header(mail, "Subject"), ["=?utf-8?b?R3LDvMOfZSDimIM=?="]);
    assert_eq!(header(mail, "Message-ID"), ["<mail-1@example.com>"]);
    assert_eq!(header(mail, "Date"), [w.now().format("%a, %d %b %Y %T +0000").to_string()]);
    assert_eq!(header(mail, "MIME-Version"), ["1.0"]);
    assert_eq!(header(mail, "Content-Type"), ["text/plain; charset=utf-8"]);
    assert_eq!(header(mail, "Auto-Submitted"), ["auto-generated"]);
    assert_eq!(header(mail, "Content-Transfer-Encoding"), ["quoted-printable"]);
    let text = mail.split_once("\n\n").unwrap().1.replace("=\n", "");
    assert_eq!(text.trim_end(), format!("Gr=C3=BC=C3=9Fe\n.\n.dots\n{long}"), "including its dots");
    let lines: Vec<String> = server.received_lines().into_iter().map(|received| received.line).collect();
    assert_eq!(
        lines,
        ["EHLO example.com", "MAIL FROM:<crier@example.com>", "RCPT TO:<ann@example.com>", "DATA", "QUIT"]
    );
}

/// An email with a file may wait for memory, and the others would wait in the same lane.
async fn emails_with_files_do_not_delay_others(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    w.leaves_jobs();
    for number in 0..JobKind::SendMail.limits().lane_cap.unwrap() {
        let message_id = &format!("<file-{number}@example.com>");
        enqueue(&w, &NewMail { recipient: RECIPIENT, message_id, has_file: true, ..NewMail::default() }).await;
    }
    let all = w.s.notifier.take();
    assert_eq!(w.claim(&all, "other").await.len(), all.len(), "another worker sends them");
    let id = enqueue_one(&w).await;
    w.run_jobs().await;
    assert_eq!(find_mail(&w, id).await.status, MailStatus::Sent);
}

async fn email_content_never_becomes_a_header_or_command(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    w.leaves_jobs();
    let hostile = "Hello\r\nBcc: eve@example.com\r\n\r\nbody\u{2028}\0";
    let new = NewMail {
        recipient: RECIPIENT,
        subject: hostile.trim_end_matches('\0'),
        body_text: "\r\n.\r\nMAIL FROM:<eve@example.com>\r\n",
        message_id: "<mail-1@example.com>",
        ..NewMail::default()
    };
    enqueue(&w, &new).await;
    let recipient = "\"a\r\nRCPT TO:<eve@example.com>\r\n\"@example.com";
    let rejected = enqueue(&w, &NewMail { recipient, message_id: "<mail-2@example.com>", ..new }).await;
    w.run_jobs().await;
    assert_eq!(find_mail(&w, rejected).await.status, MailStatus::Failed);
    let [mail] = &server.mails()[..] else { panic!("one mail: {:?}", server.mails()) };
    assert!(header(mail, "Bcc").is_empty(), "{mail}");
    assert_eq!(header(mail, "Subject").len(), 1, "{mail}");
    let lines = server.received_lines();
    assert_eq!(lines.iter().filter(|received| received.line.starts_with("RCPT")).count(), 1);
    assert!(lines.iter().all(|received| !received.line.contains("eve")), "{lines:?}");
}

async fn a_temporary_smtp_error_is_retried(s: TestStore) {
    let (server, w, id) = with_email(s).await;
    let failures = [
        (SmtpStep::Greeting, "421 too busy"),
        (SmtpStep::Sender, "451 try later"),
        (SmtpStep::Recipient, "450 4.2.0 greylisted"),
        (SmtpStep::Data, "452 no room"),
        (SmtpStep::End, "451 no room after all"),
    ];
    for (step, reply) in failures {
        server.then(step, SmtpReply::Say(reply));
    }
    let mut pauses = Vec::new();
    for (number, (_, reply)) in (1..).zip(failures) {
        w.run_jobs().await;
        let (state, attempts, error) = job(&w, id).await;
        assert_eq!((state, attempts), (JobState::Scheduled, number));
        assert!(error.as_ref().unwrap().contains(&reply[4..]), "{error:?}");
        assert_eq!((find_mail(&w, id).await.status, find_mail(&w, id).await.error), (MailStatus::Pending, error));
        let next = w.newest_job().await.run_at;
        pauses.push((next - w.now()).num_seconds());
        w.clock.advance(next - w.now());
    }
    assert!(pauses.is_sorted() && pauses[0] >= 4 && pauses[4] >= 3 * 3_600, "{pauses:?}");
    w.run_jobs().await;
    assert_eq!((job(&w, id).await.0, server.mails().len()), (JobState::Done, 1));
    assert_eq!((find_mail(&w, id).await.status, find_mail(&w, id).await.error), (MailStatus::Sent, None));
}

async fn an_unreachable_server_is_retried_for_a_day(s: TestStore) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let w = TestWorker::with_mailer(s, mailer(&format!("smtp://{address}"))).await;
    w.leaves_jobs();
    let (id, started_at) = (enqueue_one(&w).await, w.now());
    w.run_until_idle().await;
    let (state, attempts, error) = job(&w, id).await;
    assert_eq!((state, attempts), (JobState::Dead, 8));
    let hours = (w.now() - started_at).num_hours();
    assert!((20..36).contains(&hours), "{hours} hours");
    let mail = find_mail(&w, id).await;
    assert_eq!((mail.status, &mail.error), (MailStatus::Failed, &error));
    assert!(error.unwrap().contains("refused"));
}

async fn a_permanent_smtp_error_fails_immediately(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    w.leaves_jobs();
    for (number, step) in (1..).zip([SmtpStep::Sender, SmtpStep::Recipient, SmtpStep::Data, SmtpStep::End]) {
        server.then(step, SmtpReply::Say("550 5.1.1 no such user here"));
        let id = enqueue_short(&w, number, RECIPIENT).await;
        w.run_jobs().await;
        let (state, attempts, error) = job(&w, id).await;
        assert_eq!((state, attempts), (JobState::Dead, 1), "{step:?}");
        assert!(error.as_ref().unwrap().contains("no such user here"), "{error:?}");
        assert_eq!((find_mail(&w, id).await.status, find_mail(&w, id).await.error), (MailStatus::Failed, error));
    }
    assert!(server.mails().is_empty());
}

async fn an_invalid_address_fails_immediately(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    w.leaves_jobs();
    for (number, recipient) in
        (1..).zip(["ann", "ann@", "@example.com", "ann@exa mple.com", "ann@example.com, bob@example.com"])
    {
        let id = enqueue_short(&w, number, recipient).await;
        w.run_jobs().await;
        assert_eq!(job(&w, id).await.0, JobState::Dead, "{recipient}");
        assert!(find_mail(&w, id).await.error.unwrap().contains("not a valid email address"), "{recipient}");
    }
    assert!(server.received_lines().is_empty());
    enqueue_short(&w, 9, "ann@bücher.example").await;
    w.run_jobs().await;
    assert!(server.received_lines().iter().any(|received| received.line == "RCPT TO:<ann@xn--bcher-kva.example>"));
}

async fn a_rejected_login_is_retried(s: TestStore) {
    let (server, w, id) = with_email_to(s, "smtp://ann:hush@{}").await;
    server.then(SmtpStep::Login, SmtpReply::Say("535 5.7.8 wrong password"));
    let error = assert_one_failed_attempt(&w, id).await;
    assert!(error.contains("wrong password") && !error.contains("hush"), "{error}");
    w.run_until_idle().await;
    assert_eq!((find_mail(&w, id).await.status, server.mails().len()), (MailStatus::Sent, 1));
}

async fn a_silent_server_times_out(s: TestStore) {
    let server = MailServer::start().await;
    let mut w = TestWorker::with_mailer(s, mailer_with_short_timeout(&server.url("smtp://{}"))).await;
    let id = enqueue_one(&w).await;
    server.then(SmtpStep::Greeting, SmtpReply::Silence);
    let error = assert_one_failed_attempt(&w, id).await;
    assert!(error.contains("did not finish within 2s"), "{error}");
    w.set_mailer(server.mailer());
    server.then(SmtpStep::Data, SmtpReply::HangUp);
    w.run_until_idle().await;
    assert_eq!((find_mail(&w, id).await.status, job(&w, id).await.1), (MailStatus::Sent, 3));
}

async fn an_accepted_email_is_sent_despite_later_errors(s: TestStore) {
    let server = MailServer::start().await;
    let w = TestWorker::with_mailer(s, server.mailer()).await;
    for (number, reply) in (1..).zip([SmtpReply::HangUp, SmtpReply::Silence, SmtpReply::Say("500 what?")]) {
        server.then(SmtpStep::Quit, reply);
        let id = enqueue_short(&w, number, RECIPIENT).await;
        w.run_jobs().await;
        assert_eq!((job(&w, id).await.0, server.mails().len()), (JobState::Done, number), "{reply:?}");
    }
}

async fn a_crash_after_acceptance_resends_with_the_same_id(s: TestStore) {
    let (server, w, id) = with_email(s).await;
    // The server accepts the email, and the worker dies before it stores the result.
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    drop(w.run_claimed(&claimed).await.unwrap());
    assert_eq!((server.mails().len(), find_mail(&w, id).await.status), (1, MailStatus::Pending));
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_eq!((find_mail(&w, id).await.status, job(&w, id).await.0), (MailStatus::Sent, JobState::Done));
    let mails = server.mails();
    assert_eq!((mails.len(), header(&mails[0], "Message-ID")), (2, vec!["<mail-1@example.com>"]));
    assert_eq!(mails[0], mails[1], "byte for byte");
}

async fn a_worker_without_a_mail_server_reports_it(s: TestStore) {
    let w = TestWorker::over(s).await;
    let id = enqueue_one(&w).await;
    w.run_jobs().await;
    let (state, _, error) = job(&w, id).await;
    assert_eq!((state, find_mail(&w, id).await.status), (JobState::Cancelled, MailStatus::Failed));
    let error = error.unwrap();
    assert!(error.contains("mail_not_configured") && error.contains("CRIER_SMTP_URL"), "{error}");
    assert_eq!(find_mail(&w, id).await.error, Some(error));
}

async fn an_operator_can_retry_a_dead_email(s: TestStore) {
    let (server, w, id) = with_email(s).await;
    server.then(SmtpStep::Recipient, SmtpReply::Say("550 no such user"));
    w.run_jobs().await;
    let job_id = w.newest_job().await.id.to_string();
    let shown = crier(&w, &["jobs", "show", &job_id]);
    assert!(
        shown.expect_stdout().contains("no such user")
            && shown.expect_stdout().contains(&format!("mail {id} on behalf of user"))
    );
    assert_eq!(crier(&w, &["jobs", "retry", "--dead", "--kind", "send_mail"]).expect_stdout(), "Retried: 1.\n");
    w.run_until_idle().await;
    assert_eq!((find_mail(&w, id).await.status, server.mails().len()), (MailStatus::Sent, 1));
}

async fn plaintext_login_is_allowed_on_localhost(s: TestStore) {
    let (server, w, id) = with_email_to(s, "smtp://ann:hush@{}").await;
    w.run_jobs().await;
    assert_eq!(find_mail(&w, id).await.status, MailStatus::Sent);
    assert!(server.received_lines().iter().any(|received| received.line == "AUTH PLAIN AGFubgBodXNo"));
}

async fn plaintext_login_is_not_allowed_on_remote_servers(s: TestStore) {
    let server = MailServer::start().await;
    // An address that reaches this machine but is not a loopback address.
    let remote = mailer(&format!("smtp://ann:hush@0.0.0.0:{}", server.address.port()));
    let w = TestWorker::with_mailer(s, remote).await;
    let id = enqueue_one(&w).await;
    let error = assert_one_failed_attempt(&w, id).await;
    assert!(error.contains("smtps://") && !error.contains("hush"), "{error}");
    let received = server.received_lines();
    assert!(received.iter().all(|received| received.line.starts_with("EHLO")), "{received:?}");
}

async fn required_tls_must_be_offered(s: TestStore) {
    let (server, w, id) = with_email_to(s, "smtp://ann:hush@{}?tls=required").await;
    let error = assert_one_failed_attempt(&w, id).await;
    assert!(error.contains("STARTTLS is not supported"), "{error}");
    let received = server.received_lines();
    assert!(received.iter().all(|received| received.line.starts_with("EHLO")), "{received:?}");
}

async fn an_untrusted_certificate_is_rejected(s: TestStore) {
    let (offering, speaking) = (MailServer::start_with_starttls().await, MailServer::start_with_implicit_tls().await);
    let mut w = TestWorker::over(s).await;
    let forms = ["smtp://ann:hush@{}", "smtp://ann:hush@{}?tls=required", "smtps://ann:hush@{}"];
    for ((number, form), server) in (1..).zip(forms).zip([&offering, &offering, &speaking]) {
        w.set_mailer(mailer(&server.url(form)));
        let id = enqueue_short(&w, number, RECIPIENT).await;
        let error = assert_one_failed_attempt(&w, id).await;
        assert!(error.contains("certificate"), "{form}: {error}");
    }
    let received = [offering.received_lines(), speaking.received_lines()].concat();
    assert!(
        received.iter().all(|received| ["EHLO example.com", "STARTTLS"].contains(&received.line.as_str())),
        "{received:?}"
    );
}
