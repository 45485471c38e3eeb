//! A failing provider: the response is 502 without the cause, and no credits are lost.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use crate::support::ai_server::{AiApp, KEY, ai_at, chat, choice, completion, error};
use crate::support::app::{Tenant, TestApp};
use crate::support::store::{TestStore, on_one};

on_one!(
    provider_errors_refund_the_credits,
    an_unparsable_response_is_retried_once,
    a_refused_prompt_is_a_validation_error,
    a_slow_provider_times_out,
    an_unreachable_provider_returns_502,
    without_a_provider_no_credits_are_charged,
);

/// Both text endpoints, each with the field that holds the text.
const TEXT_ENDPOINTS: [(&str, &str); 2] = [("captions", "prompt"), ("hashtags", "content")];

async fn ask(t: &Tenant<'_>, operation: &str, field: &str) -> crate::support::app::Reply {
    t.post(&t.path(&format!("/ai/{operation}")), json!({ field: "fresh bread" })).await
}

async fn provider_errors_refund_the_credits(s: TestStore) {
    let app = AiApp::start(s).await;
    // Credits for six requests: a lost refund would be noticed.
    let t = app.tenant("free").await;
    let answers = || {
        vec![
            error(401, "invalid_api_key", &format!("Incorrect API key provided: {KEY}")),
            error(403, "unsupported_country", "Country not supported"),
            error(404, "model_not_found", "The model `writer` does not exist"),
            error(400, "context_length_exceeded", "maximum context length"),
            error(429, "rate_limit_exceeded", "Rate limit reached").insert_header("Retry-After", "20"),
            error(500, Value::Null, "The server had an error"),
            ResponseTemplate::new(503).set_body_string("<html>overloaded</html>"),
            ResponseTemplate::new(302).insert_header("Location", "http://169.254.169.254/"),
            ResponseTemplate::new(200).set_body_string("not JSON"),
            ResponseTemplate::new(200).set_body_json(json!({})),
            ResponseTemplate::new(200).set_body_json(json!({ "choices": [{ "message": [] }] })),
            ResponseTemplate::new(200).set_body_bytes(vec![b' '; 2 << 20]),
            ResponseTemplate::new(200).set_body_bytes(vec![0xff, 0xfe]),
            completion(json!([])),
            choice(json!({ "index": 0, "message": { "role": "assistant", "content": null }, "finish_reason": "stop" })),
        ]
    };
    for (operation, field) in TEXT_ENDPOINTS {
        for (n, answer) in answers().into_iter().enumerate() {
            app.clock.advance(chrono::TimeDelta::seconds(2));
            app.ai.queue_responses([answer]);
            let mut error = ask(&t, operation, field).await.expect_error(502, "ai_provider_unavailable");
            // The address of this server, not the provider's.
            error["doc_url"].take();
            let text = error.to_string();
            for secret in [KEY, "writer", "127.0.0.1", "API key", "overloaded"] {
                assert!(!text.contains(secret), "{operation} {n}: {text}");
            }
            assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0), "{operation} {n}");
        }
    }
    assert_eq!(app.ai.request_bodies().await.len(), 30, "one call each");
}

async fn an_unparsable_response_is_retried_once(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let cut_off = || {
        let message = json!({ "role": "assistant", "content": "{\"captions\": [\"A\", \"B" });
        choice(json!({ "index": 0, "message": message, "finish_reason": "length" }))
    };
    for (first, second) in [(cut_off(), cut_off()), (chat(""), chat("[]")), (chat("{\"captions\": {}}"), chat("sorry"))]
    {
        app.ai.queue_responses([first, second]);
        ask(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    }
    app.ai.queue_responses([cut_off(), error(500, Value::Null, "down")]);
    ask(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await), (8, 0));
    app.ai.queue_responses([cut_off(), chat("{\"captions\": [\"A\", \"B\", \"C\"]}")]);
    ask(&t, "captions", "prompt").await.expect(200);
}

async fn a_refused_prompt_is_a_validation_error(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let refusal = || {
        let message =
            json!({ "role": "assistant", "content": null, "refusal": "I'm sorry, I cannot assist with that." });
        choice(json!({ "index": 0, "message": message, "finish_reason": "stop" }))
    };
    let filtered = || {
        let message = json!({ "role": "assistant", "content": "" });
        choice(json!({ "index": 0, "message": message, "finish_reason": "content_filter" }))
    };
    let policy = || error(400, "content_policy_violation", "Your request was rejected by our safety system.");
    let azure = || error(400, "content_filter", "The response was filtered (response_format)");
    for (operation, field) in TEXT_ENDPOINTS {
        app.ai.queue_responses([refusal(), filtered(), policy(), azure()]);
        for _ in 0..4 {
            assert_eq!(ask(&t, operation, field).await.invalid_fields(), [field]);
        }
    }
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await, app.held().await), (8, 0, 0));
}

async fn a_slow_provider_times_out(s: TestStore) {
    let app = AiApp::with_timeout(s, Duration::from_millis(300)).await;
    let t = app.tenant("free").await;
    for (operation, field) in [TEXT_ENDPOINTS[0], TEXT_ENDPOINTS[1]] {
        app.ai.queue_responses([chat("{}").set_delay(Duration::from_secs(60))]);
        let began = Instant::now();
        ask(&t, operation, field).await.expect_error(502, "ai_provider_unavailable");
        assert!(began.elapsed() < Duration::from_secs(15));
        assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0), "settled before the response");
    }
    // The key is released: the same request can be sent again.
    app.ai.queue_responses([chat("{}").set_delay(Duration::from_secs(60))]);
    let path = t.path("/ai/captions");
    for status in [502, 502] {
        let request = t.request("POST", &path).idempotency_key("again").json(&json!({ "prompt": "bread" }));
        assert_eq!(request.send().await.status, status);
    }
}

async fn an_unreachable_provider_returns_502(s: TestStore) {
    let ai = ai_at("http://127.0.0.1:1/v1", Duration::from_secs(20));
    let app = TestApp::start_with(s, ai).await;
    let t = app.tenant("free").await;
    ask(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    assert_eq!(app.number("SELECT cast(sum(used) AS bigint) FROM ai_usage").await, 0);
}

async fn without_a_provider_no_credits_are_charged(s: TestStore) {
    let app = TestApp::start(s).await;
    let t = app.tenant("free").await;
    for (operation, field) in [TEXT_ENDPOINTS[0], TEXT_ENDPOINTS[1], ("images", "prompt")] {
        ask(&t, operation, field).await.expect_error(422, "platform_not_configured");
        assert_eq!(ask(&t, operation, "nope").await.invalid_fields(), [field]);
    }
    assert_eq!(app.number("SELECT count(*) FROM ai_usage").await, 0);
}
