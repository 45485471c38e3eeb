//! The access that users granted to applications.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::{KeyMode, Role, Scopes};

use crate::db::{execute, run};
use crate::keys::{self, NewRow};
use crate::sql::sql;
use crate::{Conn, Result, StoreError, Tx, users};

/// The maximum number of a user's grants. A further grant replaces the one that was not used for the longest time.
pub const MAX_GRANTS: usize = 50;
/// How long after the last refresh a grant is valid: the lifetime of a refresh token.
pub const LIFETIME: TimeDelta = TimeDelta::days(30);
/// The first part of a grant's row in lists of keys.
const PREFIX: &str = "svc_oat_";

/// A grant as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// The ID of the grant's row in `api_keys`.
    pub id: i64,
    /// The ID of a registration, or the URL of a metadata document.
    pub client_id: String,
    pub client_name: String,
    pub redirect_host: String,
    pub scopes: Scopes,
    /// The highest role that the application can have, in every brand.
    pub role_limit: Option<Role>,
    /// The IDs and names of the brands, by ID. `None` for all brands of the user, including future ones.
    pub brands: Option<Vec<(i64, String)>>,
    pub created_at: DateTime<Utc>,
    pub last_used_at: Option<DateTime<Utc>>,
}

/// A grant to create.
#[derive(Clone, Debug)]
pub(super) struct NewGrant<'a> {
    pub client_id: &'a str,
    pub client_name: &'a str,
    pub redirect_host: &'a str,
    pub scopes: &'a Scopes,
    pub brands: Option<&'a [i64]>,
    pub role_limit: Option<Role>,
    /// The hash of the family of its refresh tokens.
    pub hash: &'a [u8],
}

/// Creates a grant without tokens, and returns its ID. The user must be locked.
pub(super) async fn create(tx: &mut Tx, user_id: i64, new: &NewGrant<'_>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO oauth_grants (api_key_id, expires_at, client_id, client_name, redirect_host)
        VALUES ($1, $2, $3, $4, $5)";
    make_room(tx, user_id).await?;
    let row = NewRow {
        name: None,
        mode: KeyMode::Live,
        scopes: new.scopes,
        brands: new.brands,
        role_limit: new.role_limit,
        hash: new.hash,
        prefix: PREFIX,
        last4: "",
    };
    let id = keys::insert(tx, user_id, &row).await?;
    let expires_at = tx.now + LIFETIME;
    execute!(tx, SQL, id, expires_at, new.client_id, new.client_name, new.redirect_host)?;
    Ok(id)
}

/// Deletes the grants that were not used for the longest time, so that the user can have one more.
async fn make_room(tx: &mut Tx, user_id: i64) -> Result<()> {
    const SQL: &str = "
        SELECT k.id
        FROM oauth_grants g
        JOIN api_keys k ON k.id = g.api_key_id
        WHERE k.user_id = $1
        ORDER BY coalesce(k.last_used_at, k.created_at) DESC, k.id DESC";
    let grants: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(user_id).fetch_all(c))?;
    for id in grants.into_iter().skip(MAX_GRANTS - 1) {
        keys::delete(tx, id).await?;
    }
    Ok(())
}

/// Extends a grant, because it was refreshed.
pub(super) async fn extend(tx: &mut Tx, grant_id: i64) -> Result<()> {
    let expires_at = tx.now + LIFETIME;
    execute!(tx, "UPDATE oauth_grants SET expires_at = $2 WHERE api_key_id = $1", grant_id, expires_at)?;
    Ok(())
}

#[derive(sqlx_macros::FromRow)]
struct ListedGrant {
    id: i64,
    client_id: String,
    client_name: String,
    redirect_host: String,
    scopes: String,
    role_limit: Option<Role>,
    all_brands: bool,
    created_at: DateTime<Utc>,
    last_used_at: Option<DateTime<Utc>>,
}

/// Returns the grants of a user, newest first. Expired ones are deleted within minutes.
pub async fn list(conn: &mut Conn, user_id: i64) -> Result<Vec<GrantRow>> {
    const FROM: &str = "
        FROM oauth_grants g
        JOIN api_keys k ON k.id = g.api_key_id";
    const GRANTS: &str = sql!(
        "
        SELECT k.id, g.client_id, g.client_name, g.redirect_host, k.scopes, k.role_limit, k.all_brands, k.created_at,
            k.last_used_at
        {FROM}
        WHERE k.user_id = $1
        ORDER BY k.id DESC",
        FROM
    );
    const BRANDS: &str = sql!(
        "
        SELECT kb.api_key_id, b.id, b.name
        {FROM}
        JOIN key_brands kb ON kb.api_key_id = k.id
        JOIN brands b ON b.id = kb.brand_id
        WHERE k.user_id = $1
        ORDER BY b.id",
        FROM
    );
    let grants: Vec<ListedGrant> = run!(conn, c => sqlx::query_as(GRANTS).bind(user_id).fetch_all(c))?;
    let brands: Vec<(i64, i64, String)> = run!(conn, c => sqlx::query_as(BRANDS).bind(user_id).fetch_all(c))?;
    let row = |grant: ListedGrant| -> Result<GrantRow> {
        let of_grant = brands.iter().filter(|(key, ..)| *key == grant.id);
        let brands = (!grant.all_brands).then(|| of_grant.map(|(_, id, name)| (*id, name.clone())).collect());
        Ok(GrantRow {
            id: grant.id,
            client_id: grant.client_id,
            client_name: grant.client_name,
            redirect_host: grant.redirect_host,
            scopes: grant
                .scopes
                .parse::<Scopes>()
                .map_err(|error| StoreError::Decode(format!("scopes of a grant: {error}")))?,
            role_limit: grant.role_limit,
            brands,
            created_at: grant.created_at,
            last_used_at: grant.last_used_at,
        })
    };
    grants.into_iter().map(row).collect()
}

/// Ends a grant of a user with its tokens. Returns `false` if the user has no such grant.
pub async fn revoke(tx: &mut Tx, user_id: i64, grant_id: i64) -> Result<bool> {
    const SQL: &str = "
        DELETE FROM api_keys
        WHERE id = $1
            AND user_id = $2
            AND EXISTS (SELECT 1 FROM oauth_grants g WHERE g.api_key_id = api_keys.id)";
    // Without the lock, this and a refresh could wait for each other.
    users::lock(tx, user_id).await?;
    Ok(execute!(tx, SQL, grant_id, user_id)? > 0)
}

/// Ends all grants of a user, and makes the user's unused codes invalid. Returns how many grants.
pub async fn revoke_all(tx: &mut Tx, user_id: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM api_keys
        WHERE user_id = $1
            AND EXISTS (SELECT 1 FROM oauth_grants g WHERE g.api_key_id = api_keys.id)";
    // A concurrent exchange of a code, or a concurrent consent, ends before this or sees it.
    users::lock(tx, user_id).await?;
    execute!(tx, "DELETE FROM oauth_codes WHERE user_id = $1", user_id)?;
    Ok(execute!(tx, SQL, user_id)?)
}

/// Deletes expired grants, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM api_keys
        WHERE id IN (
            SELECT api_key_id
            FROM oauth_grants
            WHERE expires_at <= $1
            ORDER BY expires_at
            LIMIT $2
        )";
    let now = tx.now;
    Ok(execute!(tx, SQL, now, limit)?)
}
