//! Errors at the start of a process or a command: one line for the operator, with the cause and the remedy.

use std::process::ExitCode;
use std::str::FromStr as _;

use crier_config::{ConfigError, Database};
use crier_store::StoreError;
use secrecy::ExposeSecret as _;
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;

/// Why a process does not start, as a message for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A problem of the configuration or the installation, and its remedy. The exit status is 2; other errors have 1.
    #[error("{0}")]
    Invalid(String),
    /// A problem of an external service, and its remedy.
    #[error("{0}")]
    Failed(String),
    /// The process was stopped before it had started. This is not a failure: the exit status is 0.
    #[error("stopped before the database could be reached")]
    Stopped,
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
}

impl StartError {
    /// Prints the error to stderr and returns the exit code for `main`.
    pub fn exit(&self) -> ExitCode {
        if let Self::Config(error) = self {
            return error.exit();
        }
        print(self);
        match self {
            Self::Stopped => ExitCode::SUCCESS,
            Self::Invalid(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Adds the database, the cause and the remedy to an error of the store.
    pub fn explain(self, database: &Database) -> Self {
        match self {
            Self::Store(error) => match explain(&error, database) {
                Some(text) => Self::Failed(text),
                None => Self::Store(error),
            },
            other => other,
        }
    }
}

/// Prints an error to stderr as one line. If stderr is closed, it cannot be reported anywhere.
pub fn print(error: impl std::fmt::Display) {
    use std::io::Write as _;
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr().lock(), "crier: {text}");
}

/// Returns the cause and the remedy of a failure at the start; `None` if the error's own message is best.
pub fn explain(error: &StoreError, database: &Database) -> Option<String> {
    let (StoreError::Database(cause) | StoreError::Migrate(MigrateError::Execute(cause))) = error else {
        return explain_migration(error);
    };
    match database {
        Database::Sqlite(path) => explain_sqlite(cause, &path.display().to_string()),
        Database::Postgres(url) => explain_postgres(cause, url.expose_secret()),
    }
}

fn explain_migration(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Migrate(MigrateError::VersionMissing(version)) => Some(format!(
            "the database was migrated by a newer version of Crier (schema {version}); run that version, or restore the \
             backup that was made before the upgrade"
        )),
        StoreError::Migrate(MigrateError::ExecuteMigration(cause, version)) => {
            Some(format!("the database cannot be migrated to schema {version}: {cause}"))
        }
        _ => None,
    }
}

/// SQLite's primary result codes are the low byte of the code: <https://sqlite.org/rescode.html>.
fn explain_sqlite(cause: &sqlx::Error, path: &str) -> Option<String> {
    let sqlx::Error::Database(error) = cause else { return None };
    let code = error.code()?.parse::<u32>().ok()? & 0xff;
    let (what, remedy) = match code {
        5 | 6 => ("is locked by another program", "stop that program"),
        8 => ("cannot be written (read-only)", "make the file and its directory writable for this user"),
        10 => ("cannot be read or written (I/O error)", "check the disk and its free space"),
        11 | 26 => ("is damaged or is not a SQLite database", "move it away and restore a backup"),
        13 => ("cannot grow: the disk is full", "free some space"),
        14 => ("cannot be opened", "check that its directory exists and belongs to this user"),
        _ => return None,
    };
    Some(format!("the database {path} {what}; {remedy} ({error})"))
}

/// Postgres' error codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn explain_postgres(cause: &sqlx::Error, url: &str) -> Option<String> {
    let options = PgConnectOptions::from_str(url).ok()?;
    let place = format!("Postgres at {}:{}", options.get_host(), options.get_port());
    let (user, name) = (options.get_username(), options.get_database().unwrap_or(options.get_username()));
    Some(match cause {
        sqlx::Error::Io(error) => format!("{place} is not reachable: {error}; is it running? (CRIER_DATABASE_URL)"),
        sqlx::Error::PoolTimedOut => format!("{place} did not respond in time (CRIER_DATABASE_URL)"),
        sqlx::Error::Tls(error) => format!("{place}: TLS failed: {error}; see sslmode in CRIER_DATABASE_URL"),
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("28P01") => format!(
                "{place} rejects the password of the user {user}; correct CRIER_DATABASE_URL (special characters in the \
                 password must be percent-encoded)"
            ),
            Some("28000") => format!("{place} rejects the user {user} ({error}); correct CRIER_DATABASE_URL"),
            Some("3D000") => format!("{place} has no database {name}; create it with: createdb -O {user} {name}"),
            Some("42501") => {
                format!("{place} does not let the user {user} create tables in {name} ({error}); grant that privilege")
            }
            Some("53300") => {
                format!("{place} has no free connection ({error}); raise max_connections, or stop a process")
            }
            Some("25006") => format!("{place} is read-only; set CRIER_DATABASE_URL to the primary server ({error})"),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns what is wrong with the schema, for which the remedy is `crier migrate`; `None` if the error is another one.
pub fn explain_schema(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Decode(detail) => Some(detail.clone()),
        StoreError::Database(sqlx::Error::Database(error))
            if error.code().as_deref() == Some("42P01") || error.message().starts_with("no such table") =>
        {
            Some("it has no schema".to_owned())
        }
        _ => None,
    }
}

/// Returns whether Postgres has rejected the connection for a reason that waiting does not resolve.
pub(super) fn is_permanent(error: &StoreError) -> bool {
    matches!(error, StoreError::Database(sqlx::Error::Database(e))
        if matches!(e.code().as_deref(), Some("28P01" | "28000" | "3D000" | "42501")))
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _, SqliteConnection};

    use super::*;

    /// SQLite returns the same error for a file that may not grow as for a full disk.
    #[tokio::test]
    async fn a_full_disk_is_named() {
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        conn.execute("PRAGMA max_page_count = 2").await.unwrap();
        let fill = "CREATE TABLE a (b TEXT); INSERT INTO a VALUES (hex(randomblob(20000)))";
        let error = StoreError::Database(conn.execute(fill).await.unwrap_err());
        let text = explain(&error, &Database::Sqlite("/data/crier.db".into())).unwrap();
        let start = "the database /data/crier.db cannot grow: the disk is full; free some space (";
        assert!(text.starts_with(start), "{text}");
    }
}
