//! Events and their fan-out: one row an event, one delivery and one job for each endpoint that listens.

use serde_json::Value;

use super::db::run;
use super::{Result, Tx};
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
    const EVENT: &str = "INSERT INTO events (brand_id, name, payload, created_at) VALUES ($1, $2, $3, $4) RETURNING id";
    const DELIVERY: &str = "INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at) VALUES ($1, $2, 'pending', $3, $4, $4, $4) RETURNING id";
    let payload = serde_json::json!({ "event": name, "data": data }).to_string();
    let now = tx.now;
    let event: i64 =
        run!(tx, c => sqlx::query_scalar(EVENT).bind(brand_id).bind(name).bind(&payload).bind(now).fetch_one(c))?;
    for webhook in &listeners {
        let delivery: i64 = run!(tx, c => sqlx::query_scalar(DELIVERY).bind(webhook).bind(event).bind(MAX_ATTEMPTS).bind(now).fetch_one(c))?;
        let job = NewJob::new(Kind::DeliverWebhook, delivery, now).lane(Lane::Endpoint(*webhook));
        super::jobs::enqueue(tx, &job.trace(trace.map(str::to_owned))).await?;
    }
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
    const EVENT: &str = "INSERT INTO events (name, payload, created_at) VALUES ($1, $2, $3) RETURNING id";
    const DELIVERY: &str = "INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at) VALUES ($1, $2, 'pending', $3, $4, $4, $4) RETURNING id";
    let (payload, now) = (name.sample().to_string(), tx.now);
    let event: i64 = run!(tx, c => sqlx::query_scalar(EVENT).bind(name).bind(&payload).bind(now).fetch_one(c))?;
    let delivery = run!(tx, c => sqlx::query_scalar(DELIVERY).bind(webhook_id).bind(event).bind(MAX_ATTEMPTS).bind(now).fetch_one(c))?;
    let job = NewJob::new(Kind::DeliverWebhook, delivery, now).lane(Lane::Endpoint(webhook_id));
    super::jobs::enqueue(tx, &job.trace(trace.map(str::to_owned))).await?;
    Ok(delivery)
}
