//! Mail that Crier sends to its users unasked. Each notice is put into the outbox by the transaction that causes it;
//! without a configured mail server there are no notices.
//!
//! **To add one:** a function here, its text in `common/templates/`, and a test of what arrives. User content goes only
//! into the body, each piece on one line ([`one_line`]).

use askama::Template;
use chrono::{DateTime, SecondsFormat, Utc};

use crate::domain::webhook::MAX_ATTEMPTS;
use crate::mail::{Mailer, one_line};
use crate::secrets::SecretError;
use crate::store::mails::{self, NewMail};
use crate::store::{Result, StoreError, Tx, deliveries, webhooks};

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

/// Notifies the owner of a disabled endpoint by mail. Call it after [`webhooks::disable`], in its transaction.
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
    };
    mails::enqueue_mail(tx, found.user_id, &new, trace).await?;
    Ok(())
}

fn format_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}
