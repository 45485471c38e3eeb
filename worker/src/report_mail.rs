//! The mails of scheduled reports: one message a recipient, as text and as HTML, with the file or an address of it.
//!
//! All texts of users are data of the templates: the HTML one escapes them, in the text one each is on one line.

use askama::Template;
use chrono::NaiveDate;
use crier_base::secrets::SecretError;
use crier_domain::report::{ReportDelivery, ReportError, ReportErrorCode};
use crier_domain::report_naming;
use crier_jobs::reports::links::{FileLink, UnsubscribeLink};
use crier_mail::{Mailer, one_line};
use crier_store::mails::{self, NewMail};
use crier_store::report_deliveries::{self, MailStop};
use crier_store::{Result, StoreError, Tx};

/// Maximum length of a subject, in characters.
const MAX_SUBJECT: usize = 200;

/// A headline figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    pub label: String,
    /// `12,345`, or a dash.
    pub value: String,
    /// `+12 % from the 30 days before`; `None`: it is not known.
    pub change: Option<String>,
}

/// What the mails of a delivery say.
#[derive(Clone, Debug)]
pub struct MailContent {
    pub report: String,
    pub brand: String,
    pub headlines: Vec<Headline>,
    /// Whether the file is attached; otherwise the mail has its address.
    pub is_attached: bool,
}

#[derive(Template)]
#[template(path = "report.txt")]
struct TextPart<'a> {
    report: &'a str,
    brand: &'a str,
    period: &'a str,
    headlines: &'a [Headline],
    file_url: Option<&'a str>,
    file_until: NaiveDate,
    format: String,
    unsubscribe_url: &'a str,
}

#[derive(Template)]
#[template(path = "report.html")]
struct HtmlPart<'a> {
    report: &'a str,
    brand: &'a str,
    period: &'a str,
    headlines: &'a [Headline],
    file_url: Option<&'a str>,
    file_until: NaiveDate,
    format: String,
    unsubscribe_url: &'a str,
}

/// What the mails need beside their content.
pub struct MailContext<'a> {
    /// `None`: no mail server is configured.
    pub mailer: Option<&'a Mailer>,
    pub public_url: &'a str,
    pub workspace_id: i64,
    /// On whose behalf the mails are sent.
    pub user_id: i64,
    pub trace: Option<&'a str>,
}

/// Puts the mails of a delivery into the outbox, in the transaction that completes it. Recipients that get none are
/// recorded with the reason.
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
    let stops = report_deliveries::mail_stops(tx, cx.workspace_id, schedule_id).await?;
    for (position, to) in (0_i32..).zip(&recipients) {
        let stop = stops.iter().find(|stop| stop.recipient == to.recipient.to_lowercase());
        let refused = match (stop, cx.mailer) {
            (Some(stop), _) => Some(stopped(stop)),
            (None, None) => Some(ReportError::new(
                ReportErrorCode::MailNotConfigured,
                "This Crier has no mail server; its operator sets CRIER_SMTP_URL.",
            )),
            (None, Some(_)) => None,
        };
        if let Some(error) = refused {
            report_deliveries::fail_recipient(tx, delivery.id, position, &error).await?;
        } else if let Some(mailer) = cx.mailer {
            let mail_id = enqueue_one(tx, cx, mailer, delivery, (schedule_id, &to.recipient), mail).await?;
            report_deliveries::set_mail(tx, delivery.id, position, mail_id).await?;
        }
    }
    Ok(())
}

fn stopped(stop: &MailStop) -> ReportError {
    match stop.schedule_id {
        Some(_) => ReportError::new(ReportErrorCode::Unsubscribed, "The recipient wants no more of these mails."),
        None => {
            let why = &stop.reason;
            let message = format!("Not sent: the recipient's mail server refused an earlier mail ({why}).");
            ReportError::new(ReportErrorCode::MailRefused, message)
        }
    }
}

async fn enqueue_one(
    tx: &mut Tx,
    cx: &MailContext<'_>,
    mailer: &Mailer,
    delivery: &ReportDelivery,
    (schedule_id, recipient): (i64, &str),
    mail: &MailContent,
) -> Result<i64> {
    let unsubscribe = UnsubscribeLink { schedule_id, recipient: recipient.to_lowercase() };
    let unsubscribe_url = unsubscribe.url(&tx.cipher, cx.public_url)?;
    let link = FileLink::new(delivery.id, tx.now);
    let file_url = if mail.is_attached { None } else { Some(link.url(&tx.cipher, cx.public_url)?) };
    let (report, brand) = (one_line(&mail.report), one_line(&mail.brand));
    let period = report_naming::period(delivery.starts_on, delivery.ends_on);
    let file_until = link.expires_at.date_naive();
    let format = delivery.format.as_str().to_uppercase();
    let text = TextPart {
        report: &report,
        brand: &brand,
        period: &period,
        headlines: &mail.headlines,
        file_url: file_url.as_deref(),
        file_until,
        format: format.clone(),
        unsubscribe_url: &unsubscribe_url,
    };
    let html = HtmlPart {
        report: &report,
        brand: &brand,
        period: &period,
        headlines: &mail.headlines,
        file_url: file_url.as_deref(),
        file_until,
        format,
        unsubscribe_url: &unsubscribe_url,
    };
    let rendered = |part: askama::Result<String>| part.map_err(|error| StoreError::Decode(format!("a mail: {error}")));
    let subject: String = format!("{report}: {brand}, {period}").chars().take(MAX_SUBJECT).collect();
    let new = NewMail {
        recipient,
        subject: &subject,
        body_text: &rendered(text.render())?,
        body_html: Some(&rendered(html.render())?),
        unsubscribe_url: Some(&unsubscribe_url),
        delivery_id: Some(delivery.id),
        has_file: mail.is_attached,
        message_id: &mailer.message_id().map_err(|_| SecretError::NoRandomness)?,
    };
    mails::enqueue_mail(tx, cx.user_id, &new, cx.trace).await
}
