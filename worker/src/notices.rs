//! The email about the problems that wait for a user.
//!
//! **To add a kind of problem:** a [`NoticeKind`], the condition in `crier_store::notices` under which the problem still
//! exists, its heading and its line here, and a test of the email that arrives. User content goes only into the body,
//! each value on one line ([`one_line`]).

use askama::Template;
use chrono::{DateTime, Utc};
use crier_base::secrets::SecretError;
use crier_domain::catalogue::descriptor;
use crier_domain::notice::NoticeKind;
use crier_mail::{Mailer, mailbox, one_line};
use crier_store::mails::{self, NewMail};
use crier_store::notices::{NoticeRow, Recipient};
use crier_store::{Result, StoreError, Tx, account_tokens, accounts, deliveries, mail_counts, webhooks};
use crier_telemetry::metrics::{self, MailLimit};

#[derive(Template)]
#[template(path = "notice_digest.txt")]
struct Digest {
    name: String,
    sections: Vec<DigestSection>,
    /// The number of problems that are not listed.
    more: usize,
    settings_url: String,
}

/// The problems of one kind.
struct DigestSection {
    heading: &'static str,
    lines: Vec<DigestLine>,
}

struct DigestLine {
    title: String,
    /// `None` if the problem belongs to no brand.
    brand: Option<String>,
    details: Vec<String>,
    url: String,
}

impl DigestLine {
    async fn load(tx: &mut Tx, user_id: i64, row: &NoticeRow, public_url: &str) -> Result<Self> {
        let (id, brand_url) = (row.subject_id, format!("{public_url}/brands/{}", row.brand_id));
        let mut line = Self {
            title: one_line(&row.title),
            brand: Some(one_line(&row.brand_name)),
            details: row.reason.as_deref().map(one_line).into_iter().collect(),
            url: String::new(),
        };
        match row.kind {
            NoticeKind::AccountExpired | NoticeKind::AccountExpiring => line.add_account(tx, row, &brand_url).await?,
            NoticeKind::WebhookDisabled => {
                line.brand = None;
                line.url = format!("{brand_url}/developers/webhooks/{id}");
                line.add_webhook(tx, user_id, id).await?;
            }
            NoticeKind::FeedFailing | NoticeKind::FeedNotPosted => line.url = format!("{brand_url}/feeds/{id}"),
            NoticeKind::PostPending | NoticeKind::PostFailed | NoticeKind::PostRejected => {
                line.url = format!("{brand_url}/posts/{id}");
                if line.title.trim().is_empty() {
                    "Post without text".clone_into(&mut line.title);
                }
            }
        }
        Ok(line)
    }

    /// Adds the platform of an account, the page on which the user reconnects it, and why or when the access ends.
    async fn add_account(&mut self, tx: &mut Tx, row: &NoticeRow, brand_url: &str) -> Result<()> {
        let Some(account) = accounts::find_any(tx, row.subject_id).await? else {
            // It was deleted a moment ago.
            self.url = format!("{brand_url}/accounts");
            return Ok(());
        };
        self.title = format!("{} on {}", self.title, descriptor(account.platform).name);
        self.url = format!("{brand_url}/accounts/connect/{}?account={}", account.platform, account.id);
        if row.kind == NoticeKind::AccountExpired {
            self.details.extend(account.last_error.map(|error| one_line(&error.message)));
            return Ok(());
        }
        let tokens = account_tokens::find(tx, account.id).await?;
        let end = tokens.and_then(|tokens| tokens.renewal.access_ends_at(tokens.token_expires_at));
        self.details.extend(end.map(|end| {
            let verb = if end > tx.now { "ends" } else { "ended" };
            format!("The access {verb} at {}.", format_time(end))
        }));
        Ok(())
    }

    /// Adds what the owner of a disabled endpoint needs to retry the deliveries that did not arrive.
    async fn add_webhook(&mut self, tx: &mut Tx, user_id: i64, webhook_id: i64) -> Result<()> {
        let Some(found) = webhooks::disabled(tx, user_id, webhook_id).await? else { return Ok(()) };
        self.details.extend(found.description.as_deref().filter(|text| !text.is_empty()).map(one_line));
        let Some(failing_since) = found.failing_since else { return Ok(()) };
        self.details.push(format!("Failing since {}.", format_time(failing_since)));
        let (count, oldest) = deliveries::undelivered(tx, webhook_id, failing_since).await?;
        self.details.extend(
            oldest.map(|oldest| {
                format!("Deliveries that did not arrive: {count}, the first from {}.", format_time(oldest))
            }),
        );
        Ok(())
    }
}

const fn heading(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::AccountExpired => {
            "Accounts whose platform rejects the credentials. Crier publishes nothing to\n\
             an account until you reconnect it. Then retry its failed posts:"
        }
        NoticeKind::AccountExpiring => {
            "Accounts whose access ends soon. Crier cannot renew it, and publishes\n\
             nothing to an account whose access has ended. Reconnect each account:"
        }
        NoticeKind::WebhookDisabled => {
            "Webhooks that Crier disabled. They receive no events. Fix the receiver,\n\
             activate the webhook, and retry the deliveries that did not arrive:"
        }
        NoticeKind::FeedFailing => "Feeds that Crier cannot read:",
        NoticeKind::FeedNotPosted => "Feeds with articles that were not posted:",
        NoticeKind::PostPending => "Posts that wait for your approval:",
        NoticeKind::PostFailed => "Posts that could not be published on an account:",
        NoticeKind::PostRejected => "Published posts that a platform rejected later:",
    }
}

/// Tells a user by email about the problems that need their attention. `listed`: the first of them, in the order of the
/// kinds, and the number of all of them.
pub async fn digest(
    tx: &mut Tx,
    mailer: &Mailer,
    user_id: i64,
    recipient: &Recipient,
    (listed, count): (&[NoticeRow], usize),
    public_url: &str,
) -> Result<()> {
    let Some(first) = listed.first() else { return Ok(()) };
    let mut sections: Vec<DigestSection> = Vec::new();
    for row in listed {
        let (heading, line) = (heading(row.kind), DigestLine::load(tx, user_id, row, public_url).await?);
        match sections.last_mut() {
            Some(section) if section.heading == heading => section.lines.push(line),
            _ => sections.push(DigestSection { heading, lines: vec![line] }),
        }
    }
    let text = Digest {
        name: one_line(&recipient.name),
        sections,
        more: count.saturating_sub(listed.len()),
        settings_url: format!("{public_url}/brands/{}/settings/notifications", first.brand_id),
    };
    let body_text = text.render().map_err(|error| StoreError::Decode(format!("a notice: {error}")))?;
    let subject = if count == 1 {
        "Crier: 1 problem needs your attention".to_owned()
    } else {
        format!("Crier: {count} problems need your attention")
    };
    let new = NewMail {
        recipient: &recipient.email,
        subject: &subject,
        body_text: &body_text,
        message_id: &mailer.message_id().map_err(|_| SecretError::NoRandomness)?,
        ..NewMail::default()
    };
    if mail_counts::take_digest(tx, user_id, &mailbox(new.recipient)).await? {
        mails::enqueue_mail(tx, user_id, &new, None).await?;
    } else {
        metrics::mail_withheld(MailLimit::Address);
        tracing::warn!(user = user_id, "email about problems not sent: daily limit reached");
    }
    Ok(())
}

fn format_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}
