//! Servers whose API deviates from OpenAI's: their errors for unsupported parameters, and the text around the output of
//! a model.

use std::time::Duration;

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use crate::support::ai_server::{AiApp, AiServer, ai_at, captions, chat, choice, error, error_about, image_response};
use crate::support::app::{Reply, Tenant, TestApp};
use crate::support::images::png;
use crate::support::source::{Source, SourceResponse, cut_off, ok};
use crate::support::store::{TestStore, on_one};

on_one!(the_base_url_may_omit_the_version, every_image_encoding_is_accepted, an_unfinished_response_times_out,);
on_one!(AiApp::start =>
    falls_back_to_prompt_without_schema_support,
    every_response_format_is_parsed,
    an_error_body_with_status_200_is_an_error,
    a_content_filter_makes_the_prompt_invalid,
    rejected_parameters_are_dropped_one_by_one,
    a_rejected_api_key_is_free_and_not_disclosed,
);

async fn one(t: &Tenant<'_>) -> Reply {
    t.post(&t.path("/ai/captions"), json!({ "prompt": "bread", "options": { "count": 1 } })).await
}

async fn generate_image(t: &Tenant<'_>, options: Value) -> Reply {
    t.post(&t.path("/ai/images"), json!({ "prompt": "a loaf", "options": options })).await
}

fn json_response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

async fn falls_back_to_prompt_without_schema_support(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let ways = [
        ("DeepSeek", error(400, "invalid_request_error", "This response_format type is unavailable now")),
        (
            "vLLM",
            json_response(
                400,
                json!({ "object": "error", "message": "xgrammar: unsupported json_schema", "code": 400 }),
            ),
        ),
        (
            "Mistral",
            json_response(
                422,
                json!({ "detail": [{ "loc": ["body", "response_format"], "type": "extra_forbidden" }] }),
            ),
        ),
        ("llama.cpp", json_response(500, json!({ "error": { "code": 500, "message": "Failed to parse grammar" } }))),
        ("Ollama", json_response(400, json!({ "error": "json: cannot unmarshal object into response_format" }))),
        (
            "OpenRouter",
            json_response(
                404,
                json!({ "error": { "code": 404, "message": "No endpoints support structured output" } }),
            ),
        ),
        (
            "with a 200",
            json_response(200, json!({ "error": { "code": 400, "message": "response_format is not supported" } })),
        ),
        ("no JSON", ResponseTemplate::new(400).set_body_string("Unknown field response_format")),
    ];
    for (n, (who, rejected)) in ways.into_iter().enumerate() {
        app.ai.queue_responses([rejected, captions(&["A"])]);
        assert_eq!(one(&t).await.data(200)["captions"], json!(["A"]), "{who}");
        assert!(app.ai.request_bodies().await[2 * n + 1].get("response_format").is_none(), "{who}");
    }
    // Authentication and rate limit errors are not retried, whatever their message.
    for status in [401, 403, 429] {
        app.ai.queue_responses([error(status, Value::Null, "response_format")]);
        one(&t).await.expect_error(502, "ai_provider_unavailable");
    }
    assert_eq!(app.ai.request_bodies().await.len(), 2 * 8 + 3);
}

async fn every_response_format_is_parsed(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let object = r#"{"captions": ["A"]}"#;
    let message = |message: Value| choice(json!({ "index": 0, "message": message, "finish_reason": "stop" }));
    let ways = [
        message(json!({ "role": "assistant", "content": [{ "type": "text", "text": object }] })),
        message(json!({ "content": [
            { "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] },
            { "type": "text", "text": "{\"captions\":" }, { "type": "text", "text": "[\"A\"]}" },
        ] })),
        message(json!({ "content": object, "reasoning_content": "hm", "tool_calls": null, "refusal": "" })),
        json_response(200, json!({ "error": null, "choices": [{ "message": { "content": object } }] })),
        chat(&format!("hm, {{}}?\n</think>\n{object}")),
        chat(&format!("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{object}")),
    ];
    let count = ways.len();
    for way in ways {
        app.ai.queue_responses([way]);
        assert_eq!(one(&t).await.data(200)["captions"], json!(["A"]));
    }
    assert_eq!(app.ai.request_bodies().await.len(), count, "no repair request was needed");
}

async fn the_base_url_may_omit_the_version(s: TestStore) {
    let ai = AiServer::start().await;
    let root = ai.url().replace("/v1", "");
    let app = TestApp::start_with(s, ai_at(&root, Duration::from_secs(20))).await;
    let t = app.tenant("unlimited").await;
    ai.queue_responses([captions(&["A"]), image_response(&png(5, 5))]);
    one(&t).await.expect(200);
    generate_image(&t, json!({})).await.expect(201);
    // LM Studio reports this with a 200.
    ai.set_response(
        "/chat/completions",
        json_response(200, json!({ "error": "Unexpected endpoint or method. (POST /chat/completions)" })),
    )
    .await;
    ai.queue_responses([captions(&["A"])]);
    one(&t).await.expect(200);
    // If the base URL has a path, only that path is used.
    let replica = app.replica_with(ai_at(&format!("{root}/v2/"), Duration::from_secs(20))).await;
    let body = json!({ "prompt": "bread" });
    let reply = t.request_at(&replica, "POST", &t.path("/ai/captions")).json(&body).send().await;
    reply.expect_error(502, "ai_provider_unavailable");
    let paths = ai.paths().await;
    assert_eq!(paths.last().map(String::as_str), Some("/v2/chat/completions"), "{paths:?}");
}

async fn an_error_body_with_status_200_is_an_error(app: AiApp) {
    let t = app.tenant("free").await;
    for body in [
        json!({ "error": { "code": 429, "message": "Rate limit exceeded: free-models-per-min" } }),
        json!({ "error": "the model is loading" }),
        json!({ "error": { "code": 502 }, "choices": [{ "message": { "content": "{\"captions\": [\"A\"]}" } }] }),
        json!([1, 2]),
    ] {
        app.ai.queue_responses([json_response(200, body)]);
        one(&t).await.expect_error(502, "ai_provider_unavailable");
    }
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await, app.held().await), (4, 0, 0));
}

async fn a_content_filter_makes_the_prompt_invalid(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let azure =
        json!({ "error": { "code": "OperationFailed", "inner_error": { "code": "ResponsibleAIPolicyViolation" } } });
    let router = json!({ "error": { "code": 403, "message": "flagged", "metadata": { "reasons": ["violence"], "flagged_input": "bread" } } });
    for (status, body) in [(400, azure.clone()), (403, router.clone()), (200, router)] {
        app.ai.queue_responses([json_response(status, body)]);
        assert_eq!(one(&t).await.invalid_fields(), ["prompt"]);
    }
    for body in [azure, json!({ "error": { "code": "contentFilter", "message": "Your task failed." } })] {
        app.ai.queue_responses([json_response(400, body)]);
        assert_eq!(generate_image(&t, json!({ "size": "1024x1024" })).await.invalid_fields(), ["prompt"]);
    }
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await, app.held().await), (5, 0, 0));
}

async fn every_image_encoding_is_accepted(s: TestStore) {
    use base64::Engine as _;
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let text = |n| base64::engine::general_purpose::STANDARD.encode(png(n, 5));
    let url = app.ai.serve_file("/files/a.png", png(9, 9)).await;
    for data in [
        json!({ "b64_json": text(5), "url": null, "revised_prompt": "A loaf" }),
        json!({ "b64_json": format!("data:image/png;base64,{}\n", text(6)) }),
        json!({ "b64_json": null, "url": format!("data:image/png;base64,{}", text(7)) }),
        json!({ "b64_json": "", "url": url }),
    ] {
        app.ai.queue_responses([json_response(200, json!({ "created": 1, "data": [data] }))]);
        generate_image(&t, json!({})).await.expect(201);
    }
    assert_eq!(app.count_rows("media").await, 4);
}

/// OpenAI's `dall-e-3` has other sizes, and other values for the quality.
async fn rejected_parameters_are_dropped_one_by_one(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let wrong = |param: &str| error_about(400, "invalid_value", &format!("Invalid value for '{param}'."), json!(param));
    app.ai.queue_responses([wrong("quality"), wrong("size"), image_response(&png(9, 9))]);
    generate_image(&t, json!({ "size": "1024x1536", "quality": "medium" })).await.expect(201);
    let requests = app.ai.request_bodies().await;
    let named = |n: usize| ["size", "quality"].map(|name| requests[n].get(name).is_some());
    assert_eq!([named(0), named(1), named(2)], [[true, true], [true, false], [false, false]]);
    // A server that rejects parameters it was not sent is not retried forever.
    app.ai.queue_responses([wrong("size"), wrong("size"), wrong("size"), image_response(&png(8, 8))]);
    generate_image(&t, json!({ "size": "1024x1536", "quality": "medium" }))
        .await
        .expect_error(502, "ai_provider_unavailable");
    app.ai.clear_responses();
    app.ai.queue_responses([
        json_response(422, json!({ "detail": [{ "loc": ["body", "quality"] }] })),
        image_response(&png(7, 7)),
    ]);
    generate_image(&t, json!({ "quality": "low" })).await.expect(201);
    assert_eq!(app.ai.request_bodies().await.len(), 3 + 3 + 2);
}

async fn an_unfinished_response_times_out(s: TestStore) {
    let whole = ok(br#"{"choices":[{"message":{"content":"{\"captions\":[\"A\"]}"}}]}"#);
    let slow = Source::with_responses([
        SourceResponse::Stall(whole[..whole.len() - 1].to_vec()),
        SourceResponse::Stall(cut_off(&whole)),
    ])
    .await;
    let app = TestApp::start_with(s, ai_at(&slow.url("/v1"), Duration::from_millis(300))).await;
    let t = app.tenant("free").await;
    for _ in 0..2 {
        one(&t).await.expect_error(502, "ai_provider_unavailable");
        assert_eq!(t.get(&t.path("/usage")).await.data(200)["ai_credits"]["used"], 0);
    }
}

async fn a_rejected_api_key_is_free_and_not_disclosed(app: AiApp) {
    let t = app.tenant("free").await;
    app.ai.queue_responses([json_response(401, json!({ "message": "Unauthorized", "request_id": "1" }))]);
    let text = one(&t).await.expect_error(502, "ai_provider_unavailable").to_string();
    assert!(!text.contains("Unauthorized") && !text.contains("CRIER_AI"), "{text}");
    assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0));
}
