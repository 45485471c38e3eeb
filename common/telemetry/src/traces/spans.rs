//! All spans, with their names and attributes.
//!
//! Names have few values, as the conventions require: <https://opentelemetry.io/docs/specs/semconv/http/http-spans/>
//! and <https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/>.

use std::time::Duration;

use crier_domain::job::ClaimedJob;
use http::{HeaderMap, Method, StatusCode};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Link, SpanBuilder, SpanKind, Status, TraceContextExt as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use url::Url;

use super::ids::{RequestIds, with_ids};
use super::{Span, TRACES, remote, start_span};
use crate::metrics::JobOutcome;

const METHOD: &str = "http.request.method";
const STATUS: &str = "http.response.status_code";
const ERROR: &str = "error.type";
const REQUEST_ID: &str = "crier.request_id";

impl Span {
    /// Starts the span of a request to the API. A client's `traceparent` becomes a link, because the client's trace id
    /// would otherwise have to be stored with the jobs.
    pub fn request(id: &str, method: &Method, headers: &HeaderMap) -> Self {
        start(|tracer| request(tracer, id, method, headers))
    }

    /// Adds the response. `route` is the pattern that matched; `None` if none did.
    pub fn request_finished(&self, method: &Method, route: Option<&str>, status: StatusCode) {
        let Some(cx) = &self.0 else { return };
        let span = cx.span();
        if let Some(route) = route {
            span.update_name(format!("{} {route}", method_name(method)));
            span.set_attribute(KeyValue::new("http.route", route.to_owned()));
        }
        self.set_status(status, status.is_server_error());
    }

    /// Starts the span of a run of a job that was due `waited` ago.
    pub fn job(claimed: &ClaimedJob, waited: Duration) -> Self {
        start(|tracer| job(tracer, claimed, waited))
    }

    /// Adds the outcome of the run of a job.
    pub fn finished(&self, outcome: JobOutcome) {
        self.set("crier.job.outcome", outcome.as_str());
        if matches!(outcome, JobOutcome::Dead | JobOutcome::LostLease) {
            self.fail(outcome.as_str());
        }
    }

    /// Starts the span of a call to another server, if a request or a job makes the call. Only the server of the URL is
    /// added, because the rest may contain secrets.
    pub fn call(method: &Method, url: &Url) -> Self {
        start(|tracer| call(tracer, &Context::current(), method, url))
    }

    /// Adds the status of a server's response.
    pub fn responded(&self, status: StatusCode) {
        self.set_status(status, status.is_client_error() || status.is_server_error());
    }

    /// Marks the span as failed. `class` must have few values.
    pub fn fail(&self, class: impl Into<Value>) {
        self.set(ERROR, class);
        if let Some(cx) = &self.0 {
            cx.span().set_status(Status::error(""));
        }
    }

    fn set_status(&self, status: StatusCode, is_error: bool) {
        self.set(STATUS, i64::from(status.as_u16()));
        if is_error {
            self.fail(status.as_str().to_owned());
        }
    }

    fn set(&self, name: &'static str, value: impl Into<Value>) {
        if let Some(cx) = &self.0 {
            cx.span().set_attribute(KeyValue::new(name, value));
        }
    }
}

/// Starts a span if traces are on.
fn start(span: impl FnOnce(&SdkTracer) -> Span) -> Span {
    TRACES.get().map_or(Span(None), |traces| span(&traces.tracer))
}

fn request(tracer: &SdkTracer, id: &str, method: &Method, headers: &HeaderMap) -> Span {
    let client = TraceContextPropagator::new().extract_with_context(&Context::new(), &TraceParent(headers));
    let client = client.span().span_context().clone();
    let attributes = vec![KeyValue::new(METHOD, method_name(method)), KeyValue::new(REQUEST_ID, id.to_owned())];
    let span = SpanBuilder::from_name(method_name(method)).with_kind(SpanKind::Server).with_attributes(attributes);
    let span = if client.is_valid() { span.with_links(vec![Link::with_context(client)]) } else { span };
    with_ids(RequestIds::of(id), || start_span(tracer, span, &Context::new()))
}

/// The header of W3C Trace Context that identifies the client's span. `tracestate` is ignored: it may contain any text.
struct TraceParent<'a>(&'a HeaderMap);

impl Extractor for TraceParent<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        if name == "traceparent" { self.0.get(name)?.to_str().ok() } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

fn job(tracer: &SdkTracer, job: &ClaimedJob, waited: Duration) -> Span {
    let kind = job.kind.as_str();
    let mut attributes = vec![
        KeyValue::new("messaging.system", "crier"),
        KeyValue::new("messaging.operation.name", "process"),
        KeyValue::new("messaging.operation.type", "process"),
        KeyValue::new("messaging.destination.name", kind),
        KeyValue::new("messaging.message.id", job.id.to_string()),
        KeyValue::new("crier.job.attempt", i64::from(job.attempt)),
        KeyValue::new("crier.job.subject_id", job.subject_id),
        KeyValue::new("crier.job.wait_ms", i64::try_from(waited.as_millis()).unwrap_or(i64::MAX)),
    ];
    attributes.extend(job.trace.iter().map(|id| KeyValue::new(REQUEST_ID, id.clone())));
    let span = SpanBuilder::from_name(format!("process {kind}")).with_kind(SpanKind::Consumer);
    // A job that no request caused begins a trace.
    let parent = job.trace.as_deref().map(|id| remote(RequestIds::of(id).as_parent())).unwrap_or_default();
    start_span(tracer, span.with_attributes(attributes), &parent)
}

fn call(tracer: &SdkTracer, parent: &Context, method: &Method, url: &Url) -> Span {
    if !parent.span().span_context().is_sampled() {
        return Span(None);
    }
    let mut attributes = vec![
        KeyValue::new(METHOD, method_name(method)),
        KeyValue::new("server.address", url.host_str().unwrap_or_default().to_owned()),
    ];
    attributes.extend(url.port_or_known_default().map(|port| KeyValue::new("server.port", i64::from(port))));
    let span = SpanBuilder::from_name(method_name(method)).with_kind(SpanKind::Client).with_attributes(attributes);
    start_span(tracer, span, parent)
}

/// Returns the name of a method. Unknown ones are `_OTHER`, as the conventions specify.
fn method_name(method: &Method) -> &'static str {
    crate::known_method(method).unwrap_or("_OTHER")
}

#[cfg(test)]
mod tests;
