//! The mail server and the sender.

use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use url::{Host, Url};

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const SMTP_URL: Key = Key::new(
    "SMTP_URL",
    "The mail server: `smtp://user:password@host:port` (STARTTLS if offered; `?tls=required` requires it) or `smtps://…`.",
    DefaultValue::Unset,
    "smtps://user:password@mail.example.com:465",
)
.secret();
const MAIL_FROM: Key = Key::new(
    "MAIL_FROM",
    "The sender of emails.",
    DefaultValue::Value("Crier <crier@localhost>"),
    "Crier <crier@example.com>",
);
const ATTACHMENT_MIB: Key = Key::new(
    "MAIL_ATTACHMENT_MIB",
    "The maximum size of a report file that is attached to an email, in MiB. For a larger file, the email contains a \
     download link.",
    DefaultValue::Value("10"),
    "10",
);
pub(super) const KEYS: &[Key] = &[SMTP_URL, MAIL_FROM, ATTACHMENT_MIB];

#[derive(Clone, Debug)]
pub struct MailConfig {
    /// `None`: no email can be sent.
    pub smtp: Option<Smtp>,
    pub from: Mailbox,
    pub max_attachment_bytes: u64,
}

/// A mail server.
#[derive(Clone, Debug)]
pub struct Smtp {
    pub host: String,
    pub port: u16,
    pub tls: SmtpTls,
    /// User and password, or neither.
    pub login: Option<(String, SecretString)>,
}

/// How a connection to the mail server is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// STARTTLS if the server offers it.
    IfOffered,
    /// STARTTLS is required.
    Required,
    /// TLS from the first byte (`smtps`).
    Implicit,
}

/// A sender or recipient: `Name <user@host>`, or only the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    pub name: Option<String>,
    pub address: String,
}

pub(super) fn read(reader: &mut Reader) -> MailConfig {
    MailConfig {
        smtp: reader.optional(&SMTP_URL, server),
        from: reader.parse(&MAIL_FROM, mailbox),
        max_attachment_bytes: reader.parse(&ATTACHMENT_MIB, |text| values::number(text, 0, 100).map(|n| n as u64))
            << 20,
    }
}

fn server(text: &str) -> Result<Smtp, String> {
    let url =
        Url::parse(text).map_err(|_| "is not a URL (special characters in the password must be percent-encoded)")?;
    let (mut tls, port) = match url.scheme() {
        "smtp" => (SmtpTls::IfOffered, 25),
        "smtps" => (SmtpTls::Implicit, 465),
        _ => return Err("begins with neither smtp:// nor smtps://".to_owned()),
    };
    values::check_password(&url)?;
    for (name, value) in url.query_pairs() {
        match (name.as_ref(), value.as_ref(), tls) {
            ("tls", "required", SmtpTls::Implicit) => {}
            ("tls", "required", _) => tls = SmtpTls::Required,
            _ => return Err("has an option other than tls=required".to_owned()),
        }
    }
    let host = match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => return Err("has no host".to_owned()),
    };
    if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
        return Err("must have nothing after the host and port".to_owned());
    }
    let login = match (url.username(), url.password()) {
        ("", None) => None,
        (user, Some(password)) if !user.is_empty() => Some((decoded(user)?, decoded(password)?.into())),
        _ => return Err("must have both a user and a password, or neither".to_owned()),
    };
    Ok(Smtp { host, port: url.port().unwrap_or(port), tls, login })
}

fn decoded(text: &str) -> Result<String, String> {
    let text =
        percent_decode_str(text).decode_utf8().map_err(|_| "has a user or password that is not UTF-8".to_owned())?;
    Ok(text.into_owned())
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    let wrong = || "is not an email address, with or without a name".to_owned();
    let (name, address) =
        match text.strip_suffix('>').map(|text| text.rsplit_once('<').ok_or_else(wrong)).transpose()? {
            Some((name, address)) => (name.trim().trim_matches('"').trim(), address.trim()),
            None => ("", text),
        };
    let (user, host) = address.split_once('@').ok_or_else(wrong)?;
    let bad = |c: char| c.is_whitespace() || c.is_control() || "<>,;:\"@()[]\\".contains(c);
    if user.is_empty() || host.is_empty() || user.contains(bad) || host.contains(bad) || name.contains(char::is_control)
    {
        return Err(wrong());
    }
    Ok(Mailbox { name: (!name.is_empty()).then(|| name.to_owned()), address: address.to_owned() })
}
