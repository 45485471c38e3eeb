//! A failing provider: the response is 502 without the cause, and no credits are lost.

use std::time::Duration;

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use crate::support::ai_server::{AiApp, KEY, ai_at, chat, choice, completion, error};
use crate::support::app::{Reply, Tenant, TestApp};
use crate::support::store::{TestStore, on_one};

on_one!(a_slow_provider_times_out, an_unreachable_provider_returns_502, without_a_provider_no_credits_are_charged,);
on_one!(AiApp::start =>
    provider_errors_refund_the_credits,
    an_unparsable_response_is_retried_once,
    a_rejected_prompt_is_a_validation_error,
);

/// Both text endpoints, each with the field that holds the text.
const TEXT_ENDPOINTS: [(&str, &str); 2] = [("captions", "prompt"), ("hashtags", "content")];

async fn post_text(t: &Tenant<'_>, operation: &str, field: &str) -> Reply {
    t.post(&t.path(&format!("/ai/{operation}")), json!({ field: "fresh bread" })).await
}

async fn provider_errors_refund_the_credits(app: AiApp) {
    // The credits suffice for six requests, so a missing refund would fail the test.
    let t = app.tenant("free").await;
    let responses = || {
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
            // Longer than a response may be.
            ResponseTemplate::new(200).set_body_bytes(vec![b' '; 2 << 20]),
            ResponseTemplate::new(200).set_body_bytes(vec![0xff, 0xfe]),
            completion(json!([])),
            choice(json!({ "index": 0, "message": { "role": "assistant", "content": null }, "finish_reason": "stop" })),
        ]
    };
    for (operation, field) in TEXT_ENDPOINTS {
        for (n, response) in responses().into_iter().enumerate() {
            app.clock.advance(chrono::TimeDelta::seconds(2));
            app.ai.queue_responses([response]);
            let mut reply = post_text(&t, operation, field).await.expect_error(502, "ai_provider_unavailable");
            // This URL contains the address of this server, not that of the provider.
            reply["doc_url"].take();
            let text = reply.to_string();
            for secret in [KEY, "writer", "127.0.0.1", "API key", "overloaded"] {
                assert!(!text.contains(secret), "{operation} {n}: {text}");
            }
            assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0), "{operation} {n}");
        }
    }
    let expected_calls = TEXT_ENDPOINTS.len() * responses().len();
    assert_eq!(app.ai.request_bodies().await.len(), expected_calls, "one call each");
}

async fn an_unparsable_response_is_retried_once(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let cut_off = || {
        let message = json!({ "role": "assistant", "content": "{\"captions\": [\"A\", \"B" });
        choice(json!({ "index": 0, "message": message, "finish_reason": "length" }))
    };
    let unparsable = [[cut_off(), cut_off()], [chat(""), chat("[]")], [chat("{\"captions\": {}}"), chat("sorry")]];
    // Each request makes two calls, as does the request whose second call fails.
    let expected_calls = 2 * (unparsable.len() + 1);
    for responses in unparsable {
        app.ai.queue_responses(responses);
        post_text(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    }
    app.ai.queue_responses([cut_off(), error(500, Value::Null, "down")]);
    post_text(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await), (expected_calls, 0));
    app.ai.queue_responses([cut_off(), chat("{\"captions\": [\"A\", \"B\", \"C\"]}")]);
    post_text(&t, "captions", "prompt").await.expect(200);
}

async fn a_rejected_prompt_is_a_validation_error(app: AiApp) {
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
    let refusals = || [refusal(), filtered(), policy(), azure()];
    for (operation, field) in TEXT_ENDPOINTS {
        app.ai.queue_responses(refusals());
        for _ in 0..refusals().len() {
            assert_eq!(post_text(&t, operation, field).await.invalid_fields(), [field]);
        }
    }
    let expected_calls = TEXT_ENDPOINTS.len() * refusals().len();
    assert_eq!(app.ai.request_bodies().await.len(), expected_calls, "one call each");
    assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0));
}

async fn a_slow_provider_times_out(s: TestStore) {
    let app = AiApp::with_timeout(s, Duration::from_millis(300)).await;
    let t = app.tenant("free").await;
    for (operation, field) in TEXT_ENDPOINTS {
        app.ai.queue_responses([chat("{}").set_delay(Duration::from_secs(60))]);
        // The client of the test does not wait as long as the provider would.
        post_text(&t, operation, field).await.expect_error(502, "ai_provider_unavailable");
        assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0), "settled before the response");
    }
    // The 502 releases the Idempotency-Key: the same request can be sent again.
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
    post_text(&t, "captions", "prompt").await.expect_error(502, "ai_provider_unavailable");
    assert_eq!(t.get(&t.path("/usage")).await.data(200)["ai_credits"]["used"], 0);
}

async fn without_a_provider_no_credits_are_charged(s: TestStore) {
    let app = TestApp::start(s).await;
    let t = app.tenant("free").await;
    for (operation, field) in TEXT_ENDPOINTS.into_iter().chain([("images", "prompt")]) {
        post_text(&t, operation, field).await.expect_error(422, "platform_not_configured");
        // Invalid fields are reported before the missing provider.
        assert_eq!(post_text(&t, operation, "nope").await.invalid_fields(), [field]);
    }
    assert_eq!(app.count_rows("ai_usage").await, 0);
}
