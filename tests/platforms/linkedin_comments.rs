//! First comments on posts of LinkedIn's users and pages, and deleting both, against a server that responds as LinkedIn
//! documents.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{
    CommentTest, account, assert_missing, comment_on, comment_to_delete, connector, now, unpublish_post,
};
use crate::support::inbox::{FakeApi, json, parameter};
use crate::support::oauth::bearer;

const PERSON: &str = "urn:li:person:782bbtaQ";
const PAGE: &str = "urn:li:organization:7";
const POST: &str = "urn:li:share:1";
const ACTIVITY: &str = "urn:li:activity:101";

#[derive(Default)]
struct Server {
    posts: Vec<String>,
    /// The comments on the first post.
    comments: Vec<Value>,
    /// Whether the application lacks all permissions.
    is_denied: bool,
    /// Whether a new comment is returned only by its number.
    is_terse: bool,
}

impl Server {
    fn comment(&mut self, actor: &str, text: &Value) -> Value {
        let number = 900 + self.comments.len();
        let made = json!({
            "actor": actor, "commentUrn": format!("urn:li:comment:({ACTIVITY},{number})"), "id": number.to_string(),
            "object": ACTIVITY, "message": { "attributes": [], "text": text },
            "created": { "actor": PERSON, "time": (now() + TimeDelta::seconds(5)).timestamp_millis() },
        });
        self.comments.push(made.clone());
        made
    }

    fn list(&self, request: &Request) -> ResponseTemplate {
        let number = |name: &str| parameter(request, name).unwrap().parse::<usize>().unwrap();
        let (start, count) = (number("start"), number("count"));
        let found: Vec<&Value> = self.comments.iter().skip(start).take(count).collect();
        let paging = json!({ "start": start, "count": count, "links": [], "total": self.comments.len() });
        json(200, json!({ "elements": found, "paging": paging }))
    }
}

fn rejected(status: u16, code: i64, message: &str) -> ResponseTemplate {
    json(status, json!({ "status": status, "serviceErrorCode": code, "message": message }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    assert_eq!(bearer(request), "access-0");
    assert_eq!(request.headers["linkedin-version"], "202607");
    assert!(!request.url.path().contains("urn:"), "a URN in a URL is encoded");
    if server.is_denied {
        return rejected(403, 100, "Not enough permissions to access: partnerApiSocialActions.CREATE.20260701");
    }
    let path = request.url.path().replace("%3A", ":");
    let method = request.method.as_str();
    if let Some(post) = path.strip_prefix("/rest/posts/") {
        assert_eq!(method, "DELETE");
        server.posts.retain(|one| one != post);
        return ResponseTemplate::new(204);
    }
    let (target, number) = path.strip_prefix("/rest/socialActions/").unwrap().split_once("/comments").unwrap();
    if target != ACTIVITY && !server.posts.iter().any(|post| post == target) {
        return rejected(404, 0, "Could not find entity");
    }
    match (method, number.trim_start_matches('/')) {
        ("GET", "") => server.list(request),
        ("POST", "") => {
            let body: Value = request.body_json().unwrap();
            assert_eq!((&body["object"], body.get("parentComment")), (&json!(target), None));
            let made = server.comment(body["actor"].as_str().unwrap(), &body["message"]["text"]);
            let response = ResponseTemplate::new(201).insert_header("x-restli-id", made["id"].as_str().unwrap());
            if server.is_terse { response } else { response.set_body_json(made) }
        }
        ("DELETE", number) => {
            let actor = parameter(request, "actor").unwrap_or_else(|| PERSON.to_owned());
            server.comments.retain(|one| one["id"] != number || one["actor"] != actor.as_str());
            ResponseTemplate::new(204)
        }
        other => panic!("no such call: {other:?}"),
    }
}

type Started = CommentTest<Server>;

async fn start(external_id: &str) -> Started {
    let posts = vec![POST.to_owned(), "urn:li:ugcPost:2".to_owned()];
    let api = FakeApi::start(Server { posts, ..Server::default() }, respond).await;
    let connector = connector(Platform::Linkedin, &api.base());
    let secrets = json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" });
    Started { api, connector, account: account(external_id, secrets), post: POST }
}

/// Starts a server for a user's account, and one for a page.
async fn both() -> [(&'static str, Started); 2] {
    [(PERSON, start("782bbtaQ").await), (PAGE, start(PAGE).await)]
}

#[tokio::test]
async fn a_first_comment_is_published_in_the_name_of_the_account() {
    for (actor, s) in both().await {
        let published = s.publish(&s.comment("Order (here) & <b> #bread a_b")).await.unwrap();
        assert_eq!(published.external_id, "urn:li:comment:(urn:li:activity:101,900)");
        let body: Value = s.api.requests_to("/comments")[0].body_json().unwrap();
        let text = json!({ "text": "Order (here) & <b> #bread a_b" });
        assert_eq!(body, json!({ "actor": actor, "object": POST, "message": text }), "the text is plain");
        s.api.with(|server| server.is_terse = true);
        let published = s.publish(&s.comment("Hi")).await.unwrap();
        assert_eq!(published.external_id, "urn:li:comment:(urn:li:share:1,901)");
    }
}

#[tokio::test]
async fn a_first_comment_of_a_page_with_a_lost_response_is_found_by_text_and_time() {
    let s = start(PAGE).await;
    let comment = s.comment("Hi");
    s.api.with(|server| server.comment("urn:li:person:vera", &json!("Hi")));
    assert_eq!(s.reconcile(&comment).await, ReconcileResult::Absent, "the comment of another person");
    s.api.lose_response("/comments", 504);
    assert!(matches!(s.publish(&comment).await, Err(CallError::Unknown(_))));
    let found = Published::new("urn:li:comment:(urn:li:activity:101,901)", None);
    assert_eq!(s.reconcile(&comment).await, ReconcileResult::Matches(vec![found]));
    assert_eq!(s.reconcile(&s.comment("Other")).await, ReconcileResult::Absent);
    let later = OutgoingPost { called_at: Some(now() + TimeDelta::hours(1)), ..comment.clone() };
    assert_eq!(s.reconcile(&later).await, ReconcileResult::Absent);
    // More comments than are searched prove nothing.
    s.api.with(|server| {
        for _ in 0..300 {
            server.comment("urn:li:person:vera", &json!("More"));
        }
    });
    assert_eq!(s.reconcile(&s.comment("Other")).await, ReconcileResult::Unsupported);
    s.api.with(|server| server.posts.clear());
    assert_eq!(s.reconcile(&comment).await, ReconcileResult::Absent, "it was deleted with its post");
}

#[tokio::test]
async fn the_comments_of_a_user_cannot_be_read() {
    let s = start("782bbtaQ").await;
    s.api.lose_response("/comments", 504);
    assert!(matches!(s.publish(&s.comment("Hi")).await, Err(CallError::Unknown(_))));
    assert_eq!(s.reconcile(&s.comment("Hi")).await, ReconcileResult::Unsupported);
    assert_eq!(s.api.requests_to("/").len(), 1);
}

#[tokio::test]
async fn errors_of_a_comment_are_classified() {
    for (_, s) in both().await {
        let missing = s.publish(&comment_on(s.connector.as_ref(), "Hi", "urn:li:share:9")).await;
        assert!(matches!(&missing, Err(CallError::ParentMissing(f)) if f.message.contains("post")), "{missing:?}");
        for id in ["", "urn:li:share:1/../x", "urn:li:share:"] {
            let failed = s.publish(&comment_on(s.connector.as_ref(), "Hi", id)).await;
            assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
        }
        assert_eq!(s.api.requests_to("/").len(), 1, "such ids are not part of a URL");
        let fails_with = async |status, code| {
            s.api.respond_once("/comments", rejected(status, code, "No"));
            s.publish(&s.comment("Hi")).await.unwrap_err()
        };
        assert!(matches!(fails_with(401, 65_602).await, CallError::AuthExpired(_)));
        assert!(matches!(fails_with(429, 101).await, CallError::RateLimited { .. }));
        let denied = fails_with(403, 7).await;
        assert!(matches!(&denied, CallError::Permanent(f) if f.category == Category::Account && f.code == "account"));
        assert!(s.api.with(|server| server.comments.is_empty()));
    }
}

#[tokio::test]
async fn a_missing_permission_is_named_for_users_and_pages() {
    for (actor, s) in both().await {
        let (kind, variable) = match actor == PAGE {
            true => ("organization", "CRIER_LINKEDIN_PAGE_SCOPES"),
            false => ("member", "CRIER_LINKEDIN_SCOPES"),
        };
        s.api.with(|server| server.is_denied = true);
        let denied = s.publish(&s.comment("Hi")).await.unwrap_err();
        assert_missing(denied, &format!("w_{kind}_social_feed"), variable);
        let id = "urn:li:comment:(urn:li:activity:101,900)";
        let denied = s.unpublish(&comment_to_delete(id)).await.unwrap_err();
        assert_missing(denied, &format!("w_{kind}_social_feed"), variable);
        let denied = s.unpublish(&unpublish_post(POST)).await.unwrap_err();
        assert_missing(denied, &format!("w_{kind}_social"), variable);
        assert_eq!(s.api.with(|server| server.posts.len()), 2);
    }
}

#[tokio::test]
async fn a_post_is_deleted_and_a_second_deletion_succeeds() {
    for (_, s) in both().await {
        s.unpublish(&unpublish_post(POST)).await.unwrap();
        assert_eq!(s.api.with(|server| server.posts.clone()), ["urn:li:ugcPost:2"]);
        s.unpublish(&unpublish_post(POST)).await.unwrap();
        s.api.respond_once("/rest/posts/", rejected(404, 0, "Could not find entity"));
        s.unpublish(&unpublish_post(POST)).await.unwrap();
        // After a lost response, it is deleted again.
        s.api.lose_response("/rest/posts/", 503);
        let lost = s.unpublish(&unpublish_post("urn:li:ugcPost:2")).await;
        assert!(matches!(lost, Err(CallError::Transient(_))), "{lost:?}");
        s.unpublish(&unpublish_post("urn:li:ugcPost:2")).await.unwrap();
        let calls = s.api.requests_to("/").len();
        for id in ["", "urn:li:share:1/../2", PAGE, "urn:li:comment:(urn:li:activity:101,900)"] {
            let failed = s.unpublish(&unpublish_post(id)).await;
            assert!(matches!(failed, Err(CallError::Permanent(_))), "{id}: {failed:?}");
        }
        assert_eq!(s.api.requests_to("/").len(), calls, "only posts are deleted");
    }
}

#[tokio::test]
async fn a_comment_is_deleted_and_its_post_is_not() {
    for (_, s) in both().await {
        s.api.with(|server| server.comment("urn:li:person:vera", &json!("Mine")));
        let comment = s.publish(&s.comment("Hi")).await.unwrap();
        s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
        s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
        assert_eq!(s.api.with(|server| (server.posts.len(), server.comments.len())), (2, 1));
        // The id of a comment whose response named only its number.
        s.api.with(|server| server.is_terse = true);
        let comment = s.publish(&s.comment("Hi")).await.unwrap();
        s.api.with(|server| server.posts.clear());
        s.unpublish(&comment_to_delete(&comment.external_id)).await.unwrap();
        assert!(matches!(s.unpublish(&comment_to_delete(POST)).await, Err(CallError::Permanent(_))));
    }
}
