//! Errors of the store. They are never sent to a client: the API returns 503 or 500 and logs the cause.

use crier_base::secrets::SecretError;
use crier_domain::post::PostTransitionError;
use sqlx::migrate::MigrateError;

/// Returns whether an error means that the connection was lost, for example because the server has been stopped.
pub(super) fn is_connection_lost(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Database, Io, Protocol, Tls};
    match error {
        Io(_) | Tls(_) | Protocol(_) => true,
        // Postgres: connection errors, shutdown. The codes of SQLite are shorter.
        Database(e) => {
            e.code().is_some_and(|code| code.len() == 5 && (code.starts_with("08") || code.starts_with("57P")))
        }
        _ => false,
    }
}

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
    /// Another transaction took the `Idempotency-Key` meanwhile.
    #[error("another request took the Idempotency-Key")]
    KeyTaken,
    /// A bug: a change of a post that its status does not allow.
    #[error(transparent)]
    Transition(#[from] PostTransitionError),
}

impl StoreError {
    /// Returns whether the database is unreachable or full: a retry may succeed, and it is not a bug.
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
                // Postgres: connection errors, shutdown, out of resources (disk, connections), timeouts of an idle
                // transaction and of a statement, read-only (a standby). SQLite: busy, locked, read-only (a file system
                // that was remounted after an error), I/O, full, cannot open.
                let code = code.as_ref();
                code.len() == 5
                    && (code.starts_with("08")
                        || code.starts_with("57P")
                        || code.starts_with("53")
                        || matches!(code, "58030" | "25P03" | "57014" | "25006"))
                    || code.parse::<u32>().is_ok_and(|c| code.len() < 5 && matches!(c & 0xff, 5 | 6 | 8 | 10 | 13 | 14))
            }),
            _ => false,
        }
    }

    /// Returns whether this process has closed its connections ([`super::Db::close`]).
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::PoolClosed))
    }

    /// Returns whether a newer version has migrated the database.
    pub const fn is_newer_schema(&self) -> bool {
        matches!(self, Self::Migrate(MigrateError::VersionMissing(_)))
    }

    /// Returns whether this transaction conflicted with another one (a serialization failure, a deadlock, a taken key).
    /// Run it again from the start.
    pub fn is_serialization(&self) -> bool {
        matches!(self, Self::KeyTaken)
            || matches!(self, Self::Database(sqlx::Error::Database(e)) if matches!(e.code().as_deref(), Some("40001" | "40P01")))
    }

    /// Returns whether a retry a little later may succeed.
    pub fn is_transient(&self) -> bool {
        self.is_unavailable() || self.is_serialization()
    }

    /// Returns whether the database never accepts this value (a NUL in a text, a wrong type, a text too long for its
    /// index, NULL in a `NOT NULL` column), so that a retry is rejected again.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Encode(_)) => true,
            Self::Database(sqlx::Error::Database(e)) => e.code().is_some_and(|code| {
                let code = code.as_ref();
                if code.len() == 5 {
                    // Postgres: data exceptions, program limits, `NOT NULL`, `CHECK`.
                    return code.starts_with("22") || code.starts_with("54") || matches!(code, "23502" | "23514");
                }
                // SQLite: too big, mismatch; the constraints `CHECK`, `NOT NULL` and the types of a strict table.
                matches!(code.parse::<u32>(), Ok(18 | 20 | 275 | 1_299 | 3_091))
            }),
            _ => false,
        }
    }

    /// Returns whether a unique constraint was violated.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(e)) if e.is_unique_violation())
    }
}
