//! The search for a post after a lost response, in a list whose pages are shorter than requested.

use crier_domain::platform::Platform;
use crier_platforms::{ConnectorAccount, ReconcileResult};
use serde_json::{Value, json};

use super::support::{ScriptStep, ScriptedServer, account, connector, post};

/// Returns the result of a search in this page of the account's newest posts.
async fn search(platform: Platform, external_id: &str, page: Value) -> ReconcileResult {
    let server = ScriptedServer::start(vec![ScriptStep::Respond(200, page)]).await;
    let connector = connector(platform, &server.base);
    let secrets = json!({
        "access_token": "access-0", "client_id": "id", "client_secret": "secret", "location": "accounts/1/locations/11",
    });
    let account = ConnectorAccount { username: Some("ann".to_owned()), ..account(external_id, secrets) };
    let mut outgoing = post(connector.as_ref(), "Hi");
    for (name, value) in [("board", "7"), ("subreddit", "bread"), ("title", "Hi")] {
        outgoing.options.insert(name.to_owned(), json!(value));
    }
    connector.reconcile(&account, &outgoing).await.unwrap()
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
            json!({ "elements": [], "paging": { "start": 0, "count": 20, "links": [] } }),
            json!({ "elements": [], "paging": { "start": 0, "count": 20, "links": [{ "rel": "next", "href": "/x" }] } }),
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
