//! Generated images.

use serde_json::{Value, json};

use crate::support::ai_server::{AiApp, AiServer, error, error_about, image_response, image_url_response};
use crate::support::app::{BASE, Reply, Tenant};
use crate::support::images::{jpeg, png};
use crate::support::request::assert_fields;
use crate::support::store::{on_both, on_one};

on_both!(AiApp::start =>
    generated_images_are_stored_in_the_media_library,
    full_storage_refunds_the_credits,
    a_failed_write_refunds_credits_and_storage,
);
on_one!(AiApp::start =>
    higher_quality_costs_more_credits,
    image_urls_are_fetched_through_the_guard,
    an_unknown_parameter_is_dropped_on_retry,
    an_invalid_image_is_a_provider_error,
    a_rejected_prompt_is_a_validation_error,
    full_storage_is_checked_before_the_provider_call,
    concurrent_images_of_a_workspace_are_limited,
    invalid_fields_are_reported,
);

async fn generate_image(t: &Tenant<'_>, options: Value) -> Reply {
    t.post(&t.path("/ai/images"), json!({ "prompt": "a loaf of bread", "options": options })).await
}

async fn generated_images_are_stored_in_the_media_library(app: AiApp) {
    let t = app.tenant("unlimited").await;
    app.ai.queue_responses([image_response(&png(30, 20))]);
    let prompt = format!("{}{}", "a loaf of bread ", "é".repeat(2_500));
    let body = json!({ "prompt": prompt, "options": { "size": "1024x1536", "quality": "low" } });
    let reply = t.post(&t.path("/ai/images"), body).await;
    let created = reply.data(201);
    let media = &created["media"];
    assert_eq!(reply.header("location"), Some(format!("{BASE}{}/{}", t.path("/media"), media["id"]).as_str()));
    assert_fields(&created, json!({ "model": "painter", "credits_used": 240, "credits_remaining": 999_760 }));
    assert_eq!((&media["mime_type"], &media["width"], &media["height"]), (&json!("image/png"), &json!(30), &json!(20)));
    assert_eq!((&media["filename"], &media["asset_type"]), (&json!("ai-20260609-101320.png"), &json!("image")));
    assert_eq!(media["alt_text"].as_str().unwrap().chars().count(), 2_000);
    assert_eq!(app.count_rows(format!("media WHERE brand_id = {}", t.brand)).await, 1);
    assert_eq!(app.count_rows("files WHERE state = 'stored'").await, 1);
    let request = app.ai.request_bodies().await.remove(0);
    assert_eq!(request, json!({ "model": "painter", "prompt": prompt, "n": 1, "size": "1024x1536", "quality": "low" }));
    assert_eq!(app.ai.first().await.0, "/v1/images/generations");
}

async fn higher_quality_costs_more_credits(app: AiApp) {
    let t = app.tenant("pro").await;
    let mut left = 5_000;
    for (n, (quality, credits)) in
        [("low", 240), ("medium", 240), ("auto", 240), ("high", 1_000)].into_iter().enumerate()
    {
        app.ai.queue_responses([image_response(&png(10 + n as u32, 10))]);
        left -= credits;
        let created = generate_image(&t, json!({ "quality": quality })).await.data(201);
        assert_eq!(
            (&created["credits_used"], &created["credits_remaining"]),
            (&json!(credits), &json!(left)),
            "{quality}"
        );
    }
    assert!(app.ai.request_bodies().await[2].get("quality").is_none(), "defaults are not sent");
    let usage = t.get(&t.path("/usage")).await.data(200);
    assert_eq!((&usage["ai_credits"]["used"], &usage["credits_remaining"]), (&json!(1_720), &json!(3_280)));
    let free = app.tenant("free").await;
    generate_image(&free, json!({ "quality": "low" })).await.expect_error(402, "insufficient_credits");
    assert_eq!(app.ai.request_bodies().await.len(), 4, "no call without credits");
}

async fn image_urls_are_fetched_through_the_guard(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let own = app.ai.serve_file("/files/a.jpg", jpeg(20, 20)).await;
    app.ai.queue_responses([image_url_response(&own)]);
    let created = generate_image(&t, json!({})).await.data(201);
    assert_eq!(created["media"]["mime_type"], "image/jpeg", "the operator configured this server");
    assert_eq!(created["media"]["filename"], "ai-20260609-101320.jpg");
    // A URL with another port is another server, which is not public.
    let other = AiServer::start().await;
    let private = other.serve_file("/a.png", png(5, 5)).await;
    for elsewhere in [&private, "http://169.254.169.254/a.png", "file:///etc/passwd", "nope"] {
        app.ai.queue_responses([image_url_response(elsewhere)]);
        generate_image(&t, json!({})).await.expect_error(502, "ai_provider_unavailable");
    }
    assert_eq!(other.request_bodies().await.len(), 0);
    let missing = own.replace("a.jpg", "b.jpg");
    app.ai.queue_responses([image_url_response(&missing)]);
    generate_image(&t, json!({})).await.expect_error(502, "ai_provider_unavailable");
    assert_eq!((app.used(t.workspace).await, app.held().await), (240, 0));
}

async fn an_unknown_parameter_is_dropped_on_retry(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let options = json!({ "size": "1024x1024", "quality": "medium" });
    let rejected = error_about(400, "invalid_value", "Invalid value: 'medium'.", json!("quality"));
    app.ai.queue_responses([
        rejected,
        image_response(&png(9, 9)),
        error(400, Value::Null, "unknown field"),
        image_response(&png(8, 8)),
    ]);
    generate_image(&t, options.clone()).await.expect(201);
    generate_image(&t, options.clone()).await.expect(201);
    let requests = app.ai.request_bodies().await;
    assert_eq!(
        (requests[1].get("quality"), &requests[1]["size"]),
        (None, &json!("1024x1024")),
        "the named one is dropped"
    );
    assert_eq!((requests[3].get("quality"), requests[3].get("size")), (None, None), "all are dropped if none is named");
    app.ai.queue_responses([error(400, Value::Null, "no"), error(400, Value::Null, "no"), image_response(&png(7, 7))]);
    generate_image(&t, options).await.expect_error(502, "ai_provider_unavailable");
    assert_eq!(app.ai.request_bodies().await.len(), 6, "one retry only");
}

async fn an_invalid_image_is_a_provider_error(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let whole = png(30, 30);
    let responses = [
        image_response(b"<html>sorry</html>"),
        image_response(&whole[..whole.len() / 2]),
        image_response(b""),
        wiremock::ResponseTemplate::new(200).set_body_json(json!({ "data": [{ "b64_json": "*" }] })),
        wiremock::ResponseTemplate::new(200).set_body_json(json!({ "data": [{}] })),
        wiremock::ResponseTemplate::new(200).set_body_json(json!({ "data": [] })),
        wiremock::ResponseTemplate::new(200).set_body_string("{\"data\": ["),
        image_response(&vec![0; 3 << 20]),
    ];
    for response in responses {
        app.ai.queue_responses([response]);
        generate_image(&t, json!({})).await.expect_error(502, "ai_provider_unavailable");
        assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0));
    }
    assert_eq!(app.count_rows("files WHERE state <> 'doomed'").await, 0);
}

async fn a_rejected_prompt_is_a_validation_error(app: AiApp) {
    let t = app.tenant("unlimited").await;
    for code in ["content_policy_violation", "moderation_blocked"] {
        app.ai.queue_responses([error(400, code, "Your request was rejected by the safety system.")]);
        assert_eq!(generate_image(&t, json!({ "size": "1024x1024" })).await.invalid_fields(), ["prompt"], "{code}");
    }
    assert_eq!((app.used(t.workspace).await, app.ai.request_bodies().await.len()), (0, 2));
}

/// The provider is not called for an image that could not be stored.
async fn full_storage_is_checked_before_the_provider_call(app: AiApp) {
    let t = app.tenant("pro").await;
    let full: i64 = 20_480 << 20;
    app.set_storage_usage(t.workspace, full, 0).await;
    let error = generate_image(&t, json!({})).await.expect_error(402, "storage_limit_exceeded");
    assert!(error["message"].as_str().unwrap().contains("20480 MiB"), "{error}");
    assert_eq!(app.count_rows("ai_usage").await, 0);
    assert_eq!(
        generate_image(&t, json!({ "size": "9x9" })).await.invalid_fields(),
        ["options.size"],
        "validation comes first"
    );
    assert_eq!(app.ai.request_bodies().await.len(), 0);
}

/// Each request that generates an image holds it in memory.
async fn concurrent_images_of_a_workspace_are_limited(app: AiApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    app.ai.queue_responses([image_response(&png(9, 9)), image_response(&png(9, 9))]);
    let mut held: Vec<_> = (0..4).map(|_| app.api.image_slots.enter(t.workspace).unwrap()).collect();
    let rejected = generate_image(&t, json!({})).await;
    rejected.expect_error(503, "service_unavailable");
    assert_eq!(rejected.header("retry-after"), Some("5"));
    assert_eq!((app.count_rows("ai_usage").await, app.ai.request_bodies().await.len()), (0, 0));
    generate_image(&other, json!({})).await.expect(201);
    held.pop();
    generate_image(&t, json!({})).await.expect(201);
}

async fn full_storage_refunds_the_credits(app: AiApp) {
    let t = app.tenant("pro").await;
    let full: i64 = (20_480 << 20) - 1;
    app.set_storage_usage(t.workspace, full, 0).await;
    app.ai.queue_responses([image_response(&png(9, 9))]);
    generate_image(&t, json!({})).await.expect_error(402, "storage_limit_exceeded");
    assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0));
    assert_eq!((app.count_rows("media").await, app.ai.request_bodies().await.len()), (0, 1));
}

/// The image is stored, but the write to the database fails.
async fn a_failed_write_refunds_credits_and_storage(app: AiApp) {
    let t = app.tenant("unlimited").await;
    app.sql("ALTER TABLE media RENAME TO hidden").await;
    app.ai.queue_responses([image_response(&png(9, 9)), image_response(&png(9, 9))]);
    generate_image(&t, json!({})).await.expect_error(500, "internal_error");
    app.sql("ALTER TABLE hidden RENAME TO media").await;
    assert_eq!((app.used(t.workspace).await, app.held().await), (0, 0));
    assert_eq!(app.count_rows("files WHERE state = 'doomed'").await, 1);
    assert_eq!(app.counted_bytes().await, 0);
    generate_image(&t, json!({})).await.expect(201);
}

async fn invalid_fields_are_reported(app: AiApp) {
    let t = app.tenant("unlimited").await;
    assert_eq!(
        generate_image(&t, json!({ "size": "9x9", "quality": "ultra" })).await.invalid_fields(),
        ["options.quality", "options.size"]
    );
    assert_eq!(generate_image(&t, json!("large")).await.invalid_fields(), ["options"]);
    assert_eq!(t.post(&t.path("/ai/images"), json!({})).await.invalid_fields(), ["prompt"]);
    assert_eq!(
        generate_image(&t, json!({ "size": 1_024, "quality": true })).await.invalid_fields(),
        ["options.quality", "options.size"]
    );
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await), (0, 0));
}
