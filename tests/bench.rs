//! `crier bench` as an operator runs it, with counts too small to measure anything: every figure is reported, and
//! nothing is left behind.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use redis::AsyncCommands as _;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use url::Url;

use crate::support::client::until;
use crate::support::{databases, servers};

const TINY_JOBS: &[&str] = &["jobs", "--jobs", "20", "--rows", "2000", "--posts", "20", "--json"];
#[rustfmt::skip]
const TINY_WEBHOOKS: &[&str] = &[
    "webhooks", "--messages", "20", "--endpoints", "1,5", "--pending", "20", "--seconds", "1", "--rounds", "1",
    "--warm-up", "0", "--json",
];
const TINY_MEDIA: &[&str] =
    &["media", "--megapixels", "1", "--pictures", "4", "--at-once", "3", "--large", "1", "--json"];
const TINY_PAGES: &[&str] = &["pages", "--requests", "200", "--pages", "5", "--json"];
const TINY_INBOX: &[&str] = &["inbox", "--conversations", "200", "--messages", "600", "--repeat", "2", "--json"];
const TINY_REPORTS: &[&str] = &["reports", "--posts", "3", "--json"];
const TINY_ANALYTICS: &[&str] = &["analytics", "--posts", "700", "--repeat", "2", "--json"];
const TINY_REQUESTS: &[&str] = &["requests", "--seconds", "1", "--warm-up", "0", "--json"];
#[rustfmt::skip]
const TINY_REPLICAS: &[&str] =
    &["replicas", "--pending", "20", "--posts", "20", "--lanes", "1,5", "--workers", "1,2", "--json"];

const MACHINE: &[&str] = &["form", "version", "cores", "database", "durability"];

/// Pairs of measurement and figure.
type Names = Vec<(&'static str, String)>;

fn add(all: &mut Names, measurement: &'static str, figures: &[&str]) {
    all.extend(figures.iter().map(|figure| (measurement, (*figure).to_owned())));
}

/// Every figure of every measurement, in the order of the output.
fn of_jobs() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["idle", "20 jobs pending", "while they run, peak"]);
    of("throughput", &["enqueue, 1 at once", "enqueue, 10 at once", "enqueue, 100 at once"]);
    of("throughput", &["process, 1 at once", "process, 10 at once", "process, 100 at once"]);
    of("throughput", &["enqueue and process, 100 at once"]);
    of("pickup", &["commit to start, p50", "commit to start, p99", "commit to start, max"]);
    of("pickup", &["call to start, p50", "call to start, p99", "call to start, max"]);
    let late = ["p50", "p99", "max"].map(|which| format!("20 jobs for one moment, {which}"));
    of("lateness", &late.each_ref().map(String::as_str));
    of("lateness", &["memory before", "memory, peak", "memory after"]);
    for cost in ["each of 1 due", "each of 10 due", "each of 100 due", "task measure", "task rescue"] {
        let figures = ["1000 rows", "2000 rows", "ratio"].map(|which| format!("{cost}, {which}"));
        of("dispatch", &figures.each_ref().map(String::as_str));
    }
    of("publish", &["20 posts, all begun after", "20 posts, all ended after", "rate"]);
    of("publish", &["lateness, p50", "lateness, p99", "lateness, max", "memory, peak"]);
    all
}

fn expected_webhook_figures() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["idle", "20 deliveries pending", "while they run, peak"]);
    for endpoints in ["1 endpoint", "5 endpoints"] {
        for clients in ["1 client", "32 clients", "100 clients"] {
            let of_point = ["accepted", "delivered", "end to end, p50", "end to end, p99", "end to end, max"];
            let figures = of_point.map(|figure| format!("{endpoints}, {clients}, {figure}"));
            of("throughput", &figures.each_ref().map(String::as_str));
        }
    }
    of("backlog", &["1 endpoint", "5 endpoints"]);
    for part in ["request to answer", "request to delivery"] {
        let figures = ["p50", "p99", "max"].map(|which| format!("{part}, {which}"));
        of("latency", &figures.each_ref().map(String::as_str));
    }
    for fault in ["hangs", "refuses", "answers after 5 s"] {
        let times = ["alone before it, p50", "alone before it, p99", "p50", "p99", "ratio of p50", "ratio of p99"];
        let held = ["requests it held at most"];
        for figure in times.iter().chain(held.iter().filter(|_| fault != "refuses")) {
            of("isolation", &[&format!("beside one that {fault}, {figure}")]);
        }
    }
    all
}

fn of_media() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("memory", &["a file", "before", "3 uploads at once, peak", "3 uploads at once, all answered after"]);
    of("uploads", &["a photograph"]);
    for clients in ["1 at once", "4 at once", "16 at once"] {
        let figures = ["pictures", "bytes", "p50", "p99", "max"].map(|figure| format!("{clients}, {figure}"));
        of("uploads", &figures.each_ref().map(String::as_str));
    }
    of("thumbnails", &["of 1-megapixel JPEGs"]);
    all
}

fn of_pages() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    of("page", &["the page, compressed"]);
    for measurement in ["page", "unchanged"] {
        for clients in ["1 at once", "32 at once"] {
            let figures = ["requests", "the server's processor, each", "p50", "p99", "max"];
            let figures = figures.map(|figure| format!("{clients}, {figure}"));
            of(measurement, &figures.each_ref().map(String::as_str));
        }
    }
    for visit in ["of all", "after two seconds"] {
        let figures = ["p50", "p99", "max"].map(|figure| format!("{visit}, {figure}"));
        of("first", &figures.each_ref().map(String::as_str));
    }
    of("counted", &["bots, not counted", "visitors", "all of them in the database after"]);
    all
}

/// Starts the program in a directory of its own, with only this configuration.
fn start(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_crier"))
        .arg("bench")
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("crier runs")
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
        // A job may begin before its commit has returned.
        let zero = figure["measurement"] == "pickup";
        assert!(value > 0.0 || zero && value == 0.0, "{figure}");
    }
}

/// Runs on SQLite, in a directory of its own.
async fn embedded(tiny: &[&str], expected: &Names) {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [tiny, &["--dir", "."]].concat();
    let (done, stdout, stderr) = end(start(dir.path(), &args, &[])).await;
    assert!(done, "{stderr}");
    check(&stdout, expected, "embedded");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "neither its own file nor a data directory is left: {left:?}");
}

/// Runs beside an installation on Postgres and Redis; then runs `long`, which takes half a minute, and interrupts it.
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

#[tokio::test]
async fn embedded_jobs_report_every_figure_and_clean_up() {
    embedded(TINY_JOBS, &of_jobs()).await;
}

#[tokio::test]
async fn split_jobs_report_every_figure_and_clean_up() {
    split(TINY_JOBS, &of_jobs(), &["jobs", "--only", "pickup"]).await;
}

#[tokio::test]
async fn embedded_webhooks_report_every_figure_and_clean_up() {
    embedded(TINY_WEBHOOKS, &expected_webhook_figures()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_webhooks_report_every_figure_and_clean_up() {
    split(TINY_WEBHOOKS, &expected_webhook_figures(), &["webhooks", "--only", "latency"]).await;
}

#[tokio::test]
async fn embedded_media_reports_every_figure_and_cleans_up() {
    embedded(TINY_MEDIA, &of_media()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_media_reports_every_figure_and_cleans_up() {
    split(TINY_MEDIA, &of_media(), &["media", "--only", "uploads", "--megapixels", "1"]).await;
}

#[tokio::test]
async fn embedded_pages_report_every_figure_and_clean_up() {
    embedded(TINY_PAGES, &of_pages()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_pages_report_every_figure_and_clean_up() {
    split(TINY_PAGES, &of_pages(), &["pages", "--only", "page", "--requests", "10000000"]).await;
}

fn of_inbox() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for case in [
        "all",
        "all, the last page",
        "open",
        "unread direct messages",
        "assigned to a member, none",
        "with a tag",
        "a word in every conversation",
        "a word in every conversation, the last page",
        "a word in every conversation, unread",
        "a word in one of 10,000 conversations",
        "a beginning of two letters",
        "a beginning of three letters",
        "a frequent and a rare word",
        "two frequent words",
        "part of a Japanese sentence",
        "a word that is not there",
    ] {
        let figures = ["p50", "p95"].map(|which| format!("{case}, {which}"));
        of("lists", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_inbox_reports_every_figure_and_cleans_up() {
    embedded(TINY_INBOX, &of_inbox()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_inbox_reports_every_figure_and_cleans_up() {
    split(TINY_INBOX, &of_inbox(), &["inbox", "--conversations", "100000"]).await;
}

fn of_analytics() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for series in ["a year by day", "best times", "one post"] {
        let figures = ["p50", "p95"].map(|which| format!("{series}, {which}"));
        of("series", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_analytics_report_every_figure_and_clean_up() {
    embedded(TINY_ANALYTICS, &of_analytics()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_analytics_report_every_figure_and_clean_up() {
    split(TINY_ANALYTICS, &of_analytics(), &["analytics", "--posts", "1000000"]).await;
}

fn of_reports() -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for format in ["pdf", "csv", "json", "pptx", "xlsx"] {
        let figures = ["time", "peak memory", "file"].map(|figure| format!("{format}, 3 posts, {figure}"));
        add(&mut all, "reports", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_reports_report_every_figure_and_clean_up() {
    embedded(TINY_REPORTS, &of_reports()).await;
}

fn of_requests() -> Names {
    let mut all = Vec::new();
    let mut of = |measurement, figures: &[&str]| add(&mut all, measurement, figures);
    of("machine", MACHINE);
    for post in ["draft", "scheduled"] {
        for connections in [16, 64] {
            let figures = ["created", "p50", "p99"].map(|which| format!("{post}, {connections} connections, {which}"));
            of("requests", &figures.each_ref().map(String::as_str));
        }
    }
    of("requests", &["scheduled / draft, 16 connections", "scheduled / draft, 64 connections"]);
    for post in ["draft", "scheduled"] {
        let figures = ["p50", "p99"].map(|which| format!("{post}, at half load, {which}"));
        of("requests", &figures.each_ref().map(String::as_str));
    }
    all
}

#[tokio::test]
async fn embedded_requests_report_every_figure_and_clean_up() {
    embedded(TINY_REQUESTS, &of_requests()).await;
}

#[tokio::test]
#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]
async fn split_requests_report_every_figure_and_clean_up() {
    split(TINY_REQUESTS, &of_requests(), &["requests", "--only", "draft"]).await;
}

fn of_replicas() -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for (measurement, lanes) in
        [("deliveries", ["1 endpoint", "5 endpoints"]), ("publishes", ["1 account", "5 accounts"])]
    {
        for lane in lanes {
            let figures = ["1 worker", "2 workers", "2 workers / 1 worker"].map(|which| format!("{lane}, {which}"));
            add(&mut all, measurement, &figures.each_ref().map(String::as_str));
        }
    }
    all
}

#[tokio::test]
async fn split_replicas_report_every_figure_and_clean_up() {
    split(TINY_REPLICAS, &of_replicas(), &["replicas", "--only", "deliveries"]).await;
}

#[tokio::test]
async fn interrupted_replicas_leave_no_worker_process() {
    let installation = databases::postgres().await;
    let url = as_own_role(&installation.url).await;
    let redis = servers::redis().await;
    let mut server = PgConnection::connect(&url).await.expect("a database");
    let env = [("CRIER_DATABASE_URL", url.as_str()), ("CRIER_REDIS_URL", redis.as_str())];
    let dir = tempfile::tempdir().expect("a directory");
    let long = ["replicas", "--only", "deliveries", "--pending", "2000", "--lanes", "1,200,1,200", "--workers", "3"];

    let child = start(dir.path(), &long, &env);
    let workers =
        until("three workers", || async { Some(children(child.id())).filter(|found| found.len() == 3) }).await;
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    let (done, _, stderr) = end(child).await;
    assert!(!done && stderr.ends_with("crier: interrupted\n"), "{stderr}");
    let left: Vec<_> = workers.iter().filter(|id| Path::new(&format!("/proc/{id}")).exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_no_leftovers(&mut server, &redis).await;
}

#[tokio::test]
async fn replicas_are_refused_on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    for args in [["replicas", "--dir", "."].as_slice(), &["worker", "--kind", "noop", "--slots", "1"]] {
        let (done, stdout, stderr) = end(start(dir.path(), args, &[])).await;
        assert!(!done && stdout.is_empty(), "{stdout}");
        let words = ["CRIER_DATABASE_URL", "CRIER_REDIS_URL"];
        let helps = words.iter().all(|word| stderr.contains(word)) || stderr.contains("`crier bench replicas` alone");
        assert!(helps, "{stderr}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Returns the ids of a process's own processes.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |id: u32| {
        // The name, which may have spaces, is in parentheses; the state and the parent follow.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let processes = std::fs::read_dir("/proc").expect("processes are listed").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// Creates a role, and returns the URL with it: the tests share a server, on which the databases of one `crier bench` differ
/// from those of another by their owner.
async fn as_own_role(url: &str) -> String {
    let name = format!("bench_{:016x}", crier_base::random::u64());
    let mut server = PgConnection::connect(url).await.expect("a database");
    let create = sqlx::AssertSqlSafe(format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{name}'"));
    sqlx::raw_sql(create).execute(&mut server).await.expect("a role");
    let mut url = Url::parse(url).expect("a URL");
    url.set_username(&name).and_then(|()| url.set_password(Some(&name))).expect("it has a host");
    url.into()
}

/// Returns the databases of the benchmark that runs as the connection's role.
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

/// Statements and transactions of one operation: measurement, on Postgres, on SQLite.
type Cost = (&'static str, (f64, f64), (f64, f64));

/// A change that adds a statement to a request or a job is seen here.
#[rustfmt::skip]
const COSTS: &[Cost] = &[
    ("brand",        (1.0, 0.0),  (1.0, 0.0)),
    ("posts",        (3.0, 0.0),  (3.0, 0.0)),
    ("create-brand", (6.0, 1.0),  (6.0, 1.0)),
    ("draft",        (6.0, 1.0),  (5.0, 1.0)),
    ("schedule",     (8.0, 1.0),  (7.0, 1.0)),
    ("publish",      (24.0, 4.0), (21.0, 5.0)),
    ("deliver",      (13.0, 2.0), (15.0, 3.0)),
];

fn check_costs(stdout: &str, expected: impl Fn(&Cost) -> (f64, f64)) {
    let figures: Vec<Value> = serde_json::from_str(stdout).expect("an array");
    let value = |measurement: &str, unit: &str| {
        let found = figures.iter().find(|f| f["measurement"] == measurement && f["unit"] == unit);
        found.unwrap_or_else(|| panic!("{measurement} has no {unit}"))["value"].as_f64().expect("a number")
    };
    for cost in COSTS {
        let counted = (value(cost.0, "statements"), value(cost.0, "transactions"));
        assert_eq!(counted, expected(cost), "{}", cost.0);
    }
    for (many, one) in [("publish-many", "publish"), ("deliver-many", "deliver")] {
        assert!(value(many, "statements") <= value(one, "statements"), "work that comes together is shared: {many}");
    }
}

const COST: &[&str] = &["cost", "--repeat", "5", "--at-once", "20", "--json"];

#[tokio::test]
async fn embedded_requests_and_jobs_cost_what_they_should() {
    let dir = tempfile::tempdir().expect("a directory");
    let (done, stdout, stderr) = end(start(dir.path(), &[COST, &["--dir", "."]].concat(), &[])).await;
    assert!(done, "{stderr}");
    check_costs(&stdout, |cost| cost.2);
}

#[tokio::test]
async fn split_requests_and_jobs_cost_what_they_should() {
    let installation = databases::postgres().await;
    let redis = servers::redis().await;
    let env = [("CRIER_DATABASE_URL", installation.url.as_str()), ("CRIER_REDIS_URL", redis.as_str())];
    let dir = tempfile::tempdir().expect("a directory");
    let (done, stdout, stderr) = end(start(dir.path(), COST, &env)).await;
    assert!(done, "{stderr}");
    check_costs(&stdout, |cost| cost.1);
}
