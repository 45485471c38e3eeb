//! Tools that write: drafts, confirmation, and repeated calls.

use chrono::TimeDelta;
use crier_domain::access::KeyMode;
use serde_json::{Value, json};

use super::client::{call, call_with, confirmed, done, failed, names, post, post_new, result};
use crate::api::conversations::inbox;
use crate::support::app::{Tenant, on_both_apps};
use crate::support::images;

on_both_apps!("pro" =>
    a_draft_is_saved_and_changed,
    a_post_is_published_only_after_confirmation,
    a_client_that_can_ask_asks_the_user,
    a_post_is_scheduled_at_a_time_or_in_the_queue,
    a_repeated_call_has_its_effect_once,
    a_reply_is_confirmed,
    a_confirmation_of_a_reply_counts_once,
    a_conversation_that_cannot_be_read_has_no_replies,
    a_confirmation_counts_once,
    a_confirmation_is_for_one_key,
    invalid_arguments_are_reported_before_the_question,
    the_question_has_every_text,
    the_question_has_texts_beside_the_post,
    the_question_names_the_accounts_of_which_a_post_is_deleted,
    a_retry_that_could_publish_twice_says_so,
    a_post_that_cannot_be_read_cannot_be_published,
    a_failed_post_can_be_changed,
    a_post_that_is_being_published_cannot_be_changed,
    a_post_without_accounts_cannot_be_published,
    a_contributor_cannot_publish,
);

async fn publish_jobs(t: &Tenant<'_>) -> i64 {
    jobs_of(t, "publish_target").await
}

async fn jobs_of(t: &Tenant<'_>, kind: &str) -> i64 {
    t.app.count_rows(format!("jobs WHERE kind = '{kind}'")).await
}

async fn saved(t: &Tenant<'_>, account: i64) -> Value {
    let arguments = json!({ "brand_id": t.brand, "content": "Fresh bread", "accounts": [account] });
    done(call(t, "save_draft", arguments).await)["data"].take()
}

async fn a_draft_is_saved_and_changed(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let post = saved(&t, account).await;
    assert_eq!((&post["status"], &post["content"]), (&json!("draft"), &json!("Fresh bread")));
    // A change of a scheduled post makes it a draft again, so that nothing is published that nobody confirmed.
    let id = post["id"].as_i64().unwrap();
    let schedule = json!({ "schedule_type": "scheduled", "scheduled_at": "2030-01-01T10:00:00Z" });
    assert_eq!(t.put(&t.path(&format!("/posts/{id}")), schedule).await.data(200)["status"], "scheduled");
    let arguments = json!({ "brand_id": t.brand, "post_id": id, "content": "Other bread" });
    let changed = done(call(&t, "save_draft", arguments).await);
    assert_eq!((&changed["data"]["status"], &changed["data"]["content"]), (&json!("draft"), &json!("Other bread")));
    assert_eq!(changed["data"]["accounts"], json!([account]), "omitted fields keep their values");
    let arguments = json!({ "brand_id": t.brand, "content": "x", "schedule_type": "now" });
    let error = failed(call(&t, "save_draft", arguments).await, "validation_failed");
    assert!(error["fields"]["schedule_type"].is_array(), "{error}");
}

async fn a_post_is_published_only_after_confirmation(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].clone();
    let arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(call(&t, "publish_post", arguments.clone()).await, "confirmation_required");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("Fresh bread") && message.contains("sandbox") && message.contains("confirm"), "{message}");
    for wrong in ["", "true", "0000000000000000"] {
        let mut arguments = arguments.clone();
        arguments["confirm"] = wrong.into();
        failed(call(&t, "publish_post", arguments).await, "confirmation_required");
    }
    assert_eq!(publish_jobs(&t).await, 0);
    let published = done(confirmed(&t, "publish_post", arguments).await);
    assert!(published["data"]["status"] == "publishing" || published["data"]["status"] == "scheduled", "{published}");
    assert_eq!(publish_jobs(&t).await, 1);
}

async fn a_client_that_can_ask_asks_the_user(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].clone();
    // The model cannot confirm in the user's place.
    let mut arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(call(&t, "publish_post", arguments.clone()).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    let send = async |state: &Value, responses: Option<Value>| {
        let mut params = json!({ "name": "publish_post", "arguments": arguments });
        if let Some(responses) = responses {
            params["inputResponses"] = responses;
            params["requestState"] = state.clone();
        }
        let capabilities = json!({ "elicitation": { "form": {} } });
        result(&post_new(t.app, &t.key, "tools/call", params, capabilities).send().await)
    };
    let asked = send(&Value::Null, None).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (name, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    assert!(request["params"]["message"].as_str().unwrap().contains("Fresh bread"), "{asked}");
    let answer = |answer: Value| Some(json!({ (name): answer }));
    for refusal in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": { "confirm": false } }),
        json!({ "action": "accept" }),
        json!("accept"),
    ] {
        failed(send(&asked["requestState"], answer(refusal)).await, "not_confirmed");
    }
    let agreed = answer(json!({ "action": "accept", "content": { "confirm": true } }));
    // An answer counts only for what the user saw.
    assert_eq!(send(&json!("0000000000000000"), agreed.clone()).await["resultType"], "input_required");
    let path = t.path(&format!("/posts/{id}"));
    t.put(&path, json!({ "content": "Something else" })).await.expect(200);
    let again = send(&asked["requestState"], agreed.clone()).await;
    assert_eq!(again["resultType"], "input_required", "{again}");
    assert!(again.to_string().contains("Something else"), "{again}");
    assert_eq!(publish_jobs(&t).await, 0);
    done(send(&again["requestState"], agreed).await);
    assert_eq!(publish_jobs(&t).await, 1);
}

async fn a_post_is_scheduled_at_a_time_or_in_the_queue(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].clone();
    let mut arguments = json!({ "brand_id": t.brand, "post_id": id, "scheduled_at": "2030-01-01T10:00:00Z" });
    let error = failed(call(&t, "schedule_post", arguments.clone()).await, "confirmation_required");
    assert!(error["message"].as_str().unwrap().contains("2030-01-01"), "{error}");
    // The confirmation of one time is none of another.
    let mut other = arguments.clone();
    (other["scheduled_at"], other["confirm"]) = ("2031-01-01T10:00:00Z".into(), error["confirm"].clone());
    failed(call(&t, "schedule_post", other).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    let scheduled = done(call(&t, "schedule_post", arguments).await)["data"].take();
    assert_eq!(
        (&scheduled["status"], &scheduled["scheduled_at"]),
        (&json!("scheduled"), &json!("2030-01-01T10:00:00Z"))
    );
    // Without a time, it takes a slot of the queue, of which the brand has none.
    let arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(confirmed(&t, "schedule_post", arguments).await, "validation_failed");
    assert!(error["fields"]["schedule_type"].is_array(), "{error}");
}

async fn a_repeated_call_has_its_effect_once(t: Tenant<'_>) {
    let arguments = json!({ "brand_id": t.brand, "content": "Once", "idempotency_key": "mine" });
    let first = done(call(&t, "save_draft", arguments.clone()).await);
    let second = done(call(&t, "save_draft", arguments.clone()).await);
    assert_eq!(first, second);
    assert_eq!(first["idempotency_key"], "mine");
    let mut other = arguments;
    other["content"] = "Twice".into();
    failed(call(&t, "save_draft", other).await, "idempotency_key_reused");
    // Without a key, the result has a new one, with which the call can be repeated.
    let arguments = json!({ "brand_id": t.brand, "content": "Again" });
    let made = done(call(&t, "save_draft", arguments.clone()).await);
    let mut again = arguments;
    again["idempotency_key"] = made["idempotency_key"].clone();
    assert_eq!(done(call(&t, "save_draft", again).await)["data"]["id"], made["data"]["id"]);
    for key in ["", "a b", &"x".repeat(256)] {
        let arguments = json!({ "brand_id": t.brand, "content": "x", "idempotency_key": key });
        failed(call(&t, "save_draft", arguments).await, "validation_failed");
    }
}

async fn a_reply_is_confirmed(t: Tenant<'_>) {
    inbox(t.app, &t, &["Great bread"]).await;
    let conversation = t.app.newest_id(format!("conversations WHERE brand_id = {}", t.brand)).await;
    let arguments = json!({ "brand_id": t.brand, "conversation_id": conversation, "body": "Thank you!" });
    let error = failed(call(&t, "reply_to_conversation", arguments.clone()).await, "confirmation_required");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("?\n\n> Thank you!\n\nThe newest message:\n> Great bread\n\n"), "{message}");
    assert_eq!(jobs_of(&t, "send_reply").await, 0);
    let mut agreed = arguments;
    (agreed["confirm"], agreed["idempotency_key"]) = (error["confirm"].clone(), "k".into());
    let sent = done(call(&t, "reply_to_conversation", agreed.clone()).await);
    assert_eq!(done(call(&t, "reply_to_conversation", agreed.clone()).await), sent);
    // The user agreed to one reply.
    agreed["idempotency_key"] = "other".into();
    let error = failed(call(&t, "reply_to_conversation", agreed).await, "confirmation_required");
    assert!(
        error["message"].as_str().unwrap().contains("The newest message, from the account:\n> Thank you!"),
        "{error}"
    );
    assert_eq!(jobs_of(&t, "send_reply").await, 1);
}

/// A model that sends the same confirmation several times concurrently.
async fn a_confirmation_of_a_reply_counts_once(t: Tenant<'_>) {
    inbox(t.app, &t, &["Great bread"]).await;
    let conversation = t.app.newest_id(format!("conversations WHERE brand_id = {}", t.brand)).await;
    let mut arguments = json!({ "brand_id": t.brand, "conversation_id": conversation, "body": "Thank you!" });
    let error = failed(call(&t, "reply_to_conversation", arguments.clone()).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    t.app.clock.advance(TimeDelta::seconds(1));
    let calls = (0..4).map(|_| call(&t, "reply_to_conversation", arguments.clone()));
    let results = futures::future::join_all(calls).await;
    assert_eq!(results.iter().filter(|result| result["isError"] == false).count(), 1, "{results:?}");
    assert_eq!(jobs_of(&t, "send_reply").await, 1);
}

/// The question shows the newest message.
async fn a_conversation_that_cannot_be_read_has_no_replies(t: Tenant<'_>) {
    let writing = t.app.key_of(t.user, KeyMode::Live, "brands:read,inbox:write").await;
    assert_eq!(names(t.app, &writing).await, ["list_brands"]);
    let both = t.app.key_of(t.user, KeyMode::Live, "inbox:read,inbox:write").await;
    assert!(names(t.app, &both).await.contains(&"reply_to_conversation".to_owned()));
}

/// The user agreed to publish the post once, as it was.
async fn a_confirmation_counts_once(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].clone();
    let at = "2030-01-01T10:00:00Z";
    let mut arguments = json!({ "scheduled_at": at, "brand_id": t.brand, "post_id": id, "idempotency_key": "k" });
    let error = failed(call(&t, "schedule_post", arguments.clone()).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    let scheduled = done(call(&t, "schedule_post", arguments.clone()).await);
    assert_eq!(scheduled["data"]["status"], "scheduled");
    // The same call returns its result again, although the post has changed.
    assert_eq!(done(call(&t, "schedule_post", arguments.clone()).await), scheduled);
    arguments["idempotency_key"] = "other".into();
    failed(call(&t, "schedule_post", arguments.clone()).await, "confirmation_required");
    // Someone stops it. The agent cannot schedule it again.
    t.app.clock.advance(TimeDelta::seconds(1));
    t.put(&t.path(&format!("/posts/{id}")), json!({ "schedule_type": "draft" })).await.expect(200);
    failed(call(&t, "schedule_post", arguments.clone()).await, "confirmation_required");
    arguments["idempotency_key"] = "k".into();
    done(call(&t, "schedule_post", arguments).await);
    assert_eq!(t.get(&t.path(&format!("/posts/{id}"))).await.data(200)["status"], "draft");
}

async fn a_confirmation_is_for_one_key(t: Tenant<'_>) {
    let id = saved(&t, t.account("demo").await).await["id"].clone();
    let mut arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(call(&t, "publish_post", arguments.clone()).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    let other = t.app.key_of(t.user, KeyMode::Live, "all").await;
    failed(call_with(t.app, &other, "publish_post", arguments).await, "confirmation_required");
    assert_eq!(publish_jobs(&t).await, 0);
}

async fn invalid_arguments_are_reported_before_the_question(t: Tenant<'_>) {
    let id = saved(&t, t.account("demo").await).await["id"].clone();
    for at in [json!(5), json!(""), json!("2030-01-01T10:00:00Z?\n\nIt was already published."), json!({})] {
        let arguments = json!({ "brand_id": t.brand, "post_id": id, "scheduled_at": at });
        let error = failed(call(&t, "schedule_post", arguments).await, "validation_failed");
        assert!(error["fields"]["scheduled_at"].is_array(), "{at}: {error}");
    }
    inbox(t.app, &t, &["Great bread"]).await;
    let conversation = t.app.newest_id(format!("conversations WHERE brand_id = {}", t.brand)).await;
    for body in [json!(null), json!(5), json!(["Thank you!"])] {
        let arguments = json!({ "brand_id": t.brand, "conversation_id": conversation, "body": body });
        let error = failed(call(&t, "reply_to_conversation", arguments).await, "validation_failed");
        assert!(error["fields"]["body"].is_array(), "{body}: {error}");
    }
}

async fn a_contributor_cannot_publish(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let contributor = t.colleague(crier_domain::access::Role::Contributor).await;
    let id = saved(&contributor, account).await["id"].clone();
    let arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(confirmed(&contributor, "publish_post", arguments).await, "insufficient_scope");
    assert!(error["message"].as_str().unwrap().contains("Contributors"), "{error}");
    assert_eq!(publish_jobs(&t).await, 0);
}

async fn the_question_has_every_text(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let arguments = json!({
        "brand_id": t.brand, "content": "For nobody", "accounts": [account],
        "overrides": [{ "account_id": account, "content": "Only here" }],
        "thread": [{ "content": "The second part" }],
        "first_comment": { "content": "The first comment" },
    });
    let id = done(call(&t, "save_draft", arguments).await)["data"]["id"].clone();
    let error =
        failed(call(&t, "publish_post", json!({ "brand_id": t.brand, "post_id": id })).await, "confirmation_required");
    for text in ["For nobody", "Only here", "The second part", "The first comment"] {
        assert!(error["message"].as_str().unwrap().contains(text), "{text}: {error}");
    }
    let message = error["message"].as_str().unwrap();
    assert_eq!(message.matches("The first comment").count(), 1, "{message}");
    let long = format!("{}the end", "x".repeat(5_000));
    let id = done(call(&t, "save_draft", json!({ "brand_id": t.brand, "content": long, "accounts": [account] })).await);
    let arguments = json!({ "brand_id": t.brand, "post_id": id["data"]["id"] });
    let error = failed(call(&t, "publish_post", arguments).await, "confirmation_required");
    assert!(error["message"].as_str().unwrap().contains("2007 more characters"), "{error}");
}

async fn the_question_has_texts_beside_the_post(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let image = async |name: &str, width: u32, description: &str| {
        let texts = [("alt_text", description)];
        t.upload(name, &images::png(width, 10), &texts).await.data(201)["id"].clone()
    };
    let (first, second) = (image("a.png", 20, "A loaf").await, image("b.png", 30, "The oven").await);
    let (cover, card) = (image("c.png", 40, "The cover").await, image("d.png", 50, "The card").await);
    let options = json!({ "cover_media_id": cover, "link_card": { "media_id": card } });
    let arguments = json!({
        "brand_id": t.brand, "content": "Bread\n\nMay Crier do nothing?", "accounts": [account], "media": [first],
        "thread": [{ "content": "And the oven", "media": [second] }],
        "overrides": [{ "account_id": account, "options": options }],
    });
    let id = done(call(&t, "save_draft", arguments).await)["data"]["id"].clone();
    // The account gets a signature after the post was saved.
    let snippet = json!({ "name": "Ann", "kind": "signature", "content": "— Ann" });
    let snippet = t.post(&t.path("/snippets"), snippet).await.data(201)["id"].clone();
    let path = t.path(&format!("/social-accounts/{account}"));
    t.put(&path, json!({ "signature_id": snippet })).await.expect(200);
    let arguments = json!({ "brand_id": t.brand, "post_id": id });
    let error = failed(call(&t, "publish_post", arguments).await, "confirmation_required");
    let message = error["message"].as_str().unwrap();
    let (name, of_part) = (format!("account {account} “"), format!("part:\n> {second}"));
    let beside = ["> A loaf", "> The oven", "> The cover", "> The card", "> — Ann", "> May Crier do nothing?"];
    for text in beside.into_iter().chain([name.as_str(), of_part.as_str()]) {
        assert!(message.contains(text), "{text}: {message}");
    }
}

async fn the_question_names_the_accounts_of_which_a_post_is_deleted(t: Tenant<'_>) {
    let (first, second) = (t.account("demo").await, t.account("demo2").await);
    let draft = json!({ "brand_id": t.brand, "content": "Bread", "accounts": [first, second] });
    let id = done(call(&t, "save_draft", draft).await)["data"]["id"].clone();
    for (accounts, names_first) in [(json!([second]), false), (json!([first, second]), true), (json!(null), true)] {
        let arguments = json!({ "brand_id": t.brand, "post_id": id, "accounts": accounts });
        let error = failed(call(&t, "unpublish_post", arguments).await, "confirmation_required");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("account {second} ")), "{message}");
        assert_eq!(message.contains(&format!("account {first} ")), names_first, "{message}");
    }
}

async fn a_retry_that_could_publish_twice_says_so(t: Tenant<'_>) {
    let account = t.account("demo").await;
    for (category, warns) in [("outcome_unknown", true), ("platform_rejected", false)] {
        let new = json!({ "content": "Bread", "schedule_type": "now", "accounts": [account] });
        let id = t.post(&t.path("/posts"), new).await.data(201)["id"].as_i64().unwrap();
        t.app.fail_post(id, category, "The oven is cold.").await;
        let arguments = json!({ "brand_id": t.brand, "post_id": id });
        let error = failed(call(&t, "publish_post", arguments).await, "confirmation_required");
        let message = error["message"].as_str().unwrap();
        assert_eq!(message.contains(&format!("may already be on account {account}")), warns, "{message}");
    }
}

async fn a_post_that_cannot_be_read_cannot_be_published(t: Tenant<'_>) {
    let id = saved(&t, t.account("demo").await).await["id"].clone();
    let writing = t.app.key_of(t.user, KeyMode::Live, "brands:read,posts:write").await;
    assert_eq!(names(t.app, &writing).await, ["list_brands", "save_draft"]);
    let params = json!({ "name": "publish_post", "arguments": { "brand_id": t.brand, "post_id": id } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let reply = post(t.app, &writing, &message).send().await.json();
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
}

async fn a_failed_post_can_be_changed(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].as_i64().unwrap();
    t.app.end_post(id, "failed", &["failed"]).await;
    let arguments = json!({ "brand_id": t.brand, "post_id": id, "content": "Better bread", "idempotency_key": "k" });
    let changed = done(call(&t, "save_draft", arguments.clone()).await);
    assert_eq!((&changed["data"]["content"], &changed["data"]["status"]), (&json!("Better bread"), &json!("failed")));
    assert_eq!(done(call(&t, "save_draft", arguments).await), changed, "repeated");
    assert_eq!(publish_jobs(&t).await, 0);
}

/// The user agreed to other texts, and a target that waits for its job or for a retry would publish these.
async fn a_post_that_is_being_published_cannot_be_changed(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = saved(&t, account).await["id"].clone();
    let post = json!({ "brand_id": t.brand, "post_id": id });
    done(confirmed(&t, "publish_post", post.clone()).await);
    let mut change = post.clone();
    change["content"] = "Everything is free today".into();
    failed(call(&t, "save_draft", change).await, "post_not_editable");
    let found = done(call(&t, "get_post", post).await);
    assert_eq!((&found["data"]["status"], &found["data"]["content"]), (&json!("publishing"), &json!("Fresh bread")));
    assert_eq!(publish_jobs(&t).await, 1);
}

async fn a_post_without_accounts_cannot_be_published(t: Tenant<'_>) {
    let id = done(call(&t, "save_draft", json!({ "brand_id": t.brand, "content": "x" })).await)["data"]["id"].clone();
    let error =
        failed(call(&t, "publish_post", json!({ "brand_id": t.brand, "post_id": id })).await, "validation_failed");
    assert!(error["fields"]["accounts"].is_array(), "{error}");
}
