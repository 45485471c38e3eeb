//! Single fetches over a real connection: conditional requests, redirects, the guard, limits, feed discovery.

use std::io::Write as _;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::feed::{Feed, FeedStatus, FeedType};
use crier_http::Guard;
use crier_worker::feeds::MAX_DOCUMENT_BYTES;
use crier_worker::jobs::fetch_feed::{Conditions, Document, FetchError, FetchResult, Fetcher};

use super::server::{FeedResponse, Server, page, rss};
use crate::support::store::start_time;

fn guard() -> Guard {
    Guard::new(vec!["127.0.0.1/32".parse().unwrap()])
}

/// Returns a stored feed that was never fetched.
fn feed(url: impl Into<String>, kind: FeedType) -> Feed {
    Feed {
        id: 1,
        brand_id: 1,
        name: "F".to_owned(),
        named: false,
        url: url.into(),
        kind,
        status: FeedStatus::Pending,
        version: 1,
        found_url: None,
        validator_url: None,
        etag: None,
        last_modified: None,
        failures: 0,
        last_error: None,
        last_fetched_at: None,
        next_fetch_at: start_time(),
        articles_count: 0,
        created_at: start_time(),
        updated_at: start_time(),
        auto_post_user_id: None,
        auto_post_since: None,
        auto_post_problem: None,
        auto_post: None,
    }
}

async fn fetch(feed: &Feed) -> Result<FetchResult, FetchError> {
    Fetcher::with_deadline(guard(), Duration::from_secs(20)).fetch(feed, start_time()).await
}

async fn document(feed: &Feed) -> Document {
    match fetch(feed).await.unwrap() {
        FetchResult::Feed(document) => *document,
        FetchResult::Unchanged(_) => panic!("unexpected 304"),
    }
}

async fn fetch_error(feed: &Feed) -> FetchError {
    fetch(feed).await.unwrap_err()
}

#[tokio::test]
async fn requests_send_user_agent_and_accept_headers() {
    let server = Server::start().await;
    server.set_response("/feed", FeedResponse::ok(rss(&[("1", "One")])));
    let found = document(&feed(server.url("/feed"), FeedType::Rss)).await;
    assert_eq!(found.parsed.articles[0].url.as_deref(), Some(server.url("/1").as_str()));
    assert_eq!((found.validator_url, found.conditions), (None, Conditions::default()));
    assert_eq!(found.found_url, server.url("/feed"));
    let head = server.take_requests().remove(0).to_ascii_lowercase();
    assert!(head.starts_with("get /feed http/1.1\r\n") && head.contains("\r\nuser-agent: crier-feeds/"), "{head}");
    assert!(head.contains("\r\naccept: application/rss+xml, ") && head.contains("\r\naccept-encoding: gzip"), "{head}");
    assert!(!head.contains("if-none-match") && !head.contains("if-modified-since"), "{head}");
}

#[tokio::test]
async fn validators_are_sent_only_to_the_url_that_issued_them() {
    let server = Server::start().await;
    let good =
        FeedResponse::ok(rss(&[])).with("ETag", "W/\"a\"").with("Last-Modified", "Mon, 04 May 2026 10:00:00 GMT");
    server.set_response("/feed", FeedResponse::redirect(302, "/real"));
    server.set_response("/real", good);
    let mut f = feed(server.url("/feed"), FeedType::Rss);
    let found = document(&f).await;
    assert_eq!(found.validator_url, Some(server.url("/real")));
    (f.validator_url, f.etag, f.last_modified) =
        (found.validator_url, found.conditions.etag, found.conditions.last_modified);
    server.take_requests();
    server.set_response("/real", FeedResponse::status(304));
    assert!(matches!(fetch(&f).await, Ok(FetchResult::Unchanged(new)) if new == Conditions::default()));
    let requests = server.take_requests();
    assert!(!requests[0].to_ascii_lowercase().contains("if-"), "{requests:?}");
    let second = requests[1].to_ascii_lowercase();
    assert!(
        second.contains("if-none-match: w/\"a\"")
            && second.contains("if-modified-since: mon, 04 may 2026 10:00:00 gmt")
    );
    server.set_response("/feed", FeedResponse::redirect(302, "/other"));
    server.set_response("/other", FeedResponse::status(304));
    assert_eq!(fetch_error(&f).await.why, "The server returned 304.", "the request was not conditional");
}

#[tokio::test]
async fn redirects_are_followed_up_to_a_limit() {
    let server = Server::start().await;
    for (n, status) in [301, 302, 303, 307, 308].iter().enumerate() {
        server.set_response(&format!("/{n}"), FeedResponse::redirect(*status, format!("/{}", n + 1)));
    }
    server.set_response("/5", FeedResponse::ok(rss(&[("x", "X")])));
    assert_eq!(document(&feed(server.url("/0"), FeedType::Rss)).await.parsed.articles.len(), 1);
    server.take_requests();
    server.set_response("/5", FeedResponse::redirect(302, "/6"));
    assert!(fetch_error(&feed(server.url("/0"), FeedType::Rss)).await.why.contains("more than 5 redirects"));
    assert_eq!(server.paths().len(), 6);
    server.set_response("/0", FeedResponse::status(301));
    assert_eq!(
        fetch_error(&feed(server.url("/0"), FeedType::Rss)).await.why,
        "The server returned 301 without a redirect URL."
    );
}

#[tokio::test]
async fn redirects_cannot_bypass_the_guard() {
    let (server, inside) = (Server::start().await, Server::start().await);
    // A loopback address other than the allowed one.
    let port = inside.base.rsplit(':').next().unwrap().to_owned();
    let private = [
        "http://127.0.0.2:PORT/",
        "http://[::1]:PORT/",
        "http://0x7f.0.0.2:PORT/",
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
    ];
    for to in private {
        server.set_response("/feed", FeedResponse::redirect(302, to.replace("PORT", &port)));
        let why = fetch_error(&feed(server.url("/feed"), FeedType::Rss)).await.why;
        assert!(why.ends_with("must point to a public address."), "{to}: {why}");
        server.set_response("/page", FeedResponse::ok(page(&to.replace("PORT", &port))));
        let why = fetch_error(&feed(server.url("/page"), FeedType::Rss)).await.why;
        assert!(why.ends_with("must point to a public address."), "{to}: {why}");
    }
    for to in ["file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1/"] {
        server.set_response("/feed", FeedResponse::redirect(302, to));
        assert!(
            fetch_error(&feed(server.url("/feed"), FeedType::Rss))
                .await
                .why
                .contains("must begin with https:// or http://")
        );
    }
    // Error messages contain no secrets from the URL.
    server
        .set_response("/feed", FeedResponse::redirect(302, "http://ann:s3cret@10.0.0.1/feed.xml?token=s3cret#s3cret"));
    let why = fetch_error(&feed(server.url("/feed"), FeedType::Rss)).await.why;
    assert!(why.contains("http://10.0.0.1/feed.xml?…") && !why.contains("s3cret") && !why.contains("ann"), "{why}");
    assert!(inside.take_requests().is_empty());
}

#[tokio::test]
async fn response_size_is_limited_before_and_after_decompression() {
    let server = Server::start().await;
    let padded = |size: usize| {
        let mut body = rss(&[("1", "One")]).into_bytes();
        body.extend(std::iter::repeat_n(b' ', size - body.len()));
        body
    };
    let f = feed(server.url("/feed"), FeedType::Rss);
    server.set_response("/feed", FeedResponse::ok(padded(MAX_DOCUMENT_BYTES)));
    assert_eq!(document(&f).await.parsed.articles.len(), 1);
    server.set_response("/feed", FeedResponse::ok(padded(MAX_DOCUMENT_BYTES + 1)));
    assert_eq!(fetch_error(&f).await.why, "The feed is larger than 5 MiB.");
    let zipped = |bytes: &[u8]| {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        zip.write_all(bytes).unwrap();
        FeedResponse::ok(zip.finish().unwrap()).with("Content-Encoding", "gzip")
    };
    server.set_response("/feed", zipped(rss(&[("1", "One"), ("2", "Two")]).as_bytes()));
    assert_eq!(document(&f).await.parsed.articles.len(), 2);
    // 64 MiB compressed to 64 KiB.
    server.set_response("/feed", zipped(&padded(64 << 20)));
    assert_eq!(fetch_error(&f).await.why, "The feed is larger than 5 MiB.");
}

#[tokio::test]
async fn one_deadline_covers_the_whole_fetch() {
    let server = Server::start().await;
    server.set_response("/slow", FeedResponse::Never);
    server.set_response("/to-slow", FeedResponse::redirect(302, "/slow"));
    server.set_response("/page", FeedResponse::ok(page("/slow")));
    let fetcher = Fetcher::with_deadline(guard(), Duration::from_millis(200));
    for path in ["/slow", "/to-slow", "/page"] {
        let failure = fetcher.fetch(&feed(server.url(path), FeedType::Rss), start_time()).await.unwrap_err();
        assert!(failure.why.contains("in time"), "{path}: {failure:?}");
    }
}

#[tokio::test]
async fn error_responses_are_reported_and_retry_after_is_parsed() {
    let server = Server::start().await;
    let f = feed(server.url("/feed"), FeedType::Rss);
    let later = |seconds: i64| -> Option<DateTime<Utc>> { Some(start_time() + TimeDelta::seconds(seconds)) };
    for (response, why, has_no_feed, retry_after) in [
        (FeedResponse::status(404), "The server returned 404.", true, None),
        (FeedResponse::status(410), "The server returned 410.", true, None),
        (FeedResponse::status(403).with("Retry-After", "60"), "The server returned 403.", false, None),
        (FeedResponse::status(429).with("Retry-After", "7200"), "The server returned 429.", false, later(7_200)),
        (FeedResponse::status(503).with("Retry-After", "soon"), "The server returned 503.", false, None),
        (FeedResponse::status(500), "The server returned 500.", false, None),
        (FeedResponse::ok("<!doctype html><p>Hello"), "This URL returns a web page, not a feed.", true, None),
        (FeedResponse::ok(""), "This URL could not be read as a feed: it is empty.", true, None),
        (
            FeedResponse::ok("pong"),
            "This URL could not be read as a feed: it is neither RSS nor Atom nor JSON Feed.",
            true,
            None,
        ),
    ] {
        server.set_response("/feed", response);
        assert_eq!(fetch_error(&f).await, FetchError { why: why.to_owned(), has_no_feed, retry_after });
    }
    let unreachable = fetch_error(&feed("http://127.0.0.1:9/", FeedType::Rss)).await;
    assert_eq!(unreachable.why, "The feed could not be fetched: no connection could be made.");
    server.set_response("/feed", FeedResponse::ok(&rss(&[("1", "One")])[..150]));
    let cut = fetch_error(&f).await.why;
    assert!(cut.starts_with("This URL could not be read as a feed: it is not valid XML"), "{cut}");
}

#[tokio::test]
async fn a_feed_is_discovered_from_its_page() {
    let server = Server::start().await;
    server.set_response("/blog", FeedResponse::redirect(301, "/blog/"));
    server.set_response("/blog/", FeedResponse::ok(page("posts.xml")));
    server.set_response("/blog/posts.xml", FeedResponse::ok(rss(&[("1", "One")])).with("ETag", "\"x\""));
    let f = feed(server.url("/blog"), FeedType::Atom);
    let found = document(&f).await;
    assert_eq!(found.found_url, server.url("/blog/posts.xml"));
    assert_eq!(found.validator_url.as_ref(), Some(&found.found_url));
    assert_eq!(server.paths(), ["/blog", "/blog/", "/blog/posts.xml"]);
    // The discovered feed is then fetched directly.
    let f = Feed { found_url: Some(found.found_url), ..f };
    assert_eq!(Some(document(&f).await.found_url), f.found_url);
    assert_eq!(server.paths(), ["/blog/posts.xml"]);
    // A page that replaces the found feed does not lead to another page.
    server.set_response("/blog/posts.xml", FeedResponse::ok(page("/blog/")));
    assert!(fetch_error(&f).await.has_no_feed);
    assert_eq!(server.paths(), ["/blog/posts.xml"]);
    // Neither does a page that replaces a feed's own URL: the site may be under maintenance or check for bots.
    let f = feed(server.url("/category.xml"), FeedType::Rss);
    server.set_response("/category.xml", FeedResponse::ok(rss(&[("1", "One")])));
    let f = Feed { found_url: Some(document(&f).await.found_url), ..f };
    server.set_response("/category.xml", FeedResponse::ok(page("/all.xml")));
    server.set_response("/all.xml", FeedResponse::ok(rss(&[("2", "From another feed")])));
    assert!(fetch_error(&f).await.why.contains("returns a web page"));
    server.take_requests();
    server.set_response("/loop", FeedResponse::ok(page("/loop")));
    assert!(fetch_error(&feed(server.url("/loop"), FeedType::Rss)).await.why.contains("returns a web page"));
    assert_eq!(server.paths(), ["/loop", "/loop"]);
}

#[tokio::test]
async fn wordpress_feeds_are_found_at_their_default_urls() {
    let server = Server::start().await;
    let site = |path| feed(server.url(path), FeedType::Wordpress);
    server.set_response("/blog", FeedResponse::ok("<!doctype html><html><p>No links"));
    server.set_response("/blog/feed/", FeedResponse::ok(rss(&[("1", "One")])));
    assert_eq!(document(&site("/blog")).await.found_url, server.url("/blog/feed/"));
    server.set_response("/blog/feed/", FeedResponse::status(404));
    server.set_response("/blog?feed=rss2", FeedResponse::status(404));
    server.set_response("/blog/?feed=rss2", FeedResponse::ok(rss(&[("1", "One")])));
    let found = fetch(&site("/blog")).await;
    assert!(found.is_err(), "only `/blog` itself is queried");
    server.set_response("/blog?feed=rss2", FeedResponse::ok(rss(&[("1", "One")])));
    assert_eq!(document(&site("/blog")).await.found_url, server.url("/blog?feed=rss2"));
    // A feed that the page links to takes precedence.
    server.set_response("/blog", FeedResponse::ok(page("/named")));
    server.set_response("/named", FeedResponse::ok(rss(&[("1", "One")])));
    assert_eq!(document(&site("/blog")).await.found_url, server.url("/named"));
    // If the URL is a feed itself, it is used unchanged.
    assert_eq!(document(&site("/named")).await.found_url, server.url("/named"));
    // For other types of feeds, no URL is guessed.
    server.set_response("/blog", FeedResponse::ok("<!doctype html><html>"));
    server.take_requests();
    fetch_error(&feed(server.url("/blog"), FeedType::Rss)).await;
    assert_eq!(server.paths(), ["/blog"]);
}
