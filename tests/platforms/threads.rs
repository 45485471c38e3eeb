//! Replies on Threads (parts of threads and first comments) and deletions, against an API that responds as Meta
//! documents. `instagram.rs` has the posts of both.

use std::sync::Arc;

use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult, StageResult};
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{account, comment_on, connector, image, part_of, post, unpublish_post};
use crate::support::facebook::error;
use crate::support::inbox::{FakeApi, json, parameter};
use crate::support::oauth::{bearer, form};

/// A post or a reply on the platform.
struct Posted {
    id: String,
    text: Value,
    parent: Value,
}

#[derive(Default)]
struct Server {
    /// The requests that created the containers 100, 101 and so on, and whether they were published.
    containers: Vec<(Value, bool)>,
    /// Whether the platform has deleted the containers.
    has_forgotten: bool,
    /// Oldest first.
    posts: Vec<Posted>,
    /// The missing permissions of the token.
    lacks: &'static [&'static str],
    /// The code and subcode for an object that does not exist.
    not_found: (i64, i64),
    replies_today: u64,
    /// Whether a missing permission looks like a missing post.
    hides_permissions: bool,
}

impl Server {
    fn not_found(&self) -> ResponseTemplate {
        let (code, subcode) = self.not_found;
        error(400, code, Some(subcode), "The requested resource does not exist")
    }

    fn exists(&self, id: &Value) -> bool {
        self.posts.iter().any(|one| id == one.id.as_str())
    }

    /// Returns the error if one of the permissions is missing.
    fn denied(&self, permission: &str) -> Option<ResponseTemplate> {
        let denied = || error(500, 10, None, "Application does not have permission for this action");
        self.lacks.contains(&permission).then(denied)
    }

    fn create(&mut self, body: Value) -> ResponseTemplate {
        let parent = &body["reply_to_id"];
        if !parent.is_null() {
            if let Some(denied) = self.denied("threads_manage_replies") {
                return denied;
            }
            if !self.exists(parent) {
                return self.not_found();
            }
        }
        self.containers.push((body, false));
        json(200, json!({ "id": (99 + self.containers.len()).to_string() }))
    }

    fn publish(&mut self, container: &str) -> ResponseTemplate {
        let (request, is_published) = &mut self.containers[container.parse::<usize>().unwrap() - 100];
        assert!(!*is_published, "it can be published only once");
        *is_published = true;
        let id = (800 + self.posts.len()).to_string();
        self.posts.push(Posted {
            id: id.clone(),
            text: request["text"].clone(),
            parent: request["reply_to_id"].clone(),
        });
        json(200, json!({ "id": id }))
    }

    fn list(&self, fields: &str, are_replies: bool) -> ResponseTemplate {
        let listed = self.posts.iter().rev().filter(|one| one.parent.is_null() != are_replies);
        let show = |one: &Posted| {
            let mut shown = json!({ "id": one.id, "text": one.text, "timestamp": "2026-03-01T12:00:05+0000",
                "permalink": permalink(&one.id) });
            if are_replies && fields.contains("replied_to") {
                shown["replied_to"] = json!({ "id": one.parent });
            }
            shown
        };
        json(200, json!({ "data": listed.map(show).collect::<Vec<_>>() }))
    }

    fn quota(&self, fields: &str) -> ResponseTemplate {
        if fields == "quota_usage,config" {
            return json(200, json!({ "data": [{ "quota_usage": 3, "config": { "quota_total": 250 } }] }));
        }
        assert_eq!(fields, "reply_quota_usage,reply_config");
        let quota = json!({ "reply_quota_usage": self.replies_today, "reply_config": { "quota_total": 1_000 } });
        self.denied("threads_manage_replies").unwrap_or_else(|| json(200, json!({ "data": [quota] })))
    }

    fn show(&self, id: &str) -> ResponseTemplate {
        if self.exists(&json!(id)) {
            return json(200, json!({ "id": id, "permalink": permalink(id) }));
        }
        let index = id.parse::<usize>().unwrap().checked_sub(100);
        match index.and_then(|index| self.containers.get(index)).filter(|_| !self.has_forgotten) {
            Some((_, true)) => json(200, json!({ "id": id, "status": "PUBLISHED" })),
            Some((_, false)) => json(200, json!({ "id": id, "status": "FINISHED" })),
            None => error(400, 100, Some(33), "Unsupported get request. Object does not exist"),
        }
    }

    fn delete(&mut self, id: &str) -> ResponseTemplate {
        if let Some(denied) = self.denied("threads_delete") {
            return if self.hides_permissions { self.not_found() } else { denied };
        }
        if !self.exists(&json!(id)) {
            return self.not_found();
        }
        self.posts.retain(|one| one.id != id);
        json(200, json!({ "success": true, "deleted_id": id }))
    }
}

fn permalink(id: &str) -> String {
    format!("https://www.threads.net/@bakery/post/{id}")
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if bearer(request) != "t" {
        return error(400, 190, Some(463), "Session has expired");
    }
    let fields = parameter(request, "fields").unwrap_or_default();
    let path = request.url.path().strip_prefix("/v1.0/").unwrap();
    match (request.method.as_str(), path) {
        ("GET", "5/threads_publishing_limit") => server.quota(&fields),
        ("POST", "5/threads") => server.create(request.body_json().unwrap()),
        ("POST", "5/threads_publish") => server.publish(&form(request)["creation_id"]),
        ("GET", "5/threads") => server.list(&fields, false),
        ("GET", "5/replies") => server.denied("threads_read_replies").unwrap_or_else(|| server.list(&fields, true)),
        ("GET", "5") => json(200, json!({ "id": "5" })),
        ("GET", id) => server.show(id),
        ("DELETE", id) => server.delete(id),
        other => panic!("no such call: {other:?}"),
    }
}

struct Started {
    api: FakeApi<Server>,
    connector: Arc<dyn Connector>,
    account: ConnectorAccount,
}

async fn start() -> Started {
    let server = Server { not_found: (24, 4_279_009), ..Server::default() };
    let api = FakeApi::start(server, respond).await;
    let connector = connector(Platform::Threads, &api.base());
    Started { api, connector, account: account("5", json!({ "access_token": "t" })) }
}

impl Started {
    fn part(&self, text: &str, root: &str, parent: &str) -> OutgoingPost {
        part_of(self.connector.as_ref(), text, root, parent)
    }

    /// Runs the steps as the worker does, until the post is ready.
    async fn stage(&self, post: &mut OutgoingPost) -> Result<StageResult, CallError> {
        loop {
            match self.connector.stage(&self.account, post).await? {
                StageResult::Created(marker) => post.marker = marker,
                other => return Ok(other),
            }
        }
    }

    async fn publish(&self, post: &mut OutgoingPost) -> Result<Published, CallError> {
        assert_eq!(self.stage(post).await?, StageResult::Ready);
        self.connector.publish(&self.account, post).await
    }

    /// Publishes a post without images. Returns its id.
    async fn publish_text(&self, text: &str) -> String {
        self.publish(&mut post(self.connector.as_ref(), text)).await.unwrap().external_id
    }

    async fn reconcile(&self, post: &OutgoingPost) -> ReconcileResult {
        self.connector.reconcile(&self.account, post).await.unwrap()
    }

    async fn unpublish(&self, id: &str) -> Result<(), CallError> {
        self.connector.unpublish(&self.account, &unpublish_post(id)).await
    }

    fn containers(&self) -> Vec<Value> {
        self.api.with(|server| server.containers.iter().map(|(request, _)| request.clone()).collect())
    }

    fn ids(&self) -> Vec<String> {
        self.api.with(|server| server.posts.iter().map(|one| one.id.clone()).collect())
    }
}

#[tokio::test]
async fn parts_of_a_thread_and_a_comment_are_containers_that_reply() {
    let s = start().await;
    let mut first = post(s.connector.as_ref(), "One");
    first.options.insert("topic_tag".to_owned(), json!("bread"));
    assert_eq!(s.publish(&mut first).await.unwrap().external_id, "800");
    let mut second = s.part("Two", "800", "800");
    second.images = vec![image("cat"), image("dog")];
    let published = s.publish(&mut second).await.unwrap();
    assert_eq!((published.external_id.as_str(), published.url), ("801", Some(permalink("801"))));
    let mut third = s.part("Three", "800", "801");
    third.images = vec![image("cat")];
    let mut comment = comment_on(s.connector.as_ref(), "More", "800");
    for outgoing in [&mut third, &mut comment] {
        for (name, value) in [("topic_tag", "bread"), ("reply_control", "everyone"), ("link", "https://a.example/")] {
            outgoing.options.insert(name.to_owned(), json!(value));
        }
        s.publish(outgoing).await.unwrap();
    }
    let item = |name: &str| {
        json!({ "media_type": "IMAGE", "image_url": format!("https://crier.example/media/{name}.png"),
            "alt_text": format!("a <{name}>") })
    };
    let with = |mut request: Value, more: Value| {
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let expected = [
        json!({ "media_type": "TEXT", "text": "One", "topic_tag": "bread" }),
        with(item("cat"), json!({ "is_carousel_item": true })),
        with(item("dog"), json!({ "is_carousel_item": true })),
        json!({ "media_type": "CAROUSEL", "children": "101,102", "text": "Two", "reply_to_id": "800" }),
        with(item("cat"), json!({ "text": "Three", "reply_to_id": "801" })),
        json!({ "media_type": "TEXT", "text": "More", "reply_to_id": "800" }),
    ];
    assert_eq!(s.containers(), expected);
}

#[tokio::test]
async fn a_container_that_is_not_found_yet_is_published_later() {
    let s = start().await;
    s.publish_text("One").await;
    for mut outgoing in [post(s.connector.as_ref(), "Two"), s.part("Three", "800", "800")] {
        s.stage(&mut outgoing).await.unwrap();
        let made = s.containers().len();
        let not_yet = error(400, 24, Some(4_279_009), "The requested resource does not exist");
        s.api.respond_once("/threads_publish", not_yet);
        let failed = s.publish(&mut outgoing).await.unwrap_err();
        assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent);
        s.publish(&mut outgoing).await.unwrap();
        assert_eq!(s.containers().len(), made, "the same container");
    }
    assert_eq!(s.ids(), ["800", "801", "802"]);
}

#[tokio::test]
async fn a_reply_is_found_by_its_container_or_among_the_replies_to_its_parent() {
    let s = start().await;
    s.publish_text("One").await;
    s.publish_text("Same").await;
    let mut part = s.part("Same", "800", "800");
    assert_eq!(s.reconcile(&part).await, ReconcileResult::Absent);
    let published = s.publish(&mut part).await.unwrap();
    assert_eq!(s.reconcile(&part).await, ReconcileResult::PublishedAmong(vec![published.clone()]));
    assert_eq!(s.stage(&mut part).await.unwrap(), StageResult::Published(vec![published.clone()]));
    s.api.with(|server| server.has_forgotten = true);
    assert_eq!(s.reconcile(&part).await, ReconcileResult::Matches(vec![published]));
    let elsewhere = OutgoingPost { marker: part.marker.clone(), ..s.part("Same", "800", "801") };
    assert_eq!(s.reconcile(&elsewhere).await, ReconcileResult::Absent);
    let plain = OutgoingPost { marker: part.marker.clone(), ..post(s.connector.as_ref(), "Same") };
    let ReconcileResult::Matches(found) = s.reconcile(&plain).await else { panic!("the post") };
    assert_eq!(found.iter().map(|one| one.external_id.as_str()).collect::<Vec<_>>(), ["801"]);
}

#[tokio::test]
async fn without_permission_to_read_replies_only_the_container_is_known() {
    let s = start().await;
    s.publish_text("One").await;
    s.api.with(|server| server.lacks = &["threads_read_replies"]);
    let mut part = s.part("Two", "800", "800");
    s.publish(&mut part).await.unwrap();
    assert_eq!(s.reconcile(&part).await, ReconcileResult::PublishedAmong(Vec::new()));
    s.api.with(|server| server.has_forgotten = true);
    assert_eq!(s.reconcile(&part).await, ReconcileResult::Unsupported);
}

#[tokio::test]
async fn a_deleted_parent_is_recognized() {
    let s = start().await;
    s.publish_text("One").await;
    s.unpublish("800").await.unwrap();
    for not_found in [(24, 4_279_009), (100, 33)] {
        s.api.with(|server| server.not_found = not_found);
        for mut outgoing in [s.part("Two", "800", "800"), comment_on(s.connector.as_ref(), "More", "800")] {
            let error = s.stage(&mut outgoing).await.unwrap_err();
            assert!(matches!(&error, CallError::ParentMissing(f) if !f.category.is_retryable()), "{error:?}");
        }
        // The code may refer to an image of a carousel.
        let mut carousel = s.part("Two", "800", "800");
        carousel.images = vec![image("cat"), image("dog")];
        let error = s.stage(&mut carousel).await.unwrap_err();
        let is_right = match not_found {
            (24, _) => matches!(error, CallError::Transient(_)),
            _ => matches!(error, CallError::ParentMissing(_)),
        };
        assert!(is_right, "{error:?}");
    }
    assert!(s.ids().is_empty());
    // A reply to nothing would become a post.
    let made = s.containers().len();
    let error = s.stage(&mut s.part("Two", "800", "")).await.unwrap_err();
    assert!(matches!(error, CallError::Permanent(_)), "{error:?}");
    assert_eq!(s.containers().len(), made);
}

fn assert_missing(error: &CallError, permission: &str) {
    let CallError::Permanent(failure) = error else { panic!("{error:?}") };
    assert_eq!(failure.code, "missing_permission", "{failure:?}");
    assert!(failure.message.contains(permission) && failure.message.contains("CRIER_THREADS_SCOPES"), "{failure:?}");
}

#[tokio::test]
async fn a_missing_permission_for_replies_is_named() {
    let s = start().await;
    s.api.with(|server| server.lacks = &["threads_manage_replies"]);
    s.publish_text("One").await;
    for mut outgoing in [s.part("Two", "800", "800"), comment_on(s.connector.as_ref(), "More", "800")] {
        assert_missing(&s.stage(&mut outgoing).await.unwrap_err(), "threads_manage_replies");
    }
    s.api.with(|server| server.lacks = &[]);
    let mut part = s.part("Two", "800", "800");
    s.stage(&mut part).await.unwrap();
    s.api.respond_once("/threads_publish", error(400, 200, None, "Permissions error"));
    assert_missing(&s.publish(&mut part).await.unwrap_err(), "threads_manage_replies");
    assert_eq!(s.ids(), ["800"]);
}

#[tokio::test]
async fn replies_have_a_quota_of_their_own() {
    let s = start().await;
    s.api.with(|server| server.replies_today = 1_000);
    s.publish_text("One").await;
    let limited = s.stage(&mut s.part("Two", "800", "800")).await.unwrap_err();
    assert!(matches!(limited, CallError::RateLimited { .. }), "{limited:?}");
    s.api.with(|server| server.replies_today = 999);
    s.publish(&mut s.part("Two", "800", "800")).await.unwrap();
}

#[tokio::test]
async fn a_post_is_deleted_and_a_second_deletion_changes_nothing() {
    let s = start().await;
    s.publish_text("One").await;
    s.publish_text("Two").await;
    s.api.lose_response("/800", 503);
    let lost = s.unpublish("800").await.unwrap_err();
    assert!(matches!(lost, CallError::Transient(_)), "{lost:?}");
    for not_found in [(24, 4_279_009), (100, 33)] {
        s.api.with(|server| server.not_found = not_found);
        s.unpublish("800").await.unwrap();
    }
    assert_eq!(s.ids(), ["801"]);
    s.unpublish("801").await.unwrap();
    assert!(s.ids().is_empty());
}

#[tokio::test]
async fn a_missing_permission_for_deletions_is_named() {
    let s = start().await;
    s.publish_text("One").await;
    s.api.with(|server| server.lacks = &["threads_delete"]);
    assert_missing(&s.unpublish("800").await.unwrap_err(), "threads_delete");
    for not_found in [(24, 4_279_009), (100, 33)] {
        s.api.with(|server| (server.hides_permissions, server.not_found) = (true, not_found));
        assert_missing(&s.unpublish("800").await.unwrap_err(), "threads_delete");
    }
    assert_eq!(s.ids(), ["800"]);
}

#[tokio::test]
async fn a_failed_deletion_is_classified() {
    let s = start().await;
    s.publish_text("One").await;
    let delete = async |response: ResponseTemplate| {
        s.api.respond_once("/800", response);
        s.unpublish("800").await.unwrap_err()
    };
    let kept = delete(json(200, json!({ "success": false }))).await;
    assert!(matches!(kept, CallError::Transient(_)), "{kept:?}");
    let broken = delete(error(500, 2, None, "Service temporarily unavailable")).await;
    assert!(matches!(broken, CallError::Transient(_)), "{broken:?}");
    let limited = delete(error(400, 4, None, "Application request limit reached")).await;
    assert!(matches!(limited, CallError::RateLimited { .. }), "{limited:?}");
    let expired = delete(error(400, 190, Some(463), "Session has expired")).await;
    assert!(matches!(expired, CallError::Reauth(_)), "{expired:?}");
    let unknown = s.unpublish("800/replies").await.unwrap_err();
    assert!(matches!(&unknown, CallError::Permanent(f) if f.message.contains("ID")), "{unknown:?}");
    assert_eq!(s.ids(), ["800"]);
}
