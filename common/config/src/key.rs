//! A configuration key.

use std::borrow::Cow;

use crier_domain::catalogue;

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This value, parsed like a configured one.
    Value(&'static str),
    /// Depends on other settings, as the text describes.
    Text(&'static str),
    /// No value: the feature is off.
    Unset,
}

/// One key: `CRIER_HTTP_ADDR` in the environment, `--http-addr` as a flag, `http_addr` in `crier.toml`.
#[derive(Clone, Debug)]
pub struct Key {
    /// Without the prefix, in upper case: `HTTP_ADDR`.
    pub name: Cow<'static, str>,
    pub description: Cow<'static, str>,
    pub default: DefaultValue,
    /// A valid value, shown in the error for an invalid one.
    pub example: &'static str,
    /// Whether the value may contain a password or a key; then it is never shown.
    pub secret: bool,
}

impl Key {
    pub(super) const fn new(
        name: &'static str,
        description: &'static str,
        default: DefaultValue,
        example: &'static str,
    ) -> Self {
        Self { name: Cow::Borrowed(name), description: Cow::Borrowed(description), default, example, secret: false }
    }

    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Returns the name of the environment variable.
    pub fn variable(&self) -> String {
        variable(&self.name)
    }

    /// Returns the flag without its dashes.
    pub fn flag(&self) -> String {
        flag(&self.name)
    }

    /// Returns the text for the default in `--help` and `docs/configuration.md`.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            DefaultValue::Value("") => "empty",
            DefaultValue::Value(text) | DefaultValue::Text(text) => text,
            DefaultValue::Unset => "unset",
        }
    }
}

pub(super) fn variable(name: &str) -> String {
    format!("CRIER_{name}")
}

pub(super) fn flag(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Returns the known name that is most similar to an unknown one. A platform may have its public name: the nearest to
/// `X_INBOX` is `TWITTER_INBOX`.
pub(super) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let renamed = catalogue::all().iter().find_map(|descriptor| {
        let name = descriptor.name.to_ascii_uppercase().replace(' ', "_");
        let rest = unknown.strip_prefix(&name)?.strip_prefix('_')?;
        Some(format!("{}_{rest}", descriptor.platform.as_str().to_ascii_uppercase()))
    });
    let unknown = renamed.as_deref().unwrap_or(unknown);
    known.min_by_key(|name| strsim::damerau_levenshtein(unknown, name))
}
