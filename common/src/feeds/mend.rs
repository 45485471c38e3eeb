//! What stands between a stranger's XML and the parser: mends what feeds commonly get wrong, and refuses what is only there
//! to do harm. One pass from the left to the right.
//!
//! Mended: a bare `&` or `<`, references to characters that do not exist, markup that stands unescaped in the texts of RSS,
//! namespaces and versions that the parser does not know by the name they have in old feeds, addresses that it would refuse
//! the whole feed for. Left out: comments, instructions and the DOCTYPE with whatever it defines, so
//! that there is no entity to be expanded. Refused: elements nested deeper than any feed's (the parser calls itself for
//! some), tags with thousands of attributes (it compares each with each).
//!
//! **To mend another mistake:** its arm in [`Mender::run`], or its line in [`NAMESPACES`], and a document of it in the corpus.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;
use url::Url;

use super::{LONGEST_URL, MOST_ITEMS, NotAFeed};

const DEEPEST: usize = 200;
const LONGEST_TAG: usize = 16 << 10;

const RSS_1: &str = "http://purl.org/rss/1.0/";
/// Names of namespaces as they are found, and as the parser knows them.
const NAMESPACES: &[(&str, &str)] = &[
    ("http://my.netscape.com/rdf/simple/0.9/", RSS_1),
    ("http://channel.netscape.com/rdf/simple/0.9/", RSS_1),
    ("http://purl.org/atom/ns#", "http://www.w3.org/2005/Atom"),
    ("https://www.w3.org/2005/Atom", "http://www.w3.org/2005/Atom"),
    ("http://www.itunes.com/DTDs/Podcast-1.0.dtd", "http://www.itunes.com/dtds/podcast-1.0.dtd"),
    ("http://search.yahoo.com/mrss\"", "http://search.yahoo.com/mrss/\""),
    ("http://search.yahoo.com/mrss'", "http://search.yahoo.com/mrss/'"),
    ("https://search.yahoo.com/mrss/", "http://search.yahoo.com/mrss/"),
];
/// Elements of RSS that have text alone: what looks like others in them is the text's markup.
const TEXTS: &[&str] = &["title", "description", "encoded"];
/// Elements whose text is a person: the parser looks for an address in it, and trips over letters beside it.
const PERSONS: &[&str] = &["author", "creator", "managingEditor", "webMaster"];

/// The document as the parser takes it.
pub fn mend(text: &str) -> Result<String, NotAFeed> {
    let mender =
        Mender { text, at: 0, out: String::with_capacity(text.len() + 64), open: Vec::new(), root: "", items: 0 };
    mender.run()
}

struct Mender<'a> {
    text: &'a str,
    at: usize,
    out: String,
    /// The elements around, by their names.
    open: Vec<&'a str>,
    /// The first of all.
    root: &'a str,
    items: usize,
}

impl<'a> Mender<'a> {
    fn run(mut self) -> Result<String, NotAFeed> {
        while self.at < self.text.len() {
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
                let piece = self.named_safely(&rest[..end]);
                self.out.push_str(&piece);
                self.at += end;
            } else if rest.starts_with("<?") {
                self.skip_to(rest, "?>");
            } else if rest.starts_with("<!") {
                self.at += doctype_end(rest);
            } else if rest.starts_with("</") {
                let end = rest.find('>').map_or(rest.len(), |end| end + 1);
                let name = rest[2..end].trim_end_matches('>').trim_end();
                if self.is_in_text() && self.open.last() != Some(&name) {
                    self.push_escaped(&rest[..end]);
                } else {
                    self.open.pop();
                    self.out.push_str(&rest[..end]);
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
        Ok(self.out)
    }

    fn skip_to(&mut self, rest: &str, end: &str) {
        self.at += rest.find(end).map_or(rest.len(), |at| at + end.len());
    }

    /// A start tag; true where there are enough articles: what is open is closed, and the rest left.
    fn begin(&mut self, rest: &'a str) -> Result<bool, NotAFeed> {
        let end = tag_end(rest)?;
        let tag = &rest[..end];
        if self.is_in_text() {
            self.push_escaped(tag);
            self.at += end;
            return Ok(false);
        }
        let name_end =
            tag[1..].find(|c: char| c.is_whitespace() || matches!(c, '/' | '>')).map_or(tag.len(), |n| n + 1);
        let name = &tag[1..name_end];
        let local = local_of(name);
        if matches!(local, "item" | "entry") {
            self.items += 1;
            if self.items > MOST_ITEMS {
                for name in std::mem::take(&mut self.open).iter().rev() {
                    self.out.extend(["</", name, ">"]);
                }
                return Ok(true);
            }
        }
        if self.root.is_empty() {
            self.root = name;
            self.out.push_str(&root(tag));
        } else {
            let parent = self.open.last().map(|name| local_of(name));
            if name == "media:thumbnail" && matches!(parent, Some("item" | "entry")) {
                // The parser forgets a thumbnail that stands beside no content. (The prefix may be the thumbnail's own.)
                self.out.push_str("<media:content xmlns:media=\"http://search.yahoo.com/mrss/\" url=\"about:none\"/>");
            }
            self.out.push_str(&with_known_type(&with_valid_base(tag), name));
        }
        if !tag.ends_with("/>") {
            self.open.push(name);
            if self.open.len() > DEEPEST {
                return Err(NotAFeed::Broken(format!("its elements are nested more than {DEEPEST} deep")));
            }
        }
        self.at += end;
        Ok(false)
    }

    fn is_in_text(&self) -> bool {
        self.root != "feed" && self.open.last().is_some_and(|name| TEXTS.contains(&local_of(name)))
    }

    fn push_escaped(&mut self, tag: &str) {
        self.out.push_str(&tag.replace('&', "&amp;").replace('<', "&lt;"));
    }

    /// Text with its references: what is none is a plain `&`.
    fn push_text(&mut self, text: &str) {
        let text = self.named_safely(text);
        let mut rest = text.as_ref();
        while let Some(at) = rest.find('&') {
            self.out.push_str(&rest[..at]);
            rest = &rest[at..];
            match reference(rest) {
                Some((length, Means::Itself)) => {
                    self.out.push_str(&rest[..length]);
                    rest = &rest[length..];
                }
                Some((length, Means::Western(byte))) => {
                    self.out.push_str(&WINDOWS_1252.decode_without_bom_handling(&[byte]).0);
                    rest = &rest[length..];
                }
                Some((length, Means::Nothing)) => rest = &rest[length..],
                None => {
                    self.out.push_str("&amp;");
                    rest = &rest[1..];
                }
            }
        }
        self.out.push_str(rest);
    }

    /// The text of a person, in which an address beside a letter that is not ASCII is not to be seen as one.
    fn named_safely<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let person = self.open.last().is_some_and(|name| PERSONS.contains(&local_of(name)));
        if person && text.contains('@') && !text.is_ascii() { text.replace('@', " at ").into() } else { text.into() }
    }
}

/// A name without its prefix.
fn local_of(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// A tag without an `xml:base` that is no address: the parser refuses a whole feed for one. Nor with one that is longer than
/// addresses are: each is joined to the one around it.
fn with_valid_base(tag: &str) -> Cow<'_, str> {
    let Some((before, rest)) = tag.split_once(" xml:base=") else { return tag.into() };
    let value = rest.get(1..).and_then(|rest| rest.split(['"', '\'']).next()).unwrap_or_default();
    let is_valid = matches!(Url::parse(value), Ok(_) | Err(url::ParseError::RelativeUrlWithoutBase));
    if is_valid && value.len() <= LONGEST_URL { tag.into() } else { format!("{before} no-base={rest}").into() }
}

/// A tag of Atom's with a `type` that the parser knows: it refuses a whole feed for one that it does not.
fn with_known_type<'t>(tag: &'t str, name: &str) -> Cow<'t, str> {
    let is_content = name == "content";
    if is_content && tag.contains(" src=") {
        // What is elsewhere is not fetched; the parser refuses a feed that has it here and there.
        return with_known_type(&tag.replacen(" src=", " was-src=", 1), name).into_owned().into();
    }
    if !is_content && !matches!(name, "title" | "summary" | "subtitle" | "rights") {
        return tag.into();
    }
    let Some((before, rest)) = tag.split_once(" type=") else { return tag.into() };
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return tag.into() };
    let Some((value, after)) = rest[1..].split_once(quote) else { return tag.into() };
    let known = match value.to_ascii_lowercase().as_str() {
        "text" | "html" | "xhtml" => return tag.into(),
        other if other.ends_with("/xml") || other.ends_with("+xml") => "xhtml",
        other if is_content && other.contains('/') => return tag.into(),
        other if other.contains("xhtml") => "xhtml",
        other if other.contains("html") || is_content => "html",
        _ => "text",
    };
    format!("{before} type=\"{known}\"{after}").into()
}

/// How long a start tag is, quotation marks heeded.
fn tag_end(rest: &str) -> Result<usize, NotAFeed> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate().take(LONGEST_TAG) {
        match (quote, byte) {
            (None, b'>') => return Ok(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    let why = if rest.len() < LONGEST_TAG { "it ends within a tag" } else { "it has a tag of more than 16 KiB" };
    Err(NotAFeed::Broken(why.to_owned()))
}

/// How long a DOCTYPE is, with what it defines.
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

/// What a reference stands for.
enum Means {
    /// What it says.
    Itself,
    /// A control character, where the one of the same number in windows-1252 is meant.
    Western(u8),
    /// No character that there is.
    Nothing,
}

/// A reference at the head of the text: its length, and what it means. `None`: it is none.
fn reference(text: &str) -> Option<(usize, Means)> {
    let end = text.bytes().take(40).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let means = match name.strip_prefix('#') {
        Some(number) => {
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(hex) => (hex, 16),
                None => (number, 10),
            };
            if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
                return None;
            }
            match u32::from_str_radix(digits, radix).ok().and_then(char::from_u32) {
                Some(c @ '\u{80}'..='\u{9f}') => Means::Western(c as u8),
                Some('\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..) => Means::Itself,
                _ => Means::Nothing,
            }
        }
        None if name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric()) =>
        {
            Means::Itself
        }
        None => return None,
    };
    Some((end + 1, means))
}

/// The root's tag with versions and namespaces that the parser knows.
fn root(tag: &str) -> String {
    let mut tag = NAMESPACES
        .iter()
        .fold(tag.to_owned(), |tag, (found, known)| if tag.contains(found) { tag.replace(found, known) } else { tag });
    if let Some(rest) = tag.strip_prefix("<rss") {
        let known = ["2.0", "0.91", "0.92"];
        let has = |version: &&str| {
            tag.contains(&format!(" version=\"{version}\"")) || tag.contains(&format!(" version='{version}'"))
        };
        if !known.iter().any(has) {
            tag = format!("<rss version=\"2.0\"{}", rest.replacen(" version", " was", 1));
        }
        // RSS 2.0 has no namespace; feeds that name one mean it all the same.
        tag = tag.replacen(" xmlns=", &format!(" xmlns=\"{RSS_1}\" was-xmlns="), 1);
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(text: &str) -> String {
        mend(text).unwrap()
    }

    #[test]
    fn what_is_commonly_wrong_is_mended() {
        for (text, right) in [
            (
                "<a>AT&T & R&D; &amp; &lt; &nbsp; &#233; &#xE9;</a>",
                "<a>AT&amp;T &amp; R&D; &amp; &lt; &nbsp; &#233; &#xE9;</a>",
            ),
            ("<a>&#0;&#x1F;&#xD800;&#9999999;&#;&#x;&#12a;</a>", "<a>&amp;#;&amp;#x;&amp;#12a;</a>"),
            ("<a>1 < 2 <3 <é/></a>", "<a>1 &lt; 2 &lt;3 <é/></a>"),
            ("<a><![CDATA[<&]]></a>", "<a><![CDATA[<&]]></a>"),
            ("<?xml version='1.0'?><!-- <a> --><!DOCTYPE a [<!ENTITY x \"]>\">]>\n<a>&x;</a>", "\n<a>&x;</a>"),
            ("<a b='>' c=\"<\">x</a>", "<a b='>' c=\"<\">x</a>"),
            ("<rss><x/></rss>", "<rss version=\"2.0\"><x/></rss>"),
            ("<rss version=\"0.93\">", "<rss version=\"2.0\" was=\"0.93\">"),
            ("<rss version='0.91'>", "<rss version='0.91'>"),
            ("<a>&#150;&#x92;</a>", "<a>–’</a>"),
            (
                "<a><title type='text/plain' x='y'/><content type=\"\"/></a>",
                "<a><title type=\"text\" x='y'/><content type=\"html\"/></a>",
            ),
            ("<a><content type=\"text/html\"/></a>", "<a><content type=\"text/html\"/></a>"),
            ("<a><content type='application/xml' src='b'/></a>", "<a><content type=\"xhtml\" was-src='b'/></a>"),
            ("<author>Jö–jo@x.de</author>", "<author>Jö–jo at x.de</author>"),
        ] {
            assert_eq!(mended(text), right, "{text}");
        }
        for (inside, right) in [
            ("<title>a <b x='&'>c</b><br></title>", "<title>a &lt;b x='&amp;'>c&lt;/b>&lt;br></title>"),
            ("<description><p>a</i></description >", "<description>&lt;p>a&lt;/i></description >"),
            ("<x xml:base='http://[y'/><x xml:base='y/'/>", "<x no-base='http://[y'/><x xml:base='y/'/>"),
        ] {
            assert_eq!(
                mended(&format!("<rss version='2.0'>{inside}</rss>")),
                format!("<rss version='2.0'>{right}</rss>")
            );
        }
        let atom = "<feed><title><b>x</b></title></feed>";
        assert_eq!(mended(atom), atom);
        assert!(mended("<rss version='2.0' xmlns='http://backend.userland.com/rss2'>").contains(RSS_1));
    }

    #[test]
    fn what_is_to_do_harm_is_refused() {
        assert!(mend(&"<a>".repeat(DEEPEST)).is_ok());
        assert!(mend(&"<a>".repeat(DEEPEST + 1)).is_err());
        assert!(mend(&"<a></a><b/>".repeat(10_000)).is_ok());
        assert!(mend(&format!("<a {}>", "b='' ".repeat(4_000))).is_err());
        assert!(mend("<a b='").is_err());
        assert!(mend("<title></\u{fffd}").is_ok() && mend("</").is_ok(), "cut off within an end tag");
    }

    #[test]
    fn a_document_without_end_is_cut_after_enough_articles() {
        let text = format!("<rss version=\"2.0\"><channel>{}", "<item><title>x</title></item>".repeat(MOST_ITEMS + 5));
        let mended = mended(&text);
        assert_eq!(mended.matches("<item>").count(), MOST_ITEMS);
        assert!(mended.ends_with("</item></channel></rss>"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "([<>&;!?/\\[\\]\"'#xa-c é-]|<!\\[CDATA\\[|]]>|<!--|-->|<!DOCTYPE|&#x|&amp;|<item>|<rss ){0,60}") {
            let _ = mend(&text);
        }
    }
}
