//! Real Crier processes, for tests that kill and freeze them or limit their resources: `crier` on SQLite, or the
//! separate processes on Postgres and Redis. A test can start several processes of a role (`crier-worker#2`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crier_http::HttpClient;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};

use super::client::{Client, until};
use super::command::{CommandOutput, run};
use super::databases::{self, TestDatabase};
use super::servers::{self, free_port};

/// Creates two tests for each function that takes an [`Installation`]: `embedded` and `split`. After `KEYS =>`, the
/// installations have these configuration keys. After `split =>`, the functions take whether the processes are separate.
macro_rules! on_both_forms {
    (split => $($name:ident),+ $(,)?) => {$(
        $crate::support::process::tests_of_forms!($name |split| super::$name(split).await);
    )+};
    ($keys:ident => $($name:ident),+ $(,)?) => {$(
        $crate::support::process::tests_of_forms!($name |split| {
            super::$name($crate::support::process::Installation::start_as(split, &super::$keys).await).await
        });
    )+};
    ($($name:ident),+ $(,)?) => {$(
        $crate::support::process::tests_of_forms!($name |split| {
            super::$name($crate::support::process::Installation::start_as(split, &[]).await).await
        });
    )+};
}
pub(crate) use on_both_forms;

macro_rules! tests_of_forms {
    ($name:ident |$split:ident| $run:expr) => {
        mod $name {
            #[tokio::test]
            async fn embedded() {
                let $split = false;
                $run
            }

            #[tokio::test]
            async fn split() {
                let $split = true;
                $run
            }
        }
    };
}
pub(crate) use tests_of_forms;

/// A running installation, which dereferences to its [`Client`].
pub struct Installation {
    client: Client,
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    split: bool,
    /// The maximum number of open files per process. `None`: that of the test process.
    descriptors: Option<u32>,
    running: BTreeMap<String, Child>,
    /// The addresses of the ops endpoints. A restarted process keeps its address.
    ops: BTreeMap<String, String>,
    _database: Option<TestDatabase>,
}

/// The form of an installation.
#[derive(Clone, Copy)]
struct Form<'a> {
    split: bool,
    descriptors: Option<u32>,
    keys: &'a [(&'a str, &'a str)],
}

impl Form<'_> {
    const EMBEDDED: Form<'static> = Form { split: false, descriptors: None, keys: &[] };
}

const SPLIT: [&str; 3] = ["crier-api", "crier-worker", "crier-scheduler"];

impl Deref for Installation {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Returns the path of a binary, which is built next to `crier`.
pub fn program(name: &str) -> PathBuf {
    let name = name.split('#').next().unwrap_or(name);
    let path = Path::new(env!("CARGO_BIN_EXE_crier")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: run the tests with ./scripts/test, which builds all programs");
    path
}

impl Installation {
    /// Starts `crier` on SQLite.
    pub async fn embedded() -> Self {
        Self::embedded_with(&[]).await
    }

    /// Starts the three processes.
    pub async fn split() -> Self {
        Self::split_with(&[]).await
    }

    /// Like `embedded`, with configuration keys.
    pub async fn embedded_with(keys: &[(&str, &str)]) -> Self {
        Self::start(Form { keys, ..Form::EMBEDDED }).await
    }

    /// Like `embedded`, with a maximum number of open files.
    pub async fn embedded_with_descriptors(descriptors: u32) -> Self {
        Self::start(Form { descriptors: Some(descriptors), ..Form::EMBEDDED }).await
    }

    /// Like `split`, with configuration keys, which may include the servers' URLs.
    pub async fn split_with(keys: &[(&str, &str)]) -> Self {
        let (database, redis) = (databases::postgres().await, servers::redis().await);
        let own = [
            ("CRIER_SECRET_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
            ("CRIER_DATABASE_URL", &database.url),
            ("CRIER_REDIS_URL", &redis),
        ];
        let keys = [own.as_slice(), keys].concat();
        let mut this = Self::start(Form { split: true, keys: &keys, ..Form::EMBEDDED }).await;
        this._database = Some(database);
        this
    }

    /// Starts the three processes, or `crier` on SQLite, with configuration keys.
    pub async fn start_as(split: bool, keys: &[(&str, &str)]) -> Self {
        if split { Self::split_with(keys).await } else { Self::embedded_with(keys).await }
    }

    async fn start(form: Form<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in [
            ("CRIER_HTTP_ADDR", format!("127.0.0.1:{port}").as_str()),
            ("CRIER_PUBLIC_URL", &url),
            ("CRIER_DATA_DIR", &dir.path().join("data").display().to_string()),
            ("CRIER_SANDBOX", "true"),
            // Long enough for a call on a busy machine. Twice this time passes before the lease of a killed worker expires.
            ("CRIER_PLATFORM_TIMEOUT", "8s"),
            ("CRIER_ALLOWED_PRIVATE_NETWORKS", "127.0.0.0/8"),
            ("CRIER_LOG", "warn"),
        ]
        .iter()
        .chain(form.keys)
        {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        let client = Client { http: HttpClient::trusted(Duration::from_secs(20), 4 << 20), url, key: String::new() };
        let mut this = Self {
            client,
            dir,
            env,
            split: form.split,
            descriptors: form.descriptors,
            running: BTreeMap::new(),
            ops: BTreeMap::new(),
            _database: None,
        };
        if form.split {
            this.command(&["migrate"]);
        }
        this.start_all().await;
        this.client.key = this.command(&["key", "create", "--user", "owner@localhost"]).trim().to_owned();
        this
    }

    /// Returns the address of the API.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Returns the address of a process's ops endpoints.
    pub fn ops(&self, name: &str) -> String {
        self.ops[name].clone()
    }

    /// Runs an operator command, and returns stdout.
    pub fn command(&self, args: &[&str]) -> String {
        self.try_command(args, &[]).expect_stdout().to_owned()
    }

    /// Runs an operator command with further configuration keys.
    pub fn try_command(&self, args: &[&str], keys: &[(&str, &str)]) -> CommandOutput {
        self.try_command_without(args, keys, &[])
    }

    /// Like `try_command`, without some of the installation's own keys.
    pub fn try_command_without(&self, args: &[&str], keys: &[(&str, &str)], without: &[&str]) -> CommandOutput {
        let mut command = Command::new(program("crier"));
        command.args(args).env_clear().envs(&self.env).envs(keys.iter().copied()).current_dir(self.dir.path());
        for name in without {
            command.env_remove(name);
        }
        run(command.stdin(Stdio::null()))
    }

    /// Runs a process that does not start, until it has ended.
    pub fn try_start(&self, name: &str) -> CommandOutput {
        let mut command = Command::new(program(name));
        command.env_clear().envs(&self.env).env("CRIER_OPS_ADDR", "127.0.0.1:0").current_dir(self.dir.path());
        run(command.stdin(Stdio::null()))
    }

    /// Returns the names of the processes that are started initially.
    pub fn names(&self) -> Vec<&'static str> {
        if self.split { SPLIT.to_vec() } else { vec!["crier"] }
    }

    pub fn is_split(&self) -> bool {
        self.split
    }

    /// Returns the name of the process with the role (`api`, `worker`, `scheduler`).
    pub fn of(&self, role: &str) -> String {
        if self.split { format!("crier-{role}") } else { "crier".to_owned() }
    }

    /// Starts the processes that are not running, and waits until they are ready.
    pub async fn start_all(&mut self) {
        for name in self.names() {
            if !self.running.contains_key(name) {
                self.start_one(name).await;
            }
        }
    }

    /// Starts a process and waits until it is ready. A name with a number (`crier-worker#2`) starts another process of
    /// the role.
    pub async fn start_one(&mut self, name: &str) {
        self.start_one_with(name, &[]).await;
    }

    /// Like `start_one`, with configuration keys for this process.
    pub async fn start_one_with(&mut self, name: &str, keys: &[(&str, &str)]) {
        let ops = self.ops.entry(name.to_owned()).or_insert_with(|| format!("127.0.0.1:{}", free_port())).clone();
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{name}.log")))
            .expect("a log");
        // With `trap '' XFSZ`, a write past the limit of [`Installation::limit_files`] fails instead of killing the
        // process.
        let child = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ${1:+ulimit -n $1}; exec setpriv --pdeathsig KILL \"$0\""])
            .arg(program(name))
            .args(self.descriptors.map(|descriptors| descriptors.to_string()))
            .env_clear()
            // There is no load balancer for which the shutdown must wait.
            .env("CRIER_DRAIN_DELAY", "0s")
            .envs(&self.env)
            .envs(keys.iter().copied())
            .env("CRIER_OPS_ADDR", &ops)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        self.running.insert(name.to_owned(), child);
        self.until_ready(name).await;
    }

    pub async fn until_ready(&self, name: &str) {
        until(&format!("{name} is ready"), || async { (self.readiness(name).await?.0 == 200).then_some(()) }).await;
    }

    /// Returns the `/readyz` response of a process. `None` if it does not respond.
    pub async fn readiness(&self, name: &str) -> Option<(u16, Value)> {
        let (status, body) = self.get_ops(name, "readyz").await?;
        Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
    }

    /// Returns a metric of a process, by its full name with labels.
    pub async fn metric(&self, name: &str, metric: &str) -> Option<f64> {
        self.metrics(name).await?.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
    }

    /// Waits until every process reports whether it can use the database or Redis.
    pub async fn until_dependency(&self, dependency: &str, is_up: bool) {
        let metric = format!("crier_dependency_up{{dependency=\"{dependency}\"}}");
        for name in self.names() {
            until(&format!("{name} reports {is_up}"), || async {
                ((self.metric(name, &metric).await? > 0.5) == is_up).then_some(())
            })
            .await;
        }
    }

    /// Returns all metrics of a process.
    pub async fn metrics(&self, name: &str) -> Option<String> {
        Some(self.get_ops(name, "metrics").await?.1)
    }

    async fn get_ops(&self, name: &str, path: &str) -> Option<(u16, String)> {
        let url = format!("http://{}/{path}", self.ops[name]);
        let response = self.http.send(self.http.request(reqwest::Method::GET, &url)).await.ok()?;
        Some((response.status.as_u16(), String::from_utf8(response.body.to_vec()).ok()?))
    }

    /// Kills a process with `kill -9`.
    pub fn kill(&mut self, name: &str) {
        if let Some(mut child) = self.running.remove(name) {
            child.kill().expect("can be killed");
            child.wait().expect("ends");
        }
    }

    /// Sends SIGTERM, waits until the process has ended, and returns the exit status.
    pub async fn terminate(&mut self, name: &str) -> Option<i32> {
        self.signal(name, "TERM");
        self.wait_for_exit(name).await
    }

    /// Waits until a process has ended, and returns the exit status.
    pub async fn wait_for_exit(&mut self, name: &str) -> Option<i32> {
        let mut child = self.running.remove(name)?;
        let check = || std::future::ready(child.try_wait().expect("a child"));
        until(&format!("the end of {name}"), check).await.code()
    }

    /// Stops a process with SIGSTOP until it is thawed.
    pub fn freeze(&self, name: &str) {
        self.signal(name, "STOP");
    }

    pub fn thaw(&self, name: &str) {
        self.signal(name, "CONT");
    }

    pub fn signal(&self, name: &str, signal: &str) {
        servers::signal(&self.running[name], signal);
    }

    /// Limits the size of files that a process can write, as if its disk were full. `None` removes the limit.
    pub fn limit_files(&self, name: &str, bytes: Option<u32>) {
        let most = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let pid = self.running[name].id().to_string();
        let limit = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={most}:unlimited")]).status();
        assert!(limit.expect("prlimit runs").success());
    }

    /// Asserts that no process has ended unexpectedly.
    pub fn assert_all_run(&mut self) {
        for (name, child) in &mut self.running {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "{name} ended: {ended:?}");
        }
    }

    /// Returns the resident memory of a process in MiB.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running[name].id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// Executes SQL directly on the database.
    pub async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql);
        let done = match self.env.get("CRIER_DATABASE_URL") {
            Some(url) => PgConnection::connect(url).await.expect("it responds").execute(sql).await.map(drop),
            None => SqliteConnection::connect(&self.file()).await.expect("it responds").execute(sql).await.map(drop),
        };
        done.expect("rows");
    }

    /// Returns one number from the database.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        self.value(sql).await
    }

    /// Returns the number of rows of a table, or of those with a condition (`jobs WHERE waiting`).
    pub async fn count_rows(&self, rows: impl Display) -> i64 {
        self.number(format!("SELECT count(*) FROM {rows}")).await
    }

    /// Returns the sum of a column of these rows, or 0 if there are none.
    pub async fn sum(&self, column: &str, rows: impl Display) -> i64 {
        self.number(format!("SELECT CAST(coalesce(sum({column}), 0) AS bigint) FROM {rows}")).await
    }

    /// Returns one value from the database.
    pub async fn value<T>(&self, sql: impl Into<String>) -> T
    where
        T: Send + Unpin,
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        let sql = AssertSqlSafe(sql.into());
        match self.env.get("CRIER_DATABASE_URL") {
            Some(url) => {
                let mut connection = PgConnection::connect(url).await.expect("the database responds");
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a value")
            }
            None => {
                let mut connection = SqliteConnection::connect(&self.file()).await.expect("the database responds");
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a value")
            }
        }
    }

    /// Returns the directory of the media library's files.
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("data/files")
    }

    fn file(&self) -> String {
        format!("sqlite://{}", self.dir.path().join("data/crier.db").display())
    }

    /// Returns the log of a process, for failure messages.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let logs = std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
            for name in logs.filter_map(|file| file.file_name().to_str()?.strip_suffix(".log").map(str::to_owned)) {
                let _ = writeln!(std::io::stderr(), "{name}:\n{}", self.log(&name));
            }
        }
    }
}
