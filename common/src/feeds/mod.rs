//! Reading feeds: from the bytes that a server sent to articles. No I/O; whoever fetches is in the worker.
//!
//! ```text
//! bytes ─decode─> text ─┬─json──────────────> Parsed ─keep─> what to write
//!                       ├─mend─> parse (feed-rs) ┘
//!                       └─ HTML: discover ─> addresses of feeds
//! ```
//! Everything in here works on what a stranger wrote. So each step takes time and memory in proportion to its input, which
//! is bounded (5 MiB of a document, 32 KiB of an article's text), asks now and then whether there is time left, and none of them can be made to follow a reference: no
//! entity but XML's own five is resolved, and nothing is loaded. What becomes HTML that somebody sees has gone through
//! ammonia.
//!
//! **To add a format:** a file here that makes a [`Parsed`] of it, its place in [`parse`], and documents of it in
//! `tests/feeds/corpus`.

use chrono::{DateTime, Utc};
use serde::Serialize;
use url::Url;

use crate::domain::feed::{FIRST_DATE, FoundArticle, KEPT};

mod dates;
mod deadline;
mod decode;
pub mod discover;
mod html;
mod json;
pub mod keep;
mod mend;
mod sanitise;
mod tag;
mod xml;

pub use deadline::Deadline;
pub use sanitise::plain_text;

/// How much of a document is read, after decompression.
pub const LARGEST: usize = 5 << 20;
/// How many articles of one document are looked at; they are the newest in next to all feeds.
pub const MOST_ITEMS: usize = 10_000;
/// How long an address may be that is kept.
const LONGEST_URL: usize = 2_048;

crate::text_enum! {
    /// What a document turned out to be.
    pub enum Format { Rss = "rss", Atom = "atom", Json = "json" }
}

/// What stands in a feed.
#[derive(Clone, Debug, Serialize)]
pub struct Parsed {
    pub format: Format,
    pub title: Option<String>,
    /// In the order of the document.
    pub articles: Vec<FoundArticle>,
}

/// Why a document is no feed. The message completes "The feed could not be read: …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAFeed {
    #[error("it is empty")]
    Empty,
    /// Which names feeds at these addresses.
    #[error("it is a web page")]
    Page(Vec<String>),
    #[error("it is neither RSS nor Atom nor JSON Feed")]
    Unknown,
    /// The [`Deadline`] passed before it was read.
    #[error("it could not be read in time")]
    TooSlow,
    #[error("{0}")]
    Broken(String),
}

/// Reads a feed. `content_type` is the header's; `base` is where the document was found, for addresses that are relative to
/// it.
pub fn parse(
    bytes: &[u8],
    content_type: Option<&str>,
    base: &Url,
    deadline: &Deadline<'_>,
) -> Result<Parsed, NotAFeed> {
    let text = decode::decode(bytes, content_type);
    let mut parsed = match text.trim_start().chars().next() {
        None => Err(NotAFeed::Empty),
        Some('{') => json::parse(&text, base, deadline),
        Some('<') if discover::is_page(&text) => Err(NotAFeed::Page(discover::feeds(&text, base))),
        Some(_) => xml::parse(xml::from_beginning(&text).ok_or(NotAFeed::Unknown)?, base, deadline),
    }?;
    parsed.articles.iter_mut().for_each(make_storable);
    parsed.title.iter_mut().for_each(without_controls);
    Ok(parsed)
}

/// JSON may write any character, and no database takes every one.
fn make_storable(a: &mut FoundArticle) {
    without_controls(&mut a.guid);
    let texts = [&mut a.title, &mut a.url, &mut a.summary, &mut a.author, &mut a.image_url];
    texts.into_iter().flatten().for_each(without_controls);
}

fn without_controls(text: &mut String) {
    text.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
}

/// An address as it is kept: absolute, of the web, and not too long.
fn web_address(text: &str, base: &Url) -> Option<String> {
    let text = text.trim();
    // What is so long is not looked at: one document may have thousands of them.
    if text.is_empty() || text.len() > 2 * LONGEST_URL {
        return None;
    }
    let url = base.join(text).ok()?;
    let url = (matches!(url.scheme(), "http" | "https") && url.has_host()).then(|| String::from(url))?;
    (url.len() <= LONGEST_URL).then_some(url)
}

/// What an article is known by where the feed gives no id: its link, or else what it says.
fn guid(given: &str, article: &FoundArticle) -> String {
    let hash = |text: &str| {
        use sha2::{Digest, Sha256};
        let hash = Sha256::digest(text.as_bytes());
        hash.iter().fold("sha256:".to_owned(), |out, byte| out + &format!("{byte:02x}"))
    };
    match (given.trim(), &article.url) {
        ("", Some(url)) => url.clone(),
        ("", None) => hash(&format!("{:?}{:?}", article.title, article.summary)),
        // What an index takes, and no more.
        (given, _) if given.len() > 512 => hash(given),
        (given, _) => given.to_owned(),
    }
}

/// Which of a document's articles are made something of, by their dates: the newest, twice as many as are kept, as some may
/// be the same. Those without a date count as new. Their places, in the order of the document.
fn newest(dates: impl Iterator<Item = Option<DateTime<Utc>>>) -> Vec<usize> {
    let mut all: Vec<(Option<DateTime<Utc>>, usize)> = dates.zip(0..).collect();
    // Those without one first: `None` is less than any date.
    all.sort_by_key(|(at, _)| at.map(std::cmp::Reverse));
    let mut places: Vec<usize> = all.into_iter().take(2 * KEPT).map(|(_, place)| place).collect();
    places.sort_unstable();
    places
}

/// Whether a date that a feed gives may be one.
fn date(at: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    at.filter(|at| *at >= FIRST_DATE)
}
