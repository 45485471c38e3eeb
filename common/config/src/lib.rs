//! The configuration, read once at the start.
//!
//! Precedence: flags, then `CRIER_…` variables, then `crier.toml`. Each section has a file here, with its keys
//! ([`Key`]), its struct and its `read`. [`Config::load`] calls them all and reports **all** problems together:
//! each line contains the key, the problem and a valid value, and the caller exits with status 2.
//!
//! **To add a key:** a `const` [`Key`] in its section's `KEYS`, a field in the section's struct, a line in its
//! `read` (in `base.rs` also a field of [`Config`] and a line in its `load`). The detection of unknown keys and
//! `--help` are derived from the table, and so is `docs/configuration.md`, with `CRIER_TEST_UPDATE=1`. A duration is a
//! `values::duration`. A key whose value may contain a password is `.secret()` and its field a `SecretString`: neither
//! an error nor `{:?}` can show it.

mod ai;
mod base;
mod database;
mod guard;
mod http;
mod key;
pub mod keys;
mod log;
mod media;
mod plans;
mod platform_settings;
mod platforms;
mod queue;
mod reader;
mod secrets;
mod smtp;
mod source;
mod storage;
mod traces;
mod values;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crier_domain::plan::Plans;
use crier_domain::platform::Platform;
use secrecy::SecretString;
use url::Url;

pub use ai::AiConfig;
pub use base::DEFAULT_DATA_DIR;
pub use database::Database;
pub use guard::GuardConfig;
pub use http::HttpConfig;
pub use key::{DefaultValue, Key};
pub use log::{LogConfig, LogFormat};
pub use media::MediaConfig;
pub use platform_settings::{BadSetting, PlatformConfig, PlatformsConfig, application_variables};
pub use secrets::{SecretKeys, key_file};
pub use smtp::{MailConfig, Mailbox, Smtp, SmtpTls};
pub use source::{ConfigSource, Invocation};
pub use storage::{S3Config, StorageConfig};
pub use traces::TracesConfig;
pub use values::duration;
pub use worker::{Concurrency, WorkerConfig};

crier_base::text_enum! {
    /// The role of a process; the word is the name of its binary.
    pub enum ProcessRole {
        /// All three roles in one process, and the operator's commands.
        Crier = "crier",
        Api = "crier-api",
        Worker = "crier-worker",
        Scheduler = "crier-scheduler",
    }
}

impl ProcessRole {
    /// Returns whether the process shares its database and its queue with other processes.
    pub const fn is_separate(self) -> bool {
        !matches!(self, Self::Crier)
    }
}

/// The whole, validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub role: ProcessRole,
    pub http: HttpConfig,
    /// Its path is always `/`.
    pub public_url: Url,
    /// Whether `public_url` was configured. Otherwise it is the address that the API listens on.
    pub has_public_url: bool,
    pub data_dir: PathBuf,
    pub database: Database,
    /// `None`: the in-process queue.
    pub redis_url: Option<SecretString>,
    /// `None`: `crier` uses its own key file ([`key_file`]).
    pub secret_keys: Option<SecretKeys>,
    pub storage: StorageConfig,
    /// The free disk space below which uploads and new records are rejected, in bytes. 0 means no limit.
    pub disk_reserve: u64,
    pub media: MediaConfig,
    pub mail: MailConfig,
    pub ai: AiConfig,
    pub platforms: BTreeMap<Platform, PlatformConfig>,
    pub guard: GuardConfig,
    pub sandbox: bool,
    pub plans_file: Option<PathBuf>,
    /// The plans of the plans file, or the built-in plans.
    pub plans: Plans,
    pub latest_publish: Duration,
    pub worker: WorkerConfig,
    pub log: LogConfig,
    /// `None`: no traces are recorded.
    pub traces: Option<TracesConfig>,
}

impl Config {
    /// Reads and checks all sections.
    pub fn load(source: &ConfigSource, role: ProcessRole) -> Result<Self, ConfigError> {
        let known = keys::all().into_iter().map(|key| key.name.into_owned()).collect();
        let mut reader = reader::Reader::new(source, &known);
        let http = http::read(&mut reader, role);
        let base = base::read(&mut reader, role);
        let config = Self {
            role,
            has_public_url: base.public_url.is_some(),
            public_url: base.public_url.unwrap_or_else(|| http.own_url()),
            http,
            database: database::read(&mut reader, role, &base.data_dir),
            redis_url: queue::read(&mut reader, role),
            secret_keys: secrets::read(&mut reader, role),
            storage: storage::read(&mut reader, &base.data_dir),
            disk_reserve: storage::disk_reserve(&mut reader),
            media: media::read(&mut reader),
            mail: smtp::read(&mut reader),
            ai: ai::read(&mut reader),
            platforms: platforms::read(&mut reader),
            guard: guard::read(&mut reader),
            plans: plans::read(&mut reader, base.plans_file.as_deref(), &source.read_file),
            worker: worker::read(&mut reader),
            log: log::read(&mut reader),
            traces: traces::read(&mut reader),
            data_dir: base.data_dir,
            sandbox: base.sandbox,
            plans_file: base.plans_file,
            latest_publish: base.latest_publish,
        };
        if reader.problems.is_empty() { Ok(config) } else { Err(ConfigError { problems: reader.problems }) }
    }

    /// Sets the address that the API listens on. Its port differs from the configured one if that is 0.
    pub fn set_bound_addr(&mut self, addr: SocketAddr) {
        self.http.addr = addr;
        if !self.has_public_url {
            self.public_url = self.http.own_url();
        }
    }

    /// Returns the settings that connectors are created with.
    pub fn platforms_config(&self) -> PlatformsConfig {
        PlatformsConfig { timeout: self.worker.platform_timeout, platforms: self.platforms.clone() }
    }

    /// Returns the settings that choose the storage, for messages.
    pub fn storage_settings(&self) -> &'static str {
        match &self.storage {
            StorageConfig::Directory(dir) if *dir == storage::default_dir(&self.data_dir) => {
                "CRIER_DATA_DIR or CRIER_STORAGE_URL"
            }
            StorageConfig::Directory(_) => "CRIER_STORAGE_URL",
            StorageConfig::S3(_) => "CRIER_STORAGE_URL and the AWS_ variables",
        }
    }

    /// Returns what to do if the storage cannot be used.
    pub fn storage_remedy(&self) -> String {
        let settings = self.storage_settings();
        match self.storage {
            StorageConfig::Directory(_) => {
                format!("make the directory writable for this user, or choose another with {settings}")
            }
            StorageConfig::S3(_) => format!("correct {settings}"),
        }
    }

    /// Returns the public URL of a path: `/docs` is `https://crier.example.com/docs`.
    pub fn absolute(&self, path: &str) -> String {
        format!("{}/{}", self.public_url.as_str().trim_end_matches('/'), path.trim_start_matches('/'))
    }
}

/// One problem in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The key as the operator wrote it: `CRIER_HTTP_ADDR`, `--http-addr`, `http_addr (configuration file)`.
    pub key: String,
    /// The problem, and a valid value.
    pub message: String,
}

/// All problems in the configuration, one per line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub problems: Vec<ConfigProblem>,
}

impl ConfigError {
    /// Prints the problems to stderr, one per line, and returns the exit code for `main`.
    pub fn exit(&self) -> ExitCode {
        use std::io::Write as _;
        // If stderr is closed, the error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "{self}");
        ExitCode::from(2)
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.problems.iter().map(|ConfigProblem { key, message }| format!("crier: {key}: {message}"));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}
