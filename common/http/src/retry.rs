//! `Retry-After` and HTTP dates. Only this module uses the crate `httpdate`.

use chrono::{DateTime, TimeDelta, Utc};
use http::StatusCode;
use http::header::RETRY_AFTER;

use super::HttpResponse;

/// The maximum wait in seconds; longer ones are reduced to it, so that no number overflows.
const MAX_SECONDS: i64 = 86_400;

impl HttpResponse {
    /// Returns the time in the `Retry-After` header of a 429 or 503 response, which is in seconds or an HTTP date.
    /// `None` for other responses, and if the value is missing or invalid.
    pub fn retry_after(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let may_wait = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let value = self.headers.get(RETRY_AFTER).filter(|_| may_wait)?.to_str().ok()?.trim();
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            let seconds = value.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS);
            return Some(now + TimeDelta::seconds(seconds));
        }
        parse_date(value)
    }
}

/// Parses a date in any of the three formats of HTTP (RFC 9110, section 5.6.7).
pub fn parse_date(text: &str) -> Option<DateTime<Utc>> {
    httpdate::parse_http_date(text).ok().map(DateTime::from)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    /// Returns the wait in seconds for a response with this header.
    fn wait(status: u16, value: &[u8]) -> Option<i64> {
        let now = DateTime::from_timestamp(1_777_636_800, 0).unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap())]);
        let status = StatusCode::from_u16(status).unwrap();
        let response = HttpResponse { status, headers, body: Bytes::new(), truncated: false };
        response.retry_after(now).map(|at| (at - now).num_seconds())
    }

    #[test]
    fn retry_after_is_parsed_in_all_its_forms() {
        for (value, seconds) in [
            ("120", 120),
            (" 0 ", 0),
            ("99999999999999999999", 86_400),
            ("Fri, 01 May 2026 12:10:00 GMT", 600),
            ("Fri, 01 May 2026 11:00:00 GMT", -3_600),
            ("Friday, 01-May-26 12:10:00 GMT", 600),
            ("Fri May  1 12:10:00 2026", 600),
        ] {
            assert_eq!(wait(503, value.as_bytes()), Some(seconds), "{value}");
        }
        for value in ["", "soon", "-5", "1.5", "+5", "Fri, 32 May 2026 12:10:00 GMT", "١٢", "\u{ff}"] {
            assert_eq!(wait(429, value.as_bytes()), None, "{value}");
        }
        assert_eq!((wait(200, b"120"), wait(500, b"120")), (None, None));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_headers_do_not_panic(value in "[ -~]{0,40}|[0-9]{0,40}|[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} \
             [0-9]{4} [0-9:]{8} GMT") {
            let _ = wait(429, value.as_bytes());
        }
    }
}
