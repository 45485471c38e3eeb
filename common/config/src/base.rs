//! Settings that belong to no other section: public URL, data directory, optional features.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::{ProcessRole, values};

const PUBLIC_URL: Key = Key::new(
    "PUBLIC_URL",
    "The URL at which clients and platforms reach the API.",
    DefaultValue::Text("http:// and the address that the API listens on"),
    "https://crier.example.com",
);
/// The default of [`Config::data_dir`](super::Config::data_dir).
pub const DEFAULT_DATA_DIR: &str = "./crier-data";
pub(super) const DATA_DIR: Key = Key::new(
    "DATA_DIR",
    "The directory for Crier's files. Replicas must share it unless the storage is S3.",
    DefaultValue::Value(DEFAULT_DATA_DIR),
    "/var/lib/crier",
);
const SANDBOX: Key = Key::new(
    "SANDBOX",
    "Whether the sandbox platform can be connected.",
    DefaultValue::Text("true in `crier`, false elsewhere"),
    "true",
);
pub(super) const PLANS_FILE: Key = Key::new(
    "PLANS_FILE",
    "A TOML file whose `[plans.NAME]` tables replace the built-in plans.",
    DefaultValue::Unset,
    "/etc/crier/plans.toml",
);
const LATEST_PUBLISH: Key = Key::new(
    "LATEST_PUBLISH",
    "The maximum delay for publishing a post. A post that is later is marked as missed.",
    DefaultValue::Value("24h"),
    "24h",
);
pub(super) const KEYS: &[Key] = &[PUBLIC_URL, DATA_DIR, SANDBOX, PLANS_FILE, LATEST_PUBLISH];

pub(super) struct Base {
    /// `None`: the address that the API listens on.
    pub(super) public_url: Option<Url>,
    pub(super) data_dir: PathBuf,
    pub(super) sandbox: bool,
    pub(super) plans_file: Option<PathBuf>,
    pub(super) latest_publish: Duration,
}

pub(super) fn read(reader: &mut Reader, role: ProcessRole) -> Base {
    let delay = |text: &str| values::duration(text, Duration::from_secs(1), Duration::from_secs(366 * 86_400));
    Base {
        public_url: reader.optional(&PUBLIC_URL, public_url),
        data_dir: reader.parse(&DATA_DIR, values::path),
        sandbox: reader.optional(&SANDBOX, values::boolean).unwrap_or(role == ProcessRole::Crier),
        plans_file: reader.optional(&PLANS_FILE, values::path),
        latest_publish: reader.parse(&LATEST_PUBLISH, delay),
    }
}

/// Parses the public URL. It must have no path: cookies, redirects and the paths in the API's responses all assume the
/// root of the host.
fn public_url(text: &str) -> Result<Url, String> {
    let url = values::web_url(text)?;
    if url.path() == "/" { Ok(url) } else { Err("has a path; Crier must be at the root of a host name".to_owned()) }
}
