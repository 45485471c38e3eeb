//! Events and their fan-out: one row per event, one delivery and one job per subscribed endpoint.

use chrono::{DateTime, SubsecRound as _, Utc};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobNotification, Lane, NewJob, workspace_lane};
use crier_domain::webhook::MAX_ATTEMPTS;
use serde_json::{Value, json};

use super::db::{execute, run};
use super::jobs::{self, JobSubject, id_list, list_sql};
use super::{Result, Tx};

/// Sends the event to every active endpoint of the brand's members that subscribed to it. Runs in the transaction that
/// causes the event. Returns how many endpoints will receive it.
pub async fn emit(tx: &mut Tx, brand_id: i64, name: EventName, data: &Value, trace: Option<&str>) -> Result<usize> {
    let payload = json!({ "event": name, "data": data }).to_string();
    // The lane of the deliveries, with a placeholder for the endpoint's id.
    let with_placeholder = |lane: String| lane.replace(&i64::MAX.to_string(), "{id}");
    let lane = with_placeholder(Lane::Endpoint(i64::MAX).to_string());
    let (now, kind) = (tx.now, JobKind::DeliverWebhook);
    let workspace = workspace_lane(kind, Some(i64::MAX)).map(with_placeholder);
    let sql = tx.for_engine(EMIT_PG, EMIT_SQLITE);
    let jobs: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(brand_id).bind(name).bind(&payload).bind(now)
        .bind(MAX_ATTEMPTS).bind(kind).bind(&lane).bind(now.trunc_subsecs(6)).bind(kind.limits().max_attempts)
        .bind(trace).bind(&workspace).fetch_all(c))?;
    for id in &jobs {
        tx.count_enqueued(kind);
        tx.notify_later(JobNotification { kind, id: *id });
    }
    Ok(jobs.len())
}

/// Sends the sample of an event to one endpoint, regardless of its subscriptions. The event belongs to no brand. The
/// caller has locked the endpoint's row. Returns the delivery's id.
pub async fn emit_sample(tx: &mut Tx, webhook_id: i64, name: EventName, trace: Option<&str>) -> Result<i64> {
    const EVENT: &str = "
        INSERT INTO events (name, payload)
        VALUES ($1, $2)
        RETURNING id";
    const DELIVERY: &str = "
        INSERT INTO webhook_deliveries (
            webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
        )
        VALUES ($1, $2, 'pending', $3, $4, $4, $4)
        RETURNING id";
    let (now, payload) = (tx.now, name.sample().to_string());
    let event: i64 = run!(tx, c => sqlx::query_scalar(EVENT).bind(name).bind(payload).fetch_one(c))?;
    let delivery: i64 = run!(tx, c => sqlx::query_scalar(DELIVERY).bind(webhook_id).bind(event).bind(MAX_ATTEMPTS)
        .bind(now).fetch_one(c))?;
    let job = NewJob::new(JobKind::DeliverWebhook, 0, now).trace(trace.map(str::to_owned));
    // A delivery that a user requested does not wait for others.
    let subject = JobSubject { id: delivery, lane: Lane::ManualDelivery(webhook_id), workspace_id: None };
    jobs::enqueue_each(tx, &job, &[subject]).await?;
    Ok(delivery)
}

/// Reads the `limit` events after the id `after`, and deletes those that have no deliveries left. Returns the id after
/// which to continue, or `None` if the deliveries of all later events were created after `before`. An event gets its
/// deliveries in the transaction that inserts it, so an event without deliveries never gets one.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, after: i64, limit: i64) -> Result<Option<i64>> {
    // All deliveries of an event were created at the same time.
    const FIND: &str = "
        SELECT e.id, (SELECT max(d.created_at) FROM webhook_deliveries d WHERE d.event_id = e.id) AS emitted_at
        FROM events e
        WHERE e.id > $1
        ORDER BY e.id
        LIMIT $2";
    // Not prepared persistently: a plan that was made for few deliveries would read all of many for each event.
    let found: Vec<(i64, Option<DateTime<Utc>>)> =
        run!(tx, c => sqlx::query_as(FIND).persistent(false).bind(after).bind(limit).fetch_all(c))?;
    let unused: Vec<i64> = found.iter().filter(|(_, emitted_at)| emitted_at.is_none()).map(|(id, _)| *id).collect();
    if !unused.is_empty() {
        let sql = list_sql!(tx, "DELETE FROM events WHERE id", "");
        execute!(tx, sql, id_list(&unused))?;
    }
    let (is_full, now) = (i64::try_from(found.len()) == Ok(limit), tx.now);
    let is_young = |emitted_at: Option<DateTime<Utc>>| emitted_at.is_some_and(|at| at > before && at <= now);
    Ok(found.last().filter(|(_, emitted_at)| is_full && !is_young(*emitted_at)).map(|(id, _)| *id))
}

/// Finds the subscribed endpoints, stores the event, and creates the deliveries and their jobs, in the order of the
/// endpoints. `MATERIALIZED` keeps Postgres from finding them three times. No endpoint is locked: if one is deleted
/// meanwhile, the job of its delivery deletes the delivery ([`super::deliveries::delete_orphan`]).
const EMIT_PG: &str = "
    WITH listeners AS MATERIALIZED (
        SELECT w.id, u.workspace_id
        FROM webhooks w
        JOIN brand_members m ON m.user_id = w.user_id
        JOIN users u ON u.id = w.user_id
        WHERE m.brand_id = $1
            AND w.is_active
            AND w.events @> jsonb_build_array($2::text)
    ),
    new_event AS (
        INSERT INTO events (brand_id, name, payload)
        SELECT $1, $2, $3
        WHERE EXISTS (SELECT 1 FROM listeners)
        RETURNING id
    ),
    new_deliveries AS (
        INSERT INTO webhook_deliveries (
            webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
        )
        SELECT listeners.id, new_event.id, 'pending', $5, $4, $4, $4
        FROM listeners
        CROSS JOIN new_event
        ORDER BY listeners.id
        RETURNING id, webhook_id
    )
    INSERT INTO jobs (
        kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at, workspace_lane
    )
    SELECT $6, new_deliveries.id, replace($7, '{id}', webhook_id::text), 'ready', $8, $9, $10, $4, $4,
        replace($11, '{id}', workspace_id::text)
    FROM new_deliveries
    JOIN listeners ON listeners.id = webhook_id
    ORDER BY new_deliveries.id
    RETURNING id";

/// Does the same in several statements, which are sent together, because SQLite has no `INSERT` in `WITH`. The last one
/// returns the rows. Without a subscribed endpoint, none of them writes anything. `changes()` is the number of deliveries
/// that the second one inserted: they are the newest. `CROSS JOIN` makes SQLite find them by their id, not by their
/// endpoint, which may have many.
const EMIT_SQLITE: &str = "
    INSERT INTO events (brand_id, name, payload)
    SELECT $1, $2, $3
    WHERE EXISTS (
        SELECT 1
        FROM webhooks w
        JOIN brand_members m ON m.user_id = w.user_id
        WHERE m.brand_id = $1
            AND w.is_active
            AND EXISTS (SELECT 1 FROM json_each(w.events) e WHERE e.value = $2)
    );
    INSERT INTO webhook_deliveries (
        webhook_id, event_id, status, max_attempts, next_attempt_at, created_at, updated_at
    )
    SELECT w.id, (SELECT max(id) FROM events), 'pending', $5, $4, $4, $4
    FROM webhooks w
    JOIN brand_members m ON m.user_id = w.user_id
    WHERE m.brand_id = $1
        AND w.is_active
        AND EXISTS (SELECT 1 FROM json_each(w.events) e WHERE e.value = $2)
    ORDER BY w.id;
    INSERT INTO jobs (
        kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at, workspace_lane
    )
    SELECT $6, d.id, replace($7, '{id}', w.id), 'ready', $8, $9, $10, $4, $4, replace($11, '{id}', u.workspace_id)
    FROM webhook_deliveries d
    CROSS JOIN webhooks w ON w.id = d.webhook_id
    JOIN users u ON u.id = w.user_id
    WHERE d.id > (SELECT max(id) FROM webhook_deliveries) - changes()
    ORDER BY d.id
    RETURNING id";
