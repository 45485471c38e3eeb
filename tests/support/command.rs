//! Runs operator commands with the real binary on a test's database.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::process::program;
use super::store::TestStore;

/// The result of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// Returns stdout of a successful command.
    #[track_caller]
    pub fn expect_stdout(&self) -> &str {
        assert_eq!(self.status, Some(0), "{self:?}");
        &self.out
    }

    /// Returns stderr of a command that failed with this exit status.
    #[track_caller]
    pub fn expect_failure(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{self:?}");
        &self.err
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.expect_stdout()).expect("JSON")
    }
}

/// The secret key of [`TestStore`], as in the configuration.
const SECRET_KEY: &str = "1:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// Returns a `crier` command that is not started yet.
pub fn command(s: &TestStore, args: &[&str]) -> Command {
    let place = s.place();
    let url = if s.is_postgres() { place } else { format!("sqlite://{place}") };
    let mut command = Command::new(program("crier"));
    command.args(args).env_clear().env("CRIER_DATABASE_URL", url).env("CRIER_LOG", "off").stdin(Stdio::null());
    command.env("CRIER_SECRET_KEY", SECRET_KEY).env("CRIER_HTTP_ADDR", "127.0.0.1:0");
    command.env("CRIER_PUBLIC_URL", "http://127.0.0.1:8080");
    command
}

/// Runs `crier` with these arguments.
pub fn crier(s: &TestStore, args: &[&str]) -> CommandOutput {
    let dir = tempfile::tempdir().expect("a directory");
    run(command(s, args).env("CRIER_DATA_DIR", dir.path()).current_dir(dir.path()))
}

/// A timeout longer than any command takes.
const NEVER: Duration = Duration::from_secs(90);

/// Runs a command and returns its result. Kills it after a timeout.
pub fn run(command: &mut Command) -> CommandOutput {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let id = child.id().to_string();
    let (ended, end) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if end.recv_timeout(NEVER) == Err(mpsc::RecvTimeoutError::Timeout) {
            drop(Command::new("kill").args(["-KILL", &id]).status());
        }
    });
    let out = child.wait_with_output().expect("it ends");
    drop(ended);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    CommandOutput { status: out.status.code(), out: text(out.stdout), err: text(out.stderr) }
}
