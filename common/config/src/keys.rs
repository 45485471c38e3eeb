//! The table of configuration keys. Parsing, the detection of unknown keys, `--help` and the table in
//! `docs/configuration.md` are all derived from it, so they cannot disagree.

use std::borrow::Cow;
use std::fmt::Write as _;

use crier_domain::platform::Platform;

use super::key::{DefaultValue, Key, flag};
use super::{ai, base, database, guard, http, log, media, platforms, queue, secrets, smtp, storage, traces, worker};

/// The keys of every section, in the order of the documentation. A new section adds its `KEYS` here.
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
    traces::KEYS,
];

/// Returns all keys except those of platforms, which are the same for each platform.
pub fn fixed() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().copied().flatten()
}

/// Returns all keys.
pub fn all() -> Vec<Key> {
    fixed().cloned().chain(platforms::keys()).collect()
}

/// Returns the part of `--help` that lists the options.
pub fn help() -> String {
    let mut out = String::from(
        "Options. Each is also an environment variable (--http-addr is CRIER_HTTP_ADDR) and a key in \
         crier.toml (http_addr).\n\
         Flags override variables, which override the file.\n\n  \
         --config FILE\n        The file to read instead of crier.toml in the working directory.\n",
    );
    for key in fixed() {
        let _ = write!(out, "  --{} VALUE\n        {} [{}]\n", key.flag(), key.description, key.default_text());
    }
    let names: Vec<String> = Platform::ALL.iter().map(|platform| flag(platform.as_str())).collect();
    let _ = write!(out, "\nIn the following options, <platform> is one of (X is twitter): {}.\n\n", names.join(", "));
    for part in platforms::parts() {
        let _ = write!(out, "  --<platform>-{} VALUE\n        {}\n", flag(part.name), part.description);
    }
    out
}

/// Returns the table of keys in `docs/configuration.md`.
pub fn markdown_table() -> String {
    let mut out = String::from("| Variable | Meaning | Default | Example |\n|---|---|---|---|\n");
    for key in fixed() {
        let default = match key.default {
            DefaultValue::Value(text) if !text.is_empty() => format!("`{text}`"),
            _ => key.default_text().to_owned(),
        };
        let example = example_cell(key.example);
        let _ = writeln!(out, "| `{}` | {} | {default} | {example} |", key.variable(), key.description);
    }
    for part in platforms::parts() {
        let _ = writeln!(
            out,
            "| `CRIER_<PLATFORM>_{}` | {} | {} | {} |",
            part.name,
            part.description,
            part.default_text(),
            example_cell(part.example)
        );
    }
    out
}

/// Returns an example as code. An example that already contains backticks is returned unchanged, because Markdown
/// cannot nest them.
fn example_cell(example: &str) -> Cow<'_, str> {
    if example.contains('`') { Cow::Borrowed(example) } else { Cow::Owned(format!("`{example}`")) }
}
