//! Sends emails by SMTP. Only this crate uses the SMTP library.
//!
//! Each email is sent to the operator's server on its own connection, within 30 seconds in total. [`SendError`]
//! distinguishes errors that can be retried. If the connection breaks after the last byte, it is unknown whether the
//! server accepted the email: it is sent again with the same Message-ID, by which mail programs remove duplicates.
//!
//! The server's URL selects implicit TLS, required STARTTLS, or STARTTLS if offered. The certificate is always verified
//! against the system's authorities. Credentials are never sent unencrypted, except to this machine.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use crier_config::{MailConfig, Smtp, SmtpTls};
use crier_domain::mail::Mail;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as MailAttachment, Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message};
use secrecy::ExposeSecret;
use tokio::time::timeout;
use url::Host;

/// The time limit from the DNS lookup to the server's reply to the email.
const DEADLINE: Duration = Duration::from_secs(30);
/// The time limit for the reply to QUIT. It is short, because after a crash in this time the email is sent again.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a stored error, in characters.
const MAX_ERROR_CHARS: usize = 500;
/// Number of random characters in a Message-ID.
const MESSAGE_ID_LENGTH: usize = 24;
/// Maximum length of an address, in bytes (RFC 5321, 4.5.3.1.3).
const MAX_ADDRESS: usize = 254;

/// Why the mail configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum MailerError {
    #[error("CRIER_MAIL_FROM: {0} is not a valid sender address")]
    From(String),
    #[error("CRIER_SMTP_URL: failed to load the system certificates: {0}")]
    Tls(SmtpError),
}

/// Why an email was not sent. The message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A retry may succeed.
    #[error("{0}")]
    Deferred(String),
    /// The server rejected the email permanently.
    #[error("{0}")]
    Rejected(String),
    /// The server permanently rejects emails to this recipient.
    #[error("{0}")]
    RecipientRejected(String),
}

/// A file that is attached to an email.
#[derive(Clone, Debug)]
pub struct Attachment {
    pub name: String,
    pub media_type: &'static str,
    pub bytes: Bytes,
}

/// Sends emails through the operator's server.
pub struct Mailer {
    server: Smtp,
    tls: TlsParameters,
    from: Mailbox,
    /// The sender's host, for EHLO and the right side of Message-IDs.
    host: String,
    timeout: Duration,
}

/// Omits the credentials.
impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer")
            .field("host", &self.server.host)
            .field("port", &self.server.port)
            .finish_non_exhaustive()
    }
}

impl Mailer {
    /// Creates a mailer; `None` if no mail server is configured.
    pub fn new(config: &MailConfig) -> Result<Option<Self>, MailerError> {
        let Some(server) = config.smtp.clone() else { return Ok(None) };
        let sender = &config.from;
        let from = address(&sender.address).ok_or_else(|| MailerError::From(sender.address.clone()))?;
        Ok(Some(Self {
            tls: TlsParameters::new(server.host.clone()).map_err(MailerError::Tls)?,
            server,
            host: from.domain().to_owned(),
            from: Mailbox::new(sender.name.clone(), from),
            timeout: DEADLINE,
        }))
    }

    /// Returns the mailer with another deadline.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns a new unique Message-ID.
    pub fn message_id(&self) -> Result<String, getrandom::Error> {
        Ok(format!("<mail-{}@{}>", crier_base::random::text(MESSAGE_ID_LENGTH)?, self.host))
    }

    /// Sends an email; returns `Ok` if the server accepted it.
    pub async fn send(&self, mail: &Mail, attachment: Option<Attachment>) -> Result<(), SendError> {
        let message = self.message(mail, attachment)?;
        let late = |_| SendError::Deferred(format!("the mail server did not finish within {:?}", self.timeout));
        let mut connection = timeout(self.timeout, self.deliver(&message)).await.map_err(late)??;
        // The server has accepted the email; the result of QUIT does not matter.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(())
    }

    /// Connects and logs in, but sends no email.
    pub async fn check(&self) -> Result<(), SendError> {
        let late = |_| SendError::Deferred(format!("the mail server did not respond within {:?}", self.timeout));
        let mut connection = timeout(self.timeout, self.connect()).await.map_err(late)??;
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(())
    }

    fn message(&self, mail: &Mail, attachment: Option<Attachment>) -> Result<Message, SendError> {
        let to = address(&mail.recipient)
            .ok_or_else(|| SendError::RecipientRejected("the recipient is not a valid email address".to_owned()))?;
        let mut message = Message::builder()
            .from(self.from.clone())
            .to(to.into())
            .subject(one_line(&mail.subject))
            .date(SystemTime::from(mail.created_at))
            .message_id(Some(mail.message_id.clone()))
            // Prevents automatic replies (RFC 3834).
            .raw_header(raw_header("Auto-Submitted", "auto-generated"));
        if let Some(url) = &mail.unsubscribe_url {
            message = message.raw_header(raw_header("List-Unsubscribe", &format!("<{}>", one_line(url))));
            if url.starts_with("https://") {
                message = message.raw_header(raw_header("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"));
            }
        }
        let invalid = |error| SendError::Rejected(error_text(error));
        let text = SinglePart::plain(mail.body_text.clone());
        let Some(html) = mail.body_html.clone() else { return message.singlepart(text).map_err(invalid) };
        let body = MultiPart::alternative().singlepart(text).singlepart(SinglePart::html(html));
        let Some(file) = attachment else { return message.multipart(body).map_err(invalid) };
        let media_type = ContentType::parse(file.media_type).map_err(|error| SendError::Rejected(error.to_string()))?;
        let part = MailAttachment::new(file.name).body(Vec::from(file.bytes), media_type);
        message.multipart(MultiPart::mixed().multipart(body).singlepart(part)).map_err(invalid)
    }

    /// Connects, sends the email, and returns the connection if the server accepted the email.
    async fn deliver(&self, message: &Message) -> Result<AsyncSmtpConnection, SendError> {
        let mut connection = self.connect().await?;
        match connection.send(message.envelope(), &message.formatted()).await {
            Ok(_) => Ok(connection),
            Err(error) if is_recipient_error(&error) => Err(SendError::RecipientRejected(error_text(error))),
            Err(error) if error.is_permanent() || error.is_client() => Err(SendError::Rejected(error_text(error))),
            Err(error) => Err(SendError::Deferred(error_text(error))),
        }
    }

    /// Connects and logs in. If that fails, even permanently, the email does not fail: it is deferred until the
    /// operator has fixed the configuration.
    async fn connect(&self) -> Result<AsyncSmtpConnection, SendError> {
        let later = |error: SmtpError| SendError::Deferred(error_text(error));
        let Smtp { host, port, tls, login } = &self.server;
        #[expect(clippy::disallowed_methods, reason = "the operator sets the server")]
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|error| SendError::Deferred(format!("failed to look up {host}: {}", error_text(error))))?
            .collect();
        let hello = ClientId::Domain(self.host.clone());
        let implicit = (*tls == SmtpTls::Implicit).then(|| self.tls.clone());
        // Each address gets half of the time, so that a second one can be tried.
        let each = Some(self.timeout / 2);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(&found[..], each, &hello, implicit, None).await.map_err(later)?;
        if *tls == SmtpTls::Required || *tls == SmtpTls::IfOffered && connection.can_starttls() {
            connection.starttls(self.tls.clone(), &hello).await.map_err(later)?;
        }
        if let Some((user, password)) = login {
            if !connection.is_encrypted() && !found.iter().all(|address| address.ip().is_loopback()) {
                return Err(SendError::Deferred(format!(
                    "{host} does not offer STARTTLS, and Crier does not send the password unencrypted; use smtps://, \
                     or remove the user and password from CRIER_SMTP_URL"
                )));
            }
            let login = Credentials::new(user.clone(), password.expose_secret().to_owned());
            connection.auth(DEFAULT_MECHANISMS, &login).await.map_err(later)?;
        }
        Ok(connection)
    }
}

fn raw_header(name: &'static str, value: &str) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
}

/// Returns whether the mailbox does not exist: a reply of 550, 551 or 553 (RFC 5321, 4.2.3), unless its enhanced code
/// (RFC 3463) is about something else, such as the sender or the content.
fn is_recipient_error(error: &SmtpError) -> bool {
    let Some(code) = error.status().map(u16::from) else { return false };
    let text = error.to_string();
    let enhanced = text.split(|c: char| !c.is_ascii_digit() && c != '.').find(|word| word.starts_with("5."));
    let is_about_mailbox = enhanced.is_none_or(|word| {
        matches!(word.trim_end_matches('.'), "5.1.1" | "5.1.2" | "5.1.3" | "5.1.6" | "5.1.10" | "5.2.1")
    });
    matches!(code, 550 | 551 | 553) && is_about_mailbox
}

/// Returns whether emails can be sent to an address. A quoted local part is rejected, because it has many spellings.
pub fn is_address(text: &str) -> bool {
    text.len() <= MAX_ADDRESS && !text.contains('"') && address(text).is_some()
}

/// Returns the normalized form of an address, by which emails are counted and unsubscribed: in lower case, with the
/// host in ASCII, and without a tag (`ann+news@example.com`), which most servers ignore.
pub fn mailbox(text: &str) -> String {
    let text = text.to_lowercase();
    let Some((user, host)) = text.rsplit_once('@') else { return text };
    let user = user.split_once('+').map_or(user, |(user, _)| user);
    let host = Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.to_string());
    format!("{user}@{}", host.trim_end_matches('.'))
}

/// Parses an address, and converts its host to ASCII, which every server accepts.
fn address(text: &str) -> Option<Address> {
    let (user, host) = text.rsplit_once('@')?;
    Address::new(user, Host::parse(host).ok()?.to_string()).ok()
}

/// Puts untrusted text on one line, so that it cannot start a new header or line.
pub fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// Returns the error message, shortened for storage.
fn error_text(error: impl std::fmt::Display) -> String {
    one_line(&error.to_string()).chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_mailbox_are_equal() {
        for text in ["ann@example.com", "Ann@EXAMPLE.com", "ann+news@example.com", "ann+a+b@example.com."] {
            assert_eq!(mailbox(text), "ann@example.com", "{text}");
        }
        assert_eq!(mailbox("bob@b\u{fc}cher.example"), mailbox("bob@xn--bcher-kva.example"));
        assert_ne!(mailbox("ann@example.com"), mailbox("ann@example.org"));
        assert_eq!(mailbox("no address"), "no address");
        assert!(is_address("ann@example.com") && !is_address("\"ann\"@example.com"));
    }
}
