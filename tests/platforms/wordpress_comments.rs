//! First comments and deletions on WordPress, against a site that responds like its REST API.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, Published, ReconcileResult, UnpublishPost};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{ScriptStep, ScriptedServer, account, comment_on, connector, now, unpublish_post, unused_address};

const ME: i64 = 3;

#[derive(Default)]
struct State {
    /// The status of each post: `publish`, `trash`, or `closed` if it is published and its comments are closed.
    posts: BTreeMap<String, &'static str>,
    comments: Vec<Value>,
    /// Whether a plugin holds new comments for moderation.
    holds: bool,
    has_no_trash: bool,
    scripted: VecDeque<ResponseTemplate>,
}

#[derive(Clone, Default)]
struct Site(Arc<Mutex<State>>);

fn rejected(status: u16, code: &str) -> ResponseTemplate {
    ResponseTemplate::new(status)
        .set_body_json(json!({ "code": code, "message": "Sorry.", "data": { "status": status } }))
}

fn parameter(request: &Request, name: &str) -> Option<String> {
    request.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn write(state: &mut State, request: &Request) -> ResponseTemplate {
    let body: Value = request.body_json().unwrap();
    let (post, content) = (body["post"].as_str().unwrap(), body["content"].as_str().unwrap());
    match state.posts.get(post) {
        None => return rejected(403, "rest_comment_invalid_post_id"),
        Some(&"trash") => return rejected(403, "rest_comment_trash_post"),
        Some(&"closed") => return rejected(403, "rest_comment_closed"),
        Some(_) => {}
    }
    let is_same =
        |one: &Value| one["sent"] == content && one["post"].as_i64() == post.parse().ok() && one["status"] != "trash";
    if state.comments.iter().any(is_same) {
        return rejected(409, "comment_duplicate");
    }
    let id = 900 + state.comments.len();
    let shown = content.replace("&quot;", "&#8221;");
    let made = json!({
        "id": id, "post": post.parse::<i64>().unwrap(), "parent": 0, "author": ME, "author_name": "Ada",
        "date_gmt": (now() + TimeDelta::seconds(5)).format("%Y-%m-%dT%H:%M:%S").to_string(),
        "content": { "rendered": format!("<p>{shown}</p>\n") }, "sent": content,
        "link": format!("https://b.example/news/#comment-{id}"),
        "status": if state.holds { "hold" } else { "approved" },
    });
    state.comments.push(made.clone());
    ResponseTemplate::new(201).set_body_json(made)
}

fn list(state: &State, request: &Request) -> ResponseTemplate {
    let post = parameter(request, "post").unwrap();
    let is_shown = |one: &&Value| one["post"].as_i64() == post.parse().ok() && one["status"] == "approved";
    let found: Vec<&Value> = state.comments.iter().rev().filter(is_shown).collect();
    ResponseTemplate::new(200).set_body_json(found)
}

/// Moves a post or comment to the trash.
fn delete(state: &mut State, request: &Request, kind: &str, id: &str) -> ResponseTemplate {
    assert_eq!(parameter(request, "force"), None, "it can be restored");
    let status = match kind {
        "posts" => state.posts.get(id).map(|status| (*status).to_owned()),
        _ => {
            let comment = state.comments.iter().find(|one| one["id"].as_i64() == id.parse().ok());
            comment.map(|one| one["status"].as_str().unwrap().to_owned())
        }
    };
    match (status.as_deref(), kind) {
        (None, "posts") => return rejected(404, "rest_post_invalid_id"),
        (None, _) => return rejected(404, "rest_comment_invalid_id"),
        (Some("trash"), _) => return rejected(410, "rest_already_trashed"),
        (Some(_), _) if state.has_no_trash => return rejected(501, "rest_trash_not_supported"),
        (Some(_), "posts") => {
            state.posts.insert(id.to_owned(), "trash");
        }
        (Some(_), _) => {
            let comment = state.comments.iter_mut().find(|one| one["id"].as_i64() == id.parse().ok());
            comment.unwrap()["status"] = json!("trash");
        }
    }
    ResponseTemplate::new(200).set_body_json(json!({ "id": id.parse::<i64>().unwrap() }))
}

impl Respond for Site {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        assert_eq!(request.headers["authorization"], "Basic YWRhOnA=");
        let mut state = self.0.lock().unwrap();
        if let Some(response) = state.scripted.pop_front() {
            return response;
        }
        let path = request.url.path().strip_prefix("/wp-json/wp/v2/").unwrap();
        match (request.method.as_str(), path.split_once('/')) {
            ("GET", Some(("users", "me"))) => ResponseTemplate::new(200).set_body_json(json!({ "id": ME })),
            ("POST", None) if path == "comments" => write(&mut state, request),
            ("GET", None) if path == "comments" => list(&state, request),
            ("DELETE", Some((kind, id))) => delete(&mut state, request, kind, id),
            other => panic!("no such call: {other:?}"),
        }
    }
}

impl Site {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    fn script(&self, response: ResponseTemplate) {
        self.with(|state| state.scripted.push_back(response));
    }
}

fn ada(base: &str) -> ConnectorAccount {
    let root = format!("{base}/wp-json/");
    account(base, json!({ "username": "ada", "application_password": "p", "api_root": root, "site_url": base }))
}

fn wordpress() -> Arc<dyn Connector> {
    connector(Platform::Wordpress, "http://unused.example")
}

/// A site with the published post 11.
async fn start() -> (Site, MockServer, Arc<dyn Connector>, ConnectorAccount) {
    let site = Site::default();
    site.with(|state| state.posts.insert("11".to_owned(), "publish"));
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(site.clone()).mount(&server).await;
    let account = ada(&server.uri());
    (site, server, wordpress(), account)
}

fn comment_900() -> Published {
    Published::new("900", Some("https://b.example/news/#comment-900".to_owned()))
}

fn comment(external_id: &str) -> UnpublishPost {
    UnpublishPost { is_comment: true, ..unpublish_post(external_id) }
}

#[tokio::test]
async fn a_first_comment_is_written_below_the_post() {
    let (site, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "Recipe & <more>", "11");
    assert_eq!(outgoing.marker.get("slug"), None);
    assert_eq!(connector.publish(&account, &outgoing).await.unwrap(), comment_900());
    let made = site.with(|state| state.comments.clone());
    assert_eq!((made.len(), &made[0]["sent"]), (1, &json!("Recipe &amp; &lt;more&gt;")));
}

#[tokio::test]
async fn a_comment_that_is_held_for_moderation_is_published() {
    let (site, _server, connector, account) = start().await;
    site.with(|state| state.holds = true);
    let outgoing = comment_on(connector.as_ref(), "Recipe", "11");
    assert_eq!(connector.publish(&account, &outgoing).await.unwrap(), comment_900());
}

#[tokio::test]
async fn a_comment_on_a_post_that_the_site_does_not_know_is_retried() {
    let (site, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "Recipe", "12");
    let error = connector.publish(&account, &outgoing).await.unwrap_err();
    let CallError::ParentMissing(failure) = error else { panic!("{error:?}") };
    assert_eq!(failure.platform_code.as_deref(), Some("rest_comment_invalid_post_id"));
    site.with(|state| state.posts.insert("12".to_owned(), "publish"));
    connector.publish(&account, &outgoing).await.unwrap();
}

#[tokio::test]
async fn a_comment_that_the_site_rejects_has_failed() {
    let (site, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "Recipe", "11");
    for (status, category, says) in
        [("closed", Category::Account, "Comments are closed"), ("trash", Category::PlatformRejected, "in the trash")]
    {
        site.with(|state| state.posts.insert("11".to_owned(), status));
        let error = connector.publish(&account, &outgoing).await.unwrap_err();
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == category && f.message.contains(says));
        assert!(is_right, "{status}: {error:?}");
    }
    site.script(rejected(400, "comment_flood"));
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::Transient(_))));
    site.script(rejected(429, "too_many").insert_header("retry-after", "15"));
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::RateLimited { until: Some(_), .. })));
    site.script(rejected(401, "rest_comment_login_required"));
    assert!(matches!(connector.publish(&account, &outgoing).await, Err(CallError::Reauth(_))));
}

#[tokio::test]
async fn a_duplicate_is_not_mistaken_for_the_comment() {
    let (site, _server, connector, account) = start().await;
    let mut outgoing = comment_on(connector.as_ref(), "The \"recipe\"", "11");
    connector.publish(&account, &outgoing).await.unwrap();
    // A person may have written it. The worker looks it up if it is that of an earlier call.
    outgoing.has_earlier_attempt = true;
    let error = connector.publish(&account, &outgoing).await.unwrap_err();
    let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::DuplicateContent);
    assert!(is_right, "{error:?}");
    assert_eq!(site.with(|state| state.comments.len()), 1);
}

#[tokio::test]
async fn a_comment_with_a_lost_response_is_found_below_its_post() {
    let (site, _server, connector, account) = start().await;
    let outgoing = comment_on(connector.as_ref(), "The \"recipe\"", "11");
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent);
    connector.publish(&account, &outgoing).await.unwrap();
    let found = ReconcileResult::Matches(vec![comment_900()]);
    assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), found);
    let mut later = outgoing.clone();
    later.called_at = Some(now() + TimeDelta::hours(1));
    let other_text = comment_on(connector.as_ref(), "Other", "11");
    let other_post = comment_on(connector.as_ref(), "The \"recipe\"", "12");
    for other in [later, other_text, other_post] {
        assert_eq!(connector.reconcile(&account, &other).await.unwrap(), ReconcileResult::Absent);
    }
    // Comments of others, and replies of the account to comments.
    for (field, value) in [("author", json!(0)), ("parent", json!(5))] {
        let before = site.with(|state| std::mem::replace(&mut state.comments[0][field], value));
        assert_eq!(connector.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Absent, "{field}");
        site.with(|state| state.comments[0][field] = before);
    }
    let page = ResponseTemplate::new(201).set_body_string("<br />Warning: …{\"id\":1}");
    for response in [page, rejected(502, "")] {
        site.script(response);
        let other = comment_on(connector.as_ref(), "Other", "11");
        assert!(matches!(connector.publish(&account, &other).await, Err(CallError::Unknown(_))));
    }
    let broken = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let error = connector.publish(&ada(&broken.base), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
}

#[tokio::test]
async fn posts_and_comments_go_to_the_trash_and_a_deletion_can_be_repeated() {
    let (site, _server, connector, account) = start().await;
    connector.publish(&account, &comment_on(connector.as_ref(), "Recipe", "11")).await.unwrap();
    for _ in 0..2 {
        connector.unpublish(&account, &comment("900")).await.unwrap();
        let status = site.with(|state| (state.comments[0]["status"].clone(), state.posts["11"]));
        assert_eq!(status, (json!("trash"), "publish"));
    }
    for _ in 0..2 {
        connector.unpublish(&account, &unpublish_post("11")).await.unwrap();
        assert_eq!(site.with(|state| state.posts["11"]), "trash");
    }
}

#[tokio::test]
async fn what_was_deleted_for_good_is_gone() {
    let (site, _server, connector, account) = start().await;
    connector.unpublish(&account, &unpublish_post("12")).await.unwrap();
    connector.unpublish(&account, &comment("901")).await.unwrap();
    // The post of a comment was deleted with the comment.
    site.script(rejected(404, "rest_post_invalid_id"));
    connector.unpublish(&account, &comment("900")).await.unwrap();
    // Other responses with the same status do not prove it.
    for response in [rejected(404, "rest_no_route"), ResponseTemplate::new(404), ResponseTemplate::new(410)] {
        site.script(response);
        let error = connector.unpublish(&account, &unpublish_post("11")).await.unwrap_err();
        assert!(matches!(error, CallError::Permanent(_)), "{error:?}");
    }
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (site, _server, connector, account) = start().await;
    let post = unpublish_post("11");
    site.script(rejected(403, "rest_cannot_delete"));
    let error = connector.unpublish(&account, &post).await.unwrap_err();
    let CallError::Permanent(failure) = error else { panic!("{error:?}") };
    assert_eq!((failure.code.as_str(), failure.category), ("missing_permission", Category::Account));
    assert_eq!(failure.platform_code.as_deref(), Some("rest_cannot_delete"));
    site.with(|state| state.has_no_trash = true);
    let error = connector.unpublish(&account, &post).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.message.contains("trash")), "{error:?}");
    assert_eq!(site.with(|state| state.posts["11"]), "publish");
    site.script(rejected(401, "incorrect_password"));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Reauth(_))));
    site.script(ResponseTemplate::new(429).insert_header("Retry-After", "7"));
    assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::RateLimited { .. })));
    // A plugin's notice hides the response. The deletion is repeated.
    for response in [ResponseTemplate::new(200).set_body_string("<br />Notice"), rejected(502, "")] {
        site.script(response);
        assert!(matches!(connector.unpublish(&account, &post).await, Err(CallError::Transient(_))));
    }
    let broken = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    for base in [broken.base.clone(), unused_address().await] {
        let error = connector.unpublish(&ada(&base), &post).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    }
}
