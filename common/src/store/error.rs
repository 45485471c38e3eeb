//! What can go wrong in the store. Never told to a client: the API answers 503 or 500 and logs the cause.

use sqlx::migrate::MigrateError;

use crate::secrets::SecretError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("migration: {0}")]
    Migrate(#[from] MigrateError),
    #[error("sealed value: {0}")]
    Secret(#[from] SecretError),
    #[error("stored value: {0}")]
    Decode(String),
}

impl StoreError {
    /// The database cannot be reached or is full: worth trying again, and no fault of the program.
    pub fn is_unavailable(&self) -> bool {
        use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        let (Self::Database(error)
        | Self::Migrate(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _))) = self
        else {
            return false;
        };
        match error {
            Io(_) | PoolTimedOut | PoolClosed | Tls(_) | WorkerCrashed | Protocol(_) => true,
            Database(e) => e.code().is_some_and(|code| {
                // Postgres: connection trouble, shutting down, out of resources (disk, connections), a transaction that slept
                // too long. SQLite: busy, locked,
                // I/O, full, cannot open.
                let code = code.as_ref();
                code.len() == 5
                    && (code.starts_with("08")
                        || code.starts_with("57P")
                        || code.starts_with("53")
                        || matches!(code, "58030" | "25P03"))
                    || code.parse::<u32>().is_ok_and(|c| code.len() < 5 && matches!(c & 0xff, 5 | 6 | 10 | 13 | 14))
            }),
            _ => false,
        }
    }

    /// Two transactions stood in each other's way and this one was the victim: the same work, begun again, will do.
    pub fn is_serialization(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(e)) if matches!(e.code().as_deref(), Some("40001" | "40P01")))
    }

    /// The same again, a little later, may well succeed.
    pub fn is_passing(&self) -> bool {
        self.is_unavailable() || self.is_serialization()
    }

    /// The database takes this value in no circumstances (a NUL in a text, a value of no such type, a text too long for its
    /// index, an empty column that must not be): the same again is refused again.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Encode(_)) => true,
            Self::Database(sqlx::Error::Database(e)) => e.code().is_some_and(|code| {
                let code = code.as_ref();
                if code.len() == 5 {
                    // Postgres: data exceptions, limits of the program, `NOT NULL`, `CHECK`.
                    return code.starts_with("22") || code.starts_with("54") || matches!(code, "23502" | "23514");
                }
                // SQLite: too big, mismatch; of the constraints `CHECK`, `NOT NULL` and the type of a strict table.
                matches!(code.parse::<u32>(), Ok(18 | 20 | 275 | 1_299 | 3_091))
            }),
            _ => false,
        }
    }

    /// A row that must be unique is there already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(e)) if e.is_unique_violation())
    }
}
