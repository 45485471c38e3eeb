//! The database: SQLite in a file, or Postgres.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use super::ProcessRole;
use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const URL: Key = Key::new(
    "DATABASE_URL",
    "The database: `sqlite:///file` or `postgres://user:password@host:port/name`.",
    DefaultValue::Text("SQLite in the data directory"),
    "postgres://crier:password@localhost:5432/crier",
)
.secret();
pub(super) const KEYS: &[Key] = &[URL];

/// The configured database.
#[derive(Clone, Debug)]
pub enum Database {
    /// The path of the file.
    Sqlite(PathBuf),
    /// The connection URL, which may contain a password.
    Postgres(SecretString),
}

pub(super) fn read(reader: &mut Reader, role: ProcessRole, data_dir: &Path) -> Database {
    let database = reader.optional(&URL, parse).unwrap_or_else(|| Database::Sqlite(data_dir.join("crier.db")));
    if role.is_separate() && matches!(database, Database::Sqlite(_)) && !reader.is_bad(&URL) {
        let kind = if reader.is_set(&URL) { "is SQLite" } else { "is not set, which means SQLite" };
        reader.add_problem(
            URL.variable(),
            format!(
                "{kind}, and {role} cannot share a SQLite file with the other processes; set a URL such as {}, or run \
                 `crier`, which runs all of them in one process",
                URL.example
            ),
        );
    }
    database
}

fn parse(text: &str) -> Result<Database, String> {
    if let Some(rest) = text.strip_prefix("sqlite:") {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        return match path {
            "" | ":memory:" => Err("names no file (sqlite:///directory/file)".to_owned()),
            path if path.contains('?') => Err("must be only a path, without options after a ?".to_owned()),
            path => Ok(Database::Sqlite(PathBuf::from(path))),
        };
    }
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "postgres" | "postgresql") => {
            values::check_password(&url)?;
            Ok(Database::Postgres(SecretString::from(text)))
        }
        _ => Err("is not a sqlite:// or postgres:// URL (special characters in the password must be \
                  percent-encoded)"
            .to_owned()),
    }
}
