//! The notification queue: Redis, or in-process.

use redis::IntoConnectionInfo;
use secrecy::SecretString;
use url::Url;

use super::ProcessRole;
use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const URL: Key = Key::new(
    "REDIS_URL",
    "The Redis server that notifies the workers of other processes: `redis://:password@host:port/db` or `rediss://…`.",
    DefaultValue::Text("unset: an in-process queue, which only `crier` can use"),
    "redis://localhost:6379/0",
)
.secret();
pub(super) const KEYS: &[Key] = &[URL];

pub(super) fn read(reader: &mut Reader, role: ProcessRole) -> Option<SecretString> {
    let url = reader.optional(&URL, parse);
    if role.is_separate() && !reader.is_set(&URL) {
        reader.add_problem(
            URL.variable(),
            format!(
                "is not set, and {role} receives work only through Redis; set a URL such as {}, or run `crier`, which \
                 needs no Redis",
                URL.example
            ),
        );
    }
    url
}

fn parse(text: &str) -> Result<SecretString, String> {
    if let Ok(url) = Url::parse(text) {
        values::check_password(&url)?;
    }
    // Uses the parser of the Redis client, so both accept the same URLs. Its errors may quote the URL and are dropped.
    match text.into_connection_info() {
        Ok(_) => Ok(SecretString::from(text)),
        Err(_) => Err("is not the URL of a Redis server".to_owned()),
    }
}
