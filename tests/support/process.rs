//! Real processes of Crier, for tests that kill, freeze and starve them: `crier` on SQLite, or the separate ones over
//! Postgres and Redis, several of a role where a test starts more (`crier-worker#2`).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crier_common::http::HttpClient;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};

use super::client::{Client, until};
use super::servers::{self, TestDatabase, free_port};

/// Which processes there are; as a [`Client`] it talks to them.
pub struct Installation {
    client: Client,
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    split: bool,
    /// How many files a process may have open; `None`: as many as the tests may.
    descriptors: Option<u32>,
    running: BTreeMap<String, Running>,
    _database: Option<TestDatabase>,
}

struct Running {
    child: Child,
    /// Where it says how it is.
    ops: String,
}

const SPLIT: [&str; 3] = ["crier-api", "crier-worker", "crier-scheduler"];

impl Deref for Installation {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The program of a process, built beside `crier`.
pub fn program(name: &str) -> PathBuf {
    let name = name.split('#').next().unwrap_or(name);
    let path = Path::new(env!("CARGO_BIN_EXE_crier")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: run the tests with ./scripts/test, which builds all programs");
    path
}

impl Installation {
    /// `crier` on SQLite.
    pub async fn embedded() -> Self {
        Self::embedded_with(&[]).await
    }

    /// The three processes.
    pub async fn split() -> Self {
        Self::split_with(&[]).await
    }

    /// The same with keys of the configuration.
    pub async fn embedded_with(keys: &[(&str, &str)]) -> Self {
        Self::start(false, None, keys).await
    }

    /// `crier` on SQLite, which may have so many files open and no more.
    pub async fn embedded_with_descriptors(descriptors: u32) -> Self {
        Self::start(false, Some(descriptors), &[]).await
    }

    /// The same with keys of the configuration; the servers may be among them.
    pub async fn split_with(keys: &[(&str, &str)]) -> Self {
        let (database, redis) = (migrated().await, servers::redis().await);
        let own = [
            ("CRIER_SECRET_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
            ("CRIER_DATABASE_URL", &database.url),
            ("CRIER_REDIS_URL", &redis),
        ];
        let mut this = Self::start(true, None, &[own.as_slice(), keys].concat()).await;
        this._database = Some(database);
        this
    }

    async fn start(split: bool, descriptors: Option<u32>, keys: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in [
            ("CRIER_HTTP_ADDR", format!("127.0.0.1:{port}").as_str()),
            ("CRIER_PUBLIC_URL", &url),
            ("CRIER_DATA_DIR", &dir.path().join("data").display().to_string()),
            ("CRIER_SANDBOX", "true"),
            ("CRIER_PLATFORM_TIMEOUT", "2s"),
            ("CRIER_ALLOWED_PRIVATE_NETWORKS", "127.0.0.0/8"),
            ("CRIER_LOG", "warn"),
        ]
        .iter()
        .chain(keys)
        {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        let client = Client { http: HttpClient::trusted(Duration::from_secs(20), 4 << 20), url, key: String::new() };
        let mut this = Self { client, dir, env, split, descriptors, running: BTreeMap::new(), _database: None };
        if split {
            this.command(&["migrate"]);
        }
        this.start_all().await;
        this.client.key = this.command(&["key", "create", "--user", "owner@localhost"]).trim().to_owned();
        this
    }

    /// Runs a command of the operator's; gives what it printed.
    pub fn command(&self, args: &[&str]) -> String {
        let out = Command::new(program("crier"))
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(self.dir.path())
            .output()
            .expect("crier runs");
        assert!(out.status.success(), "crier {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    /// The names of the processes that there are at first.
    pub fn names(&self) -> Vec<&'static str> {
        if self.split { SPLIT.to_vec() } else { vec!["crier"] }
    }

    pub fn is_split(&self) -> bool {
        self.split
    }

    /// The process that has the role (`api`, `worker`, `scheduler`).
    pub fn of(&self, role: &str) -> String {
        if self.split { format!("crier-{role}") } else { "crier".to_owned() }
    }

    /// Starts those that do not run, and waits until they are ready.
    pub async fn start_all(&mut self) {
        for name in self.names() {
            if !self.running.contains_key(name) {
                self.start_one(name).await;
            }
        }
    }

    /// Starts a process, one more of its role where its name has a number (`crier-worker#2`), and waits until it is ready.
    pub async fn start_one(&mut self, name: &str) {
        self.start_one_with(name, &[]).await;
    }

    /// The same with keys of its own.
    pub async fn start_one_with(&mut self, name: &str, keys: &[(&str, &str)]) {
        let ops = format!("127.0.0.1:{}", free_port());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{name}.log")))
            .expect("a log");
        // A file that is to grow past the limit of [`Installation::limit_files`] is an error then, and no signal that kills.
        let child = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ${1:+ulimit -n $1}; exec setpriv --pdeathsig KILL \"$0\""])
            .arg(program(name))
            .args(self.descriptors.map(|descriptors| descriptors.to_string()))
            .env_clear()
            .envs(&self.env)
            .envs(keys.iter().copied())
            .env("CRIER_OPS_ADDR", &ops)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        self.running.insert(name.to_owned(), Running { child, ops });
        self.until_ready(name).await;
    }

    pub async fn until_ready(&self, name: &str) {
        until(&format!("{name} is ready"), || async { (self.readiness(name).await?.0 == 200).then_some(()) }).await;
    }

    /// What `/readyz` of a process answers; `None` where nobody does.
    pub async fn readiness(&self, name: &str) -> Option<(u16, Value)> {
        let (status, body) = self.ask(name, "readyz").await?;
        Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
    }

    /// A metric of a process, by its whole name with the labels.
    pub async fn metric(&self, name: &str, metric: &str) -> Option<f64> {
        self.metrics(name).await?.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
    }

    /// What a process shows as its metrics.
    pub async fn metrics(&self, name: &str) -> Option<String> {
        Some(self.ask(name, "metrics").await?.1)
    }

    async fn ask(&self, name: &str, path: &str) -> Option<(u16, String)> {
        let url = format!("http://{}/{path}", self.running[name].ops);
        let answer = self.http.send(self.http.request(reqwest::Method::GET, &url)).await.ok()?;
        Some((answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).ok()?))
    }

    /// `kill -9`.
    pub fn kill(&mut self, name: &str) {
        if let Some(mut running) = self.running.remove(name) {
            running.child.kill().expect("can be killed");
            running.child.wait().expect("ends");
        }
    }

    /// SIGTERM; gives the exit status.
    pub async fn terminate(&mut self, name: &str) -> Option<i32> {
        self.signal(name, "TERM");
        self.ended(name).await
    }

    /// Waits until a process has ended; gives the exit status.
    pub async fn ended(&mut self, name: &str) -> Option<i32> {
        let mut running = self.running.remove(name)?;
        let look = || std::future::ready(running.child.try_wait().expect("a child"));
        until(&format!("the end of {name}"), look).await.code()
    }

    /// It runs no more until it is thawed, and knows nothing of it.
    pub fn freeze(&self, name: &str) {
        self.signal(name, "STOP");
    }

    pub fn thaw(&self, name: &str) {
        self.signal(name, "CONT");
    }

    pub fn signal(&self, name: &str, signal: &str) {
        servers::signal(&self.running[name].child, signal);
    }

    /// A process can write no more into any file than so many bytes, as if its disks were full by then; `None`: as before.
    pub fn limit_files(&self, name: &str, bytes: Option<u32>) {
        let most = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let pid = self.running[name].child.id().to_string();
        let limit = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={most}:unlimited")]).status();
        assert!(limit.expect("prlimit runs").success());
    }

    /// None of the processes has ended that no test ended.
    pub fn assert_all_run(&mut self) {
        for (name, running) in &mut self.running {
            let ended = running.child.try_wait().expect("a child");
            assert!(ended.is_none(), "{name} ended: {ended:?}");
        }
    }

    /// The memory that a process holds, in MiB.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running[name].child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// Changes rows behind everybody's back.
    pub async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql);
        let done = match self.env.get("CRIER_DATABASE_URL") {
            Some(url) => PgConnection::connect(url).await.expect("it answers").execute(sql).await.map(drop),
            None => SqliteConnection::connect(&self.file()).await.expect("it answers").execute(sql).await.map(drop),
        };
        done.expect("rows");
    }

    /// One number from the database.
    pub async fn number(&self, sql: &'static str) -> i64 {
        self.value(sql).await
    }

    /// One value from the database.
    pub async fn value<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin,
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        match self.env.get("CRIER_DATABASE_URL") {
            Some(url) => {
                let mut connection = PgConnection::connect(url).await.expect("the database answers");
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a value")
            }
            None => {
                let mut connection = SqliteConnection::connect(&self.file()).await.expect("the database answers");
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a value")
            }
        }
    }

    /// Where the media library's files are.
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("data/files")
    }

    fn file(&self) -> String {
        format!("sqlite://{}", self.dir.path().join("data/crier.db").display())
    }

    /// What a process wrote, for a failing test's message.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        for running in self.running.values_mut() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        if std::thread::panicking() {
            let logs = std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
            for name in logs.filter_map(|file| file.file_name().to_str()?.strip_suffix(".log").map(str::to_owned)) {
                let _ = writeln!(std::io::stderr(), "{name}:\n{}", self.log(&name));
            }
        }
    }
}

/// A database with the schema alone: the processes' own is made by `crier migrate`.
async fn migrated() -> TestDatabase {
    servers::postgres(|url| async move {
        let db = crier_common::store::Db::postgres(&url, 2).expect("a URL");
        db.migrate().await.expect("the schema can be made");
        db.close().await;
    })
    .await
}
