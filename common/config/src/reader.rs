//! Merges the three sources, parses single values and collects all problems.

use std::collections::{BTreeMap, BTreeSet};

use super::ConfigProblem;
use super::key::{self, DefaultValue, Key};
use super::source::ConfigSource;
use super::values;

/// The source of a value; a later variant overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    File,
    Variable,
    Flag,
}

impl Origin {
    /// Returns the key in the form in which it is written in this source.
    fn label(self, name: &str) -> String {
        match self {
            Self::File => format!("{} (configuration file)", name.to_ascii_lowercase()),
            Self::Variable => key::variable(name),
            Self::Flag => format!("--{}", key::flag(name)),
        }
    }
}

struct FoundValue {
    value: String,
    origin: Origin,
}

/// The configured values and the problems found so far.
pub(super) struct Reader {
    found: BTreeMap<String, FoundValue>,
    /// The `AWS_…` variables. No other variables without our prefix are read.
    aws: BTreeMap<String, String>,
    bad: BTreeSet<String>,
    pub(super) problems: Vec<ConfigProblem>,
}

impl Reader {
    /// `known`: the names of all keys.
    pub(super) fn new(source: &ConfigSource, known: &BTreeSet<String>) -> Self {
        let mut reader = Self {
            found: BTreeMap::new(),
            aws: BTreeMap::new(),
            bad: BTreeSet::new(),
            problems: source.problems.clone(),
        };
        if let Some(text) = &source.file {
            reader.read_file(text, known);
        }
        let kubernetes = source.env.iter().any(|(name, _)| name == "KUBERNETES_SERVICE_HOST");
        for (variable, value) in &source.env {
            if variable.starts_with("AWS_") {
                reader.aws.insert(variable.clone(), value.trim().to_owned());
            } else if let Some(name) = variable.strip_prefix("CRIER_") {
                let is_ignored =
                    TEST_VARIABLES.contains(&variable.as_str()) || (kubernetes && is_service_link(name, value));
                if !is_ignored {
                    reader.add_value(name.to_owned(), value, Origin::Variable, known);
                }
            }
        }
        for (flag, value) in &source.flags {
            let name = flag.trim_start_matches('-').replace('-', "_").to_ascii_uppercase();
            reader.add_value(name, value, Origin::Flag, known);
        }
        reader
    }

    fn add_value(&mut self, name: String, value: &str, origin: Origin, known: &BTreeSet<String>) {
        if !known.contains(&name) {
            let hint = key::nearest(&name, known.iter().map(String::as_str)).unwrap_or_default();
            self.add_problem(
                origin.label(&name),
                format!("is unknown; the nearest known key is {}", origin.label(hint)),
            );
        } else if !value.trim().is_empty() {
            // Templates leave unused variables empty (`CRIER_SMTP_URL=`), so an empty value counts as unset.
            self.found.insert(name, FoundValue { value: value.trim().to_owned(), origin });
        }
    }

    fn read_file(&mut self, text: &str, known: &BTreeSet<String>) {
        let table = match toml::from_str::<toml::Table>(text) {
            Ok(table) => table,
            Err(error) => {
                let message = format!("{}; write, for example, http_addr = \"…\"", values::toml_error(text, &error));
                return self.add_problem("configuration file".to_owned(), message);
            }
        };
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (name, value) in flat {
            let label = Origin::File.label(&name);
            match value_text(value) {
                Some(_) if self.found.contains_key(&name) => {
                    self.add_problem(label, "is set twice, as a key and in a table; remove one of them".to_owned());
                }
                Some(text) => self.add_value(name, &text, Origin::File, known),
                None => {
                    self.add_problem(label, "must be a string, a number, true, false or a list of strings".to_owned());
                }
            }
        }
    }

    /// Returns the parsed value of a key, or its default if it is unset or invalid.
    pub(super) fn parse<T>(&mut self, key: &Key, parser: impl Fn(&str) -> Result<T, String>) -> T {
        let text = match key.default {
            DefaultValue::Value(text) => text,
            DefaultValue::Text(_) | DefaultValue::Unset => "",
        };
        self.optional(key, &parser).unwrap_or_else(|| parser(text).expect("a test reads the default of every key"))
    }

    /// Returns the parsed value of a key; `None` if it is unset or invalid.
    pub(super) fn optional<T>(&mut self, key: &Key, parser: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let FoundValue { value, origin } = self.found.get(key.name.as_ref())?;
        match parser(value) {
            Ok(value) => Some(value),
            Err(wrong) => {
                // A URL may contain a password that does not belong there.
                let is_secret = key.secret || (value.contains("://") && value.contains('@'));
                let subject = if is_secret { "the value".to_owned() } else { format!("`{value}`") };
                let label = origin.label(&key.name);
                self.bad.insert(key.name.to_string());
                self.add_problem(label, format!("{subject} {wrong}; use a value such as {}", key.example));
                None
            }
        }
    }

    /// Returns whether the key was set, to a valid or invalid value.
    pub(super) fn is_set(&self, key: &Key) -> bool {
        self.found.contains_key(key.name.as_ref())
    }

    /// Returns whether a problem with this key was already reported.
    pub(super) fn is_bad(&self, key: &Key) -> bool {
        self.bad.contains(key.name.as_ref())
    }

    /// Returns a variable of the AWS tools; `None` if it is unset or empty.
    pub(super) fn aws(&self, name: &str) -> Option<String> {
        self.aws.get(name).filter(|value| !value.is_empty()).cloned()
    }

    pub(super) fn add_problem(&mut self, key: String, message: String) {
        self.problems.push(ConfigProblem { key, message });
    }
}

/// Variables of the project's tests. Processes that tests start inherit them.
const TEST_VARIABLES: &[&str] = &["CRIER_TEST_PG_URL", "CRIER_TEST_REDIS_URL"];

/// Returns whether Kubernetes created the variable. Kubernetes passes the address of each service to every container,
/// and the variables of a service named `crier` or `crier-api` start with our prefix.
fn is_service_link(name: &str, value: &str) -> bool {
    let name = format!("_{name}");
    let protocol = |text: &str| ["tcp", "udp"].iter().any(|word| text.to_ascii_lowercase().contains(word));
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && protocol(value))
        || name.split_once("_PORT_").is_some_and(|(_, rest)| protocol(rest))
}

/// Flattens tables: `[http] addr = …` is `HTTP_ADDR`, like `http_addr = …`.
fn flatten<'a>(prefix: &str, table: &'a toml::Table, out: &mut Vec<(String, &'a toml::Value)>) {
    for (word, value) in table {
        let name = format!("{prefix}{}", word.replace('-', "_").to_ascii_uppercase());
        match value {
            toml::Value::Table(inner) => flatten(&format!("{name}_"), inner, out),
            value => out.push((name, value)),
        }
    }
}

fn value_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => items
            .iter()
            .map(|item| match item {
                toml::Value::Array(_) => None,
                item => value_text(item),
            })
            .collect::<Option<Vec<_>>>()
            .map(|items| items.join(",")),
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}
