//! The URLs at which platforms receive files. They come from responses, so they are checked before anything is sent to
//! them, and they are a permission of their own: the account's token is not sent.
//!
//! Source of the form and its errors: Amazon S3 API Reference, "POST Object" and "Error responses".

use crier_http::multipart::{Form, Part};
use http::{Method, StatusCode};
use url::Url;

use super::CallError;
use super::call::{Effect, PlatformClient};

/// The maximum number of fields of a form.
pub(super) const MAX_FIELDS: usize = 50;

/// What the storage did with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Stored,
    /// The permission has expired or does not apply to the file.
    Expired,
    TooLarge,
    Rejected,
    /// The storage is busy.
    Unavailable,
}

/// Returns whether a URL may receive a file: https at one of the domains or their subdomains, or anything at the host
/// of `base`, which the operator has configured.
pub(super) fn is_at(address: &str, domains: &[&str], base: &str) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let host = url.host_str().unwrap_or_default();
    let is_in = |domain: &&str| host.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_configured = Url::parse(base).is_ok_and(|base| base.origin() == url.origin());
    (url.scheme() == "https" && domains.iter().any(is_in)) || is_configured
}

/// Sends a file in a form. The storage ignores fields after the file. It requires the length, so the file must state
/// its own.
pub(super) async fn send_form(
    client: &PlatformClient,
    url: &str,
    fields: impl IntoIterator<Item = (String, String)>,
    file: Part,
    length: u64,
) -> Result<Delivery, CallError> {
    let form = fields.into_iter().fold(Form::new(), |form, (name, value)| form.text(name, value));
    let request = client.request(Method::POST, url).multipart(form.part("file", file));
    let response = client.send_bytes(Effect::Repeatable, request, length).await?;
    Ok(delivery(response.status, &response.body))
}

fn delivery(status: StatusCode, body: &[u8]) -> Delivery {
    match (status, error_code(body)) {
        (status, _) if status.is_success() => Delivery::Stored,
        (StatusCode::PAYLOAD_TOO_LARGE, _) | (StatusCode::BAD_REQUEST, "EntityTooLarge") => Delivery::TooLarge,
        (StatusCode::BAD_REQUEST, "RequestTimeout") => Delivery::Unavailable,
        (StatusCode::BAD_REQUEST, "ExpiredToken" | "TokenRefreshRequired") => Delivery::Expired,
        (StatusCode::BAD_REQUEST, _) => Delivery::Rejected,
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS, _) => {
            Delivery::Unavailable
        }
        (status, _) if status.is_client_error() => Delivery::Expired,
        _ => Delivery::Unavailable,
    }
}

/// Returns the code of an error: `<Error><Code>EntityTooLarge</Code>…`. Empty if there is none.
fn error_code(body: &[u8]) -> &str {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or("", |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_to_known_hosts_alone() {
        let is_at = |address: &str| is_at(address, &["amazonaws.com", "reddit.com"], "http://127.0.0.1:80");
        for right in ["https://a.s3.amazonaws.com/b", "https://reddit.com", "http://127.0.0.1/x"] {
            assert!(is_at(right), "{right}");
        }
        for wrong in [
            "http://a.amazonaws.com",
            "https://amazonaws.com.evil.example",
            "https://evilamazonaws.com",
            "https://amazonaws.com@evil.example",
            "http://127.0.0.1:81/x",
            "file:///etc",
            "//amazonaws.com",
            "",
        ] {
            assert!(!is_at(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_code_of_an_error_decides() {
        let body =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>x</Message></Error>");
        for (status, code, expected) in [
            (204, "", Delivery::Stored),
            (403, "AccessDenied", Delivery::Expired),
            (400, "ExpiredToken", Delivery::Expired),
            (400, "EntityTooLarge", Delivery::TooLarge),
            (400, "RequestTimeout", Delivery::Unavailable),
            (400, "MalformedPOSTRequest", Delivery::Rejected),
            (503, "SlowDown", Delivery::Unavailable),
            (307, "TemporaryRedirect", Delivery::Unavailable),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(delivery(status, body(code).as_bytes()), expected, "{status} {code}");
        }
        assert_eq!(delivery(StatusCode::BAD_REQUEST, b"\xff"), Delivery::Rejected);
    }
}
