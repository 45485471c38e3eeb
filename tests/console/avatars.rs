//! The avatars of accounts, which come from hostile servers.

use std::net::TcpListener;
use std::time::Duration;

use crier_domain::access::Role;
use crier_store::accounts::{self, NewAccount};
use wiremock::matchers::path as at;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::client::until;
use crate::support::console::ConsoleUser;
use crate::support::images;
use crate::support::store::new_account;

on_one_app!(console "unlimited" =>
    pages_show_the_avatar,
    many_requests_read_an_avatar_once,
    an_avatar_is_read_again_after_a_day_and_from_another_url,
    an_avatar_that_cannot_be_read_is_read_again_after_an_hour,
    a_slow_avatar_is_shown_later,
);
on_one_app!(only_members_of_the_brand_see_an_avatar);

/// Connects an account with this avatar, or changes its avatar. Returns the avatar's path in the console.
async fn connect(t: &Tenant<'_>, avatar_url: &str) -> String {
    let new = NewAccount { avatar_url: Some(avatar_url.to_owned()), ..new_account("demo", "token") };
    let account = t.store_account(&new).await;
    t.path(&format!("/accounts/{account}/avatar"))
}

async fn respond(server: &MockServer, path: &str, response: ResponseTemplate) {
    Mock::given(at(path)).respond_with(response).mount(server).await;
}

fn body(bytes: Vec<u8>, media_type: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(bytes, media_type)
}

/// Starts a server with an image at `/a.png` and `/b.png`.
async fn server() -> MockServer {
    let server = MockServer::start().await;
    respond(&server, "/a.png", body(images::png(400, 400), "image/png")).await;
    respond(&server, "/b.png", body(images::webp(20, 30), "image/webp")).await;
    server
}

/// Returns the number of requests that a server received.
async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

async fn pages_show_the_avatar(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let server = server().await;
    let path = connect(&t, &format!("{}/a.png", server.uri())).await;
    let face = format!("<img class=\"face\" src=\"{path}\"");
    person.get(&t.path("/accounts")).await.expect(200, &face);
    person.get(&path.replace("/avatar", "/signature")).await.expect(200, &face);
    let account = path.split('/').nth(4).unwrap();
    let composer = t.path("/posts/new");
    let fields = [("content", "Bread"), ("accounts", account), ("_action", "check")];
    person.get(&composer).await.expect(200, &face);
    let preview = person.submit(&composer, &composer, &fields).await;
    preview.expect(200, &format!("<span class=\"avatar\" aria-hidden=\"true\">D{face}"));

    let reply = person.get(&path).await.reply;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("image/jpeg")));
    assert_eq!(reply.header("cache-control"), Some("private, max-age=3600"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let shown = image::load_from_memory(&reply.body).unwrap();
    assert_eq!((shown.width(), shown.height()), (96, 96));
    assert!(reply.body.len() <= 20_000, "{}", reply.body.len());
    let again = t.app.visit("GET", &format!("{}{path}", t.app.url)).header("cookie", &person.cookie);
    let again = again.header("if-none-match", reply.header("etag").expect("a tag")).send().await;
    assert_eq!((again.status, again.body.len()), (304, 0));

    t.app.sql("UPDATE social_accounts SET avatar_url = NULL").await;
    person.get(&path).await.expect(404, "");
    assert!(!person.get(&t.path("/accounts")).await.has("class=\"face\""));
}

async fn many_requests_read_an_avatar_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let server = MockServer::start().await;
    let image = body(images::png(20, 20), "image/png").set_delay(Duration::from_millis(200));
    respond(&server, "/a.png", image).await;
    let path = connect(&t, &format!("{}/a.png", server.uri())).await;
    let pages = futures::future::join_all((0..20).map(|_| person.get(&path))).await;
    assert!(pages.iter().all(|page| [200, 404].contains(&page.status)), "{pages:?}");
    // A request does not wait longer than two seconds.
    until("the avatar is stored", || async { (person.get(&path).await.status == 200).then_some(()) }).await;
    assert_eq!(requests(&server).await, 1);
}

async fn an_avatar_is_read_again_after_a_day_and_from_another_url(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let server = server().await;
    let url = |name: &str| format!("{}/{name}", server.uri());
    let path = connect(&t, &url("a.png")).await;
    let show = async || {
        let reply = person.get(&path).await.reply;
        (reply.status, reply.body, requests(&server).await)
    };
    let (status, first, count) = show().await;
    assert_eq!((status, count), (200, 1));
    t.app.advance(23 * 3_600);
    assert_eq!(show().await, (200, first.clone(), 1));
    t.app.advance(2 * 3_600);
    assert_eq!(show().await, (200, first.clone(), 2));

    connect(&t, &url("b.png")).await;
    let (status, second, count) = show().await;
    assert_eq!((status, count), (200, 3));
    assert_ne!(second, first);
    connect(&t, &url("missing.png")).await;
    assert_eq!(show().await, (200, second, 4), "the last one remains");

    let account = path.split('/').nth(4).unwrap().parse().unwrap();
    assert_eq!(t.app.count_rows("account_avatars").await, 1);
    t.app.write(async |tx| accounts::disconnect(tx, t.brand, account).await).await;
    assert_eq!(t.app.count_rows("account_avatars").await, 0);
    person.get(&path).await.expect(404, "Page not found");
}

async fn an_avatar_that_cannot_be_read_is_read_again_after_an_hour(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let server = server().await;
    let private = MockServer::builder().listener(TcpListener::bind("127.0.0.2:0").unwrap()).start().await;
    let mut large = images::png(20, 20);
    large.resize(6 << 20, 0);
    // The width and the height.
    let mut wide = images::png(20, 20);
    wide[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let redirect = ResponseTemplate::new(302).insert_header("location", format!("{}/a.png", private.uri()));
    let svg = b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"/>";
    for (path, response) in [
        ("/html", body(b"<script>alert(1)</script>".to_vec(), "image/png")),
        ("/svg", body(svg.to_vec(), "image/svg+xml")),
        ("/large", body(large, "image/png")),
        ("/wide", body(wide, "image/png")),
        ("/redirect", redirect),
        ("/error", ResponseTemplate::new(500)),
    ] {
        respond(&server, path, response).await;
    }
    let late = Mock::given(at("/late")).respond_with(ResponseTemplate::new(503)).up_to_n_times(1);
    late.mount(&server).await;
    respond(&server, "/late", body(images::jpeg(20, 20), "image/jpeg")).await;

    let mut path = String::new();
    for (index, name) in ["html", "svg", "large", "wide", "redirect", "error", "late"].into_iter().enumerate() {
        path = connect(&t, &format!("{}/{name}", server.uri())).await;
        for _ in 0..2 {
            let page = person.get(&path).await;
            page.expect(404, "This account has no avatar.");
            assert_eq!(page.reply.header("cache-control"), Some("private, max-age=60"), "{name}");
        }
        assert_eq!(requests(&server).await, index + 1, "{name}");
    }
    assert_eq!(requests(&private).await, 0);
    t.app.advance(3_601);
    assert_eq!(person.get(&path).await.status, 200);
}

/// Waits for real time, because the time limits of requests do not use the clock: two seconds for a page, and ten to read
/// the image.
async fn a_slow_avatar_is_shown_later(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let server = MockServer::start().await;
    let slow = body(images::png(20, 20), "image/png").set_delay(Duration::from_secs(6));
    respond(&server, "/a.png", slow).await;
    let path = connect(&t, &format!("{}/a.png", server.uri())).await;
    person.get(&path).await.expect(404, "This account has no avatar.");
    until("the avatar is stored", || async { (person.get(&path).await.status == 200).then_some(()) }).await;
    assert_eq!(requests(&server).await, 1);
}

async fn only_members_of_the_brand_see_an_avatar(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let server = server().await;
    let path = connect(&t, &format!("{}/a.png", server.uri())).await;
    let stranger = ConsoleUser::sign_in(&other).await;
    stranger.get(&path).await.expect(404, "Page not found");
    let account = path.split('/').nth(4).unwrap();
    stranger.get(&other.path(&format!("/accounts/{account}/avatar"))).await.expect(404, "Page not found");
    assert_eq!(app.page(&path).await.status, 303);
    assert_eq!(requests(&server).await, 0);
    let member = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    assert_eq!(member.get(&path).await.status, 200);
}
