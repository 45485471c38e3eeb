//! Servers for tests, and each test's part of the servers that `./scripts/test` starts. `databases.rs` has the Postgres
//! databases.
//!
//! No state is shared in memory, so tests can run as threads of one process or as separate processes.

#![allow(dead_code, reason = "each test uses only a part")]

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher, Hasher as _, RandomState};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use crier_store::Db;
use tokio::sync::OnceCell;

/// The first port of the block of this process. No other test process has the same block.
static BLOCK: LazyLock<(UdpSocket, u16)> = LazyLock::new(|| {
    let free = |first| Some((UdpSocket::bind(("127.0.0.1", first)).ok()?, first));
    // The programs under test use only TCP, so a UDP socket on the first port reserves the block.
    (10_000..20_000).step_by(usize::from(BLOCK_SIZE)).find_map(free).expect("a block of ports is free")
});
const BLOCK_SIZE: u16 = 1_000;

/// Returns an unused port that a process can bind, and bind again after a restart. It is below the system's ephemeral
/// port range and below the ports of `scripts/servers`. No two tests get the same port, not even if they run in
/// different processes, or while the program that uses the port is restarted.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let random = RandomState::new().build_hasher().finish() % u64::from(BLOCK_SIZE);
        let port = BLOCK.1 + u16::try_from(random).expect("it is small");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && TAKEN.lock().expect("no panic").insert(port) {
            return port;
        }
    }
}

/// Returns the file of a database with the schema and no rows. The migrations run once for all tests of a process.
pub async fn sqlite() -> &'static [u8] {
    static FILE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let migrate = async || {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::sqlite(&dir.path().join("crier.db")).await.expect("a file");
        db.migrate().await.expect("a schema");
        let copy = dir.path().join("template.db");
        let Db::Sqlite { writer, .. } = &db else { unreachable!("it is SQLite") };
        // Includes the data that is still in the write-ahead log.
        let vacuum = sqlx::query("VACUUM INTO $1").bind(copy.display().to_string());
        vacuum.execute(&mut *writer.acquire().await.expect("a connection")).await.expect("a copy");
        db.close().await;
        std::fs::read(copy).expect("the copy")
    };
    FILE.get_or_init(migrate).await
}

/// Returns the URL of a Redis database that no other test uses. All databases share the channels of pub/sub, so
/// subscribers must use their own channels (the number at the end of the URL is unique).
pub async fn redis() -> String {
    let base = variable("CRIER_TEST_REDIS_URL");
    let base = base.trim_end_matches('/');
    let mut connection = connect_redis(&format!("{base}/0")).await;
    let number: u64 = redis::cmd("INCR").arg("crier:tests").query_async(&mut connection).await.expect("a number");
    // `./scripts/test` configures 10,000 databases; database 0 contains the counter.
    let url = format!("{base}/{}", 1 + number % 9_999);
    let mut own = connect_redis(&url).await;
    let _: () = redis::cmd("FLUSHDB").query_async(&mut own).await.expect("an empty database");
    url
}

/// Connects to a Redis server, with timeouts long enough for a busy machine. The client's defaults are a second for a
/// connection and half a second for a response.
pub async fn connect_redis(url: &str) -> redis::aio::MultiplexedConnection {
    let timeout = Some(Duration::from_secs(30));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
    let client = redis::Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the Redis of the tests responds")
}

/// A Redis server for a test that stops it. Its data is only in memory. It ends when this value is dropped, or when the
/// thread that started it ends.
pub struct RedisServer {
    port: u16,
    child: Child,
}

impl RedisServer {
    /// Starts a server on a free port and waits until it responds.
    pub fn start() -> Self {
        // If another program has bound the port in the meantime, use another port.
        for _ in 0..5 {
            let port = free_port();
            if let Some(child) = spawn_redis(port) {
                return Self { port, child };
            }
        }
        panic!("redis-server does not start; use ./scripts/test, which installs it");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Runs one command.
    pub async fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = connect_redis(&self.url()).await;
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.expect("a response")
    }

    /// Kills the server. Its data is lost.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the server from responding until `thaw`. It still accepts connections.
    pub fn freeze(&self) {
        signal(&self.child, "STOP");
    }

    pub fn thaw(&self) {
        signal(&self.child, "CONT");
    }

    /// Restarts the server on the same port, without data.
    pub fn restart(&mut self) {
        self.stop();
        self.child = spawn_redis(self.port).expect("the port is still free");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A Postgres server for a test that stops it. It ends when this value is dropped, or when the thread that started it
/// ends.
pub struct PostgresServer {
    dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl PostgresServer {
    /// The password of the user `crier`.
    const PASSWORD: &str = "correct-horse-battery";

    /// Creates a server on a free port and waits until it responds.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("password");
        std::fs::write(&file, Self::PASSWORD).expect("a file");
        if let Some(user) = postgres_user() {
            let chown = Command::new("chown").args(["-R", user]).arg(dir.path()).status();
            assert!(chown.expect("chown runs").success());
        }
        let created = postgres_command("initdb", dir.path())
            .arg("-D")
            .arg(dir.path().join("data"))
            .args(["-U", "crier", "-A", "password", "-E", "UTF8", "--locale", "C", "-N", "--pwfile"])
            .arg(&file)
            .stdout(Stdio::null())
            .status();
        assert!(created.expect("initdb runs").success());
        let port = free_port();
        let child = spawn_postgres(dir.path(), port);
        Self { dir, port, child }
    }

    pub fn url(&self) -> String {
        format!("postgres://crier:{}@127.0.0.1:{}/postgres", Self::PASSWORD, self.port)
    }

    /// Stops the server like `pg_ctl stop -m fast`: open transactions are aborted, and the shutdown is clean.
    pub fn stop_fast(&mut self) {
        self.end("INT");
    }

    /// Stops the server like `pg_ctl stop -m immediate`: a crash, from which the next start recovers.
    pub fn stop_immediately(&mut self) {
        self.end("QUIT");
    }

    fn end(&mut self, by: &str) {
        signal(&self.child, by);
        self.child.wait().expect("ends");
    }

    /// Restarts the server on the same port, with its data.
    pub fn restart(&mut self) {
        self.child = spawn_postgres(self.dir.path(), self.port);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop_immediately();
        }
    }
}

/// Returns the user of the package if the tests run as root, because Postgres does not run as root.
fn postgres_user() -> Option<&'static str> {
    let uid = Command::new("id").arg("-u").output().expect("id runs").stdout;
    (uid.trim_ascii() == b"0").then_some("postgres")
}

/// Returns the command of a server program. Debian does not put these programs on the path.
fn postgres_command(name: &str, dir: &Path) -> Command {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    let program = newest.map_or_else(|| name.to_owned(), |version| format!("/usr/lib/postgresql/{version}/bin/{name}"));
    let mut command = Command::new("setpriv");
    if let Some(user) = postgres_user() {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program).current_dir(dir).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts Postgres, and waits until it responds. After a crash, Postgres does not start while a process of the crashed
/// server is still running, so the start is retried.
fn spawn_postgres(dir: &Path, port: u16) -> Child {
    let mut child = run_postgres(dir, port);
    for _ in 0..3_000 {
        let ready = postgres_command("pg_isready", dir)
            .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
            .status()
            .expect("pg_isready runs");
        match child.try_wait().expect("a child") {
            Some(_) => child = run_postgres(dir, port),
            None if ready.success() => return child,
            None => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    panic!("Postgres does not start; ./scripts/test installs it. It wrote:\n{log}");
}

fn run_postgres(dir: &Path, port: u16) -> Child {
    postgres_command("postgres", dir)
        .arg("-D")
        .arg(dir.join("data"))
        .arg("-p")
        .arg(port.to_string())
        .arg("-k")
        .arg(dir)
        // No test simulates a power failure. Committed data survives a crash of the server without fsync.
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=150"])
        .args(["-c", "dynamic_shared_memory_type=mmap"])
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("log")).expect("a log"))
        .spawn()
        .expect("postgres starts")
}

fn spawn_redis(port: u16) -> Option<Child> {
    let mut child = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
        ])
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("setpriv (util-linux) and redis-server are installed; ./scripts/test does that");
    for _ in 0..6_000 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(child);
        }
        if child.try_wait().ok()?.is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    None
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success(), "no process for SIG{name}");
}

/// Returns an environment variable with the address of a server.
#[expect(clippy::disallowed_methods, reason = "reads the addresses of the test servers")]
pub fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run the tests with ./scripts/test, which starts the servers"))
}

mod tests {
    //! Tests of the infrastructure that the other tests depend on.

    use redis::AsyncCommands;

    use super::*;

    #[tokio::test]
    async fn each_test_has_a_redis_database_of_its_own() {
        let (one, two) = (redis().await, redis().await);
        assert_ne!(one, two);
        let (mut first, mut second) = (connect_redis(&one).await, connect_redis(&two).await);
        let _: () = first.set("key", 1).await.expect("written");
        let other: Option<i64> = second.get("key").await.expect("read");
        assert_eq!(other, None);
    }

    #[test]
    fn a_redis_server_can_be_stopped_and_started_again() {
        let mut server = RedisServer::start();
        let ping = |server: &RedisServer| -> redis::RedisResult<String> {
            redis::cmd("PING").query(&mut redis::Client::open(server.url())?.get_connection()?)
        };
        assert_eq!(ping(&server).expect("it responds"), "PONG");
        server.stop();
        assert!(ping(&server).is_err());
        server.restart();
        assert_eq!(ping(&server).expect("it responds again"), "PONG");
    }
}
