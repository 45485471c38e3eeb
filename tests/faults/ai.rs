//! `kill -9` during the call to the AI provider, and at any later point. Invariant: the credits are released if no
//! response is stored, the idempotency key can be used again, and no file is stored without a row.

use std::time::Duration;

use serde_json::json;

use super::import::assert_files_have_rows;
use crate::support::ai_server::{AiServer, ResponseGate, captions, image_response};
use crate::support::client::until;
use crate::support::images::png;
use crate::support::process::{Installation, on_both_forms};

on_both_forms!(split => ai_credits_survive_a_kill, ai_images_survive_kills);

async fn ai_credits_survive_a_kill(split: bool) {
    let (ai, mut crier) = start(split).await;
    let path = format!("/brands/{}/ai/captions", crier.brand().await);
    let body = json!({ "prompt": "bread" });
    let response_gate = ResponseGate::new();
    ai.queue_held_response(&response_gate, captions(&["A", "B", "C"]));
    let request = tokio::spawn({
        let (client, path, body) = ((*crier).clone(), path.clone(), body.clone());
        async move { client.call("POST", &path, Some(body), "once").await }
    });
    response_gate.wait_for_request().await;
    assert_eq!((crier.count_rows("ai_reservations").await, crier.sum("used", "ai_usage").await), (1, 15));
    let api = crier.of("api");
    crier.kill(&api);
    assert!(request.await.expect("no panic").is_none(), "there is no response");
    response_gate.let_go();
    crier.start_all().await;
    assert_eq!(crier.count_rows("ai_reservations").await, 1, "its lease is not over yet");
    expire_leases(&crier).await;
    until("the credits are back", || async { (crier.count_rows("ai_reservations").await == 0).then_some(()) }).await;
    assert_eq!(crier.sum("used", "ai_usage").await, 0);
    ai.queue_responses([captions(&["D", "E", "F"])]);
    let (status, response) = crier.call("POST", &path, Some(body), "once").await.expect("a response");
    assert_eq!((status, &response["data"]["captions"]), (200, &json!(["D", "E", "F"])));
    assert_eq!((crier.count_rows("ai_reservations").await, crier.sum("used", "ai_usage").await), (0, 15));
    crier.assert_all_run();
}

/// Expires the leases of unfinished requests, which last a minute.
async fn expire_leases(crier: &Installation) {
    for table in ["ai_reservations", "idempotency_keys"] {
        let past = "'2026-01-01T00:00:00+00:00'";
        crier.execute(&format!("UPDATE {table} SET lease_until = {past} WHERE lease_until IS NOT NULL")).await;
    }
}

/// When the API is killed, in milliseconds after the provider's response, or before the response if 0. In this time, the
/// API checks the image, stores its row and its bytes, and responds.
const KILL_DELAYS: [u64; 6] = [0, 5, 20, 40, 80, 160];

async fn ai_images_survive_kills(split: bool) {
    let (ai, mut crier) = start(split).await;
    let path = format!("/brands/{}/ai/images", crier.brand().await);
    let body = json!({ "prompt": "bread" });
    let api = crier.of("api");
    let mut killed_before_response = 0;
    for (round, delay) in (1..).zip(KILL_DELAYS) {
        let bytes = png(300 + round as u32, 200);
        let (key, response_gate) = (format!("image{round}"), ResponseGate::new());
        ai.queue_held_response(&response_gate, image_response(&bytes));
        let request = tokio::spawn({
            let (client, path, body, key) = ((*crier).clone(), path.clone(), body.clone(), key.clone());
            async move { client.call("POST", &path, Some(body), &key).await }
        });
        response_gate.wait_for_request().await;
        if delay == 0 {
            crier.kill(&api);
        }
        response_gate.let_go();
        // This waits in real time: the kill hits whatever step the request has reached.
        tokio::time::sleep(Duration::from_millis(delay)).await;
        crier.kill(&api);
        request.await.expect("no panic");
        crier.start_all().await;
        expire_leases(&crier).await;
        until("no credits are held", || async { (crier.count_rows("ai_reservations").await == 0).then_some(()) }).await;
        let has_image = crier.count_rows("media").await == round;
        killed_before_response += usize::from(!has_image);
        assert_eq!(crier.sum("used", "ai_usage").await, 240 * (round - i64::from(!has_image)), "{delay} ms");
        assert_stored_files_have_rows(&crier).await;
        ai.clear_responses();
        ai.queue_responses([image_response(&bytes)]);
        let requests_before = ai.request_bodies().await.len();
        let (status, response) = crier.call("POST", &path, Some(body.clone()), &key).await.expect("a response");
        assert_eq!((status, &response["data"]["credits_used"]), (201, &json!(240)), "{delay} ms: {response}");
        assert_eq!(
            ai.request_bodies().await.len() - requests_before,
            usize::from(!has_image),
            "a request that has a response is not repeated"
        );
        assert_eq!((crier.count_rows("ai_reservations").await, crier.sum("used", "ai_usage").await), (0, 240 * round));
        assert_eq!(crier.count_rows("media").await, round);
        assert_files_have_rows(&crier).await;
        ai.clear_responses();
    }
    assert!(killed_before_response > 0, "the first kill comes before the response");
    crier.assert_all_run();
}

async fn assert_stored_files_have_rows(crier: &Installation) {
    if crier.count_rows("files WHERE state = 'stored'").await > 0 {
        assert_files_have_rows(crier).await;
    }
}

async fn start(split: bool) -> (AiServer, Installation) {
    let ai = AiServer::start().await;
    let url = ai.url();
    let keys = [
        ("CRIER_AI_BASE_URL", url.as_str()),
        ("CRIER_AI_API_KEY", "k"),
        ("CRIER_AI_TEXT_MODEL", "writer"),
        ("CRIER_AI_IMAGE_MODEL", "painter"),
    ];
    let crier = Installation::start_as(split, &keys).await;
    (ai, crier)
}
