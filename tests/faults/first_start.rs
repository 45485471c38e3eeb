//! The first start, interrupted at each of its steps. Invariant: the next start continues and shows one working key.
//! Nothing exists twice, and no other user of the machine can read any of it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use crier_http::HttpClient;
use serde_json::Value;
use sqlx::{Connection as _, SqliteConnection};

use crate::support::client::{until, until_true};
use crate::support::images;
use crate::support::process::{Installation, on_both_forms, program};
use crate::support::servers::{self, free_port};

on_both_forms!(uploads_are_private_to_their_owner);

/// A directory with an empty data directory, for one installation.
struct TestDirectory {
    dir: tempfile::TempDir,
    port: u16,
}

/// A starting process, which is killed when dropped.
struct Start {
    child: Child,
    lines: Receiver<String>,
    key: Option<String>,
}

impl Drop for Start {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TestDirectory {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), port: free_port() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Starts `crier` with this shell command; `"$0"` is the program.
    fn start(&self, shell_command: &str) -> Start {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("log"));
        let mut child = Command::new("sh")
            .args(["-c", shell_command])
            .arg(program("crier"))
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CRIER_DATA_DIR", self.data())
            .env("CRIER_HTTP_ADDR", format!("127.0.0.1:{}", self.port))
            .env("CRIER_PUBLIC_URL", format!("http://127.0.0.1:{}", self.port))
            .env("CRIER_OPS_ADDR", format!("127.0.0.1:{}", free_port()))
            .env("CRIER_LOG", "warn")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Start { child, lines, key: None }
    }

    fn start_program(&self) -> Start {
        self.start("exec setpriv --pdeathsig KILL \"$0\"")
    }

    /// Lists the brands; asserts that the API accepts the key.
    async fn brands(&self, key: &str) -> Value {
        let http = HttpClient::trusted(Duration::from_secs(20), 1 << 20);
        let url = format!("http://127.0.0.1:{}/api/public/v1/brands", self.port);
        let response = http.send(http.request(reqwest::Method::GET, &url).bearer_auth(key)).await.expect("a response");
        assert_eq!(response.status, 200);
        serde_json::from_slice(&response.body).expect("JSON")
    }

    async fn counts(&self) -> Vec<i64> {
        let url = format!("sqlite://{}", self.data().join("crier.db").display());
        let mut connection = SqliteConnection::connect(&url).await.expect("a database");
        let mut counts = Vec::new();
        for sql in [
            "SELECT count(*) FROM workspaces",
            "SELECT count(*) FROM users",
            "SELECT count(*) FROM brands",
            "SELECT count(*) FROM api_keys",
        ] {
            counts.push(sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a number"));
        }
        counts
    }

    /// Asserts that a start without faults shows a key and that everything exists once.
    async fn assert_start_succeeds(&self) {
        let mut start = self.start_program();
        let key =
            start.wait_for_key_or_exit().await.unwrap_or_else(|status| panic!("it ended ({status:?}): {}", self.log()));
        assert_eq!(self.brands(&key).await["data"].as_array().map(Vec::len), Some(1));
        wait_for_counts(self, &[1, 1, 1, 1]).await;
        until("the key is recorded as shown", || async { (self.keys_to_show().await == 0).then_some(()) }).await;
        drop(start);
        self.assert_complete();
    }

    async fn keys_to_show(&self) -> i64 {
        let url = format!("sqlite://{}", self.data().join("crier.db").display());
        let mut connection = SqliteConnection::connect(&url).await.expect("a database");
        sqlx::query_scalar("SELECT count(*) FROM first_key").fetch_one(&mut connection).await.expect("a number")
    }

    /// Asserts that no temporary key file is left, and that only the owner has access.
    fn assert_complete(&self) {
        let entries = std::fs::read_dir(self.data()).expect("the data directory");
        let names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
        assert!(names.iter().all(|name| !name.starts_with("secret.key.")), "{names:?}");
        assert_eq!(list_accessible_to_others(&self.data()), Vec::<String>::new());
    }
}

async fn wait_for_counts(directory: &TestDirectory, counts: &[i64]) {
    until("each thing once", || async { (directory.counts().await == counts).then_some(()) }).await;
}

impl Start {
    fn key(&mut self) -> Option<String> {
        loop {
            match self.lines.try_recv() {
                Ok(line) => {
                    self.key = self.key.take().or(shown_key(&line));
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.key.clone(),
            }
        }
    }

    /// Kills the process, and returns the key that it has shown, if any.
    fn kill(&mut self) -> Option<String> {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
        self.lines.iter().find_map(|line| shown_key(&line))
    }

    /// Waits for the key or the exit of the process; returns the key, or the exit status.
    async fn wait_for_key_or_exit(&mut self) -> Result<String, Option<i32>> {
        until("a key or the end", || {
            let ended = self.child.try_wait().expect("a child");
            let found = self.key().map(Ok).or(ended.map(|status| Err(status.code())));
            std::future::ready(found)
        })
        .await
    }
}

fn shown_key(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("Your key")?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// Returns the files and directories that other users can access, with their modes.
fn list_accessible_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), metadata.mode() & 0o777));
        }
        if metadata.is_dir() {
            found.extend(list_accessible_to_others(&path));
        }
    }
    found
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// Limits the file size, as if the disk were full at that byte: in the key, the database, or the database's log.
#[tokio::test]
async fn first_start_recovers_from_a_full_disk_at_any_byte() {
    let directory = TestDirectory::new();
    for bytes in [0, 1, 20, 45, 100, 4_096, 20_000, 70_000, 200_000] {
        let shell_command =
            format!("trap '' XFSZ; exec prlimit --fsize={bytes}:unlimited setpriv --pdeathsig KILL \"$0\"");
        let mut start = directory.start(&shell_command);
        // A start that waits for the database to recover is killed.
        let result = tokio::time::timeout(Duration::from_secs(5), start.wait_for_key_or_exit()).await;
        assert!(!matches!(result, Ok(Ok(_))), "{bytes} bytes are too few to start with");
        drop(start);
        let temporary_keys = directory.data().read_dir().map_or(0, |entries| {
            entries
                .filter(|entry| {
                    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("secret.key."))
                })
                .count()
        });
        assert_eq!(temporary_keys, 0, "a draft is left after {bytes} bytes");
    }
    directory.assert_start_succeeds().await;
}

#[tokio::test]
async fn first_start_recovers_from_a_kill_at_any_step() {
    let directory = TestDirectory::new();
    let mut shown = None;
    for step in ["data", "data/secret.key", "data/crier.db", "data/crier.db-wal", "data/files"] {
        let mut start = directory.start_program();
        until_true(step, || directory.dir.path().join(step).exists()).await;
        shown = start.kill().or(shown);
    }
    let mut start = directory.start_program();
    let key = match shown {
        // On a busy machine, a start can be fast enough to show the key before it is killed.
        Some(key) => key,
        None => start
            .wait_for_key_or_exit()
            .await
            .unwrap_or_else(|status| panic!("it ended ({status:?}): {}", directory.log())),
    };
    until_true("it listens", || std::net::TcpStream::connect(("127.0.0.1", directory.port)).is_ok()).await;
    assert_eq!(directory.brands(&key).await["data"].as_array().map(Vec::len), Some(1));
    drop(start);
    assert_eq!(directory.counts().await, [1, 1, 1, 1]);
    directory.assert_complete();
}

#[tokio::test]
async fn obstacles_in_the_data_directory_are_reported() {
    let directory = TestDirectory::new();
    std::fs::write(directory.data(), b"no directory").unwrap();
    assert_eq!(directory.start_program().wait_for_key_or_exit().await, Err(Some(1)));
    std::fs::remove_file(directory.data()).unwrap();
    for name in ["secret.key", "crier.db"] {
        let obstacle = directory.data().join(name);
        std::fs::create_dir_all(&obstacle).unwrap();
        assert_eq!(directory.start_program().wait_for_key_or_exit().await, Err(Some(1)), "{name}: {}", directory.log());
        assert!(directory.log().contains(name), "{}", directory.log());
        std::fs::remove_dir(&obstacle).unwrap();
    }
    set_mode(&directory.data(), 0o700);
    directory.assert_start_succeeds().await;
}

/// The key was created by a start that was never able to listen, and has not been shown.
#[tokio::test]
async fn the_api_key_is_shown_by_the_first_successful_start() {
    let directory = TestDirectory::new();
    let listener = TcpListener::bind(("127.0.0.1", directory.port)).unwrap();
    assert_eq!(directory.start_program().wait_for_key_or_exit().await, Err(Some(1)));
    drop(listener);
    // Writes to stdout fail.
    let start = directory.start("exec setpriv --pdeathsig KILL \"$0\" >/dev/full");
    until_true("the log has the failure", || directory.log().contains("failed to show the first key")).await;
    drop(start);
    directory.assert_start_succeeds().await;
    let mut start = directory.start_program();
    until_true("it listens", || std::net::TcpStream::connect(("127.0.0.1", directory.port)).is_ok()).await;
    servers::signal(&start.child, "TERM");
    assert_eq!(start.wait_for_key_or_exit().await, Err(Some(0)), "it is shown once");
}

#[tokio::test]
async fn stored_data_is_private_to_its_owner() {
    let directory = TestDirectory::new();
    std::fs::create_dir(directory.data()).unwrap();
    set_mode(&directory.data(), 0o755);
    directory.assert_start_succeeds().await;
    assert!(
        directory.log().contains("is accessible to other users of this machine (mode 0755)"),
        "{}",
        directory.log()
    );
    assert_eq!(std::fs::metadata(directory.data()).unwrap().mode() & 0o777, 0o755, "the operator made it");
    // The modes that a copy of the directory may have.
    let modes = BTreeMap::from([("secret.key", 0o644), ("crier.db", 0o644), ("files", 0o755), ("files/media", 0o755)]);
    for (name, mode) in &modes {
        set_mode(&directory.data().join(name), *mode);
    }
    set_mode(&directory.data(), 0o700);
    let start = directory.start_program();
    until_true("it listens", || std::net::TcpStream::connect(("127.0.0.1", directory.port)).is_ok()).await;
    assert_eq!(list_accessible_to_others(&directory.data()), Vec::<String>::new());
    assert!(directory.log().contains("secret.key was accessible to other users"), "{}", directory.log());
    drop(start);
}

async fn uploads_are_private_to_their_owner(crier: Installation) {
    let brand = crier.brand().await;
    crier.upload(brand, &images::png(9, 9)).await.expect("it is taken");
    let data = crier.files().parent().expect("the data directory").to_owned();
    assert!(crier.files().join("media").read_dir().unwrap().next().is_some(), "there is an image");
    assert_eq!(list_accessible_to_others(&data), Vec::<String>::new());
}
