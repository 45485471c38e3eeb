//! Webhook endpoints. The signing secret is sealed.

use chrono::{DateTime, Utc};
use crier_base::secrets::{Cipher, SecretLocation};
use crier_domain::circuit::Health;
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, Lane};
use crier_domain::webhook::Webhook;
use secrecy::{ExposeSecret, SecretString};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, lanes, list_sql};
use super::sql::sql;
use super::{Conn, Result, StoreError, Tx, notices};

const COLUMNS: &str = "id, user_id, url, events, description, is_active, disabled_reason, created_at, updated_at";

fn place(row: &str) -> SecretLocation<'_> {
    SecretLocation { table: "webhooks", row, column: "secret" }
}

/// An endpoint as a client sends it.
#[derive(Debug)]
pub struct NewWebhook<'a> {
    pub url: &'a str,
    pub events: &'a [EventName],
    pub description: Option<&'a str>,
    pub is_active: bool,
    pub secret: &'a SecretString,
}

pub async fn create(tx: &mut Tx, user_id: i64, new: &NewWebhook<'_>) -> Result<Webhook> {
    const SQL: &str = "
        INSERT INTO webhooks (user_id, url, events, description, is_active, secret, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
        RETURNING id";
    let now = tx.now;
    // The seal is bound to the row's id, so the secret is stored after the insert, in the same transaction.
    let empty: Vec<u8> = Vec::new();
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(user_id).bind(new.url).bind(Json(new.events))
        .bind(new.description).bind(new.is_active).bind(&empty).bind(now).fetch_one(c))?;
    set_secret(tx, id, new.secret).await?;
    find(tx, user_id, id).await?.ok_or_else(|| StoreError::Decode("a webhook was not stored".into()))
}

/// Stores a new secret. The old one stops working immediately.
pub async fn set_secret(tx: &mut Tx, webhook_id: i64, secret: &SecretString) -> Result<()> {
    let sealed = tx.cipher.seal(&place(&webhook_id.to_string()), secret.expose_secret().as_bytes())?;
    let now = tx.now;
    execute!(tx, "UPDATE webhooks SET secret = $2, updated_at = $3 WHERE id = $1", webhook_id, &sealed, now)?;
    Ok(())
}

/// Lists the user's endpoints, newest first.
pub async fn list(conn: &mut Conn, user_id: i64) -> Result<Vec<Webhook>> {
    let sql = sql!("SELECT {COLUMNS} FROM webhooks WHERE user_id = $1 ORDER BY id DESC", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(user_id).fetch_all(c))?)
}

/// The recent activity of an endpoint, for its owner.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct WebhookActivity {
    pub id: i64,
    /// Since when every attempt has failed.
    pub failing_since: Option<DateTime<Utc>>,
    /// When its newest delivery was created.
    pub last_delivery_at: Option<DateTime<Utc>>,
}

/// Returns the recent activity of the user's endpoints.
pub async fn activity(conn: &mut Conn, user_id: i64) -> Result<Vec<WebhookActivity>> {
    const SQL: &str = "
        SELECT w.id, w.failing_since,
            (
                SELECT d.created_at
                FROM webhook_deliveries d
                WHERE d.webhook_id = w.id
                ORDER BY d.id DESC
                LIMIT 1
            ) AS last_delivery_at
        FROM webhooks w
        WHERE w.user_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(user_id).fetch_all(c))?)
}

/// Returns how many endpoints the user has.
pub async fn count(conn: &mut Conn, user_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM webhooks WHERE user_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, user_id: i64, webhook_id: i64) -> Result<Option<Webhook>> {
    let sql = sql!("SELECT {COLUMNS} FROM webhooks WHERE user_id = $1 AND id = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(user_id).bind(webhook_id).fetch_optional(c))?)
}

/// Finds an endpoint and locks its row.
pub async fn find_for_update(tx: &mut Tx, user_id: i64, webhook_id: i64) -> Result<Option<Webhook>> {
    execute!(tx, "UPDATE webhooks SET updated_at = updated_at WHERE id = $1 AND user_id = $2", webhook_id, user_id)?;
    find(tx, user_id, webhook_id).await
}

/// Stores the mutable fields of an endpoint. Activating or deactivating it, or changing its URL, resets its health
/// record.
pub async fn update(tx: &mut Tx, webhook: &Webhook) -> Result<()> {
    const SQL: &str = "
        UPDATE webhooks
        SET url = $2, events = $3, is_active = $4, disabled_reason = $5, description = $7, updated_at = $6
        WHERE id = $1";
    const SWITCH: &str = "
        UPDATE webhooks
        SET failing_since = NULL, strikes = 0
        WHERE id = $1 AND (is_active <> $2 OR url <> $3)";
    let now = tx.now;
    if execute!(tx, SWITCH, webhook.id, webhook.is_active, &webhook.url)? > 0 {
        release_lane(tx, webhook.id).await?;
    }
    execute!(
        tx,
        SQL,
        webhook.id,
        &webhook.url,
        Json(&webhook.events),
        webhook.is_active,
        &webhook.disabled_reason,
        now,
        &webhook.description
    )?;
    Ok(())
}

/// Deletes an endpoint with its deliveries. Their jobs find no subject and end.
pub async fn delete(tx: &mut Tx, user_id: i64, webhook_id: i64) -> Result<bool> {
    let deleted = execute!(tx, "DELETE FROM webhooks WHERE user_id = $1 AND id = $2", user_id, webhook_id)? > 0;
    if deleted {
        release_lane(tx, webhook_id).await?;
    }
    Ok(deleted)
}

/// Decrypts the secret of an endpoint.
pub(super) fn open_secret(cipher: &Cipher, webhook_id: i64, sealed: &[u8]) -> Result<SecretString> {
    let plain = cipher.open(&place(&webhook_id.to_string()), sealed)?;
    let text =
        String::from_utf8(plain).map_err(|_| StoreError::Decode("a signing secret is not valid UTF-8".into()))?;
    Ok(SecretString::from(text))
}

/// Returns the health records of those endpoints whose record is not clean, or of all of them with `all`. Locks their
/// rows until the end of the transaction, in id order.
pub async fn lock_health(tx: &mut Tx, ids: &[i64], all: bool) -> Result<Vec<(i64, Health)>> {
    #[derive(sqlx_macros::FromRow)]
    struct WebhookRow {
        id: i64,
        #[sqlx(flatten)]
        health: Health,
    }
    let sql = list_sql!(
        tx,
        "SELECT id, failing_since, strikes FROM webhooks WHERE id",
        "AND ($2 OR failing_since IS NOT NULL OR strikes > 0) ORDER BY id {LOCK}",
        "FOR UPDATE"
    );
    let list = id_list(ids);
    let rows: Vec<WebhookRow> = run!(tx, c => sqlx::query_as(sql).bind(&list).bind(all).fetch_all(c))?;
    Ok(rows.into_iter().map(|row| (row.id, row.health)).collect())
}

pub async fn set_record(tx: &mut Tx, webhook_id: i64, health: Health) -> Result<()> {
    const SQL: &str = "UPDATE webhooks SET failing_since = $2, strikes = $3 WHERE id = $1";
    execute!(tx, SQL, webhook_id, health.failing_since, health.strikes)?;
    Ok(())
}

/// Disables an endpoint, with a reason for its owner, and notifies the owner. Returns `false` if it was already
/// inactive.
pub async fn disable(tx: &mut Tx, webhook_id: i64, reason: &str) -> Result<bool> {
    const SQL: &str = "
            UPDATE webhooks
            SET is_active = FALSE, disabled_reason = $2, updated_at = $3
            WHERE id = $1 AND is_active";
    let now = tx.now;
    let disabled = execute!(tx, SQL, webhook_id, reason, now)? > 0;
    if disabled {
        // The deliveries that wait for the lane fail without a call, so they need not wait.
        release_lane(tx, webhook_id).await?;
        notices::add_for_webhook(tx, webhook_id).await?;
    }
    Ok(disabled)
}

/// Returns whether the owner changed an active endpoint after a time. Then the result of an attempt that began before
/// that may be that of another URL.
pub async fn was_changed_since(conn: &mut Conn, webhook_id: i64, since: DateTime<Utc>) -> Result<bool> {
    const SQL: &str = "SELECT is_active AND updated_at > $2 FROM webhooks WHERE id = $1";
    let changed: Option<bool> =
        run!(conn, c => sqlx::query_scalar(SQL).bind(webhook_id).bind(since).fetch_optional(c))?;
    Ok(changed.unwrap_or(false))
}

/// Removes the limits that hold back an endpoint's deliveries.
async fn release_lane(tx: &mut Tx, webhook_id: i64) -> Result<()> {
    lanes::widen_lane(tx, JobKind::DeliverWebhook, &Lane::Endpoint(webhook_id).to_string()).await
}

/// What the email about a disabled endpoint contains in addition to its URL and the reason.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct DisabledWebhook {
    pub description: Option<String>,
    pub failing_since: Option<DateTime<Utc>>,
}

/// Returns an endpoint of the user that Crier disabled. Returns `None` if it is not disabled or does not exist.
pub async fn disabled(conn: &mut Conn, user_id: i64, webhook_id: i64) -> Result<Option<DisabledWebhook>> {
    const SQL: &str = "
        SELECT description, failing_since
        FROM webhooks
        WHERE id = $1
            AND user_id = $2
            AND NOT is_active
            AND disabled_reason IS NOT NULL";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(webhook_id).bind(user_id).fetch_optional(c))?)
}

/// Returns how many endpoints are active, deactivated by their owner, and disabled by Crier.
pub async fn counts(conn: &mut Conn) -> Result<(i64, i64, i64)> {
    const SQL: &str = "
        SELECT count(CASE WHEN is_active THEN 1 END),
            count(CASE WHEN NOT is_active AND disabled_reason IS NULL THEN 1 END),
            count(CASE WHEN NOT is_active AND disabled_reason IS NOT NULL THEN 1 END)
        FROM webhooks";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_one(c))?)
}
