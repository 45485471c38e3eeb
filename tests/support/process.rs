//! Real processes of Crier, for tests that kill them: `crier` on SQLite, or the three separate ones over Postgres and Redis.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crier_common::http::HttpClient;
use serde_json::{Value, json};

use super::servers::{self, TestDatabase};

/// Which processes there are, and how to talk to them.
pub struct Installation {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    split: Option<TestDatabase>,
    running: BTreeMap<&'static str, Child>,
    /// Where each process serves its metrics.
    ops: BTreeMap<&'static str, String>,
    http: HttpClient,
    url: String,
    key: String,
}

const SPLIT: [&str; 3] = ["crier-api", "crier-worker", "crier-scheduler"];

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A program of the workspace, built beside `crier`.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_crier")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: run the tests with ./scripts/test, which builds all programs");
    path
}

impl Installation {
    /// `crier` on SQLite.
    pub async fn embedded() -> Self {
        Self::start(None, BTreeMap::new()).await
    }

    /// The three processes.
    pub async fn split() -> Self {
        // The processes migrate by `crier migrate`: the database is an empty one.
        let database = servers::postgres(|url| async move {
            let db = crier_common::store::Db::postgres(&url, 2).expect("a URL");
            db.migrate().await.expect("the schema can be made");
            db.close().await;
        })
        .await;
        let mut env = BTreeMap::new();
        env.insert("CRIER_DATABASE_URL".to_owned(), database.url.clone());
        env.insert("CRIER_REDIS_URL".to_owned(), servers::redis().await);
        env.insert("CRIER_SECRET_KEY".to_owned(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
        Self::start(Some(database), env).await
    }

    async fn start(split: Option<TestDatabase>, mut env: BTreeMap<String, String>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        for (name, value) in [
            ("CRIER_HTTP_ADDR", format!("127.0.0.1:{port}")),
            ("CRIER_PUBLIC_URL", url.clone()),
            ("CRIER_DATA_DIR", dir.path().join("data").display().to_string()),
            ("CRIER_SANDBOX", "true".to_owned()),
            ("CRIER_PLATFORM_TIMEOUT", "2s".to_owned()),
            ("CRIER_ALLOWED_PRIVATE_NETWORKS", "127.0.0.0/8".to_owned()),
            ("CRIER_LOG", "warn".to_owned()),
        ] {
            env.insert(name.to_owned(), value);
        }
        let http = HttpClient::trusted(Duration::from_secs(20), 4 << 20);
        let mut this =
            Self { dir, env, split, running: BTreeMap::new(), ops: BTreeMap::new(), http, url, key: String::new() };
        if this.split.is_some() {
            this.command(&["migrate"]);
        }
        this.start_all().await;
        this.key = this.command(&["key", "create", "--user", "owner@localhost"]).trim().to_owned();
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

    /// The names of the processes.
    pub fn names(&self) -> Vec<&'static str> {
        if self.split.is_some() { SPLIT.to_vec() } else { vec!["crier"] }
    }

    /// Starts those that do not run, and waits until they are ready.
    pub async fn start_all(&mut self) {
        for name in self.names() {
            if !self.running.contains_key(name) {
                self.spawn(name).await;
            }
        }
    }

    async fn spawn(&mut self, name: &'static str) {
        let ops = format!("127.0.0.1:{}", free_port());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{name}.log")))
            .expect("a log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program(name))
            .env_clear()
            .envs(&self.env)
            .env("CRIER_OPS_ADDR", &ops)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the program starts");
        self.running.insert(name, child);
        let ready = format!("http://{ops}/readyz");
        self.ops.insert(name, ops);
        self.until(&format!("{name} is ready"), || async {
            let answer = self.http.send(self.http.request(reqwest::Method::GET, &ready)).await.ok()?;
            answer.status.is_success().then_some(())
        })
        .await;
    }

    /// What a process shows as its metrics.
    pub async fn metrics(&self, name: &str) -> String {
        let url = format!("http://{}/metrics", self.ops[name]);
        let answer = self.http.send(self.http.request(reqwest::Method::GET, &url)).await.expect("an answer");
        String::from_utf8(answer.body.to_vec()).expect("text")
    }

    /// `kill -9`.
    pub fn kill(&mut self, name: &str) {
        if let Some(mut child) = self.running.remove(name) {
            child.kill().expect("can be killed");
            child.wait().expect("ends");
        }
    }

    /// SIGTERM; gives the exit status.
    pub fn terminate(&mut self, name: &str) -> Option<i32> {
        let mut child = self.running.remove(name)?;
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        child.wait().expect("ends").code()
    }

    /// What a process wrote, for a failing test's message.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Asks until there is an answer; panics after a minute and a half.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, mut look: impl FnMut() -> F) -> T {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if Instant::now() > end {
                let logs: Vec<String> = self.names().iter().map(|n| format!("{n}:\n{}", self.log(n))).collect();
                panic!("not within 90 s: {what}\n{}", logs.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One request; `None` where nobody answers.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>, idempotency: &str) -> Option<(u16, Value)> {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self
            .http
            .request(method, &format!("{}/api/public/v1{path}", self.url))
            .bearer_auth(&self.key)
            .header("Idempotency-Key", idempotency);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = self.http.send(request).await.ok()?;
        Some((answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or(Value::Null)))
    }

    /// A write that is repeated under one key until it is answered, as a client does after a lost connection.
    pub async fn write(&self, path: &str, body: Value) -> Value {
        let key = format!("{:032x}", rand());
        let (status, answer) = self
            .until(path, || async {
                let answer = self.call("POST", path, Some(body.clone()), &key).await?;
                (answer.0 != 503 && answer.0 != 409).then_some(answer)
            })
            .await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer["data"].clone()
    }

    pub async fn read(&self, path: &str) -> Option<Value> {
        let (status, answer) = self.call("GET", path, None, "-").await?;
        (status == 200).then_some(answer)
    }

    /// A brand with a sandbox account: their ids.
    pub async fn sandbox(&self, handle: &str) -> (i64, i64) {
        let brand = self.write("/brands", json!({ "name": "Faults" })).await["id"].as_i64().expect("an id");
        let path = format!("/brands/{brand}/social-accounts");
        let body = json!({ "platform": "sandbox", "credentials": { "handle": handle } });
        let account = self.write(&path, body).await[0]["id"].as_i64().expect("an id");
        (brand, account)
    }

    /// The sandbox's page of a handle.
    pub async fn page(&self, handle: &str) -> String {
        let url = format!("{}/sandbox/{handle}", self.url);
        self.until("the sandbox's page", || async {
            let answer = self.http.send(self.http.request(reqwest::Method::GET, &url)).await.ok()?;
            String::from_utf8(answer.body.to_vec()).ok()
        })
        .await
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        for name in self.names() {
            self.kill(name);
        }
    }
}

fn rand() -> u64 {
    crier_common::random::u64()
}
