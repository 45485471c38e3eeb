//! Settings of a worker: kinds of jobs, concurrency and timeouts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crier_base::UnknownWord;
use crier_domain::job::JobKind;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const WORKER_KINDS: Key = Key::new(
    "WORKER_KINDS",
    "The kinds of jobs that this worker runs, or `all`.",
    DefaultValue::Value("all"),
    "publish_target,deliver_webhook",
);
const WORKER_CONCURRENCY: Key = Key::new(
    "WORKER_CONCURRENCY",
    "The maximum number of jobs of each kind that this worker runs concurrently. A kind can have its own number. Runs that \
     wait for a platform, an endpoint or another server are not counted.",
    DefaultValue::Value("64"),
    "64,publish_target=16,deliver_webhook=256",
);
const DRAIN: Key = Key::new(
    "DRAIN",
    "The time that running work has to finish after SIGTERM. Jobs that are still running are then released.",
    DefaultValue::Value("30s"),
    "30s",
);
const PLATFORM_TIMEOUT: Key =
    Key::new("PLATFORM_TIMEOUT", "The time limit for a call to a platform.", DefaultValue::Value("30s"), "30s");
pub(super) const KEYS: &[Key] = &[WORKER_KINDS, WORKER_CONCURRENCY, DRAIN, PLATFORM_TIMEOUT];

/// The number of jobs of each kind that a worker runs concurrently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    default: usize,
    by_kind: BTreeMap<JobKind, usize>,
}

impl Concurrency {
    /// Creates a concurrency with the same number for every kind.
    pub fn each(number: usize) -> Self {
        Self { default: number, by_kind: BTreeMap::new() }
    }

    pub fn of(&self, kind: JobKind) -> usize {
        self.by_kind.get(&kind).copied().unwrap_or(self.default)
    }
}

/// Parses `64,publish_target=16`; without a bare number, the key's default is used.
fn concurrency(text: &str) -> Result<Concurrency, String> {
    let (mut default, mut by_kind) = (None, BTreeMap::new());
    for part in values::parts(text) {
        let (name, number) =
            part.split_once('=').map_or((None, part), |(name, number)| (Some(name.trim()), number.trim()));
        let number = values::number(number, 1, 1024).map_err(|wrong| match part == text {
            true => wrong,
            false => format!("has `{part}`, where `{number}` {wrong}"),
        })?;
        let twice = match name {
            None => default.replace(number).map(|_| "a number without a kind".to_owned()),
            Some(name) => by_kind.insert(kind(name)?, number).map(|_| format!("`{name}`")),
        };
        if let Some(twice) = twice {
            return Err(format!("has {twice} twice"));
        }
    }
    Ok(Concurrency { default: default.unwrap_or(64), by_kind })
}

fn kind(word: &str) -> Result<JobKind, String> {
    word.parse().map_err(|UnknownWord { known, .. }| format!("has `{word}`, which is not one of: {known}"))
}

#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub kinds: Vec<JobKind>,
    pub concurrency: Concurrency,
    pub drain: Duration,
    pub platform_timeout: Duration,
}

pub(super) fn read(reader: &mut Reader) -> WorkerConfig {
    let drain = |text: &str| values::duration(text, Duration::ZERO, Duration::from_secs(3_600));
    let call = |text: &str| values::duration(text, Duration::from_millis(100), Duration::from_secs(600));
    WorkerConfig {
        kinds: reader.parse(&WORKER_KINDS, kinds),
        concurrency: reader.parse(&WORKER_CONCURRENCY, concurrency),
        drain: reader.parse(&DRAIN, drain),
        platform_timeout: reader.parse(&PLATFORM_TIMEOUT, call),
    }
}

fn kinds(text: &str) -> Result<Vec<JobKind>, String> {
    let mut named = BTreeSet::new();
    for word in values::parts(text) {
        if word == "all" {
            return Ok(JobKind::ALL.to_vec());
        }
        named.insert(kind(word).map_err(|wrong| wrong.replace("not one of: ", "not one of: all, "))?);
    }
    if named.is_empty() { Err("names no kind".to_owned()) } else { Ok(named.into_iter().collect()) }
}
