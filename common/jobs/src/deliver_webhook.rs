//! `deliver_webhook`: delivers an event to an endpoint.

use crier_store::{Conn, Result, Tx, deliveries};

use super::{JobDefinition, SubjectDescription};

pub struct DeliverWebhook;

impl JobDefinition for DeliverWebhook {
    async fn lock(tx: &mut Tx, delivery_id: i64) -> Result<()> {
        deliveries::lock(tx, delivery_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, delivery_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(d) = deliveries::find_any(conn, delivery_id).await? else { return Ok(None) };
        let words = format!(
            "delivery {} of event {} ({}) to endpoint {}, {}",
            d.id, d.event_id, d.event, d.webhook_id, d.status
        );
        Ok(Some(SubjectDescription { words, attempts: deliveries::attempt_summaries(conn, delivery_id).await? }))
    }

    async fn on_dead(tx: &mut Tx, delivery_id: i64, _trace: Option<&str>) -> Result<()> {
        deliveries::fail(tx, delivery_id, "internal error; retry this delivery").await
    }

    async fn on_cancelled(tx: &mut Tx, delivery_id: i64) -> Result<()> {
        deliveries::fail(tx, delivery_id, "canceled by the operator").await
    }

    async fn on_retry(tx: &mut Tx, delivery_id: i64) -> Result<bool> {
        deliveries::replay(tx, delivery_id).await
    }
}
