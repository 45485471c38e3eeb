//! Log level and log format.

use tracing_subscriber::EnvFilter;

use super::key::{DefaultValue, Key};
use super::reader::Reader;

const LOG: Key = Key::new(
    "LOG",
    "The log level: off, error, warn, info, debug or trace, optionally per module (`info,crier=debug`).",
    DefaultValue::Value("info"),
    "info,crier=debug",
);
const LOG_FORMAT: Key = Key::new(
    "LOG_FORMAT",
    "The log format: text or json.",
    DefaultValue::Text("text on a terminal, otherwise json"),
    "json",
);
pub(super) const KEYS: &[Key] = &[LOG, LOG_FORMAT];

crier_base::text_enum! {
    /// The format of a log line.
    pub enum LogFormat { Text = "text", Json = "json" }
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directives for `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// `None`: text on a terminal, else JSON.
    pub format: Option<LogFormat>,
}

pub(super) fn read(reader: &mut Reader) -> LogConfig {
    LogConfig {
        filter: reader.parse(&LOG, filter),
        format: reader.optional(&LOG_FORMAT, |text| text.parse().map_err(|_| "is neither text nor json".to_owned())),
    }
}

/// Checks the filter. A word that is not a level is rejected: `EnvFilter` would treat it as a module name (with
/// `verbose`, only that module would be logged).
fn filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',').map(str::trim) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).to_ascii_lowercase();
        let spans = part.contains(['[', '{', ']', '}']);
        if !spans && !LEVELS.contains(&level.as_str()) {
            return Err(format!("has `{part}`, which is neither a level ({}) nor module=level", LEVELS.join(", ")));
        }
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("is not a list of levels and module=level".to_owned()),
    }
}
