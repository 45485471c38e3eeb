//! Fetches and parses a feed.
//!
//! One deadline covers all requests and the parsing. Redirects are followed; the guard checks each URL before the
//! request (and its host at the DNS lookup of that connection). The next fetch starts at the feed's own URL again, even
//! after permanent redirects, so that a URL that was redirected temporarily works again. Conditional headers
//! (`If-None-Match`, `If-Modified-Since`) are sent only to the URL that returned their values. If the URL returns a web
//! page, the page is searched for a feed link, unless the feed was found before: a site that temporarily shows a page
//! (to sign in, or for maintenance) must not lead to another feed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use crier_domain::feed::{Feed, FeedType};
use crier_html::MAX_URL;
use crier_http::{Guard, HttpClient, HttpError, HttpResponse, SchemePolicy};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tokio::sync::Semaphore;
use url::Url;

use crate::feeds::{self, Deadline, FeedError, MAX_DOCUMENT_BYTES, Parsed, discover};

/// The deadline from the first DNS lookup to the last byte, including redirects and a search for the feed.
pub const DEADLINE: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// The maximum number of documents that a worker parses concurrently. Each takes a CPU core, and several times its size
/// in memory.
const MAX_CONCURRENT_PARSES: usize = 2;
/// The maximum length of a stored `ETag` or `Last-Modified`.
const MAX_VALIDATOR_LENGTH: usize = 512;

const USER_AGENT: &str = concat!("Crier-Feeds/", env!("CARGO_PKG_VERSION"));
const ACCEPT: &str = "application/rss+xml, application/atom+xml, application/feed+json, application/rdf+xml;q=0.9, \
     application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, text/html;q=0.7, */*;q=0.5";

/// Fetches feeds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: HttpClient,
    guard: Guard,
    deadline: Duration,
    parse_permits: Arc<Semaphore>,
}

/// A successful fetch.
#[derive(Debug)]
pub enum FetchResult {
    /// The feed was not modified since the last fetch. Contains the new conditions from the response.
    Unchanged(Conditions),
    Feed(Box<Document>),
}

/// The values of a response for the conditional headers of the next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

impl Conditions {
    fn of(headers: &HeaderMap) -> Self {
        let value = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| value.len() <= MAX_VALIDATOR_LENGTH).map(str::to_owned)
        };
        Self { etag: value(header::ETAG), last_modified: value(header::LAST_MODIFIED) }
    }
}

#[derive(Debug)]
pub struct Document {
    pub parsed: Parsed,
    /// The feed's URL, or the one that the page there links to.
    pub found_url: String,
    /// The URL after redirects, and its values for conditional headers.
    pub validator_url: Option<String>,
    pub conditions: Conditions,
}

/// A failed fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// A sentence or two for the feed's owner.
    pub why: String,
    /// Whether there is no feed at the URL.
    pub has_no_feed: bool,
    /// The `Retry-After` of a 429 or 503.
    pub retry_after: Option<DateTime<Utc>>,
}

impl FetchError {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), has_no_feed: false, retry_after: None }
    }
}

/// A response with a body.
struct Page {
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl Page {
    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

enum GetResult {
    NotModified(Conditions),
    Page(Box<Page>),
}

impl Fetcher {
    /// Creates a fetcher with the documented deadline and size limit.
    pub fn new(guard: Guard) -> Self {
        Self::with_deadline(guard, DEADLINE)
    }

    pub fn with_deadline(guard: Guard, deadline: Duration) -> Self {
        let client = HttpClient::guarded(guard.clone(), deadline, MAX_DOCUMENT_BYTES);
        Self { client, guard, deadline, parse_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_PARSES)) }
    }

    /// Fetches and parses a feed.
    pub async fn fetch(&self, feed: &Feed, now: DateTime<Utc>) -> Result<FetchResult, FetchError> {
        let end = Instant::now() + self.deadline;
        let page = match self.get(feed.address(), feed, end, now).await? {
            GetResult::NotModified(new) => return Ok(FetchResult::Unchanged(new)),
            GetResult::Page(page) => page,
        };
        let (page, read) = self.read(page, end).await;
        let not_a_feed = match read {
            Ok(parsed) => return Ok(document(parsed, &page, feed.address())),
            Err(error @ FeedError::TooSlow) => return Err(FetchError::new(no_feed(&error))),
            Err(error) => error,
        };
        // If the URL that a page linked to returns no feed, the next fetch requests the page again.
        let candidates = if feed.found_url.is_some() { Vec::new() } else { candidates(feed, &page, &not_a_feed) };
        let mut failure = FetchError { has_no_feed: true, ..FetchError::new(no_feed(&not_a_feed)) };
        for address in candidates {
            match self.candidate(&address, feed, end, now).await {
                Ok(found) => return Ok(found),
                Err(other) => {
                    let at = redact_url(&address);
                    failure.why = format!(
                        "{} Reading the feed that it links to at {at} failed: {}",
                        no_feed(&not_a_feed),
                        other.why
                    );
                }
            }
        }
        Err(failure)
    }

    async fn candidate(
        &self,
        address: &str,
        feed: &Feed,
        end: Instant,
        now: DateTime<Utc>,
    ) -> Result<FetchResult, FetchError> {
        let page = match self.get(address, feed, end, now).await? {
            GetResult::NotModified(new) => return Ok(FetchResult::Unchanged(new)),
            GetResult::Page(page) => page,
        };
        let (page, read) = self.read(page, end).await;
        let parsed = read.map_err(|error| FetchError::new(no_feed(&error)))?;
        Ok(document(parsed, &page, address))
    }

    /// Requests a URL and follows its redirects.
    async fn get(&self, address: &str, feed: &Feed, end: Instant, now: DateTime<Utc>) -> Result<GetResult, FetchError> {
        let mut address = address.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let url = self.guard.check_url(&address, SchemePolicy::HttpOrHttps);
            let url =
                url.map_err(|rejection| FetchError::new(format!("The URL {} {rejection}.", redact_url(&address))))?;
            let conditional = feed.validator_url.as_deref() == Some(url.as_str());
            let response = self.request(&url, feed, conditional, end).await;
            let response =
                response.map_err(|error| FetchError::new(format!("The feed could not be fetched: {error}.")))?;
            match response.status {
                StatusCode::NOT_MODIFIED if conditional => {
                    return Ok(GetResult::NotModified(Conditions::of(&response.headers)));
                }
                status if is_redirect(status) => {
                    let location = response.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
                    let next = location.and_then(|location| url.join(location).ok());
                    let Some(next) = next else {
                        return Err(FetchError::new(format!(
                            "The server returned {} without a redirect URL.",
                            status.as_u16()
                        )));
                    };
                    address = next.into();
                }
                status if status.is_success() => {
                    if response.truncated {
                        return Err(FetchError::new("The feed is larger than 5 MiB."));
                    }
                    return Ok(GetResult::Page(Box::new(Page { url, headers: response.headers, body: response.body })));
                }
                _ => return Err(status_error(&response, now)),
            }
        }
        Err(FetchError::new(format!("The URL has more than {MAX_REDIRECTS} redirects.")))
    }

    /// Sends one request, within the remaining time.
    async fn request(
        &self,
        url: &Url,
        feed: &Feed,
        conditional: bool,
        end: Instant,
    ) -> Result<HttpResponse, HttpError> {
        let client = self.client.with_limits(end.saturating_duration_since(Instant::now()), MAX_DOCUMENT_BYTES);
        let mut request = client
            .request(Method::GET, url.as_str())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, ACCEPT);
        if conditional {
            let conditions = [(header::IF_NONE_MATCH, &feed.etag), (header::IF_MODIFIED_SINCE, &feed.last_modified)];
            for (name, value) in conditions {
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
        }
        client.send(request).await
    }

    /// Parses a document on a blocking thread. It waits for a permit until the deadline, and the thread holds the
    /// permit until it is done, even if this future is dropped.
    async fn read(&self, page: Box<Page>, end: Instant) -> (Box<Page>, Result<Parsed, FeedError>) {
        let permit = tokio::time::timeout_at(end.into(), self.parse_permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return (page, Err(FeedError::TooSlow)) };
        let (body, base) = (page.body.clone(), page.url.clone());
        let kind = page.header(header::CONTENT_TYPE).map(str::to_owned);
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            feeds::parse(&body, kind.as_deref(), &base, &Deadline::new(&|| Instant::now() >= end))
        });
        let read = read.await.unwrap_or_else(|_| Err(FeedError::Broken("it could not be read".to_owned())));
        (page, read)
    }
}

/// Returns a URL without the parts that may be secret: user, password and query.
fn redact_url(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "that it redirects to".to_owned() };
    // This fails only for URLs that cannot have a user.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string().replace("%E2%80%A6", "…")
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn status_error(response: &HttpResponse, now: DateTime<Utc>) -> FetchError {
    FetchError {
        why: format!("The server returned {}.", response.status.as_u16()),
        has_no_feed: matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE),
        retry_after: response.retry_after(now),
    }
}

fn no_feed(error: &FeedError) -> String {
    match error {
        FeedError::Page(_) => "This URL returns a web page, not a feed.".to_owned(),
        error => format!("This URL could not be read as a feed: {error}."),
    }
}

/// Returns the URLs where the feed of a page may be.
fn candidates(feed: &Feed, page: &Page, error: &FeedError) -> Vec<String> {
    let mut all = match error {
        FeedError::Page(linked) => linked.clone(),
        _ => Vec::new(),
    };
    if feed.kind == FeedType::Wordpress && all.is_empty() {
        all = discover::of_wordpress(&page.url);
    }
    all
}

fn document(parsed: Parsed, page: &Page, address: &str) -> FetchResult {
    let conditions = Conditions::of(&page.headers);
    // A redirect may lead to a URL of any length.
    let is_kept = conditions != Conditions::default() && page.url.as_str().len() <= MAX_URL;
    let validator_url = is_kept.then(|| page.url.to_string());
    let found_url = address.to_owned();
    FetchResult::Feed(Box::new(Document { parsed, found_url, validator_url, conditions }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parsing_stops_at_the_deadline() {
        let fetcher = Fetcher::new(Guard::new(Vec::new()));
        let page = || {
            let url = Url::parse("https://example.com/feed").unwrap();
            let body = Bytes::from_static(b"<rss version='2.0'><channel><item><title>x</title></item></channel></rss>");
            Box::new(Page { url, headers: HeaderMap::new(), body })
        };
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(600));
        assert_eq!(fetcher.read(page(), later).await.1.unwrap().articles.len(), 1);
        assert_eq!(fetcher.read(page(), now).await.1.unwrap_err(), FeedError::TooSlow);
        // All permits are taken.
        let permits = fetcher.parse_permits.clone().acquire_many_owned(MAX_CONCURRENT_PARSES as u32).await.unwrap();
        assert_eq!(fetcher.read(page(), now).await.1.unwrap_err(), FeedError::TooSlow);
        drop(permits);
        assert_eq!(fetcher.read(page(), later).await.1.unwrap().articles.len(), 1);
    }

    #[tokio::test]
    async fn a_long_url_is_not_stored_with_its_conditions() {
        let fetcher = Fetcher::new(Guard::new(Vec::new()));
        let later = Instant::now() + Duration::from_secs(600);
        for (length, is_kept) in [(100, true), (MAX_URL, false)] {
            let url = Url::parse(&format!("https://example.com/{}", "x".repeat(length))).unwrap();
            let headers: HeaderMap = HeaderMap::from_iter([(header::ETAG, "\"1\"".parse().unwrap())]);
            let body = Bytes::from_static(b"<rss version='2.0'><channel><item><title>x</title></item></channel></rss>");
            let (page, read) = fetcher.read(Box::new(Page { url, headers, body }), later).await;
            let found = document(read.unwrap(), &page, "https://example.com/feed");
            let FetchResult::Feed(found) = found else { panic!("it is a feed") };
            assert_eq!(found.validator_url.is_some(), is_kept, "{length}");
        }
    }
}
