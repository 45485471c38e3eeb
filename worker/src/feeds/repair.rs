//! Repairs common errors in untrusted XML and rejects malicious input before it reaches the parser, in one pass.
//!
//! - Repaired: a bare `&` or `<`, references to characters that do not exist, unescaped markup in the texts of RSS,
//!   elements of Atom in RSS ([`super::atom_in_rss`]), namespaces and versions of old feeds that the parser does not
//!   know, and URLs for which it would reject the whole feed.
//! - Removed: comments, processing instructions and the DOCTYPE with all its definitions, so that there are no entities
//!   to expand.
//! - Rejected: more elements or deeper nesting than in any real feed (the parser recurses for some elements), and tags
//!   with too many attributes. These limits bound all comparisons between elements or attributes, here and in the
//!   parser.
//!
//! quick-xml, which the parser uses, is not a replacement: even with its lenient options it reads 5 of the 58 XML
//! documents of the corpus differently (bare `<`, unescaped markup, truncated and overlapping elements). A parser of
//! our own based on it would need most of this pass, and the 3,000 lines of feed-rs about the formats.
//!
//! **To repair another error:** its arm in [`Repairer::run`], or its line in [`NAMESPACES`], and a document with the
//! error in the corpus.

use std::borrow::Cow;

use crier_html::{MAX_URL, end_of_tag};
use encoding_rs::WINDOWS_1252;
use url::Url;

use super::atom_in_rss::{RssItems, WrittenName};
use super::tag::Tag;
use super::{Deadline, FeedError, MAX_ITEMS};

const MAX_DEPTH: usize = 200;
const MAX_TAG_BYTES: usize = 16 << 10;
const MAX_ATTRIBUTES: usize = 100;
/// The maximum number of elements: 40 for each of 10,000 articles.
const MAX_ELEMENTS: usize = 400_000;

const RSS_1: &str = "http://purl.org/rss/1.0/";
/// Namespace names in old feeds, and the corresponding names that the parser knows.
const NAMESPACES: &[(&str, &str)] = &[
    ("http://my.netscape.com/rdf/simple/0.9/", RSS_1),
    ("http://channel.netscape.com/rdf/simple/0.9/", RSS_1),
    ("http://purl.org/atom/ns#", "http://www.w3.org/2005/Atom"),
    ("https://www.w3.org/2005/Atom", "http://www.w3.org/2005/Atom"),
    ("http://www.itunes.com/DTDs/Podcast-1.0.dtd", "http://www.itunes.com/dtds/podcast-1.0.dtd"),
    ("http://search.yahoo.com/mrss", "http://search.yahoo.com/mrss/"),
    ("https://search.yahoo.com/mrss/", "http://search.yahoo.com/mrss/"),
];
/// Versions of RSS that the parser knows.
const VERSIONS: &[&str] = &["2.0", "0.91", "0.92"];
/// RSS elements that contain only text. Tags inside them are unescaped markup of the text.
const TEXTS: &[&str] = &["title", "description", "encoded"];
/// Elements whose text is a person. The parser searches the text for an email address, and panics if it is next to
/// non-ASCII letters.
const PERSONS: &[&str] = &["author", "creator", "managingEditor", "webMaster"];

/// Returns the repaired document.
pub fn repair(text: &str, deadline: &Deadline<'_>) -> Result<String, FeedError> {
    let mut repairer = Repairer::new(text, deadline);
    repairer.run()?;
    Ok(repairer.out)
}

struct Repairer<'a> {
    text: &'a str,
    at: usize,
    out: String,
    /// The open elements.
    open: Vec<OpenElement<'a>>,
    /// The name of the root element.
    root: &'a str,
    items: usize,
    rss: RssItems<'a>,
    elements: usize,
    /// The total length of the base URLs of the open elements, in bytes.
    base_bytes: usize,
    deadline: &'a Deadline<'a>,
}

#[derive(Clone, Copy)]
struct OpenElement<'a> {
    name: &'a str,
    written: WrittenName,
    /// The length of its base URL, in bytes.
    base_bytes: usize,
}

impl OpenElement<'_> {
    /// Returns the name that the parser sees, without its prefix.
    fn local(&self) -> &str {
        match self.written {
            WrittenName::Other(name) => name,
            WrittenName::Same | WrittenName::None => local_of(self.name),
        }
    }
}

impl<'a> Repairer<'a> {
    fn new(text: &'a str, deadline: &'a Deadline<'a>) -> Self {
        let out = String::with_capacity(text.len() + 64);
        let rss = RssItems::default();
        Self { text, at: 0, out, open: Vec::new(), root: "", items: 0, rss, elements: 0, base_bytes: 0, deadline }
    }

    fn run(&mut self) -> Result<(), FeedError> {
        while self.at < self.text.len() {
            self.deadline.check()?;
            let rest = &self.text[self.at..];
            if let Some(end) = rest.find('<').filter(|end| *end > 0) {
                self.push_text(&rest[..end]);
                self.at += end;
            } else if !rest.starts_with('<') {
                self.push_text(rest);
                break;
            } else if rest.starts_with("<!--") {
                self.skip_to(rest, "-->");
            } else if rest.starts_with("<![CDATA[") {
                let end = rest.find("]]>").map_or(rest.len(), |end| end + 3);
                let piece = self.mask_email_address(&rest[..end]);
                self.out.push_str(&piece);
                self.at += end;
            } else if rest.starts_with("<?") {
                self.skip_to(rest, "?>");
            } else if rest.starts_with("<!") {
                self.at += doctype_end(rest);
            } else if rest.starts_with("</") {
                let end = rest.find('>').map_or(rest.len(), |end| end + 1);
                let name = rest[2..end].trim_end_matches('>').trim_end();
                if self.is_in_text() && self.open.last().map(|open| open.name) != Some(name) {
                    self.push_escaped(&rest[..end]);
                } else {
                    self.end(name, &rest[..end]);
                }
                self.at += end;
            } else if rest[1..].starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | ':')) {
                if self.begin(rest)? {
                    break;
                }
            } else {
                self.out.push_str("&lt;");
                self.at += 1;
            }
        }
        Ok(())
    }

    fn skip_to(&mut self, rest: &str, end: &str) {
        self.at += rest.find(end).map_or(rest.len(), |at| at + end.len());
    }

    /// Handles an end tag.
    fn end(&mut self, name: &str, tag: &str) {
        if name == "item" && self.root == "rss" && self.open.last().is_some_and(|open| open.name == name) {
            // Written after the item's own links, because the parser uses the first link.
            if let Some(page) = self.rss.page() {
                self.out.push_str("<link>");
                self.push_text(&page.replace('<', "&lt;"));
                self.out.push_str("</link>");
            }
        }
        let closed = self.open.pop();
        self.base_bytes -= closed.map_or(0, |open| open.base_bytes);
        match closed.filter(|open| open.name == name).map_or(WrittenName::Same, |open| open.written) {
            WrittenName::Same => self.out.push_str(tag),
            WrittenName::Other(written) => self.out.extend(["</", written, ">"]),
            WrittenName::None => {}
        }
    }

    /// Handles a start tag. Returns true if the maximum number of articles is reached: the open elements are closed,
    /// and the rest of the document is dropped.
    fn begin(&mut self, rest: &'a str) -> Result<bool, FeedError> {
        if self.is_in_text() {
            let end = 1 + end_of_tag(&rest[1..], MAX_TAG_BYTES - 1).unwrap_or(0);
            self.push_escaped(&rest[..end]);
            self.at += end;
            return Ok(false);
        }
        let end = tag_end(rest)?;
        let tag = Tag::new(&rest[..end]);
        let local = local_of(tag.name);
        if matches!(local, "item" | "entry") {
            self.items += 1;
            if self.items > MAX_ITEMS {
                for open in std::mem::take(&mut self.open).iter().rev() {
                    self.out.extend(["</", open.name, ">"]);
                }
                return Ok(true);
            }
        }
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(FeedError::Broken(format!("it has more than {MAX_ELEMENTS} elements")));
        }
        let parent = self.open.last().map(|open| local_of(open.name));
        if tag.name == "media:thumbnail" && matches!(parent, Some("item" | "entry")) {
            // The parser drops a thumbnail without a media content. (The prefix may be declared on the thumbnail
            // itself.)
            self.out.push_str("<media:content xmlns:media=\"http://search.yahoo.com/mrss/\" url=\"about:none\"/>");
        }
        let written = self.written_name(tag);
        let base_bytes = match written {
            WrittenName::Same => self.push_tag(tag)?,
            WrittenName::Other(name) => {
                self.out.extend(["<", name, if tag.is_empty { "/>" } else { ">" }]);
                0
            }
            WrittenName::None => 0,
        };
        if self.root.is_empty() {
            self.root = tag.name;
        }
        if !tag.is_empty {
            self.open.push(OpenElement { name: tag.name, written, base_bytes });
            self.base_bytes += base_bytes;
            if self.open.len() > MAX_DEPTH {
                return Err(FeedError::Broken(format!("its elements are nested more than {MAX_DEPTH} levels deep")));
            }
        }
        self.at += end;
        Ok(false)
    }

    /// Returns the name under which an element is written, and records the elements of an RSS item.
    fn written_name(&mut self, tag: Tag<'a>) -> WrittenName {
        if self.root != "rss" && !(self.root.is_empty() && tag.name == "rss") {
            return WrittenName::Same;
        }
        // The root and its channel.
        if self.open.len() < 2 {
            self.rss.declare(tag.attributes().take(MAX_ATTRIBUTES).map(|(name, value)| (name, known_namespace(value))));
        }
        if tag.name == "item" {
            self.rss.begin_item();
        }
        let is_in_item = self.open.iter().rev().take(2).any(|open| open.name == "item");
        match self.open.last() {
            Some(parent) if is_in_item => self.rss.name(tag, parent.name),
            _ => WrittenName::Same,
        }
    }

    /// Writes a tag in a form that the parser accepts. Returns the length of its base URL.
    fn push_tag(&mut self, tag: Tag<'_>) -> Result<usize, FeedError> {
        let (mut base_bytes, is_root) = (0, self.root.is_empty());
        let is_rss = is_root && tag.name == "rss";
        self.out.extend(["<", tag.name]);
        if is_rss && !tag.attributes().any(|(name, _)| name == "version") {
            self.out.push_str(" version=\"2.0\"");
        }
        for (n, (name, value)) in tag.attributes().enumerate() {
            if n == MAX_ATTRIBUTES {
                return Err(FeedError::Broken(format!("it has a tag with more than {MAX_ATTRIBUTES} attributes")));
            }
            let (name, value) = match name {
                // The parser rejects the whole feed for an invalid base URL. It joins each base URL to the enclosing
                // ones and copies the result to every nested element.
                "xml:base" if base_bytes > 0 || !is_url(value) || self.base_bytes + value.len() > MAX_URL => {
                    ("no-base", value)
                }
                "xml:base" => {
                    base_bytes = value.len();
                    (name, value)
                }
                // External content is not fetched; the parser rejects a feed that has both `src` and inline content.
                "src" if tag.name == "content" => ("was-src", value),
                "type" => (name, known_type(tag.name, value)),
                "version" if is_rss && !VERSIONS.contains(&value) => (name, "2.0"),
                // RSS 2.0 has no namespace; feeds that declare one still mean RSS 2.0.
                "xmlns" if is_rss => (name, RSS_1),
                _ if is_root => (name, known_namespace(value)),
                _ => (name, value),
            };
            let quote = if value.contains('"') { "'" } else { "\"" };
            self.out.extend([" ", name, "=", quote, value, quote]);
        }
        self.out.push_str(if tag.is_empty { "/>" } else { ">" });
        Ok(base_bytes)
    }

    fn is_in_text(&self) -> bool {
        self.root != "feed" && self.open.last().is_some_and(|open| TEXTS.contains(&open.local()))
    }

    fn push_escaped(&mut self, tag: &str) {
        self.out.push_str(&tag.replace('&', "&amp;").replace('<', "&lt;"));
    }

    /// Writes text with its references; an invalid reference becomes a plain `&`.
    fn push_text(&mut self, text: &str) {
        let text = self.mask_email_address(text);
        let mut rest = text.as_ref();
        while let Some(at) = rest.find('&') {
            self.out.push_str(&rest[..at]);
            rest = &rest[at..];
            match reference(rest) {
                Some((length, ReferenceKind::Valid)) => {
                    self.out.push_str(&rest[..length]);
                    rest = &rest[length..];
                }
                Some((length, ReferenceKind::Western(byte))) => {
                    self.out.push_str(&WINDOWS_1252.decode_without_bom_handling(&[byte]).0);
                    rest = &rest[length..];
                }
                Some((length, ReferenceKind::Invalid)) => rest = &rest[length..],
                None => {
                    self.out.push_str("&amp;");
                    rest = &rest[1..];
                }
            }
        }
        self.out.push_str(rest);
    }

    /// Replaces `@` in the text of a person if it contains non-ASCII letters, so that the parser finds no email
    /// address.
    fn mask_email_address<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let person = self.open.last().is_some_and(|open| PERSONS.contains(&open.local()));
        if person && text.contains('@') && !text.is_ascii() { text.replace('@', " at ").into() } else { text.into() }
    }
}

/// Returns the name without its prefix.
fn local_of(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn is_url(text: &str) -> bool {
    text.len() <= MAX_URL && matches!(Url::parse(text), Ok(_) | Err(url::ParseError::RelativeUrlWithoutBase))
}

/// Returns a `type` that the parser knows for an Atom element. It would reject the whole feed for an unknown one.
fn known_type<'a>(element: &str, value: &'a str) -> &'a str {
    let is_content = element == "content";
    if !is_content && !matches!(element, "title" | "summary" | "subtitle" | "rights") {
        return value;
    }
    match value.to_ascii_lowercase().as_str() {
        "text" | "html" | "xhtml" => value,
        other if other.ends_with("/xml") || other.ends_with("+xml") => "xhtml",
        other if is_content && other.contains('/') => value,
        other if other.contains("xhtml") => "xhtml",
        other if other.contains("html") || is_content => "html",
        _ => "text",
    }
}

fn known_namespace(value: &str) -> &str {
    NAMESPACES.iter().find(|(found, _)| *found == value).map_or(value, |(_, known)| known)
}

/// Returns the length of a start tag, respecting quoted values.
fn tag_end(rest: &str) -> Result<usize, FeedError> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate().take(MAX_TAG_BYTES) {
        match (quote, byte) {
            (None, b'>') => return Ok(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    let why = if rest.len() < MAX_TAG_BYTES { "it ends within a tag" } else { "it has a tag of more than 16 KiB" };
    Err(FeedError::Broken(why.to_owned()))
}

/// Returns the length of a DOCTYPE with its internal subset.
fn doctype_end(rest: &str) -> usize {
    let (mut quote, mut inside) = (None, false);
    for (at, byte) in rest.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') if !inside => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'[') => inside = true,
            (None, b']') => inside = false,
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    rest.len()
}

/// The meaning of a reference.
enum ReferenceKind {
    /// A valid reference, which is kept.
    Valid,
    /// A C1 control character. It stands for the windows-1252 character with the same number.
    Western(u8),
    /// An invalid character, which is removed.
    Invalid,
}

/// Parses a reference at the start of the text. Returns its length and kind; `None` if it is not a reference.
fn reference(text: &str) -> Option<(usize, ReferenceKind)> {
    let end = text.bytes().take(40).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let kind = match name.strip_prefix('#') {
        Some(number) => {
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(hex) => (hex, 16),
                None => (number, 10),
            };
            if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
                return None;
            }
            match u32::from_str_radix(digits, radix).ok().and_then(char::from_u32) {
                Some(c @ '\u{80}'..='\u{9f}') => ReferenceKind::Western(c as u8),
                Some('\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..) => ReferenceKind::Valid,
                _ => ReferenceKind::Invalid,
            }
        }
        None if name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric()) =>
        {
            ReferenceKind::Valid
        }
        None => return None,
    };
    Some((end + 1, kind))
}

#[cfg(test)]
mod tests;
