//! Applications that registered themselves. Anyone can register one, so their number is limited, and registrations that
//! no user allowed are deleted after a day.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::SecretError;

use crate::db::{execute, run};
use crate::{Conn, Result, StoreError, Tx};

/// How long a registration is kept that no user allowed.
pub const UNUSED_LIFETIME: TimeDelta = TimeDelta::hours(24);
/// How long after its last use a registration is kept. Longer than a refresh token is valid.
pub const LIFETIME: TimeDelta = TimeDelta::days(90);
/// The maximum number of registrations. If there are more, the oldest unused one is deleted for a new one, or the least
/// recently used one without a grant, so that a user who allows many applications cannot keep out others. Concurrent
/// registrations can exceed it.
pub const MAX_CLIENTS: i64 = 10_000;
/// The maximum number of unused registrations from one network. Concurrent registrations can exceed it.
pub const MAX_UNUSED_PER_NETWORK: i64 = 50;
/// The number of random characters of an ID.
const ID_LENGTH: usize = 24;

/// A registered application.
#[derive(Clone, Debug)]
pub struct Client {
    pub id: String,
    pub name: String,
    pub redirect_uris: Vec<String>,
}

/// An application to register.
#[derive(Clone, Debug)]
pub struct NewClient<'a> {
    pub name: &'a str,
    pub redirect_uris: &'a [String],
    /// The network that sends the request: an IPv4 address or an IPv6 /64.
    pub network: &'a str,
}

/// The result of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The ID of the application.
    Created(String),
    /// The network has [`MAX_UNUSED_PER_NETWORK`] unused registrations.
    NetworkFull,
    /// There are [`MAX_CLIENTS`] registrations, all with grants.
    Full,
}

/// Registers an application.
pub async fn register(tx: &mut Tx, new: &NewClient<'_>) -> Result<Registration> {
    const SQL: &str = "
        INSERT INTO oauth_clients (id, created_at, network, name, redirect_uris)
        VALUES ($1, $2, $3, $4, $5)";
    if count_unused(tx, new.network).await? >= MAX_UNUSED_PER_NETWORK {
        return Ok(Registration::NetworkFull);
    }
    if count(tx).await? >= MAX_CLIENTS && !drop_oldest_unused(tx).await? && !drop_oldest_without_grant(tx).await? {
        return Ok(Registration::Full);
    }
    let id = crier_base::random::text(ID_LENGTH).map_err(|_| SecretError::NoRandomness)?;
    let redirect_uris =
        serde_json::to_string(new.redirect_uris).map_err(|error| StoreError::Decode(error.to_string()))?;
    let now = tx.now;
    execute!(tx, SQL, &id, now, new.network, new.name, &redirect_uris)?;
    Ok(Registration::Created(id))
}

async fn count_unused(conn: &mut Conn, network: &str) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM oauth_clients WHERE network = $1 AND last_used_at IS NULL";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(network).fetch_one(c))?)
}

async fn count(conn: &mut Conn) -> Result<i64> {
    Ok(run!(conn, c => sqlx::query_scalar("SELECT count(*) FROM oauth_clients").fetch_one(c))?)
}

/// Deletes the oldest registration that no user allowed. Returns `false` if there is none.
async fn drop_oldest_unused(tx: &mut Tx) -> Result<bool> {
    const SQL: &str = "
        DELETE FROM oauth_clients
        WHERE id IN (SELECT id FROM oauth_clients WHERE last_used_at IS NULL ORDER BY created_at LIMIT 1)";
    Ok(execute!(tx, SQL)? > 0)
}

/// Deletes the least recently used registration without a grant, if all are used. Returns `false` if there is none.
async fn drop_oldest_without_grant(tx: &mut Tx) -> Result<bool> {
    // There may be unused ones: a concurrent registration may have deleted the oldest of them first.
    const SQL: &str = "
        DELETE FROM oauth_clients
        WHERE id IN (
            SELECT c.id
            FROM oauth_clients c
            WHERE c.last_used_at IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM oauth_clients WHERE last_used_at IS NULL)
                AND NOT EXISTS (SELECT 1 FROM oauth_grants g WHERE g.client_id = c.id)
            ORDER BY c.last_used_at
            LIMIT 1
        )";
    Ok(execute!(tx, SQL)? > 0)
}

/// Finds a registered application. Returns `None` if its registration has expired.
pub async fn find(conn: &mut Conn, id: &str, now: DateTime<Utc>) -> Result<Option<Client>> {
    const SQL: &str = "
        SELECT id, name, redirect_uris
        FROM oauth_clients
        WHERE id = $1
            AND (last_used_at > $2 OR last_used_at IS NULL AND created_at > $3)";
    // Other texts are no IDs. Postgres would reject one with a NUL.
    if id.len() != ID_LENGTH || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(None);
    }
    let (used_since, created_since) = (now - LIFETIME, now - UNUSED_LIFETIME);
    let found: Option<(String, String, String)> =
        run!(conn, c => sqlx::query_as(SQL).bind(id).bind(used_since).bind(created_since).fetch_optional(c))?;
    let Some((id, name, redirect_uris)) = found else { return Ok(None) };
    let redirect_uris =
        serde_json::from_str(&redirect_uris).map_err(|error| StoreError::Decode(format!("redirect URIs: {error}")))?;
    Ok(Some(Client { id, name, redirect_uris }))
}

/// Records that an application got a token. Does nothing for an application that is not registered.
pub async fn touch(tx: &mut Tx, id: &str) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE oauth_clients SET last_used_at = $2 WHERE id = $1", id, now)?;
    Ok(())
}

/// Deletes expired registrations, at most `limit` unused and `limit` used ones. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const UNUSED: &str = "
        DELETE FROM oauth_clients
        WHERE id IN (
            SELECT id
            FROM oauth_clients
            WHERE last_used_at IS NULL AND created_at <= $1
            ORDER BY created_at
            LIMIT $2
        )";
    const USED: &str = "
        DELETE FROM oauth_clients
        WHERE id IN (
            SELECT id
            FROM oauth_clients
            WHERE last_used_at IS NOT NULL AND last_used_at <= $1
            ORDER BY last_used_at
            LIMIT $2
        )";
    let (created_before, used_before) = (tx.now - UNUSED_LIFETIME, tx.now - LIFETIME);
    Ok(execute!(tx, UNUSED, created_before, limit)? + execute!(tx, USED, used_before, limit)?)
}
