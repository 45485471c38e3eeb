//! Captions.

use serde_json::{Value, json};

use crate::support::ai_server::{AiApp, KEY, captions, chat, error};
use crate::support::app::{Reply, Tenant};
use crate::support::store::{TestStore, on_both};

on_both!(
    captions_are_written_as_wished,
    as_many_as_wished_come_or_the_model_is_asked_once_more,
    what_is_too_long_for_the_platform_is_sent_back_and_then_cut,
    an_object_is_found_in_what_models_put_around_it,
    a_server_without_schemas_is_asked_in_words,
    what_is_not_valid_is_told_and_nobody_asked,
    the_same_request_again_costs_nothing,
);

async fn write(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/ai/captions"), body).await
}

async fn captions_are_written_as_wished(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    app.ai.says([captions(&["One 🍞", "Two", "Three"])]);
    let options = json!({ "platform": "bluesky", "tone": "cheeky", "language": "pt-BR", "length": "short",
        "include_hashtags": true, "include_emojis": false });
    let made = write(&t, json!({ "prompt": "fresh bread", "options": options })).await.data(200);
    assert_eq!(
        made,
        json!({ "captions": ["One 🍞", "Two", "Three"], "model": "writer", "credits_used": 15, "credits_remaining": 999_985 })
    );
    assert_eq!(app.ai.first().await, ("/v1/chat/completions".to_owned(), format!("Bearer {KEY}")));
    let asked = app.ai.asked().await.remove(0);
    assert_eq!((&asked["model"], &asked["messages"][1]["content"]), (&json!("writer"), &json!("fresh bread")));
    let format = &asked["response_format"];
    assert_eq!((&format["type"], &format["json_schema"]["strict"]), (&json!("json_schema"), &json!(true)));
    let told = asked["messages"][0]["content"].as_str().unwrap();
    for word in ["3 captions", "Bluesky", "300 characters", "cheeky", "pt-BR", "short", "hashtags", "no emojis"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

async fn as_many_as_wished_come_or_the_model_is_asked_once_more(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let four = json!({ "prompt": "bread", "options": { "count": 4 } });
    app.ai.says([captions(&["A", "a", "B"]), captions(&["A", "B", "C", "D", "E"])]);
    assert_eq!(write(&t, four.clone()).await.data(200)["captions"], json!(["A", "B", "C", "D"]));
    let second = app.ai.asked().await.remove(1);
    assert_eq!(second["messages"][2]["content"], json!({ "captions": ["A", "a", "B"] }).to_string());
    let told = second["messages"][3]["content"].as_str().unwrap();
    assert!(told.contains("4 captions are needed"), "{told}");
    app.ai.says([captions(&["A"]), captions(&["A", "B", "C"])]);
    write(&t, four).await.refused(502, "ai_provider_unavailable");
    assert_eq!(app.ai.asked().await.len(), 4, "twice each");
    assert_eq!((app.used(t.workspace).await, app.held().await), (15, 0), "the first one alone is paid");
}

async fn what_is_too_long_for_the_platform_is_sent_back_and_then_cut(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let wish = json!({ "prompt": "bread", "options": { "platform": "bluesky", "count": 1 } });
    let long = "fresh bread ".repeat(40);
    app.ai.says([captions(&[&long]), captions(&["Fresh bread"])]);
    assert_eq!(write(&t, wish.clone()).await.data(200)["captions"], json!(["Fresh bread"]));
    let told = app.ai.asked().await[1]["messages"][3]["content"].as_str().unwrap().to_owned();
    assert!(told.contains("at most 300 characters"), "{told}");
    // Still too long, and a second answer that never comes: what is there is cut.
    for second in [captions(&[&long]), error(500, "oops", "down")] {
        app.ai.says([captions(&[&long]), second]);
        let made = write(&t, wish.clone()).await.data(200)["captions"][0].as_str().unwrap().to_owned();
        assert!(made.ends_with('…') && made.chars().count() <= 300, "{made}");
    }
}

async fn an_object_is_found_in_what_models_put_around_it(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let wish = json!({ "prompt": "bread", "options": { "count": 1 } });
    for text in ["```json\n{\"captions\": [\"A\"]}\n```", "<think>hm</think>\n{\"captions\": [\"A\"]}"] {
        app.ai.says([chat(text)]);
        assert_eq!(write(&t, wish.clone()).await.data(200)["captions"], json!(["A"]));
    }
    assert_eq!(app.ai.asked().await.len(), 2, "nothing had to be mended");
    app.ai.says([chat("Sure! Here you are: A"), captions(&["A"])]);
    assert_eq!(write(&t, wish).await.data(200)["captions"], json!(["A"]));
}

async fn a_server_without_schemas_is_asked_in_words(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    app.ai.says([error(400, Value::Null, "Unsupported `response_format` type"), captions(&["A", "B", "C"])]);
    write(&t, json!({ "prompt": "bread" })).await.expect(200);
    let asked = app.ai.asked().await;
    assert!(asked[0]["response_format"].is_object() && asked[1].get("response_format").is_none());
    let told = asked[1]["messages"][0]["content"].as_str().unwrap();
    assert!(told.contains("JSON object") && told.contains("\"captions\""), "{told}");
}

async fn what_is_not_valid_is_told_and_nobody_asked(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let invalid = async |body: Value| write(&t, body).await.invalid();
    assert_eq!(invalid(json!({})).await, ["prompt"]);
    assert_eq!(invalid(json!({ "prompt": "" })).await, ["prompt"]);
    assert_eq!(invalid(json!({ "prompt": "x".repeat(8_001), "options": [] })).await, ["options", "prompt"]);
    for (name, wrong) in [
        ("platform", json!("myspace")),
        ("count", json!(0)),
        ("count", json!(11)),
        ("count", json!("3")),
        ("tone", json!("x".repeat(61))),
        ("tone", json!("")),
        ("language", json!("x")),
        ("language", json!("de-")),
        ("language", json!("English, please")),
        ("length", json!("huge")),
        ("include_hashtags", json!("yes")),
        ("include_emojis", json!(1)),
    ] {
        let body = json!({ "prompt": "bread", "options": { name: wrong } });
        assert_eq!(invalid(body).await, [format!("options.{name}")], "{wrong}");
    }
    assert_eq!((app.ai.asked().await.len(), app.used(t.workspace).await), (0, 0));
    app.ai.says([captions(&["A", "B", "C"])]);
    write(&t, json!({ "prompt": "é".repeat(8_000), "options": null })).await.expect(200);
}

async fn the_same_request_again_costs_nothing(s: TestStore) {
    let app = AiApp::start(s).await;
    let t = app.tenant("unlimited").await;
    app.ai.says([captions(&["A", "B", "C"])]);
    let path = t.path("/ai/captions");
    let send = || t.request("POST", &path).idem("once").json(&json!({ "prompt": "bread" })).send();
    let (first, second) = (send().await, send().await);
    assert!(!first.replayed() && second.replayed());
    assert_eq!(first.data(200), second.data(200));
    assert_eq!((app.used(t.workspace).await, app.ai.asked().await.len()), (15, 1));
}
