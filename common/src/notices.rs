//! What Crier tells its users by mail, unasked. Each notice is put into the outbox by the transaction that gives cause for
//! it; where no mail server is configured there is none.
//!
//! **To add one:** a function here, its text in `common/templates/`, and a test of what arrives. What users wrote goes into
//! the body alone, each piece on one line ([`one_line`]).

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
    /// From when on deliveries are to be repeated, as the API takes it.
    recover_since: String,
}

/// Crier has disabled an endpoint: to be called after [`webhooks::disable`] did, in its transaction. `last_error` is what
/// became of the last attempt.
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
        failing_since: shown(failing_since),
        disabled_at: shown(tx.now),
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
    mails::post(tx, found.user_id, &new, trace).await?;
    Ok(())
}

fn shown(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}
