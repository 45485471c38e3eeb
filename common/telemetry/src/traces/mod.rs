//! Traces: spans of requests, of the jobs that they cause, and of the calls that both make. `crier-runtime` sends them
//! to an OpenTelemetry collector by OTLP, because this crate is below the HTTP client, whose calls are also spans.
//!
//! All spans that a request causes, in any process and at any time, have the same trace id, which is derived from the
//! request's id ([`ids`]). They are independent of the spans of `tracing`, which belong to the log. Without
//! `CRIER_OTLP_ENDPOINT`, every [`Span`] is empty and costs almost nothing.
//!
//! Attributes have the names of OpenTelemetry's semantic conventions, or begin with `crier.`. None contains a path, a
//! query, a header, a body or a text: these may contain secrets, and the collector may belong to someone else.
//!
//! **To add a span:** add a function to [`spans`] that starts it with [`start_span`].

use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crier_config::{ProcessRole, TracesConfig};
use opentelemetry::trace::{SpanBuilder, SpanContext, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanLimits, SpanProcessor};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod ids;
mod spans;

/// The maximum time for which a process that stops waits for the last spans.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

static TRACES: OnceLock<Traces> = OnceLock::new();

struct Traces {
    tracer: SdkTracer,
    stop: CancellationToken,
    sender: Mutex<Option<JoinHandle<()>>>,
}

/// Starts to record spans. `exporter` gets the resource, which describes the process, and returns a processor for spans
/// that ended, and a future that sends them until the token is cancelled. Only the first call has an effect, because
/// several tests share a process.
pub fn start<P, S>(
    config: &TracesConfig,
    role: ProcessRole,
    exporter: impl FnOnce(&Resource, CancellationToken) -> (P, S),
) where
    P: SpanProcessor + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    if TRACES.get().is_some() {
        return;
    }
    let (resource, stop) = (resource(role), CancellationToken::new());
    let (processor, sender) = exporter(&resource, stop.clone());
    let sender = Mutex::new(Some(tokio::spawn(sender)));
    let tracer = tracer(processor, resource, config.sample);
    // If another thread was faster, this sender ends when its queue is dropped.
    let _ = TRACES.set(Traces { tracer, stop, sender });
}

/// Sends the last spans; takes at most [`STOP_TIMEOUT`].
pub async fn stop() {
    let Some(traces) = TRACES.get() else { return };
    traces.stop.cancel();
    let sender = traces.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(sender) = sender
        && tokio::time::timeout(STOP_TIMEOUT, sender).await.is_err()
    {
        tracing::warn!("failed to send the last trace spans in time");
    }
}

/// Returns the description of the process. Nothing is read from the environment: the configuration is the only source.
fn resource(role: ProcessRole) -> Resource {
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", role.as_str()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", format!("{:016x}", crier_base::random::u64())),
            KeyValue::new("telemetry.sdk.name", "opentelemetry"),
            KeyValue::new("telemetry.sdk.language", "rust"),
        ])
        .build()
}

fn tracer(processor: impl SpanProcessor + 'static, resource: Resource, sample: f64) -> SdkTracer {
    let provider = SdkTracerProvider::builder()
        .with_id_generator(ids::Ids::default())
        // Depends only on the trace id, so that every process decides the same.
        .with_sampler(Sampler::TraceIdRatioBased(sample))
        .with_span_limits(SpanLimits::default())
        .with_resource(resource)
        .with_span_processor(processor)
        .build();
    let scope = InstrumentationScope::builder("crier").with_version(env!("CARGO_PKG_VERSION")).build();
    provider.tracer_with_scope(scope)
}

/// A span that ends when this is dropped. It is empty if its trace is not sampled.
#[must_use = "the span ends when this is dropped"]
#[derive(Debug)]
pub struct Span(Option<Context>);

/// Starts a span, which is empty if its trace is not sampled.
fn start_span(tracer: &SdkTracer, span: SpanBuilder, parent: &Context) -> Span {
    let span = parent.with_span(tracer.build_with_context(span, parent));
    Span(Some(span).filter(|span| span.span().is_recording()))
}

fn remote(parent: SpanContext) -> Context {
    Context::new().with_remote_span_context(parent)
}

impl Span {
    /// Runs a future in this span: calls that it makes become children of the span.
    pub fn within<F: Future + Unpin>(&self, future: F) -> Within<F> {
        Within { span: self.0.clone(), future }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(span) = &self.0 {
            span.span().end();
        }
    }
}

/// Runs a future in the current span, for a future that is spawned as another task.
pub fn in_current_span<F: Future + Unpin>(future: F) -> Within<F> {
    Within { span: TRACES.get().map(|_| Context::current()), future }
}

/// A future that runs in a span ([`Span::within`]).
#[derive(Debug)]
pub struct Within<F> {
    span: Option<Context>,
    future: F,
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let _entered = self.span.clone().map(Context::attach);
        Pin::new(&mut self.future).poll(task)
    }
}
