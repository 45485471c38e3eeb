//! `fetch_feed` end to end: what a fetch writes, when the next one is due, and what happens to a feed that changes
//! meanwhile.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use crier_domain::feed::{Article, FETCH_INTERVAL, Feed, FeedStatus, FeedType};
use crier_domain::job::{JobKind, JobState};
use crier_jobs as jobs;
use crier_scheduler::tasks;
use crier_store::feeds::{self, NewFeed};
use crier_store::{self as store, articles};
use tokio::sync::Semaphore;

use super::server::{FeedResponse, Server, page, rss};
use crate::support::client::until_true;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::run_concurrently;

worker_on_both!(
    a_feed_is_fetched_and_then_polled_conditionally,
    the_validators_of_a_304_replace_the_stored_ones,
    articles_with_one_guid_are_each_listed_once,
    changed_articles_are_updated,
    the_newest_200_articles_are_kept,
    a_failing_feed_backs_off_until_it_recovers,
    retry_after_delays_the_next_fetch,
    the_type_is_corrected_and_a_custom_name_is_kept,
    a_lost_feed_is_rediscovered_from_its_page,
    a_url_change_during_the_fetch_discards_its_result,
    a_feed_deleted_during_the_fetch_stays_deleted,
    a_fetch_is_retried_after_its_worker_dies,
    a_fetch_that_lost_its_lease_writes_nothing,
    a_temporary_page_does_not_change_the_feed_url,
    concurrent_schedulers_enqueue_due_feeds_once,
    a_slow_host_does_not_block_others,
    a_dead_fetch_marks_the_feed_failing_and_is_rescheduled,
);

async fn create_feed(w: &TestWorker, url: &str, kind: FeedType, name: Option<&str>) -> i64 {
    let new = NewFeed { name: name.unwrap_or("the host"), named: name.is_some(), url, kind };
    w.write(async |tx| feeds::create(tx, w.world.brand, &new, Some("request-1")).await).await.id
}

async fn feed(w: &TestWorker, id: i64) -> Feed {
    feeds::find_any(&mut w.conn().await, id).await.unwrap().unwrap()
}

async fn list_articles(w: &TestWorker, id: i64) -> Vec<Article> {
    articles::list(&mut w.conn().await, id).await.unwrap()
}

async fn titles(w: &TestWorker, id: i64) -> Vec<String> {
    list_articles(w, id).await.into_iter().map(|a| a.title.unwrap_or_default()).collect()
}

/// Advances the clock until the feed is due, and runs the due jobs.
async fn run_next_fetch(w: &TestWorker, id: i64) {
    let at = feed(w, id).await.next_fetch_at;
    w.clock.advance(at - w.clock.now());
    tasks::feeds::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

/// Returns the number of minutes until the feed is due.
async fn minutes_until_due(w: &TestWorker, id: i64) -> i64 {
    (feed(w, id).await.next_fetch_at - w.now()).num_minutes()
}

async fn a_feed_is_fetched_and_then_polled_conditionally(w: TestWorker) {
    let server = Server::start().await;
    let good = FeedResponse::ok(rss(&[("a", "First"), ("b", "Second")])).with("ETag", "\"1\"");
    server.set_response("/feed", good);
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    let created = feed(&w, id).await;
    assert_eq!(
        (created.status, created.name.as_str(), created.last_fetched_at),
        (FeedStatus::Pending, "the host", None)
    );
    w.run_jobs().await;
    let fetched = feed(&w, id).await;
    assert_eq!(
        (fetched.status, fetched.name.as_str(), fetched.articles_count),
        (FeedStatus::Active, "Its own title", 2)
    );
    assert_eq!(
        (fetched.last_fetched_at, fetched.last_error.as_deref(), fetched.etag.as_deref()),
        (Some(w.now()), None, Some("\"1\""))
    );
    assert!((13..=16).contains(&minutes_until_due(&w, id).await), "about every 15 minutes");
    assert_eq!(titles(&w, id).await, ["First", "Second"]);
    let before = list_articles(&w, id).await;
    assert_eq!((before[0].published_at, before[0].url.as_deref()), (w.now(), Some(server.url("/a").as_str())));

    server.take_requests();
    server.set_response("/feed", FeedResponse::status(304));
    run_next_fetch(&w, id).await;
    assert!(server.take_requests()[0].to_ascii_lowercase().contains("if-none-match: \"1\""));
    let fetched = feed(&w, id).await;
    assert_eq!(
        (fetched.status, fetched.last_fetched_at, fetched.articles_count),
        (FeedStatus::Active, Some(w.now()), 2)
    );
    assert_eq!(fetched.etag.as_deref(), Some("\"1\""), "its ETag is kept");
    assert!((13..=16).contains(&minutes_until_due(&w, id).await));
    assert_eq!(
        list_articles(&w, id).await.iter().map(|a| a.updated_at).max(),
        before.iter().map(|a| a.updated_at).max()
    );
    let traced = w.count_rows("jobs WHERE kind = 'fetch_feed' AND state = 'done' AND trace = 'request-1'");
    assert_eq!(traced.await, 1);
}

async fn the_validators_of_a_304_replace_the_stored_ones(w: TestWorker) {
    let server = Server::start().await;
    let modified = "Mon, 04 May 2026 10:00:00 GMT";
    let good = FeedResponse::ok(rss(&[("a", "First")])).with("ETag", "\"1\"").with("Last-Modified", modified);
    server.set_response("/feed", good);
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    server.set_response("/feed", FeedResponse::status(304).with("ETag", "\"2\""));
    run_next_fetch(&w, id).await;
    let fetched = feed(&w, id).await;
    assert_eq!((fetched.etag.as_deref(), fetched.last_modified.as_deref()), (Some("\"2\""), Some(modified)));
    server.take_requests();
    server.set_response("/feed", FeedResponse::status(304).with("Last-Modified", "Tue, 05 May 2026 10:00:00 GMT"));
    run_next_fetch(&w, id).await;
    let request = server.take_requests()[0].to_ascii_lowercase();
    assert!(request.contains("if-none-match: \"2\"") && request.contains("if-modified-since: mon, 04"), "{request}");
    let fetched = feed(&w, id).await;
    assert_eq!((fetched.etag.as_deref(), fetched.articles_count), (Some("\"2\""), 1));
    assert!(fetched.last_modified.unwrap().starts_with("Tue"));
}

/// A feed that gives all its articles one guid, newest first.
async fn articles_with_one_guid_are_each_listed_once(w: TestWorker) {
    let server = Server::start().await;
    let document = |newest: i64| {
        let item = |n: i64| format!("<item><guid>same</guid><title>Story {n}</title><link>/{n}</link></item>");
        let items: String = (newest - 9..=newest).rev().map(item).collect();
        FeedResponse::ok(format!("<rss version=\"2.0\"><channel><title>F</title>{items}</channel></rss>"))
    };
    server.set_response("/feed", document(10));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    let before = list_articles(&w, id).await;
    assert_eq!((before.len(), before[0].title.as_deref(), before[0].guid.len()), (10, Some("Story 10"), 71));
    server.set_response("/feed", document(12));
    run_next_fetch(&w, id).await;
    let after = list_articles(&w, id).await;
    assert_eq!(
        (after.len(), after[0].title.as_deref(), after[1].title.as_deref()),
        (12, Some("Story 12"), Some("Story 11"))
    );
    assert!(after[2..].iter().zip(&before).all(|(after, before)| after.id == before.id && after.guid == before.guid));
    // An article stored with the shared guid alone is recognized too.
    let row = before[3].id;
    w.sql(format!("UPDATE articles SET guid = 'same' WHERE id = {row}")).await;
    server.set_response("/feed", document(13));
    run_next_fetch(&w, id).await;
    let all = list_articles(&w, id).await;
    assert_eq!(
        (all.len(), all[6].id, all[6].guid.as_str(), all[6].updated_at),
        (13, row, "same", before[3].updated_at)
    );
}

async fn changed_articles_are_updated(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First"), ("b", "Second")])));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    let before = list_articles(&w, id).await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("c", "Third"), ("a", "First, corrected"), ("b", "Second")])));
    run_next_fetch(&w, id).await;
    let after = list_articles(&w, id).await;
    assert_eq!(titles(&w, id).await, ["Third", "First, corrected", "Second"]);
    assert_eq!((after[1].id, after[1].published_at), (before[0].id, before[0].published_at), "the same article");
    assert_eq!((after[1].updated_at, after[1].created_at), (w.now(), before[0].created_at));
    assert_eq!(after[2].updated_at, before[1].updated_at, "unchanged articles are not updated");
    // Articles that a feed no longer contains are kept.
    server.set_response("/feed", FeedResponse::ok(rss(&[])));
    run_next_fetch(&w, id).await;
    assert_eq!((feed(&w, id).await.articles_count, list_articles(&w, id).await.len()), (3, 3));
}

async fn the_newest_200_articles_are_kept(w: TestWorker) {
    let server = Server::start().await;
    let dated = |from: i64, to: i64| {
        let item = |n: i64| {
            let at = chrono::DateTime::<Utc>::from_timestamp(1_700_000_000 + n * 3_600, 0).unwrap().to_rfc2822();
            format!("<item><guid>{n}</guid><title>Story {n}</title><pubDate>{at}</pubDate></item>")
        };
        let items: String = (from..to).map(item).collect();
        FeedResponse::ok(format!("<rss version=\"2.0\"><channel><title>F</title>{items}</channel></rss>"))
    };
    server.set_response("/feed", dated(0, 230));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    let kept = titles(&w, id).await;
    assert_eq!((kept.len(), kept[0].as_str(), kept[199].as_str()), (200, "Story 229", "Story 30"));
    server.set_response("/feed", dated(0, 233));
    run_next_fetch(&w, id).await;
    let kept = titles(&w, id).await;
    assert_eq!((kept.len(), kept[0].as_str(), kept[199].as_str()), (200, "Story 232", "Story 33"));
    assert_eq!(feed(&w, id).await.articles_count, 200);
    assert_eq!(w.count_rows("articles").await, 200);
}

async fn a_failing_feed_backs_off_until_it_recovers(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First")])));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    server.set_response("/feed", FeedResponse::status(500));
    for minutes in [15, 30, 60, 120, 240, 480, 960, 1_440, 1_440] {
        run_next_fetch(&w, id).await;
        let f = feed(&w, id).await;
        assert_eq!((f.status, f.last_error.as_deref()), (FeedStatus::Failing, Some("The server returned 500.")));
        assert_eq!((f.articles_count, f.last_fetched_at), (1, Some(w.now())), "existing articles are kept");
        let waits = minutes_until_due(&w, id).await;
        assert!((minutes * 9 / 10 - 1..=minutes * 11 / 10).contains(&waits), "{minutes}: {waits}");
    }
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First")])));
    run_next_fetch(&w, id).await;
    let f = feed(&w, id).await;
    assert_eq!((f.status, f.last_error, f.failures), (FeedStatus::Active, None, 0));
    assert!((13..=16).contains(&minutes_until_due(&w, id).await));
    let ended = w.count_rows("jobs WHERE kind = 'fetch_feed' AND state <> 'done'").await;
    assert_eq!(ended, 0, "a failed fetch does not fail the job");
}

async fn retry_after_delays_the_next_fetch(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::status(429).with("Retry-After", "10800"));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    assert_eq!(minutes_until_due(&w, id).await, 180);
    server.set_response("/feed", FeedResponse::status(503).with("Retry-After", "1"));
    run_next_fetch(&w, id).await;
    assert!((27..=33).contains(&minutes_until_due(&w, id).await), "not before the usual time");
    server.set_response("/feed", FeedResponse::status(429).with("Retry-After", "9999999999"));
    run_next_fetch(&w, id).await;
    assert_eq!(minutes_until_due(&w, id).await, 1_440);
}

async fn the_type_is_corrected_and_a_custom_name_is_kept(w: TestWorker) {
    let server = Server::start().await;
    let json = r#"{"version":"https://jsonfeed.org/version/1.1","title":"J","items":[]}"#;
    let atom = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title/><id>x</id></feed>"#;
    server.set_response("/json", FeedResponse::ok(json));
    server.set_response("/atom", FeedResponse::ok(atom));
    server.set_response("/rss", FeedResponse::ok(rss(&[])));
    for (path, submitted, name, kind, named) in [
        ("/json", FeedType::Rss, None, FeedType::Json, "J"),
        ("/json", FeedType::Wordpress, Some("Mine"), FeedType::Json, "Mine"),
        ("/atom", FeedType::Rss, None, FeedType::Atom, "the host"),
        ("/rss", FeedType::Json, Some("Mine"), FeedType::Rss, "Mine"),
        ("/rss", FeedType::Wordpress, None, FeedType::Wordpress, "Its own title"),
    ] {
        let id = create_feed(&w, &server.url(path), submitted, name).await;
        w.run_jobs().await;
        let f = feed(&w, id).await;
        assert_eq!((f.kind, f.name.as_str(), f.status), (kind, named, FeedStatus::Active), "{path} as {submitted}");
    }
}

async fn a_lost_feed_is_rediscovered_from_its_page(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/", FeedResponse::ok(page("/old.xml")));
    server.set_response("/old.xml", FeedResponse::ok(rss(&[("a", "First")])));
    let id = create_feed(&w, &server.url("/"), FeedType::Rss, None).await;
    w.run_jobs().await;
    let f = feed(&w, id).await;
    assert_eq!((f.url, f.found_url), (server.url("/"), Some(server.url("/old.xml"))));
    server.set_response("/", FeedResponse::ok(page("/new.xml")));
    server.set_response("/new.xml", FeedResponse::ok(rss(&[("a", "First"), ("b", "Second")])));
    for status in [500, 404] {
        server.set_response("/old.xml", FeedResponse::status(status));
        run_next_fetch(&w, id).await;
        assert_eq!(feed(&w, id).await.found_url.is_none(), status == 404, "{status}");
    }
    run_next_fetch(&w, id).await;
    let f = feed(&w, id).await;
    assert_eq!((f.status, f.found_url, f.articles_count), (FeedStatus::Active, Some(server.url("/new.xml")), 2));
}

/// Starts a fetch, and returns when its request has arrived. The response is sent when the semaphore gets a permit.
async fn start_fetch(w: &TestWorker, server: &Server, id: i64) -> (Arc<Semaphore>, tokio::task::JoinHandle<bool>) {
    let gate = Arc::new(Semaphore::new(0));
    server.set_response(
        "/feed",
        FeedResponse::Held(gate.clone(), Box::new(FeedResponse::ok(rss(&[("old", "From the old URL")])))),
    );
    let job = w.newest_job_of(JobKind::FetchFeed, id).await;
    w.s.notifier.take();
    let engine = w.engine.clone();
    let run = tokio::spawn(async move { engine.run(job).await });
    until_true("the request was sent", || !server.take_requests().is_empty()).await;
    (gate, run)
}

async fn a_url_change_during_the_fetch_discards_its_result(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/new", FeedResponse::ok(rss(&[("new", "From the new URL")])));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    let (gate, run) = start_fetch(&w, &server, id).await;
    let url = server.url("/new");
    w.write(async |tx| feeds::move_to(tx, id, &url, "the new host", None).await).await;
    gate.add_permits(1);
    assert!(run.await.unwrap());
    assert_eq!((feed(&w, id).await.status, list_articles(&w, id).await.len()), (FeedStatus::Pending, 0));
    w.run_jobs().await;
    assert_eq!(
        (titles(&w, id).await, feed(&w, id).await.status),
        (vec!["From the new URL".to_owned()], FeedStatus::Active)
    );
    let (jobs, attempts) = (w.count_rows("jobs"), w.number("SELECT CAST(max(attempt) AS bigint) FROM jobs"));
    assert_eq!((jobs.await, attempts.await), (1, 1), "the same job, without using an attempt");
    // A change while no fetch runs: the articles of the old URL are deleted immediately.
    let url = server.url("/nowhere");
    w.write(async |tx| feeds::move_to(tx, id, &url, "another host", None).await).await;
    let f = feed(&w, id).await;
    assert_eq!((f.status, f.articles_count, f.version, f.last_fetched_at), (FeedStatus::Pending, 0, 3, None));
    assert_eq!((list_articles(&w, id).await.len(), f.name.as_str()), (0, "another host"));
    w.run_jobs().await;
    assert_eq!(feed(&w, id).await.status, FeedStatus::Failing);
}

async fn a_feed_deleted_during_the_fetch_stays_deleted(w: TestWorker) {
    let server = Server::start().await;
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    let (gate, run) = start_fetch(&w, &server, id).await;
    assert!(w.write(async |tx| feeds::delete(tx, w.world.brand, id).await).await);
    gate.add_permits(1);
    assert!(run.await.unwrap());
    assert_eq!(w.count_rows("articles").await, 0);
    assert_eq!(w.newest_job().await.state, JobState::Cancelled);
    // A feed that is deleted before its fetch begins.
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.write(async |tx| feeds::delete(tx, w.world.brand, id).await).await;
    w.run_jobs().await;
    assert_eq!(w.newest_job().await.last_error.as_deref(), Some("the feed no longer exists"));
    assert!(server.take_requests().is_empty());
}

/// Advances past the running job's lease, and asserts that the rescued job completes the fetch.
async fn assert_rescued(w: &TestWorker, server: &Server, id: i64) {
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First"), ("b", "Second")])));
    w.clock.advance(TimeDelta::minutes(10));
    w.run_jobs().await;
    let f = feed(w, id).await;
    assert_eq!((f.status, f.articles_count, f.failures), (FeedStatus::Active, 2, 0));
    assert_eq!(titles(w, id).await, ["First", "Second"], "each once");
    assert_eq!(w.count_rows("jobs WHERE kind = 'fetch_feed'").await, 1);
    assert_eq!(w.count_rows("jobs WHERE kind = 'fetch_feed' AND state = 'done'").await, 1);
}

async fn a_fetch_is_retried_after_its_worker_dies(w: TestWorker) {
    let server = Server::start().await;
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    server.set_response(
        "/feed",
        FeedResponse::Held(Arc::new(Semaphore::new(0)), Box::new(FeedResponse::ok(rss(&[("a", "First")])))),
    );
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    until_true("the request was sent", || !server.take_requests().is_empty()).await;
    doomed.kill().await;
    assert_eq!((feed(&w, id).await.status, list_articles(&w, id).await.len()), (FeedStatus::Pending, 0));
    assert_rescued(&w, &server, id).await;
}

async fn a_fetch_that_lost_its_lease_writes_nothing(w: TestWorker) {
    let server = Server::start().await;
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    let (gate, run) = start_fetch(&w, &server, id).await;
    w.take_over(w.newest_job_of(JobKind::FetchFeed, id).await).await;
    gate.add_permits(1);
    run.await.unwrap();
    assert_eq!((feed(&w, id).await.status, list_articles(&w, id).await.len()), (FeedStatus::Pending, 0));
    assert_rescued(&w, &server, id).await;
}

async fn a_temporary_page_does_not_change_the_feed_url(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First")])));
    server.set_response("/all.xml", FeedResponse::ok(rss(&[("x", "From another feed")])));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    w.run_jobs().await;
    server.set_response("/feed", FeedResponse::ok(page("/all.xml")));
    for _ in 0..3 {
        run_next_fetch(&w, id).await;
        let f = feed(&w, id).await;
        assert_eq!((f.status, f.last_error.unwrap().contains("returns a web page")), (FeedStatus::Failing, true));
    }
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First"), ("b", "Second")])));
    run_next_fetch(&w, id).await;
    assert_eq!((titles(&w, id).await.len(), feed(&w, id).await.status), (2, FeedStatus::Active));
}

async fn concurrent_schedulers_enqueue_due_feeds_once(w: TestWorker) {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[])));
    let mut ids = Vec::new();
    for n in 0..250 {
        ids.push(create_feed(&w, &format!("http://host{n}.invalid/feed"), FeedType::Rss, None).await);
    }
    let waiting = "jobs WHERE state = 'ready'";
    tasks::feeds::run(&w.scheduler).await.unwrap();
    assert_eq!(w.count_rows(waiting).await, 250, "each feed has its first job, and none is due");
    w.set_job_state("jobs", JobState::Done).await;
    // Nine hours without a scheduler.
    w.clock.advance(TimeDelta::hours(9));
    let kept = ids[7];
    w.enqueue_job(JobKind::FetchFeed, kept, None).await;
    run_concurrently(4, |_| {
        let scheduler = w.scheduler.clone();
        async move { tasks::feeds::run(&scheduler).await.unwrap() }
    })
    .await;
    assert_eq!(w.count_rows(waiting).await, 250, "one job each; an existing job is kept");
    assert_eq!(w.number("SELECT count(DISTINCT subject_id) FROM jobs WHERE state = 'ready'").await, 250);
    assert_eq!(feed(&w, ids[0]).await.next_fetch_at, w.now() + FETCH_INTERVAL);
    let lanes = w.count_rows("jobs WHERE state = 'ready' AND lane = 'host:host3.invalid'").await;
    assert_eq!(lanes, 1);
    tasks::feeds::run(&w.scheduler).await.unwrap();
    assert_eq!(w.count_rows(waiting).await, 250);
}

async fn a_slow_host_does_not_block_others(w: TestWorker) {
    let (slow, quick) = (Server::start().await, Server::start().await);
    let gate = Arc::new(Semaphore::new(0));
    slow.set_response("/feed", FeedResponse::Held(gate.clone(), Box::new(FeedResponse::ok(rss(&[("a", "Slow")])))));
    quick.set_response("/feed", FeedResponse::ok(rss(&[("a", "Quick")])));
    for _ in 0..6 {
        create_feed(&w, &slow.url("/feed"), FeedType::Rss, None).await;
    }
    create_feed(&w, &quick.url("/feed"), FeedType::Rss, None).await;
    let start = |id: i64| {
        let engine = w.engine.clone();
        tokio::spawn(async move { engine.run(id).await })
    };
    w.s.notifier.take().into_iter().for_each(|id| drop(start(id)));
    let active = "feeds WHERE status = 'active'";
    let waiting = "jobs WHERE waiting";
    w.poll_until(async || (w.count_rows(active).await, w.count_rows(waiting).await) == (1, 2)).await;
    until_true("four requests were sent", || slow.request_count() == 4).await;
    gate.add_permits(6);
    w.poll_until(async || {
        w.s.notifier.take().into_iter().for_each(|id| drop(start(id)));
        w.count_rows(active).await == 7
    })
    .await;
    assert_eq!(slow.request_count(), 6);
}

async fn a_dead_fetch_marks_the_feed_failing_and_is_rescheduled(w: TestWorker) {
    w.leaves_jobs();
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("a", "First")])));
    let id = create_feed(&w, &server.url("/feed"), FeedType::Rss, None).await;
    let job = w.newest_id("jobs").await;
    w.s.notifier.take();
    w.write(async |tx| jobs::on_dead(tx, JobKind::FetchFeed, id, None).await).await;
    let f = feed(&w, id).await;
    assert_eq!((f.status, f.failures), (FeedStatus::Failing, 1));
    assert!(f.last_error.unwrap().contains("Crier retries later"));
    assert!((13..=16).contains(&minutes_until_due(&w, id).await));
    for failures in 2..=4 {
        w.write(async |tx| jobs::on_dead(tx, JobKind::FetchFeed, id, None).await).await;
        assert_eq!(w.count_rows("notices").await, i64::from(failures >= 3), "members are told: {failures}");
    }
    w.set_job_state("jobs", JobState::Dead).await;
    run_next_fetch(&w, id).await;
    assert_eq!(feed(&w, id).await.status, FeedStatus::Active);
    assert_eq!(w.state(job).await, JobState::Dead);
    let described = jobs::describe(&mut w.conn().await, JobKind::FetchFeed, id).await.unwrap().unwrap();
    assert_eq!(described.words, format!("feed {id} of brand {}, active", w.world.brand));
    assert!(w.write(async |tx| jobs::on_retry(tx, JobKind::FetchFeed, id).await).await);
    w.write(async |tx| jobs::on_cancelled(tx, JobKind::FetchFeed, id).await).await;
    w.write(async |tx| jobs::lock(tx, JobKind::FetchFeed, id).await).await;
    w.write(async |tx| feeds::delete(tx, w.world.brand, id).await).await;
    assert!(!w.write(async |tx| jobs::on_retry(tx, JobKind::FetchFeed, id).await).await);
    w.write(async |tx| jobs::on_dead(tx, JobKind::FetchFeed, id, None).await).await;
    assert!(jobs::describe(&mut w.conn().await, JobKind::FetchFeed, id).await.unwrap().is_none());
    assert!(!store::jobs::is_running(&mut w.conn().await, JobKind::FetchFeed, id).await.unwrap());
}
