//! `crier doctor` on installations that are broken in one way each.

use std::path::Path;

use serde_json::Value;

use crate::support::command::CommandOutput;
use crate::support::databases;
use crate::support::process::Installation;
use crate::support::servers::{RedisServer, free_port};

const OTHER_KEY: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

/// Returns the findings in the output.
fn findings(output: &CommandOutput) -> Vec<Value> {
    let found: Value = serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    found.as_array().expect("an array").clone()
}

fn finding(findings: &[Value], id: &str) -> Value {
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {findings:?}")).clone()
}

/// Returns the IDs of the checks that failed.
fn failed(findings: &[Value]) -> Vec<&str> {
    let failed = findings.iter().filter(|finding| finding["status"] == "failure");
    failed.filter_map(|finding| finding["id"].as_str()).collect()
}

/// Asserts that the command fails, and that this check reports a failure with this text.
#[track_caller]
fn assert_fails(s: &Installation, keys: &[(&str, &str)], id: &str, text: &str) {
    let output = s.try_command(&["doctor", "--json"], keys);
    assert_eq!(output.status, Some(1), "{output:?}");
    let found = finding(&findings(&output), id);
    assert_eq!(found["status"], "failure", "{found}");
    let message = format!("{} {}", found["detail"], found["remedy"]);
    assert!(message.contains(text), "{message}\nhas no\n{text}");
}

#[tokio::test]
async fn a_working_installation_has_no_failure() {
    for s in [Installation::embedded().await, Installation::split().await] {
        let output = s.try_command(&["doctor", "--json"], &[]);
        assert_eq!(output.status, Some(0), "{output:?}");
        let found = findings(&output);
        for id in
            ["form", "database", "schema", "secret_key", "plans", "clock", "queue", "storage", "traces", "ai", "fonts"]
        {
            assert_eq!(finding(&found, id)["status"], "ok", "{found:?}");
        }
        // The installation can only be reached on this machine, and sends no emails.
        for id in ["public_url", "mail"] {
            assert_eq!(finding(&found, id)["status"], "warning", "{found:?}");
        }
        let text = s.command(&["doctor"]);
        assert!(text.contains("ok       database") && text.contains("0 failed"), "{text}");
        let remaining = s.files().join("media/do").read_dir().map_or(0, |remaining| remaining.count());
        assert_eq!(remaining, 0, "the file of the check is deleted");
    }
}

#[tokio::test]
async fn disabled_metrics_are_named() {
    let s = Installation::embedded().await;
    let detail = |switch: &[(&str, &str)]| {
        let application = [("CRIER_TWITTER_CLIENT_ID", "app"), ("CRIER_TWITTER_CLIENT_SECRET", "secret")];
        let keys = [application.as_slice(), switch].concat();
        let found = finding(&findings(&s.try_command(&["doctor", "--json"], &keys)), "metrics");
        assert_eq!(found["status"], "ok", "{found}");
        found["detail"].as_str().expect("a text").to_owned()
    };
    let off = detail(&[]);
    assert!(off.ends_with("; not from twitter (set CRIER_TWITTER_ANALYTICS=true to collect them)"), "{off}");
    let on = detail(&[("CRIER_TWITTER_ANALYTICS", "true"), ("CRIER_BLUESKY_ANALYTICS", "false")]);
    assert!(
        on.contains("twitter") && on.ends_with("; not from bluesky (set CRIER_BLUESKY_ANALYTICS=true to collect them)")
    );
}

#[tokio::test]
async fn a_missing_ffmpeg_is_a_warning() {
    let s = Installation::embedded().await;
    let finding_with = |program: &str| {
        finding(&findings(&s.try_command(&["doctor", "--json"], &[("CRIER_MEDIA_FFMPEG", program)])), "ffmpeg")
    };
    let missing = finding_with("/no/such/ffmpeg");
    assert_eq!(missing["status"], "warning", "{missing}");
    assert!(missing["detail"].as_str().is_some_and(|text| text.contains("no cover images")), "{missing}");
    assert!(missing["remedy"].as_str().is_some_and(|text| text.contains("CRIER_MEDIA_FFMPEG")), "{missing}");
    for wrong in ["/bin/false", "/bin/true"] {
        assert_eq!(finding_with(wrong)["status"], "warning", "{wrong} prints no version");
    }
    assert_eq!(finding_with("/bin/echo")["status"], "ok", "a program that prints something");
    let off = finding_with("false");
    assert!(off["status"] == "ok" && off["detail"].as_str().is_some_and(|text| text.starts_with("not used")), "{off}");
}

/// The sandbox is off by default in separate processes.
#[tokio::test]
async fn the_settings_of_separate_processes_are_checked() {
    let s = Installation::split().await;
    let found = findings(&s.try_command(&["doctor", "--json"], &[]));
    assert!(finding(&found, "form")["detail"].as_str().is_some_and(|text| text.starts_with("separate processes")));
    let platforms = |keys: &[(&str, &str)], without: &[&str]| {
        let output = s.try_command_without(&["doctor", "--json"], keys, without);
        finding(&findings(&output), "platforms")["detail"].as_str().expect("a text").to_owned()
    };
    assert!(platforms(&[], &[]).contains("sandbox"));
    assert!(!platforms(&[], &["CRIER_SANDBOX"]).contains("sandbox"));

    let output = s.try_command_without(&["doctor", "--json"], &[], &["CRIER_REDIS_URL"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let found = findings(&output);
    let form = finding(&found, "form");
    assert_eq!(form["status"], "failure", "{form}");
    assert!(form["detail"].as_str().is_some_and(|text| text.starts_with("CRIER_REDIS_URL: is not set")), "{form}");
    assert!(found.iter().all(|finding| finding["id"] != "queue"), "{found:?}");

    // From the time when this installation was embedded.
    let data = s.files().parent().expect("the data directory").to_owned();
    std::fs::write(data.join("crier.lock"), "").expect("a file");
    let form = finding(&findings(&s.try_command(&["doctor", "--json"], &[])), "form");
    assert!(form["detail"].as_str().is_some_and(|text| text.starts_with("separate processes")), "{form}");
}

#[tokio::test]
async fn partial_configurations_are_named() {
    let s = Installation::embedded().await;
    let keys = [
        ("CRIER_FACEBOOK_CLIENT_ID", "12345"),
        ("CRIER_LINKEDIN_PAGE_CLIENT_SECRET", "not-to-be-shown"),
        ("CRIER_AI_TEXT_MODEL", "gpt"),
    ];
    let output = s.try_command(&["doctor", "--json"], &keys);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(!output.out.contains("not-to-be-shown"), "{output:?}");
    for (id, remedy) in [
        ("facebook_application", "set CRIER_FACEBOOK_CLIENT_SECRET, or remove CRIER_FACEBOOK_CLIENT_ID"),
        ("linkedin_application", "set CRIER_LINKEDIN_PAGE_CLIENT_ID, or remove CRIER_LINKEDIN_PAGE_CLIENT_SECRET"),
        ("ai", "set CRIER_AI_BASE_URL, or remove the others"),
    ] {
        let found = finding(&findings(&output), id);
        assert_eq!((&found["status"], &found["remedy"]), (&"warning".into(), &remedy.into()), "{found}");
    }
}

#[tokio::test]
async fn scripts_without_a_font_are_reported() {
    let s = Installation::embedded().await;
    // Code points for private use, which neither the program's fonts nor Noto contain.
    s.execute("UPDATE brands SET name = 'Bread \u{e123} and \u{e124}'").await;
    let found = finding(&findings(&s.try_command(&["doctor", "--json"], &[])), "fonts");
    assert_eq!(found["status"], "warning", "{found}");
    let detail = "PDF reports cannot show some characters in 1 of the newest texts, such as \u{e123}";
    assert_eq!(found["detail"], detail);
}

#[tokio::test]
async fn a_missing_schema_is_one_failure() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("crier.db");
    std::fs::write(&file, "").expect("a file");
    let database = databases::postgres().await;
    let separator = if database.url.contains('?') { '&' } else { '?' };
    let postgres = format!("{}{separator}options=-c%20search_path%3Dnowhere", database.url);
    for (s, url) in [
        (Installation::embedded().await, format!("sqlite://{}", file.display())),
        (Installation::split().await, postgres),
    ] {
        let output = s.try_command(&["doctor", "--json"], &[("CRIER_DATABASE_URL", &url)]);
        assert_eq!(output.status, Some(1), "{output:?}");
        let found = findings(&output);
        // The installation may not respond in time to a busy machine.
        let failures: Vec<_> = failed(&found).into_iter().filter(|id| *id != "public_url").collect();
        assert_eq!(failures, ["schema"], "{found:?}");
        let schema = finding(&found, "schema");
        assert_eq!(schema["detail"], "the database is not ready (it has no schema)");
        assert!(schema["remedy"].as_str().is_some_and(|text| text.starts_with("run `crier migrate`, ")), "{schema}");
        for id in ["secret_key", "plans", "fonts", "platforms"] {
            assert!(found.iter().all(|finding| finding["id"] != id), "{id} needs the schema: {found:?}");
        }
    }
}

#[tokio::test]
async fn each_failure_of_an_embedded_installation_is_found() {
    let mut s = Installation::embedded().await;
    let port = free_port();
    let smtp = format!("smtp://127.0.0.1:{port}");
    assert_fails(&s, &[("CRIER_SMTP_URL", &smtp)], "mail", "Connection refused");
    let unreachable_url = format!("http://127.0.0.1:{port}");
    assert_fails(&s, &[("CRIER_PUBLIC_URL", &unreachable_url)], "public_url", "cannot be reached");
    let other = wiremock::MockServer::start().await;
    assert_fails(&s, &[("CRIER_PUBLIC_URL", &other.uri())], "public_url", "404 Not Found, which is not from Crier");
    let collector =
        [("CRIER_OTLP_ENDPOINT", unreachable_url.as_str()), ("CRIER_OTLP_HEADERS", "x-key=not-to-be-shown")];
    assert_fails(&s, &collector, "traces", "/v1/traces does not accept traces: no connection could be made");
    let key = "encrypted with the key 0, and CRIER_SECRET_KEY has another key with this ID";
    assert_fails(&s, &[("CRIER_SECRET_KEY", OTHER_KEY)], "secret_key", key);
    // The key file is there, but the variable overrides it.
    assert_fails(&s, &[("CRIER_SECRET_KEY", OTHER_KEY)], "secret_key", "used before, or unset it to use /");
    assert_fails(&s, &[("CRIER_DATA_DIR", "elsewhere")], "database", "there is no installation here");
    assert!(!Path::new("elsewhere").exists());
    assert_fails(&s, &[("TMPDIR", "/no/such/directory")], "disk", "set TMPDIR to another one");

    // With this, no process starts.
    let marker = s.files().join("storage.id");
    let id = std::fs::read(&marker).expect("the marker");
    std::fs::remove_file(&marker).expect("a file");
    std::fs::create_dir(&marker).expect("a directory");
    assert_fails(&s, &[], "storage", "storage.id cannot be accessed; give this user access to the directory");
    std::fs::remove_dir(&marker).expect("a directory");
    std::fs::write(&marker, id).expect("the marker");

    s.execute("UPDATE workspaces SET plan = 'gone'").await;
    assert_fails(&s, &[], "plans", "plans that workspaces are on: gone");
    s.execute("DELETE FROM _sqlx_migrations").await;
    assert_fails(&s, &[], "schema", "run `crier migrate`");

    s.terminate("crier").await;
    assert_fails(&s, &[], "public_url", "start Crier");
    let files = s.files();
    std::fs::remove_dir_all(&files).expect("a directory");
    let unused = finding(&findings(&s.try_command(&["doctor", "--json"], &[])), "storage");
    assert_eq!(unused["status"], "warning", "{unused}");
    assert!(!files.exists(), "a check creates nothing");
    std::fs::write(&files, b"in the way").expect("a file");
    assert_fails(&s, &[], "storage", "make the directory writable for this user");
    let data = files.parent().expect("the data directory").to_owned();
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(data.join(format!("crier.db{end}")));
    }
    std::fs::write(data.join("crier.db"), vec![b'x'; 8_192]).expect("a file");
    assert_fails(&s, &[], "database", "is damaged or is not a SQLite database");
}

#[tokio::test]
async fn each_failure_of_a_split_installation_is_found() {
    let s = Installation::split().await;
    let port = free_port();
    let redis = format!("redis://:not-to-be-shown@127.0.0.1:{port}");
    assert_fails(&s, &[("CRIER_REDIS_URL", &redis)], "queue", "Redis does not respond");
    assert_fails(&s, &[("CRIER_REDIS_URL", &redis)], "queue", "nothing is published");
    let database = format!("postgres://ann:not-to-be-shown@127.0.0.1:{port}/crier");
    assert_fails(&s, &[("CRIER_DATABASE_URL", &database)], "database", "is not reachable: Connection refused");
    let output = s.try_command(&["doctor"], &[("CRIER_DATABASE_URL", &database), ("CRIER_REDIS_URL", &redis)]);
    assert!(!format!("{output:?}").contains("not-to-be-shown"), "{output:?}");
    // The output does not contain the secrets of applications either.
    let keys = [("CRIER_FACEBOOK_CLIENT_ID", "12345"), ("CRIER_FACEBOOK_CLIENT_SECRET", "not-to-be-shown")];
    let output = s.try_command(&["doctor", "--json"], &keys);
    let facebook = finding(&findings(&output), "facebook");
    assert_eq!(facebook["status"], "warning", "{facebook}");
    assert!(facebook["detail"].as_str().is_some_and(|text| text.contains("/connect/callback/facebook")), "{facebook}");
    assert!(!output.out.contains("not-to-be-shown"), "{output:?}");
    let dir = s.files().with_file_name("elsewhere");
    let keys = [("CRIER_DATA_DIR", dir.to_str().expect("a path"))];
    for args in [["doctor", "--json"].as_slice(), &["user", "list"]] {
        let output = s.try_command_without(args, &keys, &["CRIER_SECRET_KEY"]);
        assert_ne!(output.status, Some(0), "{output:?}");
        assert!(!dir.exists(), "a key that is not saved needs no directory");
    }
}

/// A server whose memory is full still responds to a ping.
#[tokio::test]
async fn a_redis_that_accepts_no_writes_is_found() {
    let (s, redis) = (Installation::split().await, RedisServer::start());
    let url = redis.url();
    let queue = || finding(&findings(&s.try_command(&["doctor", "--json"], &[("CRIER_REDIS_URL", &url)])), "queue");
    assert_eq!(queue()["status"], "ok");
    let () = redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_fails(&s, &[("CRIER_REDIS_URL", &url)], "queue", "Redis does not accept writes");
    let () = redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(queue()["status"], "ok");
}

#[tokio::test]
async fn an_untrusted_proxy_is_reported() {
    let s = Installation::embedded().await;
    let trusting = Installation::embedded_with(&[("CRIER_TRUSTED_PROXIES", "127.0.0.1")]).await;
    let proxy = |s: &Installation| {
        let ops = s.ops("crier");
        finding(&findings(&s.try_command(&["doctor", "--json"], &[("CRIER_OPS_ADDR", &ops)])), "proxy")
    };
    assert_eq!(proxy(&s)["status"], "ok");
    let http = crier_http::HttpClient::trusted(std::time::Duration::from_secs(30), 1 << 20);
    for (name, value) in [("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.1")] {
        for s in [&s, &trusting] {
            let request = http.request(http::Method::GET, &format!("{}/docs", s.url)).header(name, value);
            http.send(request).await.expect("a response");
        }
    }
    assert_eq!(s.metric("crier", "crier_http_untrusted_proxy_requests_total").await, Some(2.0));
    let found = proxy(&s);
    assert_eq!(found["status"], "warning", "{found}");
    assert!(found["remedy"].as_str().is_some_and(|remedy| remedy.contains("CRIER_TRUSTED_PROXIES")), "{found}");
    let warnings = |s: &Installation| s.log("crier").matches("that is not in CRIER_TRUSTED_PROXIES").count();
    // A warning is repeated after ten seconds, which is possible between two requests on a busy machine.
    assert!((1..=2).contains(&warnings(&s)) && warnings(&trusting) == 0, "{}", s.log("crier"));
    assert_eq!(proxy(&trusting)["status"], "ok");
}
