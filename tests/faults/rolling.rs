//! A rolling restart behind a load balancer, under load. Invariant: clients notice nothing. Every request gets a
//! response, and every post is published once.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::support::balancer::Balancer;
use crate::support::client::Client;
use crate::support::load::Load;
use crate::support::process::Installation;
use crate::support::servers::free_port;
use crate::support::sites::{PostBehavior, Sites};

/// Long enough for many checks of the balancer, also on a busy machine.
const DELAY: (&str, &str) = ("CRIER_DRAIN_DELAY", "6s");

#[tokio::test]
async fn a_rolling_restart_is_invisible() {
    let mut crier = Installation::split_with(&[DELAY]).await;
    let (first, second) = (crier.address().to_owned(), format!("127.0.0.1:{}", free_port()));
    let replicas = [("crier-api", first), ("crier-api#2", second)];
    crier.start_one_with("crier-api#2", &[("CRIER_HTTP_ADDR", &replicas[1].1)]).await;
    let balancer = Balancer::start();
    for (name, address) in &replicas {
        balancer.add(address, &crier.ops(name)).await;
    }
    let client = Client { url: balancer.url.clone(), ..crier.clone() };
    let sites = Sites::start();
    let brand = client.brand().await;
    let accounts = client.connect(brand, &sites, 8).await;
    // Some calls are always in flight.
    sites.set_behavior(|_, _| PostBehavior::AcceptSlowly);

    let load = Load::start(&client, brand, &accounts);
    for (name, address) in &replicas {
        load.goes_on().await;
        assert_eq!(crier.terminate(name).await, Some(0), "{name}");
        load.goes_on().await;
        let before = balancer.connections(address);
        crier.start_one_with(name, &[("CRIER_HTTP_ADDR", address)]).await;
        balancer.until_ready(address).await;
        load.goes_on().await;
        assert!(balancer.connections(address) > before, "{name} is used again");
    }
    for name in ["crier-worker", "crier-scheduler"] {
        assert_eq!(crier.terminate(name).await, Some(0), "{name}");
        load.goes_on().await;
        crier.start_one(name).await;
    }
    load.goes_on().await;
    let done = load.stop().await;

    for target in client.all_published(brand, &done.posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    sites.assert_each_once(&done.texts);
    assert_eq!(sites.posts().len(), done.texts.len());
    crier.assert_all_run();
}

/// A connection that was opened and never used does not delay a stop. Browsers and load balancers open such
/// connections.
#[tokio::test]
async fn a_silent_connection_does_not_delay_a_stop() {
    let mut crier = Installation::embedded_with(&[("CRIER_DRAIN", "10m")]).await;
    let _silent = TcpStream::connect(crier.address()).await.expect("it is taken");
    // Connections are accepted in order: the server has accepted the silent one when it has served this request.
    crier.brand().await;
    let started = Instant::now();
    assert_eq!(crier.terminate("crier").await, Some(0));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
