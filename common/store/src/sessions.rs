//! Sessions in the console, and the links that begin them. Only hashes of their tokens are stored.
//!
//! A session has its own row in `api_keys`, so everything that is counted or stored by key (requests,
//! `Idempotency-Key`s, the time of last use) applies to sessions too. Its hash covers a prefix that no API key has, so
//! neither can be used as the other. A session expires when it was not used for [`LIFETIME`].

use std::net::IpAddr;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::SecretError;
use crier_domain::access::{KeyMode, Scopes};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::db::{execute, run};
use super::keys::{self, Authenticated, CALLER_COLUMNS, CALLER_TABLES, NewRow};
use super::oauth::grants;
use super::sql::sql;
use super::{Conn, Result, Tx, users};

/// How long after its last use a session expires.
pub const LIFETIME: TimeDelta = TimeDelta::days(30);
/// How long a link that a user requested is valid.
pub const LINK_LIFETIME: TimeDelta = TimeDelta::minutes(15);
/// The number of characters of `[A-Za-z0-9]` that contain 256 bits.
const TOKEN_LENGTH: usize = 43;
const MAX_USER_AGENT: usize = 255;
/// The maximum number of a user's valid links, so that a stranger cannot fill the user's mailbox.
const MAX_LINKS: i64 = 3;

/// A session as listed.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct SessionRow {
    pub id: i64,
    pub user_agent: String,
    /// The IP address from which the user signed in.
    pub address: String,
    pub created_at: DateTime<Utc>,
    pub last_used_at: Option<DateTime<Utc>>,
}

/// The purpose of a token, which is part of its hash.
pub(super) enum Purpose {
    Session,
    Link,
    Invitation,
}

/// Returns the hash by which a token is found. Returns `None` if the text does not have the form of a token.
pub(super) fn hash(token: &str, purpose: &Purpose) -> Option<Vec<u8>> {
    let well_formed = token.len() == TOKEN_LENGTH && token.bytes().all(|b| b.is_ascii_alphanumeric());
    let prefix = match purpose {
        Purpose::Session => "session:",
        Purpose::Link => "sign-in:",
        Purpose::Invitation => "invitation:",
    };
    well_formed.then(|| Sha256::new().chain_update(prefix).chain_update(token).finalize().to_vec())
}

pub(super) fn new_token(purpose: &Purpose) -> Result<(SecretString, Vec<u8>)> {
    let token = crier_base::random::text(TOKEN_LENGTH).map_err(|_| SecretError::NoRandomness)?;
    let hash = hash(&token, purpose).unwrap_or_default();
    Ok((SecretString::from(token), hash))
}

/// Creates a link with which a user signs in once, and returns its token.
pub async fn create_link(tx: &mut Tx, user_id: i64, lifetime: TimeDelta) -> Result<SecretString> {
    let (token, hash) = new_token(&Purpose::Link)?;
    let expires_at = tx.now + lifetime;
    const SQL: &str = "INSERT INTO sign_in_links (hash, user_id, expires_at) VALUES ($1, $2, $3)";
    execute!(tx, SQL, &hash, user_id, expires_at)?;
    Ok(token)
}

/// Returns whether another link may be sent to a user, who has at most [`MAX_LINKS`] valid ones.
pub async fn may_send_link(tx: &mut Tx, user_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT count(*) FROM sign_in_links WHERE user_id = $1 AND expires_at > $2";
    let now = tx.now;
    let valid: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(user_id).bind(now).fetch_one(c))?;
    Ok(valid < MAX_LINKS)
}

/// The browser and the IP address with which a user signs in.
pub struct Device<'a> {
    pub user_agent: &'a str,
    pub address: IpAddr,
}

/// The user whom a link signs in.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct LinkUser {
    pub name: String,
    pub email: String,
}

/// Returns the user whom a link signs in. Returns `None` if the link was used or has expired.
pub async fn user_of_link(conn: &mut Conn, token: &str, now: DateTime<Utc>) -> Result<Option<LinkUser>> {
    const SQL: &str = "
        SELECT u.name, u.email
        FROM sign_in_links l
        JOIN users u ON u.id = l.user_id
        WHERE l.hash = $1 AND l.expires_at > $2";
    let Some(hash) = hash(token, &Purpose::Link) else { return Ok(None) };
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(&hash).bind(now).fetch_optional(c))?)
}

/// Deletes a link, and begins a session of its user. Returns `None` if the link was used or has expired.
pub async fn redeem_link(tx: &mut Tx, token: &str, device: &Device<'_>) -> Result<Option<SecretString>> {
    const SQL: &str = "
        DELETE FROM sign_in_links
        WHERE hash = $1 AND expires_at > $2
        RETURNING user_id";
    let Some(hash) = hash(token, &Purpose::Link) else { return Ok(None) };
    let now = tx.now;
    let user_id: Option<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(&hash).bind(now).fetch_optional(c))?;
    match user_id {
        Some(user_id) => create(tx, user_id, device).await.map(Some),
        None => Ok(None),
    }
}

/// Begins a session of a user.
pub(super) async fn create(tx: &mut Tx, user_id: i64, device: &Device<'_>) -> Result<SecretString> {
    let (token, hash) = new_token(&Purpose::Session)?;
    let new = NewRow {
        name: None,
        mode: KeyMode::Live,
        scopes: &Scopes::all(),
        brands: None,
        role_limit: None,
        hash: &hash,
        prefix: "session",
        last4: "",
    };
    let id = keys::insert(tx, user_id, &new).await?;
    let user_agent: String = device.user_agent.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT).collect();
    const SQL: &str = "INSERT INTO sessions (api_key_id, user_agent, address) VALUES ($1, $2, $3)";
    execute!(tx, SQL, id, &user_agent, device.address.to_string())?;
    Ok(token)
}

/// Returns the caller of a session, and the membership in a brand, in one statement. Returns `None` if the session does
/// not exist or has expired.
pub async fn authenticate(
    conn: &mut Conn,
    token: &SecretString,
    brand_id: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Option<Authenticated>> {
    const SQL: &str = sql!(
        "
        SELECT {CALLER_COLUMNS}
        FROM {CALLER_TABLES}
        JOIN sessions s ON s.api_key_id = k.id
        WHERE k.hash = $1 AND coalesce(k.last_used_at, k.created_at) > $3",
        CALLER_COLUMNS,
        CALLER_TABLES
    );
    let Some(hash) = hash(token.expose_secret(), &Purpose::Session) else { return Ok(None) };
    let since = now - LIFETIME;
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(&hash).bind(brand_id).bind(since).fetch_optional(c))?)
}

/// Returns the sessions of a user, newest first.
pub async fn list(conn: &mut Conn, user_id: i64, now: DateTime<Utc>) -> Result<Vec<SessionRow>> {
    const SQL: &str = "
        SELECT k.id, s.user_agent, s.address, k.created_at, k.last_used_at
        FROM sessions s
        JOIN api_keys k ON k.id = s.api_key_id
        WHERE k.user_id = $1 AND coalesce(k.last_used_at, k.created_at) > $2
        ORDER BY k.id DESC";
    let since = now - LIFETIME;
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(user_id).bind(since).fetch_all(c))?)
}

/// Locks the user of a session. Returns `false` if the session was ended in the meantime: what it allows must not be
/// stored after the user signed out everywhere.
pub async fn lock_user(tx: &mut Tx, user_id: i64, session_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT count(*) FROM sessions WHERE api_key_id = $1";
    users::lock(tx, user_id).await?;
    let count: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(session_id).fetch_one(c))?;
    Ok(count > 0)
}

/// Ends the session with this token.
pub async fn end(tx: &mut Tx, token: &SecretString) -> Result<()> {
    if let Some(hash) = hash(token.expose_secret(), &Purpose::Session) {
        execute!(tx, "DELETE FROM api_keys WHERE hash = $1", &hash)?;
    }
    Ok(())
}

/// Ends a session of a user. Returns `false` if the user has no such session.
pub async fn revoke(tx: &mut Tx, user_id: i64, session_id: i64) -> Result<bool> {
    const SQL: &str = "
        DELETE FROM api_keys
        WHERE id = $1
            AND user_id = $2
            AND EXISTS (SELECT 1 FROM sessions s WHERE s.api_key_id = api_keys.id)";
    Ok(execute!(tx, SQL, session_id, user_id)? > 0)
}

/// Ends all sessions of a user except one, the user's unused sign-in links, and the access of all applications that the
/// user connected: whoever used another session may have connected one. Returns how many sessions.
pub async fn revoke_others(tx: &mut Tx, user_id: i64, kept_id: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM api_keys
        WHERE user_id = $1
            AND id <> $2
            AND EXISTS (SELECT 1 FROM sessions s WHERE s.api_key_id = api_keys.id)";
    grants::revoke_all(tx, user_id).await?;
    // Waits for a concurrent sign-in with one of the links, so that its session is ended too.
    execute!(tx, "DELETE FROM sign_in_links WHERE user_id = $1", user_id)?;
    Ok(execute!(tx, SQL, user_id, kept_id)?)
}

/// Deletes expired sessions and links, at most `limit` each. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SESSIONS: &str = "
        DELETE FROM api_keys
        WHERE id IN (
            SELECT k.id
            FROM sessions s
            JOIN api_keys k ON k.id = s.api_key_id
            WHERE coalesce(k.last_used_at, k.created_at) <= $1
            LIMIT $2
        )";
    const LINKS: &str = "
        DELETE FROM sign_in_links
        WHERE hash IN (SELECT hash FROM sign_in_links WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    let (now, since) = (tx.now, tx.now - LIFETIME);
    Ok(execute!(tx, SESSIONS, since, limit)? + execute!(tx, LINKS, now, limit)?)
}
