//! Runs `crier-bench` with counts too small to measure anything, and checks that it reports all figures and leaves
//! nothing behind. A file for each subcommand.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use redis::AsyncCommands as _;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use url::Url;

use crate::support::client::until;
use crate::support::process::program;
use crate::support::{databases, servers};

mod analytics;
mod cost;
mod export;
mod inbox;
mod jobs;
mod media;
mod pages;
mod posts;
mod recurring;
mod replicas;
mod reports;
mod requests;
mod webhooks;

const MACHINE: &[&str] = &["form", "version", "cores", "database", "durability"];

/// Pairs of measurement and figure.
type Names = Vec<(&'static str, String)>;

fn add(all: &mut Names, measurement: &'static str, figures: &[&str]) {
    all.extend(figures.iter().map(|figure| (measurement, (*figure).to_owned())));
}

/// Starts the program in this directory, with only this configuration.
fn start(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Child {
    Command::new(program("crier-bench"))
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("crier-bench runs")
}

/// Waits for the child without blocking the test's runtime.
async fn end(child: Child) -> (bool, String, String) {
    let out = tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("no panic");
    let out = out.expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.success(), text(out.stdout), text(out.stderr))
}

fn check(stdout: &str, expected: &Names, form: &str) {
    let figures: Vec<Value> = serde_json::from_str(stdout).expect("an array");
    let names: Vec<(&str, String)> = figures
        .iter()
        .map(|f| (f["measurement"].as_str().expect("a word"), f["figure"].as_str().expect("a word").to_owned()))
        .collect();
    assert_eq!(&names, expected);
    assert!(figures[0]["value"].as_str().is_some_and(|form_value| form_value.starts_with(form)), "{}", figures[0]);
    for figure in figures.iter().filter(|figure| figure["measurement"] != "machine") {
        let value = figure["value"].as_f64().expect("a number");
        // A job may start before its commit has returned.
        let may_be_zero = figure["measurement"] == "pickup";
        assert!(value > 0.0 || may_be_zero && value == 0.0, "{figure}");
    }
}

/// Runs on SQLite, in a new directory.
async fn embedded(tiny: &[&str], expected: &Names) {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [tiny, &["--dir", "."]].concat();
    let (done, stdout, stderr) = end(start(dir.path(), &args, &[])).await;
    assert!(done, "{stderr}");
    check(&stdout, expected, "embedded");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "neither its own file nor a data directory is left: {left:?}");
}

/// Runs on the Postgres and Redis of an installation. Then runs `long`, which takes half a minute, and interrupts it.
async fn split(tiny: &[&str], expected: &Names, long: &[&str]) {
    let installation = databases::postgres().await;
    let url = as_own_role(&installation.url).await;
    let redis = servers::redis().await;
    let mut server = PgConnection::connect(&url).await.expect("a database");
    let env = [("CRIER_DATABASE_URL", url.as_str()), ("CRIER_REDIS_URL", redis.as_str())];
    let dir = tempfile::tempdir().expect("a directory");

    let (done, stdout, stderr) = end(start(dir.path(), tiny, &env)).await;
    assert!(done, "{stderr}");
    check(&stdout, expected, "split");
    assert_no_leftovers(&mut server, &redis).await;

    let child = start(dir.path(), long, &env);
    until("rows of the benchmark", || async { has_rows(&url).await.then_some(()) }).await;
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    let (done, stdout, stderr) = end(child).await;
    assert!(!done && stdout.is_empty(), "{stdout}");
    // Work in progress may log errors first.
    assert!(stderr.ends_with("crier: interrupted\n"), "{stderr}");
    assert_no_leftovers(&mut server, &redis).await;
}

/// Creates a role, and returns the URL with it. The tests share a server, and the owner tells apart the databases of
/// concurrent runs.
async fn as_own_role(url: &str) -> String {
    let name = format!("bench_{:016x}", crier_base::random::u64());
    let mut server = PgConnection::connect(url).await.expect("a database");
    let create = sqlx::AssertSqlSafe(format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{name}'"));
    sqlx::raw_sql(create).execute(&mut server).await.expect("a role");
    let mut url = Url::parse(url).expect("a URL");
    url.set_username(&name).and_then(|()| url.set_password(Some(&name))).expect("it has a host");
    url.into()
}

/// Returns the databases of the benchmark that runs with the role of this connection.
async fn databases(server: &mut PgConnection) -> Vec<String> {
    let own = "SELECT datname::text FROM pg_database \
         WHERE datname LIKE 'crier_bench_%' AND pg_get_userbyid(datdba) = current_user";
    sqlx::query_scalar(own).fetch_all(server).await.expect("a list of databases")
}

/// Whether the benchmark's own database contains rows.
async fn has_rows(url: &str) -> bool {
    let mut server = PgConnection::connect(url).await.expect("a database");
    let Some(name) = databases(&mut server).await.pop() else { return false };
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    // It may be deleted already, or have no tables yet.
    let Ok(mut own) = PgConnection::connect(&format!("{server}/{name}")).await else { return false };
    let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM jobs) OR EXISTS (SELECT 1 FROM users)")
        .fetch_one(&mut own)
        .await;
    found.unwrap_or(false)
}

async fn assert_no_leftovers(server: &mut PgConnection, redis: &str) {
    assert_eq!(databases(server).await, Vec::<String>::new());
    let jobs: i64 = sqlx::query_scalar("SELECT count(*) FROM jobs").fetch_one(server).await.expect("a count");
    assert_eq!(jobs, 0, "the installation's own table is untouched");
    let mut connection = servers::connect_redis(redis).await;
    let keys: Vec<String> = connection.keys("*").await.expect("a list");
    assert!(keys.is_empty(), "{keys:?}");
}
