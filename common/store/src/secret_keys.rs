//! Checks whether the configured secret keys are those of this installation. For each key, a known text is stored,
//! sealed with that key.
//!
//! The check of a key that is no longer configured is deleted when nothing is encrypted with the key.

use chrono::{DateTime, Utc};
use crier_base::secrets::{Cipher, SecretLocation, key_id};

use super::db::{execute, run};
use super::{Conn, Result, Store, Tx, idempotency};

const TEXT: &[u8] = b"crier";

/// A problem of the configured keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// Data is encrypted with the key of this id, which is not configured.
    Missing(u8),
    /// The configured key of this id differs from the one that was used.
    Wrong(u8),
}

fn location(row: &str) -> SecretLocation<'_> {
    SecretLocation { table: "secret_key_checks", row, column: "sealed" }
}

fn opens(cipher: &Cipher, id: u8, sealed: &[u8]) -> bool {
    cipher.open(&location(&id.to_string()), sealed).is_ok_and(|text| text == TEXT)
}

/// Checks the keys of the store's cipher against the installation. The schema must be current.
pub async fn check(store: &Store) -> Result<Option<KeyProblem>> {
    let mut conn = store.read().await?;
    let checks = list(&mut conn).await?;
    for (id, sealed) in &checks {
        if !store.cipher().has_key(*id) {
            if !ids_in_use(&mut conn, store.now()).await?.contains(id) {
                continue;
            }
            return Ok(Some(KeyProblem::Missing(*id)));
        }
        if !opens(store.cipher(), *id, sealed) {
            return Ok(Some(KeyProblem::Wrong(*id)));
        }
    }
    Ok(None)
}

/// Stores checks of the configured keys that have none, and deletes those of keys that are no longer configured. Call
/// it after [`check`] has found no problem.
pub async fn record(store: &Store) -> Result<()> {
    let mut conn = store.read().await?;
    let checks = list(&mut conn).await?;
    drop(conn);
    let is_new = |id: &u8| !checks.iter().any(|(checked, _)| checked == id);
    let new: Vec<u8> = store.cipher().ids().filter(is_new).collect();
    let unused: Vec<u8> = checks.iter().map(|(id, _)| *id).filter(|id| !store.cipher().has_key(*id)).collect();
    if new.is_empty() && unused.is_empty() {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    for id in new {
        insert(&mut tx, id).await?;
    }
    for id in unused {
        execute!(&mut tx, "DELETE FROM secret_key_checks WHERE key_id = $1", i64::from(id))?;
    }
    tx.commit().await
}

async fn insert(tx: &mut Tx, id: u8) -> Result<()> {
    const SQL: &str = "
        INSERT INTO secret_key_checks (key_id, sealed)
        VALUES ($1, $2)
        ON CONFLICT DO NOTHING";
    let sealed = tx.cipher.seal_with(id, &location(&id.to_string()), TEXT)?;
    execute!(tx, SQL, i64::from(id), &sealed)?;
    Ok(())
}

async fn list(conn: &mut Conn) -> Result<Vec<(u8, Vec<u8>)>> {
    const SQL: &str = "SELECT key_id, sealed FROM secret_key_checks ORDER BY key_id";
    let rows: Vec<(i64, Vec<u8>)> = run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?;
    Ok(rows.into_iter().filter_map(|(id, sealed)| Some((u8::try_from(id).ok()?, sealed))).collect())
}

/// Returns the ids of the keys with which permanent secrets, and stored responses that can still be requested, are
/// encrypted. Scans the tables; a start needs it only if a key was removed.
async fn ids_in_use(conn: &mut Conn, now: DateTime<Utc>) -> Result<Vec<u8>> {
    const SQL: &str = "
        SELECT substr(secret, 1, 2) FROM webhooks
        UNION
        SELECT substr(secrets, 1, 2) FROM social_accounts
        UNION
        SELECT substr(client_secret, 1, 2) FROM applications
        UNION
        SELECT substr(response, 1, 2) FROM idempotency_keys WHERE response IS NOT NULL AND created_at > $1";
    let since = now - idempotency::RETENTION;
    let heads: Vec<Vec<u8>> = run!(conn, c => sqlx::query_scalar(SQL).bind(since).fetch_all(c))?;
    Ok(heads.iter().filter_map(|head| key_id(head)).collect())
}
