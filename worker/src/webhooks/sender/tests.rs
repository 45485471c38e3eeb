#![allow(clippy::unwrap_used, reason = "a test's own data")]

use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use crier_domain::webhook_signature::{TOLERANCE, verify};
use crier_http::test_server::{ScriptedLookup, TestServer, read_request};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;

const AT: i64 = 1_777_636_800;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(AT, 0).unwrap()
}

/// A deadline that a test waits for. Long enough to connect and to send a request on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

fn sender(deadline: Duration) -> Sender {
    let guard = Guard::with_lookup(vec!["127.0.0.0/8".parse().unwrap()], ScriptedLookup::of("-"));
    Sender::with_client(HttpClient::guarded(guard, deadline, MAX_BODY))
}

fn delivery(url: String) -> DeliveryRequest {
    DeliveryRequest {
        url,
        secret: SecretString::from("whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"),
        event: EventName::PostPublished,
        delivery_id: 41,
        event_id: 7,
        body: Bytes::from_static(br#"{"event":"post.published","data":{"post_id":1}}"#),
    }
}

async fn attempt(response: &str) -> AttemptResult {
    let server = TestServer::responding(response).await;
    sender(Duration::from_secs(30)).send(&delivery(server.url()), now()).await
}

#[tokio::test]
async fn the_request_matches_the_documentation() {
    let seen = Arc::new(Mutex::new(String::new()));
    let log = seen.clone();
    let server = TestServer::run(move |mut stream| {
        let log = log.clone();
        async move {
            *log.lock().unwrap() = read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await;
    let delivery = delivery(server.url());
    let result = sender(Duration::from_secs(30)).send(&delivery, now()).await;
    assert_eq!((result.outcome, result.response_code), (DeliveryOutcome::Success, Some(200)));
    assert_eq!((result.error, result.response_body.as_deref(), result.retry_after), (None, Some("ok"), None));
    let request = seen.lock().unwrap().clone();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST / HTTP/1.1\r\n"));
    let header = |name: &str| {
        let mut lines =
            head.lines().filter_map(|line| line.split_once(": ")).filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = lines.next().unwrap_or_else(|| panic!("no {name} in {head}")).1.to_owned();
        assert!(lines.next().is_none(), "{name} twice");
        value
    };
    assert_eq!(header("Content-Type"), "application/json");
    assert_eq!(header("User-Agent"), "Crier-Webhook/1.0");
    assert_eq!(header("X-Webhook-Event"), "post.published");
    assert_eq!(header("X-Webhook-Delivery-Id"), "41");
    assert_eq!(header("X-Webhook-Event-Id"), "7");
    assert_eq!(header("X-Webhook-Timestamp"), AT.to_string());
    let signature = header("X-Webhook-Signature");
    assert!(signature.starts_with(&format!("t={AT},v1=")));
    assert_eq!(verify(&delivery.secret, &signature, body.as_bytes(), AT, TOLERANCE), Ok(()));
    assert_eq!(body.as_bytes(), &delivery.body[..]);
    assert!(!format!("{delivery:?}").contains("whsec_abc"), "the secret is printed");
}

#[tokio::test]
async fn statuses_are_recorded_and_redirects_not_followed() {
    let reply = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\n{more}Content-Length: 4\r\n\r\nbody");
    let cases = [
        ("204 No Content", "2xx"),
        ("302 Found", "3xx"),
        ("410 Gone", "4xx"),
        ("500 Internal Server Error", "5xx"),
        ("999 Odd", "5xx"),
    ];
    for (status, outcome) in cases {
        let result = attempt(&reply(status, "Location: http://127.0.0.1:1/\r\nRetry-After: 60\r\n")).await;
        assert_eq!(result.outcome.as_str(), outcome);
        assert_eq!(result.response_code.map(|code| code.to_string()).as_deref(), status.get(..3));
        let sentence = match outcome {
            "2xx" => None,
            "3xx" => Some("the endpoint returned 302; redirects are not followed".to_owned()),
            _ => Some(format!("the endpoint returned {}", &status[..3])),
        };
        assert_eq!(result.error, sentence, "{status}");
        assert_eq!(result.retry_after, None, "{status}");
    }
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let wait = attempt(&reply(status, "Retry-After: 60\r\n")).await.retry_after.unwrap() - now();
        assert!(wait >= TimeDelta::seconds(60) && wait < TimeDelta::seconds(65), "{wait}");
        let date = attempt(&reply(status, "Retry-After: Fri, 01 May 2026 13:00:00 GMT\r\n")).await.retry_after;
        assert_eq!(date, Some(now() + TimeDelta::hours(1)));
        assert_eq!(attempt(&reply(status, "Retry-After: soon\r\n")).await.retry_after, None);
    }
}

#[tokio::test]
async fn a_2xx_is_a_success_for_any_body() {
    for response in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "z".repeat(1_000_000)),
        format!("HTTP/1.1 202 Accepted\r\nContent-Length: 9000\r\n\r\n{}", "z".repeat(2000)),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7D0\r\n{}\r\nnonsense", "z".repeat(2000)),
    ] {
        let result = attempt(&response).await;
        assert_eq!((result.outcome, result.error), (DeliveryOutcome::Success, None));
        assert_eq!(result.response_body, Some("z".repeat(1024)));
    }
    let broken = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip";
    assert_eq!(attempt(broken).await.outcome, DeliveryOutcome::Success);
    let drips = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").await;
        std::future::pending::<()>().await;
    })
    .await;
    let result = sender(SHORT).send(&delivery(drips.url()), now()).await;
    assert_eq!((result.outcome, result.response_body.as_deref()), (DeliveryOutcome::Success, Some("abc")));
    assert!(result.duration < Duration::from_secs(30));
}

#[tokio::test]
async fn failures_without_response_have_a_reason() {
    let closes = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
    })
    .await;
    let silent = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let speaks_plain = TestServer::run(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let _ = stream.shutdown().await;
    })
    .await;
    let garbage = TestServer::responding("what is this").await;
    let cases = [
        ("http://10.0.0.1/hook".to_owned(), DeliveryOutcome::Blocked, "the address is not public: 10.0.0.1"),
        // The name, not the address that it resolves to.
        (
            "https://inside.example/hook".to_owned(),
            DeliveryOutcome::Blocked,
            "the address is not public: inside.example",
        ),
        ("https://unknown.example/hook".to_owned(), DeliveryOutcome::Dns, "the host name could not be resolved"),
        ("http://127.0.0.1:1/hook".to_owned(), DeliveryOutcome::Connect, "no connection could be made"),
        (closes.url(), DeliveryOutcome::Connect, "the connection was lost before a valid response arrived"),
        (garbage.url(), DeliveryOutcome::Connect, "the connection was lost before a valid response arrived"),
        ("no url".to_owned(), DeliveryOutcome::Connect, "invalid request: relative URL without a base"),
        (
            format!("https://127.0.0.1:{}/", speaks_plain.port),
            DeliveryOutcome::Tls,
            "the TLS handshake failed: the server does not use TLS",
        ),
        (silent.url(), DeliveryOutcome::Timeout, "no response in time"),
        (format!("https://127.0.0.1:{}/", silent.port), DeliveryOutcome::Timeout, "no connection in time"),
    ];
    for (url, outcome, error) in cases {
        let answers = if url.contains("inside") { "10.1.2.3" } else { "-" };
        let guard = Guard::with_lookup(vec!["127.0.0.0/8".parse().unwrap()], ScriptedLookup::of(answers));
        let sender = Sender::with_client(HttpClient::guarded(guard, SHORT, MAX_BODY));
        let result = sender.send(&delivery(url.clone()), now()).await;
        assert_eq!((result.outcome, result.response_code, result.response_body), (outcome, None, None), "{url}");
        assert_eq!(result.error.as_deref(), Some(error), "{url}");
    }
}

/// Every class is also the label of a metric, on which operators' alerts are based.
#[test]
fn error_classes_have_their_documented_names() {
    let names: Vec<&str> = DeliveryOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
    assert_eq!(names, ["2xx", "3xx", "4xx", "5xx", "timeout", "dns", "connect", "tls", "blocked"]);
    assert!(DeliveryOutcome::ALL.iter().filter(|outcome| outcome.is_success()).eq([&DeliveryOutcome::Success]));
}

proptest! {
    #[test]
    fn stored_bodies_are_bounded_and_without_nul(body in prop::collection::vec(any::<u8>(), 0..2048)) {
        let kept = storable(&body);
        prop_assert!(kept.len() <= MAX_STORED_BODY && !kept.contains('\0'));
    }

    /// Text is not changed, only cut at a character boundary.
    #[test]
    fn a_stored_body_is_a_prefix_of_the_body(body in "[^\\x00]{0,1500}") {
        let kept = storable(body.as_bytes());
        prop_assert!(body.starts_with(&kept));
        prop_assert!(kept == body || kept.len() > MAX_STORED_BODY - 4);
    }
}
