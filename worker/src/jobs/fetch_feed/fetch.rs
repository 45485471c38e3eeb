//! One fetch: from a feed's address to what stands in it, or why not.
//!
//! One deadline for all of it. Redirects are followed, each address judged by the guard before it is asked (and its host as
//! it is looked up for that very connection); the feed's own URL is asked again the next time, permanent redirects too, so
//! that an address which was lent away for a while comes back. Conditions (`If-None-Match`, `If-Modified-Since`) are sent to
//! the address that gave them and to no other. A page in place of a feed is searched for one, unless its feed was found
//! already: a site that shows a page for a while (to be signed in, or that it is being mended) must not lead to another feed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use crier_common::domain::feed::{Feed, FeedType};
use crier_common::feeds::{self, Deadline, LARGEST, NotAFeed, Parsed, discover};
use crier_common::http::{Answer, Guard, HttpClient, HttpError, SchemePolicy};
use crier_common::webhooks::schedule::parse_retry_after;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tokio::sync::Semaphore;
use url::Url;

/// From the first look-up to the last byte, redirects and a search for the feed included.
pub const DEADLINE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 5;
/// How many documents a worker reads at once: it takes a processor, and some times the document in memory.
const READ_AT_ONCE: usize = 2;
/// How long a condition may be that is kept.
const LONGEST_CONDITION: usize = 512;

const USER_AGENT: &str = concat!("Crier-Feeds/", env!("CARGO_PKG_VERSION"));
const ACCEPT: &str = "application/rss+xml, application/atom+xml, application/feed+json, application/rdf+xml;q=0.9, application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, text/html;q=0.7, */*;q=0.5";

/// Fetches feeds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: HttpClient,
    guard: Guard,
    deadline: Duration,
    reading: Arc<Semaphore>,
}

/// A good fetch.
#[derive(Debug)]
pub enum Found {
    /// It is as it was the last time.
    Unchanged,
    Feed(Box<Document>),
}

#[derive(Debug)]
pub struct Document {
    pub parsed: Parsed,
    /// Where it is: the feed's URL, or what the page there names.
    pub found_url: String,
    /// Where it came from in the end, and its conditions.
    pub validator_url: Option<String>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// A failed fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A sentence or two for the feed's owner.
    pub why: String,
    /// There is no feed at this address.
    pub nothing_there: bool,
    /// When a 429 or 503 asked to be asked again.
    pub retry_after: Option<DateTime<Utc>>,
}

impl Failure {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), nothing_there: false, retry_after: None }
    }
}

/// An answer that has a body.
struct Page {
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl Page {
    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn condition(&self, name: HeaderName) -> Option<String> {
        self.header(name).filter(|value| value.len() <= LONGEST_CONDITION).map(str::to_owned)
    }
}

enum Got {
    NotModified,
    Page(Box<Page>),
}

impl Fetcher {
    /// Behind the guard, with the promised deadline and cap.
    pub fn new(guard: Guard) -> Self {
        Self::with_deadline(guard, DEADLINE)
    }

    pub fn with_deadline(guard: Guard, deadline: Duration) -> Self {
        let client = HttpClient::guarded(guard.clone(), deadline, LARGEST);
        Self { client, guard, deadline, reading: Arc::new(Semaphore::new(READ_AT_ONCE)) }
    }

    /// Fetches a feed, and reads it.
    pub async fn fetch(&self, feed: &Feed, now: DateTime<Utc>) -> Result<Found, Failure> {
        let end = Instant::now() + self.deadline;
        let page = match self.get(feed.address(), feed, end, now).await? {
            Got::NotModified => return Ok(Found::Unchanged),
            Got::Page(page) => page,
        };
        let (page, read) = self.read(page, end).await;
        let not_a_feed = match read {
            Ok(parsed) => return Ok(document(parsed, &page, feed.address())),
            Err(error @ NotAFeed::TooSlow) => return Err(Failure::new(no_feed(&error))),
            Err(error) => error,
        };
        // Where a page's feed was found is none any more: its page is asked the next time.
        let candidates = if feed.found_url.is_some() { Vec::new() } else { candidates(feed, &page, &not_a_feed) };
        let mut failure = Failure { nothing_there: true, ..Failure::new(no_feed(&not_a_feed)) };
        for address in candidates {
            match self.candidate(&address, feed, end, now).await {
                Ok(found) => return Ok(found),
                Err(other) => {
                    let at = shown(&address);
                    failure.why =
                        format!("{} The feed that it should have at {at}: {}", no_feed(&not_a_feed), other.why);
                }
            }
        }
        Err(failure)
    }

    async fn candidate(&self, address: &str, feed: &Feed, end: Instant, now: DateTime<Utc>) -> Result<Found, Failure> {
        let page = match self.get(address, feed, end, now).await? {
            Got::NotModified => return Ok(Found::Unchanged),
            Got::Page(page) => page,
        };
        let (page, read) = self.read(page, end).await;
        let parsed = read.map_err(|error| Failure::new(no_feed(&error)))?;
        Ok(document(parsed, &page, address))
    }

    /// Asks an address, and those that it leads to.
    async fn get(&self, address: &str, feed: &Feed, end: Instant, now: DateTime<Utc>) -> Result<Got, Failure> {
        let mut address = address.to_owned();
        for _ in 0..=REDIRECTS {
            let url = self.guard.check_url(&address, SchemePolicy::HttpOrHttps);
            let url = url.map_err(|refusal| Failure::new(format!("The address {} {refusal}.", shown(&address))))?;
            let conditional = feed.validator_url.as_deref() == Some(url.as_str());
            let answer = self.ask(&url, feed, conditional, end).await;
            let answer = answer.map_err(|error| Failure::new(format!("The feed could not be fetched: {error}.")))?;
            match answer.status {
                StatusCode::NOT_MODIFIED if conditional => return Ok(Got::NotModified),
                status if is_redirect(status) => {
                    let location = answer.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
                    let next = location.and_then(|location| url.join(location).ok());
                    let Some(next) = next else {
                        return Err(Failure::new(format!(
                            "The server answered {} and did not say where to.",
                            status.as_u16()
                        )));
                    };
                    address = next.into();
                }
                status if status.is_success() => {
                    if answer.truncated {
                        return Err(Failure::new("The feed is larger than 5 MiB."));
                    }
                    return Ok(Got::Page(Box::new(Page { url, headers: answer.headers, body: answer.body })));
                }
                status => return Err(refused(status, &answer.headers, now)),
            }
        }
        Err(Failure::new(format!("The address leads through more than {REDIRECTS} redirects.")))
    }

    /// One request, within what is left of the time.
    async fn ask(&self, url: &Url, feed: &Feed, conditional: bool, end: Instant) -> Result<Answer, HttpError> {
        let client = self.client.with_limits(end.saturating_duration_since(Instant::now()), LARGEST);
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

    /// Reads a document, on a thread that may take its time. It waits its turn there as long as it may take at all, and the
    /// turn lasts until the thread is done, also where this future was dropped.
    async fn read(&self, page: Box<Page>, end: Instant) -> (Box<Page>, Result<Parsed, NotAFeed>) {
        let turn = tokio::time::timeout_at(end.into(), self.reading.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return (page, Err(NotAFeed::TooSlow)) };
        let (body, base) = (page.body.clone(), page.url.clone());
        let kind = page.header(header::CONTENT_TYPE).map(str::to_owned);
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            feeds::parse(&body, kind.as_deref(), &base, &Deadline::new(&|| Instant::now() >= end))
        });
        let read = read.await.unwrap_or_else(|_| Err(NotAFeed::Broken("it could not be read".to_owned())));
        (page, read)
    }
}

/// An address without what may be secret in it: who asks, and the query.
fn shown(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "it leads to".to_owned() };
    // Those that cannot have a user have none.
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

fn refused(status: StatusCode, headers: &HeaderMap, now: DateTime<Utc>) -> Failure {
    let asks = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = headers.get(header::RETRY_AFTER).filter(|_| asks).and_then(|value| value.to_str().ok());
    Failure {
        why: format!("The server answered {}.", status.as_u16()),
        nothing_there: matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE),
        retry_after: retry_after.and_then(|value| parse_retry_after(value, now)),
    }
}

fn no_feed(error: &NotAFeed) -> String {
    match error {
        NotAFeed::Page(_) => "What is at this address is a web page, and no feed.".to_owned(),
        error => format!("What is at this address could not be read as a feed: {error}."),
    }
}

/// Where the feed of a page may be.
fn candidates(feed: &Feed, page: &Page, error: &NotAFeed) -> Vec<String> {
    let mut all = match error {
        NotAFeed::Page(named) => named.clone(),
        _ => Vec::new(),
    };
    if feed.kind == FeedType::Wordpress && all.is_empty() {
        all = discover::of_wordpress(&page.url);
    }
    all
}

fn document(parsed: Parsed, page: &Page, address: &str) -> Found {
    let (etag, last_modified) = (page.condition(header::ETAG), page.condition(header::LAST_MODIFIED));
    let validator_url = (etag.is_some() || last_modified.is_some()).then(|| page.url.to_string());
    let found_url = address.to_owned();
    Found::Feed(Box::new(Document { parsed, found_url, validator_url, etag, last_modified }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_document_is_read_within_the_deadline() {
        let fetcher = Fetcher::new(Guard::new(Vec::new()));
        let page = || {
            let url = Url::parse("https://example.com/feed").unwrap();
            let body = Bytes::from_static(b"<rss version='2.0'><channel><item><title>x</title></item></channel></rss>");
            Box::new(Page { url, headers: HeaderMap::new(), body })
        };
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(600));
        assert_eq!(fetcher.read(page(), later).await.1.unwrap().articles.len(), 1);
        assert_eq!(fetcher.read(page(), now).await.1.unwrap_err(), NotAFeed::TooSlow);
        // All turns are taken.
        let turns = fetcher.reading.clone().acquire_many_owned(READ_AT_ONCE as u32).await.unwrap();
        assert_eq!(fetcher.read(page(), now).await.1.unwrap_err(), NotAFeed::TooSlow);
        drop(turns);
        assert_eq!(fetcher.read(page(), later).await.1.unwrap().articles.len(), 1);
    }
}
