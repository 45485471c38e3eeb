//! The start of `crier`, and its messages if it cannot start, as a user sees them in a terminal.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crier_http::HttpClient;
use sqlx::{Connection as _, Executor as _, PgConnection, SqliteConnection};

use crate::support::client::{until, until_true};
use crate::support::command::{CommandOutput, run};
use crate::support::process::{Installation, program};
use crate::support::servers::{self, PostgresServer, free_port};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

/// A directory in which `crier` runs.
struct Machine(tempfile::TempDir);

/// A running `crier`, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("crier-data")
    }

    /// Returns a command in the directory, with free ports and no other configuration.
    fn crier(&self, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        // File permissions must apply to root, too.
        command.args(["--pdeathsig", "KILL", "--bounding-set", "-dac_override,-dac_read_search"]);
        command.arg(program("crier")).args(args).env_clear().current_dir(self.0.path()).stdin(Stdio::null());
        command.env("CRIER_HTTP_ADDR", "127.0.0.1:0").env("CRIER_OPS_ADDR", "127.0.0.1:0");
        command.env("CRIER_LOG_FORMAT", "text");
        command
    }

    /// Starts `crier`, and waits until it reports that it runs.
    async fn start(&self) -> Running {
        self.start_with(self.crier(&[])).await
    }

    async fn start_with(&self, mut command: Command) -> Running {
        let file = |name: &str| std::fs::File::create(self.0.path().join(name)).expect("a file");
        let child = command.stdout(file("out")).stderr(file("err")).spawn().expect("it starts");
        let running = Running(child);
        let has_started = |out: String| out.contains("(shown only once") || out.contains("New key");
        until_true("it runs", || has_started(self.read("out"))).await;
        running
    }

    /// Starts and kills `crier` once.
    async fn install(&self) {
        let running = self.start().await;
        self.wait_until_key_is_recorded().await;
        drop(running);
    }

    async fn wait_until_key_is_recorded(&self) {
        until("the key is recorded as shown", || async {
            (self.number("SELECT count(*) FROM first_key").await == 0).then_some(())
        })
        .await;
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    async fn database(&self) -> SqliteConnection {
        let url = format!("sqlite://{}", self.data().join("crier.db").display());
        SqliteConnection::connect(&url).await.expect("a database")
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.database().await).await.expect("a number")
    }

    async fn execute(&self, sql: &'static str) {
        self.database().await.execute(sql).await.expect("it is done");
    }

    fn entries(&self) -> Vec<String> {
        names(self.0.path())
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// Asserts that the command failed, and that its last line starts with `crier: ` and contains this text.
#[track_caller]
fn assert_error(output: &CommandOutput, status: i32, line: &str) {
    let error = output.expect_failure(status);
    let last = error.lines().last().unwrap_or_default();
    assert!(last.starts_with("crier: ") && last.contains(line), "{error}\nis not\n{line}");
}

#[tokio::test]
async fn a_busy_port_creates_no_installation() {
    let machine = Machine::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    for variable in ["CRIER_HTTP_ADDR", "CRIER_OPS_ADDR"] {
        let output = run(machine.crier(&[]).env(variable, &addr));
        let line = format!(
            "crier: cannot listen on {addr}; stop the program that uses it, or choose another port with {variable}: \
             Address already in use (os error 98)"
        );
        assert_error(&output, 1, &line);
        assert_eq!(names(&machine.data()), ["crier.lock"], "nothing was made");
    }
}

#[tokio::test]
async fn links_have_the_address_that_was_bound() {
    let machine = Machine::new();
    let running = machine.start().await;
    let out = machine.read("out");
    let mut words = out.split_whitespace();
    let api = words.find(|word| word.ends_with("/api/public/v1")).expect("an address").to_owned();
    assert!(!api.contains(":8080") && !api.contains(":0/"), "{out}");
    // A line for each role, and none for each task of the scheduler and each kind of jobs.
    let log = machine.read("err");
    assert!(log.lines().count() <= 4, "{log}");
    let key = out.split_once("Your key").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let http = HttpClient::trusted(Duration::from_secs(20), 1 << 20);
    let request = http.request(reqwest::Method::GET, &format!("{api}/brands/1/posts")).bearer_auth(&key);
    let listed = http.send(request).await.expect("a response");
    let page: serde_json::Value = serde_json::from_slice(&listed.body).unwrap();
    assert!(page["links"]["first"].as_str().unwrap().starts_with(&format!("{api}/brands/1/posts")), "{page}");
    machine.wait_until_key_is_recorded().await;
    drop(running);

    let running = machine.start().await;
    let out = machine.read("out");
    for part in [
        "  Console   http://127.0.0.1:",
        "crier login --user owner@localhost",
        "  API       http://127.0.0.1:",
        "  Docs      http://",
        "  Sandbox   http://",
        "crier key create --user owner@localhost",
    ] {
        assert!(out.contains(part), "{out}");
    }
    assert!(!out.contains("svc_live_"), "{out}");
    drop(running);
}

#[tokio::test]
async fn commands_use_the_addresses_at_which_crier_runs() {
    const LOGIN: [&str; 3] = ["login", "--user", "owner@localhost"];
    let machine = Machine::new();
    let link = |url: Option<&str>| {
        let mut command = machine.crier(&LOGIN);
        command.env("CRIER_HTTP_ADDR", "127.0.0.1:8099");
        if let Some(url) = url {
            command.env("CRIER_PUBLIC_URL", url);
        }
        run(&mut command).expect_stdout().to_owned()
    };
    let mut running = machine.start().await;
    machine.wait_until_key_is_recorded().await;
    let out = machine.read("out");
    let console = out.split_once("Console").expect("an address").1.split_whitespace().next().expect("an address");
    assert!(link(None).starts_with(&format!("{console}sign-in/")), "{} is not at {console}", link(None));
    assert!(link(Some("https://own.example.com")).starts_with("https://own.example.com/sign-in/"));
    let doctor = run(machine.crier(&["doctor"]).env("CRIER_HTTP_ADDR", "127.0.0.1:8099"));
    let url = console.trim_end_matches('/');
    assert!(doctor.out.contains(&format!("public_url     only this machine can reach {url}/")), "{doctor:?}");
    assert!(doctor.out.contains("no requests came through an untrusted proxy"), "the ops address is known: {doctor:?}");

    // An orderly stop removes the stored address.
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().expect("kill runs").success());
    running.0.wait().expect("it ends");
    assert!(link(None).starts_with("http://127.0.0.1:8099/sign-in/"));

    let mut command = machine.crier(&[]);
    command.env("CRIER_PUBLIC_URL", "https://crier.example.com");
    let _running = machine.start_with(command).await;
    assert!(link(None).starts_with("https://crier.example.com/sign-in/"));
}

#[tokio::test]
async fn a_json_log_has_only_json_lines() {
    let machine = Machine::new();
    machine.install().await;
    let mut command = machine.crier(&[]);
    command.env("CRIER_LOG_FORMAT", "json");
    let file = std::fs::File::create(machine.0.path().join("both")).unwrap();
    let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let _running = Running(child);
    until_true("it runs", || machine.read("both").contains("Crier is running")).await;
    for line in machine.read("both").lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

#[tokio::test]
async fn an_address_that_other_machines_reach_needs_a_public_url() {
    let machine = Machine::new();
    let mut command = machine.crier(&[]);
    command.env("CRIER_HTTP_ADDR", "0.0.0.0:0");
    let _running = machine.start_with(command).await;
    until_true("it warns", || machine.read("err").contains("CRIER_PUBLIC_URL is not set, so links")).await;
    assert!(machine.read("out").contains("API       http://127.0.0.1:"), "{}", machine.read("out"));
}

#[tokio::test]
async fn a_data_directory_is_used_by_one_process() {
    let machine = Machine::new();
    let running = machine.start().await;
    let line = format!("the data directory ./crier-data is in use by process {} (http://127.0.0.1:", running.0.id());
    assert_error(&run(&mut machine.crier(&[])), 2, &line);
    run(&mut machine.crier(&["user", "list"])).expect_stdout();
    drop(running);
    drop(machine.start().await);
}

#[tokio::test]
async fn commands_create_no_installation() {
    let machine = Machine::new();
    for args in [["user", "list"].as_slice(), &["key", "create", "--user", "a@b.example"], &["jobs", "kinds"]] {
        let line = "there is no installation here: ./crier-data/crier.db does not exist. Start `crier` once, or name its \
                    directory with --data-dir or CRIER_DATA_DIR";
        assert_error(&run(&mut machine.crier(args)), 2, line);
    }
    assert_eq!(machine.entries(), Vec::<String>::new());
    assert_migrates_quietly(machine.crier(&["migrate"]));
    run(&mut machine.crier(&["user", "list"])).expect_stdout();
}

/// Asserts that the log has the statements of the command, but not the schema: a migration may take longer than a second,
/// after which sqlx logs a statement.
fn assert_migrates_quietly(mut migrate: Command) {
    let output = run(migrate.env("CRIER_LOG", "debug"));
    output.expect_stdout();
    assert!(output.err.contains("sqlx::query") && !output.err.contains("CREATE TABLE"), "{}", output.err);
}

#[tokio::test]
async fn a_missing_or_replaced_key_file_is_reported() {
    let machine = Machine::new();
    machine.install().await;
    let file = machine.data().join("secret.key");
    let key = std::fs::read_to_string(&file).unwrap();
    let assert_rejected = |what: &str| {
        let line = format!(
            "the secrets in the database (credentials, signing secrets, responses of the last 24 hours) are encrypted \
             with the key 0, and {what}"
        );
        for args in [[].as_slice(), &["user", "list"]] {
            assert_error(&run(&mut machine.crier(args)), 2, &line);
        }
    };
    std::fs::remove_file(&file).unwrap();
    // Nothing is encrypted yet, but the check value of the key exists.
    assert_rejected("./crier-data/secret.key is missing; restore ./crier-data/secret.key from a backup, or set CRIER_");
    assert!(!file.exists(), "no other key takes its place");
    std::fs::write(&file, OTHER_KEY).unwrap();
    assert_rejected("./crier-data/secret.key has another key with this ID");
    std::fs::write(&file, format!("1:{OTHER_KEY}")).unwrap();
    drop(machine.start().await);
    std::fs::write(&file, key).unwrap();
    drop(machine.start().await);
}

#[tokio::test]
async fn an_unused_key_can_be_removed() {
    let s = Installation::split().await;
    let other = format!("1:{OTHER_KEY}");
    let assert_rejected = |value: &str, what: &str| {
        let output = s.try_command(&["user", "list"], &[("CRIER_SECRET_KEY", value)]);
        assert_error(&output, 2, what);
    };
    assert_rejected(
        OTHER_KEY,
        "the key 0, and CRIER_SECRET_KEY has another key with this ID; set CRIER_SECRET_KEY to the key that was used",
    );
    s.sandbox("demo").await;
    assert_rejected(&other, "the key 0, and CRIER_SECRET_KEY does not have it");
    s.try_command(&["user", "list"], &[("CRIER_SECRET_KEY", &format!("{other},0:{KEY}"))]).expect_stdout();
    assert_eq!(s.count_rows("secret_key_checks").await, 2);
    s.execute("DELETE FROM social_accounts").await;
    // A client may repeat its request, and gets the stored response.
    assert_rejected(&other, "the key 0, and CRIER_SECRET_KEY does not have it");
    s.execute("UPDATE idempotency_keys SET created_at = created_at - INTERVAL '1 day'").await;
    s.try_command(&["user", "list"], &[("CRIER_SECRET_KEY", &other)]).expect_stdout();
    assert_eq!(s.number("SELECT min(key_id) FROM secret_key_checks").await, 1);
}

#[tokio::test]
async fn failures_of_the_file_system_name_the_path_and_the_fix() {
    let machine = Machine::new();
    machine.install().await;
    let (data, file) = (machine.data(), machine.data().join("crier.db"));
    let start = |keys: &[(&str, &str)]| run(machine.crier(&[]).envs(keys.iter().copied()));

    let settings = machine.0.path().join("crier.toml");
    std::fs::write(&settings, "").unwrap();
    set_mode(&settings, 0o000);
    let line = "configuration file: `crier.toml` cannot be read (Permission denied (os error 13)); name a TOML file that \
                this user can read";
    assert_error(&start(&[]), 2, line);
    set_mode(&settings, 0o600);

    set_mode(&file, 0o400);
    assert_error(&start(&[]), 1, "the database ./crier-data/crier.db");
    set_mode(&file, 0o600);

    let files = data.join("files");
    set_mode(&files, 0o500);
    let output = start(&[]);
    assert_error(&output, 2, "cannot store files in ./crier-data/files: Permission denied");
    let remedy =
        "; make the directory writable for this user, or choose another with CRIER_DATA_DIR or CRIER_STORAGE_URL";
    assert_error(&output, 2, remedy);
    set_mode(&files, 0o700);
    assert_error(
        &start(&[("CRIER_STORAGE_URL", "file:///dev/null/files")]),
        1,
        "the file /dev/null/files/storage.id cannot be accessed; give this user access to the directory, or choose \
         another with CRIER_STORAGE_URL: Not a directory",
    );

    set_mode(&data, 0o500);
    let output = start(&[("CRIER_DATA_DIR", "./crier-data/deeper")]);
    assert_error(
        &output,
        1,
        "the directory ./crier-data/deeper cannot be created; choose another with CRIER_DATA_DIR: Permission denied",
    );
    std::fs::remove_file(data.join("crier.lock")).unwrap();
    set_mode(&data, 0o500);
    assert_error(
        &start(&[]),
        1,
        "the directory ./crier-data cannot be written; make it writable for this user, or choose another with \
         CRIER_DATA_DIR: Permission denied",
    );
    set_mode(&data, 0o000);
    assert_error(
        &run(&mut machine.crier(&["user", "list"])),
        1,
        "the database ./crier-data/crier.db cannot be accessed; run the command as the user that runs Crier: Permission \
         denied",
    );
    set_mode(&data, 0o700);

    machine.execute("INSERT INTO _sqlx_migrations VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 1)").await;
    assert_error(
        &start(&[]),
        1,
        "the database was migrated by a newer version of Crier (schema 9999); run that version, or restore the backup \
         that was made before the upgrade",
    );

    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(data.join(format!("crier.db{end}")));
    }
    std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
    assert_error(
        &start(&[]),
        1,
        "the database ./crier-data/crier.db is damaged or is not a SQLite database; move it away and restore a backup",
    );
}

#[tokio::test]
async fn failures_of_postgres_name_the_server_and_the_fix() {
    let machine = Machine::new();
    let port = free_port();
    let unreachable_url = format!("postgres://ann:secret@127.0.0.1:{port}/crier");
    let command =
        |url: &str| run(machine.crier(&["user", "list"]).env("CRIER_DATABASE_URL", url).env("CRIER_SECRET_KEY", KEY));
    let output = command(&unreachable_url);
    assert_error(
        &output,
        1,
        &format!(
            "Postgres at 127.0.0.1:{port} is not reachable: Connection refused (os error 111); is it running? (CRIER_DATABASE_URL)"
        ),
    );
    assert!(!output.err.contains("secret@"), "{output:?}");

    let server = PostgresServer::start();
    let (server_url, _) =
        server.url().rsplit_once('/').map(|(server_url, name)| (server_url.to_owned(), name.to_owned())).unwrap();
    assert_error(
        &command(&format!("{server_url}/nothing")),
        1,
        "has no database nothing; create it with: createdb -O crier",
    );
    let output = command(&server_url.replace("correct", "wrong"));
    assert_error(&output, 1, "rejects the password of the user crier; correct CRIER_DATABASE_URL");
    let line = "the database is not ready (it has no schema); run `crier migrate` first";
    assert_error(&command(&server.url()), 1, line);

    let migrate = || {
        let mut command = machine.crier(&["migrate"]);
        command.env("CRIER_DATABASE_URL", server.url()).env("CRIER_SECRET_KEY", KEY);
        command
    };
    assert_migrates_quietly(migrate());
    let later = "INSERT INTO _sqlx_migrations VALUES (9999, 'later', now(), true, '', 1)";
    PgConnection::connect(&server.url()).await.unwrap().execute(later).await.unwrap();
    assert!(run(&mut migrate()).expect_stdout().contains("up to date"), "separate processes run on a newer schema");

    let read_only = "ALTER ROLE crier SET default_transaction_read_only = on";
    PgConnection::connect(&server.url()).await.unwrap().execute(read_only).await.unwrap();
    let mut add = machine.crier(&["user", "add", "ann@example.com"]);
    let added = run(add.env("CRIER_DATABASE_URL", server.url()).env("CRIER_SECRET_KEY", KEY));
    assert_error(&added, 1, "is read-only; set CRIER_DATABASE_URL to the primary server");

    // A process waits for an unavailable server, and reports this immediately.
    let mut worker = Command::new(program("crier-worker"));
    worker.env_clear().env("CRIER_OPS_ADDR", "127.0.0.1:0").env("CRIER_DATABASE_URL", &unreachable_url);
    worker.env("CRIER_SECRET_KEY", KEY).env("CRIER_REDIS_URL", format!("redis://127.0.0.1:{port}"));
    let mut worker =
        Running(worker.stderr(std::fs::File::create(machine.0.path().join("err")).unwrap()).spawn().unwrap());
    for line in [
        format!("waiting for the database: Postgres at 127.0.0.1:{port} is not reachable: Connection refused"),
        format!("Redis at 127.0.0.1:{port} cannot be used (CRIER_REDIS_URL): Connection refused"),
    ] {
        until_true(&line, || machine.read("err").contains(&line)).await;
    }
    servers::signal(&worker.0, "TERM");
    assert_eq!(worker.0.wait().unwrap().code(), Some(0), "a stop is no failure");
}
