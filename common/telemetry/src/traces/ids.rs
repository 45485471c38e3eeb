//! The id of a trace, derived from the id of the request that began it.
//!
//! Jobs, events and deliveries contain the request's id, so every process derives the same trace id, and nothing else
//! needs to be stored. The id of the request's span is also derived, because it is the parent of spans of other
//! processes.

use std::cell::Cell;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use sha2::{Digest as _, Sha256};

/// The ids of a request's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestIds {
    pub trace: TraceId,
    pub span: SpanId,
}

impl RequestIds {
    /// Derives the ids from SHA-256 of the request id: the first 16 bytes for the trace, the next 8 for the span.
    pub fn of(request_id: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(request_id).into();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash[..16]);
        span.copy_from_slice(&hash[16..24]);
        Self { trace: TraceId::from_bytes(trace), span: SpanId::from_bytes(span) }
    }

    /// Returns the request's span as the parent of spans of other processes.
    pub fn as_parent(self) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, true, TraceState::NONE)
    }
}

thread_local! {
    /// The ids of the span that is being started on this thread.
    static DERIVED: Cell<Option<RequestIds>> = const { Cell::new(None) };
}

/// Generates random ids, except for spans that are started in [`with_ids`].
#[derive(Debug, Default)]
pub(super) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        DERIVED.get().map_or_else(|| self.0.new_trace_id(), |ids| ids.trace)
    }

    fn new_span_id(&self) -> SpanId {
        DERIVED.get().map_or_else(|| self.0.new_span_id(), |ids| ids.span)
    }
}

/// Starts a span with these ids. The SDK has no other way to set the ids of a span than its generator.
pub(super) fn with_ids<T>(ids: RequestIds, start: impl FnOnce() -> T) -> T {
    DERIVED.set(Some(ids));
    let started = start();
    DERIVED.set(None);
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation shows how to compute the id of a trace, so it must not change.
    #[test]
    fn ids_are_derived_from_the_request_id() {
        let ids = RequestIds::of("req_abcdefghijklmnopqrstuvwx");
        assert_eq!(ids.trace.to_string(), "b6dc32bedb1ebf92c98c03d1937b8873");
        assert_eq!(ids.span.to_string(), "47df3028bd1329e1");
        assert_eq!(ids, RequestIds::of("req_abcdefghijklmnopqrstuvwx"));
        assert_ne!(ids, RequestIds::of("req_abcdefghijklmnopqrstuvwy"));
        assert!(ids.as_parent().is_valid() && ids.as_parent().is_remote() && ids.as_parent().is_sampled());
    }

    #[test]
    fn only_the_span_of_a_request_has_derived_ids() {
        let (generator, ids) = (Ids::default(), RequestIds::of("req_1"));
        let derived = with_ids(ids, || RequestIds { span: generator.new_span_id(), trace: generator.new_trace_id() });
        assert_eq!(derived, ids);
        assert_ne!(generator.new_span_id(), ids.span);
        assert_ne!(generator.new_trace_id(), ids.trace);
    }
}
