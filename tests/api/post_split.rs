//! Texts that are split into the parts of a thread.

use crier_domain::access::KeyMode;
use crier_domain::platform::Platform;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(a_text_is_split_for_all_accounts);
on_one_app!(texts_that_cannot_be_split_are_rejected, the_first_part_leaves_space_for_a_signature);

async fn split(t: &Tenant<'_>, content: &str, accounts: &[i64]) -> Vec<String> {
    let body = json!({ "content": content, "accounts": accounts });
    let parts = t.post(&t.path("/posts/split"), body).await.data(200)["parts"].clone();
    serde_json::from_value(parts).unwrap()
}

async fn a_text_is_split_for_all_accounts(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (sandbox, bluesky) = (t.account("demo").await, t.account_on(Platform::Bluesky).await);
    let sentence = "The quick brown fox jumps over the lazy dog near the river. ";
    let text = format!("Intro.\n\n{}", sentence.repeat(10));
    assert_eq!(split(&t, &text, &[sandbox]).await, [text.trim()]);
    let parts = split(&t, &text, &[sandbox, bluesky]).await;
    // Bluesky accepts 300 characters: five sentences of 59, with a space between them, have 299.
    let five = sentence.repeat(5);
    assert_eq!(parts, ["Intro.", five.trim(), five.trim()]);
    let thread: Vec<Value> = parts[1..].iter().map(|part| json!({ "content": part })).collect();
    let accounts = json!([sandbox, bluesky]);
    let body = json!({ "content": parts[0], "thread": thread, "accounts": accounts, "schedule_type": "now" });
    t.post(&t.path("/posts"), body).await.expect(201);
    assert_eq!(split(&t, " short ", &[bluesky]).await, ["short"]);

    let key = app.key_of(t.user, KeyMode::Test, "posts:read").await;
    let body = json!({ "content": "x", "accounts": [sandbox] });
    app.request("POST", &t.path("/posts/split")).key(&key).json(&body).send().await.expect(200);
    assert_eq!(app.count_rows("posts").await, 1);
}

async fn texts_that_cannot_be_split_are_rejected(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (account, foreign) = (t.account_on(Platform::Bluesky).await, other.account_on(Platform::Bluesky).await);
    for (body, wrong) in [
        (json!({}), vec!["accounts", "content"]),
        (json!({ "content": "", "accounts": [account] }), vec!["content"]),
        (json!({ "content": " \n", "accounts": [] }), vec!["accounts", "content"]),
        (json!({ "content": "x", "accounts": [account, foreign, 999_999] }), vec!["accounts.1", "accounts.2"]),
        (json!({ "content": "x".repeat(65_536), "accounts": [account] }), vec!["content"]),
    ] {
        assert_eq!(t.post(&t.path("/posts/split"), body.clone()).await.invalid_fields(), wrong, "{body}");
    }
    let rejected = async |content: String| {
        let body = json!({ "content": content, "accounts": [account] });
        let error = t.post(&t.path("/posts/split"), body).await.expect_error(422, "validation_failed");
        error["fields"]["content"][0].as_str().unwrap().to_owned()
    };
    let long = rejected("x".repeat(301)).await;
    assert!(long.ends_with("is too long for a post on Bluesky. Shorten it."), "{long}");
    let words = format!("{} ", "x".repeat(200)).repeat(26);
    assert_eq!(rejected(words).await, "The text needs more than 25 parts. Shorten it.");
}

async fn the_first_part_leaves_space_for_a_signature(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Bluesky).await;
    let snippet = json!({ "name": "Ann", "kind": "signature", "content": "— Ann" });
    let snippet = t.post(&t.path("/snippets"), snippet).await.data(201)["id"].clone();
    let path = t.path(&format!("/social-accounts/{account}"));
    t.put(&path, json!({ "signature_id": snippet })).await.expect(200);
    // With a blank line, the signature has seven characters.
    let word = "x".repeat(98);
    let parts = split(&t, &[word.as_str(); 6].join(" "), &[account]).await;
    let lengths: Vec<usize> = parts.iter().map(String::len).collect();
    assert_eq!(lengths, [197, 296, 98]);
}
