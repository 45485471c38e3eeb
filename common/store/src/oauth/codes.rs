//! Authorization codes: what a user allowed, until the application exchanges the code for tokens.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::{Role, Scopes};
use secrecy::SecretString;

use super::clients;
use super::grants::{self, NewGrant};
use super::secrets::{Family, Kind, generate, hash};
use super::tokens::{self, Tokens};
use crate::db::{execute, run};
use crate::jobs::id_list;
use crate::{Conn, Result, StoreError, Tx, users};

/// How long a code can be exchanged.
pub const LIFETIME: TimeDelta = TimeDelta::seconds(60);
/// How long after it expired a second use of a code is detected. Codes that were never used are deleted earlier, because
/// a user can create many, but has few grants.
const RETENTION: TimeDelta = TimeDelta::days(1);

/// What a user allowed an application.
#[derive(Clone, Debug)]
pub struct NewCode<'a> {
    pub client_id: &'a str,
    pub client_name: &'a str,
    pub redirect_uri: &'a str,
    pub redirect_host: &'a str,
    /// The SHA-256 hash of the application's verifier, in base64url.
    pub code_challenge: &'a str,
    pub scopes: &'a Scopes,
    /// `None` for all brands of the user, including future ones.
    pub brands: Option<&'a [i64]>,
    pub role_limit: Option<Role>,
}

/// Stores what a user allowed, and returns its code.
pub async fn create(tx: &mut Tx, user_id: i64, new: &NewCode<'_>) -> Result<SecretString> {
    const SQL: &str = "
        INSERT INTO oauth_codes (
            hash, user_id, expires_at, client_id, client_name, redirect_uri, redirect_host, code_challenge, scopes,
            role_limit, brands
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let (code, hash) = generate(Kind::Code)?;
    let (expires_at, scopes) = (tx.now + LIFETIME, new.scopes.to_string());
    let brands = new.brands.map(id_list);
    execute!(
        tx,
        SQL,
        &hash,
        user_id,
        expires_at,
        new.client_id,
        new.client_name,
        new.redirect_uri,
        new.redirect_host,
        new.code_challenge,
        &scopes,
        new.role_limit,
        brands.as_deref(),
    )?;
    Ok(code)
}

/// A stored code.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Code {
    hash: Vec<u8>,
    user_id: i64,
    pub expires_at: DateTime<Utc>,
    /// The grant that the code created. `None` if the code was not used.
    pub grant_id: Option<i64>,
    pub client_id: String,
    client_name: String,
    pub redirect_uri: String,
    redirect_host: String,
    pub code_challenge: String,
    scopes: String,
    role_limit: Option<Role>,
    brands: Option<String>,
}

/// Returns whether a code exists, used or not.
pub async fn exists(conn: &mut Conn, code: &str) -> Result<bool> {
    const SQL: &str = "SELECT user_id FROM oauth_codes WHERE hash = $1";
    let Some(hash) = hash(code, Kind::Code) else { return Ok(false) };
    let found: Option<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(&hash).fetch_optional(c))?;
    Ok(found.is_some())
}

/// Finds a code, used or not, and locks its user: two requests with one code take turns.
pub async fn find_and_lock(tx: &mut Tx, code: &str) -> Result<Option<Code>> {
    const USER: &str = "SELECT user_id FROM oauth_codes WHERE hash = $1";
    const SQL: &str = "
        SELECT hash, user_id, expires_at, grant_id, client_id, client_name, redirect_uri, redirect_host, code_challenge,
            scopes, role_limit, brands
        FROM oauth_codes
        WHERE hash = $1";
    let Some(hash) = hash(code, Kind::Code) else { return Ok(None) };
    let user_id: Option<i64> = run!(tx, c => sqlx::query_scalar(USER).bind(&hash).fetch_optional(c))?;
    let Some(user_id) = user_id else { return Ok(None) };
    users::lock(tx, user_id).await?;
    // Only now, because an earlier request may have used the code before the lock was free.
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(&hash).fetch_optional(c))?)
}

/// Exchanges a code for the tokens of a new grant. The code must be locked and unused. Returns `None` if it was deleted
/// in the meantime; the transaction must then be rolled back.
pub async fn redeem(tx: &mut Tx, code: &Code) -> Result<Option<Tokens>> {
    let scopes =
        code.scopes.parse::<Scopes>().map_err(|error| StoreError::Decode(format!("scopes of a code: {error}")))?;
    let brands = code.brands.as_deref().map(serde_json::from_str::<Vec<i64>>).transpose();
    let brands = brands.map_err(|error| StoreError::Decode(format!("brands of a code: {error}")))?;
    let family = Family::generate()?;
    let new = NewGrant {
        client_id: &code.client_id,
        client_name: &code.client_name,
        redirect_host: &code.redirect_host,
        scopes: &scopes,
        brands: brands.as_deref(),
        role_limit: code.role_limit,
        hash: &family.hash(),
    };
    let grant_id = grants::create(tx, code.user_id, &new).await?;
    // A grant without its code would survive what ended the code.
    if execute!(tx, "UPDATE oauth_codes SET grant_id = $2 WHERE hash = $1", &code.hash, grant_id)? == 0 {
        return Ok(None);
    }
    clients::touch(tx, &code.client_id).await?;
    tokens::issue(tx, grant_id, &family, scopes, None).await.map(Some)
}

/// Deletes codes that expired a day ago, and unused ones that expired, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM oauth_codes
        WHERE hash IN (
            SELECT hash
            FROM oauth_codes
            WHERE expires_at <= $1 AND (grant_id IS NULL OR expires_at <= $2)
            ORDER BY expires_at
            LIMIT $3
        )";
    let (now, before) = (tx.now, tx.now - RETENTION);
    Ok(execute!(tx, SQL, now, before, limit)?)
}
