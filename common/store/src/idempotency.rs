//! Stored responses, by `Idempotency-Key`.
//!
//! The response commits in the transaction of its write, so a crash leaves either both or neither. While that
//! transaction runs, an advisory lock makes others see "in progress" on Postgres; on SQLite writers queue, and the
//! second one finds the response. Of a response that is too large, only the ids of its records are stored; others are
//! compressed. Operations with external calls (connect, refresh, AI) cannot keep a transaction open: they hold the key by
//! a lease.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::{Cipher, SecretLocation};

use super::db::{execute, run};
use super::jobs::id_list;
use super::packed;
use super::{Conn, Page, PageRequest, Result, Store, StoreError, Tx};

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
    /// `None`: no endpoint was asked, as by a form of the console that needs none.
    pub request: Option<RequestLine>,
}

/// What a request asked for, for the list of a key's writes.
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
    /// All of it, sealed: some responses contain a secret.
    Whole(Vec<u8>),
    /// The ids of the records that it showed, unless the request's path contains them. The body is rendered again.
    Records(Vec<i64>),
}

/// What is stored under a key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing: continue.
    Fresh,
    /// The response to an earlier, identical request.
    Answered(StoredResponse),
    /// The response to a different request.
    Reused,
    /// The first request is still running.
    InProgress,
}

impl IdempotencySlot {
    fn row(&self) -> String {
        format!("{}/{}", self.api_key_id, self.key)
    }

    /// The id of the advisory lock; two keys that collide only exclude each other.
    fn lock_id(&self) -> i64 {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(format!("idempotency/{}", self.row()));
        digest.first_chunk::<8>().map_or(0, |b| i64::from_be_bytes(*b))
    }
}

/// Returns what is stored under the key, without taking it: a mere look must not make another's write "in progress".
pub async fn peek(store: &Store, slot: &IdempotencySlot) -> Result<KeyState> {
    find(&mut store.read().await?, store.cipher(), slot, store.now()).await
}

/// Whether anything is stored under the key, for any request.
pub async fn is_known(conn: &mut Conn, api_key_id: i64, key: &str) -> Result<bool> {
    const SQL: &str = "SELECT count(*)
        FROM idempotency_keys
        WHERE api_key_id = $1 AND key = $2";
    let known: i64 = run!(conn, c => sqlx::query_scalar(SQL).bind(api_key_id).bind(key).fetch_one(c))?;
    Ok(known > 0)
}

/// Takes the key for this transaction and returns what is stored under it.
///
/// On Postgres the lock and the look-up are one statement, which may not see what the previous holder of the lock has just
/// committed. So [`store`] and [`acquire_lease`] check once more, and fail with [`StoreError::KeyTaken`].
pub async fn take(tx: &mut Tx, slot: &IdempotencySlot) -> Result<KeyState> {
    const SQL: &str = "
        SELECT pg_try_advisory_xact_lock($3) AS free, k.fingerprint, k.status, k.location, k.body, k.packed, k.records,
            k.lease_until, k.created_at
        FROM (SELECT 1) AS one
        LEFT JOIN idempotency_keys k ON k.api_key_id = $1 AND k.key = $2";
    #[derive(sqlx_macros::FromRow)]
    struct LockedRow {
        free: bool,
        #[sqlx(flatten)]
        row: IdempotencyRow,
    }
    let (now, cipher, id) = (tx.now, tx.cipher.clone(), slot.lock_id());
    if !tx.is_postgres() {
        return find(tx, &cipher, slot, now).await;
    }
    let found: LockedRow =
        run!(tx, c => sqlx::query_as(SQL).bind(slot.api_key_id).bind(&slot.key).bind(id).fetch_one(c))?;
    if found.free { found.row.state(&cipher, slot, now) } else { Ok(KeyState::InProgress) }
}

/// Takes a key that the caller holds by a lease until `mine`; this lease itself counts as nothing. Returns what is
/// stored if the lease ran out and another request took the key. Excludes all others until the end of the transaction.
pub async fn take_leased(tx: &mut Tx, slot: &IdempotencySlot, mine: DateTime<Utc>) -> Result<KeyState> {
    if tx.is_postgres() {
        let id = slot.lock_id();
        execute!(tx, "SELECT pg_advisory_xact_lock($1)", id)?;
    }
    const SQL: &str = "
        SELECT count(*)
        FROM idempotency_keys
        WHERE api_key_id = $1
            AND key = $2
            AND lease_until = $3";
    let held: i64 =
        run!(tx, c => sqlx::query_scalar(SQL).bind(slot.api_key_id).bind(&slot.key).bind(mine).fetch_one(c))?;
    if held > 0 {
        return Ok(KeyState::Fresh);
    }
    let (now, cipher) = (tx.now, tx.cipher.clone());
    find(tx, &cipher, slot, now).await
}

async fn find(conn: &mut Conn, cipher: &Cipher, slot: &IdempotencySlot, now: DateTime<Utc>) -> Result<KeyState> {
    const SQL: &str = "
        SELECT fingerprint, status, location, body, packed, records, lease_until, created_at
        FROM idempotency_keys
        WHERE api_key_id = $1 AND key = $2";
    let row: Option<IdempotencyRow> =
        run!(conn, c => sqlx::query_as(SQL).bind(slot.api_key_id).bind(&slot.key).fetch_optional(c))?;
    row.map_or(Ok(KeyState::Fresh), |row| row.state(cipher, slot, now))
}

/// A row of the table; without a fingerprint there is none.
#[derive(sqlx_macros::FromRow)]
struct IdempotencyRow {
    fingerprint: Option<Vec<u8>>,
    status: Option<i32>,
    location: Option<String>,
    /// Written by versions that did not compress.
    body: Option<Vec<u8>>,
    packed: Option<Vec<u8>>,
    records: Option<String>,
    lease_until: Option<DateTime<Utc>>,
    created_at: Option<DateTime<Utc>>,
}

impl IdempotencyRow {
    /// An expired row counts as nothing; [`store`] and [`acquire_lease`] overwrite it.
    fn state(self, cipher: &Cipher, slot: &IdempotencySlot, now: DateTime<Utc>) -> Result<KeyState> {
        let (Some(fingerprint), Some(created_at)) = (self.fingerprint, self.created_at) else {
            return Ok(KeyState::Fresh);
        };
        if created_at + RETENTION <= now || self.status.is_none() && self.lease_until.is_none_or(|t| t <= now) {
            return Ok(KeyState::Fresh);
        }
        if fingerprint != slot.fingerprint {
            return Ok(KeyState::Reused);
        }
        let Some(status) = self.status else { return Ok(KeyState::InProgress) };
        let body = match (self.packed, self.body, self.records) {
            (Some(sealed), _, _) => {
                StoredBody::Whole(packed::unpack(&cipher.open(&place(&slot.row(), "packed"), &sealed)?)?)
            }
            (None, Some(sealed), _) => StoredBody::Whole(cipher.open(&place(&slot.row(), "body"), &sealed)?),
            (None, None, Some(ids)) => StoredBody::Records(
                serde_json::from_str(&ids).map_err(|e| StoreError::Decode(format!("ids of a stored answer: {e}")))?,
            ),
            (None, None, None) => return Ok(KeyState::InProgress),
        };
        Ok(KeyState::Answered(StoredResponse {
            status: u16::try_from(status).unwrap_or(500),
            location: self.location,
            body,
        }))
    }
}

/// When a row may be overwritten: it was created before `$1`, its lease ended before `$2`, or the lease is the caller's,
/// which ends at `$3`.
macro_rules! overwrites {
    () => {
        "
        WHERE idempotency_keys.created_at <= $1
            OR idempotency_keys.status IS NULL
                AND (
                    idempotency_keys.lease_until IS NULL
                    OR idempotency_keys.lease_until <= $2
                    OR idempotency_keys.lease_until = $3
                )"
    };
}

fn place<'a>(row: &'a str, column: &'static str) -> SecretLocation<'a> {
    SecretLocation { table: "idempotency_keys", row, column }
}

/// Stores the response in the transaction of the write. `held`: when the caller's lease on the key ends, if it has one.
/// Fails if another request has taken the key ([`StoreError::KeyTaken`]): roll back, and look the key up again.
pub async fn store(
    tx: &mut Tx,
    slot: &IdempotencySlot,
    answer: &StoredResponse,
    held: Option<DateTime<Utc>>,
) -> Result<()> {
    const SQL: &str = concat!(
        "
        INSERT INTO idempotency_keys (
            api_key_id, key, fingerprint, status, location, packed, records, method, path, created_at
        )
        VALUES ($4, $5, $6, $7, $8, $9, $10, $11, $12, $2)
        ON CONFLICT (api_key_id, key) DO UPDATE
        SET fingerprint = excluded.fingerprint,
            status = excluded.status,
            location = excluded.location,
            body = NULL,
            packed = excluded.packed,
            records = excluded.records,
            method = excluded.method,
            path = excluded.path,
            lease_until = NULL,
            created_at = excluded.created_at",
        overwrites!()
    );
    let (sealed, records) = match &answer.body {
        StoredBody::Whole(body) => (Some(tx.cipher.seal(&place(&slot.row(), "packed"), &packed::pack(body)?)?), None),
        StoredBody::Records(ids) => (None, Some(id_list(ids))),
    };
    let (status, now) = (i32::from(answer.status), tx.now);
    let (expired, location) = (now - RETENTION, &answer.location);
    let line = slot.request.as_ref();
    let (method, path) = (line.map(|line| &line.method), line.map(|line| &line.path));
    let written = execute!(
        tx,
        SQL,
        expired,
        now,
        held,
        slot.api_key_id,
        &slot.key,
        &slot.fingerprint,
        status,
        location,
        &sealed,
        &records,
        method,
        path
    )?;
    if written > 0 { Ok(()) } else { Err(StoreError::KeyTaken) }
}

/// Holds the key by a lease for an operation with external calls; returns when the lease ends. Fails if another request
/// has taken the key ([`StoreError::KeyTaken`]).
pub async fn acquire_lease(tx: &mut Tx, slot: &IdempotencySlot) -> Result<DateTime<Utc>> {
    const SQL: &str = concat!(
        "
        INSERT INTO idempotency_keys (api_key_id, key, fingerprint, lease_until, created_at)
        VALUES ($4, $5, $6, $7, $2)
        ON CONFLICT (api_key_id, key) DO UPDATE
        SET fingerprint = excluded.fingerprint,
            status = NULL,
            location = NULL,
            body = NULL,
            packed = NULL,
            records = NULL,
            lease_until = excluded.lease_until,
            created_at = excluded.created_at",
        overwrites!()
    );
    let (until, now, held) = (tx.now + LEASE, tx.now, None::<DateTime<Utc>>);
    let expired = now - RETENTION;
    let written = execute!(tx, SQL, expired, now, held, slot.api_key_id, &slot.key, &slot.fingerprint, until)?;
    if written > 0 { Ok(until) } else { Err(StoreError::KeyTaken) }
}

/// Releases the key, held until `mine`: the operation was refused or failed. The row of another holder stays.
pub async fn release(tx: &mut Tx, slot: &IdempotencySlot, mine: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        DELETE FROM idempotency_keys
        WHERE api_key_id = $1
            AND key = $2
            AND lease_until = $3";
    execute!(tx, SQL, slot.api_key_id, &slot.key, mine)?;
    Ok(())
}

/// How many of a user's newest writes can be listed.
pub const MAX_LISTED: i64 = 1_000;

/// A write that was carried out, as listed.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct WriteRow {
    /// The API key's prefix and last characters.
    pub prefix: String,
    pub last4: String,
    /// The `Idempotency-Key`.
    pub key: String,
    /// `None`: a process of an older version stored it.
    pub method: Option<String>,
    pub path: Option<String>,
    pub status: i32,
    pub created_at: DateTime<Utc>,
}

/// Lists the newest writes of a user's API keys, or of one of them, at most [`MAX_LISTED`]; those of sessions are not
/// among them.
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
    let rows = format!(
        "
        SELECT k.prefix, k.last4, w.key, w.method, w.path, w.status, w.created_at
        {FROM}
        ORDER BY w.created_at DESC, w.key
        LIMIT $4
        OFFSET $5"
    );
    // Counted no further than is listed.
    let total = format!("SELECT count(*) FROM (SELECT 1 AS one {FROM} LIMIT $4) AS newest");
    let (key, since) = (api_key_id.unwrap_or_default(), now - RETENTION);
    let room = (MAX_LISTED - page.offset()).clamp(0, page.per_page);
    let rows = run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(rows)).bind(user_id).bind(key).bind(since).bind(room)
        .bind(page.offset()).fetch_all(c))?;
    let total = run!(conn, c => sqlx::query_scalar(sqlx::AssertSqlSafe(total)).bind(user_id).bind(key).bind(since)
        .bind(MAX_LISTED).fetch_one(c))?;
    Ok(Page { rows, total })
}

/// Deletes expired responses, at most `limit`; returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    let sql = tx.for_engine(
        "
            DELETE FROM idempotency_keys
            WHERE ctid = ANY(
                ARRAY(
                    SELECT ctid
                    FROM idempotency_keys
                    WHERE created_at <= $1
                    ORDER BY created_at
                    LIMIT (SELECT $2)
                )
            )",
        "
            DELETE FROM idempotency_keys
            WHERE rowid IN (
                SELECT rowid
                FROM idempotency_keys
                WHERE created_at <= $1
                ORDER BY created_at
                LIMIT (SELECT $2)
            )",
    );
    let before = tx.now - RETENTION;
    Ok(execute!(tx, sql, before, limit)?)
}
