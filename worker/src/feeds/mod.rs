//! Parses feeds, from a server's bytes to articles. Does no I/O; `jobs::fetch_feed` fetches them.
//!
//! ```text
//! bytes ─decode─> text ─┬─json──────────────> Parsed ─keep─> what to write
//!                       ├─repair─> parse (feed-rs) ┘
//!                       └─ HTML: discover ─> URLs of feeds
//! ```
//! All input here is untrusted. Therefore each step takes time and memory linear in its input, which is bounded (5 MiB
//! of a document, 32 KiB of an article's text), checks a deadline regularly, and follows no references: only XML's five
//! predefined entities are resolved, and nothing is loaded. All HTML that is shown to users passes through
//! [`crier_html`].
//!
//! **To add a format:** a file here that returns a [`Parsed`], its branch in [`parse`], and documents in
//! `tests/feeds/corpus`.

use chrono::{DateTime, Utc};
use crier_base::hexadecimal;
use crier_domain::feed::{FoundArticle, MAX_ARTICLES, MIN_ARTICLE_DATE};
use serde::Serialize;
use url::Url;

mod atom_in_rss;
mod dates;
mod deadline;
pub mod diff;
pub mod discover;
mod json;
mod repair;
mod tag;
mod xml;

pub use deadline::Deadline;

/// The maximum size of a document, in bytes, after decompression.
pub const MAX_DOCUMENT_BYTES: usize = 5 << 20;
/// The maximum number of articles that are read from one document. Nearly all feeds list the newest first.
pub const MAX_ITEMS: usize = 10_000;
crier_base::text_enum! {
    /// The format of a document.
    pub enum Format { Rss = "rss", Atom = "atom", Json = "json" }
}

/// A parsed feed.
#[derive(Clone, Debug, Serialize)]
pub struct Parsed {
    pub format: Format,
    pub title: Option<String>,
    /// The articles in the order of the document.
    pub articles: Vec<FoundArticle>,
}

/// Why a document is not a feed. The message completes "The feed could not be read: …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    #[error("it is empty")]
    Empty,
    /// A web page, with the URLs of the feeds that it links to.
    #[error("it is a web page")]
    Page(Vec<String>),
    #[error("it is neither RSS nor Atom nor JSON Feed")]
    Unknown,
    /// The [`Deadline`] passed during parsing.
    #[error("it could not be read in time")]
    TooSlow,
    #[error("{0}")]
    Broken(String),
}

/// Parses a feed. `content_type` is the header's value; `base` is the document's URL, for resolving relative URLs.
pub fn parse(
    bytes: &[u8],
    content_type: Option<&str>,
    base: &Url,
    deadline: &Deadline<'_>,
) -> Result<Parsed, FeedError> {
    let text = crier_html::decode(bytes, content_type);
    let mut parsed = match text.trim_start().chars().next() {
        None => Err(FeedError::Empty),
        Some('{') => json::parse(&text, base, deadline),
        Some('<') if discover::is_page(&text) => Err(FeedError::Page(discover::feeds(&text, base))),
        Some(_) => xml::parse(xml::from_beginning(&text).ok_or(FeedError::Unknown)?, base, deadline),
    }?;
    parsed.articles.iter_mut().for_each(make_storable);
    parsed.title.iter_mut().for_each(without_controls);
    Ok(parsed)
}

/// Removes characters that JSON can contain but a database rejects.
fn make_storable(a: &mut FoundArticle) {
    without_controls(&mut a.guid);
    let texts = [&mut a.title, &mut a.url, &mut a.summary, &mut a.author, &mut a.image_url];
    texts.into_iter().flatten().for_each(without_controls);
}

fn without_controls(text: &mut String) {
    text.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
}

/// Returns the article's guid: its id in the feed, else its URL, else a hash of its content.
fn guid(id: &str, article: &FoundArticle) -> String {
    let hash = |text: &str| format!("sha256:{}", hexadecimal::sha256(text, 32));
    match (id.trim(), &article.url) {
        ("", Some(url)) => url.clone(),
        ("", None) => hash(&format!("{:?}{:?}", article.title, article.summary)),
        // The size of an index entry is limited.
        (id, _) if id.len() > 512 => hash(id),
        (id, _) => id.to_owned(),
    }
}

/// Returns the indexes of the newest articles, in the order of the document. Returns twice as many as are kept, because
/// some may be duplicates. Articles without a date count as new.
fn newest(dates: impl Iterator<Item = Option<DateTime<Utc>>>) -> Vec<usize> {
    let mut all: Vec<(Option<DateTime<Utc>>, usize)> = dates.zip(0..).collect();
    // Undated articles sort first: `None` is less than any date.
    all.sort_by_key(|(at, _)| at.map(std::cmp::Reverse));
    let mut indexes: Vec<usize> = all.into_iter().take(2 * MAX_ARTICLES).map(|(_, index)| index).collect();
    indexes.sort_unstable();
    indexes
}

/// Discards dates that are placeholders.
fn date(at: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    at.filter(|at| *at >= MIN_ARTICLE_DATE)
}
