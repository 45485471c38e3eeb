//! The sources of the configuration, and the command line of the three separate processes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::ConfigProblem;

/// A function that reads a file; tests replace it.
pub type ReadFile = Box<dyn Fn(&Path) -> io::Result<String>>;

/// The three sources, not parsed yet, and the function that reads the plans file.
pub struct ConfigSource {
    /// The whole environment; only `CRIER_…` and `AWS_…` are read.
    pub(super) env: Vec<(String, String)>,
    /// The content of `crier.toml`.
    pub(super) file: Option<String>,
    /// `--http-addr 127.0.0.1:1` as `("http-addr", "127.0.0.1:1")`, with or without the dashes.
    pub(super) flags: Vec<(String, String)>,
    pub(super) read_file: ReadFile,
    /// Problems found while collecting the sources.
    pub(super) problems: Vec<ConfigProblem>,
}

impl ConfigSource {
    /// Creates a source from explicit values.
    pub fn new<E, F, K, V, L, W>(env: E, file: Option<String>, flags: F) -> Self
    where
        E: IntoIterator<Item = (K, V)>,
        F: IntoIterator<Item = (L, W)>,
        K: Into<String>,
        V: Into<String>,
        L: Into<String>,
        W: Into<String>,
    {
        Self {
            env: env.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            file,
            flags: flags.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            read_file: Box::new(|path| std::fs::read_to_string(path)),
            problems: Vec::new(),
        }
    }

    /// Replaces the function that reads the plans file.
    pub fn with_files(mut self, read_file: impl Fn(&Path) -> io::Result<String> + 'static) -> Self {
        self.read_file = Box::new(read_file);
        self
    }

    /// Collects the sources of this process: its environment, the file `config` (or `crier.toml` in the working
    /// directory, if that exists), and `flags`.
    pub fn of_process(config: Option<&Path>, flags: Vec<(String, String)>) -> Self {
        let mut problems = Vec::new();
        let mut env = Vec::new();
        #[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
        let variables = std::env::vars_os();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => env.push((name, value)),
                Err(_) if name.starts_with("CRIER_") => {
                    problems.push(ConfigProblem { key: name, message: "the value must be UTF-8".to_owned() });
                }
                Err(_) => {}
            }
        }
        let path = config.unwrap_or(Path::new("crier.toml"));
        let file = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && config.is_none() => None,
            Err(error) => {
                let message =
                    format!("`{}` cannot be read ({error}); name a TOML file that this user can read", path.display());
                problems.push(ConfigProblem { key: "configuration file".to_owned(), message });
                None
            }
        };
        Self { problems, ..Self::new(env, file, flags) }
    }
}

/// The parsed command line of `crier-api`, `crier-worker` or `crier-scheduler`.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    Help,
    Version,
    /// Run, with the file named by `--config` and the other flags.
    Run {
        config: Option<PathBuf>,
        flags: Vec<(String, String)>,
    },
}

impl Invocation {
    /// Parses arguments (without the program's name): `--key value` and `--key=value`. Unknown keys are reported later,
    /// by [`super::Config::load`].
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, super::ConfigError> {
        let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
        let (mut config, mut flags, mut problems) = (None, Vec::new(), Vec::new());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "-h" | "--help" => return Ok(Self::Help),
                "-V" | "--version" => return Ok(Self::Version),
                _ => {}
            }
            let Some(flag) = arg.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                let message = "is not a flag; flags have the form --key VALUE, and --help lists them".to_owned();
                problems.push(ConfigProblem { key: format!("`{arg}`"), message });
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (flag.to_owned(), args.next()),
            };
            match value {
                None => problems.push(ConfigProblem { key: arg, message: "requires a value".to_owned() }),
                Some(value) if name == "config" => config = Some(PathBuf::from(value)),
                Some(value) => flags.push((name, value)),
            }
        }
        if problems.is_empty() { Ok(Self::Run { config, flags }) } else { Err(super::ConfigError { problems }) }
    }
}
