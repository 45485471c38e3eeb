//! `POST /webhooks/{webhook}/recover`

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Scope;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_store::{Tx, deliveries, jobs};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, check_active, lock_webhook};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::{ErrorCode, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The maximum age of deliveries to retry.
const MAX_RECOVERY_AGE: TimeDelta = TimeDelta::days(14);
/// The maximum number of deliveries that a transaction retries. On SQLite, it blocks all other writers.
const DELIVERIES_PER_BATCH: i64 = 1_000;

/// The failed deliveries to retry.
#[derive(Clone, Debug, Request)]
#[request(check = check)]
pub struct WebhookRecovery {
    /// The earliest creation time of the deliveries to retry: at most 14 days ago, not in the future. A time without an
    /// offset is in UTC.
    #[field(time(), example = "{day-3}T00:00:00Z")]
    pub since: DateTime<Utc>,
}

/// The result of retrying failed deliveries.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WebhookRecovered {
    /// The number of deliveries that are retried.
    pub recovered: u64,
}

pub fn endpoint() -> Endpoint<WebhookRecovery, One<WebhookRecovered>> {
    Endpoint::post("/webhooks/{webhook}/recover", "recoverWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Retry failed deliveries")
        .description(
            "Crier immediately retries each failed delivery that was created at `since` or later, under the same \
             delivery ID and with one more attempt allowed. `Location` lists the pending deliveries. If the request is \
             interrupted, send it again: it retries the remaining deliveries, and counts only these.",
        )
        .extension()
        .features(FEATURES)
        .status(202)
        .error_codes(&[ErrorCode::WebhookInactive])
        .reserves_then_writes(recover)
}

fn check(request: &WebhookRecovery, fields: &Fields<'_>) {
    let now = fields.context().now;
    if request.since > now {
        fields.problem("since", "Must not be in the future.");
    } else if request.since < now - MAX_RECOVERY_AGE {
        fields.problem("since", format!("Must be at most {} days ago.", MAX_RECOVERY_AGE.num_days()));
    }
}

/// Retries the deliveries in batches, each in a transaction of its own. A delivery that is retried is no longer failed, so
/// an interrupted request can be repeated.
async fn recover(cx: &Context, parsed: Arc<Parsed<WebhookRecovery>>) -> Result<WriteStep<WebhookRecovered>> {
    let (mut recovered, mut after) = (0, 0);
    loop {
        let mut tx = cx.app.store.begin().await?;
        let ids = recover_batch(cx, &mut tx, &parsed, after).await?;
        tx.commit().await?;
        recovered += ids.len() as u64;
        // A delivery that fails again during the loop is before the last one, so it is not retried twice.
        match ids.last() {
            Some(last) if i64::try_from(ids.len()) == Ok(DELIVERIES_PER_BATCH) => after = *last,
            _ => break,
        }
    }
    Ok(WriteStep::new(recovered, |cx, _, recovered| {
        Box::pin(async move {
            let path = format!("/webhooks/{}/deliveries?status=pending", cx.id("webhook")?);
            Ok(Reply::at(&path, WebhookRecovered { recovered: *recovered }))
        })
    }))
}

/// Retries the next deliveries after an id. Returns their ids.
async fn recover_batch(cx: &Context, tx: &mut Tx, parsed: &Parsed<WebhookRecovery>, after: i64) -> Result<Vec<i64>> {
    let webhook = lock_webhook(cx, tx).await?;
    let request = parsed.valid()?;
    check_active(&webhook)?;
    let ids = deliveries::recover(tx, webhook.id, request.since, after, DELIVERIES_PER_BATCH).await?;
    let job = NewJob::new(JobKind::DeliverWebhook, 0, tx.now)
        .workspace(cx.caller.workspace_id)
        .trace(cx.trace().map(str::to_owned));
    jobs::enqueue_in_lane(tx, &job, Lane::Endpoint(webhook.id), &ids).await?;
    Ok(ids)
}
