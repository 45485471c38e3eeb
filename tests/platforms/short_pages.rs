//! The search for a post after a lost response, in a list whose pages are shorter than requested.

use crier_domain::platform::{ConversationType, Platform};
use crier_platforms::inbox::{OutgoingReply, ReplyThread};
use crier_platforms::{CallError, ConnectorAccount, Marker, ReconcileResult};
use serde_json::{Map, Value, json};

use super::support::{ScriptStep, ScriptedServer, account, connector, now, post};

fn ann(external_id: &str) -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "client_id": "id", "client_secret": "secret", "location": "accounts/1/locations/11",
    });
    ConnectorAccount { username: Some("ann".to_owned()), ..account(external_id, secrets) }
}

/// Returns the result of a search in this page of the account's newest posts.
async fn search(platform: Platform, external_id: &str, page: Value) -> ReconcileResult {
    try_search(platform, external_id, page).await.unwrap()
}

async fn try_search(platform: Platform, external_id: &str, page: Value) -> Result<ReconcileResult, CallError> {
    let server = ScriptedServer::start(vec![ScriptStep::Respond(200, page)]).await;
    let connector = connector(platform, &server.base);
    let mut outgoing = post(connector.as_ref(), "Hi");
    for (name, value) in [("board", "7"), ("subreddit", "bread"), ("title", "Hi")] {
        outgoing.options.insert(name.to_owned(), json!(value));
    }
    connector.reconcile(&ann(external_id), &outgoing).await
}

/// Returns the result of a search for a reply in this page.
async fn search_for_reply(platform: Platform, kind: ConversationType, page: Value) -> ReconcileResult {
    let server = ScriptedServer::start(vec![ScriptStep::Respond(200, page)]).await;
    let connector = connector(platform, &server.base);
    let thread = ReplyThread {
        kind,
        thread_id: "7".to_owned(),
        participant_external_id: None,
        subject_external_id: None,
        last_inbound_at: None,
        limits: None,
        context: Map::new(),
    };
    let (text, marker, called_at) = ("Yes.".to_owned(), Marker::new(), Some(now()));
    let reply = OutgoingReply { message_id: 1, text, thread, marker, attempt: 2, called_at };
    connector.inbox().unwrap().reconcile(&ann("42"), &reply).await.unwrap()
}

/// A post that is reported as missing is published again.
#[tokio::test]
async fn a_page_with_a_next_one_does_not_show_that_a_post_is_missing() {
    for (platform, external_id, last, with_next) in [
        (
            Platform::Twitter,
            "44",
            json!({ "meta": { "result_count": 0 } }),
            json!({ "meta": { "result_count": 0, "next_token": "n" } }),
        ),
        (
            Platform::Facebook,
            "42",
            json!({ "data": [], "paging": { "cursors": { "after": "a" } } }),
            json!({ "data": [], "paging": { "cursors": { "after": "a" }, "next": "https://graph.facebook.com/x" } }),
        ),
        (Platform::GoogleBusiness, "locations/11", json!({}), json!({ "nextPageToken": "n" })),
        (Platform::Pinterest, "643", json!({ "items": [], "bookmark": null }), json!({ "items": [], "bookmark": "b" })),
        (
            Platform::Reddit,
            "4xyz",
            json!({ "kind": "Listing", "data": { "children": [], "after": null } }),
            json!({ "kind": "Listing", "data": { "children": [], "after": "t3_a" } }),
        ),
        (
            Platform::Linkedin,
            "urn:li:organization:7",
            json!({ "elements": [], "paging": { "start": 0, "links": [] } }),
            json!({ "elements": [], "paging": { "start": 0, "links": [{ "rel": "next", "href": "/x" }] } }),
        ),
        (
            Platform::Tumblr,
            "t:ann",
            json!({ "response": { "posts": [] } }),
            json!({ "response": { "posts": [], "_links": { "next": { "href": "/x" } } } }),
        ),
    ] {
        assert_eq!(search(platform, external_id, last).await, ReconcileResult::Absent, "{platform}");
        assert_eq!(search(platform, external_id, with_next).await, ReconcileResult::Unsupported, "{platform}");
    }
}

#[tokio::test]
async fn a_response_without_a_list_does_not_show_that_a_post_is_missing() {
    let kind = "https://api.twitter.com/2/problems/not-authorized-for-resource";
    let denied = json!({ "errors": [{ "title": "Authorization Error", "type": kind }] });
    for (platform, external_id, response) in [
        (Platform::Twitter, "44", denied),
        (Platform::Facebook, "42", json!({})),
        (Platform::Pinterest, "643", json!({ "bookmark": null })),
        (Platform::Reddit, "4xyz", json!({ "kind": "Listing", "data": { "after": null } })),
        (Platform::Linkedin, "urn:li:organization:7", json!({ "paging": { "start": 0, "links": [] } })),
        (Platform::Tumblr, "t:ann", json!({ "response": {} })),
    ] {
        let result = try_search(platform, external_id, response).await;
        assert!(matches!(result, Err(CallError::Transient(_))), "{platform}: {result:?}");
    }
}

#[tokio::test]
async fn a_page_with_a_next_one_does_not_show_that_a_reply_is_missing() {
    let next = json!({ "cursors": { "after": "a" }, "next": "https://graph.facebook.com/x" });
    let message = |time: &str| json!({ "id": "m", "message": "Hello?", "from": { "id": "7" }, "created_time": time });
    let chat = |time: &str, paging: &Value| {
        let messages = json!({ "data": [message(time)], "paging": paging });
        json!({ "data": [{ "id": "t_7", "messages": messages }] })
    };
    let (before, after) = ("2026-03-01T11:00:00+0000", "2026-03-01T12:00:05+0000");
    let facebook = async |page| search_for_reply(Platform::Facebook, ConversationType::Dm, page).await;
    assert_eq!(facebook(chat(after, &Value::Null)).await, ReconcileResult::Absent);
    assert_eq!(facebook(chat(before, &next)).await, ReconcileResult::Absent, "it reaches back to the call");
    assert_eq!(facebook(chat(after, &next)).await, ReconcileResult::Unsupported);
    let threads = async |page| search_for_reply(Platform::Threads, ConversationType::Comment, page).await;
    assert_eq!(threads(json!({ "data": [] })).await, ReconcileResult::Absent);
    assert_eq!(threads(json!({ "data": [], "paging": next })).await, ReconcileResult::Unsupported);
}
