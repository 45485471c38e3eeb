//! Outcomes of calls that do not depend on the platform.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_http::HttpClient;
use crier_platforms::CallError;
use crier_platforms::call::{Effect, PlatformClient, retry_at};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{ScriptStep, ScriptedServer, account, connector, now, unused_address};

fn caller() -> PlatformClient {
    let client = HttpClient::trusted(std::time::Duration::from_secs(20), 64);
    PlatformClient::new(Platform::Bluesky, client, Clock::manual(now()))
}

async fn sent(base: &str, effect: Effect) -> Result<Value, CallError> {
    let caller = caller();
    let response = caller.send(effect, caller.request(Method::POST, base).body("x")).await?;
    if response.status.is_success() {
        caller.read(effect, &response)
    } else {
        Err(caller.classify_status(effect, &response, None, None))
    }
}

async fn result_of(response: ResponseTemplate, effect: Effect) -> Result<Value, CallError> {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(response).mount(&server).await;
    sent(&server.uri(), effect).await
}

#[tokio::test]
async fn only_publishing_calls_can_have_an_unknown_outcome() {
    for effect in [Effect::Repeatable, Effect::Publishes] {
        let unknown = effect == Effect::Publishes;
        let hung_up = sent(&ScriptedServer::start(vec![ScriptStep::HangUp]).await.base, effect).await.unwrap_err();
        let broken = result_of(ResponseTemplate::new(503), effect).await.unwrap_err();
        let gibberish = result_of(ResponseTemplate::new(200).set_body_string("<html>"), effect).await.unwrap_err();
        let cut = result_of(ResponseTemplate::new(200).set_body_json(json!({ "a": "b".repeat(100) })), effect)
            .await
            .unwrap_err();
        for error in [hung_up, broken, gibberish, cut] {
            assert_eq!(matches!(error, CallError::Unknown(_)), unknown, "{error:?}");
            assert_eq!(matches!(error, CallError::Transient(_)), !unknown, "{error:?}");
        }
        let away = sent(&unused_address().await, effect).await.unwrap_err();
        assert!(matches!(away, CallError::Transient(f) if f.category == Category::Network));
    }
}

#[tokio::test]
async fn errors_are_classified_by_status() {
    for (status, ends) in [
        (401, "reauth"),
        (403, "permanent"),
        (404, "permanent"),
        (408, "transient"),
        (413, "permanent"),
        (301, "permanent"),
        (429, "rate"),
    ] {
        let error = result_of(ResponseTemplate::new(status), Effect::Publishes).await.unwrap_err();
        let ended = match &error {
            CallError::Reauth(_) => "reauth",
            CallError::Permanent(f) if !f.category.is_retryable() => "permanent",
            CallError::Transient(f) if f.category.is_retryable() => "transient",
            CallError::RateLimited { failure, until: None } if failure.category.is_retryable() => "rate",
            _ => "other",
        };
        assert_eq!(ended, ends, "{status}: {error:?}");
        assert_eq!(error.failure().platform_code.as_deref(), Some(status.to_string().as_str()));
    }
}

#[tokio::test]
async fn retry_after_is_capped_at_a_day() {
    let response = ResponseTemplate::new(429).insert_header("Retry-After", "9999999");
    let error = result_of(response, Effect::Repeatable).await.unwrap_err();
    assert!(
        matches!(error, CallError::RateLimited { until, .. } if until == Some(now() + TimeDelta::hours(24))),
        "{error:?}"
    );
}

fn at(name: &'static str, value: &str) -> Option<DateTime<Utc>> {
    retry_at(&HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())]), now())
}

#[test]
fn every_retry_header_format_is_parsed() {
    let in_a_minute = Some(now() + TimeDelta::minutes(1));
    let unix = (now() + TimeDelta::minutes(1)).timestamp().to_string();
    for (name, value) in [
        ("retry-after", "60"),
        ("retry-after", "59.5"),
        ("retry-after", "Sun, 01 Mar 2026 12:01:00 GMT"),
        ("ratelimit-reset", unix.as_str()),
        ("ratelimit-reset", "60"),
        ("x-ratelimit-reset", "2026-03-01T12:01:00.000Z"),
        ("x-rate-limit-reset", unix.as_str()),
    ] {
        assert_eq!(at(name, value), in_a_minute, "{name}: {value}");
    }
    assert_eq!(at("retry-after", "soon"), None);
    assert_eq!(at("retry-after", "-5"), Some(now()));
    assert_eq!(at("retry-after", "Sun, 01 Mar 2020 12:01:00 GMT"), Some(now()), "never in the past");
}

proptest! {
    #[test]
    fn arbitrary_retry_headers_are_handled(value in "[ -~]{0,40}") {
        for name in ["retry-after", "ratelimit-reset"] {
            prop_assert!(at(name, &value).is_none_or(|at| at >= now()));
        }
    }
}

/// A rejection that is final would fail a post whose account is fine.
#[tokio::test]
async fn a_response_with_tokens_that_is_too_large_is_a_temporary_failure() {
    let body = json!({ "access_token": "a".repeat(2 << 20) });
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_json(body)).mount(&server).await;
    let secrets = json!({
        "access_token": "a", "refresh_token": "r", "client_id": "id", "client_secret": "secret",
    });
    let tumblr = connector(Platform::Tumblr, &server.uri());
    let error = tumblr.refresh(&account("t:ann", secrets)).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
}
