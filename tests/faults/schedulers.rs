//! Schedulers that die, stop and restart. Every post is published once and not before its time, and posts that the
//! fault does not affect are on time.

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use crier_base::clock::Clock;

use crate::support::client::{texts, until_true};
use crate::support::process::{Installation, on_both_forms};
use crate::support::sites::{PostBehavior, Sites};

on_both_forms!(posts_due_while_stopped_are_published_later);

fn now() -> DateTime<Utc> {
    Clock::system().now()
}

async fn until_time(at: DateTime<Utc>) {
    until_true("a time", || now() >= at).await;
}

/// Schedules three of the texts for every second from `first` on, or later if the machine is slow to accept them.
async fn schedule(
    crier: &Installation,
    brand: i64,
    accounts: &[i64],
    texts: &[String],
    first: DateTime<Utc>,
) -> Vec<(i64, DateTime<Utc>)> {
    let mut posts = Vec::new();
    for (n, (text, account)) in texts.iter().zip(accounts.iter().cycle()).enumerate() {
        let at = first + TimeDelta::seconds(i64::try_from(n / 3).expect("few"));
        let at = at.max(now().trunc_subsecs(0) + TimeDelta::seconds(6));
        posts.push((crier.schedule(brand, *account, text, at).await, at));
    }
    posts
}

/// Returns the delay of each first call; asserts that no call was early.
fn lateness(sites: &Sites, texts: &[String], posts: &[(i64, DateTime<Utc>)]) -> Vec<TimeDelta> {
    let late = |(text, (_, at)): (&String, &(i64, DateTime<Utc>))| {
        let called = sites.calls(text)[0].at;
        assert!(called >= *at, "{text} was due {at} and went out {called}");
        called - *at
    };
    texts.iter().zip(posts).map(late).collect()
}

#[tokio::test]
async fn three_schedulers_publish_each_post_once() {
    let mut crier = Installation::split().await;
    for name in ["crier-scheduler#2", "crier-scheduler#3"] {
        crier.start_one(name).await;
    }
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 6).await;
    // The platform rejects the first call of one account with a retry time, so the schedulers have to handle a retry as
    // well.
    sites.set_behavior(|text, times| match times {
        1 if text.contains("again") => PostBehavior::RejectWithRetryAfter(2),
        _ => PostBehavior::Accept,
    });
    let (texts, again) = (texts("post", 36), texts("again", 4));
    let first = now().trunc_subsecs(0) + TimeDelta::seconds(12);
    let posts = schedule(&crier, brand, &accounts[1..], &texts, first).await;
    let repeated = schedule(&crier, brand, &accounts[..1], &again, first + TimeDelta::seconds(3)).await;

    until_time(first + TimeDelta::seconds(3)).await;
    crier.kill("crier-scheduler#2");
    until_time(first + TimeDelta::seconds(6)).await;
    assert_eq!(crier.terminate("crier-scheduler#3").await, Some(0));
    until_time(first + TimeDelta::seconds(8)).await;
    crier.start_one("crier-scheduler#4").await;

    let all: Vec<i64> = posts.iter().chain(&repeated).map(|(post, _)| *post).collect();
    crier.all_published(brand, &all).await;
    sites.assert_each_once(&[texts.clone(), again.clone()].concat());
    let late = lateness(&sites, &texts, &posts);
    // Jobs that the dead scheduler promoted without notifying are notified ten seconds later; no other job waits.
    let delayed = late.iter().filter(|late| **late > TimeDelta::seconds(8)).count();
    assert!(delayed <= 3 && late.iter().all(|late| *late < TimeDelta::seconds(30)), "{late:?}");
    lateness(&sites, &again, &repeated);
    for text in &again {
        let calls = sites.calls(text);
        assert!(calls.len() == 2 && calls[1].at - calls[0].at >= TimeDelta::seconds(2), "{calls:?}");
    }
    crier.assert_all_run();
}

async fn posts_due_while_stopped_are_published_later(mut crier: Installation) {
    let sites = Sites::start();
    let brand = crier.brand().await;
    let accounts = crier.connect(brand, &sites, 3).await;
    let texts = texts("post", 18);
    // No post is due before all are scheduled and the scheduler has stopped.
    let first = now().trunc_subsecs(0) + TimeDelta::seconds(30);
    let posts = schedule(&crier, brand, &accounts, &texts, first).await;
    let scheduler = crier.of("scheduler");
    assert_eq!(crier.terminate(&scheduler).await, Some(0));
    let (_, last) = posts[posts.len() - 1];
    until_time(last + TimeDelta::seconds(1)).await;
    assert_eq!(sites.posts().len(), 0);
    crier.start_all().await;
    let ids: Vec<i64> = posts.iter().map(|(post, _)| *post).collect();
    for target in crier.all_published(brand, &ids).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    sites.assert_each_once(&texts);
    lateness(&sites, &texts, &posts);
    crier.assert_all_run();
}
