//! Hashtags.

use serde_json::{Value, json};

use crate::support::ai_server::{AiApp, chat};
use crate::support::store::on_one;

on_one!(AiApp::start =>
    hashtags_are_normalized,
    the_hashtag_count_is_limited_by_platform,
    invalid_fields_are_reported,
);

fn hashtags(list: &[&str]) -> wiremock::ResponseTemplate {
    chat(&json!({ "hashtags": list }).to_string())
}

async fn hashtags_are_normalized(app: AiApp) {
    let t = app.tenant("pro").await;
    app.ai.queue_responses([hashtags(&["bread", "#Bread", "#fresh bread!", "＃パン", "#2026", "🍞"])]);
    let body = json!({ "content": "Fresh bread", "platform": "instagram" });
    let created = t.post(&t.path("/ai/hashtags"), body).await.data(200);
    assert_eq!(
        created,
        json!({ "hashtags": ["#bread", "#freshbread", "#パン"], "model": "writer", "credits_used": 12, "credits_remaining": 4_988 })
    );
    let request = app.ai.request_bodies().await.remove(0);
    assert_eq!(request["messages"][1]["content"], "Fresh bread");
    assert!(request["messages"][0]["content"].as_str().unwrap().contains("on Instagram"), "{request}");
    app.ai.queue_responses([hashtags(&["#1"]), hashtags(&["#one"])]);
    let created = t.post(&t.path("/ai/hashtags"), json!({ "content": "Fresh bread" })).await.data(200);
    assert_eq!(created["hashtags"], json!(["#one"]));
}

async fn the_hashtag_count_is_limited_by_platform(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let many: Vec<String> = (0..40).map(|n| format!("#tag{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (platform, max) in [("instagram", 30), ("threads", 1), ("twitter", 5), ("sandbox", 15)] {
        app.ai.queue_responses([hashtags(&many)]);
        let body = json!({ "content": "bread", "platform": platform });
        let created = t.post(&t.path("/ai/hashtags"), body).await.data(200);
        assert_eq!(created["hashtags"].as_array().unwrap().len(), max, "{platform}");
    }
}

async fn invalid_fields_are_reported(app: AiApp) {
    let t = app.tenant("unlimited").await;
    let invalid = async |body: Value| t.post(&t.path("/ai/hashtags"), body).await.invalid_fields();
    assert_eq!(invalid(json!({ "platform": "myspace" })).await, ["content", "platform"]);
    assert_eq!(invalid(json!({ "content": "x".repeat(8_001) })).await, ["content"]);
    assert_eq!(invalid(json!({ "content": ["x"], "platform": 5 })).await, ["content", "platform"]);
    assert_eq!(invalid(json!({ "content": "" })).await, ["content"]);
    assert_eq!((app.ai.request_bodies().await.len(), app.used(t.workspace).await), (0, 0));
}
