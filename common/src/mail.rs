//! Mail goes out here: the one place that knows SMTP and the crate that speaks it.
//!
//! A mail is handed to the operator's server in a connection of its own, all of it within 30 seconds. [`SendError`] says
//! whether the same mail may be taken later. Where the connection breaks after the last byte, nobody knows whether the
//! server has taken it: it is sent again under the same Message-ID, by which mail programs show it once.
//!
//! TLS is as the URL says: from the first byte, by STARTTLS or not at all, by STARTTLS where it is offered. The certificate
//! is always verified against the system's authorities. The login is never sent in the clear, except to this machine.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message};
use secrecy::ExposeSecret;
use tokio::time::timeout;
use url::Host;

use crate::config::{MailConfig, Smtp, SmtpTls};
use crate::domain::mail::Mail;

/// From the look-up of the server's name to its word on the mail.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the server may take to say goodbye, while a crash would have the mail sent again.
const GOODBYE: Duration = Duration::from_secs(1);
/// How much of what went wrong is told.
const LONGEST_ERROR: usize = 500;
const MARKER_LENGTH: usize = 24;

/// Why mail cannot be sent as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum MailerError {
    #[error("CRIER_MAIL_FROM: {0} is no address that mail can come from")]
    From(String),
    #[error("CRIER_SMTP_URL: the system's certificates cannot be used: {0}")]
    Tls(SmtpError),
}

/// Why a mail did not go out, in words for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The same mail may well be taken later.
    #[error("{0}")]
    Deferred(String),
    /// It will never be taken as it is.
    #[error("{0}")]
    Refused(String),
}

/// Sends mail through the operator's server.
pub struct Mailer {
    server: Smtp,
    tls: TlsParameters,
    from: Mailbox,
    /// The sender's host: what this client calls itself, and what its Message-IDs end with.
    host: String,
    timeout: Duration,
}

/// Nothing of the login.
impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer")
            .field("host", &self.server.host)
            .field("port", &self.server.port)
            .finish_non_exhaustive()
    }
}

impl Mailer {
    /// `None` where no mail server is configured.
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

    /// The same with another deadline.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// A Message-ID that no other mail has.
    pub fn message_id(&self) -> Result<String, getrandom::Error> {
        Ok(format!("<mail-{}@{}>", crate::random::text(MARKER_LENGTH)?, self.host))
    }

    /// Brings a mail to the server; on success the server has taken it.
    pub async fn send(&self, mail: &Mail) -> Result<(), SendError> {
        let message = self.message(mail)?;
        let late = |_| SendError::Deferred(format!("the mail server was not done within {:?}", self.timeout));
        let mut connection = timeout(self.timeout, self.hand_over(&message)).await.map_err(late)??;
        // The mail is the server's now, however the two of them part.
        let _ = timeout(GOODBYE, connection.quit()).await;
        Ok(())
    }

    fn message(&self, mail: &Mail) -> Result<Message, SendError> {
        let to = address(&mail.recipient)
            .ok_or_else(|| SendError::Refused("the recipient is no address that mail can be sent to".to_owned()))?;
        Message::builder()
            .from(self.from.clone())
            .to(to.into())
            .subject(one_line(&mail.subject))
            .date(SystemTime::from(mail.created_at))
            .message_id(Some(mail.message_id.clone()))
            // Nobody's absence is to answer it (RFC 3834).
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()))
            .singlepart(SinglePart::plain(mail.body_text.clone()))
            .map_err(|error| SendError::Refused(told(error)))
    }

    /// The connection, once the server has taken the mail.
    async fn hand_over(&self, message: &Message) -> Result<AsyncSmtpConnection, SendError> {
        let mut connection = self.connect().await?;
        match connection.send(message.envelope(), &message.formatted()).await {
            Ok(_) => Ok(connection),
            Err(error) if error.is_permanent() || error.is_client() => Err(SendError::Refused(told(error))),
            Err(error) => Err(SendError::Deferred(told(error))),
        }
    }

    /// A server that refuses the connection or the login, even for good, says nothing of the mail: that is the operator's
    /// to mend, and what waited meanwhile goes out then.
    async fn connect(&self) -> Result<AsyncSmtpConnection, SendError> {
        let later = |error: SmtpError| SendError::Deferred(told(error));
        let Smtp { host, port, tls, login } = &self.server;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|error| SendError::Deferred(format!("{host} cannot be looked up: {}", told(error))))?
            .collect();
        let hello = ClientId::Domain(self.host.clone());
        let implicit = (*tls == SmtpTls::Implicit).then(|| self.tls.clone());
        // Half of the time for each address: the second may answer where the first does not.
        let each = Some(self.timeout / 2);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(&found[..], each, &hello, implicit, None).await.map_err(later)?;
        if *tls == SmtpTls::Required || *tls == SmtpTls::IfOffered && connection.can_starttls() {
            connection.starttls(self.tls.clone(), &hello).await.map_err(later)?;
        }
        if let Some((user, password)) = login {
            if !connection.is_encrypted() && !found.iter().all(|address| address.ip().is_loopback()) {
                return Err(SendError::Deferred(format!(
                    "{host} offers no STARTTLS, and the password is not sent in the clear; use smtps://, or leave user and password out of CRIER_SMTP_URL"
                )));
            }
            let login = Credentials::new(user.clone(), password.expose_secret().to_owned());
            connection.auth(DEFAULT_MECHANISMS, &login).await.map_err(later)?;
        }
        Ok(connection)
    }
}

/// An address, its host in the letters that every server takes.
fn address(text: &str) -> Option<Address> {
    let (user, host) = text.rsplit_once('@')?;
    Address::new(user, Host::parse(host).ok()?.to_string()).ok()
}

/// What somebody else wrote, on one line: it begins no header and no line of its own.
pub(crate) fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// What went wrong, as it can be stored.
fn told(error: impl std::fmt::Display) -> String {
    one_line(&error.to_string()).chars().take(LONGEST_ERROR).collect()
}
