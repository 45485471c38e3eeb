//! The avatars of accounts, as small JPEG images for the console.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// A stored avatar.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Avatar {
    /// The URL from which the avatar was last read, successfully or not.
    pub url: String,
    /// `None` if the avatar could never be read.
    pub image: Option<Vec<u8>>,
    /// The time at which to read the avatar again.
    pub next_read_at: DateTime<Utc>,
}

pub async fn find(conn: &mut Conn, account_id: i64) -> Result<Option<Avatar>> {
    const SQL: &str = "SELECT url, image, next_read_at FROM account_avatars WHERE account_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(account_id).fetch_optional(c))?)
}

/// Stores the result of reading an avatar. Without an image, the stored one remains. Does nothing if the account was
/// deleted.
pub async fn save(
    tx: &mut Tx,
    account_id: i64,
    url: &str,
    image: Option<&[u8]>,
    next_read_at: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        INSERT INTO account_avatars (account_id, url, image, next_read_at)
        SELECT id, $2, $3, $4
        FROM social_accounts
        WHERE id = $1
        ON CONFLICT (account_id)
        DO UPDATE SET url = excluded.url, image = coalesce(excluded.image, account_avatars.image),
            next_read_at = excluded.next_read_at";
    execute!(tx, SQL, account_id, url, image, next_read_at)?;
    Ok(())
}
