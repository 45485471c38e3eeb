//! Threads with first comments, while one process after another is killed with `kill -9`: every part and every comment
//! exists exactly once, and the parts are in order.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{id, texts, until};
use crate::support::process::{Installation, on_both_forms};

on_both_forms!(repeated_kills_publish_every_part_once_and_in_order);

const PARTS: usize = 5;
const THREADS_PER_ROUND: usize = 4;

/// Returns the texts of a thread, in the order of the page: those of the parts, then that of the comment.
fn all_texts(name: &str) -> Vec<String> {
    let part = |part: usize| format!("{name}, part {part}.");
    (1..=PARTS).map(part).chain([format!("{name}, comment.")]).collect()
}

/// Creates a thread that is published immediately.
async fn post_thread(crier: &Installation, brand: i64, account: i64, name: &str) -> i64 {
    let texts = all_texts(name);
    let following: Vec<Value> = texts[1..PARTS].iter().map(|text| json!({ "content": text })).collect();
    let body = json!({
        "content": texts[0], "thread": following, "first_comment": { "content": texts[PARTS], "delay_seconds": 0 },
        "schedule_type": "now", "accounts": [account],
    });
    id(&crier.write(&format!("/brands/{brand}/posts"), body).await)
}

async fn repeated_kills_publish_every_part_once_and_in_order(mut crier: Installation) {
    let rounds = if crier.is_split() { 6 } else { 3 };
    let handle = "threads9";
    let (brand, account) = crier.sandbox(handle).await;
    let names = texts("thread", rounds * THREADS_PER_ROUND);
    let mut posts = Vec::new();
    for (round, batch) in names.chunks(THREADS_PER_ROUND).enumerate() {
        for name in batch {
            posts.push(post_thread(&crier, brand, account, name).await);
        }
        let processes = crier.names();
        // This waits in real time: the kills hit different parts, and comments.
        tokio::time::sleep(Duration::from_millis(11) * (u32::try_from(round).expect("few") + 1)).await;
        crier.kill(processes[round % processes.len()]);
        crier.start_all().await;
    }
    crier.all_published(brand, &posts).await;
    until("the comments", || async {
        (crier.count_rows("first_comments WHERE status <> 'published'").await == 0).then_some(())
    })
    .await;
    let page = crier.page(handle).await;
    for name in &names {
        let texts = all_texts(name);
        for text in &texts {
            assert_eq!(page.matches(text).count(), 1, "{text} on the page");
        }
        assert!(texts.is_sorted_by_key(|text| page.find(text)), "{name} is in order on the page");
    }
    crier.assert_all_run();
}
