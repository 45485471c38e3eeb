//! `kill -9` during the call to the AI provider, and at any later point: the credits are released unless there is a
//! response, the key is free again, and nothing is stored without a record.

use std::time::Duration;

use serde_json::json;

use super::import::every_file_has_its_row;
use crate::support::ai_server::{AiServer, ResponseGate, captions, picture};
use crate::support::client::until;
use crate::support::picture::png;
use crate::support::process::Installation;

const HELD: &str = "SELECT count(*) FROM ai_reservations";
const USED: &str = "SELECT cast(coalesce(sum(used), 0) AS bigint) FROM ai_usage";

async fn assert_credits_survive_a_kill(ai: AiServer, mut crier: Installation) {
    let path = format!("/brands/{}/ai/captions", crier.brand().await);
    let body = json!({ "prompt": "bread" });
    let hold = ResponseGate::new();
    ai.queue_held_response(&hold, captions(&["A", "B", "C"]));
    let asking = tokio::spawn({
        let (client, path, body) = ((*crier).clone(), path.clone(), body.clone());
        async move { client.call("POST", &path, Some(body), "once").await }
    });
    hold.wait_for_request().await;
    assert_eq!((crier.number(HELD).await, crier.number(USED).await), (1, 15));
    let api = crier.of("api");
    crier.kill(&api);
    assert!(asking.await.expect("no panic").is_none(), "there is no response");
    hold.let_go();
    crier.start_all().await;
    assert_eq!(crier.number(HELD).await, 1, "its lease is not over yet");
    // Expires the leases, which would take a minute.
    crier.execute("UPDATE ai_reservations SET lease_until = '2026-01-01T00:00:00+00:00'").await;
    crier.execute("UPDATE idempotency_keys SET lease_until = '2026-01-01T00:00:00+00:00'").await;
    until("the credits are back", || async { (crier.number(HELD).await == 0).then_some(()) }).await;
    assert_eq!(crier.number(USED).await, 0);
    ai.queue_responses([captions(&["D", "E", "F"])]);
    let (status, answer) = crier.call("POST", &path, Some(body), "once").await.expect("an answer");
    assert_eq!((status, &answer["data"]["captions"]), (200, &json!(["D", "E", "F"])));
    assert_eq!((crier.number(HELD).await, crier.number(USED).await), (0, 15));
    crier.assert_all_run();
}

const ALL_DEAD: [&str; 2] = [
    "UPDATE ai_reservations SET lease_until = '2026-01-01T00:00:00+00:00'",
    "UPDATE idempotency_keys SET lease_until = '2026-01-01T00:00:00+00:00' WHERE lease_until IS NOT NULL",
];
/// Milliseconds after the provider's response. The next steps are checking the picture, storing its row and its bytes,
/// and the response.
const MOMENTS: [u64; 6] = [0, 5, 20, 40, 80, 160];

async fn assert_pictures_survive_kills(ai: AiServer, mut crier: Installation) {
    let path = format!("/brands/{}/ai/images", crier.brand().await);
    let body = json!({ "prompt": "bread" });
    let api = crier.of("api");
    let mut killed_before_the_answer = 0;
    for (round, moment) in (1..).zip(MOMENTS) {
        let bytes = png(300 + round as u32, 200);
        let (key, hold) = (format!("picture{round}"), ResponseGate::new());
        ai.queue_held_response(&hold, picture(&bytes));
        let asking = tokio::spawn({
            let (client, path, body, key) = ((*crier).clone(), path.clone(), body.clone(), key.clone());
            async move { client.call("POST", &path, Some(body), &key).await }
        });
        hold.wait_for_request().await;
        hold.let_go();
        // The moment of the kill is the fault itself: it hits whatever step the request has reached.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        crier.kill(&api);
        asking.await.expect("no panic");
        crier.start_all().await;
        for sql in ALL_DEAD {
            crier.execute(sql).await;
        }
        until("no credits are held", || async { (crier.number(HELD).await == 0).then_some(()) }).await;
        let answered = crier.number("SELECT count(*) FROM media").await == round;
        killed_before_the_answer += usize::from(!answered);
        assert_eq!(crier.number(USED).await, 240 * (round - i64::from(!answered)), "{moment} ms");
        assert_stored_files_have_rows(&crier).await;
        ai.clear_responses();
        ai.queue_responses([picture(&bytes)]);
        let asked = ai.request_bodies().await.len();
        let (status, answer) = crier.call("POST", &path, Some(body.clone()), &key).await.expect("an answer");
        assert_eq!((status, &answer["data"]["credits_used"]), (201, &json!(240)), "{moment} ms: {answer}");
        assert_eq!(
            ai.request_bodies().await.len() - asked,
            usize::from(!answered),
            "an answered request is not repeated"
        );
        assert_eq!((crier.number(HELD).await, crier.number(USED).await), (0, 240 * round));
        assert_eq!(crier.number("SELECT count(*) FROM media").await, round);
        every_file_has_its_row(&crier).await;
        ai.clear_responses();
    }
    assert!(killed_before_the_answer > 0, "the first kill comes before any answer can");
    crier.assert_all_run();
}

async fn assert_stored_files_have_rows(crier: &Installation) {
    if crier.number("SELECT count(*) FROM files WHERE state = 'stored'").await > 0 {
        every_file_has_its_row(crier).await;
    }
}

fn keys(url: &str) -> [(&'static str, &str); 4] {
    [
        ("CRIER_AI_BASE_URL", url),
        ("CRIER_AI_API_KEY", "k"),
        ("CRIER_AI_TEXT_MODEL", "writer"),
        ("CRIER_AI_IMAGE_MODEL", "painter"),
    ]
}

async fn embedded(ai: &AiServer) -> Installation {
    Installation::embedded_with(&keys(&ai.url())).await
}

async fn split(ai: &AiServer) -> Installation {
    Installation::split_with(&keys(&ai.url())).await
}

#[tokio::test]
async fn ai_credits_survive_a_kill_embedded() {
    let ai = AiServer::start().await;
    let crier = embedded(&ai).await;
    assert_credits_survive_a_kill(ai, crier).await;
}

#[tokio::test]
async fn ai_credits_survive_a_kill_split() {
    let ai = AiServer::start().await;
    let crier = split(&ai).await;
    assert_credits_survive_a_kill(ai, crier).await;
}

#[tokio::test]
async fn ai_pictures_survive_kills_embedded() {
    let ai = AiServer::start().await;
    let crier = embedded(&ai).await;
    assert_pictures_survive_kills(ai, crier).await;
}

#[tokio::test]
async fn ai_pictures_survive_kills_split() {
    let ai = AiServer::start().await;
    let crier = split(&ai).await;
    assert_pictures_survive_kills(ai, crier).await;
}
