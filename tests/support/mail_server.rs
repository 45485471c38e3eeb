//! A mail server that accepts and records every email, unless a test makes it reject, hang up or stop responding.

#![allow(dead_code, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crier_config::{Config, ConfigSource, ProcessRole};
use crier_mail::Mailer;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// A step of the SMTP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpStep {
    Greeting,
    Hello,
    StartTls,
    Login,
    Sender,
    Recipient,
    Data,
    /// The end of the email.
    End,
    Quit,
}

/// The server's action at a step instead of the usual reply.
#[derive(Clone, Copy, Debug)]
pub enum SmtpReply {
    Say(&'static str),
    HangUp,
    Silence,
}

/// A line from a client, and whether it was encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedLine {
    pub line: String,
    pub encrypted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tls {
    None,
    Offered,
    FromTheStart,
}

/// The server. Its certificate is self-signed, so clients must be configured to trust it.
pub struct MailServer {
    pub address: SocketAddr,
    certificate: String,
    state: Arc<State>,
}

struct State {
    tls: Tls,
    acceptor: TlsAcceptor,
    /// One entry per connection, in order.
    script: Mutex<VecDeque<(SmtpStep, SmtpReply)>>,
    received: Mutex<Vec<ReceivedLine>>,
    mails: Mutex<Vec<String>>,
}

impl MailServer {
    pub async fn start() -> Self {
        Self::with(Tls::None).await
    }

    /// Starts a server that offers STARTTLS.
    pub async fn start_with_starttls() -> Self {
        Self::with(Tls::Offered).await
    }

    /// Starts a server that uses TLS from the first byte.
    pub async fn start_with_implicit_tls() -> Self {
        Self::with(Tls::FromTheStart).await
    }

    async fn with(tls: Tls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![own.cert.der().clone()], key.into()).expect("a key of its own");
        let state = Arc::new(State {
            tls,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            script: Mutex::default(),
            received: Mutex::default(),
            mails: Mutex::default(),
        });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let scripted = serving.script.lock().expect("no panic").pop_front();
                let (state, stream) = (serving.clone(), BufReader::new(Box::new(stream) as Box<dyn Stream>));
                let encrypted = false;
                // Session errors are ignored; the test checks the client.
                tokio::spawn(async move { Session { state, scripted, stream, encrypted }.run().await });
            }
        });
        Self { address, certificate: own.cert.pem(), state }
    }

    /// Scripts the next connection that has no script: at this step, the server takes this action.
    pub fn then(&self, step: SmtpStep, reply: SmtpReply) {
        self.state.script.lock().expect("no panic").push_back((step, reply));
    }

    /// Returns the lines of all connections.
    pub fn received_lines(&self) -> Vec<ReceivedLine> {
        self.state.received.lock().expect("no panic").clone()
    }

    /// Returns the accepted emails, in order, with lines that end with `\n`.
    pub fn mails(&self) -> Vec<String> {
        self.state.mails.lock().expect("no panic").clone()
    }

    /// Returns the certificate, for a process that must trust it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns its URL for `CRIER_SMTP_URL`; `{}` in `form` is replaced by host and port.
    pub fn url(&self, form: &str) -> String {
        form.replace("{}", &format!("localhost:{}", self.address.port()))
    }

    /// Returns the product's mailer for this server.
    pub fn mailer(&self) -> Mailer {
        mailer(&self.url("smtp://{}"))
    }
}

/// Returns the product's mailer for a configured URL.
pub fn mailer(url: &str) -> Mailer {
    let keys = [("CRIER_SMTP_URL", url), ("CRIER_MAIL_FROM", "Crier für Ann <crier@example.com>")];
    let config =
        Config::load(&ConfigSource::new(keys, None, [("", ""); 0]), ProcessRole::Crier).expect("a configuration");
    Mailer::new(&config.mail).expect("a sender").expect("a server")
}

/// Like `mailer`, with a timeout that is short, but long enough to connect on a busy machine.
pub fn mailer_with_short_timeout(url: &str) -> Mailer {
    mailer(url).with_timeout(Duration::from_secs(2))
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Session {
    state: Arc<State>,
    scripted: Option<(SmtpStep, SmtpReply)>,
    stream: BufReader<Box<dyn Stream>>,
    encrypted: bool,
}

impl Session {
    async fn run(mut self) -> io::Result<()> {
        if self.state.tls == Tls::FromTheStart {
            self = self.encrypt().await?;
        }
        self.reply(SmtpStep::Greeting, "220 ready").await?;
        while let Some(line) = self.line().await? {
            self.state
                .received
                .lock()
                .expect("no panic")
                .push(ReceivedLine { line: line.clone(), encrypted: self.encrypted });
            let verb = line.split([' ', ':']).next().unwrap_or_default();
            match verb {
                "EHLO" => {
                    let tls = if self.state.tls == Tls::Offered && !self.encrypted { "250-STARTTLS\r\n" } else { "" };
                    self.reply(SmtpStep::Hello, &format!("250-test\r\n{tls}250 AUTH PLAIN LOGIN")).await?;
                }
                "STARTTLS" if self.reply(SmtpStep::StartTls, "220 go on").await? => self = self.encrypt().await?,
                "STARTTLS" => {}
                "AUTH" => drop(self.reply(SmtpStep::Login, "235 welcome").await?),
                "MAIL" => drop(self.reply(SmtpStep::Sender, "250 fine").await?),
                "RCPT" => drop(self.reply(SmtpStep::Recipient, "250 fine").await?),
                "DATA" if self.reply(SmtpStep::Data, "354 go on").await? => self.take().await?,
                "DATA" => {}
                "QUIT" => {
                    self.reply(SmtpStep::Quit, "221 bye").await?;
                    return Ok(());
                }
                _ => self.say("500 what?").await?,
            }
        }
        Ok(())
    }

    /// Reads the email and accepts it, unless the script rejects it.
    async fn take(&mut self) -> io::Result<()> {
        let mut mail = String::new();
        loop {
            let line = self.line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line == "." {
                break;
            }
            mail.push_str(line.strip_prefix('.').unwrap_or(&line));
            mail.push('\n');
        }
        if !matches!(self.scripted, Some((SmtpStep::End, SmtpReply::Say(_)))) {
            self.state.mails.lock().expect("no panic").push(mail);
        }
        self.reply(SmtpStep::End, "250 taken").await.map(drop)
    }

    /// Sends the scripted reply or the usual one; returns whether it was the usual one.
    async fn reply(&mut self, step: SmtpStep, usual: &str) -> io::Result<bool> {
        match self.scripted.filter(|(at, _)| *at == step) {
            None => self.say(usual).await.map(|()| true),
            Some((_, SmtpReply::Say(text))) => self.say(text).await.map(|()| false),
            Some((_, SmtpReply::HangUp)) => Err(io::ErrorKind::ConnectionAborted.into()),
            Some((_, SmtpReply::Silence)) => std::future::pending().await,
        }
    }

    async fn say(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(format!("{text}\r\n").as_bytes()).await?;
        self.stream.flush().await
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
    }

    async fn encrypt(self) -> io::Result<Self> {
        let stream = self.state.acceptor.accept(self.stream.into_inner()).await?;
        Ok(Self { stream: BufReader::new(Box::new(stream)), encrypted: true, ..self })
    }
}
