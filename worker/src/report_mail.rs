//! The emails of scheduled reports: one message per recipient, as text and as HTML, with the file or its URL.
//!
//! All user content is data of the templates. The HTML template escapes it; in the text template each value is on one
//! line.

use askama::Template;
use chrono::NaiveDate;
use crier_base::secrets::SecretError;
use crier_domain::report::{ReportDelivery, ReportError, ReportErrorCode};
use crier_domain::report_naming;
use crier_jobs::reports::links::{FileLink, UnsubscribeLink};
use crier_mail::{Mailer, mailbox, one_line};
use crier_store::mail_counts::{self, MAX_PER_ADDRESS, MailDecision};
use crier_store::mails::{self, NewMail};
use crier_store::report_deliveries::{self, MailStop, Subscription};
use crier_store::{Result, StoreError, Tx};
use crier_telemetry::metrics::{self, MailLimit};

/// Maximum length of a subject, in characters.
const MAX_SUBJECT: usize = 200;

/// A metric at the top of the email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    pub label: String,
    /// `12,345`, or a dash if the value is unknown.
    pub value: String,
    /// `+12% from the previous period`; `None` if the change is unknown.
    pub change: Option<String>,
}

/// The content of the emails of a delivery.
#[derive(Clone, Debug)]
pub struct MailContent {
    pub report: String,
    pub brand: String,
    pub workspace: String,
    pub headlines: Vec<Headline>,
    /// Whether the file is attached; otherwise the email contains its URL.
    pub is_attached: bool,
}

/// The data of both parts of an email.
struct MailData<'a> {
    report: &'a str,
    brand: &'a str,
    workspace: &'a str,
    period: &'a str,
    headlines: &'a [Headline],
    file_url: Option<&'a str>,
    file_until: NaiveDate,
    format: String,
    unsubscribe_url: &'a str,
}

#[derive(Template)]
#[template(path = "report.txt")]
struct TextPart<'a> {
    data: &'a MailData<'a>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct HtmlPart<'a> {
    data: &'a MailData<'a>,
}

/// The values that the emails need in addition to their content.
pub struct MailContext<'a> {
    /// `None` if no mail server is configured.
    pub mailer: Option<&'a Mailer>,
    pub public_url: &'a str,
    pub workspace_id: i64,
    /// The plan's limit for the workspace; `None` if there is no limit.
    pub mails_per_day: Option<u64>,
    /// The user on whose behalf the emails are sent.
    pub user_id: i64,
    pub trace: Option<&'a str>,
}

/// Adds the emails of a delivery to the outbox, in the transaction that completes the delivery. Recipients that receive
/// no email are recorded with the reason. Each email counts once, here; attempts to send it do not count.
pub async fn enqueue(tx: &mut Tx, cx: &MailContext<'_>, delivery: &ReportDelivery, mail: &MailContent) -> Result<()> {
    let recipients = report_deliveries::recipients_of(tx, &[delivery.id]).await?;
    if recipients.is_empty() {
        return Ok(());
    }
    let Some(schedule_id) = delivery.schedule_id else {
        // The schedule was deleted meanwhile.
        let error = ReportError::new(ReportErrorCode::Unsubscribed, "The schedule was deleted.");
        return report_deliveries::fail_recipients(tx, delivery.id, &error).await;
    };
    let mut accepted = Vec::with_capacity(recipients.len());
    for (position, to) in (0_i32..).zip(&recipients) {
        let mailbox = mailbox(&to.recipient);
        let subscription = Subscription { workspace_id: cx.workspace_id, address: &to.recipient, mailbox: &mailbox };
        let stop = report_deliveries::mail_stop(tx, &subscription).await?;
        match (stop, cx.mailer) {
            (Some(stop), _) => report_deliveries::fail_recipient(tx, delivery.id, position, &stopped(&stop)).await?,
            (None, None) => report_deliveries::fail_recipient(tx, delivery.id, position, &not_configured()).await?,
            (None, Some(mailer)) => accepted.push((position, to.recipient.as_str(), mailbox, mailer)),
        }
    }
    let mailboxes: Vec<String> = accepted.iter().map(|(_, _, mailbox, _)| mailbox.clone()).collect();
    let decisions = mail_counts::take_reports(tx, cx.workspace_id, cx.mails_per_day, &mailboxes).await?;
    for ((position, recipient, _, mailer), decision) in accepted.into_iter().zip(decisions) {
        if let Some(error) = over_limit(decision, cx.mails_per_day) {
            report_deliveries::fail_recipient(tx, delivery.id, position, &error).await?;
        } else {
            let mail_id = enqueue_one(tx, cx, mailer, delivery, (schedule_id, recipient), mail).await?;
            report_deliveries::set_mail(tx, delivery.id, position, mail_id).await?;
        }
    }
    Ok(())
}

fn not_configured() -> ReportError {
    let message = "No mail server is configured. Ask the operator to set CRIER_SMTP_URL.";
    ReportError::new(ReportErrorCode::MailNotConfigured, message)
}

/// Returns the error of an email that is not sent because of a stop.
pub fn stopped(stop: &MailStop) -> ReportError {
    if stop.is_unsubscribed {
        let message = "The recipient unsubscribed from this workspace's reports.";
        return ReportError::new(ReportErrorCode::Unsubscribed, message);
    }
    let message = format!("Not sent: the recipient's mail server rejected an earlier email ({}).", stop.reason);
    ReportError::new(ReportErrorCode::MailRefused, message)
}

/// Returns why an email is not sent; `None` if it is sent.
fn over_limit(decision: MailDecision, cap: Option<u64>) -> Option<ReportError> {
    let message = match decision {
        MailDecision::Allowed => return None,
        MailDecision::WorkspaceLimit => {
            let cap = cap.unwrap_or_default();
            format!(
                "The plan allows {cap} report emails per day (UTC). Choose fewer recipients, or ask the operator for a \
                 larger plan."
            )
        }
        MailDecision::AddressLimit => format!(
            "An address receives at most {MAX_PER_ADDRESS} report emails per day (UTC) from a workspace. Run the \
             schedule less often."
        ),
    };
    let limit = if decision == MailDecision::WorkspaceLimit { MailLimit::Plan } else { MailLimit::Address };
    metrics::mail_withheld(limit);
    Some(ReportError::new(ReportErrorCode::MailLimitReached, message))
}

async fn enqueue_one(
    tx: &mut Tx,
    cx: &MailContext<'_>,
    mailer: &Mailer,
    delivery: &ReportDelivery,
    (schedule_id, recipient): (i64, &str),
    mail: &MailContent,
) -> Result<i64> {
    let address = recipient.to_lowercase();
    let unsubscribe = UnsubscribeLink { workspace_id: cx.workspace_id, schedule_id, recipient: address };
    let unsubscribe_url = unsubscribe.url(&tx.cipher, cx.public_url)?;
    let link = FileLink::new(delivery.id, tx.now);
    let file_url = if mail.is_attached { None } else { Some(link.url(&tx.cipher, cx.public_url)?) };
    let (report, brand, workspace) = (one_line(&mail.report), one_line(&mail.brand), one_line(&mail.workspace));
    let period = report_naming::period(delivery.starts_on, delivery.ends_on);
    let data = MailData {
        report: &report,
        brand: &brand,
        workspace: &workspace,
        period: &period,
        headlines: &mail.headlines,
        file_url: file_url.as_deref(),
        file_until: link.expires_at.date_naive(),
        format: delivery.format.as_str().to_uppercase(),
        unsubscribe_url: &unsubscribe_url,
    };
    let rendered = |part: askama::Result<String>| {
        part.map_err(|error| StoreError::Decode(format!("failed to write an email: {error}")))
    };
    let subject: String = format!("{report}: {brand}, {period}").chars().take(MAX_SUBJECT).collect();
    let new = NewMail {
        recipient,
        subject: &subject,
        body_text: &rendered(TextPart { data: &data }.render())?,
        body_html: Some(&rendered(HtmlPart { data: &data }.render())?),
        unsubscribe_url: Some(&unsubscribe_url),
        delivery_id: Some(delivery.id),
        has_file: mail.is_attached,
        message_id: &mailer.message_id().map_err(|_| SecretError::NoRandomness)?,
    };
    mails::enqueue_mail(tx, cx.user_id, &new, cx.trace).await
}
