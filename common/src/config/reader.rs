//! Puts the three sources on top of each other, hands out single values, and collects everything that is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::keys::{self, Key, Preset};
use super::source::Source;
use super::values;

/// Where a value came from; a later one goes before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    File,
    Variable,
    Flag,
}

impl Origin {
    /// The key as somebody who wrote it there knows it.
    fn label(self, name: &str) -> String {
        match self {
            Self::File => format!("{} (configuration file)", name.to_ascii_lowercase()),
            Self::Variable => keys::variable(name),
            Self::Flag => format!("--{}", keys::flag(name)),
        }
    }
}

struct Found {
    value: String,
    origin: Origin,
}

/// The values that were given, and the problems found so far.
pub(super) struct Reader {
    found: BTreeMap<String, Found>,
    /// `AWS_…`, the only variables of others that are read.
    aws: BTreeMap<String, String>,
    bad: BTreeSet<String>,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(source: &Source) -> Self {
        let mut reader = Self {
            found: BTreeMap::new(),
            aws: BTreeMap::new(),
            bad: BTreeSet::new(),
            problems: source.problems.clone(),
        };
        let known: BTreeSet<String> = keys::all().into_iter().map(|key| key.name.into_owned()).collect();
        if let Some(text) = &source.file {
            reader.read_file(text, &known);
        }
        let kubernetes = source.env.iter().any(|(name, _)| name == "KUBERNETES_SERVICE_HOST");
        for (variable, value) in &source.env {
            if variable.starts_with("AWS_") {
                reader.aws.insert(variable.clone(), value.trim().to_owned());
            } else if let Some(name) = variable.strip_prefix("CRIER_") {
                let of_others = OWN_TESTS.contains(&variable.as_str()) || (kubernetes && is_service_link(name, value));
                if !of_others {
                    reader.take(name.to_owned(), value, Origin::Variable, &known);
                }
            }
        }
        for (flag, value) in &source.flags {
            let name = flag.trim_start_matches('-').replace('-', "_").to_ascii_uppercase();
            reader.take(name, value, Origin::Flag, &known);
        }
        reader
    }

    fn take(&mut self, name: String, value: &str, origin: Origin, known: &BTreeSet<String>) {
        if !known.contains(&name) {
            let hint = keys::nearest(&name, known.iter().map(String::as_str)).unwrap_or_default();
            self.problem(origin.label(&name), format!("is unknown; the nearest known key is {}", origin.label(hint)));
        } else if !value.trim().is_empty() {
            // Empty is what a template leaves where nothing was meant (`CRIER_SMTP_URL=`): as good as not given.
            self.found.insert(name, Found { value: value.trim().to_owned(), origin });
        }
    }

    fn read_file(&mut self, text: &str, known: &BTreeSet<String>) {
        let table = match toml::from_str::<toml::Table>(text) {
            Ok(table) => table,
            Err(error) => {
                let message = format!("{}; write for example http_addr = \"…\"", values::toml_fault(text, &error));
                return self.problem("configuration file".to_owned(), message);
            }
        };
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (name, value) in flat {
            let label = Origin::File.label(&name);
            match value_text(value) {
                Some(_) if self.found.contains_key(&name) => {
                    self.problem(label, "is there twice, by itself and in a table; leave one of them".to_owned());
                }
                Some(text) => self.take(name, &text, Origin::File, known),
                None => self.problem(label, "must be a text, a number, true, false or a list of texts".to_owned()),
            }
        }
    }

    /// The value of a key whose preset is a value, or that preset.
    pub(super) fn parse<T>(&mut self, key: &Key, parser: impl Fn(&str) -> Result<T, String>) -> T {
        let preset = match key.preset {
            Preset::Value(text) => text,
            Preset::Words(_) | Preset::Nothing => "",
        };
        self.optional(key, &parser).unwrap_or_else(|| parser(preset).expect("a test reads the preset of every key"))
    }

    /// The value of a key, `None` where it is not set or wrong.
    pub(super) fn optional<T>(&mut self, key: &Key, parser: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let Found { value, origin } = self.found.get(key.name.as_ref())?;
        match parser(value) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let subject = if key.secret { "the value".to_owned() } else { format!("`{value}`") };
                let label = origin.label(&key.name);
                self.bad.insert(key.name.to_string());
                self.problem(label, format!("{subject} {wrong}; a right value is for example {}", key.example));
                None
            }
        }
    }

    /// Whether the key was given, with a right value or a wrong one.
    pub(super) fn is_set(&self, key: &Key) -> bool {
        self.found.contains_key(key.name.as_ref())
    }

    /// Whether a problem with this key was told already.
    pub(super) fn is_bad(&self, key: &Key) -> bool {
        self.bad.contains(key.name.as_ref())
    }

    /// A variable of the AWS tools, `None` where it is unset or empty.
    pub(super) fn aws(&self, name: &str) -> Option<String> {
        self.aws.get(name).filter(|value| !value.is_empty()).cloned()
    }

    pub(super) fn problem(&mut self, key: String, message: String) {
        self.problems.push(Problem { key, message });
    }
}

/// What the project's own tests put into the environment; the processes that they start see it too.
const OWN_TESTS: &[&str] = &["CRIER_TEST_PG_URL", "CRIER_TEST_REDIS_URL"];

/// Kubernetes tells every container the address of each service: one named `crier` or `crier-api` makes variables that
/// begin like ours and that nobody wrote.
fn is_service_link(name: &str, value: &str) -> bool {
    let name = format!("_{name}");
    let protocol = |text: &str| ["tcp", "udp"].iter().any(|word| text.to_ascii_lowercase().contains(word));
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && protocol(value))
        || name.split_once("_PORT_").is_some_and(|(_, rest)| protocol(rest))
}

/// `[http] addr = …` is `HTTP_ADDR`, as `http_addr = …` is.
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
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => items
            .iter()
            .map(|item| match item {
                toml::Value::Array(_) => None,
                item => value_text(item),
            })
            .collect::<Option<Vec<_>>>()
            .map(|items| items.join(",")),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}
