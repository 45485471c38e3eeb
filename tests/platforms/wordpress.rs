//! WordPress, against a server that responds like its REST API.

use crier_domain::failure::Category;
use crier_domain::platform::{AccountKind, Platform};
use crier_platforms::{CallError, ConnectError, Connected, ConnectorAccount, OutgoingPost, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::{basic_auth, body_bytes, body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, post, publish, secrets, shown, unused_address,
};
use crate::support::request::assert_fields;

const PASSWORD: &str = "abcd EFGH 1234";

pub(super) fn wordpress_account(base: &str) -> ConnectorAccount {
    let root = format!("{base}/wp-json/");
    account(base, json!({ "username": "ada", "application_password": PASSWORD, "api_root": root, "site_url": base }))
}

pub(super) fn rejected(status: u16, code: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status)
        .set_body_json(json!({ "code": code, "message": message, "data": { "status": status } }))
}

fn me(may_publish: bool) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({
        "id": 3,
        "name": "Ada",
        "capabilities": { "read": true, "publish_posts": may_publish },
        "avatar_urls": { "24": "https://a/24", "96": "https://a/96" },
    }))
}

/// A site whose front page links to its REST API, where `/users/me` returns `me`.
async fn site(me: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    let link = format!("<{}/wp-json/>; rel=\"https://api.w.org/\"", server.uri());
    let page = ResponseTemplate::new(200)
        .insert_header("Link", "</style.css>; rel=preload")
        .append_header("Link", link.as_str());
    Mock::given(path("/")).respond_with(page).mount(&server).await;
    Mock::given(path("/wp-json/wp/v2/users/me"))
        .and(query_param("context", "edit"))
        .and(basic_auth("ada", PASSWORD))
        .respond_with(me)
        .mount(&server)
        .await;
    let index = ResponseTemplate::new(200).set_body_json(json!({ "name": "Ada's blog" }));
    Mock::given(path("/wp-json/")).respond_with(index).mount(&server).await;
    server
}

async fn connect_to(site_url: &str) -> Result<Connected, ConnectError> {
    let credentials = secrets(json!({ "site_url": site_url, "username": " ada", "application_password": PASSWORD }));
    connector(Platform::Wordpress, "http://unused.example").connect(1, &credentials).await
}

/// Publishes a post to a site where `POST /wp/v2/posts` returns this response. Returns the error.
async fn publish_expecting_error(response: ResponseTemplate) -> CallError {
    let server = MockServer::start().await;
    Mock::given(path("/wp-json/wp/v2/posts")).respond_with(response).mount(&server).await;
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    wordpress.publish(&wordpress_account(&server.uri()), &post(wordpress.as_ref(), "Hi")).await.unwrap_err()
}

fn created(slug: &str) -> Value {
    json!({ "id": 11, "link": format!("https://blog.example/{slug}/"), "slug": slug })
}

#[tokio::test]
async fn connecting_discovers_the_api_and_checks_the_user() {
    let server = site(me(true)).await;
    let connected = connect_to(&format!("{}/?utm=x", server.uri())).await.unwrap();
    assert_eq!((connected.external_id, connected.name.as_str()), (server.uri(), "Ada's blog"));
    assert_eq!((connected.username.as_deref(), connected.kind), (Some("ada"), AccountKind::Site));
    assert_eq!(connected.avatar_url.as_deref(), Some("https://a/96"));
    let kept = shown(&connected.secrets);
    assert_fields(&kept, json!({ "api_root": format!("{}/wp-json/", server.uri()), "application_password": PASSWORD }));
}

#[tokio::test]
async fn a_redirect_to_the_site_url_is_followed() {
    let server = site(me(true)).await;
    let old = MockServer::start().await;
    let moved = ResponseTemplate::new(301).insert_header("Location", format!("{}/", server.uri()).as_str());
    Mock::given(path("/blog/")).respond_with(moved).expect(1).mount(&old).await;
    let connected = connect_to(&format!("{}/blog", old.uri())).await.unwrap();
    assert_eq!(connected.external_id, server.uri());
}

#[tokio::test]
async fn a_site_without_permalinks_uses_rest_route() {
    let server = MockServer::start().await;
    Mock::given(path("/blog/"))
        .and(query_param("rest_route", "/wp/v2/users/me"))
        .and(query_param("context", "edit"))
        .respond_with(me(true))
        .mount(&server)
        .await;
    let base = format!("{}/blog", server.uri());
    let connected = connect_to(&base).await.unwrap();
    assert_eq!(shown(&connected.secrets)["api_root"], json!(format!("{base}/?rest_route=/")));
    assert_eq!((connected.external_id, connected.name), (base, "127.0.0.1".to_owned()));
}

#[tokio::test]
async fn bad_credentials_and_missing_permissions_are_rejected() {
    let none = ResponseTemplate::new(200).set_body_json(json!({ "id": 3, "capabilities": [] }));
    for (response, word) in [
        (
            rejected(401, "incorrect_password", "The provided password is an <b>invalid</b> application password."),
            "an invalid application",
        ),
        (rejected(401, "rest_not_logged_in", "You are not currently logged in."), "logged in"),
        (rejected(403, "rest_forbidden_context", "Sorry, you are not allowed to edit users."), "not allow"),
        (me(false), "Author"),
        (none, "Author"),
    ] {
        let server = site(response).await;
        let rejection = connect_to(&server.uri()).await.unwrap_err();
        assert!(matches!(&rejection, ConnectError::Rejected(message) if message.contains(word)), "{rejection:?}");
    }
}

#[tokio::test]
async fn invalid_and_unreachable_site_urls_are_rejected() {
    let page = MockServer::start().await;
    Mock::given(method("GET")).respond_with(ResponseTemplate::new(200).set_body_string("<html>")).mount(&page).await;
    let empty = MockServer::start().await;
    for base in [page.uri(), empty.uri()] {
        assert!(
            matches!(connect_to(&base).await, Err(ConnectError::Rejected(m)) if m.contains("No WordPress REST API"))
        );
    }
    for url in
        ["blog", "mailto:a@b.c", "https://user@blog.example", "https://rejected.example", &"https://a/".repeat(300)]
    {
        let rejection = connect_to(url).await.unwrap_err();
        assert!(matches!(rejection, ConnectError::Field { field: "site_url", .. }), "{rejection:?}");
    }
    assert!(matches!(connect_to(&unused_address().await).await, Err(ConnectError::Unavailable(_))));
    let broken = site(ResponseTemplate::new(503)).await;
    assert!(matches!(connect_to(&broken.uri()).await, Err(ConnectError::Unavailable(_))));
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_rejected_host() {
    let server = MockServer::start().await;
    let link = "<https://rejected.example/wp-json/>; rel=\"https://api.w.org/\"";
    Mock::given(path("/")).respond_with(ResponseTemplate::new(200).insert_header("Link", link)).mount(&server).await;
    assert!(matches!(connect_to(&server.uri()).await, Err(ConnectError::Field { field: "site_url", .. })));
}

#[tokio::test]
async fn a_text_becomes_a_title_and_paragraphs() {
    let server = MockServer::start().await;
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    let outgoing = post(wordpress.as_ref(), "Fish & <Chips>\n\nFirst\nline\n\n\"Second\"");
    let slug = outgoing.marker["slug"].as_str().unwrap().to_owned();
    assert_eq!(slug, "post-7-2r");
    Mock::given(method("POST"))
        .and(path("/wp-json/wp/v2/posts"))
        .and(basic_auth("ada", PASSWORD))
        .and(body_json(json!({
            "title": "Fish &amp; &lt;Chips&gt;",
            "content": "<p>First<br />\nline</p>\n<p>&quot;Second&quot;</p>",
            "status": "publish",
            "slug": slug,
        })))
        .respond_with(ResponseTemplate::new(201).set_body_json(created(&slug)))
        .expect(1)
        .mount(&server)
        .await;
    let published = wordpress.publish(&wordpress_account(&server.uri()), &outgoing).await.unwrap();
    assert_eq!(published, Published::new("11", Some("https://blog.example/post-7-2r/".to_owned())));
}

/// Expects one upload of each of these images: name, number in the file name, media id.
async fn media(server: &MockServer, uploads: &[(&str, u32, i64)]) {
    for &(name, number, id) in uploads {
        let disposition = format!("attachment; filename=\"post-7-2r-{number}.png\"");
        Mock::given(method("POST"))
            .and(path("/wp-json/wp/v2/media"))
            .and(basic_auth("ada", PASSWORD))
            .and(header("content-type", "image/png"))
            .and(header("content-disposition", disposition.as_str()))
            .and(body_bytes(format!("bytes of {name}").into_bytes()))
            .respond_with(
                ResponseTemplate::new(201)
                    .set_body_json(json!({ "id": id, "source_url": format!("https://b/{name}.png") })),
            )
            .expect(1)
            .mount(server)
            .await;
    }
}

async fn alt_texts(server: &MockServer) {
    for (name, id) in [("cat", 21), ("dog", 22)] {
        Mock::given(method("POST"))
            .and(path(format!("/wp-json/wp/v2/media/{id}")))
            .and(body_json(json!({ "alt_text": format!("a <{name}>") })))
            .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "id": id })))
            .expect(1)
            .mount(server)
            .await;
    }
}

async fn publish_with_images(server: &MockServer, again: bool) -> Value {
    let response = ResponseTemplate::new(201).set_body_json(created("post-7-2r"));
    Mock::given(method("POST")).and(path("/wp-json/wp/v2/posts")).respond_with(response).mount(server).await;
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    let mut outgoing = OutgoingPost {
        images: vec![image("cat"), image("dog")],
        has_earlier_attempt: again,
        ..post(wordpress.as_ref(), "Pets")
    };
    publish(wordpress.as_ref(), &wordpress_account(&server.uri()), &mut outgoing).await.unwrap();
    let requests = server.received_requests().await.unwrap();
    requests.iter().find(|r| r.url.path().ends_with("/posts") && r.method == "POST").unwrap().body_json().unwrap()
}

#[tokio::test]
async fn the_first_image_is_featured_and_the_rest_a_gallery() {
    let server = MockServer::start().await;
    media(&server, &[("cat", 1, 21), ("dog", 2, 22)]).await;
    alt_texts(&server).await;
    let body = publish_with_images(&server, false).await;
    assert_eq!((&body["featured_media"], &body["title"]), (&json!(21), &json!("Pets")));
    let content = body["content"].as_str().unwrap();
    assert!(content.starts_with("<p>Pets</p>\n<!-- wp:gallery"), "{content}");
    let figure = "<img src=\"https://b/dog.png\" alt=\"a &lt;dog&gt;\" class=\"wp-image-22\"/>";
    assert!(content.contains(figure) && !content.contains("cat.png"), "{content}");
}

#[tokio::test]
async fn a_retry_reuses_uploaded_media() {
    let server = MockServer::start().await;
    for (what, slug, found) in [
        ("posts", "post-7-2r", json!([])),
        // Some plugins return similar slugs as well.
        (
            "media",
            "post-7-2r-1",
            json!([
                { "id": 20, "slug": "post-7-2r-1-2", "source_url": "https://b/other.png" },
                { "id": 21, "slug": "post-7-2r-1", "source_url": "https://b/cat.png" },
            ]),
        ),
        ("media", "post-7-2r-2", json!([])),
    ] {
        Mock::given(method("GET"))
            .and(path(format!("/wp-json/wp/v2/{what}")))
            .and(query_param("slug", slug))
            .respond_with(ResponseTemplate::new(200).set_body_json(found))
            .expect(1)
            .mount(&server)
            .await;
    }
    media(&server, &[("dog", 2, 22)]).await;
    alt_texts(&server).await;
    assert_eq!(publish_with_images(&server, true).await["featured_media"], json!(21));
}

#[tokio::test]
async fn a_retry_finds_the_existing_post() {
    let server = MockServer::start().await;
    let found = ResponseTemplate::new(200).set_body_json(json!([created("post-7-2r")]));
    Mock::given(method("GET")).and(path("/wp-json/wp/v2/posts")).respond_with(found).expect(1).mount(&server).await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(201)).expect(0).mount(&server).await;
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    let outgoing = OutgoingPost { has_earlier_attempt: true, ..post(wordpress.as_ref(), "Hi") };
    let published = wordpress.publish(&wordpress_account(&server.uri()), &outgoing).await.unwrap();
    assert_eq!(published.external_id, "11");
}

#[tokio::test]
async fn errors_are_classified_by_code() {
    assert!(matches!(
        publish_expecting_error(rejected(401, "rest_cannot_create", "Sorry")).await,
        CallError::Reauth(_)
    ));
    for (status, code, category) in [
        (403, "rest_cannot_create", Category::Account),
        (403, "rest_cannot_publish", Category::Account),
        (400, "empty_content", Category::InvalidContent),
        (404, "rest_no_route", Category::Account),
        (413, "", Category::InvalidContent),
    ] {
        let error = publish_expecting_error(rejected(status, code, "Sorry, you are not allowed.")).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == category), "{code}: {error:?}");
        assert!(error.failure().message.contains("Sorry, you are not allowed."), "{error}");
    }
    assert!(matches!(publish_expecting_error(rejected(500, "db_insert_error", "x")).await, CallError::Unknown(_)));
    assert!(matches!(publish_expecting_error(ResponseTemplate::new(301)).await, CallError::Permanent(_)));
    let limited = publish_expecting_error(ResponseTemplate::new(429).insert_header("Retry-After", "7")).await;
    assert!(matches!(limited, CallError::RateLimited { until: Some(_), .. }));
    let notice = ResponseTemplate::new(201).set_body_string("<br />Warning: …{\"id\":1}");
    assert!(
        matches!(publish_expecting_error(notice).await, CallError::Unknown(_)),
        "created, but its id cannot be read"
    );
}

#[tokio::test]
async fn a_rejected_image_is_permanent_despite_status_500() {
    for (response, permanent) in [
        (rejected(500, "rest_upload_sideload_error", "Sorry, you are not allowed to upload this file type."), true),
        (rejected(500, "internal_server_error", "x"), false),
    ] {
        let server = MockServer::start().await;
        Mock::given(path("/wp-json/wp/v2/media")).respond_with(response).mount(&server).await;
        let wordpress = connector(Platform::Wordpress, "http://unused.example");
        let mut outgoing = OutgoingPost { images: vec![image("cat")], ..post(wordpress.as_ref(), "Pets") };
        let error = publish(wordpress.as_ref(), &wordpress_account(&server.uri()), &mut outgoing).await.unwrap_err();
        assert_eq!(matches!(error, CallError::Permanent(_)), permanent, "{error:?}");
        assert_eq!(matches!(error, CallError::Transient(_)), !permanent, "{error:?}");
    }
}

async fn reconcile_after_disconnect(status: u16, look_up: Value) -> (Result<ReconcileResult, CallError>, Vec<String>) {
    let script = ScriptedServer::start(vec![ScriptStep::HangUp, ScriptStep::Respond(status, look_up)]).await;
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    let (account, outgoing) = (wordpress_account(&script.base), post(wordpress.as_ref(), "Hi"));
    assert!(matches!(wordpress.publish(&account, &outgoing).await, Err(CallError::Unknown(_))));
    assert!(wordpress.can_reconcile());
    (wordpress.reconcile(&account, &outgoing).await, script.requests())
}

/// A plugin may hold back the posts of all users.
#[tokio::test]
async fn a_post_that_is_held_back_is_not_published() {
    let held = |slug: &str| {
        let mut post = created(slug);
        post["status"] = json!("pending");
        post
    };
    let error = publish_expecting_error(ResponseTemplate::new(201).set_body_json(held("post-7-2r"))).await;
    let is_right = matches!(&error, CallError::Permanent(failure) if failure.message.contains("\"pending\""));
    assert!(is_right, "{error:?}");
    let (found, _) = reconcile_after_disconnect(200, json!([held("post-7-2r")])).await;
    assert_eq!(found.unwrap(), ReconcileResult::Rejected(error));
}

#[tokio::test]
async fn reconcile_finds_the_post_by_slug() {
    let (found, requests) = reconcile_after_disconnect(200, json!([created("post-7-2r")])).await;
    assert!(matches!(found.unwrap(), ReconcileResult::Found(published) if published.external_id == "11"));
    let asked = "GET /wp-json/wp/v2/posts?slug=post-7-2r&status=publish%2Cfuture%2Cdraft%2Cpending%2Cprivate";
    assert!(requests[1].starts_with(asked), "{}", requests[1]);
    assert!(requests[0].contains("\"slug\":\"post-7-2r\""));

    assert_eq!(reconcile_after_disconnect(200, json!([])).await.0.unwrap(), ReconcileResult::Absent);
    assert_eq!(
        reconcile_after_disconnect(200, json!([created("post-7-2r-2")])).await.0.unwrap(),
        ReconcileResult::Absent
    );
    let visitor =
        json!({ "code": "rest_invalid_param", "message": "Invalid parameter(s): status", "data": { "status": 400 } });
    assert!(matches!(reconcile_after_disconnect(400, visitor).await.0, Err(CallError::Reauth(_))));
    assert!(matches!(reconcile_after_disconnect(502, json!({})).await.0, Err(CallError::Transient(_))));
}

#[tokio::test]
async fn a_refresh_checks_the_credentials() {
    let wordpress = connector(Platform::Wordpress, "http://unused.example");
    let good = site(me(true)).await;
    assert!(wordpress.refresh(&wordpress_account(&good.uri())).await.unwrap().secrets.is_none());
    let bad = site(rejected(401, "incorrect_password", "x")).await;
    assert!(matches!(wordpress.refresh(&wordpress_account(&bad.uri())).await, Err(CallError::Reauth(_))));
    let demoted = site(me(false)).await;
    assert!(matches!(wordpress.refresh(&wordpress_account(&demoted.uri())).await, Err(CallError::Permanent(_))));
    let away = unused_address().await;
    assert!(matches!(wordpress.refresh(&wordpress_account(&away)).await, Err(CallError::Transient(_))));
}
