//! Workers and schedulers start and stop under load. Nothing is lost or published twice, and an orderly stop of a
//! worker does not count as an attempt.

use crate::support::client::{texts, until_true};
use crate::support::process::Installation;
use crate::support::sites::{PostBehavior, Sites};

#[tokio::test]
async fn posts_are_published_once_while_processes_scale() {
    let mut crier = Installation::split().await;
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 8).await;
    sites.set_behavior(|_, _| PostBehavior::AcceptSlowly);
    let (orderly, killed) = (texts("orderly", 200), texts("killed", 60));
    let client = crier.clone();

    let published = async |more: usize| until_true("more posts", || sites.posts().len() >= more).await;
    let scaling = async {
        published(20).await;
        crier.start_one("crier-worker#2").await;
        crier.start_one("crier-scheduler#2").await;
        published(50).await;
        assert_eq!(crier.terminate("crier-worker").await, Some(0));
        assert_eq!(crier.terminate("crier-scheduler").await, Some(0));
        published(80).await;
        crier.start_one("crier-worker#3").await;
        crier.start_one("crier-scheduler#3").await;
        published(110).await;
        assert_eq!(crier.terminate("crier-worker#2").await, Some(0));
        assert_eq!(crier.terminate("crier-scheduler#2").await, Some(0));
        published(140).await;
        crier.start_all().await;
    };
    let (mut posts, ()) = tokio::join!(client.post_all(brand, &accounts, &orderly), scaling);
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }

    let killing = async {
        published(220).await;
        crier.kill("crier-worker#3");
        crier.kill("crier-scheduler#3");
    };
    let (more, ()) = tokio::join!(client.post_all(brand, &accounts, &killed), killing);
    posts.extend(more);
    for target in crier.all_published(brand, &posts).await {
        // The second attempt at a post of the dead worker looked up the first one.
        assert!(target["attempts"].as_i64().is_some_and(|attempts| attempts <= 3), "{target}");
    }
    sites.assert_each_once(&[orderly, killed].concat());
    assert_eq!(sites.posts().len(), 260);
    crier.assert_all_run();
}
