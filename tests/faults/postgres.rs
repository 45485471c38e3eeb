//! Postgres restarted under load, cleanly and by a crash. Acknowledged posts exist and are published once; no other
//! posts exist; during the outage the response is 503 and exposes no internals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::client::{Client, fresh_key, id, until_true};
use crate::support::process::Installation;
use crate::support::servers::PostgresServer;
use crate::support::sites::Sites;

/// Clients that create one post after the other, each under its own key until it is acknowledged.
struct Load {
    brand: i64,
    accounts: Vec<i64>,
    over: AtomicBool,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
}

/// A post as its client knows it.
struct Asked {
    key: String,
    body: Value,
    post: i64,
}

impl Load {
    async fn client(&self, crier: Client, name: usize) -> Vec<Asked> {
        let mut asked = Vec::new();
        while !self.over.load(Ordering::SeqCst) {
            let n = asked.len();
            let text = format!("client {name} number {n:04} ends");
            let account = self.accounts[n % self.accounts.len()];
            let body = json!({ "content": text, "schedule_type": "now", "accounts": [account] });
            let key = fresh_key();
            let post = self.write(&crier, &key, &body).await;
            asked.push(Asked { key, body, post });
            let read = crier.call("GET", &format!("/brands/{}/posts/{post}", self.brand), None, "-").await;
            match read.expect("the API answers") {
                (200, _) => {}
                (status, answer) => {
                    assert_eq!(status, 503, "{answer}");
                    check_refusal(&answer);
                }
            }
        }
        asked
    }

    async fn write(&self, crier: &Client, key: &str, body: &Value) -> i64 {
        let path = format!("/brands/{}/posts", self.brand);
        loop {
            let (status, answer) = crier.call("POST", &path, Some(body.clone()), key).await.expect("the API answers");
            match status {
                201 | 202 => {
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    return id(&answer["data"]);
                }
                503 => {
                    check_refusal(&answer);
                    self.refused.fetch_add(1, Ordering::SeqCst);
                }
                // The first request with this key has not ended yet.
                409 => assert_eq!(answer["error"]["code"], "idempotency_in_progress", "{answer}"),
                _ => panic!("{status} {answer}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Asserts the documented error, without internals of the database.
fn check_refusal(answer: &Value) {
    let error = &answer["error"];
    assert_eq!((&error["type"], &error["code"]), (&"api_error".into(), &"service_unavailable".into()), "{answer}");
    let known = BTreeSet::from(["type", "code", "message", "request_id", "doc_url"]);
    assert_eq!(error.as_object().expect("an object").keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    // Its address is that of this service.
    let text = answer.to_string().replace(error["doc_url"].as_str().expect("an address"), "").to_lowercase();
    for word in ["postgres", "sqlx", "pool", "select", "insert", "connection", "127.0.0.1", "correct-horse", "terminat"]
    {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

async fn restarted(stop: fn(&mut PostgresServer)) {
    let mut postgres = PostgresServer::start();
    let mut crier = Installation::split_with(&[("CRIER_DATABASE_URL", &postgres.url())]).await;
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 6).await;
    let (over, acknowledged, refused) = Default::default();
    let load = Load { brand, accounts, over, acknowledged, refused };
    let more = |n: usize| {
        let goal = load.acknowledged.load(Ordering::SeqCst) + n;
        let load = &load;
        async move { until_true("more posts", || load.acknowledged.load(Ordering::SeqCst) >= goal).await }
    };
    let clients = join_all((0..5).map(|name| load.client((*crier).clone(), name)));
    let faults = async {
        more(20).await;
        stop(&mut postgres);
        until_true("refusals", || load.refused.load(Ordering::SeqCst) >= 10).await;
        postgres.restart();
        more(20).await;
        load.over.store(true, Ordering::SeqCst);
    };
    let (asked, ()) = tokio::join!(clients, faults);
    let asked: Vec<Asked> = asked.into_iter().flatten().collect();

    let posts: Vec<i64> = asked.iter().map(|asked| asked.post).collect();
    assert_eq!(posts.iter().collect::<BTreeSet<_>>().len(), posts.len(), "a post for each key");
    assert_eq!(usize::try_from(crier.number("SELECT count(*) FROM posts").await), Ok(posts.len()), "and no others");
    for Asked { key, body, post } in &asked {
        assert_eq!(load.write(&crier, key, body).await, *post, "the same again");
    }
    crier.all_published(brand, &posts).await;
    assert_eq!(usize::try_from(crier.number("SELECT count(*) FROM posts").await), Ok(posts.len()));
    let mut on_sites = BTreeMap::new();
    for post in sites.posts() {
        *on_sites.entry(post.text).or_insert(0) += 1;
    }
    assert_eq!(on_sites.len(), posts.len());
    assert!(on_sites.values().all(|times| *times == 1), "{on_sites:?}");
    for name in crier.names() {
        crier.until_ready(name).await;
    }
    crier.assert_all_run();
}

#[tokio::test]
async fn a_clean_postgres_restart_loses_nothing() {
    restarted(PostgresServer::stop_fast).await;
}

#[tokio::test]
async fn a_postgres_crash_loses_nothing() {
    restarted(PostgresServer::stop_immediately).await;
}
