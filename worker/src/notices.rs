//! Emails that Crier sends to its users on its own initiative. The transaction that causes a notice adds it to the
//! outbox. Without a configured mail server there are no notices.
//!
//! **To add one:** a function here, its text in `worker/templates/`, and a test of the email that arrives. User content
//! goes only into the body, each value on one line ([`one_line`]).

use askama::Template;
use chrono::{DateTime, SecondsFormat, Utc};
use crier_base::secrets::SecretError;
use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::notice::NoticeKind;
use crier_domain::webhook::MAX_ATTEMPTS;
use crier_mail::{Mailer, mailbox, one_line};
use crier_store::account_tokens::{self, BrandOwner};
use crier_store::mails::{self, NewMail};
use crier_store::notices::{NoticeRow, Recipient};
use crier_store::{Result, StoreError, Tx, deliveries, mail_counts, webhooks};
use crier_telemetry::metrics::{self, MailLimit};

#[derive(Template)]
#[template(path = "webhook_disabled.txt")]
struct WebhookDisabled {
    name: String,
    id: i64,
    url: String,
    description: Option<String>,
    reason: String,
    failing_since: String,
    disabled_at: String,
    last_error: Option<String>,
    attempts: i32,
    undelivered: i64,
    /// The start of the period to recover, in the API's format.
    recover_since: String,
}

/// Notifies the owner of a disabled endpoint by email. Call it after [`webhooks::disable`], in its transaction.
/// `last_error` is the error of the last attempt.
pub async fn webhook_disabled(
    tx: &mut Tx,
    mailer: Option<&Mailer>,
    webhook_id: i64,
    last_error: Option<&str>,
    trace: Option<&str>,
) -> Result<()> {
    let Some(mailer) = mailer else { return Ok(()) };
    let Some(found) = webhooks::disabled(tx, webhook_id).await? else { return Ok(()) };
    let failing_since = found.failing_since.unwrap_or(tx.now);
    let (undelivered, oldest) = deliveries::undelivered(tx, webhook_id, failing_since).await?;
    let text = WebhookDisabled {
        name: one_line(&found.name),
        id: webhook_id,
        url: one_line(&found.url),
        description: found.description.as_deref().filter(|text| !text.is_empty()).map(one_line),
        reason: found.disabled_reason,
        failing_since: format_time(failing_since),
        disabled_at: format_time(tx.now),
        last_error: last_error.map(one_line),
        attempts: MAX_ATTEMPTS,
        undelivered,
        recover_since: oldest.unwrap_or(failing_since).to_rfc3339_opts(SecondsFormat::Secs, true),
    };
    let body_text = text.render().map_err(|error| StoreError::Decode(format!("a notice: {error}")))?;
    let new = NewMail {
        recipient: &found.email,
        subject: &format!("Crier disabled your webhook endpoint {webhook_id}"),
        body_text: &body_text,
        message_id: &mailer.message_id().map_err(|_| SecretError::NoRandomness)?,
        ..NewMail::default()
    };
    enqueue(tx, found.user_id, &new, trace).await
}

/// Returns the URL of the page of the console on which a user reconnects an account.
fn reconnect_url(account: &SocialAccount, brand_id: i64, public_url: &str) -> String {
    format!("{public_url}/brands/{brand_id}/accounts/connect/{}?account={}", account.platform, account.id)
}

#[derive(Template)]
#[template(path = "account_expired.txt")]
struct AccountExpired {
    name: String,
    platform: &'static str,
    account: String,
    brand: String,
    brand_id: i64,
    reason: String,
    reconnect_url: String,
    /// The URL of the brand's failed posts.
    posts_url: String,
}

#[derive(Template)]
#[template(path = "account_expiring.txt")]
struct AccountExpiring {
    name: String,
    platform: &'static str,
    account: String,
    brand: String,
    brand_id: i64,
    ends_at: String,
    reconnect_url: String,
}

/// Notifies the owners by email that the platform rejects the account's credentials.
pub async fn account_expired(
    tx: &mut Tx,
    mailer: Option<&Mailer>,
    account: &SocialAccount,
    public_url: &str,
    trace: Option<&str>,
) -> Result<()> {
    let platform = descriptor(account.platform).name;
    let text = |owner: &BrandOwner| AccountExpired {
        name: one_line(&owner.user_name),
        platform,
        account: one_line(&account.name),
        brand: one_line(&owner.brand_name),
        brand_id: owner.brand_id,
        reason: account.last_error.as_ref().map(|error| one_line(&error.message)).unwrap_or_default(),
        reconnect_url: reconnect_url(account, owner.brand_id, public_url),
        posts_url: format!("{public_url}/brands/{}/posts?status=failed", owner.brand_id),
    };
    let subject = format!("Crier can no longer publish to your {platform} account");
    mail_owners(tx, mailer, account.id, &subject, text, trace).await
}

/// Warns the owners by email that the account's access ends soon.
pub async fn account_expiring(
    tx: &mut Tx,
    mailer: Option<&Mailer>,
    account: &SocialAccount,
    end: DateTime<Utc>,
    public_url: &str,
    trace: Option<&str>,
) -> Result<()> {
    let platform = descriptor(account.platform).name;
    let text = |owner: &BrandOwner| AccountExpiring {
        name: one_line(&owner.user_name),
        platform,
        account: one_line(&account.name),
        brand: one_line(&owner.brand_name),
        brand_id: owner.brand_id,
        ends_at: format_time(end),
        reconnect_url: reconnect_url(account, owner.brand_id, public_url),
    };
    let subject = format!("Crier's access to your {platform} account ends on {}", end.format("%Y-%m-%d"));
    mail_owners(tx, mailer, account.id, &subject, text, trace).await
}

#[derive(Template)]
#[template(path = "notice_digest.txt")]
struct Digest {
    name: String,
    sections: Vec<DigestSection>,
    /// The number of problems that are not listed.
    more: usize,
    is_one_brand: bool,
    settings_url: String,
}

/// The problems of one kind.
struct DigestSection {
    title: &'static str,
    lines: Vec<DigestLine>,
}

struct DigestLine {
    title: String,
    brand: String,
    reason: Option<String>,
    url: String,
}

impl DigestLine {
    fn new(row: &NoticeRow, public_url: &str) -> Self {
        let list = match row.kind {
            NoticeKind::PostFailed | NoticeKind::PostRejected | NoticeKind::PostPending => "posts",
            NoticeKind::FeedFailing | NoticeKind::FeedNotPosted => "feeds",
        };
        let title = if row.title.trim().is_empty() { "Post without text".to_owned() } else { one_line(&row.title) };
        Self {
            title,
            brand: one_line(&row.brand_name),
            reason: row.reason.as_deref().map(one_line),
            url: format!("{public_url}/brands/{}/{list}/{}", row.brand_id, row.subject_id),
        }
    }
}

/// Tells a user by email about the problems that need their attention. `listed`: the first of them, and the number of
/// all of them.
pub async fn digest(
    tx: &mut Tx,
    mailer: &Mailer,
    user_id: i64,
    recipient: &Recipient,
    (listed, count): (&[NoticeRow], usize),
    public_url: &str,
) -> Result<()> {
    let Some(first) = listed.first() else { return Ok(()) };
    let section = |kind: &NoticeKind| {
        let lines: Vec<_> =
            listed.iter().filter(|row| row.kind == *kind).map(|row| DigestLine::new(row, public_url)).collect();
        let title = match kind {
            NoticeKind::PostFailed => "Posts that could not be published on an account:",
            NoticeKind::PostRejected => "Published posts that a platform rejected later:",
            NoticeKind::PostPending => "Posts that wait for your approval:",
            NoticeKind::FeedFailing => "Feeds that Crier cannot read:",
            NoticeKind::FeedNotPosted => "Feeds with articles that were not posted:",
        };
        (!lines.is_empty()).then_some(DigestSection { title, lines })
    };
    let text = Digest {
        name: one_line(&recipient.name),
        sections: NoticeKind::ALL.iter().filter_map(section).collect(),
        more: count.saturating_sub(listed.len()),
        is_one_brand: listed.iter().all(|row| row.brand_id == first.brand_id),
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
    let is_allowed = mail_counts::take_digest(tx, user_id, &mailbox(new.recipient)).await?;
    enqueue_if(is_allowed, tx, user_id, &new, None).await
}

/// Adds an email to each owner of an account's brands to the outbox.
async fn mail_owners<T: Template>(
    tx: &mut Tx,
    mailer: Option<&Mailer>,
    account_id: i64,
    subject: &str,
    text: impl Fn(&BrandOwner) -> T,
    trace: Option<&str>,
) -> Result<()> {
    let Some(mailer) = mailer else { return Ok(()) };
    for owner in account_tokens::owners(tx, account_id).await? {
        let body_text = text(&owner).render().map_err(|error| StoreError::Decode(format!("a notice: {error}")))?;
        let new = NewMail {
            recipient: &owner.email,
            subject,
            body_text: &body_text,
            message_id: &mailer.message_id().map_err(|_| SecretError::NoRandomness)?,
            ..NewMail::default()
        };
        enqueue(tx, owner.user_id, &new, trace).await?;
    }
    Ok(())
}

/// Adds a notice to the outbox, unless the user received too many today. A user who repeatedly enables an endpoint, or
/// connects an account that is rejected, must not flood a mailbox.
async fn enqueue(tx: &mut Tx, user_id: i64, new: &NewMail<'_>, trace: Option<&str>) -> Result<()> {
    let is_allowed = mail_counts::take_notice(tx, user_id, &mailbox(new.recipient)).await?;
    enqueue_if(is_allowed, tx, user_id, new, trace).await
}

async fn enqueue_if(is_allowed: bool, tx: &mut Tx, user_id: i64, new: &NewMail<'_>, trace: Option<&str>) -> Result<()> {
    if is_allowed {
        mails::enqueue_mail(tx, user_id, new, trace).await?;
    } else {
        metrics::mail_withheld(MailLimit::Address);
        tracing::warn!(user = user_id, subject = new.subject, "notice not sent: daily limit reached");
    }
    Ok(())
}

fn format_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}
