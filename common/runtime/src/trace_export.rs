//! Sends spans to the collector: a bounded queue, and one task that empties it.
//!
//! An unavailable or slow collector must never slow the service: if the queue is full, a span is dropped and counted. A
//! batch is retried a few times after errors that OTLP defines as retryable, then it is dropped and counted.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use crier_base::backoff::{self, ExponentialBuilder, Pauses};
use crier_config::TracesConfig;
use crier_domain::untrusted::{self, MAX_MESSAGE};
use crier_http::{HttpClient, HttpError};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prost::Message as _;
use secrecy::ExposeSecret as _;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::logs::Repeat;
use crate::metrics::{self, SpanDropReason};

/// The deadline of one request to the collector.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of bytes that are read from the collector's response.
pub const MAX_RESPONSE: usize = 64 * 1024;
/// The maximum number of spans in the queue. Each takes about 1 kB.
const QUEUE_CAPACITY: usize = 2_048;
const BATCH: usize = 512;
/// The maximum time that the first span of a batch waits for more spans.
const INTERVAL: Duration = Duration::from_secs(2);
const MAX_ATTEMPTS: usize = 5;
const RETRIES: ExponentialBuilder = backoff::exponential(Duration::from_secs(1), Duration::from_secs(8));

/// Creates the queue and the sender that empties it.
pub fn new(config: &TracesConfig, client: HttpClient, resource: &Resource) -> (Queue, Sender) {
    let (queue, spans) = mpsc::channel(QUEUE_CAPACITY);
    let collector = Collector::new(config, client);
    (Queue(queue), Sender { spans, collector, resource: resource.into(), warning_repeat: Repeat::default() })
}

/// Adds finished spans to the queue.
#[derive(Debug)]
pub struct Queue(mpsc::Sender<SpanData>);

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(span).is_err() {
            metrics::spans_dropped(SpanDropReason::QueueFull, 1);
        }
    }

    // The sender's task flushes and shuts down.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends the spans in the queue.
pub struct Sender {
    spans: mpsc::Receiver<SpanData>,
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    warning_repeat: Repeat,
}

impl Sender {
    /// Sends until the queue is closed, or until `stop` is cancelled and the queue is empty.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            self.fill(&mut batch, &stop).await;
            if batch.is_empty() {
                return;
            }
            self.deliver(mem::take(&mut batch), &stop).await;
        }
    }

    /// Waits for a span, then at most [`INTERVAL`] for a full batch.
    async fn fill(&mut self, batch: &mut Vec<SpanData>, stop: &CancellationToken) {
        tokio::select! {
            biased;
            _ = self.spans.recv_many(batch, BATCH) => {}
            () = stop.cancelled() => return,
        }
        let full = async {
            while batch.len() < BATCH {
                let remaining = BATCH - batch.len();
                if self.spans.recv_many(batch, remaining).await == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = full => {}
            () = sleep(INTERVAL) => {}
            () = stop.cancelled() => {}
        }
    }

    /// Sends a batch, and retries it after temporary errors. After `stop` there are no pauses and no further attempts.
    async fn deliver(&mut self, batch: Vec<SpanData>, stop: &CancellationToken) {
        let count = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        let mut pauses = Pauses::new(RETRIES);
        for attempt in 1.. {
            let is_last = attempt == MAX_ATTEMPTS || stop.is_cancelled();
            let error = match self.collector.post(body.clone()).await {
                Ok(partial) => return self.count(count, &partial),
                Err(error) => error,
            };
            if is_last || !error.is_transient() {
                metrics::spans_dropped(SpanDropReason::NotSent, count);
                self.warn(count, &error.to_string());
                return;
            }
            self.warn(0, &error.to_string());
            tokio::select! { () = sleep(pauses.next_pause()) => {}, () = stop.cancelled() => {} }
        }
    }

    /// Counts a batch that was received. The collector may have rejected some of its spans.
    fn count(&mut self, count: u64, partial: &PartialSuccess) {
        metrics::spans_sent(count.saturating_sub(partial.rejected));
        if partial.rejected > 0 {
            metrics::spans_dropped(SpanDropReason::Rejected, partial.rejected);
            self.warn(partial.rejected, &partial.message);
        }
    }

    fn warn(&mut self, dropped: u64, error: &str) {
        if self.warning_repeat.is_due() {
            tracing::warn!(error, dropped, "the collector does not accept trace spans");
        }
    }
}

/// The number of spans of a request that the collector rejected, and its message.
#[derive(Debug, Default)]
struct PartialSuccess {
    rejected: u64,
    message: String,
}

impl PartialSuccess {
    fn read(body: &[u8]) -> Self {
        let Ok(response) = ExportTraceServiceResponse::decode(body) else { return Self::default() };
        let partial = response.partial_success.unwrap_or_default();
        Self {
            rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
            message: untrusted::line(&partial.error_message, MAX_MESSAGE),
        }
    }
}

/// Why the collector did not accept a request. Contains no URL and no header.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the response is {0}")]
    Status(StatusCode),
}

impl CollectorError {
    /// Returns whether OTLP allows a retry of the request.
    fn is_transient(&self) -> bool {
        match self {
            Self::Http(error) => !matches!(error, HttpError::Invalid(_)),
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

struct Collector {
    client: HttpClient,
    url: String,
    headers: HeaderMap,
}

impl Collector {
    fn new(config: &TracesConfig, client: HttpClient) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, value) in &config.headers {
            // The configuration has already validated the value.
            if let Ok(mut value) = HeaderValue::from_str(value.expose_secret()) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Self { client, url: config.url.clone(), headers }
    }

    async fn post(&self, body: Bytes) -> Result<PartialSuccess, CollectorError> {
        let request = self.client.request(Method::POST, &self.url).headers(self.headers.clone()).body(body);
        let response = self.client.send(request).await?;
        if response.status.is_success() {
            Ok(PartialSuccess::read(&response.body))
        } else {
            Err(CollectorError::Status(response.status))
        }
    }
}

/// Checks the URL and the headers with a request without spans, which every collector accepts.
pub async fn check(config: &TracesConfig, client: HttpClient) -> Result<(), CollectorError> {
    Collector::new(config, client).post(Bytes::new()).await.map(drop)
}

#[cfg(test)]
mod tests;
