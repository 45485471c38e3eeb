//! A rolling upgrade: processes of the previous release and of this one on one database, under load. Invariant: nothing
//! is lost or doubled, and no request fails on the server.
//!
//! `CRIER_TEST_PREVIOUS` is the directory of the previous release's programs; `scripts/check-upgrade` builds them. Without
//! it the tests print a notice and pass.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use crier_base::clock::Clock;
use serde_json::json;

use crate::support::balancer::Balancer;
use crate::support::client::{Client, fresh_key, id, texts, until};
use crate::support::load::{Load, OnLost};
use crate::support::process::Installation;
use crate::support::servers::free_port;
use crate::support::sites::{PostBehavior, Sites};

/// Returns where the previous release is. The notice is written past the capture of the test's output.
#[expect(clippy::disallowed_methods, reason = "says where the programs of the previous release are")]
fn previous() -> Option<PathBuf> {
    let dir = std::env::var_os("CRIER_TEST_PREVIOUS").map(PathBuf::from);
    if dir.is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "\n*** NOT TESTED: the upgrade from the previous release (scripts/check-upgrade) ***\n"
        );
    }
    dir
}

/// What the worker has published.
const PUBLISHED: &str = "crier_publish_total{platform=\"wordpress\",outcome=\"published\"}";

/// Several threads: commands block one, and the load goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_run_side_by_side() {
    let Some(previous) = previous() else { return };
    let mut crier = Installation::split_of(&previous).await;
    let balancer = Balancer::start();
    balancer.add(crier.address(), &crier.ops("crier-api")).await;
    let client = Client { url: balancer.url.clone(), ..crier.clone() };
    let sites = Sites::start();
    let brand = client.brand().await;
    let accounts = client.connect(brand, &sites, 8).await;
    sites.set_behavior(|_, _| PostBehavior::AcceptSlowly);
    // Old processes may cut connections when they stop.
    let load = Load::start(&client, brand, &accounts, OnLost::Repeat);
    load.goes_on().await;

    crier.use_release(None);
    crier.command(&["migrate"]);
    load.goes_on().await;
    restart_the_old_ones(&mut crier, &previous).await;
    balancer.until_ready(crier.address()).await;
    load.goes_on().await;

    let address = format!("127.0.0.1:{}", free_port());
    crier.start_one("crier-worker#new").await;
    crier.start_one("crier-scheduler#new").await;
    crier.start_one_with("crier-api#new", &[("CRIER_HTTP_ADDR", &address)]).await;
    balancer.add(&address, &crier.ops("crier-api#new")).await;
    for api in [crier.address(), &address] {
        let before = balancer.connections(api);
        load.goes_on().await;
        assert!(balancer.connections(api) > before, "{api} takes part");
    }
    for worker in ["crier-worker", "crier-worker#new"] {
        let has_published = async || crier.metric(worker, PUBLISHED).await.filter(|posts| *posts > 0.0);
        until(&format!("{worker} takes part"), has_published).await;
    }

    for name in crier.names() {
        assert_eq!(crier.terminate(name).await, Some(0), "{name}");
        load.goes_on().await;
    }
    let done = load.stop().await;
    for target in client.all_published(brand, &done.posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    sites.assert_each_once(&done.texts);
    assert_eq!(sites.posts().len(), done.texts.len());
    crier.assert_all_run();
}

/// Processes of the old release that end in the middle of an upgrade are started again, and so is its `crier migrate`, as
/// systemd does it; its commands work.
async fn restart_the_old_ones(crier: &mut Installation, previous: &Path) {
    crier.use_release(Some(previous));
    crier.command(&["migrate"]);
    for name in crier.names() {
        assert_eq!(crier.terminate(name).await, Some(0), "{name}");
        crier.start_one(name).await;
    }
    crier.command(&["jobs", "kinds"]);
    crier.use_release(None);
}

#[tokio::test]
async fn an_embedded_upgrade_keeps_what_was_accepted() {
    let Some(previous) = previous() else { return };
    let mut crier = Installation::embedded_of(&previous).await;
    let handle = "upgrade";
    let (brand, account) = crier.sandbox(handle).await;
    let (now, later) = (texts("now", 10), texts("later", 10));
    let mut posts = Vec::new();
    for text in &later {
        posts.push(crier.schedule(brand, account, text, Clock::system().now() + TimeDelta::seconds(3)).await);
    }
    for text in &now {
        posts.push(crier.post(brand, account, text).await);
    }
    let (path, key) = (format!("/brands/{brand}/posts"), fresh_key());
    let body = json!({ "content": "repeated", "schedule_type": "now", "accounts": [account] });
    let create =
        async |crier: &Installation| crier.call("POST", &path, Some(body.clone()), &key).await.expect("an answer");
    let before = create(&crier).await;

    assert_eq!(crier.terminate("crier").await, Some(0));
    crier.use_release(None);
    crier.start_all().await;
    assert_eq!(create(&crier).await, before, "a stored response of the release before");
    posts.push(id(&before.1["data"]));
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    let page = crier.page(handle).await;
    for text in now.iter().chain(&later).map(String::as_str).chain(["repeated"]) {
        assert_eq!(page.matches(text).count(), 1, "{text} on the page");
    }
    assert_the_old_one_refuses(&mut crier, &previous).await;
}

/// `crier` of the old release does not start on a later schema, and harms nothing.
async fn assert_the_old_one_refuses(crier: &mut Installation, previous: &Path) {
    const SCHEMA: &str = "SELECT max(version) FROM _sqlx_migrations";
    let own = crier.number(SCHEMA).await;
    assert_eq!(crier.terminate("crier").await, Some(0));
    let fresh = Installation::embedded_of(previous).await;
    let old = fresh.number(SCHEMA).await;
    drop(fresh);
    if old < own {
        crier.use_release(Some(previous));
        let refused = crier.try_command(&["serve"], &[("CRIER_OPS_ADDR", "127.0.0.1:0")]);
        assert!(refused.refused(1).contains("was migrated by a newer version"), "{refused:?}");
        crier.use_release(None);
    }
    crier.start_all().await;
}
