//! API keys; only a hash is stored.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::SecretError;
use crier_domain::access::{KeyMode, MAX_KEYS, Role, Scopes};
use crier_domain::brand::Brand;
use crier_domain::plan::StorageUsage;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::db::{execute, run};
use super::idempotency::{KEY_COLUMNS, KeyRecord};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx, users};

/// The number of characters after the prefix.
pub const KEY_LENGTH: usize = 40;
/// The age at which `last_used_at` is written again.
const LAST_USED_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// The user of a request, with the key, the workspace and the plan.
#[derive(Debug, Clone)]
pub struct Caller {
    pub key_id: i64,
    pub mode: KeyMode,
    pub scopes: Scopes,
    pub user_id: i64,
    pub user_name: String,
    pub user_email: String,
    pub workspace_id: i64,
    pub plan: String,
    pub last_used_at: Option<DateTime<Utc>>,
    /// Whether the key can use all brands of its user. Otherwise, it can use only those in `key_brands`.
    pub all_brands: bool,
    /// The storage usage of the workspace.
    pub stored: StorageUsage,
    /// The role that the key has at most, in every brand.
    pub role_limit: Option<Role>,
}

/// A key as listed.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct KeyRow {
    pub id: i64,
    pub user_id: i64,
    pub email: String,
    pub name: Option<String>,
    pub mode: KeyMode,
    pub scopes: String,
    pub prefix: String,
    pub last4: String,
    pub last_used_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    /// Whether the key can use all brands of its user.
    pub all_brands: bool,
    pub role_limit: Option<Role>,
}

/// Returns the SHA-256 hash by which a key is found. Returns `None` if the text does not have the form of a key.
pub fn hash(key: &str) -> Option<Vec<u8>> {
    let mode = KeyMode::ALL.iter().find(|m| key.starts_with(m.prefix()))?;
    let rest = &key[mode.prefix().len()..];
    let well_formed = rest.len() == KEY_LENGTH && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    well_formed.then(|| Sha256::digest(key.as_bytes()).to_vec())
}

/// What a key cannot do although its user can.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyLimits<'a> {
    /// The brands that the key can use. `None` for all brands of the user, including future ones.
    pub brands: Option<&'a [i64]>,
    /// The role that the key has in every brand in which its user has a higher one.
    pub role: Option<Role>,
}

/// A key to create.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// The name by which its user recognizes it.
    pub name: Option<&'a str>,
    pub mode: KeyMode,
    pub scopes: &'a Scopes,
    pub limits: KeyLimits<'a>,
}

impl<'a> NewKey<'a> {
    /// Returns a key without a name and without limits.
    pub const fn new(mode: KeyMode, scopes: &'a Scopes) -> Self {
        Self { name: None, mode, scopes, limits: KeyLimits { brands: None, role: None } }
    }
}

/// Creates a key and returns it, as [`create`] does. Returns `None` if the user already has [`MAX_KEYS`]. Two
/// concurrent calls cannot both create the last one.
pub async fn create_within_cap(tx: &mut Tx, user_id: i64, new: &NewKey<'_>) -> Result<Option<SecretString>> {
    users::lock(tx, user_id).await?;
    let existing = usize::try_from(count(tx, user_id).await?).unwrap_or(usize::MAX);
    if existing >= MAX_KEYS {
        return Ok(None);
    }
    Ok(Some(create_row(tx, user_id, new).await?.1))
}

/// The condition of keys that clients use directly, of `api_keys`: not those of sessions and of connected applications.
const IS_PLAIN: &str = "
    NOT EXISTS (SELECT 1 FROM sessions s WHERE s.api_key_id = api_keys.id)
    AND NOT EXISTS (SELECT 1 FROM oauth_grants g WHERE g.api_key_id = api_keys.id)";

/// Returns how many keys a user has, without those of sessions and connected applications.
async fn count(conn: &mut Conn, user_id: i64) -> Result<i64> {
    const SQL: &str = sql!(
        "
        SELECT count(*)
        FROM api_keys
        WHERE user_id = $1 AND {IS_PLAIN}",
        IS_PLAIN
    );
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(user_id).fetch_one(c))?)
}

/// Creates a key without checking [`MAX_KEYS`], and returns it. It cannot be read again.
pub async fn create(tx: &mut Tx, user_id: i64, mode: KeyMode, scopes: &Scopes) -> Result<SecretString> {
    Ok(create_row(tx, user_id, &NewKey::new(mode, scopes)).await?.1)
}

async fn create_row(tx: &mut Tx, user_id: i64, new: &NewKey<'_>) -> Result<(i64, SecretString)> {
    let NewKey { name, mode, scopes, limits } = *new;
    let key =
        format!("{}{}", mode.prefix(), crier_base::random::text(KEY_LENGTH).map_err(|_| SecretError::NoRandomness)?);
    let hashed = hash(&key).ok_or(StoreError::Decode("a new key has an invalid format".into()))?;
    let row = NewRow {
        name,
        mode,
        scopes,
        brands: limits.brands,
        role_limit: limits.role,
        hash: &hashed,
        prefix: mode.prefix(),
        last4: &key[key.len() - 4..],
    };
    Ok((insert(tx, user_id, &row).await?, SecretString::from(key)))
}

/// A row to insert.
pub(super) struct NewRow<'a> {
    /// `None` for keys of sessions and connected applications, whose lists show other names.
    pub name: Option<&'a str>,
    pub mode: KeyMode,
    pub scopes: &'a Scopes,
    /// `None` for all brands of the user.
    pub brands: Option<&'a [i64]>,
    pub role_limit: Option<Role>,
    pub hash: &'a [u8],
    pub prefix: &'a str,
    pub last4: &'a str,
}

pub(super) async fn insert(tx: &mut Tx, user_id: i64, new: &NewRow<'_>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO api_keys (user_id, mode, scopes, hash, prefix, last4, created_at, all_brands, role_limit, name)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        RETURNING id";
    let (scopes, now, all_brands) = (new.scopes.to_string(), tx.now, new.brands.is_none());
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(user_id).bind(new.mode).bind(&scopes).bind(new.hash)
        .bind(new.prefix).bind(new.last4).bind(now).bind(all_brands)
        .bind(new.role_limit).bind(new.name).fetch_one(c))?;
    for brand in new.brands.unwrap_or_default() {
        allow_brand(tx, id, *brand).await?;
    }
    Ok(id)
}

/// Allows a key to use a brand. Does nothing if the key's user is not a member of the brand.
async fn allow_brand(tx: &mut Tx, key_id: i64, brand_id: i64) -> Result<()> {
    const SQL: &str = "
        INSERT INTO key_brands (api_key_id, brand_id)
        SELECT k.id, m.brand_id
        FROM api_keys k
        JOIN brand_members m ON m.user_id = k.user_id
        WHERE k.id = $1 AND m.brand_id = $2
        ON CONFLICT (api_key_id, brand_id) DO NOTHING";
    execute!(tx, SQL, key_id, brand_id)?;
    Ok(())
}

/// Records that the first key must be shown to a user.
pub async fn require_first_key(tx: &mut Tx, user_id: i64) -> Result<()> {
    execute!(tx, "INSERT INTO first_key (id, user_id) VALUES (1, $1)", user_id)?;
    Ok(())
}

/// Creates the first key if none has been shown, and returns it with its user's id. Deletes an earlier one that may not
/// have been shown.
pub async fn create_first(tx: &mut Tx) -> Result<Option<(i64, SecretString)>> {
    // The update locks the row, so that two processes that start concurrently take turns.
    const SQL: &str = "UPDATE first_key SET user_id = user_id RETURNING user_id, key_id";
    let pending: Option<(i64, Option<i64>)> = run!(tx, c => sqlx::query_as(SQL).fetch_optional(c))?;
    let Some((user_id, earlier)) = pending else { return Ok(None) };
    if let Some(earlier) = earlier {
        delete(tx, earlier).await?;
    }
    let (id, key) = create_row(tx, user_id, &NewKey::new(KeyMode::Live, &Scopes::all())).await?;
    execute!(tx, "UPDATE first_key SET key_id = $1", id)?;
    Ok(Some((user_id, key)))
}

/// Records that the first key was shown.
pub async fn mark_first_key_shown(tx: &mut Tx) -> Result<()> {
    execute!(tx, "DELETE FROM first_key")?;
    Ok(())
}

/// The caller of a request, and the membership in the requested brand.
#[derive(Debug, Clone)]
pub struct Authenticated {
    pub caller: Caller,
    /// `None` if the caller is not a member, if the key cannot use the brand, or if the brand does not exist. The role is
    /// at most that of the key.
    pub membership: Option<(Brand, Role)>,
}

/// The columns of an [`Authenticated`], of [`CALLER_TABLES`].
pub(super) const CALLER_COLUMNS: &str = "
    k.id AS key_id, k.mode, k.scopes, k.last_used_at, k.all_brands, k.role_limit, u.id AS user_id, u.name AS user_name,
    u.email AS user_email,
    w.id AS caller_workspace_id, w.plan, b.*, m.role,
    coalesce((SELECT s.bytes FROM storage_usage s WHERE s.workspace_id = w.id), 0) AS stored_files,
    coalesce((SELECT s.texts FROM storage_usage s WHERE s.workspace_id = w.id), 0) AS stored_texts";

/// An API key, its user and workspace, and the membership in the brand `$2`, if any and if the key can use the brand.
pub(super) const CALLER_TABLES: &str = "
    api_keys k
    JOIN users u ON u.id = k.user_id
    JOIN workspaces w ON w.id = u.workspace_id
    LEFT JOIN brand_members m ON m.brand_id = $2 AND m.user_id = u.id
        AND (k.all_brands OR EXISTS (SELECT 1 FROM key_brands kb WHERE kb.api_key_id = k.id AND kb.brand_id = $2))
    LEFT JOIN brands b ON b.id = m.brand_id";

/// Returns the caller of a key, the membership in a brand and what is stored under an `Idempotency-Key`, in one
/// statement. Returns `None` if the key does not exist.
pub async fn authenticate(
    conn: &mut Conn,
    key: &SecretString,
    brand_id: Option<i64>,
    idempotency_key: Option<&str>,
) -> Result<Option<(Authenticated, KeyRecord)>> {
    // A subquery instead of `k.id`: while the table is small, Postgres' planner would read the whole table in a join,
    // and keep that plan.
    const SQL: &str = sql!(
        "
        SELECT {CALLER_COLUMNS}, {KEY_COLUMNS}
        FROM {CALLER_TABLES}
        LEFT JOIN idempotency_keys i
            ON i.api_key_id = (SELECT id FROM api_keys WHERE hash = $1) AND i.key = $3
        WHERE k.hash = $1",
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
    }
    let Some(hash) = hash(key.expose_secret()) else { return Ok(None) };
    let found: Option<Found> =
        run!(conn, c => sqlx::query_as(SQL).bind(&hash).bind(brand_id).bind(idempotency_key).fetch_optional(c))?;
    Ok(found.map(|found| (found.authenticated, found.record)))
}

impl<'r, R> sqlx::FromRow<'r, R> for Authenticated
where
    R: sqlx::Row,
    CallerRow: sqlx::FromRow<'r, R>,
    Brand: sqlx::FromRow<'r, R>,
    Option<Role>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    &'static str: sqlx::ColumnIndex<R>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        let caller: Caller = CallerRow::from_row(row)?.try_into()?;
        let role: Option<Role> = row.try_get("role")?;
        let role = role.map(|role| role.limited_to(caller.role_limit));
        let membership = role.map(|role| Brand::from_row(row).map(|brand| (brand, role))).transpose()?;
        Ok(Self { caller, membership })
    }
}

#[derive(sqlx_macros::FromRow)]
struct CallerRow {
    key_id: i64,
    mode: KeyMode,
    scopes: String,
    last_used_at: Option<DateTime<Utc>>,
    all_brands: bool,
    user_id: i64,
    user_name: String,
    user_email: String,
    caller_workspace_id: i64,
    plan: String,
    stored_files: i64,
    stored_texts: i64,
    role_limit: Option<Role>,
}

impl TryFrom<CallerRow> for Caller {
    type Error = sqlx::Error;

    fn try_from(row: CallerRow) -> sqlx::Result<Self> {
        let scopes = row.scopes.parse().map_err(|error| sqlx::Error::ColumnDecode {
            index: "scopes".to_owned(),
            source: Box::<crier_base::UnknownWord>::new(error),
        })?;
        Ok(Self {
            key_id: row.key_id,
            mode: row.mode,
            scopes,
            user_id: row.user_id,
            user_name: row.user_name,
            user_email: row.user_email,
            workspace_id: row.caller_workspace_id,
            plan: row.plan,
            last_used_at: row.last_used_at,
            all_brands: row.all_brands,
            stored: StorageUsage { files: row.stored_files, texts: row.stored_texts },
            role_limit: row.role_limit,
        })
    }
}

/// Returns whether `last_used_at` must be written again.
pub fn should_touch(last_used_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    last_used_at.is_none_or(|at| now - at >= LAST_USED_INTERVAL)
}

/// Records that a key was used. Concurrent requests do not wait for each other: one of them records it.
pub async fn touch(tx: &mut Tx, key_id: i64) -> Result<()> {
    let sql = locking_sql!(
        tx,
        "
        UPDATE api_keys
        SET last_used_at = $2
        WHERE id = (SELECT id FROM api_keys WHERE id = $1 {LOCK})",
        "FOR NO KEY UPDATE SKIP LOCKED"
    );
    let now = tx.now;
    execute!(tx, sql, key_id, now)?;
    Ok(())
}

/// Returns the keys of a user, or of all users, without those of sessions and connected applications.
pub async fn list(conn: &mut Conn, user_id: Option<i64>) -> Result<Vec<KeyRow>> {
    const SQL: &str = sql!(
        "
        SELECT api_keys.id, api_keys.user_id, u.email, api_keys.name, api_keys.mode, api_keys.scopes, api_keys.prefix,
            api_keys.last4, api_keys.last_used_at, api_keys.created_at, api_keys.all_brands, api_keys.role_limit
        FROM api_keys
        JOIN users u ON u.id = api_keys.user_id
        WHERE ($1 IS NULL OR api_keys.user_id = $1) AND {IS_PLAIN}
        ORDER BY api_keys.id",
        IS_PLAIN
    );
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(user_id).fetch_all(c))?)
}

/// Deletes a key of a user. Returns `false` if the user has no such key.
pub async fn delete_of(tx: &mut Tx, user_id: i64, key_id: i64) -> Result<bool> {
    const SQL: &str = sql!(
        "
        DELETE FROM api_keys
        WHERE id = $1 AND user_id = $2 AND {IS_PLAIN}",
        IS_PLAIN
    );
    Ok(execute!(tx, SQL, key_id, user_id)? > 0)
}

/// Deletes a key. Returns `false` if it does not exist.
pub async fn delete(tx: &mut Tx, key_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM api_keys WHERE id = $1", key_id)? > 0)
}
