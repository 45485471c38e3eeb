//! Events and their fan-out: one row per event, one delivery and one job per subscribed endpoint.

use chrono::SubsecRound as _;
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobNotification, Lane, NewJob, workspace_lane};
use crier_domain::webhook::MAX_ATTEMPTS;
use serde_json::{Value, json};

use super::db::run;
use super::jobs::{self, JobSubject, id_list};
use super::{Result, StoreError, Tx};

/// The ids of a delivery, its endpoint and the endpoint's workspace.
type NewDelivery = (i64, i64, i64);

/// Sends the event to every active endpoint of the brand's members that subscribed to it. Runs in the transaction that
/// causes the event. Returns how many endpoints will receive it.
pub async fn emit(tx: &mut Tx, brand_id: i64, name: EventName, data: &Value, trace: Option<&str>) -> Result<usize> {
    let payload = json!({ "event": name, "data": data }).to_string();
    if tx.is_postgres() {
        return emit_in_one_statement(tx, brand_id, name, &payload, trace).await;
    }
    let listeners = listeners(tx, brand_id, name).await?;
    let made = insert_deliveries(tx, Some(brand_id), name, &payload, &listeners).await?;
    enqueue(tx, &made, Lane::Endpoint, trace).await?;
    Ok(made.len())
}

/// Sends the sample of an event to one endpoint, whatever its subscriptions; the event belongs to no brand. The caller
/// has locked the endpoint's row. Returns the delivery's id.
pub async fn emit_sample(tx: &mut Tx, webhook_id: i64, name: EventName, trace: Option<&str>) -> Result<i64> {
    let made = insert_deliveries(tx, None, name, &name.sample().to_string(), &[webhook_id]).await?;
    enqueue(tx, &made, Lane::ManualDelivery, trace).await?;
    made.first().map(|(id, ..)| *id).ok_or_else(|| StoreError::Decode("a delivery was not made".into()))
}

/// [`emit`] on Postgres, where each statement is a round trip: finds the listeners, stores the event, and creates the
/// deliveries and their jobs. Locks the endpoints: the deletion of one meanwhile would break its delivery's foreign key.
async fn emit_in_one_statement(
    tx: &mut Tx,
    brand_id: i64,
    name: EventName,
    payload: &str,
    trace: Option<&str>,
) -> Result<usize> {
    const SQL: &str = "
        WITH listeners AS MATERIALIZED (
            SELECT w.id, u.workspace_id
            FROM webhooks w
            JOIN brand_members m ON m.user_id = w.user_id
            JOIN users u ON u.id = w.user_id
            WHERE m.brand_id = $1
                AND w.is_active
                AND w.events @> jsonb_build_array($2::text)
            ORDER BY w.id
            FOR KEY SHARE OF w
        ),
        event AS (
            INSERT INTO events (brand_id, name, payload, created_at)
            SELECT $1, $2, $3, $4
            WHERE EXISTS (SELECT 1 FROM listeners)
            RETURNING id
        ),
        delivery AS (
            INSERT INTO webhook_deliveries (
                webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
            )
            SELECT listeners.id, event.id, 'pending', $5, $4, $4, $4
            FROM listeners, event
            ORDER BY listeners.id
            RETURNING id, webhook_id
        )
        INSERT INTO jobs (
            kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at, workspace_lane
        )
        SELECT $6, delivery.id, replace($7, '{id}', webhook_id::text), 'ready', $8, $9, $10, $4, $4,
            replace($11, '{id}', workspace_id::text)
        FROM delivery
        JOIN listeners ON listeners.id = webhook_id
        ORDER BY delivery.id
        RETURNING id";
    // The lanes of all deliveries, with a placeholder for the id.
    let with_placeholder = |lane: String| lane.replace(&i64::MAX.to_string(), "{id}");
    let lane = with_placeholder(Lane::Endpoint(i64::MAX).to_string());
    let (now, kind) = (tx.now, JobKind::DeliverWebhook);
    let workspace = workspace_lane(kind, Some(i64::MAX)).map(with_placeholder);
    let jobs: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(name).bind(payload).bind(now)
        .bind(MAX_ATTEMPTS).bind(kind).bind(&lane).bind(now.trunc_subsecs(6)).bind(kind.limits().max_attempts)
        .bind(trace).bind(&workspace).fetch_all(c))?;
    for id in &jobs {
        tx.count_enqueued(kind);
        tx.notify_later(JobNotification { kind, id: *id });
    }
    Ok(jobs.len())
}

/// Finds the listeners on SQLite, where no other transaction can delete them meanwhile.
async fn listeners(tx: &mut Tx, brand_id: i64, name: EventName) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT w.id
        FROM webhooks w
        JOIN brand_members m ON m.user_id = w.user_id
        WHERE m.brand_id = $1
            AND w.is_active
            AND EXISTS (SELECT 1 FROM json_each(w.events) e WHERE e.value = $2)
        ORDER BY w.id";
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(name).fetch_all(c))?)
}

/// Stores an event and a delivery for each of the endpoints, if there are any.
async fn insert_deliveries(
    tx: &mut Tx,
    brand_id: Option<i64>,
    name: EventName,
    payload: &str,
    webhook_ids: &[i64],
) -> Result<Vec<NewDelivery>> {
    if webhook_ids.is_empty() {
        return Ok(Vec::new());
    }
    const EVENT: &str = "
        INSERT INTO events (brand_id, name, payload, created_at)
        VALUES ($1, $2, $3, $4)
        RETURNING id";
    let now = tx.now;
    let event: i64 =
        run!(tx, c => sqlx::query_scalar(EVENT).bind(brand_id).bind(name).bind(payload).bind(now).fetch_one(c))?;
    let sql = tx.for_engine(
        "
            INSERT INTO webhook_deliveries (
                webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
            )
            SELECT value::bigint, $2, 'pending', $3, $4, $4, $4
            FROM json_array_elements_text($1::json)
            RETURNING id, webhook_id,
                (
                    SELECT u.workspace_id
                    FROM webhooks w
                    JOIN users u ON u.id = w.user_id
                    WHERE w.id = webhook_deliveries.webhook_id
                )",
        "
            INSERT INTO webhook_deliveries (
                webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
            )
            SELECT value, $2, 'pending', $3, $4, $4, $4
            FROM json_each($1)
            RETURNING id, webhook_id,
                (
                    SELECT u.workspace_id
                    FROM webhooks w
                    JOIN users u ON u.id = w.user_id
                    WHERE w.id = webhook_deliveries.webhook_id
                )",
    );
    let list = id_list(webhook_ids);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&list).bind(event).bind(MAX_ATTEMPTS).bind(now).fetch_all(c))?)
}

async fn enqueue(tx: &mut Tx, made: &[NewDelivery], lane: fn(i64) -> Lane, trace: Option<&str>) -> Result<()> {
    let subject = |(id, webhook, workspace): &NewDelivery| JobSubject {
        id: *id,
        lane: lane(*webhook),
        // A delivery that a person requested does not wait for others.
        workspace_id: matches!(lane(*webhook), Lane::Endpoint(_)).then_some(*workspace),
    };
    let subjects: Vec<_> = made.iter().map(subject).collect();
    let job = NewJob::new(JobKind::DeliverWebhook, 0, tx.now).trace(trace.map(str::to_owned));
    jobs::enqueue_each(tx, &job, &subjects).await?;
    Ok(())
}
