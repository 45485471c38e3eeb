//! Finds the URLs in a text, for platforms that count every URL the same. Bluesky has its own rules
//! (`bluesky/facets.rs`).
//!
//! Detection prefers short URLs: if a URL is cut too early, a text counts longer than on the platform, never shorter.
//!
//! The linkify crate does not serve here: in scripts without spaces, its URLs continue into the text after them
//! (`https://t.co/aをb`), so a text would count shorter than on the platform. For URLs without a scheme, it takes every
//! Latin word for a top-level domain (`end.Then`), and finds no top-level domain of another script (`x.рф`).

use std::ops::Range;

use super::domains::is_top_level;

/// The maximum number of characters of a top-level domain.
const MAX_TOP_LEVEL: usize = 24;

/// Returns the URLs of `text` as byte offsets, in order and without overlap. `bare` also finds `example.com/path` (X
/// links it).
pub fn find(text: &str, bare: bool) -> Vec<Range<usize>> {
    let mut links = Vec::new();
    let mut from = 0;
    let mut previous = None;
    for (at, c) in text.char_indices() {
        if at < from {
            previous = Some(c);
            continue;
        }
        let length = match previous {
            Some(p) if !may_precede(p) => None,
            _ => with_scheme(&text[at..]),
        }
        .or_else(|| match previous {
            Some(p) if !may_precede_bare(p) => None,
            _ if bare => without_scheme(&text[at..]),
            _ => None,
        });
        if let Some(length) = length {
            from = at + length;
            links.push(at..from);
        }
        previous = Some(c);
    }
    links
}

fn may_precede(c: char) -> bool {
    !c.is_ascii_alphanumeric()
}

/// Returns whether `c` may precede a domain without a scheme. Characters that may be part of a name, an email address
/// (`me@example.com`) or a path may not; letters of scripts without spaces may.
fn may_precede_bare(c: char) -> bool {
    !(is_bare_char(c) || matches!(c, '@' | '\u{FF20}' | '.' | '_' | '/' | '#' | '\u{FF03}' | '$' | '+' | '%'))
}

/// Returns the length of the URL with a scheme at the start of `text`.
fn with_scheme(text: &str) -> Option<usize> {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|s| text.get(..s.len()).is_some_and(|start| start.eq_ignore_ascii_case(s)))?
        .len();
    let (host, last_label, whole) = host(&text[scheme..])?;
    if last_label.len() < 2 && !last_label.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(scheme + if whole { host + tail(&text[scheme + host..]) } else { host })
}

/// Returns the length of the URL without a scheme at the start of `text`: labels of Latin letters, digits and hyphens
/// up to the last top-level domain, and the rest of the URL.
fn without_scheme(text: &str) -> Option<usize> {
    let label = |from: usize| text[from..].find(|c| !is_bare_char(c)).unwrap_or(text.len() - from);
    let (mut at, mut end) = (label(0), None);
    if at == 0 || text.starts_with('-') {
        return None;
    }
    while text[at..].starts_with('.') {
        end = top_level(&text[at + 1..]).map(|length| at + 1 + length).or(end);
        let length = label(at + 1);
        if length == 0 {
            break;
        }
        at += 1 + length;
    }
    let end = end?;
    Some(end + tail(&text[end..]))
}

/// Returns the length of the longest top-level domain at the start of `text` that ends there.
fn top_level(text: &str) -> Option<usize> {
    let continues = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '+' | '-');
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(MAX_TOP_LEVEL);
    let ends = ends.take_while(|end| text[..*end].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-'));
    ends.filter(|end| !text[*end..].starts_with(continues) && is_top_level(&text[..*end])).last()
}

/// Returns whether `c` may be part of a label before the top-level domain: an ASCII letter or digit, a hyphen, or a Latin
/// letter with an accent.
fn is_bare_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || (('\u{C0}'..='\u{24F}').contains(&c) && !matches!(c, '×' | '÷'))
}

/// Parses the host at the start of `text`. Returns its length, its last label, and whether it ended on its own, and not
/// at letters of another script (`example.com` in `example.comのページ`).
fn host(text: &str) -> Option<(usize, &str, bool)> {
    let run = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    let name = text[..run].trim_end_matches(['.', '-']);
    let (front, last) = name.rsplit_once('.')?;
    if front.is_empty() || front.starts_with('.') || front.contains("..") {
        return None;
    }
    let ascii = last.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(last.len());
    let label = &last[..ascii];
    if label.is_empty() {
        return None;
    }
    let end = front.len() + 1 + ascii;
    Some((end, label, ascii == last.len() && end == run))
}

/// Returns the length of port, path, query and fragment, without the punctuation that ends a sentence.
fn tail(text: &str) -> usize {
    if !text.starts_with(['/', '?', '#', ':']) {
        return 0;
    }
    let run = text.find(|c: char| !is_url_char(c)).unwrap_or(text.len());
    let mut url = &text[..run];
    let count = |c: char| url.matches(c).count();
    let (mut round, mut square) = (count(')').saturating_sub(count('(')), count(']').saturating_sub(count('[')));
    while let Some(last) = url.chars().next_back() {
        match last {
            '.' | ',' | ':' | ';' | '!' | '?' | '\'' | '*' => {}
            ')' if round > 0 => round -= 1,
            ']' if square > 0 => square -= 1,
            _ => break,
        }
        url = &url[..url.len() - last.len_utf8()];
    }
    url.len()
}

/// Returns whether `c` may be part of a URL: ASCII, or a Latin or Cyrillic letter, which users paste unescaped.
fn is_url_char(c: char) -> bool {
    (c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '`' | '{' | '}' | '|' | '\\' | '^'))
        || ('\u{C0}'..='\u{4FF}').contains(&c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str, bare: bool) -> Vec<&str> {
        find(text, bare).into_iter().map(|link| &text[link]).collect()
    }

    #[test]
    fn trailing_punctuation_is_not_part_of_a_url() {
        assert_eq!(found("See https://example.com/a?b=c#d.", false), ["https://example.com/a?b=c#d"]);
        assert_eq!(found("(http://example.com/a_(b))", false), ["http://example.com/a_(b)"]);
        assert_eq!(found("HTTPS://Example.COM:8080/x, next", false), ["HTTPS://Example.COM:8080/x"]);
        assert_eq!(found("https://example.comのページ", false), ["https://example.com"]);
        assert_eq!(found("読むhttps://example.jp/です", false), ["https://example.jp/"]);
        assert_eq!(found("https://example.jp/aをご覧ください。v2 も", false), ["https://example.jp/a"]);
    }

    #[test]
    fn text_without_urls_has_no_links() {
        for text in ["http://", "https://localhost", "xhttps://example.com", "http://-", "http://.com", "https://a..b"]
        {
            assert!(found(text, false).is_empty(), "{text}");
        }
    }

    #[test]
    fn bare_domains_are_links_only_with_a_known_tld() {
        assert_eq!(found("go to example.com/x or t.co, not to end.Then", true), ["example.com/x", "t.co"]);
        assert!(found("example.com", false).is_empty());
        for (text, links) in [
            ("(Example.PHOTOGRAPHY)", vec!["Example.PHOTOGRAPHY"]),
            ("éclair.café.paris:8080/ü?x. Then", vec!["éclair.café.paris:8080/ü?x"]),
            ("これはexample.comです", vec!["example.com"]),
            ("shop.みんな、x.рф/y", vec!["shop.みんな", "x.рф/y"]),
            ("shop.みんなの", vec!["shop.みんな"]),
            ("a.com.notatld a.b.notatld", vec!["a.com"]),
            ("x.xn--p1ai a.bar.com", vec!["x.xn--p1ai", "a.bar.com"]),
            ("example.com_x example.comx example.com-x", vec!["example.com"]),
            ("https://a.example/b.com c.org.", vec!["https://a.example/b.com", "c.org"]),
        ] {
            assert_eq!(found(text, true), links, "{text}");
        }
        for text in
            ["me@example.com", "a.b@example.org", "me.com@notatld", "#example.com", "-a.com", ".com", "a..com", "3.14"]
        {
            assert!(found(text, true).is_empty(), "{text}: {:?}", found(text, true));
        }
    }

    proptest! {
        #[test]
        fn links_are_ordered_and_do_not_overlap(text in r"([ .:/@#a-z-]|https?://|\.com|\.みんな|\PC){0,60}", bare: bool) {
            let mut end = 0;
            for link in find(&text, bare) {
                prop_assert!(link.start >= end && link.end > link.start);
                let url = text.get(link.clone()).unwrap_or_default();
                prop_assert!(!url.is_empty() && !url.contains(char::is_whitespace));
                prop_assert!(bare || url.to_ascii_lowercase().starts_with("http"));
                end = link.end;
            }
        }
    }
}
