#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
use crier_http::Guard;

use super::*;

/// Returns the error for a response, as it appears in the operator's log.
fn error_message(status: u16, body: &str) -> String {
    let timeout = Duration::from_secs(1);
    #[expect(clippy::disallowed_methods, reason = "a test's own client")]
    let trusted = HttpClient::trusted(timeout, 1 << 20);
    let addresses = std::sync::Arc::new(Guard::new(Vec::new()));
    let clients = Clients { guarded: trusted.clone(), trusted, addresses };
    let provider = Provider::new("https://ai.example/v1/", Some("sk-hunter2".into()), &clients, 1, timeout);
    let status = StatusCode::from_u16(status).unwrap();
    let body = Bytes::copy_from_slice(body.as_bytes());
    provider
        .check_response(HttpResponse { status, headers: http::HeaderMap::new(), body, truncated: false })
        .unwrap_err()
        .to_string()
}

#[test]
fn provider_errors_have_details_but_never_the_key() {
    for (status, body, expected) in [
        (
            401,
            r#"{"error": {"message": "Bad key sk-hunter2"}}"#,
            "it returned 401: Bad key [REDACTED] (check CRIER_AI_API_KEY)",
        ),
        (403, r#"{"message": "no", "type": "x"}"#, "it returned 403: no (check CRIER_AI_API_KEY)"),
        (404, r#"{"error": "model 'x' not found"}"#, "it returned 404: model 'x' not found (check CRIER_AI_BASE_URL"),
        (405, r#"{"detail": "Method Not Allowed"}"#, "it returned 405: Method Not Allowed (check CRIER_AI_BASE_URL"),
        (308, "", "it returned 308:  (CRIER_AI_BASE_URL must be the final URL: redirects are not followed)"),
        (503, "<html>\nsk-hunter2 is\tbusy</html>", "it returned 503: <html>[REDACTED] isbusy</html>"),
        (200, r#"{"error": {"code": 429, "message": "slow down"}}"#, "it returned 200: slow down"),
    ] {
        let message = error_message(status, body);
        assert!(message.contains(expected), "{message}");
    }
}
