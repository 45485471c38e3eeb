//! Runs the API on its own socket with its own database.
//!
//! A test is a function that takes a [`TestApp`] or a [`Tenant`]. List it in [`on_both_apps!`] at the top of its file to
//! create two tests, `…::sqlite` and `…::postgres`, or in [`on_sqlite_app!`] if it sends no SQL statement. The clock is
//! manual, no jobs run, and a [`FakeConnector`] replaces the sandbox.

#![allow(dead_code, reason = "each test uses only a part")]

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crier_api::ai::Ai;
use crier_api::limits::memory::MemoryLimiter;
use crier_api::{App, AppDeps, MinRate, Shutdown};
use crier_config::{LogConfig, LogFormat, PlatformsConfig};
use crier_domain::access::{KeyMode, Role, Scopes};
use crier_domain::plan::{Plan, Plans};
use crier_domain::platform::Platform;
use crier_http::{Guard, HttpClient};
use crier_media::Library;
use crier_platforms::{Clients, ConnectorRegistry};
use crier_store::accounts::NewAccount;
use crier_store::brands::{self, NewBrand};
use crier_store::operators::{self, OperatorChange};
use crier_store::{Store, keys, users};
use crier_telemetry::logs;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connector::FakeConnector;
use super::mail_server::mailer;
pub use super::request::{Reply, Request};
use super::store::{TestStore, World, new_account};

/// Creates two tests for each function that takes a [`TestApp`]: one on SQLite, one on Postgres. After `"pro" =>`, the
/// functions take a [`Tenant`] on this plan, and after `console "pro" =>` also its signed-in user.
macro_rules! on_both_apps {
    ($($tests:tt)+) => { $crate::support::app::app_tests!([] $($tests)+); };
}
pub(crate) use on_both_apps;

/// Like `on_both_apps`, for functions whose subject is not the database: the tests on Postgres run with
/// `CRIER_TEST_FULL=1`.
macro_rules! on_one_app {
    ($($tests:tt)+) => {
        $crate::support::app::app_tests!(
            [#[ignore = "its subject is not the database: runs with CRIER_TEST_FULL=1"]] $($tests)+
        );
    };
}
pub(crate) use on_one_app;

/// Like `on_both_apps`, with tests on SQLite only, for responses that need no SQL statement.
macro_rules! on_sqlite_app {
    ($($tests:tt)+) => { $crate::support::app::app_tests!([#[cfg(any())]] $($tests)+); };
}
pub(crate) use on_sqlite_app;

/// The tests of the macros above. Those on Postgres have additional attributes.
macro_rules! app_tests {
    ($postgres:tt console $plan:literal => $($name:ident),+ $(,)?) => {$(
        $crate::support::app::app_test!($postgres $name |app| {
            let t = app.tenant($plan).await;
            let person = $crate::support::console::ConsoleUser::sign_in(&t).await;
            super::$name(t, person).await;
        });
    )+};
    ($postgres:tt $plan:literal => $($name:ident),+ $(,)?) => {$(
        $crate::support::app::app_test!($postgres $name |app| super::$name(app.tenant($plan).await).await);
    )+};
    ($postgres:tt $($name:ident),+ $(,)?) => {$(
        $crate::support::app::app_test!($postgres $name |app| super::$name(app).await);
    )+};
}
pub(crate) use app_tests;

macro_rules! app_test {
    ($postgres:tt $name:ident |$app:ident| $run:expr) => {
        $crate::support::store::test_on_engines!(
            TwoThreads $postgres $name |s| {
                let $app = $crate::support::app::TestApp::start(s).await;
                $run;
            }
        );
    };
}
pub(crate) use app_test;

pub const BASE: &str = "/api/public/v1";
/// A plan without any feature or limit.
pub const BARE: &str = "bare";
/// An id that does not exist.
pub const MISSING_ID: i64 = 999_999_999;

/// A running API instance.
pub struct TestApp {
    pub store: TestStore,
    pub connector: Arc<FakeConnector>,
    platforms: PlatformsConfig,
    pub url: String,
    pub address: std::net::SocketAddr,
    /// The served application.
    pub api: Arc<App>,
    serving: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
    pub(super) http: HttpClient,
    stop: CancellationToken,
    sent: AtomicU64,
}

impl Deref for TestApp {
    type Target = TestStore;
    fn deref(&self) -> &TestStore {
        &self.store
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Builds the API on a store, with the connector in place of the sandbox.
pub fn build_app(
    store: &Store,
    library: Library,
    ai: Ai,
    connector: Arc<FakeConnector>,
    platforms: PlatformsConfig,
    public_url: &str,
) -> App {
    let http = HttpClient::trusted(Duration::from_secs(30), 1 << 20);
    let guard = Guard::new(Vec::new());
    let clients = Clients { trusted: http.clone(), guarded: http, addresses: Arc::new(guard.clone()) };
    let mut registry = ConnectorRegistry::new(platforms, &clients, store.clock());
    registry.register(connector);
    let bare = Plan { name: BARE.to_owned(), ..Plan::default() };
    App::new(AppDeps {
        store: store.clone(),
        platforms: Arc::new(registry),
        plans: Arc::new(Plans::new(Plans::default().iter().cloned().chain([bare]))),
        library,
        ai,
        mailer: None,
        guard,
        public_url: public_url.to_owned(),
        has_public_url: true,
        limiter: Arc::new(MemoryLimiter::new(store.clock().clone())),
        // A test can set the client's address in `X-Forwarded-For`.
        trusted_proxies: vec!["127.0.0.1/32".parse().expect("a network")],
        has_mcp: true,
    })
}

/// The maximum number of connections. No test opens as many.
const MAX_CONNECTIONS: usize = 1_000;

fn serve(
    api: &Arc<App>,
    listener: tokio::net::TcpListener,
    stop: &CancellationToken,
) -> JoinHandle<std::io::Result<()>> {
    let stop = Shutdown { signal: stop.clone(), delay: Duration::ZERO, drain: Duration::from_secs(1) };
    tokio::spawn(crier_api::serve_on(api.clone(), listener, MAX_CONNECTIONS, stop))
}

/// Enables the log if `CRIER_TEST_LOG` has a filter (`debug`), for example to find the cause of a 500.
#[expect(clippy::disallowed_methods, reason = "a switch of the tests")]
fn init_log_from_env() {
    if let Ok(filter) = std::env::var("CRIER_TEST_LOG") {
        logs::init(&LogConfig { filter, format: Some(LogFormat::Text) });
    }
}

impl TestApp {
    pub async fn start(store: TestStore) -> Self {
        Self::start_with(store, Ai::none()).await
    }

    /// Starts the API with a minimum rate for the bodies of requests and responses.
    pub async fn start_with_min_rate(store: TestStore, min_rate: MinRate) -> Self {
        Self::start_as(store, Ai::none(), min_rate).await
    }

    /// Starts the API with an AI provider.
    pub async fn start_with(store: TestStore, ai: Ai) -> Self {
        Self::start_as(store, ai, MinRate::default()).await
    }

    /// Starts the API with this configuration of the platforms.
    pub async fn start_with_platforms(store: TestStore, platforms: PlatformsConfig) -> Self {
        Self::build(store, Ai::none(), MinRate::default(), platforms, None, None).await
    }

    /// Starts the API with this public URL.
    pub async fn start_at(store: TestStore, public_url: &str) -> Self {
        Self::build(store, Ai::none(), MinRate::default(), PlatformsConfig::default(), Some(public_url), None).await
    }

    /// Starts the API with a limit for how long the last request of a resumable upload waits for the asset.
    pub async fn start_with_asset_wait(store: TestStore, wait: Duration) -> Self {
        Self::build(store, Ai::none(), MinRate::default(), PlatformsConfig::default(), None, Some(wait)).await
    }

    async fn start_as(store: TestStore, ai: Ai, min_rate: MinRate) -> Self {
        Self::build(store, ai, min_rate, PlatformsConfig::default(), None, None).await
    }

    async fn build(
        store: TestStore,
        ai: Ai,
        min_rate: MinRate,
        platforms: PlatformsConfig,
        public_url: Option<&str>,
        asset_wait: Option<Duration>,
    ) -> Self {
        init_log_from_env();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://{address}");
        let connector = Arc::<FakeConnector>::default();
        let public_url = public_url.unwrap_or(&url);
        let library = store.library(public_url);
        let api = build_app(&store.store, library, ai, connector.clone(), platforms.clone(), public_url);
        // The servers of avatars and of metadata documents run on this machine.
        let local_guard = Guard::new(vec!["127.0.0.1/32".parse().expect("a network")]);
        let api = api.with_min_rate(min_rate).with_response_rate(min_rate).with_avatar_guard(local_guard.clone());
        let api = api.with_client_document_guard(local_guard);
        let api = Arc::new(if let Some(wait) = asset_wait { api.with_asset_wait(wait) } else { api });
        let stop = CancellationToken::new();
        let serving = Mutex::new(Some(serve(&api, listener, &stop)));
        let http = HttpClient::trusted(Duration::from_secs(30), 64 << 20);
        Self { store, connector, platforms, url, address, api, serving, http, stop, sent: AtomicU64::new(0) }
    }

    /// Stops like a process, and waits until the shutdown is complete.
    pub async fn stop(&self) {
        self.stop.cancel();
        let serving = self.serving.lock().expect("no test panics while it stops").take();
        serving.expect("it is stopped once").await.expect("no panic").expect("an orderly stop");
    }

    /// Starts a replica on the same database and returns its URL. It has its own connections and memory, and shares the
    /// files and the clock. It stops with this instance.
    pub async fn replica(&self) -> String {
        self.replica_with(Ai::none()).await
    }

    /// Like `replica`, with an AI provider.
    pub async fn replica_with(&self, ai: Ai) -> String {
        self.replica_of(ai, |_| {}).await
    }

    /// Like `replica`, with a mail server.
    pub async fn replica_with_mail(&self) -> String {
        self.replica_of(Ai::none(), |api| api.mailer = Some(Arc::new(mailer("smtp://127.0.0.1:25")))).await
    }

    /// Like `replica`, without the tools of agents.
    pub async fn replica_without_mcp(&self) -> String {
        self.replica_of(Ai::none(), |api| api.has_mcp = false).await
    }

    /// Like `replica`, without a configured public URL.
    pub async fn replica_without_public_url(&self) -> String {
        self.replica_of(Ai::none(), |api| api.has_public_url = false).await
    }

    async fn replica_of(&self, ai: Ai, change: impl FnOnce(&mut App)) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let store = self.store.open_second_store().await;
        let (library, connector, platforms) =
            (self.store.library(&self.url), self.connector.clone(), self.platforms.clone());
        let mut api = build_app(&store, library, ai, connector, platforms, &self.url);
        change(&mut api);
        serve(&Arc::new(api), listener, &self.stop);
        url
    }

    /// Builds a request to this or another replica; the path is relative to the host root.
    pub fn request_at_root(&self, method: &str, url: &str, path: &str) -> Request<'_> {
        self.visit(method, &format!("{url}{path}"))
    }

    /// Creates a workspace on the plan, a user who owns a brand, and a live key with all scopes.
    pub async fn tenant(&self, plan: &str) -> Tenant<'_> {
        let n = self.sent.fetch_add(1, Ordering::Relaxed);
        let (workspace, user) = self
            .write(async |tx| {
                let workspace = users::create_workspace(tx, "Acme", plan).await?;
                let email = format!("user{n}@example.com");
                let user = users::create(tx, workspace, &email, "Ann").await?;
                // The first user becomes an operator, as at the first start.
                if operators::ids(tx).await?.is_empty()
                    && let Some(first) = users::find_by_email(tx, &email).await?
                {
                    operators::change(tx, &first, OperatorChange::Added).await?;
                }
                Ok((workspace, user))
            })
            .await;
        let new = NewBrand { name: "Bakery", description: None, website: None, timezone: "Europe/Berlin" };
        let brand = self.write(async |tx| brands::create(tx, workspace, user, None, new).await).await;
        let key = self.key_of(user, KeyMode::Live, "all").await;
        Tenant { app: self, workspace, user, brand: brand.expect("there is no cap").id, key }
    }

    pub async fn key_of(&self, user: i64, mode: KeyMode, scopes: &str) -> String {
        let scopes: Scopes = scopes.parse().expect("scopes");
        let key = self.write(async |tx| keys::create(tx, user, mode, &scopes).await).await;
        key.expose_secret().to_owned()
    }

    /// Builds a request; the path is relative to the API base.
    pub fn request(&self, method: &str, path: &str) -> Request<'_> {
        self.visit(method, &format!("{}{BASE}{path}", self.url))
    }

    /// Builds a request to an absolute URL.
    pub fn visit(&self, method: &str, url: &str) -> Request<'_> {
        Request::new(self, method, url)
    }

    /// Requests an HTML page.
    pub async fn page(&self, path: &str) -> Reply {
        self.request_at_root("GET", &self.url, path).send().await
    }

    /// Returns a new `Idempotency-Key`.
    pub fn fresh_key(&self) -> String {
        format!("key-{}", self.sent.fetch_add(1, Ordering::Relaxed))
    }
}

/// A user with a workspace, a brand and an API key.
pub struct Tenant<'a> {
    pub app: &'a TestApp,
    pub workspace: i64,
    pub user: i64,
    pub brand: i64,
    pub key: String,
}

impl Tenant<'_> {
    /// Returns a path below this tenant's brand.
    pub fn path(&self, rest: &str) -> String {
        format!("/brands/{}{rest}", self.brand)
    }

    pub fn request(&self, method: &str, path: &str) -> Request<'_> {
        let request = self.app.request(method, path).key(&self.key);
        if method == "GET" { request } else { request.idempotency_key(&self.app.fresh_key()) }
    }

    /// Builds a request to another replica.
    pub fn request_at(&self, url: &str, method: &str, path: &str) -> Request<'_> {
        self.request(method, path).to(format!("{url}{BASE}{path}"))
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send().await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path).json(&body).send().await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.request("PUT", path).json(&body).send().await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.request("DELETE", path).send().await
    }

    /// Creates another member of the brand, with a key that has all scopes.
    pub async fn colleague(&self, role: Role) -> Tenant<'_> {
        let n = self.app.sent.fetch_add(1, Ordering::Relaxed);
        let user = self.app.user(self.workspace, &format!("colleague{n}@example.com")).await;
        self.app.member(self.brand, user, role).await;
        let key = self.app.key_of(user, KeyMode::Live, "all").await;
        Tenant { app: self.app, workspace: self.workspace, user, brand: self.brand, key }
    }

    /// Returns the same tenant with another key of the user, which has these scopes.
    pub async fn with_scopes(&self, scopes: &str) -> Tenant<'_> {
        let key = self.app.key_of(self.user, KeyMode::Live, scopes).await;
        Tenant { app: self.app, workspace: self.workspace, user: self.user, brand: self.brand, key }
    }

    /// Uploads an image to the brand's library.
    pub async fn upload(&self, name: &str, bytes: &[u8], texts: &[(&str, &str)]) -> Reply {
        self.request("POST", &self.path("/media")).form(Some((name, bytes)), texts).send().await
    }

    /// Creates an account of the brand and returns its id. Its credentials are not checked.
    pub async fn store_account(&self, new: &NewAccount) -> i64 {
        let world = World { workspace: self.workspace, user: self.user, brand: self.brand };
        self.app.store_account(world, new).await.id
    }

    /// Creates an account on a platform and returns its id.
    pub async fn account_on(&self, platform: Platform) -> i64 {
        self.store_account(&NewAccount { platform, ..new_account(platform.as_str(), "token") }).await
    }

    /// Connects an account by its handle and returns its id.
    pub async fn account(&self, handle: &str) -> i64 {
        let body = serde_json::json!({ "platform": "sandbox", "credentials": { "handle": handle } });
        let reply = self.post(&self.path("/social-accounts"), body).await;
        reply.expect(201)["data"][0]["id"].as_i64().expect("an id")
    }
}
