use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crier_http::test_server::{TestServer, read_request};
use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::*;

fn sender(server: &TestServer) -> (Queue, Sender) {
    let url = format!("{}v1/traces", server.url());
    let config = TracesConfig { url, headers: vec![(http::HeaderName::from_static("x-key"), "k".into())], sample: 1.0 };
    #[expect(clippy::disallowed_methods, reason = "a test's own client")]
    let client = HttpClient::trusted(TIMEOUT, MAX_RESPONSE);
    new(&config, client, &Resource::builder_empty().build())
}

/// Ends a number of spans.
fn end_spans(queue: Queue, count: usize) {
    let tracer = SdkTracerProvider::builder().with_span_processor(queue).build().tracer("test");
    (0..count).for_each(|_| drop(tracer.start("span")));
}

/// Starts a server that returns 503 to the first requests and 200 to the others. Also returns the number of requests.
async fn failing(failures: usize) -> (TestServer, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = requests.clone();
    let server = TestServer::run(move |mut stream: TcpStream| {
        let count = count.clone();
        async move {
            let head = read_request(&mut stream).await;
            assert!(head.starts_with("POST /v1/traces ") && head.contains("\r\nx-key: k\r\n"), "{head}");
            let status = if count.fetch_add(1, Ordering::SeqCst) < failures { "503 x" } else { "200 OK" };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (server.await, requests)
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_repeated_then_dropped() {
    for (failures, requests) in [(0, 1), (2, 3), (99, MAX_ATTEMPTS)] {
        let (server, made) = failing(failures).await;
        let (queue, sender) = sender(&server);
        end_spans(queue, 3);
        // The queue is closed: the sender ends.
        sender.run(CancellationToken::new()).await;
        assert_eq!(made.load(Ordering::SeqCst), requests, "{failures} failures");
    }
}

#[tokio::test]
async fn the_end_of_the_process_does_not_wait_for_a_repetition() {
    let (server, made) = failing(99).await;
    let (queue, sender) = sender(&server);
    let kept = queue.0.clone();
    end_spans(queue, 1);
    let stop = CancellationToken::new();
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(60), sender.run(stop)).await.expect("it ends");
    assert_eq!(made.load(Ordering::SeqCst), 1);
    drop(kept);
}

#[tokio::test]
async fn a_full_queue_does_not_block() {
    let server = TestServer::responding("").await;
    let (queue, mut sender) = sender(&server);
    end_spans(queue, QUEUE_CAPACITY + 10);
    let mut kept = Vec::new();
    assert_eq!(sender.spans.recv_many(&mut kept, QUEUE_CAPACITY + 10).await, QUEUE_CAPACITY);
}

#[test]
fn a_partial_success_is_read() {
    let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too\nold".to_owned() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let read = PartialSuccess::read(&body);
    assert_eq!((read.rejected, read.message.as_str()), (3, "too old"));
    for body in [b"".as_slice(), b"\xff\xff\xff", b"{}"] {
        assert_eq!(PartialSuccess::read(body).rejected, 0);
    }
}

#[test]
fn only_what_may_succeed_later_is_repeated() {
    let status = |code| CollectorError::Status(StatusCode::from_u16(code).unwrap()).is_transient();
    assert!([429, 502, 503, 504].into_iter().all(status) && ![301, 400, 401, 404, 500].into_iter().any(status));
    assert!(CollectorError::Http(HttpError::Connect).is_transient());
    assert!(!CollectorError::Http(HttpError::Invalid(String::new())).is_transient());
}
