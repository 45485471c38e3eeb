//! First comments on a Facebook page's posts, and deleting both, against a Graph API that responds as Meta documents.

use chrono::TimeDelta;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{CommentTest, account, comment_on, comment_to_delete, connector, now, unpublish_post};
use crate::support::facebook::{error, no_such_object};
use crate::support::inbox::{FakeApi, json, parameter};
use crate::support::meta_inbox::{newest_first, paged};
use crate::support::oauth::bearer;

const POST: &str = "42_1";

#[derive(Default)]
struct Server {
    posts: Vec<String>,
    /// The comments on all posts, oldest first, each with its `post`.
    comments: Vec<Value>,
    /// What the token may not do: `comment`, `delete`, or `see` the page.
    lacks: &'static [&'static str],
    /// Whether a deletion that is not allowed is rejected as if there were no such object.
    is_vague: bool,
}

impl Server {
    fn has(&self, id: &str) -> bool {
        self.posts.iter().any(|post| post == id) || self.comments.iter().any(|comment| comment["id"] == id)
    }

    fn delete(&mut self, id: &str) -> ResponseTemplate {
        if self.lacks.contains(&"delete") {
            return if self.is_vague { no_such_object() } else { not_permitted() };
        }
        self.posts.retain(|post| post != id);
        self.comments.retain(|comment| comment["id"] != id && comment["post"] != id);
        json(200, json!({ "success": true }))
    }

    fn comment(&mut self, post: &str, author: &str, text: &Value) -> ResponseTemplate {
        let id = format!("1_{}", 90 + self.comments.len());
        self.comments.push(json!({ "id": id, "post": post, "message": text, "from": { "id": author },
            "created_time": "2026-03-01T12:00:05+0000" }));
        json(200, json!({ "id": id }))
    }
}

fn not_permitted() -> ResponseTemplate {
    error(403, 200, None, "(#200) If posting to a page, requires pages_manage_engagement")
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    assert_eq!(bearer(request), "page-42");
    assert!(parameter(request, "appsecret_proof").is_some() && !request.url.as_str().contains("page-42"));
    let path = request.url.path().strip_prefix("/v25.0/").unwrap().to_owned();
    match (request.method.as_str(), path.split_once('/')) {
        ("GET", None) if path == "42" && !server.lacks.contains(&"see") => json(200, json!({ "id": path })),
        ("GET" | "DELETE", None) if !server.has(&path) => no_such_object(),
        ("GET", None) => json(200, json!({ "id": path })),
        ("DELETE", None) => server.delete(&path),
        (_, Some((post, "comments"))) if !server.has(post) => no_such_object(),
        ("POST", Some((_, "comments"))) if server.lacks.contains(&"comment") => not_permitted(),
        ("POST", Some((post, "comments"))) => {
            assert!(parameter(request, "fields").is_none(), "Meta makes the comment, then rejects the fields");
            let body: Value = request.body_json().unwrap();
            server.comment(post, "42", &body["message"])
        }
        ("GET", Some((post, "comments"))) => {
            let limit = parameter(request, "limit").unwrap().parse().unwrap();
            let all: Vec<Value> = server.comments.iter().filter(|one| one["post"] == post).cloned().collect();
            json(200, paged(&newest_first(&all), parameter(request, "after").as_deref(), limit))
        }
        other => panic!("no such call: {other:?}"),
    }
}

type Page = CommentTest<Server>;

async fn start() -> Page {
    let api = FakeApi::start(Server { posts: vec![POST.to_owned()], ..Server::default() }, respond).await;
    let connector = connector(Platform::Facebook, &api.base());
    let secrets = json!({ "access_token": "page-42", "client_id": "app", "client_secret": "secret" });
    Page { api, connector, account: account("42", secrets), post: POST }
}

fn assert_missing(error: CallError, permission: &str) {
    let CallError::Permanent(failure) = &error else { panic!("{error:?}") };
    assert_eq!(failure.code, "missing_permission");
    assert!(failure.message.contains(permission) && failure.message.contains("CRIER_FACEBOOK_SCOPES"), "{failure:?}");
}

#[tokio::test]
async fn a_first_comment_is_published_on_the_post() {
    let page = start().await;
    let published = page.publish(&page.comment("Order here: https://a.example/ & <b>")).await.unwrap();
    assert_eq!((published.external_id.as_str(), published.url), ("1_90", None));
    let body: Value = page.api.requests_to("/42_1/comments")[0].body_json().unwrap();
    assert_eq!(body, json!({ "message": "Order here: https://a.example/ & <b>" }));
}

#[tokio::test]
async fn a_first_comment_with_a_lost_response_is_found_by_text_and_time() {
    let page = start().await;
    let comment = page.comment("Hi");
    page.api.with(|server| server.comment(POST, "7", &json!("Hi")));
    assert_eq!(page.reconcile(&comment).await, ReconcileResult::Absent, "the comment of another person");
    page.api.lose_response("/comments", 500);
    assert!(matches!(page.publish(&comment).await, Err(CallError::Unknown(_))));
    let found = ReconcileResult::Matches(vec![Published::new("1_91", None)]);
    assert_eq!(page.reconcile(&comment).await, found);
    assert_eq!(page.reconcile(&page.comment("Other")).await, ReconcileResult::Absent);
    let later = OutgoingPost { called_at: Some(now() + TimeDelta::hours(1)), ..comment.clone() };
    assert_eq!(page.reconcile(&later).await, ReconcileResult::Absent);
    page.api.respond_once("/comments", error(500, 2, None, "Service temporarily unavailable"));
    assert!(matches!(page.connector.reconcile(&page.account, &comment).await, Err(CallError::Transient(_))));
    // More comments than are searched prove nothing.
    page.api.with(|server| {
        for _ in 0..200 {
            server.comment(POST, "7", &json!("More"));
        }
    });
    assert_eq!(page.reconcile(&comment).await, ReconcileResult::Unsupported);
    page.api.with(|server| server.delete(POST));
    assert_eq!(page.reconcile(&comment).await, ReconcileResult::Unsupported, "it may be hidden");
}

#[tokio::test]
async fn a_comment_on_a_post_that_does_not_exist_is_told_from_lost_access() {
    let page = start().await;
    let comment = comment_on(page.connector.as_ref(), "Hi", "42_9");
    let missing = page.publish(&comment).await;
    let Err(CallError::ParentMissing(failure)) = &missing else { panic!("{missing:?}") };
    let message = "The post to comment on does not exist, or the account may not comment on it.";
    assert_eq!(failure.message, message);
    for id in ["", "../42", "42_1?x"] {
        let failed = page.publish(&comment_on(page.connector.as_ref(), "Hi", id)).await;
        assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
    }
    assert_eq!(page.api.requests_to("/").len(), 1, "such ids are not part of a URL");
}

#[tokio::test]
async fn errors_of_a_comment_are_classified() {
    let page = start().await;
    page.api.with(|server| server.lacks = &["comment"]);
    assert_missing(page.publish(&page.comment("Hi")).await.unwrap_err(), "pages_manage_engagement");
    page.api.respond_once("/comments", error(400, 190, Some(460), "The user changed the password."));
    assert!(matches!(page.publish(&page.comment("Hi")).await, Err(CallError::Reauth(_))));
    page.api.respond_once("/comments", error(400, 32, None, "Page request limit reached"));
    assert!(matches!(page.publish(&page.comment("Hi")).await, Err(CallError::RateLimited { .. })));
    page.api.respond_once("/comments", error(400, 368, None, "The action is deemed abusive"));
    assert!(matches!(page.publish(&page.comment("Hi")).await, Err(CallError::Permanent(_))));
    assert!(page.api.with(|server| server.comments.is_empty()));
}

#[tokio::test]
async fn a_post_is_deleted_and_a_second_deletion_succeeds() {
    let page = start().await;
    page.api.with(|server| server.posts.push("42_2".to_owned()));
    page.unpublish(&unpublish_post(POST)).await.unwrap();
    assert_eq!(page.api.with(|server| server.posts.clone()), ["42_2"]);
    page.unpublish(&unpublish_post(POST)).await.unwrap();
    // After a lost response, it is deleted again.
    page.api.lose_response("/42_2", 500);
    assert!(matches!(page.unpublish(&unpublish_post("42_2")).await, Err(CallError::Transient(_))));
    page.unpublish(&unpublish_post("42_2")).await.unwrap();
}

#[tokio::test]
async fn a_comment_is_deleted_and_its_post_is_not() {
    let page = start().await;
    let comment = page.publish(&page.comment("Hi")).await.unwrap();
    page.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
    page.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
    assert_eq!(page.api.with(|server| (server.posts.len(), server.comments.len())), (1, 0));
}

#[tokio::test]
async fn a_post_that_cannot_be_deleted_does_not_count_as_deleted() {
    let page = start().await;
    let comment = page.publish(&page.comment("Hi")).await.unwrap();
    for is_vague in [false, true] {
        page.api.with(|server| {
            server.lacks = &["delete"];
            server.is_vague = is_vague;
        });
        assert_missing(page.unpublish(&unpublish_post(POST)).await.unwrap_err(), "pages_manage_posts");
        let denied = page.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap_err();
        assert_missing(denied, "pages_manage_engagement");
    }
    // A token that has lost its page sees no posts of it.
    page.api.with(|server| {
        server.lacks = &["see"];
        server.posts.clear();
    });
    assert!(matches!(page.unpublish(&unpublish_post(POST)).await, Err(CallError::Reauth(_))));
    for id in ["", "..", "42_1/comments"] {
        let failed = page.unpublish(&unpublish_post(id)).await;
        assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
    }
}
