//! RSS 0.9x, 1.0 and 2.0, and Atom: parsed by feed-rs, and converted from its model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use chrono::{DateTime, Utc};
use crier_domain::feed::{FoundArticle, MAX_FEED_NAME};
use crier_html::web_address;
use feed_rs::model::{Entry, Feed, FeedType, Link, MediaObject, Person, Text};
use feed_rs::parser::{Builder, ParseErrorKind, ParseFeedError};
use url::Url;

use super::{Deadline, FeedError, Format, Parsed, date, dates, guid, newest, repair};

/// The maximum lengths of a title and of an author, in characters.
pub const MAX_TITLE: usize = 500;
pub const MAX_AUTHOR: usize = 200;

/// The number of bytes that are searched for the beginning of a document.
const HEAD_BYTES: usize = 16 << 10;

/// Skips text before the document, such as empty lines or PHP warnings.
pub fn from_beginning(text: &str) -> Option<&str> {
    let head = &text[..text.floor_char_boundary(HEAD_BYTES)];
    let found = ["<?xml", "<rss", "<feed", "<rdf:RDF"].iter().filter_map(|mark| head.find(mark)).min();
    found.map(|at| &text[at..]).or_else(|| head.trim_start().starts_with('<').then_some(text))
}

/// Parses the text of a document.
pub fn parse(text: &str, base: &Url, deadline: &Deadline<'_>) -> Result<Parsed, FeedError> {
    let repaired = repair::repair(text, deadline)?;
    let parser = Builder::new()
        .base_uri(Some(base.as_str()))
        .sanitize_content(false)
        .timestamp_parser(dates::parse)
        // A missing id is empty rather than generated.
        .id_generator(|_, _, _| String::new())
        .build();
    // The parser panics for some unusual numbers and names.
    let read = catch_unwind(AssertUnwindSafe(|| parser.parse(deadline.reader(repaired.as_bytes()))));
    deadline.check_now()?;
    let feed = read
        .map_err(|_| FeedError::Broken("it has a value that cannot be read".to_owned()))?
        .map_err(|error| to_feed_error(&error))?;
    convert(feed, base, deadline)
}

fn to_feed_error(error: &ParseFeedError) -> FeedError {
    match error {
        ParseFeedError::ParseError(ParseErrorKind::NoFeedRoot) => FeedError::Unknown,
        ParseFeedError::XmlReader(error) => {
            let text = error.to_string();
            FeedError::Broken(format!("it is not valid XML ({})", text.trim_start_matches("Parser error: ")))
        }
        other => FeedError::Broken(other.to_string()),
    }
}

fn convert(feed: Feed, base: &Url, deadline: &Deadline<'_>) -> Result<Parsed, FeedError> {
    let format = match feed.feed_type {
        FeedType::Atom => Format::Atom,
        FeedType::JSON => Format::Json,
        FeedType::RSS0 | FeedType::RSS1 | FeedType::RSS2 => Format::Rss,
    };
    let author = feed.authors.first().and_then(name);
    let title = feed.title.as_ref().and_then(|title| line(title, format, MAX_FEED_NAME));
    let indexes = newest(feed.entries.iter().map(published));
    let mut articles = Vec::with_capacity(indexes.len());
    for index in indexes {
        deadline.check_now()?;
        articles.push(article(&feed.entries[index], format, author.as_deref(), base));
    }
    Ok(Parsed { format, title, articles })
}

fn article(entry: &Entry, format: Format, author: Option<&str>, base: &Url) -> FoundArticle {
    let url = address(entry, format, base);
    // The base for the article's own relative URLs.
    let article_base = entry.base.as_deref().and_then(|own| Url::parse(own).ok());
    let article_base =
        article_base.or_else(|| url.as_deref().and_then(|url| Url::parse(url).ok())).unwrap_or_else(|| base.clone());
    let texts = texts(entry, format);
    let summary = texts.iter().find_map(|(text, html)| match html {
        true => crier_html::summary(text, &article_base),
        false => crier_html::summary_of_text(text),
    });
    let image = image(entry, base);
    let image_url = image
        .or_else(|| texts.iter().rev().filter(|t| t.1).find_map(|(t, _)| crier_html::first_image(t, &article_base)));
    let found = FoundArticle {
        title: entry.title.as_ref().and_then(|title| line(title, format, MAX_TITLE)),
        url,
        summary,
        author: entry.authors.iter().find_map(name).or_else(|| credited(entry)).or_else(|| author.map(str::to_owned)),
        image_url,
        published_at: published(entry),
        guid: String::new(),
    };
    FoundArticle { guid: guid(&entry.id, &found), ..found }
}

/// Returns the texts of the article's content, short before long, each with whether it is HTML.
fn texts(entry: &Entry, format: Format) -> Vec<(&str, bool)> {
    let mut texts = Vec::new();
    if let Some(short) = &entry.summary {
        texts.push((short.content.as_str(), is_html(short.content_type.as_ref(), &short.content, format)));
    }
    if let Some((body, content)) = entry.content.as_ref().and_then(|c| Some((c.body.as_deref()?, c))) {
        texts.push((body, is_html(content.content_type.as_ref(), body, format)));
    }
    if let Some(description) = entry.media.iter().find_map(|m| m.description.as_ref()) {
        texts.push((description.content.as_str(), crier_html::looks_like_html(&description.content)));
    }
    texts
}

fn published(entry: &Entry) -> Option<DateTime<Utc>> {
    date(entry.published).or_else(|| date(entry.updated))
}

/// Returns whether a text is HTML. RSS allows HTML in every text without declaring it; Atom declares it, mostly
/// correctly.
fn is_html(content_type: &str, text: &str, format: Format) -> bool {
    format == Format::Rss || content_type.contains("html") || crier_html::looks_like_html(text)
}

fn line(text: &Text, format: Format, max_chars: usize) -> Option<String> {
    if is_html(text.content_type.as_ref(), &text.content, format) {
        crier_html::title(&text.content, max_chars)
    } else {
        crier_html::one_line(&text.content, max_chars)
    }
}

/// Returns the article's URL: its alternate link, or an id that is a URL.
fn address(entry: &Entry, format: Format, base: &Url) -> Option<String> {
    let is_page = |link: &&Link| {
        link.target.is_none() && link.rel.as_deref().is_none_or(|rel| rel.eq_ignore_ascii_case("alternate"))
    };
    let is_web = |link: &&Link| link.media_type.as_deref().is_none_or(|kind| kind.contains("html"));
    let pages = || entry.links.iter().filter(is_page);
    let link = pages().find(is_web).or_else(|| pages().next());
    link.and_then(|link| web_address(&link.href, base)).or_else(|| {
        let id = entry.id.trim();
        let is_address = id.starts_with("http://") || id.starts_with("https://");
        (format == Format::Rss && is_address).then(|| web_address(id, base))?
    })
}

/// Returns the name of a person. In RSS, a person is written as `joe@example.com (Joe)`.
fn name(person: &Person) -> Option<String> {
    let name = person.name.as_deref().map(|name| name.trim().trim_start_matches('(').trim_end_matches(')'));
    let name = name.filter(|name| !name.trim().is_empty()).or(person.email.as_deref())?;
    crier_html::line(name, MAX_AUTHOR)
}

/// Returns the author of a podcast episode.
fn credited(entry: &Entry) -> Option<String> {
    let credit = entry.media.iter().find_map(|m| m.credits.first());
    credit.and_then(|credit| crier_html::line(&credit.entity, MAX_AUTHOR))
}

/// Returns the image that the feed declares for an article.
fn image(entry: &Entry, base: &Url) -> Option<String> {
    let whole = |m: &MediaObject| {
        let images = m.content.iter().filter_map(|c| {
            let url = c.url.as_ref()?;
            let kind = c.content_type.as_ref().map(ToString::to_string);
            is_image(kind.as_deref(), url.as_str()).then(|| web_address(url.as_str(), base))?
        });
        images.into_iter().next()
    };
    let small = |m: &MediaObject| m.thumbnails.iter().find_map(|t| web_address(&t.image.uri, base));
    let linked = |link: &Link| {
        let enclosed = link.rel.as_deref() == Some("enclosure") && is_image(link.media_type.as_deref(), &link.href);
        enclosed.then(|| web_address(&link.href, base))?
    };
    let of_media = entry.media.iter().find_map(whole).or_else(|| entry.media.iter().find_map(small));
    of_media.or_else(|| entry.links.iter().find_map(linked))
}

/// Returns whether a file is an image, by its media type, or else by the extension in its URL.
pub fn is_image(kind: Option<&str>, url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or(url).to_ascii_lowercase();
    match kind.map(str::trim).filter(|kind| !kind.is_empty()) {
        Some(kind) => kind.starts_with("image/"),
        None => [".jpg", ".jpeg", ".png", ".gif", ".webp"].iter().any(|end| path.ends_with(end)),
    }
}
