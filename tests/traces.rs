//! Traces that a collector receives from real processes.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::client::{texts, until};
use crate::support::collector::{Collector, ReceivedSpan};
use crate::support::process::Installation;
use crate::support::receiver::Receiver;
use crate::support::servers::free_port;
use crate::support::sites::Sites;

const KEY: &str = "hush-collector";
const HEADERS: (&str, &str) = ("CRIER_OTLP_HEADERS", "x-key=hush-collector");

/// Returns the spans of the trace whose root has this name.
fn trace(spans: Vec<ReceivedSpan>, root: &str) -> Vec<ReceivedSpan> {
    let Some(of) = spans.iter().find(|one| one.span.name == root).map(|one| one.span.trace_id.clone()) else {
        return Vec::new();
    };
    spans.into_iter().filter(|one| one.span.trace_id == of).collect()
}

fn of_kind(spans: &[ReceivedSpan], kind: SpanKind) -> Vec<&ReceivedSpan> {
    spans.iter().filter(|one| one.span.kind == kind as i32).collect()
}

async fn assert_one_trace(collector: Collector, mut s: Installation) {
    let (sites, receiver) = (Sites::start(), Receiver::start().await);
    let brand = s.brand().await;
    let account = s.connect(brand, &sites, 1).await[0];
    let hook = json!({ "url": receiver.url(), "events": ["post.published"] });
    let secret = s.write("/webhooks", hook).await["secret"].as_str().expect("a secret").to_owned();
    let post = s.post(brand, account, "hush of the post").await;
    s.all_published(brand, &[post]).await;
    receiver.assert_received_once("post.published", &[post]).await;

    let root = "POST /brands/{brand}/posts";
    let spans = until("the trace of the post", || async {
        let spans = trace(collector.spans().await, root);
        let is_delivered = |one: &ReceivedSpan| one.span.name == "process deliver_webhook";
        spans.iter().any(is_delivered).then_some(spans)
    })
    .await;

    // One request caused all spans.
    let [request] = of_kind(&spans, SpanKind::Server)[..] else { panic!("{spans:#?}") };
    assert_eq!((request.span.parent_span_id.len(), &request.service), (0, &s.of("api")));
    assert_eq!(request.attributes["http.response.status_code"], "201");
    let request_id = &request.attributes["crier.request_id"];
    assert!(request_id.starts_with("req_"), "{request_id}");
    assert_eq!(request.span.trace_id, Sha256::digest(request_id)[..16], "as documented");
    // Both jobs are children of the request, and each call is a child of a job.
    let jobs = of_kind(&spans, SpanKind::Consumer);
    for (kind, port) in [("publish_target", port(&sites.url(0))), ("deliver_webhook", port(&receiver.url()))] {
        let name = format!("process {kind}");
        let [job] = jobs.iter().filter(|one| one.span.name == name).collect::<Vec<_>>()[..] else {
            panic!("{jobs:#?}")
        };
        assert_eq!((&job.span.parent_span_id, &job.service), (&request.span.span_id, &s.of("worker")));
        let attribute = |name: &str| job.attributes[name].as_str();
        assert_eq!((attribute("messaging.destination.name"), attribute("crier.job.outcome")), (kind, "done"));
        assert_eq!((attribute("crier.job.attempt"), attribute("crier.request_id")), ("1", request_id.as_str()));
        let mut calls = of_kind(&spans, SpanKind::Client);
        calls.retain(|one| one.span.parent_span_id == job.span.span_id);
        assert!(!calls.is_empty(), "{kind} makes a call: {spans:#?}");
        for call in calls {
            assert_eq!(
                (call.attributes["server.address"].as_str(), &call.attributes["server.port"]),
                ("127.0.0.1", &port)
            );
            assert!(call.attributes["http.response.status_code"].starts_with('2'), "{call:#?}");
        }
    }
    assert_eq!(jobs.len(), 2, "{jobs:#?}");
    assert_eq!(request.span.status.as_ref().map_or(0, |status| status.code), 0);

    // No trace lacks a parent. A parent may be sent after its children.
    until("the parents of all spans", || async {
        let all = collector.spans().await;
        let is_parent_of = |one: &ReceivedSpan| all.iter().any(|other| other.span.span_id == one.span.parent_span_id);
        all.iter().all(|one| one.span.parent_span_id.is_empty() || is_parent_of(one)).then_some(())
    })
    .await;

    // The last spans are sent when a process ends.
    let (status, _) = s.call("GET", "/brands", None, "-").await.expect("a response");
    assert_eq!(status, 200);
    let api = s.of("api");
    assert_eq!(s.terminate(&api).await, Some(0));
    let all = collector.spans().await;
    assert!(all.iter().any(|one| one.span.name == "GET /brands"), "{all:#?}");
    // No span contains the text, the credentials of the account, the key, the secret of the webhook or the paths.
    let sent = collector.bodies().await.concat();
    for hidden in ["hush", "abcd EFGH", &s.key, &secret, "/hook", "/wp-json", "127.0.0.1:"] {
        assert!(!sent.windows(hidden.len()).any(|part| part == hidden.as_bytes()), "{hidden}");
    }
    for name in s.names() {
        assert!(!s.log(name).contains(KEY) && !s.log(name).contains("collector"), "{}", s.log(name));
    }
}

fn port(url: &str) -> String {
    url::Url::parse(url).expect("a URL").port().expect("a port").to_string()
}

#[tokio::test]
async fn a_post_is_one_trace_in_one_process() {
    let collector = Collector::start("x-key", KEY).await;
    let url = collector.url();
    let s = Installation::embedded_with(&[("CRIER_OTLP_ENDPOINT", &url), HEADERS]).await;
    let doctor = s.command(&["doctor"]);
    assert!(doctor.contains(&format!("ok       traces         {url}/v1/traces accepts traces")), "{doctor}");
    assert_one_trace(collector, s).await;
}

#[tokio::test]
async fn a_post_is_one_trace_in_all_processes() {
    let collector = Collector::start("x-key", KEY).await;
    let url = collector.url();
    assert_one_trace(collector, Installation::split_with(&[("CRIER_OTLP_ENDPOINT", &url), HEADERS]).await).await;
}

/// Asserts that posts are published and webhooks are sent, whatever the collector does.
async fn assert_unaffected(s: &Installation) {
    let receiver = Receiver::start().await;
    s.listen(&receiver.url()).await;
    let (brand, account) = s.sandbox("traced").await;
    let posts = s.post_all(brand, &[account], &texts("Traced", 20)).await;
    s.all_published(brand, &posts).await;
    receiver.assert_received_once("post.published", &posts).await;
}

/// Asserts that spans that cannot be sent do not delay the end of the process.
async fn assert_ends_soon(mut s: Installation) {
    s.call("GET", "/brands", None, "-").await.expect("a response");
    let ending = Instant::now();
    assert_eq!(s.terminate("crier").await, Some(0));
    assert!(ending.elapsed() < Duration::from_secs(10), "{:?}", ending.elapsed());
}

#[tokio::test]
async fn posts_are_published_without_the_collector() {
    let (url, began) = (format!("http://127.0.0.1:{}", free_port()), Instant::now());
    let s = Installation::embedded_with(&[("CRIER_OTLP_ENDPOINT", &url), HEADERS]).await;
    assert_unaffected(&s).await;
    until("dropped spans are counted", || async {
        let dropped = s.metric("crier", "crier_traces_dropped_total{reason=\"not_sent\"}").await?;
        (dropped > 0.0).then_some(())
    })
    .await;
    assert_eq!(s.metric("crier", "crier_traces_sent_total").await, Some(0.0));
    let log = s.log("crier");
    let warnings = log.lines().filter(|line| line.contains("the collector does not accept trace spans")).count();
    // There is at most one warning per ten seconds.
    let max = began.elapsed().as_secs() / 10 + 1;
    assert!(warnings >= 1 && warnings as u64 <= max && !log.contains(KEY), "{log}");
    assert_ends_soon(s).await;
}

#[tokio::test]
async fn posts_are_published_while_the_collector_hangs() {
    // The kernel accepts connections, and nothing responds.
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", hanging.local_addr().expect("an address"));
    let s = Installation::embedded_with(&[("CRIER_OTLP_ENDPOINT", &url), HEADERS]).await;
    assert_unaffected(&s).await;
    assert_ends_soon(s).await;
}

#[tokio::test]
async fn nothing_is_sent_without_a_configured_collector() {
    let collector = Collector::start("x-key", KEY).await;
    // Crier does not read the variables of OpenTelemetry.
    let url = collector.url();
    let mut s = Installation::embedded_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), HEADERS]).await;
    let (brand, account) = s.sandbox("untraced").await;
    let post = s.post(brand, account, "Hello").await;
    s.all_published(brand, &[post]).await;
    for metric in ["crier_traces_sent_total", "crier_traces_dropped_total{reason=\"queue_full\"}"] {
        assert_eq!(s.metric("crier", metric).await, Some(0.0), "{metric}");
    }
    assert_eq!(s.terminate("crier").await, Some(0));
    assert!(collector.bodies().await.is_empty());
}
