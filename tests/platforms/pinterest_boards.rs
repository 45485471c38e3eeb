//! The boards of a Pinterest account, against a server that responds as its OpenAPI document specifies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::limits::Board;
use crier_domain::platform::Platform;
use crier_platforms::CallError;
use crier_scheduler::tasks;
use crier_store::accounts::{self, NewAccount};
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::support::{account, connect_in_browser, connector, now};
use crate::support::jobs::TestWorker;
use crate::support::oauth::{OAuthServer, TokenRules, bearer};
use crate::support::pinterest_videos::error;
use crate::support::store::{TestStore, new_account, on_both};

on_both!(boards_are_read_once_per_day, a_failed_reading_leaves_the_boards);

#[derive(Clone)]
struct Pinterest {
    oauth: Arc<OAuthServer>,
    boards: Arc<Mutex<ResponseTemplate>>,
    calls: Arc<AtomicUsize>,
}

impl Respond for Pinterest {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        if path == "/v5/oauth/token" {
            return self.oauth.token(request);
        }
        if !self.oauth.knows(&bearer(request)) {
            return error(401, 2, "Authentication failed.");
        }
        if path == "/v5/user_account" {
            let own = json!({ "id": "643", "username": "ann", "follower_count": 10, "following_count": 3 });
            return ResponseTemplate::new(200).set_body_json(own);
        }
        assert_eq!((request.method.as_str(), path), ("GET", "/v5/boards"));
        assert_eq!(request.url.query(), Some("page_size=250"));
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.boards.lock().unwrap().clone()
    }
}

impl Pinterest {
    async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(2_592_000), refreshes: true, ..TokenRules::default() };
        let fake = Self {
            oauth: Arc::new(OAuthServer::new(rules)),
            boards: Arc::new(Mutex::new(listed(&[("77", "Bread")]))),
            calls: Arc::default(),
        };
        fake.oauth.add_client("id", "secret");
        fake.oauth.add_token("access-0");
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    fn set(&self, boards: ResponseTemplate) {
        *self.boards.lock().unwrap() = boards;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Returns a page of boards.
fn listed(boards: &[(&str, &str)]) -> ResponseTemplate {
    let board = |(id, name): &(&str, &str)| {
        json!({
            "id": id, "name": name, "description": "All of them", "privacy": "PUBLIC", "pin_count": 5,
            "owner": { "username": "ann" }, "created_at": "2024-01-01T20:10:40",
        })
    };
    let items: Vec<Value> = boards.iter().map(board).collect();
    ResponseTemplate::new(200).set_body_json(json!({ "items": items, "bookmark": null }))
}

fn pairs(boards: &[Board]) -> Vec<(&str, &str)> {
    boards.iter().map(|board| (board.id.as_str(), board.name.as_str())).collect()
}

fn secrets() -> Value {
    json!({ "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret" })
}

#[tokio::test]
async fn an_account_is_connected_with_its_boards() {
    let (fake, server) = Pinterest::start().await;
    let connector = connector(Platform::Pinterest, &server.uri());
    let (_, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    let limits = connected.limits.unwrap();
    assert_eq!((pairs(&limits.boards), limits.read_at), (vec![("77", "Bread")], now()));
    for failed in [
        error(403, 29, "You are not permitted to access that resource."),
        error(429, 8, "This request exceeded a rate limit."),
        error(500, 11, "Something went wrong."),
        ResponseTemplate::new(200).set_body_string("<html>"),
    ] {
        fake.set(failed);
        let (_, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
        assert_eq!((connected.external_id.as_str(), connected.limits), ("643", None));
    }
}

#[tokio::test]
async fn boards_are_bounded() {
    let (fake, server) = Pinterest::start().await;
    let connector = connector(Platform::Pinterest, &server.uri());
    let account = account("643", secrets());
    let (long, too_long) = ("<b>".repeat(5_000), "7".repeat(101));
    fake.set(listed(&[
        ("1", long.as_str()),
        ("2", "  Rye\u{0}\u{1b}\n & more "),
        ("3", "\u{0} "),
        ("", "No ID"),
        ("4\u{0}", "An ID that cannot be stored"),
        (too_long.as_str(), "An ID that is too long"),
    ]));
    let limits = connector.limits(&account).await.unwrap().unwrap();
    let cut: String = long.chars().take(100).collect();
    assert_eq!(pairs(&limits.boards), [("1", cut.as_str()), ("2", "Rye & more"), ("3", "3")]);

    let ids: Vec<String> = (0..300).map(|id| id.to_string()).collect();
    fake.set(listed(&ids.iter().map(|id| (id.as_str(), "Bread")).collect::<Vec<_>>()));
    let limits = connector.limits(&account).await.unwrap().unwrap();
    assert_eq!((limits.boards.len(), limits.boards[249].id.as_str()), (250, "249"));
}

#[tokio::test]
async fn a_response_that_is_not_a_list_of_boards_is_a_failure() {
    let (fake, server) = Pinterest::start().await;
    let connector = connector(Platform::Pinterest, &server.uri());
    let account = account("643", secrets());
    for body in [json!([]), json!({}), json!({ "items": "x" }), json!({ "items": [{ "id": 7, "name": "Bread" }] })] {
        fake.set(ResponseTemplate::new(200).set_body_json(&body));
        let failed = connector.limits(&account).await;
        assert!(matches!(failed, Err(CallError::Transient(_))), "{body}: {failed:?}");
    }
}

struct Service {
    w: TestWorker,
    fake: Pinterest,
    account: i64,
    _server: MockServer,
}

impl Service {
    async fn start(s: TestStore) -> Self {
        let (fake, server) = Pinterest::start().await;
        let w = TestWorker::with_base_url(s, Platform::Pinterest, &server.uri()).await;
        let secrets = SecretString::from(secrets().to_string());
        let new = NewAccount { platform: Platform::Pinterest, secrets, ..new_account("643", "") };
        let account = w.store_account(w.world, &new).await.id;
        Self { w, fake, account, _server: server }
    }

    /// Collects the account's metrics, if they are due.
    async fn collect(&self) {
        tasks::analytics::run(&self.w.scheduler).await.unwrap();
        self.w.run_jobs().await;
    }

    async fn account(&self) -> SocialAccount {
        accounts::find_any(&mut self.w.conn().await, self.account).await.unwrap().unwrap()
    }
}

async fn boards_are_read_once_per_day(s: TestStore) {
    let t = Service::start(s).await;
    assert!(t.account().await.boards().is_empty());
    t.collect().await;
    assert_eq!(pairs(t.account().await.boards()), [("77", "Bread")]);

    t.fake.set(listed(&[("78", "Rye")]));
    t.w.advance(12 * 3_600);
    t.collect().await;
    assert_eq!((t.fake.calls(), pairs(t.account().await.boards())), (1, vec![("77", "Bread")]));
    t.w.advance(14 * 3_600);
    t.collect().await;
    assert_eq!((t.fake.calls(), pairs(t.account().await.boards())), (2, vec![("78", "Rye")]));

    // The account no longer has boards.
    t.fake.set(listed(&[]));
    t.w.advance(26 * 3_600);
    t.collect().await;
    assert!(t.account().await.boards().is_empty());
}

async fn a_failed_reading_leaves_the_boards(s: TestStore) {
    let t = Service::start(s).await;
    t.collect().await;
    let before = t.account().await.limits;
    let scope_missing = "Your token does not have sufficient permissions to perform this operation.";
    for (calls, failed) in (2..).zip([
        error(500, 11, "Something went wrong."),
        error(401, 3, scope_missing),
        error(429, 8, "This request exceeded a rate limit."),
        ResponseTemplate::new(200).set_body_string("<html>"),
    ]) {
        t.fake.set(failed);
        t.w.advance(26 * 3_600);
        t.collect().await;
        let after = t.account().await;
        assert_eq!((t.fake.calls(), after.status, &after.limits), (calls, AccountStatus::Active, &before));
    }
}
