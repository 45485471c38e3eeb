//! The one table of configuration keys. Reading, the search for unknown keys, `--help` and the table in the README are all
//! made from it, so that none of them can know a key that another does not.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{ai, base, database, guard, http, log, media, platforms, queue, secrets, smtp, storage, worker};

/// What holds where a key is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// This very value, read as if somebody had written it.
    Value(&'static str),
    /// Something that depends on the rest of the configuration; the words are for people.
    Words(&'static str),
    /// Nothing: what the key is for stays off.
    Nothing,
}

/// One key: `CRIER_HTTP_ADDR` in the environment, `--http-addr` as a flag, `http_addr` in `crier.toml`.
#[derive(Clone, Debug)]
pub struct Key {
    /// Without the prefix, in capitals: `HTTP_ADDR`.
    pub name: Cow<'static, str>,
    pub meaning: Cow<'static, str>,
    pub preset: Preset,
    /// A right value, shown where a wrong one was given.
    pub example: &'static str,
    /// The value may hold a password or a key: it is never shown.
    pub secret: bool,
}

impl Key {
    pub(super) const fn new(name: &'static str, meaning: &'static str, preset: Preset, example: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), meaning: Cow::Borrowed(meaning), preset, example, secret: false }
    }

    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        variable(&self.name)
    }

    /// The flag, without its dashes.
    pub fn flag(&self) -> String {
        flag(&self.name)
    }

    /// The default in words, as `--help` and the README show it.
    pub fn default_text(&self) -> &'static str {
        match self.preset {
            Preset::Value("") => "empty",
            Preset::Value(text) | Preset::Words(text) => text,
            Preset::Nothing => "unset",
        }
    }
}

pub(super) fn variable(name: &str) -> String {
    format!("CRIER_{name}")
}

pub(super) fn flag(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Every key of a section, in the order in which people read them. A new section adds its `KEYS` here.
const SECTIONS: &[&[Key]] = &[
    http::KEYS,
    base::KEYS,
    database::KEYS,
    queue::KEYS,
    secrets::KEYS,
    storage::KEYS,
    media::KEYS,
    smtp::KEYS,
    ai::KEYS,
    guard::KEYS,
    worker::KEYS,
    log::KEYS,
];

/// Every key but the platforms', which are the same for each.
pub fn fixed() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().copied().flatten()
}

/// Every key there is.
pub fn all() -> Vec<Key> {
    fixed().cloned().chain(platforms::keys()).collect()
}

/// The known name that an unknown one most resembles.
pub(super) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|name| strsim::damerau_levenshtein(unknown, name))
}

/// The part of `--help` that lists the options.
pub fn help() -> String {
    let mut out = String::from(
        "Options. Each is also a variable (--http-addr is CRIER_HTTP_ADDR) and a key of crier.toml (http_addr).\n\
         A flag goes before a variable, a variable before the file.\n\n  \
         --config FILE\n        The file to read in place of crier.toml in the working directory.\n",
    );
    for key in fixed() {
        let _ = write!(out, "  --{} VALUE\n        {} [{}]\n", key.flag(), key.meaning, key.default_text());
    }
    for part in platforms::PARTS {
        let _ = write!(out, "  --<platform>-{} VALUE\n        {}\n", flag(part.name), part.meaning);
    }
    out
}

/// The README's table of keys, in Markdown.
pub fn markdown_table() -> String {
    let mut out = String::from("| Variable | Meaning | Default | Example |\n|---|---|---|---|\n");
    for key in fixed() {
        let default = match key.preset {
            Preset::Value(text) if !text.is_empty() => format!("`{text}`"),
            _ => key.default_text().to_owned(),
        };
        let _ = writeln!(out, "| `{}` | {} | {default} | `{}` |", key.variable(), key.meaning, key.example);
    }
    for part in platforms::PARTS {
        let _ = writeln!(
            out,
            "| `CRIER_<PLATFORM>_{}` | {} | {} | `{}` |",
            part.name,
            part.meaning,
            part.preset_text(),
            part.example
        );
    }
    out
}
