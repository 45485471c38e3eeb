//! Stored responses, by `Idempotency-Key`.
//!
//! A key is looked up together with the caller ([`keys::authenticate`](super::keys::authenticate)). The response
//! commits in the transaction of its write, so a crash leaves either both or neither. Nothing locks a key before that.
//! If two concurrent requests find the key free, the second one to store its response waits for the first one, then
//! fails with [`StoreError::KeyTaken`], rolls back its own work, and finds the first one's response.
//!
//! For a response that is too large, only the ids of its records are stored. Other responses are compressed. Operations
//! with external calls (connect, refresh, AI) cannot keep a transaction open, so they hold the key with a lease.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::{Cipher, SecretLocation};

use super::db::{execute, run};
use super::jobs::id_list;
use super::packed;
use super::sql::{locking_sql, sql};
use super::{Conn, Page, PageRequest, Result, Store, StoreError, Tx};

/// The columns of an [`IdempotencyRow`] of `idempotency_keys i`.
pub(super) const KEY_COLUMNS: &str =
    "i.fingerprint, i.status, i.location, i.response, i.records, i.lease_until, i.created_at AS stored_at";

/// How long a response is stored.
pub const RETENTION: TimeDelta = TimeDelta::hours(24);
/// How long a dead process keeps the key of an operation with external calls.
pub const LEASE: TimeDelta = TimeDelta::seconds(30);

/// The owner, the key, and the fingerprint of the request.
#[derive(Debug, Clone)]
pub struct IdempotencySlot {
    pub api_key_id: i64,
    pub key: String,
    /// A hash of method, path, query and body.
    pub fingerprint: Vec<u8>,
    /// `None` if the write is not a request to an endpoint, such as some forms of the console.
    pub request: Option<RequestLine>,
}

/// The method and path of a request, for the list of a key's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLine {
    pub method: String,
    pub path: String,
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub location: Option<String>,
    pub body: StoredBody,
}

/// What is stored of a response's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredBody {
    /// The whole body. It is sealed in the database, because some responses contain a secret.
    Whole(Vec<u8>),
    /// The ids of the response's records, except those in the request's path. The body is rendered again.
    Records(Vec<i64>),
}

/// What is stored under a key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing valid: continue.
    Free(FreeKey),
    /// The response to an earlier, identical request.
    Stored(StoredResponse),
    /// The response to a different request.
    Reused,
    /// The first request is still running.
    InProgress,
}

/// Why a key is free for the caller. This decides how its row is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeKey {
    /// The key has no row.
    Unused,
    /// Its response, or its lease, has expired.
    Expired,
    /// The caller has leased it until this time.
    Leased(DateTime<Utc>),
}

/// The row of a key, if any.
#[derive(Debug, Clone, Default)]
pub struct KeyRecord(Option<IdempotencyRow>);

impl KeyRecord {
    /// Returns whether anything is stored under the key, for any request.
    pub const fn exists(&self) -> bool {
        self.0.is_some()
    }

    /// Returns what the record means for a request.
    pub fn state(self, store: &Store, slot: &IdempotencySlot) -> Result<KeyState> {
        self.state_at(store.cipher(), slot, store.now())
    }

    fn state_at(self, cipher: &Cipher, slot: &IdempotencySlot, now: DateTime<Utc>) -> Result<KeyState> {
        let Some(row) = self.0 else { return Ok(KeyState::Free(FreeKey::Unused)) };
        if row.stored_at + RETENTION <= now || row.status.is_none() && row.lease_until.is_none_or(|until| until <= now)
        {
            return Ok(KeyState::Free(FreeKey::Expired));
        }
        if row.fingerprint != slot.fingerprint {
            return Ok(KeyState::Reused);
        }
        let Some(status) = row.status else { return Ok(KeyState::InProgress) };
        let status = u16::try_from(status).unwrap_or(500);
        if let Some(sealed) = row.response {
            let packed = cipher.open(&place(&slot.row()), &sealed)?;
            return Ok(KeyState::Stored(unpack(&packed, status)?));
        }
        let Some(ids) = row.records else { return Ok(KeyState::InProgress) };
        let ids =
            serde_json::from_str(&ids).map_err(|e| StoreError::Decode(format!("ids of a stored response: {e}")))?;
        Ok(KeyState::Stored(StoredResponse { status, location: row.location, body: StoredBody::Records(ids) }))
    }
}

impl IdempotencySlot {
    fn row(&self) -> String {
        format!("{}/{}", self.api_key_id, self.key)
    }
}

/// Returns what is stored under the key.
pub async fn look_up(store: &Store, slot: &IdempotencySlot) -> Result<KeyState> {
    read(&mut store.read().await?, slot.api_key_id, &slot.key).await?.state(store, slot)
}

/// Returns what is stored under the key, in a transaction.
pub async fn look_up_in(tx: &mut Tx, slot: &IdempotencySlot) -> Result<KeyState> {
    let record = read(tx, slot.api_key_id, &slot.key).await?;
    record.state_at(&tx.cipher, slot, tx.now)
}

/// Returns what is stored under a key that the caller leased until `until`. This lease itself counts as a free key;
/// while the caller holds it, no other request can take the key before the end of the transaction.
pub async fn look_up_leased(tx: &mut Tx, slot: &IdempotencySlot, until: DateTime<Utc>) -> Result<KeyState> {
    let sql = locking_sql!(
        tx,
        "
        SELECT 1
        FROM idempotency_keys
        WHERE api_key_id = $1
            AND key = $2
            AND lease_until = $3
        {LOCK}",
        "FOR UPDATE"
    );
    let held: Option<i32> = run!(tx, c => sqlx::query_scalar(sql).bind(slot.api_key_id)
        .bind(&slot.key).bind(until).fetch_optional(c))?;
    if held.is_some() { Ok(KeyState::Free(FreeKey::Leased(until))) } else { look_up_in(tx, slot).await }
}

/// Reads what is stored under a key, for any request.
pub async fn read(conn: &mut Conn, api_key_id: i64, key: &str) -> Result<KeyRecord> {
    const SQL: &str = sql!(
        "
        SELECT {KEY_COLUMNS}
        FROM idempotency_keys i
        WHERE i.api_key_id = $1 AND i.key = $2",
        KEY_COLUMNS
    );
    let record = run!(conn, c => sqlx::query_as(SQL).bind(api_key_id).bind(key).fetch_optional(c))?;
    Ok(record.unwrap_or_default())
}

#[derive(Debug, Clone, sqlx_macros::FromRow)]
struct IdempotencyRow {
    fingerprint: Vec<u8>,
    status: Option<i32>,
    /// `None`: there is none, or it is in `response`.
    location: Option<String>,
    /// What [`pack`] returned, sealed.
    response: Option<Vec<u8>>,
    records: Option<String>,
    lease_until: Option<DateTime<Utc>>,
    stored_at: DateTime<Utc>,
}

/// Reads a row that an outer join may not have found.
impl<'r, R> sqlx::FromRow<'r, R> for KeyRecord
where
    R: sqlx::Row,
    IdempotencyRow: sqlx::FromRow<'r, R>,
    Option<Vec<u8>>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    &'static str: sqlx::ColumnIndex<R>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        let fingerprint: Option<Vec<u8>> = row.try_get("fingerprint")?;
        Ok(Self(fingerprint.map(|_| IdempotencyRow::from_row(row)).transpose()?))
    }
}

/// Packs a response's `Location` and body.
fn pack(location: Option<&str>, body: &[u8]) -> Result<Vec<u8>> {
    packed::pack(&[location.unwrap_or_default().as_bytes(), b"\n", body].concat())
}

/// Reverses [`pack`].
fn unpack(packed: &[u8], status: u16) -> Result<StoredResponse> {
    let mut location = packed::unpack(packed)?;
    let broken = || StoreError::Decode("a stored response has no line with its location".to_owned());
    let end = location.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
    let body = StoredBody::Whole(location.split_off(end + 1));
    location.truncate(end);
    let location = String::from_utf8(location).map_err(|_| broken())?;
    Ok(StoredResponse { status, location: (!location.is_empty()).then_some(location), body })
}

fn place(row: &str) -> SecretLocation<'_> {
    SecretLocation { table: "idempotency_keys", row, column: "response" }
}

/// Stores the response in the transaction of the write. `free` is the result of the look-up. Fails if another request
/// has taken the key ([`StoreError::KeyTaken`]): roll back then, and look the key up again.
pub async fn store(tx: &mut Tx, slot: &IdempotencySlot, response: &StoredResponse, free: FreeKey) -> Result<()> {
    const SQL: &str = "
        INSERT INTO idempotency_keys (
            api_key_id, key, fingerprint, status, location, response, records, method, path, created_at
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    discard(tx, slot, free).await?;
    let location = response.location.as_deref();
    let (sealed, records, location) = match &response.body {
        StoredBody::Whole(body) => {
            let sealed = tx.cipher.seal(&place(&slot.row()), &pack(location, body)?)?;
            (Some(sealed), None, None)
        }
        StoredBody::Records(ids) => (None, Some(id_list(ids)), location),
    };
    let (status, now) = (i32::from(response.status), tx.now);
    let line = slot.request.as_ref();
    let (method, path) = (line.map(|line| &line.method), line.map(|line| &line.path));
    inserted(execute!(
        tx,
        SQL,
        slot.api_key_id,
        &slot.key,
        &slot.fingerprint,
        status,
        location,
        &sealed,
        &records,
        method,
        path,
        now
    ))
}

/// Leases the key for an operation with external calls. Returns when the lease expires. Fails if another request has
/// taken the key ([`StoreError::KeyTaken`]).
pub async fn acquire_lease(tx: &mut Tx, slot: &IdempotencySlot, free: FreeKey) -> Result<DateTime<Utc>> {
    const SQL: &str = "
        INSERT INTO idempotency_keys (api_key_id, key, fingerprint, lease_until, created_at)
        VALUES ($1, $2, $3, $4, $5)";
    discard(tx, slot, free).await?;
    let (until, now) = (tx.now + LEASE, tx.now);
    inserted(execute!(tx, SQL, slot.api_key_id, &slot.key, &slot.fingerprint, until, now))?;
    Ok(until)
}

/// Deletes the row of a free key, unless another request has taken the key meanwhile: then the insertion fails.
async fn discard(tx: &mut Tx, slot: &IdempotencySlot, free: FreeKey) -> Result<()> {
    const SQL: &str = "
        DELETE FROM idempotency_keys
        WHERE api_key_id = $1
            AND key = $2
            AND (
                created_at <= $3
                OR status IS NULL
                    AND (lease_until IS NULL OR lease_until <= $4 OR lease_until = $5)
            )";
    let leased = match free {
        FreeKey::Unused => return Ok(()),
        FreeKey::Expired => None,
        FreeKey::Leased(until) => Some(until),
    };
    let (expired, now) = (tx.now - RETENTION, tx.now);
    execute!(tx, SQL, slot.api_key_id, &slot.key, expired, now, leased)?;
    Ok(())
}

/// Maps a unique violation to [`StoreError::KeyTaken`]: the primary key permits one row per `Idempotency-Key`. The
/// inserts have no `ON CONFLICT`, which would write one more WAL record.
fn inserted(result: sqlx::Result<u64>) -> Result<()> {
    match result {
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Err(StoreError::KeyTaken),
        other => other.map(drop).map_err(StoreError::from),
    }
}

/// Releases the key after the operation was rejected or failed. `until` is the end of the caller's lease. Keeps the row
/// of another holder.
pub async fn release(tx: &mut Tx, slot: &IdempotencySlot, until: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        DELETE FROM idempotency_keys
        WHERE api_key_id = $1
            AND key = $2
            AND lease_until = $3";
    execute!(tx, SQL, slot.api_key_id, &slot.key, until)?;
    Ok(())
}

/// The maximum number of a user's newest writes that can be listed.
pub const MAX_LISTED: i64 = 1_000;

/// A write that was carried out, as listed.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct WriteRow {
    /// The name of the API key or of the connected application.
    pub name: Option<String>,
    /// The API key's prefix and last characters.
    pub prefix: String,
    pub last4: String,
    /// The `Idempotency-Key`.
    pub key: String,
    /// `None` if the request has no endpoint.
    pub method: Option<String>,
    pub path: Option<String>,
    pub status: i32,
    pub created_at: DateTime<Utc>,
}

/// Lists the newest writes of a user's API keys, or of one of them, at most [`MAX_LISTED`], without those of sessions.
pub async fn list(
    conn: &mut Conn,
    user_id: i64,
    api_key_id: Option<i64>,
    page: PageRequest,
    now: DateTime<Utc>,
) -> Result<Page<WriteRow>> {
    const FROM: &str = "
        FROM idempotency_keys w
        JOIN api_keys k ON k.id = w.api_key_id
        WHERE k.user_id = $1
            AND ($2 = 0 OR k.id = $2)
            AND w.status IS NOT NULL
            AND w.created_at > $3
            AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.api_key_id = k.id)";
    let rows = sql!(
        "
        SELECT coalesce(k.name, (SELECT g.client_name FROM oauth_grants g WHERE g.api_key_id = k.id)) AS name, k.prefix,
            k.last4, w.key, w.method, w.path, w.status, w.created_at
        {FROM}
        ORDER BY w.created_at DESC, w.key
        LIMIT $4
        OFFSET $5",
        FROM
    );
    // Counts no more than can be listed.
    let total = sql!("SELECT count(*) FROM (SELECT 1 AS one {FROM} LIMIT $4) AS newest", FROM);
    let (key, since) = (api_key_id.unwrap_or_default(), now - RETENTION);
    let room = (MAX_LISTED - page.offset()).clamp(0, page.per_page);
    let rows = run!(conn, c => sqlx::query_as(rows).bind(user_id).bind(key).bind(since).bind(room)
        .bind(page.offset()).fetch_all(c))?;
    let total = run!(conn, c => sqlx::query_scalar(total).bind(user_id).bind(key).bind(since)
        .bind(MAX_LISTED).fetch_one(c))?;
    Ok(Page { rows, total })
}

/// Deletes expired responses, at most `limit`, oldest first. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    // Postgres would otherwise compare all rows of a large table (`jobs/sql/README.md`).
    const PG: &str = "
        WITH expired AS MATERIALIZED (
            SELECT api_key_id, key
            FROM idempotency_keys
            WHERE created_at <= $1
            ORDER BY created_at
            LIMIT (SELECT $2)
        )
        DELETE FROM idempotency_keys
        WHERE (api_key_id, key) IN (SELECT api_key_id, key FROM expired WHERE api_key_id = api_key_id + 0)";
    // By the primary key, SQLite would read all responses of an API key.
    const SQLITE: &str = "
        DELETE FROM idempotency_keys
        WHERE rowid IN (
            SELECT rowid
            FROM idempotency_keys
            WHERE created_at <= $1
            ORDER BY created_at
            LIMIT $2
        )";
    let (sql, before) = (tx.for_engine(PG, SQLITE), tx.now - RETENTION);
    Ok(execute!(tx, sql, before, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_comes_back_with_the_body() {
        for (location, body) in [(Some("/brands/1"), &b"{}"[..]), (None, b"a\nb"), (Some("/x"), b"")] {
            let stored = unpack(&pack(location, body).unwrap(), 201).unwrap();
            assert_eq!((stored.location.as_deref(), stored.body), (location, StoredBody::Whole(body.to_vec())));
        }
    }
}
