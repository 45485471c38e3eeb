//! First comments on an Instagram account's posts, and deleting both, against an API that responds as Meta documents.

use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, ConnectorAccount, ConnectorRegistry, OutgoingPost, Published, ReconcileResult, StageResult,
};
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{
    CommentTest, account, assert_missing, clients, comment_on, comment_to_delete, now, unpublish_post,
};
use crate::support::facebook::{error, no_such_object};
use crate::support::inbox::{FakeApi, json, parameter};
use crate::support::meta_inbox::{newest_first, paged};
use crate::support::oauth::bearer;

const ACCOUNT: &str = "17841";
const POST: &str = "17900";

#[derive(Default)]
struct Server {
    posts: Vec<String>,
    /// The comments on all posts, oldest first, each with its `post`.
    comments: Vec<Value>,
    /// What the token may not do: `comment`, `delete`, or `see` the account.
    lacks: &'static [&'static str],
    /// Whether a deletion that is not allowed is rejected as if there were no such object.
    is_vague: bool,
    /// Whether the account was connected with Facebook.
    is_by_facebook: bool,
}

impl Server {
    fn has(&self, id: &str) -> bool {
        self.posts.iter().any(|post| post == id) || self.comments.iter().any(|comment| comment["id"] == id)
    }

    fn delete(&mut self, id: &str) -> ResponseTemplate {
        let is_post = self.posts.iter().any(|post| post == id);
        assert!(self.is_by_facebook || !is_post, "Instagram's own login has no such call");
        if self.lacks.contains(&"delete") {
            return if self.is_vague { no_such_object() } else { not_permitted() };
        }
        self.posts.retain(|post| post != id);
        self.comments.retain(|comment| comment["id"] != id && comment["post"] != id);
        json(200, json!({ "success": true, "deleted_id": id }))
    }

    fn comment(&mut self, post: &str, author: &str, text: &Value) -> ResponseTemplate {
        let id = (1_000 + self.comments.len()).to_string();
        self.comments.push(json!({ "id": id, "post": post, "text": text, "username": author,
            "timestamp": "2026-03-01T12:00:05+0000" }));
        json(200, json!({ "id": id }))
    }
}

fn not_permitted() -> ResponseTemplate {
    error(400, 10, None, "(#10) Application does not have permission for this action")
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    assert_eq!(bearer(request), "token-1");
    assert_eq!(parameter(request, "appsecret_proof").is_some(), server.is_by_facebook);
    let path = request.url.path().strip_prefix("/v25.0/").unwrap().to_owned();
    match (request.method.as_str(), path.split_once('/')) {
        ("GET", None) if path == ACCOUNT && !server.lacks.contains(&"see") => json(200, json!({ "id": path })),
        ("GET" | "DELETE", None) if !server.has(&path) => no_such_object(),
        ("GET", None) => json(200, json!({ "id": path })),
        ("DELETE", None) => server.delete(&path),
        (_, Some((post, "comments"))) if !server.has(post) => no_such_object(),
        ("POST", Some((_, "comments"))) if server.lacks.contains(&"comment") => not_permitted(),
        ("POST", Some((post, "comments"))) => {
            let body: Value = request.body_json().unwrap();
            server.comment(post, "bakery", &body["message"])
        }
        ("GET", Some((post, "comments"))) => {
            let limit = parameter(request, "limit").unwrap().parse().unwrap();
            let all: Vec<Value> = server.comments.iter().filter(|one| one["post"] == post).cloned().collect();
            json(200, paged(&newest_first(&all), parameter(request, "after").as_deref(), limit))
        }
        other => panic!("no such call: {other:?}"),
    }
}

type Started = CommentTest<Server>;

/// Connects the account with Facebook, or with Instagram's own login.
async fn start(is_by_facebook: bool) -> Started {
    let server = Server { posts: vec![POST.to_owned()], is_by_facebook, ..Server::default() };
    let api = FakeApi::start(server, respond).await;
    let host = if is_by_facebook { Platform::Facebook } else { Platform::Instagram };
    let config = PlatformsConfig::default().with_base_url(host, api.base());
    let registry = ConnectorRegistry::new(config, &clients(), &Clock::manual(now()));
    let connector = registry.get(Platform::Instagram).unwrap();
    let login = if is_by_facebook { "facebook" } else { "" };
    let secrets = json!({ "access_token": "token-1", "client_id": "app", "client_secret": "secret", "login": login });
    let account = ConnectorAccount { username: Some("Bakery".to_owned()), ..account(ACCOUNT, secrets) };
    Started { api, connector, account, post: POST }
}

async fn both() -> [Started; 2] {
    [start(false).await, start(true).await]
}

#[tokio::test]
async fn a_first_comment_is_published_without_a_container() {
    for s in both().await {
        let comment = s.comment("Order here & <b> #bread");
        assert_eq!(s.connector.stage(&s.account, &comment).await.unwrap(), StageResult::Ready);
        let published = s.publish(&comment).await.unwrap();
        assert_eq!((published.external_id.as_str(), published.url), ("1000", None));
        let requests = s.api.requests_to("/");
        assert_eq!((requests.len(), requests[0].url.path()), (1, "/v25.0/17900/comments"));
        let body: Value = requests[0].body_json().unwrap();
        assert_eq!(body, json!({ "message": "Order here & <b> #bread" }));
    }
}

#[tokio::test]
async fn a_first_comment_with_a_lost_response_is_found_by_text_and_time() {
    for s in both().await {
        let comment = s.comment("Hi");
        s.api.with(|server| server.comment(POST, "vera", &json!("Hi")));
        assert_eq!(s.reconcile(&comment).await, ReconcileResult::Absent, "the comment of another person");
        s.api.lose_response("/comments", 500);
        assert!(matches!(s.publish(&comment).await, Err(CallError::Unknown(_))));
        let found = ReconcileResult::Matches(vec![Published::new("1001", None)]);
        assert_eq!(s.reconcile(&comment).await, found);
        assert_eq!(s.reconcile(&s.comment("Other")).await, ReconcileResult::Absent);
        let later = OutgoingPost { called_at: Some(now() + TimeDelta::hours(1)), ..comment.clone() };
        assert_eq!(s.reconcile(&later).await, ReconcileResult::Absent);
        // More comments than are searched prove nothing.
        s.api.with(|server| {
            for _ in 0..200 {
                server.comment(POST, "vera", &json!("More"));
            }
        });
        assert_eq!(s.reconcile(&comment).await, ReconcileResult::Unsupported);
        s.api.with(|server| server.posts.clear());
        assert_eq!(s.reconcile(&comment).await, ReconcileResult::Unsupported, "it may be hidden");
    }
}

#[tokio::test]
async fn errors_of_a_comment_are_classified() {
    for s in both().await {
        let missing = s.publish(&comment_on(s.connector.as_ref(), "Hi", "17909")).await;
        let Err(CallError::ParentMissing(failure)) = &missing else { panic!("{missing:?}") };
        let message = "The post to comment on does not exist, or the account may not comment on it.";
        assert_eq!(failure.message, message);
        for id in ["", "../17841", "17900_1"] {
            let failed = s.publish(&comment_on(s.connector.as_ref(), "Hi", id)).await;
            assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
        }
        assert_eq!(s.api.requests_to("/").len(), 1, "such ids are not part of a URL");
        s.api.respond_once("/comments", error(400, 190, Some(463), "Session has expired"));
        assert!(matches!(s.publish(&s.comment("Hi")).await, Err(CallError::Reauth(_))));
        s.api.respond_once("/comments", error(400, 4, None, "Application request limit reached"));
        assert!(matches!(s.publish(&s.comment("Hi")).await, Err(CallError::RateLimited { .. })));
        assert!(s.api.with(|server| server.comments.is_empty()));
    }
}

#[tokio::test]
async fn a_missing_permission_for_comments_is_named_as_the_login_names_it() {
    for s in both().await {
        let comment = s.publish(&s.comment("Hi")).await.unwrap();
        let (permission, variable) = match s.api.with(|server| server.is_by_facebook) {
            true => ("instagram_manage_comments", "CRIER_INSTAGRAM_PAGE_SCOPES"),
            false => ("instagram_business_manage_comments", "CRIER_INSTAGRAM_SCOPES"),
        };
        s.api.with(|server| server.lacks = &["comment", "delete"]);
        assert_missing(s.publish(&s.comment("Hi")).await.unwrap_err(), permission, variable);
        let denied = s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap_err();
        assert_missing(denied, permission, variable);
    }
}

#[tokio::test]
async fn a_comment_is_deleted_with_both_logins() {
    for s in both().await {
        let comment = s.publish(&s.comment("Hi")).await.unwrap();
        s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
        s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
        assert_eq!(s.api.with(|server| (server.posts.len(), server.comments.len())), (1, 0));
    }
}

#[tokio::test]
async fn a_post_is_deleted_only_with_the_login_of_facebook() {
    let own = start(false).await;
    let Err(CallError::Permanent(failure)) = own.unpublish(&unpublish_post(POST)).await else { panic!("not possible") };
    assert_eq!(failure.code, "not_supported");
    assert!(failure.message.contains("Delete the post on Instagram."), "{failure:?}");
    assert!(own.api.requests_to("/").is_empty());

    let s = start(true).await;
    s.api.with(|server| server.posts.push("17901".to_owned()));
    s.unpublish(&unpublish_post(POST)).await.unwrap();
    assert_eq!(s.api.with(|server| server.posts.clone()), ["17901"]);
    s.unpublish(&unpublish_post(POST)).await.unwrap();
    // After a lost response, it is deleted again.
    s.api.lose_response("/17901", 500);
    assert!(matches!(s.unpublish(&unpublish_post("17901")).await, Err(CallError::Transient(_))));
    s.unpublish(&unpublish_post("17901")).await.unwrap();
}

#[tokio::test]
async fn a_post_that_cannot_be_deleted_does_not_count_as_deleted() {
    let s = start(true).await;
    for is_vague in [false, true] {
        s.api.with(|server| {
            server.lacks = &["delete"];
            server.is_vague = is_vague;
        });
        let denied = s.unpublish(&unpublish_post(POST)).await.unwrap_err();
        assert_missing(denied, "instagram_manage_contents", "CRIER_INSTAGRAM_PAGE_SCOPES");
    }
    // A token that has lost the account sees no posts of it.
    s.api.with(|server| {
        server.lacks = &["see"];
        server.posts.clear();
    });
    assert!(matches!(s.unpublish(&unpublish_post(POST)).await, Err(CallError::Reauth(_))));
    for id in ["", "..", "17900/comments"] {
        let failed = s.unpublish(&unpublish_post(id)).await;
        assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
    }
}
