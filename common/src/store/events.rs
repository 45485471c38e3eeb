//! Events and their fan-out: one row an event, one delivery and one job for each endpoint that listens.

use serde_json::{Value, json};

use super::db::run;
use super::jobs::{self, id_list};
use super::{Result, StoreError, Tx};
use crate::domain::event::EventName;
use crate::domain::job::{Kind, Lane, NewJob};
use crate::domain::webhook::MAX_ATTEMPTS;

/// Tells every active endpoint of the brand's members that asked for the event. Part of the transaction that makes it
/// happen. Gives how many endpoints will hear of it.
pub async fn emit(tx: &mut Tx, brand_id: i64, name: EventName, data: &Value, trace: Option<&str>) -> Result<usize> {
    let listeners = listeners(tx, brand_id, name).await?;
    if listeners.is_empty() {
        return Ok(0);
    }
    let payload = json!({ "event": name, "data": data }).to_string();
    tell(tx, Some(brand_id), name, &payload, &listeners, Lane::Endpoint, trace).await?;
    Ok(listeners.len())
}

/// Holds the endpoints on Postgres: one that is deleted meanwhile would take its delivery's footing away.
async fn listeners(tx: &mut Tx, brand_id: i64, name: EventName) -> Result<Vec<i64>> {
    let sql = tx.spelt(
        "SELECT w.id FROM webhooks w JOIN brand_members m ON m.user_id = w.user_id WHERE m.brand_id = $1 AND w.is_active AND w.events @> jsonb_build_array($2::text) ORDER BY w.id FOR KEY SHARE OF w",
        "SELECT w.id FROM webhooks w JOIN brand_members m ON m.user_id = w.user_id WHERE m.brand_id = $1 AND w.is_active AND EXISTS (SELECT 1 FROM json_each(w.events) e WHERE e.value = $2) ORDER BY w.id",
    );
    Ok(run!(tx, c => sqlx::query_scalar(sql).bind(brand_id).bind(name).fetch_all(c))?)
}

/// Sends the sample of an event to one endpoint, whatever that asked for: an event that happened in no brand. The caller
/// holds the endpoint's row. Gives the delivery's id.
pub async fn emit_sample(tx: &mut Tx, webhook_id: i64, name: EventName, trace: Option<&str>) -> Result<i64> {
    let payload = name.sample().to_string();
    let made = tell(tx, None, name, &payload, &[webhook_id], Lane::AskedOf, trace).await?;
    made.first().copied().ok_or_else(|| StoreError::Decode("a delivery was not made".into()))
}

/// Stores an event, and a delivery with its job for each of the endpoints, which the caller holds; gives the deliveries.
async fn tell(
    tx: &mut Tx,
    brand_id: Option<i64>,
    name: EventName,
    payload: &str,
    webhook_ids: &[i64],
    lane: fn(i64) -> Lane,
    trace: Option<&str>,
) -> Result<Vec<i64>> {
    const EVENT: &str = "INSERT INTO events (brand_id, name, payload, created_at) VALUES ($1, $2, $3, $4) RETURNING id";
    let now = tx.now;
    let event: i64 =
        run!(tx, c => sqlx::query_scalar(EVENT).bind(brand_id).bind(name).bind(payload).bind(now).fetch_one(c))?;
    let sql = tx.spelt(
        "INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at) SELECT value::bigint, $2, 'pending', $3, $4, $4, $4 FROM json_array_elements_text($1::json) RETURNING id, webhook_id",
        "INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at) SELECT value, $2, 'pending', $3, $4, $4, $4 FROM json_each($1) RETURNING id, webhook_id",
    );
    let list = id_list(webhook_ids);
    let made: Vec<(i64, i64)> =
        run!(tx, c => sqlx::query_as(sql).bind(&list).bind(event).bind(MAX_ATTEMPTS).bind(now).fetch_all(c))?;
    let subjects: Vec<_> = made.iter().map(|(id, webhook)| (*id, lane(*webhook))).collect();
    let job = NewJob::new(Kind::DeliverWebhook, 0, now).trace(trace.map(str::to_owned));
    jobs::enqueue_each(tx, &job, &subjects).await?;
    Ok(made.into_iter().map(|(id, _)| id).collect())
}
