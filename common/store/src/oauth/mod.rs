//! Connected applications: clients of the OAuth authorization server, and what users granted to them.
//!
//! A grant has its own row in `api_keys`, as a session has, so everything that is checked, counted or stored by key
//! (scopes, brands, the role limit, rate limits, `Idempotency-Key`s, the time of last use) applies to applications too.
//! No client can present the hash of that row as an API key. Deleting the row ends the grant with its tokens.
//!
//! Only SHA-256 hashes of codes and tokens are stored. They are random, so a hash needs no salt.

use super::{Result, Tx};

pub mod clients;
pub mod codes;
pub mod grants;
mod secrets;
pub mod tokens;

pub use tokens::{authenticate, is_access_token};

/// Deletes expired registrations, codes, grants and tokens, at most `limit` each. Returns how many.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    Ok(tokens::purge(tx, limit).await?
        + codes::purge(tx, limit).await?
        + grants::purge(tx, limit).await?
        + clients::purge(tx, limit).await?)
}
