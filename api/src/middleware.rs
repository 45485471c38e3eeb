//! The middleware of every request: a request id, a span, metrics, and an error envelope for error statuses without a
//! body (an unknown path, a wrong method, a page that panicked).

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crier_endpoints::PREFIX;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, ErrorCode};
use crier_endpoints::limits::RateLimitSubject;
use crier_endpoints::outgoing;
use crier_endpoints::outgoing::{CallerHolders, Holder};
use crier_endpoints::reply;
use crier_endpoints::runner::{RequestId, RouteLabel};
use crier_telemetry::{metrics, traces};
use futures::{FutureExt, Stream, StreamExt};
use http::header::{
    ACCEPT_RANGES, CONNECTION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, EXPECT, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use salvo::http::body::Frame;
use salvo::{Depot, FlowCtrl, Request, Response};
use tracing::Instrument;

use crate::connections::Connections;

/// The label if no path matched.
const NO_ROUTE: &str = "(none)";
/// The maximum number of bytes of a rejected request's body that are read and discarded, so that a client that is still
/// sending can read the response.
const MAX_DRAINED_BYTES: u64 = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that sends nothing for this long is assumed to wait for the response. A shorter pause is one of the network.
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum length of a path segment, in bytes. All valid ones are shorter.
const MAX_SEGMENT_BYTES: usize = 255;

pub struct RequestMiddleware {
    pub app: Arc<App>,
    pub connections: Connections,
}

#[salvo::async_trait]
impl salvo::Handler for RequestMiddleware {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, ctrl: &mut FlowCtrl) {
        let started = Instant::now();
        let _busy = client_of(req).and_then(|client| self.connections.begin_request(client));
        admission::report_untrusted_proxy(&self.app, req);
        let id = format!("req_{}", crier_base::random::text(24).unwrap_or_else(|_| "unknown".to_owned()));
        depot.insert_typed(RequestId(id.clone()));
        depot.insert_typed(self.app.clone());
        if let Ok(value) = HeaderValue::from_str(&id) {
            res.headers_mut().insert(reply::REQUEST_ID, value);
        }
        // hyper hides a `Content-Length` beside `Transfer-Encoding`. A proxy that used it would take the rest of the
        // body for another request, so nothing more is read from this connection (RFC 9112, 6.1).
        if req.headers().contains_key(TRANSFER_ENCODING) {
            res.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let span =
            tracing::info_span!("request", request_id = %id, method = %req.method(), path = loggable(req.uri().path()));
        let traced = traces::Span::request(&id, req.method(), req.headers());
        traced.within(pin!(self.respond(req, depot, res, ctrl, &id).instrument(span.clone()))).await;
        if *req.method() == Method::HEAD {
            set_content_length(res);
        }
        self.lease_body(req, res, &id);
        if self.connections.are_closing() {
            res.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let (status, elapsed) = (res.status_code.unwrap_or(StatusCode::OK), started.elapsed());
        span.in_scope(|| tracing::debug!(status = status.as_u16(), ms = elapsed.as_millis(), "responded"));
        let route = route(req, depot);
        traced.request_finished(req.method(), Some(route.as_str()).filter(|route| *route != NO_ROUTE), status);
        drop(traced);
        metrics::http_request(req.method(), route, status, elapsed);
        if status.is_client_error() || status.is_server_error() {
            drain_body(req).await;
        }
    }
}

impl RequestMiddleware {
    async fn respond(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, ctrl: &mut FlowCtrl, id: &str) {
        if !is_plainly_framed(req.headers()) {
            let error = ApiError::new(ErrorCode::InvalidJson, "`Transfer-Encoding` must be `chunked`.");
            ctrl.skip_rest();
            return reply::write_error(&self.app, res, &error, id);
        }
        if !is_valid_path(req.uri().path()) {
            res.status_code(StatusCode::NOT_FOUND);
            ctrl.skip_rest();
        }
        let next = AssertUnwindSafe(ctrl.call_next(req, depot, res)).catch_unwind().await;
        if let Err(panic) = next {
            reply::write_error(&self.app, res, &reply::panic_error(&panic), id);
            return;
        }
        let status = res.status_code.unwrap_or(StatusCode::OK);
        let has_no_body = res.body.is_none() || res.body.is_error();
        if !(has_no_body && (status.is_client_error() || status.is_server_error())) {
            return;
        }
        if req.uri().path().starts_with(PREFIX) {
            admission::count_unauthenticated(&self.app, req, res).await;
        }
        if status == StatusCode::NOT_FOUND && crier_pages::not_found(req, res) {
            return;
        }
        reply::write_error(&self.app, res, &error_for_status(status), id);
    }

    /// Makes a large body hold a part of the budget for responses until it is sent. If the budget is used up, a read is
    /// rejected. A write has already happened, so its connection is closed, and the client retries it with its
    /// `Idempotency-Key`.
    fn lease_body(&self, req: &Request, res: &mut Response, id: &str) {
        let bytes = self.app.outgoing.size_of(&res.body);
        if bytes == 0 || *req.method() == Method::HEAD {
            return;
        }
        let mut holders = vec![Holder::Address(RateLimitSubject::address(admission::address_of(&self.app, req)))];
        match req.extensions().get::<CallerHolders>() {
            Some(caller) => holders.extend(caller.0),
            None => holders.push(Holder::Visitors),
        }
        let exceeded = match self.app.outgoing.take(bytes, holders) {
            Ok(lease) => {
                let sending = client_of(req).and_then(|client| self.connections.begin_sending(client));
                return outgoing::send(res, lease, sending);
            }
            Err(exceeded) => exceeded,
        };
        metrics::http_responses_cut("budget", 1);
        if let Some(client) = client_of(req).filter(|_| *req.method() != Method::GET) {
            return self.connections.abort(client);
        }
        // These describe the body that is not sent.
        for name in [ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, ETAG] {
            res.headers_mut().remove(name);
        }
        reply::write_error(&self.app, res, &exceeded.into(), id);
    }
}

fn client_of(req: &Request) -> Option<SocketAddr> {
    req.remote_addr().clone().into_std()
}

/// Returns the error for a status without a body.
fn error_for_status(status: StatusCode) -> ApiError {
    match status {
        StatusCode::NOT_FOUND => ApiError::no_route(),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(ErrorCode::PayloadTooLarge, "The body is too large."),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            ApiError::new(ErrorCode::UnsupportedMediaType, "This endpoint does not support this `Content-Type`.")
        }
        s if s.is_client_error() => ApiError::new(ErrorCode::InvalidJson, "The request could not be read."),
        s => ApiError::bug(format!("a handler returned only the status {s}")),
    }
}

/// Sets the length that the body of a GET would have; salvo drops the body of a HEAD.
fn set_content_length(res: &mut Response) {
    if let Some(length) = res.body.size().filter(|length| *length > 0) {
        res.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
}

/// Returns the path as it may be logged: some paths end with a secret, which gives access to whoever has the URL. Like the
/// router, it ignores repeated slashes and compares decoded segments.
fn loggable(path: &str) -> &str {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let mut parts = parts.map(|part| percent_decode_str(part).decode_utf8_lossy());
    let [first, second, third] = std::array::from_fn(|_| parts.next());
    match (first.as_deref(), second.as_deref(), third.as_deref()) {
        (Some("connect"), Some(_), None) => "/connect/…",
        (Some("sign-in"), Some(_), _) => "/sign-in/…",
        (Some("invitation"), Some(_), _) => "/invitation/…",
        (Some("reports"), Some("files"), Some(_)) => "/reports/files/…",
        (Some("reports"), Some("unsubscribe"), Some(_)) => "/reports/unsubscribe/…",
        (Some("media"), Some("fetch"), Some(_)) => "/media/fetch/…",
        _ => path,
    }
}

/// Returns whether all servers agree where the body ends: `Transfer-Encoding` is omitted or is only `chunked`.
fn is_plainly_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Returns whether every path segment can be a name or an id. Otherwise the path does not exist, whatever the method,
/// so no handler or query receives text that it cannot process.
fn is_valid_path(path: &str) -> bool {
    path.split('/').all(is_valid_segment)
}

/// Returns whether a decoded segment is UTF-8 without control characters, not too long, and fits 63 bits if it is a
/// number.
fn is_valid_segment(part: &str) -> bool {
    let Ok(text) = percent_decode_str(part).decode_utf8() else { return false };
    let is_number = text.len() > 18 && text.bytes().all(|b| b.is_ascii_digit());
    text.len() <= MAX_SEGMENT_BYTES
        && !text.chars().any(char::is_control)
        && (!is_number || text.parse::<i64>().is_ok())
}

fn route(req: &Request, depot: &Depot) -> String {
    match depot.get_typed::<RouteLabel>() {
        Ok(label) => label.0.to_owned(),
        Err(_) if req.matched_path().is_empty() => NO_ROUTE.to_owned(),
        Err(_) => format!("/{}", req.matched_path()),
    }
}

async fn drain_body(req: &mut Request) {
    let content_length = req.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    // With `Expect`, the client has not sent the body yet; a body larger than the limit is cut off.
    if req.headers().contains_key(EXPECT) || content_length.is_some_and(|n| n > MAX_DRAINED_BYTES) {
        return;
    }
    drain(req.take_body()).await;
}

/// Reads the rest of a body until its end, a limit, or a pause in which the client seems to wait for the response.
async fn drain(mut body: impl Stream<Item = io::Result<Frame<Bytes>>> + Unpin) {
    let read = async {
        let mut left = MAX_DRAINED_BYTES;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_IDLE_TIMEOUT, body.next()).await {
            let size = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(size);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of four parts of a body are read if the client pauses for this long before each.
    async fn parts_read(pause: Duration) -> usize {
        let read = std::sync::atomic::AtomicUsize::new(0);
        drain(Box::pin(futures::stream::iter(0..4).then(|_| async {
            tokio::time::sleep(pause).await;
            read.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(Frame::data(Bytes::from_static(b"x")))
        })))
        .await;
        read.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_body_is_read_despite_short_pauses() {
        assert_eq!(parts_read(Duration::from_millis(900)).await, 4);
        assert_eq!(parts_read(Duration::from_millis(1100)).await, 0);
    }

    #[test]
    fn secrets_in_paths_are_not_logged() {
        for start in ["/connect", "/sign-in", "/invitation", "/reports/files", "/reports/unsubscribe", "/media/fetch"] {
            for path in [format!("{start}/abc"), format!("{start}/abc/"), format!("/{start}//abc")] {
                assert_eq!(loggable(&path), format!("{start}/…"), "{path}");
            }
        }
        assert_eq!(loggable("/%73ign-in/abc"), "/sign-in/…");
        assert_eq!(loggable("/reports/%66%69les/abc"), "/reports/files/…");
        for path in ["/sign-in", "/connect/callback/mastodon", "/brands/1/reports/1", "/media/a.png", "/%62rands/1/2"] {
            assert_eq!(loggable(path), path);
        }
    }

    #[test]
    fn numbers_over_63_bits_are_not_ids() {
        assert!(is_valid_path("/api/public/v1/brands/9223372036854775807/posts"));
        assert!(!is_valid_path("/api/public/v1/brands/9223372036854775808/posts"));
        assert!(!is_valid_path("/brands/99999999999999999999"));
        assert!(!is_valid_path("/brands/9999999999999999999%39"));
        assert!(is_valid_path("/brands/abc/1"));
    }

    #[test]
    fn non_utf8_paths_are_rejected() {
        for good in ["/", "//", "/@%C3%A4", "/sandbox/demo", "/%2e%2E", "/100%", &format!("/{}", "a".repeat(255))] {
            assert!(is_valid_path(good), "{good}");
        }
        for bad in [
            "/sandbox/%00",
            "/a%00b/c",
            "/@%ff",
            "/%C3",
            "/media/%0a",
            "/%7f",
            "/%C2%85",
            &format!("/{}", "a".repeat(256)),
        ] {
            assert!(!is_valid_path(bad), "{bad}");
        }
    }
}
