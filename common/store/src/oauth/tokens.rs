//! Access tokens and refresh tokens of grants.
//!
//! A refresh token works once: a refresh replaces it. If it is used again, either the application or a thief has the new
//! one, so the whole grant is revoked. Only the newest one is stored. An older one is known by its family, so a thief
//! cannot hide the theft by refreshing until the stolen one is forgotten.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Scopes;
use secrecy::{ExposeSecret, SecretString};

use super::secrets::{Family, Kind, generate, hash};
use super::{clients, grants};
use crate::db::{execute, run};
use crate::idempotency::{KEY_COLUMNS, KeyRecord};
use crate::keys::{self, Authenticated, CALLER_COLUMNS, CALLER_TABLES};
use crate::sql::sql;
use crate::{Conn, Result, StoreError, Tx, users};

/// How long an access token is valid.
pub const ACCESS_LIFETIME: TimeDelta = TimeDelta::hours(1);
/// The maximum number of a grant's access tokens. The oldest are deleted for new ones.
const MAX_TOKENS: i64 = 50;

/// New tokens of a grant.
#[derive(Debug)]
pub struct Tokens {
    pub access: SecretString,
    pub refresh: SecretString,
    /// The scopes of the access token.
    pub scopes: Scopes,
}

/// Creates tokens of a grant, which must have no refresh token. `scopes`: those of the grant. `fewer`: those of the access
/// token, if it has fewer.
pub(super) async fn issue(
    tx: &mut Tx,
    grant_id: i64,
    family: &Family,
    scopes: Scopes,
    fewer: Option<Scopes>,
) -> Result<Tokens> {
    let (access, access_hash) = generate(Kind::Access)?;
    let (refresh, refresh_hash) = family.new_token()?;
    let now = tx.now;
    let limited = fewer.as_ref().map(Scopes::to_string);
    drop_surplus(tx, grant_id).await?;
    insert(tx, grant_id, "access", &access_hash, now + ACCESS_LIFETIME, limited.as_deref()).await?;
    insert(tx, grant_id, "refresh", &refresh_hash, now + grants::LIFETIME, None).await?;
    Ok(Tokens { access, refresh, scopes: fewer.unwrap_or(scopes) })
}

async fn insert(
    tx: &mut Tx,
    grant_id: i64,
    kind: &str,
    hash: &[u8],
    expires_at: DateTime<Utc>,
    scopes: Option<&str>,
) -> Result<()> {
    const SQL: &str = "
        INSERT INTO oauth_tokens (hash, grant_id, kind, expires_at, scopes)
        VALUES ($1, $2, $3, $4, $5)";
    execute!(tx, SQL, hash, grant_id, kind, expires_at, scopes)?;
    Ok(())
}

/// Deletes the oldest access tokens of a grant, so that it can have one more.
async fn drop_surplus(tx: &mut Tx, grant_id: i64) -> Result<()> {
    const SQL: &str = "
        DELETE FROM oauth_tokens
        WHERE hash IN (
            SELECT hash
            FROM oauth_tokens
            WHERE grant_id = $1 AND kind = 'access'
            ORDER BY expires_at DESC
            LIMIT 1000 OFFSET $2
        )";
    execute!(tx, SQL, grant_id, MAX_TOKENS - 1)?;
    Ok(())
}

/// A refresh token, which may have been replaced.
#[derive(Clone, Debug)]
pub struct RefreshToken {
    hash: Vec<u8>,
    family: Family,
    pub grant_id: i64,
    pub client_id: String,
    /// The scopes of the grant.
    pub scopes: Scopes,
    /// When the grant expires, with its newest refresh token.
    pub expires_at: DateTime<Utc>,
    pub was_replaced: bool,
}

/// Returns the grant of a refresh token, and whether the token was replaced. `None` if there is no such grant.
pub async fn grant_of(conn: &mut Conn, token: &str) -> Result<Option<(i64, bool)>> {
    const SQL: &str = "
        SELECT k.id, t.grant_id
        FROM api_keys k
        LEFT JOIN oauth_tokens t ON t.hash = $2
        WHERE k.hash = $1";
    let Some((family, hash)) = Family::of(token).zip(hash(token, Kind::Refresh)) else { return Ok(None) };
    let family = family.hash();
    let found: Option<(i64, Option<i64>)> =
        run!(conn, c => sqlx::query_as(SQL).bind(&family).bind(&hash).fetch_optional(c))?;
    Ok(found.map(|(grant_id, newest)| (grant_id, newest.is_none())))
}

/// Finds a refresh token, replaced or not, and locks its user: two requests with one token take turns.
pub async fn find_and_lock(tx: &mut Tx, token: &str) -> Result<Option<RefreshToken>> {
    const USER: &str = "SELECT user_id FROM api_keys WHERE hash = $1";
    const SQL: &str = "
        SELECT k.id, g.client_id, k.scopes, g.expires_at, t.grant_id
        FROM api_keys k
        JOIN oauth_grants g ON g.api_key_id = k.id
        LEFT JOIN oauth_tokens t ON t.hash = $2
        WHERE k.hash = $1";
    let Some((family, hash)) = Family::of(token).zip(hash(token, Kind::Refresh)) else { return Ok(None) };
    let family_hash = family.hash();
    let user_id: Option<i64> = run!(tx, c => sqlx::query_scalar(USER).bind(&family_hash).fetch_optional(c))?;
    let Some(user_id) = user_id else { return Ok(None) };
    users::lock(tx, user_id).await?;
    // Only now, because an earlier request may have replaced the token before the lock was free.
    type Row = (i64, String, String, DateTime<Utc>, Option<i64>);
    let found: Option<Row> = run!(tx, c => sqlx::query_as(SQL).bind(&family_hash).bind(&hash).fetch_optional(c))?;
    let Some((grant_id, client_id, scopes, expires_at, newest)) = found else { return Ok(None) };
    let scopes = parse_scopes(&scopes)?;
    Ok(Some(RefreshToken { hash, family, grant_id, client_id, scopes, expires_at, was_replaced: newest.is_none() }))
}

/// Replaces a refresh token, which must be locked, valid and not replaced. `fewer`: the scopes of the access token, if
/// it has fewer than the grant.
pub async fn refresh(tx: &mut Tx, token: &RefreshToken, fewer: Option<Scopes>) -> Result<Tokens> {
    execute!(tx, "DELETE FROM oauth_tokens WHERE hash = $1", &token.hash)?;
    grants::extend(tx, token.grant_id).await?;
    clients::touch(tx, &token.client_id).await?;
    issue(tx, token.grant_id, &token.family, token.scopes.clone(), fewer).await
}

/// Ends the grant of a code or of a refresh token.
pub async fn revoke_grant(tx: &mut Tx, grant_id: i64) -> Result<()> {
    keys::delete(tx, grant_id).await?;
    Ok(())
}

/// Returns the grant, the application and the user of a token of either kind. `None` if the token does not exist. A refresh
/// token that was replaced exists as long as its grant.
async fn owner_of(conn: &mut Conn, token: &str) -> Result<Option<(i64, String, i64)>> {
    const ACCESS: &str = "
        SELECT k.id, g.client_id, k.user_id
        FROM oauth_tokens t
        JOIN oauth_grants g ON g.api_key_id = t.grant_id
        JOIN api_keys k ON k.id = t.grant_id
        WHERE t.hash = $1";
    const REFRESH: &str = "
        SELECT k.id, g.client_id, k.user_id
        FROM api_keys k
        JOIN oauth_grants g ON g.api_key_id = k.id
        WHERE k.hash = $1";
    let (sql, hash) = match (hash(token, Kind::Access), Family::of(token)) {
        (Some(hash), _) => (ACCESS, hash),
        (None, Some(family)) => (REFRESH, family.hash()),
        (None, None) => return Ok(None),
    };
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&hash).fetch_optional(c))?)
}

/// Returns whether a token of either kind exists, as for [`revoke`].
pub async fn exists(conn: &mut Conn, token: &str) -> Result<bool> {
    Ok(owner_of(conn, token).await?.is_some())
}

/// Revokes a token for the application that got it: only an access token, or a refresh token with its grant. Returns
/// `false` if the token belongs to another application. A token that does not exist counts as revoked.
pub async fn revoke(tx: &mut Tx, token: &str, client_id: &str) -> Result<bool> {
    let Some((grant_id, owner, user_id)) = owner_of(tx, token).await? else { return Ok(true) };
    if owner != client_id {
        return Ok(false);
    }
    if let Some(hash) = hash(token, Kind::Access) {
        execute!(tx, "DELETE FROM oauth_tokens WHERE hash = $1", &hash)?;
    } else {
        // Without the lock, this and a refresh could wait for each other.
        users::lock(tx, user_id).await?;
        revoke_grant(tx, grant_id).await?;
    }
    Ok(true)
}

/// Returns whether a text has the form of an access token.
pub fn is_access_token(text: &str) -> bool {
    hash(text, Kind::Access).is_some()
}

/// Returns the caller of an access token, the membership in a brand and what is stored under an `Idempotency-Key`, in
/// one statement, as [`keys::authenticate`] does. Returns `None` if the token does not exist or has expired.
pub async fn authenticate(
    conn: &mut Conn,
    token: &SecretString,
    brand_id: Option<i64>,
    idempotency_key: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Option<(Authenticated, KeyRecord)>> {
    // A subquery instead of `k.id`, as in `keys::authenticate`.
    const SQL: &str = sql!(
        "
        SELECT {CALLER_COLUMNS}, {KEY_COLUMNS}, t.scopes AS token_scopes
        FROM {CALLER_TABLES}
        JOIN oauth_tokens t ON t.grant_id = k.id
        LEFT JOIN idempotency_keys i
            ON i.api_key_id = (SELECT grant_id FROM oauth_tokens WHERE hash = $1) AND i.key = $3
        WHERE t.hash = $1
            AND t.kind = 'access'
            AND t.expires_at > $4",
        CALLER_COLUMNS,
        KEY_COLUMNS,
        CALLER_TABLES
    );
    #[derive(sqlx_macros::FromRow)]
    struct Found {
        #[sqlx(flatten)]
        authenticated: Authenticated,
        #[sqlx(flatten)]
        record: KeyRecord,
        token_scopes: Option<String>,
    }
    let Some(hash) = hash(token.expose_secret(), Kind::Access) else { return Ok(None) };
    let found: Option<Found> = run!(conn, c => sqlx::query_as(SQL).bind(&hash).bind(brand_id).bind(idempotency_key)
        .bind(now).fetch_optional(c))?;
    let Some(Found { mut authenticated, record, token_scopes }) = found else { return Ok(None) };
    if let Some(scopes) = token_scopes {
        authenticated.caller.scopes = authenticated.caller.scopes.intersection(&parse_scopes(&scopes)?);
    }
    Ok(Some((authenticated, record)))
}

fn parse_scopes(list: &str) -> Result<Scopes> {
    list.parse::<Scopes>().map_err(|error| StoreError::Decode(format!("scopes of a token: {error}")))
}

/// Deletes expired tokens, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM oauth_tokens
        WHERE hash IN (SELECT hash FROM oauth_tokens WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
    let now = tx.now;
    Ok(execute!(tx, SQL, now, limit)?)
}
