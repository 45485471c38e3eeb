//! The one-time URLs at which a user connects an account. The token, the state and the browser's cookie are stored as
//! hashes, so a copy of the database gives no access. What an attempt needs later (its PKCE verifier, its application,
//! then the tokens and choices) is encrypted.

use crier_base::random;
use crier_base::secrets::{Cipher, SecretError, SecretLocation};
use crier_domain::authorization::{Authorization, LIFETIME, Stage};
use crier_domain::platform::{ConnectTarget, Platform};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::db::{execute, run};
use super::sql::sql;
use super::{Conn, Result, StoreError, Tx};

/// The length of a token, a state or a cookie: 43 characters of 62 are 256 bits.
pub const SECRET_LENGTH: usize = 43;

/// Leaves out the authorizations of users who can no longer connect accounts to the brand: their URLs stop working.
const SELECT: &str = "
    SELECT a.id, a.brand_id, b.name AS brand_name, b.workspace_id, a.platform, a.target, a.instance, a.stage,
        a.browser_hash, a.account_id, a.expires_at, a.user_id, a.key_id
    FROM authorizations a
    JOIN brands b ON b.id = a.brand_id
        AND (
            a.user_id IS NULL
            OR a.stage = 'used'
            OR EXISTS (
                SELECT 1
                FROM brand_members m
                WHERE m.brand_id = a.brand_id AND m.user_id = a.user_id AND m.role <> 'contributor'
            )
        )";

/// Creates a random token, state or cookie.
pub fn new_secret() -> Result<SecretString> {
    Ok(random::text(SECRET_LENGTH).map(SecretString::from).map_err(|_| SecretError::NoRandomness)?)
}

/// Returns the hash under which a token, state or cookie is stored. Returns `None` if the text does not have their
/// form.
pub fn hash(text: &str) -> Option<Vec<u8>> {
    let well_formed = text.len() == SECRET_LENGTH && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    well_formed.then(|| Sha256::digest(text.as_bytes()).to_vec())
}

fn required_hash(secret: &SecretString) -> Result<Vec<u8>> {
    hash(secret.expose_secret()).ok_or_else(|| StoreError::Decode("a secret has an invalid format".into()))
}

fn place(row: &str) -> SecretLocation<'_> {
    SecretLocation { table: "authorizations", row, column: "data" }
}

/// A new authorization.
#[derive(Clone, Copy, Debug)]
pub struct NewAuthorization<'a> {
    pub brand_id: i64,
    /// The user who connects the account. `None` means the operator.
    pub user_id: Option<i64>,
    /// The API key with which the user requests it, if its limits apply.
    pub key_id: Option<i64>,
    pub platform: Platform,
    pub target: ConnectTarget,
    pub instance: &'a str,
}

/// Stores an authorization and returns its token, which cannot be read again.
pub async fn create(tx: &mut Tx, new: NewAuthorization<'_>) -> Result<SecretString> {
    const SQL: &str = "
        INSERT INTO authorizations (
            token_hash, brand_id, platform, target, instance, stage, expires_at, user_id, key_id
        )
        VALUES ($1, $2, $3, $4, $5, 'issued', $6, $7, $8)";
    let token = new_secret()?;
    let hashed = required_hash(&token)?;
    let expires_at = tx.now + LIFETIME;
    execute!(
        tx,
        SQL,
        &hashed,
        new.brand_id,
        new.platform,
        new.target,
        new.instance,
        expires_at,
        new.user_id,
        new.key_id
    )?;
    Ok(token)
}

/// Finds an authorization by the token of its URL.
pub async fn find_by_token(conn: &mut Conn, token: &str) -> Result<Option<Authorization>> {
    let Some(hashed) = hash(token) else { return Ok(None) };
    let sql = sql!("{SELECT} WHERE a.token_hash = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&hashed).fetch_optional(c))?)
}

/// Finds an authorization by the state of its last attempt.
pub async fn find_by_state(conn: &mut Conn, state: &str) -> Result<Option<Authorization>> {
    let Some(hashed) = hash(state) else { return Ok(None) };
    let sql = sql!("{SELECT} WHERE a.state_hash = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&hashed).fetch_optional(c))?)
}

/// Finds an authorization by its id, for the browser that began it. The caller compares the browser's cookie.
pub async fn find(conn: &mut Conn, id: i64) -> Result<Option<Authorization>> {
    let sql = sql!("{SELECT} WHERE a.id = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id).fetch_optional(c))?)
}

/// Locks an authorization until the end of the transaction, then reads it.
pub async fn lock(tx: &mut Tx, id: i64) -> Result<Option<Authorization>> {
    execute!(tx, "UPDATE authorizations SET stage = stage WHERE id = $1", id)?;
    find(tx, id).await
}

/// Begins an attempt, which replaces an earlier one. The platform redirects this browser back with this state. Returns
/// `false` if the authorization was used or expired meanwhile.
pub async fn begin_attempt(
    tx: &mut Tx,
    id: i64,
    state: &SecretString,
    browser: &SecretString,
    data: &SecretString,
) -> Result<bool> {
    const SQL: &str = "
        UPDATE authorizations
        SET stage = 'at_platform', state_hash = $2, browser_hash = $3, data = $4
        WHERE id = $1 AND stage <> 'used' AND expires_at > $5";
    let (state, browser) = (required_hash(state)?, required_hash(browser)?);
    let sealed = tx.cipher.seal(&place(&id.to_string()), data.expose_secret().as_bytes())?;
    let now = tx.now;
    Ok(execute!(tx, SQL, id, &state, &browser, &sealed, now)? > 0)
}

/// Moves an attempt from one stage to another. Returns `false` if it is not in stage `from`, if another attempt has
/// begun, or if the authorization has expired.
pub async fn advance(tx: &mut Tx, id: i64, state: &str, from: Stage, to: Stage) -> Result<bool> {
    const SQL: &str = "
        UPDATE authorizations
        SET stage = $4
        WHERE id = $1 AND state_hash = $2 AND stage = $3 AND expires_at > $5";
    let Some(hashed) = hash(state) else { return Ok(false) };
    let now = tx.now;
    Ok(execute!(tx, SQL, id, &hashed, from, to, now)? > 0)
}

/// Stores what an attempt needs for the user's choice. Returns `false` if another attempt has begun meanwhile.
pub async fn store_choices(tx: &mut Tx, id: i64, state: &str, data: &SecretString) -> Result<bool> {
    const SQL: &str = "
        UPDATE authorizations
        SET stage = 'choosing', data = $3
        WHERE id = $1 AND state_hash = $2 AND stage = 'exchanging'";
    let Some(hashed) = hash(state) else { return Ok(false) };
    let sealed = tx.cipher.seal(&place(&id.to_string()), data.expose_secret().as_bytes())?;
    Ok(execute!(tx, SQL, id, &hashed, &sealed)? > 0)
}

/// Returns what was stored for the attempt.
pub async fn data(conn: &mut Conn, cipher: &Cipher, id: i64) -> Result<Option<SecretString>> {
    const SQL: &str = "SELECT data FROM authorizations WHERE id = $1 AND data IS NOT NULL";
    let sealed: Option<Vec<u8>> = run!(conn, c => sqlx::query_scalar(SQL).bind(id).fetch_optional(c))?;
    let Some(sealed) = sealed else { return Ok(None) };
    let plain = cipher.open(&place(&id.to_string()), &sealed)?;
    let text = String::from_utf8(plain)
        .map_err(|_| StoreError::Decode("an authorization's data is not valid UTF-8".into()))?;
    Ok(Some(SecretString::from(text)))
}

/// Marks an authorization as used for the account that was connected, and deletes the attempt's secrets. The caller has
/// locked the authorization.
pub async fn consume(tx: &mut Tx, id: i64, account_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE authorizations
        SET stage = 'used', account_id = $2, data = NULL
        WHERE id = $1";
    execute!(tx, SQL, id, account_id)?;
    Ok(())
}

/// Deletes authorizations that expired by `before`, at most `limit`. Until then, their URL shows what happened.
pub async fn purge(tx: &mut Tx, before: chrono::DateTime<chrono::Utc>, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM authorizations
        WHERE id IN (
            SELECT id
            FROM authorizations
            WHERE expires_at <= $1
            ORDER BY expires_at
            LIMIT $2
        )";
    Ok(execute!(tx, SQL, before, limit)?)
}
