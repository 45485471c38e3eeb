//! First comments and deletions on Reddit, against a server that responds as its documents and its published source
//! specify.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::reddit::ann;
use super::support::{ScriptStep, ScriptedServer, comment_on, connector, now, unpublish_post, unused_address};
use crate::support::oauth::{bearer, form};

#[derive(Default)]
struct State {
    /// The names of the posts that exist.
    posts: Vec<String>,
    /// Newest last.
    comments: Vec<Value>,
    /// Whether the account was connected without the scope `edit`.
    may_not_edit: bool,
    scripted: VecDeque<ResponseTemplate>,
}

#[derive(Clone, Default)]
struct Reddit(Arc<Mutex<State>>);

fn response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

fn forbidden() -> ResponseTemplate {
    response(403, json!({ "message": "Forbidden", "error": 403 }))
}

fn submit_error(code: &str) -> ResponseTemplate {
    response(200, json!({ "json": { "errors": [[code, "It is so.", "parent"]] } }))
}

fn comment(state: &mut State, request: &Request) -> ResponseTemplate {
    let form = form(request);
    assert_eq!(form["api_type"], "json");
    if !state.posts.contains(&form["thing_id"]) {
        return forbidden();
    }
    let id = format!("c{}", state.comments.len() + 1);
    let made = json!({
        "name": format!("t1_{id}"), "id": id, "author": "ann_b", "body": form["text"], "parent_id": form["thing_id"],
        "link_id": form["thing_id"], "permalink": format!("/r/Bread/comments/p1/fresh/{id}/"),
        "created_utc": now().timestamp() as f64 + 5.0,
    });
    state.comments.push(made.clone());
    let things = json!([{ "kind": "t1", "data": made }]);
    response(200, json!({ "json": { "errors": [], "data": { "things": things } } }))
}

fn newest(state: &State) -> ResponseTemplate {
    let children: Vec<Value> = state.comments.iter().rev().map(|data| json!({ "kind": "t1", "data": data })).collect();
    response(200, json!({ "kind": "Listing", "data": { "children": children, "after": null } }))
}

/// Returns the same whether the account has the post or comment, or not.
fn delete(state: &mut State, request: &Request) -> ResponseTemplate {
    if state.may_not_edit {
        return forbidden().insert_header("www-authenticate", "Bearer realm=\"reddit\", error=\"insufficient_scope\"");
    }
    let name = form(request)["id"].clone();
    state.posts.retain(|post| *post != name);
    state.comments.retain(|comment| comment["name"] != name.as_str());
    response(200, json!({}))
}

impl Respond for Reddit {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        assert_eq!(bearer(request), "access-0");
        assert!(request.headers["user-agent"].to_str().unwrap().contains("/u/ann_b"));
        let mut state = self.0.lock().unwrap();
        if let Some(response) = state.scripted.pop_front() {
            return response;
        }
        match (request.method.as_str(), request.url.path()) {
            ("POST", "/api/comment") => comment(&mut state, request),
            ("GET", "/user/ann_b/comments") => newest(&state),
            ("POST", "/api/del") => delete(&mut state, request),
            other => panic!("no such call: {other:?}"),
        }
    }
}

impl Reddit {
    fn script(&self, response: ResponseTemplate) {
        self.0.lock().unwrap().scripted.push_back(response);
    }

    fn comments(&self) -> Vec<Value> {
        self.0.lock().unwrap().comments.clone()
    }
}

/// A server with the post `t3_p1`.
async fn start() -> (Reddit, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let fake = Reddit::default();
    fake.0.lock().unwrap().posts.push("t3_p1".to_owned());
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
    let connector = connector(Platform::Reddit, &server.uri());
    (fake, server, connector, ann())
}

#[tokio::test]
async fn a_first_comment_is_written_below_the_post() {
    let (fake, _server, connector, account) = start().await;
    // The options of the target are not needed.
    let outgoing = comment_on(connector.as_ref(), "Recipe & <more>", "t3_p1");
    let published = connector.publish(&account, &outgoing).await.unwrap();
    let url = "https://www.reddit.com/r/Bread/comments/p1/fresh/c1/".to_owned();
    assert_eq!(published, Published::new("t1_c1", Some(url)));
    let made = fake.comments();
    assert_eq!((made.len(), &made[0]["parent_id"], &made[0]["body"]), (1, &json!("t3_p1"), &json!("Recipe & <more>")));
}

#[tokio::test]
async fn a_comment_on_a_post_that_is_not_there_yet_is_retried() {
    let (fake, _server, connector, account) = start().await;
    // Reddit returns no ID for a post with one image, and 403 for a comment on a post that does not exist.
    for unknown in ["", "t3_p2"] {
        let outgoing = comment_on(connector.as_ref(), "Recipe", unknown);
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::ParentMissing(_)), "{unknown:?}: {error:?}");
    }
    let outgoing = comment_on(connector.as_ref(), "Recipe", "t3_p1");
    fake.script(response(404, json!({ "message": "Not Found", "error": 404 })));
    let error = connector.publish(&account, &outgoing).await.unwrap_err();
    let CallError::ParentMissing(failure) = error else { panic!("{error:?}") };
    assert!(failure.message.contains("no longer exists") && failure.platform_code.as_deref() == Some("404"));
    assert!(fake.comments().is_empty());
    connector.publish(&account, &outgoing).await.unwrap();
}

#[tokio::test]
async fn a_comment_that_reddit_rejects_has_failed() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "Recipe", "t3_p1");
    for (code, category) in [
        ("DELETED_LINK", Category::PlatformRejected),
        ("THREAD_LOCKED", Category::PlatformRejected),
        ("TOO_OLD", Category::PlatformRejected),
        ("TOO_LONG", Category::InvalidContent),
        ("BANNED_FROM_SUBREDDIT", Category::Account),
    ] {
        fake.script(submit_error(code));
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        let CallError::Permanent(failure) = error else { panic!("{code}: {error:?}") };
        assert_eq!((failure.category, failure.platform_code.as_deref()), (category, Some(code)));
    }
    let limit = json!({ "json": { "ratelimit": 12.3, "errors": [["RATELIMIT", "wait", "ratelimit"]] } });
    fake.script(response(200, limit));
    let limited = connector.publish(&account, &outgoing).await.unwrap_err();
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::seconds(13)));
    fake.script(response(401, json!({ "message": "Unauthorized", "error": 401 })));
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::AuthExpired(_))));
}

#[tokio::test]
async fn a_comment_with_a_lost_response_is_found_below_its_post() {
    let (fake, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "Recipe", "t3_p1");
    assert!(connector.can_reconcile());
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    let published = connector.publish(&account, &outgoing).await.unwrap();
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Matches(vec![published]));
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    let other_text = comment_on(connector.as_ref(), "Other", "t3_p1");
    let other_post = comment_on(connector.as_ref(), "Recipe", "t3_p2");
    for other in [later, other_text, other_post] {
        assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    }
    fake.script(ResponseTemplate::new(500));
    assert!(matches!(connector.reconcile(&account, &outgoing).await, Err(CallError::Transient(_))));
    for response in [ResponseTemplate::new(503), response(200, json!({ "json": {} }))] {
        fake.script(response);
        assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::Unknown(_))));
    }
    let broken = connector_of(ScriptedServer::start(vec![ScriptStep::HangUp]).await.base.as_str());
    let error = broken.publish(&account, &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
}

fn connector_of(base: &str) -> Arc<dyn Connector> {
    connector(Platform::Reddit, base)
}

#[tokio::test]
async fn posts_and_comments_are_deleted_and_a_deletion_can_be_repeated() {
    let (fake, _server, connector, account) = start().await;
    connector.publish(&account, &comment_on(connector.as_ref(), "Recipe", "t3_p1")).await.unwrap();
    connector.publish(&account, &comment_on(connector.as_ref(), "More", "t3_p1")).await.unwrap();
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("t1_c1")).await.unwrap();
        let left = fake.comments();
        assert_eq!((left.len(), &left[0]["name"]), (1, &json!("t1_c2")));
    }
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("t3_p1")).await.unwrap();
        assert!(fake.0.lock().unwrap().posts.is_empty());
    }
}

#[tokio::test]
async fn a_deletion_without_the_scope_names_it() {
    let (fake, _server, connector, account) = start().await;
    fake.0.lock().unwrap().may_not_edit = true;
    let error = connector.unpublish(&account, &unpublish_post("t3_p1")).await.unwrap_err();
    let CallError::Permanent(failure) = error else { panic!("{error:?}") };
    assert_eq!((failure.code.as_str(), failure.category), ("missing_permission", Category::Account));
    assert!(
        failure.message.contains("Missing: edit.") && failure.message.contains("Connect the account again."),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_deletion_with_a_lost_response_is_repeated() {
    let (fake, _server, connector, account) = start().await;
    let post = unpublish_post("t3_p1");
    fake.script(response(401, json!({ "message": "Unauthorized", "error": 401 })));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::AuthExpired(_))));
    fake.script(ResponseTemplate::new(429).insert_header("X-Ratelimit-Reset", "42"));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { until: Some(_), .. })));
    fake.script(ResponseTemplate::new(503));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Transient(_))));
    let broken = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    for base in [broken.base.clone(), unused_address().await] {
        let error = connector_of(&base).unpublish(&account, &post).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    }
}
