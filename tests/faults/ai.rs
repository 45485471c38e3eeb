//! `kill -9` while the AI's provider is asked: the credits come back, the key is free again, and nothing was stored.

use serde_json::json;

use crate::support::ai_server::{AiServer, Hold, captions};
use crate::support::client::until;
use crate::support::process::Installation;

const HELD: &str = "SELECT count(*) FROM ai_reservations";
const USED: &str = "SELECT cast(coalesce(sum(used), 0) AS bigint) FROM ai_usage";

async fn credits_outlive_a_kill(ai: AiServer, mut crier: Installation) {
    let path = format!("/brands/{}/ai/captions", crier.brand().await);
    let body = json!({ "prompt": "bread" });
    let hold = Hold::new();
    ai.holds(&hold, captions(&["A", "B", "C"]));
    let asking = tokio::spawn({
        let (client, path, body) = ((*crier).clone(), path.clone(), body.clone());
        async move { client.call("POST", &path, Some(body), "once").await }
    });
    hold.asked().await;
    assert_eq!((crier.number(HELD).await, crier.number(USED).await), (1, 15));
    let api = crier.of("api");
    crier.kill(&api);
    assert!(asking.await.expect("no panic").is_none(), "nobody answers");
    hold.let_go();
    crier.start_all().await;
    assert_eq!(crier.number(HELD).await, 1, "its lease is not over yet");
    // What a minute would do.
    crier.execute("UPDATE ai_reservations SET lease_until = '2026-01-01T00:00:00+00:00'").await;
    crier.execute("UPDATE idempotency_keys SET lease_until = '2026-01-01T00:00:00+00:00'").await;
    until("the credits are back", || async { (crier.number(HELD).await == 0).then_some(()) }).await;
    assert_eq!(crier.number(USED).await, 0);
    ai.says([captions(&["D", "E", "F"])]);
    let (status, answer) = crier.call("POST", &path, Some(body), "once").await.expect("an answer");
    assert_eq!((status, &answer["data"]["captions"]), (200, &json!(["D", "E", "F"])));
    assert_eq!((crier.number(HELD).await, crier.number(USED).await), (0, 15));
    crier.assert_all_run();
}

fn keys(url: &str) -> [(&'static str, &str); 4] {
    [
        ("CRIER_AI_BASE_URL", url),
        ("CRIER_AI_API_KEY", "k"),
        ("CRIER_AI_TEXT_MODEL", "writer"),
        ("CRIER_AI_IMAGE_MODEL", "painter"),
    ]
}

#[tokio::test]
async fn embedded() {
    let ai = AiServer::start().await;
    let url = ai.url();
    credits_outlive_a_kill(ai, Installation::embedded_with(&keys(&url)).await).await;
}

#[tokio::test]
async fn split() {
    let ai = AiServer::start().await;
    let url = ai.url();
    credits_outlive_a_kill(ai, Installation::split_with(&keys(&url)).await).await;
}
