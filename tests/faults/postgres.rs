//! Postgres restarted under load, cleanly and by a crash. Acknowledged posts exist and are published once, and no other
//! posts exist. During the outage, the response is 503 and exposes no internals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crier_store::Db;
use futures::future::join_all;
use serde_json::{Value, json};
use url::Url;

use crate::support::client::{Client, fresh_key, id, until, until_true};
use crate::support::process::Installation;
use crate::support::servers::PostgresServer;
use crate::support::sites::Sites;
use crate::support::vanishing_proxy::VanishingProxy;

/// Clients that each create one post after another. Each post has an idempotency key, which is sent again until the
/// post is acknowledged.
struct Load {
    brand: i64,
    accounts: Vec<i64>,
    is_over: AtomicBool,
    acknowledged: AtomicUsize,
    rejected: AtomicUsize,
}

/// A request for a post, and the post that it created.
struct CreatedPost {
    key: String,
    body: Value,
    post: i64,
}

impl Load {
    async fn client(&self, crier: Client, name: usize) -> Vec<CreatedPost> {
        let mut created = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            let n = created.len();
            let text = format!("client {name} number {n:04} ends");
            let account = self.accounts[n % self.accounts.len()];
            let body = json!({ "content": text, "schedule_type": "now", "accounts": [account] });
            let key = fresh_key();
            let post = self.write(&crier, &key, &body).await;
            created.push(CreatedPost { key, body, post });
            let response = crier.call("GET", &format!("/brands/{}/posts/{post}", self.brand), None, "-").await;
            match response.expect("the API responds") {
                (200, _) => {}
                (status, response) => {
                    assert_eq!(status, 503, "{response}");
                    assert_service_unavailable(&response);
                }
            }
        }
        created
    }

    async fn write(&self, crier: &Client, key: &str, body: &Value) -> i64 {
        let path = format!("/brands/{}/posts", self.brand);
        loop {
            let (status, response) =
                crier.call("POST", &path, Some(body.clone()), key).await.expect("the API responds");
            match status {
                201 | 202 => {
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    return id(&response["data"]);
                }
                503 => {
                    assert_service_unavailable(&response);
                    self.rejected.fetch_add(1, Ordering::SeqCst);
                }
                // The first request with this key is still running.
                409 => assert_eq!(response["error"]["code"], "idempotency_in_progress", "{response}"),
                _ => panic!("{status} {response}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Asserts the documented error, without internals of the database.
fn assert_service_unavailable(response: &Value) {
    let error = &response["error"];
    assert_eq!((&error["type"], &error["code"]), (&"api_error".into(), &"service_unavailable".into()), "{response}");
    let known = BTreeSet::from(["type", "code", "message", "request_id", "doc_url"]);
    assert_eq!(error.as_object().expect("an object").keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    // The documentation URL contains the address of this service.
    let text = response.to_string().replace(error["doc_url"].as_str().expect("an address"), "").to_lowercase();
    for word in ["postgres", "sqlx", "pool", "select", "insert", "connection", "127.0.0.1", "correct-horse", "terminat"]
    {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

async fn assert_restart_loses_nothing(stop: fn(&mut PostgresServer)) {
    let mut postgres = PostgresServer::start();
    let mut crier = Installation::split_with(&[("CRIER_DATABASE_URL", &postgres.url())]).await;
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 6).await;
    let (is_over, acknowledged, rejected) = Default::default();
    let load = Load { brand, accounts, is_over, acknowledged, rejected };
    let wait_for_posts = |n: usize| {
        let target = load.acknowledged.load(Ordering::SeqCst) + n;
        let load = &load;
        async move { until_true("more posts", || load.acknowledged.load(Ordering::SeqCst) >= target).await }
    };
    let clients = join_all((0..5).map(|name| load.client((*crier).clone(), name)));
    let faults = async {
        wait_for_posts(20).await;
        stop(&mut postgres);
        until_true("rejections", || load.rejected.load(Ordering::SeqCst) >= 10).await;
        crier.until_dependency("database", false).await;
        postgres.restart();
        wait_for_posts(20).await;
        load.is_over.store(true, Ordering::SeqCst);
    };
    let (created, ()) = tokio::join!(clients, faults);
    let created: Vec<CreatedPost> = created.into_iter().flatten().collect();

    let posts: Vec<i64> = created.iter().map(|created| created.post).collect();
    assert_eq!(posts.iter().collect::<BTreeSet<_>>().len(), posts.len(), "a post for each key");
    assert_eq!(usize::try_from(crier.count_rows("posts").await), Ok(posts.len()), "and no others");
    for CreatedPost { key, body, post } in &created {
        assert_eq!(load.write(&crier, key, body).await, *post, "the same again");
    }
    crier.all_published(brand, &posts).await;
    assert_eq!(usize::try_from(crier.count_rows("posts").await), Ok(posts.len()));
    let mut on_sites = BTreeMap::new();
    for post in sites.posts() {
        *on_sites.entry(post.text).or_insert(0) += 1;
    }
    assert_eq!(on_sites.len(), posts.len());
    assert!(on_sites.values().all(|times| *times == 1), "{on_sites:?}");
    for name in crier.names() {
        crier.until_ready(name).await;
        assert!(crier.log(name).contains("the database does not respond"), "{name} reports the outage");
        assert!(!crier.log(name).contains("sqlx_core::pool"), "{name} logs each connection: {}", crier.log(name));
    }
    crier.until_dependency("database", true).await;
    crier.assert_all_run();
}

#[tokio::test]
async fn a_clean_postgres_restart_loses_nothing() {
    assert_restart_loses_nothing(PostgresServer::stop_fast).await;
}

#[tokio::test]
async fn a_postgres_crash_loses_nothing() {
    assert_restart_loses_nothing(PostgresServer::stop_immediately).await;
}

/// Invariant: one statement finds that the connections of a pool were lost, and the other ones use new connections.
async fn assert_one_statement_fails(stop: fn(&mut PostgresServer)) {
    let mut postgres = PostgresServer::start();
    let db = Db::postgres(&postgres.url(), 5).unwrap();
    db.migrate().await.unwrap();
    let opened = join_all((0..5).map(|_| db.read())).await;
    assert!(opened.iter().all(Result::is_ok));
    drop(opened);
    stop(&mut postgres);
    postgres.restart();
    let error = db.ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    for result in join_all((0..5).map(|_| db.ping())).await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_clean_postgres_restart_fails_one_statement() {
    assert_one_statement_fails(PostgresServer::stop_fast).await;
}

#[tokio::test]
async fn a_postgres_crash_fails_one_statement() {
    assert_one_statement_fails(PostgresServer::stop_immediately).await;
}

/// Invariant: a server whose machine disappears, which closes no connections, is noticed within seconds, and the
/// connections to it do not use up the pool.
#[tokio::test]
async fn a_server_that_vanishes_is_noticed() {
    let postgres = PostgresServer::start();
    let mut url = Url::parse(&postgres.url()).unwrap();
    let proxy = VanishingProxy::start(url.port().unwrap());
    url.set_port(Some(proxy.port)).unwrap();
    let db = Db::postgres(url.as_str(), 2).unwrap();
    db.migrate().await.unwrap();
    db.ping().await.unwrap();
    proxy.set_vanished(true);
    // More than the pool has connections.
    for _ in 0..3 {
        let pinged = tokio::time::timeout(Duration::from_secs(30), db.ping()).await.expect("it fails in time");
        assert!(pinged.unwrap_err().is_unavailable());
    }
    proxy.set_vanished(false);
    until("the database responds", || async { db.ping().await.ok() }).await;
}
