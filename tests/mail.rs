//! Email from real processes, over TLS with a certificate that the system trusts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::client::until;
use crate::support::mail_server::MailServer;
use crate::support::process::Installation;

/// Starts an installation that uses this mail server and trusts its certificate.
async fn start_installation(server: &MailServer, form: &str, split: bool) -> (Installation, tempfile::NamedTempFile) {
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), server.certificate()).unwrap();
    let (url, path) = (server.url(form), trusted.path().display().to_string());
    let keys = [
        ("CRIER_SMTP_URL", url.as_str()),
        ("CRIER_MAIL_FROM", "Crier <crier@example.com>"),
        ("SSL_CERT_FILE", path.as_str()),
    ];
    let crier = if split { Installation::split_with(&keys).await } else { Installation::embedded_with(&keys).await };
    (crier, trusted)
}

/// An endpoint that returns 410 is disabled, and its owner gets one email. Secrets are sent only over TLS.
async fn assert_owner_is_mailed(server: MailServer, form: &str, split: bool) {
    let (mut crier, _trusted) = start_installation(&server, form, split).await;
    let gone = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(410)).mount(&gone).await;
    crier.listen(&gone.uri()).await;
    crier.execute("UPDATE users SET notice_frequency = 'immediately'").await;
    let (brand, account) = crier.sandbox("mail").await;
    crier.post(brand, account, "Hello").await;
    let mail = until("a mail", || async { server.mails().pop() }).await;
    assert!(mail.contains("To: owner@localhost\n") && mail.contains(&gone.uri()), "{mail}");
    until("the end of its job", || async {
        let done = crier.count_rows("mails WHERE status = 'sent'").await;
        (done == 1).then_some(())
    })
    .await;
    let lines = server.received_lines();
    assert!(lines.iter().all(|sent| sent.encrypted || ["EHLO example.com", "STARTTLS"].contains(&sent.line.as_str())));
    assert!(lines.iter().any(|sent| sent.line == "AUTH PLAIN AGFubgBodXNo"), "{lines:?}");
    assert_eq!(server.mails().len(), 1);
    for name in crier.names() {
        assert!(!crier.log(name).contains("hush"), "{}", crier.log(name));
    }
    crier.assert_all_run();
}

#[tokio::test]
async fn embedded_sends_mail_over_implicit_tls() {
    assert_owner_is_mailed(MailServer::start_with_implicit_tls().await, "smtps://ann:hush@{}", false).await;
}

#[tokio::test]
async fn embedded_sends_mail_over_offered_starttls() {
    assert_owner_is_mailed(MailServer::start_with_starttls().await, "smtp://ann:hush@{}", false).await;
}

#[tokio::test]
async fn split_sends_mail_over_required_starttls() {
    assert_owner_is_mailed(MailServer::start_with_starttls().await, "smtp://ann:hush@{}?tls=required", true).await;
}
