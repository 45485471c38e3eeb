//! `crier webhooks listen`, as a developer runs it: in a directory without an installation.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use crier_domain::webhook_signature::sign;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::client::until;
use crate::support::command::CommandOutput;
use crate::support::page;
use crate::support::process::{Installation, program};
use crate::support::servers::{free_port, signal};

const SECRET: &str = "whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN";

/// The running command.
struct ListenProcess {
    child: Child,
    stderr: BufReader<ChildStderr>,
    addr: SocketAddr,
    dir: tempfile::TempDir,
}

/// Returns the command, not yet started. `timeout` kills it if it does not exit, so that a test fails instead of
/// hanging.
fn command(dir: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "1", "90"]).arg(program("crier")).args(["webhooks", "listen"]).args(args);
    command.env_clear().current_dir(dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl ListenProcess {
    fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The command ignores a configuration file, even an invalid one.
        std::fs::write(dir.path().join("crier.toml"), "database_url = 5").unwrap();
        let mut child = command(&dir, args).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        stderr.read_line(&mut first).unwrap();
        let addr = first.strip_prefix("Listening on http://").and_then(|rest| rest.split_once('/')?.0.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("{first}"));
        Self { child, stderr, addr, dir }
    }

    /// Sends these bytes; returns the whole response. The response may be lost if the server does not read all bytes.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.addr).unwrap();
        let _ = stream.write_all(bytes);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    fn post(&self, headers: &str, body: &[u8]) -> String {
        let head = format!("POST /hook?a=b HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Waits for the command to exit.
    fn wait_for_exit(mut self) -> CommandOutput {
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        let status = self.child.wait().unwrap().code();
        let files: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(files, ["crier.toml"], "it makes no files");
        CommandOutput { status, out, err }
    }
}

impl Drop for ListenProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn objects(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Registers an endpoint for `brand.created` at a local port; returns its id and its secret.
async fn register(crier: &Installation, port: u16) -> (i64, String) {
    let url = format!("http://127.0.0.1:{port}/");
    let created = crier.write("/webhooks", json!({ "url": url, "events": ["brand.created"] })).await;
    (created["id"].as_i64().unwrap(), created["secret"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn deliveries_are_shown_and_their_signatures_verified() {
    let crier = Installation::embedded().await;
    let ports = [free_port(), free_port(), free_port()];
    let [port, other, failing] = ports.map(|port| port.to_string());
    let (_, secret) = register(&crier, ports[0]).await;
    register(&crier, ports[1]).await;
    let (webhook, failing_secret) = register(&crier, ports[2]).await;
    let valid = ListenProcess::start(&["--port", &port, "--secret", &secret, "--json", "--count", "1"]);
    let invalid = ListenProcess::start(&["--port", &other, "--secret", &secret, "--count", "1"]);
    let repeated = ListenProcess::start(&[
        "--port",
        &failing,
        "--secret",
        &failing_secret,
        "--status",
        "503",
        "--json",
        "--count",
        "2",
    ]);
    let brand = crier.brand().await;

    let output = valid.wait_for_exit();
    let [shown] = objects(output.expect_stdout()).try_into().unwrap();
    let headers = &shown["headers"];
    assert_eq!((&shown["method"], &shown["path"], &shown["signature"]), (&json!("POST"), &json!("/"), &json!("ok")));
    assert_eq!((&shown["again"], &headers["x-webhook-event"]), (&json!(false), &json!("brand.created")));
    let body = shown["body"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()["data"]["brand_id"], brand);
    let guide = page::read("docs/webhooks.md").to_lowercase();
    let documented = |name: &&String| name.starts_with("x-webhook-") && guide.contains(&format!("\n| `{name}` |"));
    assert_eq!(
        headers.as_object().unwrap().keys().filter(documented).count(),
        5,
        "the guide lists them all: {headers}"
    );
    let at = headers["x-webhook-timestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(headers["x-webhook-signature"], sign(&SecretString::from(secret), at, body.as_bytes()));

    let output = invalid.wait_for_exit();
    let out = output.expect_stdout();
    assert!(out.contains("  brand.created  delivery ") && out.contains("POST /\nSIGNATURE WRONG: "), "{out}");
    assert!(
        out.contains("does not match the body; is --secret the newest secret of this endpoint")
            && out.contains("\"brand_id\": ")
    );

    // Crier receives the status that the command is told to return; a repeated delivery is recognized.
    let path = format!("/webhooks/{webhook}/deliveries");
    let delivery = until("a rejected delivery", || async {
        let first = crier.read(&path).await?["data"][0].clone();
        (first["response_code"] == 503).then_some(first)
    })
    .await;
    crier.write(&format!("{path}/{}/retry", delivery["id"]), json!({})).await;
    let output = repeated.wait_for_exit();
    let shown = objects(output.expect_stdout());
    let what: Vec<_> = shown.iter().map(|one| (&one["headers"]["x-webhook-delivery-id"], &one["again"])).collect();
    let id = json!(delivery["id"].to_string());
    assert_eq!(what, [(&id, &json!(false)), (&id, &json!(true))]);
    assert!(shown.iter().all(|one| one["signature"] == "ok"), "{shown:?}");
}

#[test]
fn arbitrary_requests_are_shown_or_rejected() {
    let listening = ListenProcess::start(&["--port", "0", "--secret", SECRET, "--count", "5"]);
    assert!(listening.send(b"\x16\x03\x01 this is no HTTP\r\n\r\n").starts_with("HTTP/1.1 400 "));
    drop(TcpStream::connect(listening.addr).unwrap());
    let signature =
        format!("X-Webhook-Signature: {}\r\nX-Webhook-Delivery-Id: 7\r\n", sign(&SECRET.into(), 100, b"{}"));
    for (headers, body) in [
        ("", &b""[..]),
        ("X-Webhook-Event: \u{9b}31m\r\nX-Webhook-Signature: nonsense\r\n", b"\x1b[2J\xff\xfe not \xe2\x82 text"),
        ("X-Webhook-Delivery-Id: seven\r\n", "[".repeat(10_000).as_bytes()),
        (&signature, b"{}"),
    ] {
        assert!(listening.post(headers, body).starts_with("HTTP/1.1 204 No Content\r\n"), "{headers}");
    }
    let large = vec![b' '; 1024 * 1024 + 1];
    let response = listening.post("", &large);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 413 "), "{response}");
    let body = [&b"\"large\""[..], &large[8..]].concat();
    assert!(listening.post("", &body).starts_with("HTTP/1.1 204 "));

    let output = listening.wait_for_exit();
    let out = output.expect_stdout();
    for expected in [
        "  (none)  delivery (none)  event (none)  POST /hook?a=b\nSIGNATURE MISSING: ",
        "SIGNATURE WRONG: the signature header has no valid t and v1; ",
        "(not JSON, 18 bytes) \u{fffd}[2J\u{fffd}\u{fffd} not \u{fffd} text\n",
        "delivery seven  ",
        "delivery 7  event (none)  POST /hook?a=b\nSIGNATURE WRONG: the signature's time is too far from now; ",
        "\n\"large\"\n",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "control characters must be removed");
    assert!(output.err.contains(" did not send a complete HTTP request: "), "{}", output.err);
    assert_eq!(
        output.err.matches("POST /hook?a=b: rejected, the body is larger than 1 MiB\n").count(),
        1,
        "{}",
        output.err
    );
}

#[test]
fn startup_prints_how_to_register_the_endpoint() {
    let listening = ListenProcess::start(&["--port", "0"]);
    let url = format!("http://{}/", listening.addr);
    signal(&listening.child, "INT");
    let output = listening.wait_for_exit();
    assert_eq!((output.expect_stdout(), output.err.contains("CRIER_ALLOWED_PRIVATE_NETWORKS=127.0.0.0/8")), ("", true));
    let curl = output.err.lines().find(|line| line.starts_with("  curl -X POST \"$API/webhooks\" ")).unwrap();
    let (_, body) = curl.rsplit_once("-d '").unwrap();
    let body: Value = serde_json::from_str(body.trim_end_matches('\'')).unwrap();
    assert_eq!(body, json!({ "url": url, "events": ["post.published", "post.failed"] }));
    assert!(output.err.contains("--secret whsec_"), "{}", output.err);
}

#[test]
fn slow_clients_are_disconnected_without_blocking_others() {
    let listening = ListenProcess::start(&["--port", "0", "--json"]);
    let send_part = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(listening.addr).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut head = send_part(b"POST / HTTP/1.1\r\nHost: ");
    let body = send_part(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{");
    assert!(listening.post("", b"{}").starts_with("HTTP/1.1 204 "));
    let mut rest = Vec::new();
    let _ = head.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}");
    // Another connection is still open; the command does not wait for it.
    signal(&listening.child, "TERM");
    let output = listening.wait_for_exit();
    assert_eq!(objects(output.expect_stdout()).len(), 1);
    drop(body);
}

#[test]
fn invalid_arguments_are_rejected_with_a_hint() {
    let assert_rejected = |args: &[&str], status, reason: &str| {
        let out = command(&tempfile::tempdir().unwrap(), args).output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(status) && err.contains(reason) && out.stdout.is_empty(), "{args:?}: {err}");
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    assert_rejected(
        &["--port", &port],
        1,
        &format!("crier: cannot listen on 127.0.0.1:{port} (Address already in use"),
    );
    assert_rejected(&["--port", &port], 1, "choose another --port");
    assert_rejected(&["--port", "0", "--secret", "abc"], 2, "it must begin with whsec_");
    assert_rejected(&["--port", "0", "--status", "101"], 2, "200..=599");
    assert_rejected(&["--port", "0", "--count", "0"], 2, "1..");
    assert_rejected(&["--addr", "localhost"], 2, "invalid IP address");
}
