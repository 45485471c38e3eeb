//! A webhook endpoint that accepts and records every delivery.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::client::until;

pub struct Receiver(MockServer);

impl Receiver {
    pub async fn start() -> Self {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
        Self(server)
    }

    pub fn url(&self) -> String {
        format!("{}/hook", self.0.uri())
    }

    /// Returns the number of requests received.
    pub async fn count(&self) -> usize {
        self.0.received_requests().await.expect("requests are kept").len()
    }

    /// Returns the ids of the received deliveries, by post and by event (name and id).
    pub async fn received(&self) -> BTreeMap<i64, BTreeMap<(String, String), BTreeSet<String>>> {
        let mut received: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for request in self.0.received_requests().await.expect("requests are kept") {
            let header = |name| request.headers[name].to_str().expect("text").to_owned();
            let body: Value = serde_json::from_slice(&request.body).expect("JSON");
            let post = body["data"]["post_id"].as_i64().expect("a post");
            let event = (header("X-Webhook-Event"), header("X-Webhook-Event-Id"));
            received.entry(post).or_default().entry(event).or_default().insert(header("X-Webhook-Delivery-Id"));
        }
        received
    }

    /// Waits until an event was received for every post. Asserts that each post has one event, which has this name and
    /// one delivery id, however often it was received.
    pub async fn assert_received_once(&self, event: &str, posts: &[i64]) {
        let received = until(&format!("{event} of every post"), || async {
            let received = self.received().await;
            posts.iter().all(|post| received.contains_key(post)).then_some(received)
        })
        .await;
        for post in posts {
            let events = &received[post];
            assert_eq!(events.len(), 1, "post {post}: {events:?}");
            for ((name, _), deliveries) in events {
                assert_eq!((name.as_str(), deliveries.len()), (event, 1), "post {post}: {events:?}");
            }
        }
    }
}
