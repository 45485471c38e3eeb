//! What a worker runs, how much of it at once, and how long it waits.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keys::{Key, Preset};
use super::reader::Reader;
use super::values;
use crate::domain::job::Kind;

const WORKER_KINDS: Key = Key::new(
    "WORKER_KINDS",
    "The kinds of jobs that this worker runs, or `all`.",
    Preset::Value("all"),
    "publish_target,deliver_webhook",
);
const WORKER_CONCURRENCY: Key =
    Key::new("WORKER_CONCURRENCY", "How many jobs this worker runs at once.", Preset::Value("64"), "64");
const DRAIN: Key = Key::new(
    "DRAIN",
    "How long what runs may take to finish after SIGTERM, before it is handed back.",
    Preset::Value("30s"),
    "30s",
);
const PLATFORM_TIMEOUT: Key =
    Key::new("PLATFORM_TIMEOUT", "How long one call to a platform may take.", Preset::Value("30s"), "30s");
pub(super) const KEYS: &[Key] = &[WORKER_KINDS, WORKER_CONCURRENCY, DRAIN, PLATFORM_TIMEOUT];

#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub kinds: Vec<Kind>,
    pub concurrency: usize,
    pub drain: Duration,
    pub platform_timeout: Duration,
}

pub(super) fn read(reader: &mut Reader) -> WorkerConfig {
    let drain = |text: &str| values::duration(text, Duration::ZERO, Duration::from_secs(3_600));
    let call = |text: &str| values::duration(text, Duration::from_millis(100), Duration::from_secs(600));
    WorkerConfig {
        kinds: reader.parse(&WORKER_KINDS, kinds),
        concurrency: reader.parse(&WORKER_CONCURRENCY, |text| values::number(text, 1, 1024)),
        drain: reader.parse(&DRAIN, drain),
        platform_timeout: reader.parse(&PLATFORM_TIMEOUT, call),
    }
}

fn kinds(text: &str) -> Result<Vec<Kind>, String> {
    let mut named = BTreeSet::new();
    for word in values::parts(text) {
        if word == "all" {
            return Ok(Kind::ALL.to_vec());
        }
        let kind: Kind = word.parse().map_err(|_| {
            let known = Kind::ALL.iter().map(|k| k.as_str()).collect::<Vec<_>>().join(", ");
            format!("has `{word}`, which is none of: all, {known}")
        })?;
        named.insert(kind);
    }
    if named.is_empty() { Err("names no kind".to_owned()) } else { Ok(named.into_iter().collect()) }
}
