use std::sync::{Arc, Mutex};

use crier_domain::job::JobKind;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanProcessor};

use super::*;

/// Collects the spans that ended.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Ended {
    fn on_start(&self, _span: &mut opentelemetry_sdk::trace::Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Ended {
    fn tracer(&self, sample: f64) -> SdkTracer {
        super::super::tracer(self.clone(), Resource::builder_empty().build(), sample)
    }

    fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn claimed(trace: Option<&str>) -> ClaimedJob {
    ClaimedJob {
        id: 7,
        kind: JobKind::DeliverWebhook,
        subject_id: 8,
        lane: None,
        workspace_lane: None,
        attempt: 2,
        max_attempts: 3,
        crashes: 0,
        fence: 1,
        worker: String::new(),
        run_at: chrono::DateTime::UNIX_EPOCH,
        trace: trace.map(str::to_owned),
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|found| found.key.as_str() == name).map(|found| found.value.to_string())
}

#[test]
fn a_request_its_job_and_its_call_are_one_trace() {
    let ended = Ended::default();
    // Another process has another tracer.
    let (api, worker) = (ended.tracer(1.0), ended.tracer(1.0));
    let span = request(&api, "req_1", &Method::POST, &HeaderMap::new());
    span.request_finished(&Method::POST, Some("/brands/{brand}/posts"), StatusCode::CREATED);
    drop(span);
    let run = job(&worker, &claimed(Some("req_1")), Duration::from_millis(9));
    let url = Url::parse("https://user:hush@example.com/hush?hush#hush").unwrap();
    let sent = call(&worker, run.0.as_ref().unwrap(), &Method::POST, &url);
    sent.responded(StatusCode::BAD_GATEWAY);
    drop(sent);
    run.finished(JobOutcome::Retried);
    drop(run);
    let spans = ended.take();
    let [request, call, job] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(request.name, "POST /brands/{brand}/posts");
    assert_eq!((request.parent_span_id, &request.span_kind), (SpanId::INVALID, &SpanKind::Server));
    assert_eq!(attribute(request, REQUEST_ID).as_deref(), Some("req_1"));
    assert_eq!((job.name.as_ref(), &job.span_kind), ("process deliver_webhook", &SpanKind::Consumer));
    assert_eq!(job.parent_span_id, request.span_context.span_id());
    assert_eq!(attribute(job, "crier.job.wait_ms").as_deref(), Some("9"));
    assert_eq!(job.status, Status::Unset, "a retry is no failure of the run");
    assert_eq!((call.name.as_ref(), &call.span_kind), ("POST", &SpanKind::Client));
    assert_eq!(call.parent_span_id, job.span_context.span_id());
    assert_eq!(attribute(call, "server.address").as_deref(), Some("example.com"));
    assert_eq!(attribute(call, "server.port").as_deref(), Some("443"));
    assert_eq!(attribute(call, ERROR).as_deref(), Some("502"));
    assert_eq!(call.status, Status::error(""));
    for span in &spans {
        assert_eq!(span.span_context.trace_id(), RequestIds::of("req_1").trace);
        assert!(!format!("{span:?}").contains("hush"), "{span:?}");
    }
}

#[test]
fn a_job_without_a_request_begins_a_trace() {
    let ended = Ended::default();
    let tracer = ended.tracer(1.0);
    drop((job(&tracer, &claimed(None), Duration::ZERO), job(&tracer, &claimed(None), Duration::ZERO)));
    let spans = ended.take();
    assert!(spans.iter().all(|span| span.parent_span_id == SpanId::INVALID));
    assert_ne!(spans[0].span_context.trace_id(), spans[1].span_context.trace_id());
}

#[test]
fn a_call_outside_of_requests_and_jobs_has_no_span() {
    let ended = Ended::default();
    let url = Url::parse("http://example.com").unwrap();
    drop(call(&ended.tracer(1.0), &Context::new(), &Method::GET, &url));
    assert!(ended.take().is_empty());
}

#[test]
fn a_trace_is_sampled_as_a_whole() {
    let ended = Ended::default();
    let (api, worker) = (ended.tracer(0.25), ended.tracer(0.25));
    let mut whole = 0;
    for id in (0..1_000).map(|number| format!("req_{number}")) {
        drop(request(&api, &id, &Method::GET, &HeaderMap::new()));
        drop(job(&worker, &claimed(Some(&id)), Duration::ZERO));
        let spans = ended.take().len();
        assert!(spans == 0 || spans == 2, "{id}: {spans}");
        whole += usize::from(spans == 2);
    }
    assert!((200..300).contains(&whole), "{whole}");
}

#[test]
fn the_clients_span_is_linked() {
    let ended = Ended::default();
    let linked = |header: &'static str| {
        let headers = HeaderMap::from_iter([
            (http::HeaderName::from_static("traceparent"), http::HeaderValue::from_static(header)),
            (http::HeaderName::from_static("tracestate"), http::HeaderValue::from_static("vendor=hush")),
        ]);
        drop(request(&ended.tracer(1.0), "req_1", &Method::GET, &headers));
        let span = ended.take().pop().unwrap();
        assert_eq!(span.span_context.trace_id(), RequestIds::of("req_1").trace);
        assert!(!format!("{span:?}").contains("hush"), "{span:?}");
        span.links.first().map(|link| link.span_context.trace_id().to_string())
    };
    let client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert_eq!(linked(client).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
    for wrong in ["", "00-0-0-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "hush"] {
        assert_eq!(linked(wrong), None, "{wrong}");
    }
}
